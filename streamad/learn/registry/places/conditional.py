"""Writes to an object store under a condition, whose answers may be lost; the refusals of a store as errors."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from streamad.errors import DoubtfulError, ObjectError, OutputError, RegistryError
from streamad.learn.registry.places.place import RegistryAwayError
from streamad.learn.registry.places.requests import Found, Objects

PROBES = ".streamad-check"
"""The folder of objects that are written to try the store, and deleted."""
_TRIES = 3
"""How often a conditional write is tried that was not answered; obstore tries each several times."""
_PAUSE_S = 0.2


def written(objects: Objects, key: str, content: bytes, before: Found | None, is_own: Callable[[bytes], bool]) -> bool:
    """Write an object in place of ``before``; False if another is there, and it was not written.

    A refusal may be that of a second try whose first one was carried out, and an answer may be lost: what lies
    there then says whether it was written. While nothing is known the same write is tried again: its condition
    keeps it from being carried out twice.
    """
    last: ObjectError | None = None
    for number in range(_TRIES):
        if number:
            time.sleep(_PAUSE_S * number)
        try:
            with writing_objects(away_too=False):
                if before is None:
                    objects.create(key, content)
                else:
                    objects.replace(key, content, before.mark)
            return True
        except ObjectError as error:
            last = error
        try:
            found = objects.get(key)
        except ObjectError as error:
            if error.kind != "away":
                raise DoubtfulError(f"cannot write {error}") from None
            last = error
            continue
        if found is not None and is_own(found.content):
            return True
        if last.kind != "away":
            return False
    raise DoubtfulError(f"cannot write {last}; it may have been written: look with streamad models list")


def check_conditions(objects: Objects) -> None:
    """Try conditional writes with an object of its own. Raises OutputError, or RegistryError without them."""
    key = f"{PROBES}/{secrets.token_hex(8)}"
    try:
        if not _keeps_conditions(objects, key):
            raise RegistryError(
                f"{objects.root}: the store ignores conditions of writes (If-None-Match, If-Match), so one promotion "
                "could overwrite another: keep the registry in a store that has them, or in a folder"
            )
    finally:
        with suppress(ObjectError):
            objects.delete([key])


def _keeps_conditions(objects: Objects, key: str) -> bool:
    if not written(objects, key, b"1", None, lambda there: there == b"1"):
        return False
    with writing_objects():
        found = objects.get(key)
    if found is None or not found.mark or not _is_refused(lambda: objects.create(key, b"2")):
        return False
    is_replaced = written(objects, key, b"3", found, lambda there: there == b"3")
    return is_replaced and _is_refused(lambda: objects.replace(key, b"4", found.mark))


def _is_refused(write: Callable[[], object]) -> bool:
    """Return whether the store refuses a write because of its condition."""
    try:
        with writing_objects():
            write()
    except ObjectError:
        return True
    return False


@contextmanager
def reading_objects() -> Iterator[None]:
    """Turn a refusal of the store into a RegistryError."""
    try:
        yield
    except ObjectError as error:
        kind = RegistryAwayError if error.kind == "away" else RegistryError
        raise kind(f"cannot read the registry at {error}") from None


@contextmanager
def writing_objects(*, away_too: bool = True) -> Iterator[None]:
    """Turn a refusal of the store into an OutputError, but for those of a condition; ``away_too``: and no answer."""
    try:
        yield
    except ObjectError as error:
        if error.kind in {"exists", "changed"} or (error.kind == "away" and not away_too):
            raise
        raise OutputError(f"cannot write {error}") from None
