"""The file of users: each name with its role and the argon2id hash of its password."""

from __future__ import annotations

import os
import re
import stat
import unicodedata
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import msgspec

from streamad.errors import ConfigError, Problem, UsageError
from streamad.safe_text import visible_name
from streamad.settings.outputs import Level
from streamad.system.files import write_atomically, writing
from streamad.system.locks import locked
from streamad.system.opening import open_regular
from streamad.system.rights import reason

KEY: Final = "web.auth.users"
_MOST_BYTES = 1_000_000
_LONGEST_NAME = 80
_LOCK_S = 10.0
_HASH = re.compile(r"\$argon2id\$v=19\$m=(\d{1,7}),t=(\d{1,2}),p=(\d)\$[A-Za-z0-9+/]{11,}\$[A-Za-z0-9+/]{11,}")
_SHOWN = re.compile(r"(value|unknown field) (['`]).*\2")
"""What an error shows of the content: a password may stand in the wrong place."""
_MOST_KIB, _MOST_PASSES, _MOST_LANES = 1 << 20, 20, 8
"""Beyond these, the hash of one entry would take the machine."""


class User(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One entry: ``password`` is its hash."""

    role: Level
    password: str


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    users: dict[str, User]


def read_users(path: Path) -> Mapping[str, User]:
    """Return the users by name. Raises ConfigError, which names no content of the file."""
    return parsed_users(path, read_file(path))


def read_file(path: Path) -> bytes:
    """Return the file's bytes. Raises ConfigError, also if other users of the machine may read it."""
    try:
        descriptor = open_regular(path)
        with os.fdopen(descriptor, "rb") as file:
            mode = stat.S_IMODE(os.fstat(descriptor).st_mode)
            content = file.read(_MOST_BYTES + 1)
    except FileNotFoundError:
        raise problem(f"{path} is not there: streamad web user add NAME --role engineer makes it") from None
    except OSError as error:
        raise problem(f"{path} cannot be read: {reason(error, path, 'read')}") from None
    if mode & 0o077:
        raise problem(f"others may read or write {path} (mode {mode:o}): chmod 600 {path}")
    if len(content) > _MOST_BYTES:
        raise problem(f"{path} has more than {_MOST_BYTES} bytes")
    return content


def parsed_users(path: Path, content: bytes) -> Mapping[str, User]:
    """Return the users that ``content`` holds. Raises ConfigError."""
    try:
        users = msgspec.json.decode(content, type=_File).users
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        said = _SHOWN.sub(r"\1", visible_name(str(error)))
        raise problem(f"{path} is damaged ({said}): restore it, or add the users anew") from None
    for name, user in users.items():
        shown = visible_name(name)[:_LONGEST_NAME]
        if name_problem(name) is not None or name != plain_name(name):
            raise problem(f"{path}: {shown!r} is no name of a user: remove the entry")
        if not _is_usable(user.password):
            raise problem(f"{path}: the password of {shown} is no argon2id hash: streamad web user password {shown}")
    return users


def _is_usable(password: str) -> bool:
    match = _HASH.fullmatch(password)
    if match is None:
        return False
    kib, passes, lanes = map(int, match.groups())
    return 8 * lanes <= kib <= _MOST_KIB and 1 <= passes <= _MOST_PASSES and 1 <= lanes <= _MOST_LANES


@contextmanager
def editing(path: Path) -> Iterator[dict[str, User]]:
    """Yield the users to change; the block's end replaces the file, an error leaves it. One program at a time.

    A missing file is made. Raises ConfigError, OutputError.
    """
    path = Path(os.path.realpath(path))  # a link stays one
    lock = path.with_name(f".{path.name}.lock")
    with writing(lock), locked(lock, busy=f"another command changes {path}: try again", timeout_s=_LOCK_S):
        users = dict(read_users(path)) if os.path.lexists(path) else {}
        yield users
        content = msgspec.json.format(msgspec.json.encode(_File(dict(sorted(users.items())))), indent=2)
        write_atomically(path, content + b"\n", is_state=True)


def plain_name(text: str) -> str:
    """Return a name as the file holds it, however a keyboard has composed its letters."""
    return unicodedata.normalize("NFC", text).strip()


def name_problem(name: str) -> str | None:
    """Return why ``name`` cannot name a user; None if it can."""
    if not name or len(name) > _LONGEST_NAME:
        return f"a name has 1 to {_LONGEST_NAME} characters"
    if any(unicodedata.category(each)[0] == "C" or (each.isspace() and each != " ") for each in name):
        return "a name has no control characters, and none that cannot be seen"
    return None


def new_name(text: str, users: Mapping[str, User]) -> str:
    """Return the name of a new user. Raises UsageError if it cannot be one, or is another's but for its case."""
    name = plain_name(text)
    if (why := name_problem(name)) is not None:
        raise UsageError(f"{visible_name(text)[:_LONGEST_NAME]!r}: {why}")
    taken = next((each for each in users if each.casefold() == name.casefold()), None)
    if taken is not None:
        raise UsageError(f"{taken} is a user already: streamad web user password {taken} changes the password")
    return name


def no_user(path: Path) -> ConfigError:
    """Return the error about a file without users."""
    return problem(f"{path} holds no user: streamad web user add NAME --role engineer adds one")


def problem(text: str) -> ConfigError:
    """Return the error about the file of users."""
    return ConfigError([Problem(KEY, text)])
