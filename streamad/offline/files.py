"""The Parquet files of a unit: written aside and renamed, with what they were made of in their metadata."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, BinaryIO, Final

import msgspec

from streamad.messages import Role, Window
from streamad.offline.columns import schema_of, table_of
from streamad.offline.tally import Tally
from streamad.system.files import replacing, writing
from streamad.system.opening import open_regular
from streamad.system.untrusted_json import decode_json

_KEY: Final = b"streamad"
_ROWS: Final = 1024
"""Messages that wait to be columns together; of windows, which are large, a few."""
_WINDOWS: Final = 16
_ROW_GROUP: Final = 1 << 15
_MOST_BYTES: Final = 1 << 25
"""A row group has no more rows or bytes than this."""
_UNSAFE: Final = re.compile(r"[^A-Za-z0-9_-]+")
_NAME_CHARACTERS, _DIGEST_CHARACTERS = 60, 32


class Made(msgspec.Struct, frozen=True):
    """The origin of a unit's files: digests of its input, of the config, and of each model by name ("": none).

    ``tally`` is what was counted while it was judged.
    """

    partition: str
    input: str
    config: str
    models: dict[str, str]
    streamad: str
    tally: Tally = Tally()


def file_of(folder: Path, role: Role, partition: str, place: str) -> Path:
    """Return the file of the messages of ``role`` of a unit: ``role/end-of-its-name-digest.parquet``.

    ``place`` tells it from units of the same name (``PartitionContent``).
    """
    name = _UNSAFE.sub("_", partition)[-_NAME_CHARACTERS:].strip("_-") or "_"
    digest = hashlib.sha256(f"{partition}\0{place}".encode()).hexdigest()[:_DIGEST_CHARACTERS]
    return folder / role / f"{name}-{digest}.parquet"


def made_of(path: Path) -> Made | None:
    """Return what the file ``path`` was made of; None if it is not there, or is no whole file of ours."""
    import pyarrow as pa  # noqa: PLC0415 - an extra
    import pyarrow.parquet as pq  # noqa: PLC0415

    try:
        with os.fdopen(open_regular(path), "rb") as file:
            metadata: Mapping[bytes, bytes] = pq.read_metadata(file).metadata or {}
        return decode_json(metadata[_KEY], Made)
    except (OSError, pa.ArrowException, KeyError, msgspec.DecodeError):
        return None


class RowWriter:
    """Writes messages into an open Parquet file."""

    def __init__(self, file: BinaryIO, kinds: Sequence[type[msgspec.Struct]]) -> None:
        import pyarrow.parquet as pq  # noqa: PLC0415 - an extra

        self._schema = schema_of(*kinds)
        self._writer = pq.ParquetWriter(file, self._schema, compression="zstd")
        self._most_rows = _WINDOWS if Window in kinds else _ROWS
        self._rows: list[msgspec.Struct] = []
        self._tables: list[Any] = []
        self._n_tabled = self._n_bytes = 0

    def add(self, messages: Sequence[msgspec.Struct]) -> None:
        """Take ``messages``."""
        self._rows += messages
        if len(self._rows) >= self._most_rows:
            self._flush(_ROW_GROUP)

    def finish(self, made: Made) -> None:
        """Write what is left, and what the file was made of."""
        self._flush(1)
        self._writer.add_key_value_metadata({_KEY: msgspec.json.encode(made)})

    def close(self) -> None:
        """End the file."""
        self._writer.close()

    def _flush(self, least: int) -> None:
        import pyarrow as pa  # noqa: PLC0415 - an extra

        if self._rows:
            self._tables.append(table_of(self._rows, self._schema))
            self._n_tabled += len(self._rows)
            self._n_bytes += self._tables[-1].nbytes
            self._rows = []
        if self._tables and (self._n_tabled >= least or self._n_bytes >= _MOST_BYTES):
            self._writer.write_table(pa.concat_tables(self._tables))
            self._tables, self._n_tabled, self._n_bytes = [], 0, 0


@contextmanager
def writing_rows(path: Path, kinds: Sequence[type[msgspec.Struct]]) -> Iterator[RowWriter]:
    """Yield a writer of ``path``, which the block closes; after an error the file is as it was. Raises OutputError."""
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
    with (
        replacing(path) as descriptor,
        writing(path),
        os.fdopen(descriptor, "wb", closefd=False) as file,
        closing(RowWriter(file, kinds)) as rows,
    ):
        yield rows
