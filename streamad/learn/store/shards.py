"""Shards of an inlier store: NPZ files of windows and records, whose names carry their order and their sha256.

Shapes: n sequences, C channels, L window length. Members: values float32 [n, C, L], lengths int64 [n], records (JSON),
header (JSON: format, channels, window form), index int64 [n, 2] (key and time). The small ones come last, so that the
index is read from the end of the file alone.
"""

from __future__ import annotations

import hashlib
import io
import re
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import msgspec
import numpy as np

from streamad.learn.store.records import StoredSequence, WindowForm
from streamad.learn.store.sampling import KeyArray, keys_of
from streamad.learn.store.storage import UnreadableError
from streamad.messages import Decision
from streamad.system.untrusted_json import decode_json
from streamad.types import ChannelSpec, IntArray, UnixUs, Window

_SCHEMA_VERSION = 1
_TAIL_BYTES = 1 << 17
_NAME = re.compile(r"([a-z]+)/(\d{16,18})-([A-Za-z0-9_.-]{1,64})-([0-9a-f]{64})\.(np[yz]|jsonl)")


class FileName(NamedTuple):
    """The name of a shard, a list of ids or joined marks; a file sorts behind those that it replaces."""

    stamp: int
    writer: str
    sha256: str
    folder: str
    ending: str

    @classmethod
    def of(cls, text: str) -> FileName | None:
        """Return the parts of ``text``, or None if it is no such name."""
        found = _NAME.fullmatch(text)
        return cls(int(found[2]), found[3], found[4], found[1], found[5]) if found else None

    @classmethod
    def for_content(cls, content: bytes, folder: str, ending: str, *, stamp: int, writer: str) -> FileName:
        """Return the name that a new file with ``content`` gets."""
        return cls(stamp, writer, hashlib.sha256(content).hexdigest(), folder, ending)

    def __str__(self) -> str:
        return f"{self.folder}/{self.stamp:016d}-{self.writer}-{self.sha256}.{self.ending}"

    def check(self, content: bytes) -> None:
        """Raise UnreadableError if ``content`` is not what was written."""
        if hashlib.sha256(content).hexdigest() != self.sha256:
            raise UnreadableError("its sha256 differs from its name")


class ForeignError(Exception):
    """Raised for a shard of another form; the text names the difference."""


class _Head(msgspec.Struct, frozen=True, kw_only=True):
    format: Literal["streamad-inliers"] = "streamad-inliers"
    schema_version: int = _SCHEMA_VERSION


class Form(_Head, frozen=True, kw_only=True):
    """The channels and the window form of a shard; shards of another form stay untouched."""

    channels: tuple[ChannelSpec, ...]
    window: WindowForm

    @property
    def shape(self) -> tuple[int, int]:
        """Return C and L."""
        return len(self.channels), self.window.length

    def check(self, plant: Form) -> None:
        """Raise ForeignError if this is not the form of ``plant``."""
        if self.channels != plant.channels:
            raise ForeignError(f"other channels ({_listed(self.channels)}, in the config {_listed(plant.channels)})")
        for field in self.window.__struct_fields__:
            theirs, ours = getattr(self.window, field), getattr(plant.window, field)
            if theirs != ours:
                raise ForeignError(f"other windows ({field} {theirs}, in the config {ours})")


def _listed(channels: tuple[ChannelSpec, ...]) -> str:
    return " ".join(f"{one.name}[{one.unit}]" if one.unit else one.name for one in channels)


class _IndexEntry(msgspec.Struct, frozen=True, omit_defaults=True):
    id: str
    stream: str
    sequence: str
    time_us: UnixUs
    stored_us: UnixUs
    decision: Decision
    score: float | None = None
    p_value: float | None = None
    model_version: str | None = None


@dataclass(frozen=True, slots=True, eq=False)
class ShardIndex:
    """A shard's rows: keys uint64 [n] of the ids, and times int64 [n] (µs)."""

    name: FileName
    keys: KeyArray
    times: IntArray

    def __len__(self) -> int:
        return len(self.keys)


# --- writing --------------------------------------------------------------------------------------------------------


def encode_shard(sequences: Sequence[StoredSequence], form: Form) -> bytes:
    """Return the content of a shard of ``sequences``, all of the form's shape."""
    buffer = io.BytesIO()
    np.savez(
        buffer,
        allow_pickle=False,
        values=np.stack([one.window.values for one in sequences], dtype=np.float32),
        lengths=np.array([one.window.length for one in sequences], dtype=np.int64),
        records=_as_array(msgspec.json.encode([_record(one) for one in sequences])),
        header=_as_array(msgspec.json.encode(form)),
        index=np.stack(_columns(sequences), axis=1),
    )
    return buffer.getvalue()


