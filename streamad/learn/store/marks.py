"""Operators' marks in an inlier store: one small file for each mark, written once and kept permanently."""

from __future__ import annotations

import re
from collections.abc import Collection
from hashlib import blake2b

import msgspec

from streamad.learn.store.records import Effect, Mark
from streamad.learn.store.sampling import KeyArray, keys_of
from streamad.learn.store.storage import Storage, UnreadError
from streamad.settings.fields import NAME_PATTERN
from streamad.system.untrusted_json import decode_json

FOLDER = "marks"
_PLAIN = re.compile(NAME_PATTERN)


class Marks:
    """The marks in ``storage``; each file is read once, because its content never changes.

    Two operators who mark the same sequence at the same time write two files, so that neither mark is lost.
    """

    def __init__(self, storage: Storage) -> None:
        self.problems: dict[str, str] = {}
        self._storage = storage
        self._read: dict[str, Mark] = {}
        self._unread: set[str] = set()

    def write(self, mark: Mark) -> None:
        """Store ``mark``; durable once this returns. Raises StoreError."""
        name = f"{FOLDER}/{_stem(mark)}.{_digest(mark)}.json"
        if name in self._read:
            return
        self._storage.write(name, msgspec.json.encode(mark))
        self._read[name] = mark
        self.problems.pop(name, None)

    def refresh(self, names: Collection[str]) -> None:
        """Read the new ones of ``names`` and forget marks whose file is gone. Raises StoreError."""
        self._read = {name: mark for name, mark in self._read.items() if name in names}
        self.problems = {name: text for name, text in self.problems.items() if name in names}
        for name in names:
            if name not in self._read and (name in self._unread or name not in self.problems):
                self._load(name)

    def latest(self) -> dict[str, Mark]:
        """Return the latest mark of each id by ``at_us`` (of equals always the same one).

        Its ``received_us`` is when the first word of the same effect on that id was received: who repeats another's
        word, whatever date it bears, makes it neither younger nor older.
        """
        chosen: dict[str, tuple[int, str, Mark]] = {}
        first: dict[tuple[str, Effect], int] = {}
        for name, mark in self._read.items():
            entry = (mark.at_us, name, mark)
            chosen[mark.id] = max(chosen.get(mark.id, entry), entry, key=_order)
            since = mark.id, mark.effect
            first[since] = min(first.get(since, mark.since_us), mark.since_us)
        return {
            sequence_id: msgspec.structs.replace(mark, received_us=first[sequence_id, mark.effect])
            for sequence_id, (_, _, mark) in chosen.items()
        }

    def pinned(self) -> KeyArray:
        """Return the keys of the ids whose sequences stay beyond the bounds of their share."""
        return keys_of(mark.id for mark in self.latest().values() if mark.judgement in ("false_alarm", "confirmed"))

    def _load(self, name: str) -> None:
        self._unread.discard(name)
        self.problems.pop(name, None)
        try:
            self._read[name] = decode_json(self._storage.read(name), Mark)
        except FileNotFoundError:
            return
        except UnreadError as error:
            self._unread.add(name)
            self.problems[name] = (
                f"{name}: cannot be read, {error}: check its permissions and the disk or network, it is tried again"
            )
        except msgspec.DecodeError as error:
            self.problems[name] = (
                f"{name}: unreadable mark ({error}): restore or delete it, then mark the sequence anew"
            )


def _order(entry: tuple[int, str, Mark]) -> tuple[int, str]:
    return entry[:2]


def _digest(mark: Mark) -> str:
    """Return the hash of all but ``received_us``: a mark that is read again is the same one."""
    said = {"id": mark.id, "judgement": mark.judgement, "note": mark.note, "by": mark.by, "at_us": mark.at_us}
    content = msgspec.json.encode(said | ({"by_verified": True} if mark.by_verified else {}))
    return blake2b(content, digest_size=8).hexdigest()


def _stem(mark: Mark) -> str:
    """Return the beginning of the file's name: the id if it is a plain name, else its hash."""
    plain = _PLAIN.fullmatch(mark.id)
    return mark.id if plain else f"_{blake2b(mark.id.encode('utf-8', 'surrogatepass'), digest_size=16).hexdigest()}"
