"""Takes what workers stored in shards, before learning was a process of its own, into the learner's store.

A folder MODEL/ holds NPZ files of sequences by share, lists of the ids that are gone (``ids``) or stay for their mark
alone (``beyond``), and marks. The name of a file is STAMP-WRITER-SHA256; of several copies of a sequence, which a kill
can leave behind, the one in the file whose name sorts last counts.
"""

from __future__ import annotations

import hashlib
import io
import os
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from math import prod
from pathlib import Path
from typing import Any, Literal, TypeVar

import msgspec
import numpy as np

from streamad.errors import StoreError
from streamad.learn.store.bounds import KeyArray, key_of
from streamad.learn.store.inliers import InlierStore
from streamad.learn.store.records import Mark, StoredSequence, WindowForm
from streamad.messages import SHARES, Decision, Share
from streamad.system.opening import open_regular
from streamad.system.rights import reason
from streamad.system.untrusted_json import decode_json
from streamad.types import ChannelSpec, UnixUs, Window

_NAME = re.compile(r"\d{16,18}-[A-Za-z0-9_.-]{1,64}-([0-9a-f]{64})\.(?:npz|npy|jsonl)")
_T = TypeVar("_T")
_MOST_RECORD_BYTES = 1 << 26
_HEAD_BYTES = 4096  # of two arrays


@dataclass(frozen=True, slots=True)
class Imported:
    """How many sequences were new, how many marks there were, and a line for each file that cannot be read."""

    sequences: int
    marks: int
    problems: tuple[str, ...]


def models_in_shards(folder: Path) -> list[str]:
    """Return the models with shards or marks in ``folder``. Raises StoreError if it cannot be read."""
    try:
        models = [path for path in folder.iterdir() if not path.name.startswith(".") and path.is_dir()]
        return sorted(path.name for path in models if any((path / kind).is_dir() for kind in (*SHARES, "marks")))
    except FileNotFoundError:
        return []
    except OSError as error:
        raise StoreError(f"cannot read {folder}: {reason(error, folder, 'read')}") from error


def import_shards(folder: Path, store: InlierStore) -> Imported:
    """Take all sequences and marks of one model from ``folder``; what ``store`` has already is left as it is.

    Marks come first: sequences that the bounds keep for their marks alone would be dropped without them. A file that is
    damaged, or has other channels or windows, is a problem, and the others are taken. Raises StoreError.
    """
    shards = _Shards(folder, _Form(channels=store.channels, window=store.window_form))
    marks = shards.marks()
    for mark in marks:
        store.mark(mark)
    n_new = 0
    found = shards.sequences()
    for share in SHARES:
        n_new += sum(store.offer(one, share) for one in found[share])
        store.flush()
    return Imported(n_new, len(marks), tuple(shards.problems))


class _Form(msgspec.Struct, frozen=True, kw_only=True):
    """The channels and the window form of a shard: sequences of another form train no model of this plant."""

    format: Literal["streamad-inliers"] = "streamad-inliers"
    schema_version: Literal[1] = 1
    channels: tuple[ChannelSpec, ...]
    window: WindowForm


class _Record(msgspec.Struct, frozen=True):
    id: str
    stream: str
    sequence: str
    time_us: UnixUs
    stored_us: UnixUs
    decision: Decision
    score: float | None = None
    p_value: float | None = None
    model_version: str | None = None


class _UnusableError(Exception):
    """Raised for a file that cannot be used; the text says why."""


@dataclass(slots=True)
class _Shards:
    """The files of one model."""

    folder: Path
    form: _Form
    problems: list[str] = field(default_factory=list)

    def marks(self) -> list[Mark]:
        """Return every mark: in files of one each, and of many."""
        return [mark for marks in self._read("marks", _marks) for mark in marks]

    def sequences(self) -> dict[Share, list[StoredSequence]]:
        """Return the sequences that count by share: the last copy of each that is not gone."""
        gone, beyond = (
            {key for keys in self._read(kind, _keys) for key in keys.tolist()} for kind in ("ids", "beyond")
        )
        copies = [
            (name, share, one)
            for share in SHARES
            for name, content in self._files(share, self._decoded)
            for one in content
        ]
        last = {one.id: (share, one) for _, share, one in sorted(copies, key=lambda copy: copy[0])}
        found: dict[Share, list[StoredSequence]] = {share: [] for share in SHARES}
        for share, one in last.values():
            if (key := key_of(one.id)) not in gone:
                found[share].append(replace(one, only_marked=key in beyond))
        return found

    def _decoded(self, content: bytes) -> list[StoredSequence]:
        arrays = np.load(io.BytesIO(content), allow_pickle=False)
        sizes = {each.filename: each.file_size for each in arrays.zip.infolist()}
        if sizes["header.npy"] + sizes["records.npy"] > _MOST_RECORD_BYTES:
            raise _UnusableError("it says more of its sequences than a former release wrote")
        form = decode_json(arrays["header"].tobytes(), _Form)
        if form != self.form:
            raise _UnusableError("it has other channels or windows than the config")
        records = decode_json(arrays["records"].tobytes(), list[_Record])
        shape = (len(records), len(form.channels), form.window.length)
        if sizes["values.npy"] + sizes["lengths.npy"] > 4 * prod(shape) + 8 * len(records) + _HEAD_BYTES:
            raise _UnusableError("its arrays do not fit together")  # 1 MB may unpack to a thousand
        values, lengths = arrays["values"], arrays["lengths"]
        if values.dtype != np.float32 or values.shape != shape or lengths.shape != shape[:1]:
            raise _UnusableError("its arrays do not fit together")
        if not ((lengths >= 1) & (lengths <= form.window.length)).all():
            raise _UnusableError("its lengths are none of a window")
        return [
            StoredSequence(window=Window(values[i], int(lengths[i])), **msgspec.structs.asdict(record))
            for i, record in enumerate(records)
        ]

    def _read(self, kind: str, decode: Callable[[bytes], _T]) -> list[_T]:
        return [content for _, content in self._files(kind, decode)]

    def _files(self, kind: str, decode: Callable[[bytes], _T]) -> Iterator[tuple[str, _T]]:
        """Yield name and content of each file of the folder ``kind``; one that cannot be used is a problem."""
        folder = self.folder / kind
        for path in sorted(folder.iterdir()) if folder.is_dir() else ():
            if path.name.startswith("."):  # what a writer left that was killed
                continue
            try:
                yield path.name, decode(_content(path))
            except Exception as error:  # noqa: BLE001 - numpy lets errors of tokenizer, zip and codecs through
                why = reason(error, path, "read") if isinstance(error, OSError) else str(error)
                self.problems.append(f"{path}: {why or type(error).__name__}".split("\n")[0])


def _content(path: Path) -> bytes:
    """Return the content of a file, whose name may hold its sha256. Raises _UnusableError, OSError."""
    with os.fdopen(open_regular(path), "rb") as file:
        content = file.read()
    name = _NAME.fullmatch(path.name)
    if name is not None and hashlib.sha256(content).hexdigest() != name[1]:
        raise _UnusableError("it is damaged: its sha256 differs from its name")
    return content


def _keys(content: bytes) -> KeyArray:
    keys: Any = np.load(io.BytesIO(content), allow_pickle=False)
    if keys.dtype != np.uint64 or keys.ndim != 1:
        raise _UnusableError("it holds no ids")
    return keys  # type: ignore[no-any-return]


def _marks(content: bytes) -> list[Mark]:
    return [decode_json(line, Mark) for line in content.split(b"\n")]
