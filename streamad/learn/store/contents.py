"""The index of each file in storage, for one model, and which of the indexed sequences count."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import PurePosixPath
from typing import NamedTuple

import numpy as np

from streamad.errors import StoreError
from streamad.learn.store.marks import FOLDER as MARKS
from streamad.learn.store.marks import Marks, is_joined
from streamad.learn.store.records import Mark, StoredSequence
from streamad.learn.store.remembered import IdList, Remembered, decode_ids, encode_ids
from streamad.learn.store.sampling import Bounds, KeyArray, kept
from streamad.learn.store.shards import (
    FileName,
    ForeignError,
    Form,
    ShardIndex,
    decode_shard,
    encode_shard,
    index_of,
    read_index,
)
from streamad.learn.store.storage import Storage, UnreadableError, UnreadError
from streamad.messages import SHARES, Share
from streamad.ports import Clock
from streamad.types import BoolArray, IntArray

IDS = "ids"
BEYOND = "beyond"
_ENDINGS: dict[str, str] = {**dict.fromkeys(SHARES, "npz"), IDS: "npy", BEYOND: "npy", MARKS: "jsonl"}
_ATTEMPTS = 20


class Contents:
    """The shards, lists of ids and marks in ``storage``, as of the last ``refresh`` and our own writes since.

    ``remembered``: ids that are gone. ``beyond``: those that the bounds dropped and that stay for their marks alone.
    A file that cannot be used is named in ``problems`` and left where it is.
    """

    def __init__(self, storage: Storage, form: Form, clock: Clock, writer: str) -> None:
        self.shards: dict[FileName, ShardIndex] = {}
        self.remembered = Remembered()
        self.beyond = Remembered()
        self.marks = Marks(storage)
        self._storage = storage
        self._form = form
        self._clock = clock
        self._writer = writer
        self._unusable: dict[str, str] = {}
        self._last_stamp = 0

    @property
    def problems(self) -> list[str]:
        """Return one line for each file that cannot be used."""
        found = {**self._unusable, **self.marks.problems}
        return [f"{self._storage.label}/{found[name]}" for name in sorted(found)]

    @property
    def lacks_ids(self) -> bool:
        """Return whether there are sequences whose ids are not known, in a shard that cannot be used."""
        return any(_folder(text) in SHARES for text in self._unusable)

    # --- reading ----------------------------------------------------------------------------------------------------

    def refresh(self, *, anew: Collection[Share] = ()) -> None:
        """Read what any process wrote and removed; unusable files of the shares ``anew`` are tried again.

        Other unusable files stay in ``problems``: damaged windows show only when they are read. Raises StoreError.
        """
        if anew:
            left = {*SHARES} - {*anew}
            self._unusable = {text: problem for text, problem in self._unusable.items() if _folder(text) in left}
        self._listed(self._follow)

    def refresh_marks(self) -> None:
        """Read new marks alone. Raises StoreError."""
        self._listed(self._follow_marks)

    def _listed(self, follow: Callable[[dict[str, int]], None]) -> None:
        """Call ``follow`` with a listing that misses nothing, until it finds each file there."""
        for _ in range(_ATTEMPTS):
            # One listing may miss both the files that another process joins and the joined file.
            if _settled(names := self._storage.names()) == _settled(self._storage.names()):
                try:
                    return follow(names)
                except FileNotFoundError:  # joined between our listing and our reading
                    continue
        raise StoreError(f"the inlier store {self._storage.label} changes faster than it can be read: try again")

    def _follow_marks(self, sizes: dict[str, int]) -> None:
        self.marks.refresh({name for name in sizes if _folder(name) == MARKS})

    def _follow(self, sizes: dict[str, int]) -> None:
        self._follow_marks(sizes)
        self._unusable = {text: problem for text, problem in self._unusable.items() if text in sizes}
        known_lists = {one.name: one for one in (*self.remembered.lists, *self.beyond.lists)}
        shards: dict[FileName, ShardIndex] = {}
        lists: dict[str, list[IdList]] = {IDS: [], BEYOND: []}
        for text, size in sizes.items():
            name = self._named(text)
            if name is None or text in self._unusable:
                continue
            self._last_stamp = max(self._last_stamp, name.stamp)
            if name.folder in lists:
                if (listed := known_lists.get(name) or self._load_ids(name)) is not None:
                    lists[name.folder].append(listed)
            elif name.folder in SHARES and (index := self.shards.get(name) or self._load_index(name, size)) is not None:
                shards[name] = index
        self.shards = shards
        self.remembered, self.beyond = Remembered(lists[IDS]), Remembered(lists[BEYOND])

    def _named(self, text: str) -> FileName | None:
        name = FileName.of(text)
        if name is not None and _ENDINGS.get(name.folder) == name.ending:
            return name
        if _folder(text) != MARKS:
            self._unusable[text] = f"{text}: no file of an inlier store: move it away"
        return None

    def _load_index(self, name: FileName, size: int) -> ShardIndex | None:
        try:
            return read_index(name, size, self._form, lambda start: self._storage.read(str(name), start))
        except (UnreadableError, ForeignError) as error:
            self._refuse(name, error)
            return None

    def _load_ids(self, name: FileName) -> IdList | None:
        try:
            return decode_ids(name, self._storage.read(str(name)))
        except UnreadableError as error:
            self._refuse(name, error)
            return None

    def load(self, name: FileName) -> list[StoredSequence] | None:
        """Return a shard's sequences in the order of its index; None for an unusable one, which is then left out.

        Raises FileNotFoundError if it is gone, StoreError.
        """
        try:
            return decode_shard(name, self._storage.read(str(name)), self._form)
        except (UnreadableError, ForeignError) as error:
            self._refuse(name, error)
            return None

    def _refuse(self, name: FileName, error: UnreadableError | ForeignError) -> None:
        if isinstance(error, UnreadError):
            what, advice = "cannot be read", "check its permissions and the disk or network, it is tried again"
        elif isinstance(error, UnreadableError):
            what, advice = "damaged", "restore or delete it"
        else:
            what, advice = "left alone", "set the config back or move it away"
        self._unusable[str(name)] = f"{name}: {what}, {error}: {advice}"
        self.shards.pop(name, None)

    # --- writing ----------------------------------------------------------------------------------------------------

    def write_shard(self, sequences: Sequence[StoredSequence], share: str) -> None:
        """Add a shard; durable once this returns. Raises StoreError."""
        content = encode_shard(sequences, self._form)
        name = self._write(content, share)
        self.shards[name] = index_of(name, sequences)

    def write_ids(self, keys: KeyArray) -> None:
        """Remember ``keys`` as dropped; durable once this returns. Raises StoreError."""
        self.remembered = self._added(self.remembered, keys, IDS)

    def write_beyond(self, keys: KeyArray) -> None:
        """Remember that ``keys`` stay for their marks alone; durable once this returns. Raises StoreError."""
        self.beyond = self._added(self.beyond, keys, BEYOND)

    def _added(self, remembered: Remembered, keys: KeyArray, folder: str) -> Remembered:
        name = self._write(encode_ids(keys), folder)
        return Remembered([*remembered.lists, IdList(name, keys)])

    def join_marks(self, stay: Mapping[str, Mark]) -> None:
        """Join all files of marks into one of those that ``stay``; durable once this returns. Raises StoreError."""
        self.marks.replace(stay, lambda content: self._write(content, MARKS))

    def delete(self, name: FileName) -> None:
        """Remove a file. Raises StoreError."""
        self._storage.delete(str(name))
        self.shards.pop(name, None)
        self.remembered, self.beyond = self.remembered.without(name), self.beyond.without(name)

    def _write(self, content: bytes, folder: str) -> FileName:
        # Later than every file that this one may replace, whatever the clock shows.
        self._last_stamp = max(self._clock.now_us(), self._last_stamp + 1)
        name = FileName.for_content(content, folder, _ENDINGS[folder], stamp=self._last_stamp, writer=self._writer)
        self._storage.write(str(name), content)
        return name


def _folder(text: str) -> str:
    return PurePosixPath(text).parts[0]


def _settled(names: dict[str, int]) -> dict[str, int]:
    """Return ``names`` without new marks, which come at any time and replace no file."""
    return {name: size for name, size in names.items() if _folder(name) != MARKS or is_joined(name)}


class Survey(NamedTuple):
    """The N rows of all shards: file (an index into ``names``), key and time of each, and whether it counts.

    ``alive``: the one copy of its id that counts, not dropped. ``visible``: within the bounds. ``natural``: must stay
    in storage (a reservoir needs more rows than are visible). ``marked``: not visible, stays for its mark alone.
    """

    names: tuple[FileName, ...]
    files: IntArray
    keys: KeyArray
    times: IntArray
    alive: BoolArray
    visible: BoolArray
    natural: BoolArray
    marked: BoolArray

    @property
    def needed(self) -> BoolArray:
        """Return which rows must stay in storage."""
        return self.natural | self.marked

    @property
    def readable(self) -> BoolArray:
        """Return which rows ``read`` returns."""
        return self.visible | self.marked

    def rows_of(self, name: FileName) -> slice:
        """Return where the rows of a file lie."""
        file = self.names.index(name)
        return slice(*np.searchsorted(self.files, [file, file + 1]).tolist())

    def in_share(self, share: Share) -> BoolArray:
        """Return which rows lie in a share's files."""
        return np.array([name.folder == share for name in self.names], dtype=bool)[self.files]