def index_of(name: FileName, sequences: Sequence[StoredSequence]) -> ShardIndex:
    """Return the index of the shard ``name`` that holds ``sequences``."""
    keys, times = _columns(sequences)
    return ShardIndex(name, keys.view(np.uint64), times)


def _columns(sequences: Sequence[StoredSequence]) -> tuple[IntArray, IntArray]:
    keys = keys_of(one.id for one in sequences)
    return keys.view(np.int64), np.array([one.time_us for one in sequences], dtype=np.int64)


def _as_array(encoded: bytes) -> Any:
    return np.frombuffer(encoded, dtype=np.uint8)


def _record(one: StoredSequence) -> _IndexEntry:
    return _IndexEntry(**{field: getattr(one, field) for field in _IndexEntry.__struct_fields__})


# --- reading --------------------------------------------------------------------------------------------------------


def read_index(name: FileName, size: int, plant: Form, read_from: Callable[[int], bytes]) -> ShardIndex:
    """Return the index of the shard ``name`` of ``size`` bytes, read from its end alone if that is enough.

    ``read_from`` returns its bytes from an offset on. Raises UnreadableError, ForeignError and what ``read_from`` does.
    """
    start = max(0, size - _TAIL_BYTES)
    while True:
        try:
            return _index_in(name, _Tail(read_from(start), start), plant)
        except _BeforeTailError:
            start = max(0, size - 8 * (size - start))


def _index_in(name: FileName, file: io.BytesIO, plant: Form) -> ShardIndex:
    header, index = _arrays(file, "header", "index")
    if (version := _decoded(header, _Head).schema_version) != _SCHEMA_VERSION:
        raise ForeignError(f"schema version {version}, this release reads {_SCHEMA_VERSION}")
    _decoded(header, Form).check(plant)
    if index.dtype != np.int64 or index.ndim != 2 or index.shape[1] != 2:
        raise UnreadableError("its index has another shape")
    return ShardIndex(name, np.ascontiguousarray(index[:, 0]).view(np.uint64), np.ascontiguousarray(index[:, 1]))


def decode_shard(name: FileName, content: bytes, plant: Form) -> list[StoredSequence]:
    """Return the sequences of a shard. Raises UnreadableError, ForeignError."""
    name.check(content)
    index = _index_in(name, io.BytesIO(content), plant)
    records, values, lengths = _arrays(io.BytesIO(content), "records", "values", "lengths")
    decoded = _decoded(records, list[_IndexEntry])
    n = len(decoded)
    fits = values.dtype == np.float32 and values.shape == (n, *plant.shape) and lengths.shape == (n,)
    fits = fits and lengths.dtype == np.int64 and bool(((lengths >= 1) & (lengths <= plant.shape[1])).all())
    if not fits or not np.array_equal(index.keys, keys_of(record.id for record in decoded)):
        raise UnreadableError("its arrays do not fit together")
    return [
        StoredSequence(window=Window(values[i], int(lengths[i])), **msgspec.structs.asdict(record))
        for i, record in enumerate(decoded)
    ]


def _decoded(encoded: Any, kind: Any) -> Any:
    try:
        return decode_json(encoded.tobytes(), kind)
    except msgspec.DecodeError as error:
        raise UnreadableError(str(error)) from error


def _arrays(file: io.BytesIO, *names: str) -> list[Any]:
    try:
        with zipfile.ZipFile(file) as archive:  # as np.load does, which asks for the beginning of the file
            return [_member(archive, f"{name}.npy") for name in names]
    except _BeforeTailError:
        raise
    except Exception as error:  # numpy's parser lets tokenizer, zip and codec errors through
        reason = str(error).strip().split("\n")[0] or type(error).__name__
        raise UnreadableError(reason) from error


def _member(archive: zipfile.ZipFile, name: str) -> Any:
    read_array: Any = np.lib.format.read_array  # which some releases of numpy do not type
    with archive.open(name) as member:
        return read_array(member, allow_pickle=False)


class _BeforeTailError(Exception):
    """Raised if more of the file must be read."""


class _Tail(io.BytesIO):
    """The end of a longer file, at the offsets of that file."""

    def __init__(self, content: bytes, start: int) -> None:
        super().__init__(content)
        self._start = start

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        if whence != io.SEEK_SET:
            return super().seek(offset, whence) + self._start
        if self._start and offset < self._start:
            raise _BeforeTailError
        return super().seek(offset - self._start) + self._start

    def tell(self) -> int:
        return super().tell() + self._start
