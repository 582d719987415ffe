"""Passwords and their argon2id hashes; the costs are those of RFC 9106's second choice, on one lane."""

from __future__ import annotations

import unicodedata
from typing import Final

from argon2 import PasswordHasher
from argon2.exceptions import InvalidHashError, VerificationError

FEWEST, MOST = 12, 1_000
_PASSES, _KIB, _LANES = 3, 65_536, 1
_HASHER: Final = PasswordHasher(time_cost=_PASSES, memory_cost=_KIB, parallelism=_LANES)
NOBODY: Final = f"$argon2id$v=19$m={_KIB},t={_PASSES},p={_LANES}${'A' * 22}${'A' * 43}"
"""What the password of an unknown user is compared with: it takes as long as that of a known one."""


def password_problem(password: str, name: str) -> str | None:
    """Return why ``password`` cannot be that of ``name``; None if it can."""
    if not FEWEST <= len(password) <= MOST:
        return f"a password has {FEWEST} to {MOST} characters"
    if name.casefold() in password.casefold() and len(password) < 2 * len(name) + FEWEST // 2:
        return "the password is hardly more than the name"
    return None


def hashed(password: str) -> str:
    """Return the argon2id hash of a password, with a new salt."""
    return _HASHER.hash(_bytes(password))


def is_right(stored: str, password: str) -> bool:
    """Return whether ``password`` has the hash ``stored``; it takes a quarter of a second of a core."""
    try:
        return _HASHER.verify(stored, _bytes(password))
    except (VerificationError, InvalidHashError):
        return False


def _bytes(password: str) -> bytes:
    return unicodedata.normalize("NFC", password).encode("utf-8", "surrogatepass")
