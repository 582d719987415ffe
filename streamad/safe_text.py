"""Text from elsewhere, made safe to print: controls and changes of direction as escapes, secrets of URLs masked."""

from __future__ import annotations

import re

MASK = "***"

# What acts on a terminal or its reader and shows nothing, but tab and line feed: controls, changes of direction,
# characters without a width (but the joiners of Persian and Indic scripts), surrogates, which no terminal can encode.
_UNSEEN = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    r"\ud800-\udfff\U000e0000-\U000e0fff]"
)
_BREAKS = re.compile(r"[\t\n]")

_SECRET_NAME = (
    r"(?:[\w.-]*(?:password|passwd|passphrase|pwd|pw|secret|token|credentials?|signature)"
    r"|(?:[\w.-]*[_.-])?(?:key|apikey|sig|auth))"
)
_IS_SECRET = re.compile(_SECRET_NAME, re.IGNORECASE)
_PARAMETER = re.compile(rf"([?&;#]{_SECRET_NAME}(?:=|%3D))[^&;\s\"'<>]*", re.IGNORECASE)
# User and password end at the last @: they may hold any other character but spaces, and quotes only inside of a word:
# a quote before punctuation ends a quoted URL. A URL that was taken for a path has lost one of its slashes. The lengths
# are bounded, or a hostile text would take a time that grows with its square.
_INSIDE = r"(?:[^\s\"'<>]|[\"'](?=[^\s\"'<>,:;.)\]}]))"
_USER = re.compile(
    rf"(?<![A-Za-z0-9+.-])((?!file:)[A-Za-z][A-Za-z0-9+.-]{{1,63}}:/{{1,9}}|kafka:){_INSIDE}{{0,4096}}@", re.IGNORECASE
)

# The same without a scheme, as in a list of brokers: only before a host with its port, as ids may hold colons and @.
_BARE_USER = re.compile(
    rf"(?<![\w./+-])(?!(?:file|kafka):)[^\s\"'<>,;/:@=?&(\[{{]{{1,256}}:(?!/){_INSIDE}{{0,512}}@"
    r"(?=(?:[\w.-]+|\[[0-9A-Fa-f:.%]+\]):[0-9]{1,5}(?![0-9]))"
)


def visible(text: str) -> str:
    """Return ``text`` with escapes in place of controls: names and notes come from others, and may carry any."""
    return _UNSEEN.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def visible_name(text: str) -> str:
    """Return ``visible(text)`` with escapes for tabs and line ends as well: a name cannot begin a line of its own."""
    return _BREAKS.sub(lambda found: found[0].encode("unicode_escape").decode(), visible(text))


def visible_json(text: str) -> str:
    """Return the JSON ``text`` with controls as JSON's escapes, which mean the same."""
    return _UNSEEN.sub(lambda found: _json_escape(ord(found[0])), text)


def _json_escape(code: int) -> str:
    if code < 0x10000:
        return f"\\u{code:04x}"
    high, low = divmod(code - 0x10000, 0x400)
    return f"\\u{0xD800 + high:04x}\\u{0xDC00 + low:04x}"


def one_line(text: str) -> str:
    """Return ``text`` on one line, without runs of spaces: it cannot pass for a line of streamad's own."""
    return " ".join(text.split())


def text_of(error: BaseException) -> str:
    """Return the text of ``error``; "" if its class, which may be foreign, fails to make one."""
    try:
        return str(error)
    except KeyboardInterrupt:
        raise
    except BaseException:  # noqa: BLE001 - a foreign __str__ may raise anything, and the error must be shown
        return ""


def described(error: BaseException) -> str:
    """Return ``repr(error)`` on one line, the name of its class if that fails."""
    try:
        return one_line(repr(error))
    except KeyboardInterrupt:
        raise
    except BaseException:  # noqa: BLE001 - as above
        return one_line(type(error).__name__)


def is_secret_name(name: str) -> bool:
    """Return whether a URL's parameter ``name`` has a secret as its value: ``password``, ``sasl_password``, ``key``."""
    return _IS_SECRET.fullmatch(name) is not None


def masked(text: str) -> str:
    """Return ``text`` with ``***`` in place of user and password, and of secret parameters, of every URL in it.

    ``kafka://user:password@host/topic?token=t`` becomes ``kafka://***@host/topic?token=***``. A path (``file:``) has no
    user. Without a scheme ``user:password@`` is masked before ``host:port``, as in a list of brokers.
    """
    if "@" in text:
        text = _BARE_USER.sub(f"{MASK}@", _USER.sub(rf"\1{MASK}@", text))
    if "=" in text or "%3" in text:
        text = _PARAMETER.sub(rf"\1{MASK}", text)
    return text