def survey(  # noqa: PLR0917 - the parts of a store
    shards: Sequence[ShardIndex],
    remembered: Remembered,
    beyond: Remembered,
    pinned: KeyArray,
    bounds: Mapping[Share, Bounds],
    now_us: int,
) -> Survey:
    """Return which rows of ``shards`` count: of several copies of an id, the one in the file whose name sorts last.

    A joined file sorts behind those that it replaces. So no writer deletes the last copy, whatever others join at the
    same time: a copy yields only to one in a later file.
    """
    ordered = sorted(shards, key=lambda shard: shard.name)
    keys = np.concatenate([np.zeros(0, np.uint64), *(shard.keys for shard in ordered)])
    times = np.concatenate([np.zeros(0, np.int64), *(shard.times for shard in ordered)])
    files = np.repeat(np.arange(len(ordered)), [len(shard) for shard in ordered])
    alive = _last_copies(keys) & ~remembered.holds(keys)
    visible, natural, marked = (np.zeros_like(alive) for _ in range(3))
    result = Survey(tuple(shard.name for shard in ordered), files, keys, times, alive, visible, natural, marked)
    is_pinned, is_past = np.isin(keys, pinned), beyond.holds(keys)
    for share in SHARES:
        rows = np.flatnonzero(alive & result.in_share(share))
        stays = kept(times[rows], keys[rows], is_pinned[rows], is_past[rows], bounds=bounds[share], now_us=now_us)
        visible[rows], natural[rows], marked[rows] = stays
    return result


def _last_copies(keys: KeyArray) -> BoolArray:
    last = np.zeros(len(keys), bool)
    last[len(keys) - 1 - np.unique(keys[::-1], return_index=True)[1]] = True
    return last
