"""Operators' marks in an inlier store: one small file for each new mark, and files of many marks that were joined.

What counts is the union of all files. So writers that join the same files at once only leave marks twice, until the
next join; each deletes a file only when its marks are durable in a later one, or are to go.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from hashlib import blake2b

import msgspec

from streamad.learn.store.history import latest_of
from streamad.learn.store.records import Mark
from streamad.learn.store.sampling import KeyArray, keys_of
from streamad.learn.store.shards import FileName
from streamad.learn.store.storage import Storage, UnreadableError, UnreadError
from streamad.settings.fields import NAME_PATTERN
from streamad.system.untrusted_json import decode_json

FOLDER = "marks"
MAX_FILES = 64
"""More files of one mark than this, or than a quarter of all marks, are joined."""
_MAX_ADDED = 1_000
_MAX_JOINED = 8
_PLAIN = re.compile(NAME_PATTERN)


class Marks:
    """The marks in ``storage``; each file is read once, because its content never changes.

    Two operators who mark the same sequence at the same time write two files, so that neither mark is lost. A mark
    that is written again, by whomever, is the one that was received first.
    """

    def __init__(self, storage: Storage) -> None:
        self.problems: dict[str, str] = {}
        self._storage = storage
        self._read: dict[str, dict[str, Mark]] = {}  # by file, then by name of the mark
        self._unread: set[str] = set()
        self._named: dict[str, Mark] | None = None
        self._latest: dict[str, Mark] | None = None
        self._pinned: KeyArray | None = None

    @property
    def many_files(self) -> bool:
        """Return whether the files should be joined."""
        n_joined = sum(is_joined(name) for name in self._read)
        n_most = max(MAX_FILES, min(len(self.named()) // 4, _MAX_ADDED))
        return len(self._read) - n_joined > n_most or n_joined > _MAX_JOINED

    def write(self, mark: Mark) -> None:
        """Store ``mark`` unless it is there; durable once this returns. Raises StoreError."""
        mark_name = name_of(mark)
        if mark_name in self.named():
            return
        name = f"{FOLDER}/{mark_name}.json"
        self.problems.pop(name, None)
        if (stored := self._stored(name)) is None:
            self._storage.write(name, msgspec.json.encode(mark))
            stored = mark
        self._add(name, {mark_name: stored})

    def _stored(self, name: str) -> Mark | None:
        """Return the mark that another process has written under this name."""
        try:
            return decode_json(self._storage.read(name), Mark)
        except (FileNotFoundError, UnreadError, msgspec.DecodeError):  # nothing, or nothing of use: it is written
            return None

    def refresh(self, names: Collection[str]) -> None:
        """Read the new ones of ``names`` and forget marks whose file is gone.

        Raises FileNotFoundError if a file was joined meanwhile, StoreError.
        """
        if gone := self._read.keys() - set(names):
            self.forget(gone)
        self.problems = {name: text for name, text in self.problems.items() if name in names}
        for name in names:
            if name not in self._read and (name in self._unread or name not in self.problems):
                self._load(name)

    def named(self) -> Mapping[str, Mark]:
        """Return all marks by name: each as it was received first."""
        if self._named is None:
            self._named = {}
            for named in self._read.values():
                _merge(self._named, named)
        return self._named

    def latest(self) -> dict[str, Mark]:
        """Return the mark of each id that counts (see ``latest_of``)."""
        if self._latest is None:
            by_id: dict[str, list[tuple[str, Mark]]] = {}
            for named in self.named().items():
                by_id.setdefault(named[1].id, []).append(named)
            self._latest = {sequence_id: latest_of(of_one) for sequence_id, of_one in by_id.items()}
        return dict(self._latest)

    def pinned(self) -> KeyArray:
        """Return the keys of the ids whose sequences stay beyond the bounds of their share."""
        if self._pinned is None:
            marks = self.latest().values()
            self._pinned = keys_of(mark.id for mark in marks if mark.judgement in ("false_alarm", "confirmed"))
        return self._pinned

    def replace(self, stay: Mapping[str, Mark], write: Callable[[bytes], FileName]) -> None:
        """Join all files that were read into one of the marks that ``stay``, made by ``write``. Raises StoreError."""
        former = list(self._read)
        if stay:
            content = b"\n".join(msgspec.json.encode(mark) for mark in stay.values())
            self._add(str(write(content)), dict(stay))
        for name in former:
            self._storage.delete(name)
            self.forget((name,))

    def forget(self, names: Iterable[str]) -> None:
        """Leave out what the files ``names`` hold."""
        for name in names:
            self._read.pop(name, None)
        self._named = self._latest = self._pinned = None

    def _add(self, name: str, named: dict[str, Mark]) -> None:
        self._read[name] = named
        if self._named is not None:
            _merge(self._named, named)
        self._latest = self._pinned = None

    def _load(self, name: str) -> None:
        self._unread.discard(name)
        self.problems.pop(name, None)
        try:
            self._add(name, _decoded(name, self._storage.read(name)))
        except UnreadError as error:
            self._unread.add(name)
            self.problems[name] = (
                f"{name}: cannot be read, {error}: check its permissions and the disk or network, it is tried again"
            )
        except (msgspec.DecodeError, UnreadableError) as error:
            what = "marks" if is_joined(name) else "mark"
            self.problems[name] = (
                f"{name}: unreadable {what} ({error}): restore or delete it, then mark the sequence anew"
            )


def is_joined(name: str) -> bool:
    """Return whether the file ``name`` holds many marks."""
    return name.startswith(f"{FOLDER}/") and name.endswith(".jsonl")


def _decoded(name: str, content: bytes) -> dict[str, Mark]:
    """Return the marks in a file. Raises msgspec.DecodeError, UnreadableError."""
    parts = content.split(b"\n") if is_joined(name) else [content]
    if (file := FileName.of(name)) is not None:
        file.check(content)
    marks = [decode_json(part, Mark) for part in parts]
    return {name_of(mark): mark for mark in marks}


def _merge(named: dict[str, Mark], more: Mapping[str, Mark]) -> None:
    for mark_name, mark in more.items():
        if mark_name not in named or mark.since_us < named[mark_name].since_us:
            named[mark_name] = mark


def name_of(mark: Mark) -> str:
    """Return the mark's name: the id if it is a plain one, else its hash, and a hash of all but ``received_us``."""
    said = {"id": mark.id, "judgement": mark.judgement, "note": mark.note, "by": mark.by, "at_us": mark.at_us}
    content = msgspec.json.encode(said | ({"by_verified": True} if mark.by_verified else {}))
    return f"{_stem(mark)}.{blake2b(content, digest_size=8).hexdigest()}"


def _stem(mark: Mark) -> str:
    plain = _PLAIN.fullmatch(mark.id)
    return mark.id if plain else f"_{blake2b(mark.id.encode('utf-8', 'surrogatepass'), digest_size=16).hexdigest()}"
