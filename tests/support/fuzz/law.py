"""The law of every call: a known exit code, one error line, no traceback, no unexpected error, no hang."""

from __future__ import annotations

import re

from tests.support.fuzz.calling import Answer

CODES = frozenset({0, 1, 2, 130})
_FORBIDDEN = re.compile(
    r"Traceback \(most recent call last\)|Exception ignored in|was never (?:retrieved|awaited)|"
    r"^\S+\.py:\d+: \w*Warning: ",
    re.MULTILINE,
)
_OUR_PLUGIN = re.compile(r"\(streamad_(?:connectors|models)\b[^\s()]*\) failed: .*")
"""The text of an unexpected error in a plug-in of streamad's own: these raise StreamadError."""
_FINDS = ("check", "topics")
"""Commands that print findings on standard output and exit with 1 without an error."""


def broken(answer: Answer, arguments: list[str]) -> str | None:
    """Return how ``answer`` breaks the law in one short line that is equal for equal faults, None if it keeps it."""
    if answer.hung:
        return "hangs"
    if answer.raised:
        return f"traceback: {_where(answer.raised)}"
    if found := _FORBIDDEN.search(answer.err + answer.out):
        after = (answer.err + answer.out)[found.start() :]
        return f"prints {after.splitlines()[0][:100]!r}: {_where(after)}"
    if found := _OUR_PLUGIN.search(answer.err + answer.out):
        return f"a plug-in of streamad's own fails: {found[0][:200]}"
    if answer.code not in CODES:
        return f"exit code {answer.code}"
    return _broken_error_line(answer, arguments)


def _broken_error_line(answer: Answer, arguments: list[str]) -> str | None:
    errors = [line for line in answer.err.splitlines() if line.startswith("error:")]
    usage = answer.code == 2 and "Usage:" in answer.err and "Error" not in answer.err  # a group's help
    finds = answer.code == 1 and any(word in arguments for word in _FINDS)
    expected = int(answer.code in (1, 2) and not usage)
    if len(errors) == expected or (finds and not errors):
        return None
    return f"{len(errors)} error lines with exit code {answer.code}"


def _where(text: str) -> str:
    """Return the last line of a traceback and the place of ours that is nearest to it."""
    lines = [line for line in text.splitlines() if line.strip()]
    places = re.findall(r'File "([^"]+)", line (\d+)', text)
    ours = [place for place in places if "/streamad" in place[0] and "/site-packages/" not in place[0]]
    path, number = (ours or places or [("", "0")])[-1]
    return f"{lines[-1][:120]} ({path.rpartition('/')[2]}:{number})"
