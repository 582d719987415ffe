"""Users with passwords, and a door that knows them."""

from __future__ import annotations

import itertools
import json
from functools import cache
from pathlib import Path

from argon2 import PasswordHasher

from streamad.web.login.door import Door

PASSWORD = "correct horse battery"
_temporary = itertools.count()


class Seconds:
    """A clock that tests move."""

    def __init__(self) -> None:
        self.now_s = 1_000.0

    def __call__(self) -> float:
        return self.now_s


@cache
def hash_of(password: str) -> str:
    """Return a hash of a password, one that takes little time."""
    return PasswordHasher(time_cost=1, memory_cost=8, parallelism=1).hash(password.encode("utf-8", "surrogatepass"))


def write_users(folder: Path, *, password: str = PASSWORD, **roles: str) -> Path:
    """Replace the file of users by one with these names and roles, as the command does."""
    path, new = folder / "users.json", folder / f"new{next(_temporary)}"
    users = {name: {"role": role, "password": hash_of(password)} for name, role in roles.items()}
    new.touch(mode=0o600)
    new.write_text(json.dumps({"users": users}))
    return new.replace(path)


def door_of(folder: Path, clock: Seconds | None = None, *, idle_s: float = 600.0, whole_s: float = 6_000.0) -> Door:
    """Return the door of the file of users in ``folder``."""
    return Door(folder / "users.json", idle_s=idle_s, whole_s=whole_s, clock=clock or Seconds())
