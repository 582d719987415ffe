"""The formats of recordings, an entry each. A new one: its module beside this one, and its entry here.

Nothing else names all formats: endings, readers, and which options of the file source a format has.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from streamad.errors import ConfigError, Problem, SourceError
from streamad.tables import TableLayout
from streamad_connectors.files.formats import jsonl, npz, records
from streamad_connectors.files.formats.csv_files import rows as csv_rows
from streamad_connectors.files.formats.csv_files.columns import read_csv_columns
from streamad_connectors.files.formats.csv_files.layout import layout_of
from streamad_connectors.files.formats.options import FileOptions
from streamad_connectors.files.formats.parquet_files.columns import read_parquet_columns
from streamad_connectors.files.formats.parquet_files.rows import read_parquet
from streamad_connectors.files.formats.reading import ColumnReader, Reader

_HEAD_BYTES = 64
_OF_SEQUENCES = ("split", "classes", "period", "pause", "start", "stream")


@dataclass(frozen=True, slots=True)
class Format:
    """One format: its ``names`` in the option ``format``, the first one in messages, and its files' ``endings``.

    ``options`` are those of ``FileOptions`` that this format has and not every one. ``is_packed``: also as ``.gz``.
    ``grows``: it can be followed. ``has_ids``: its sequences have ids of their own. ``labels`` and ``channels`` read
    what a recording of whole sequences says of itself, ``layout`` how a table of text looks to be laid out.
    ``has_rows``: its offsets are the numbers of its rows. ``by_column`` reads the same rows by column.
    """

    names: tuple[str, ...]
    endings: tuple[str, ...]
    read: Reader
    options: tuple[str, ...]
    is_packed: bool = False
    grows: bool = False
    has_ids: bool = False
    has_rows: bool = False
    labels: Callable[[Path, FileOptions], dict[str, str]] | None = None
    channels: Callable[[Path, FileOptions], tuple[str, ...] | None] | None = None
    layout: Callable[[Path, FileOptions], TableLayout] | None = None
    by_column: ColumnReader | None = None

    @property
    def name(self) -> str:
        """Return the name in messages."""
        return self.names[0]


# The longer of two endings comes first.
FORMATS: Final = (
    Format(
        ("records",),
        (records.RECORDS_ENDING,),
        records.read_records,
        ("max_record_bytes",),
        is_packed=True,
        has_ids=True,
    ),
    Format(
        ("jsonl", "ndjson"),
        (".jsonl", ".ndjson"),
        jsonl.read_jsonl,
        ("sort", "max_record_bytes"),
        is_packed=True,
        grows=True,
    ),
    Format(
        ("csv",),
        (".csv", ".tsv", ".lvm"),
        csv_rows.read_csv,
        ("sort", "max_record_bytes", "delimiter", "header", "first_row", "decimal", "encoding", "text"),
        is_packed=True,
        grows=True,
        has_rows=True,
        layout=layout_of,
        by_column=read_csv_columns,
    ),
    Format(
        ("parquet",),
        (".parquet", ".pq"),
        read_parquet,
        ("sort", "max_decompressed_bytes"),
        has_rows=True,
        by_column=read_parquet_columns,
    ),
    Format(
        ("npz",),
        (".npz",),
        npz.read_npz,
        ("max_decompressed_bytes", *_OF_SEQUENCES),
        has_ids=True,
        labels=npz.npz_labels,
        channels=npz.npz_channels,
    ),
)
ENDINGS: Final = tuple(ending for known in FORMATS for ending in known.endings)


def format_named(name: str) -> Format:
    """Return the format that the option ``format`` names. Raises SourceError for a name of none."""
    for known in FORMATS:
        if name in known.names:
            return known
    names = ", ".join(name for known in FORMATS for name in known.names)
    raise SourceError(f"there is no format {name!r}; write auto, or one of {names}")


def check_named_format(options: FileOptions) -> None:
    """Raise ConfigError if ``format`` names none, or one that cannot be followed with ``follow``."""
    if options.format == "auto":
        return
    try:
        named = format_named(options.format)
    except SourceError as error:
        raise ConfigError([Problem("source.options.format", str(error))]) from None
    if options.follow and not named.grows:
        text = f"follow is for JSON lines and CSV, not for {named.name}; leave it out"
        raise ConfigError([Problem("source.options.follow", text)])


def format_by_ending(path: Path) -> Format | None:
    """Return the format that the ending of ``path`` names, None if it names none."""
    name = path.name.lower()
    unpacked = name.removesuffix(".gz")
    for known in FORMATS:
        # A name that is only an ending has no format.
        if any(unpacked.removesuffix(ending) not in ("", unpacked) for ending in known.endings):
            return known if known.is_packed or name == unpacked else None
    return None


def format_of(path: Path, options: FileOptions) -> Format:
    """Return the format of ``path``. Raises SourceError if neither its ending nor ``options`` name one."""
    if options.format != "auto":
        return format_named(options.format)
    found = format_by_ending(path)
    if found is None:
        raise SourceError(
            f"{path}: the file's ending names no known format ({' '.join(ENDINGS)}, some with .gz); give the option "
            f"format: write ?format={_looks_like(path)} behind the name, if that is what it is"
        )
    return found


def _looks_like(path: Path) -> str:
    """Return the name of the format that a file begins like."""
    try:
        with path.open("rb") as file:
            head = file.read(_HEAD_BYTES).lstrip(b"\xef\xbb\xbf \t\r\n")
    except OSError:  # reading it says why
        head = b""
    starts = {b"{": "jsonl", b"PAR1": "parquet", b"PK": "npz"}
    return next((name for start, name in starts.items() if head.startswith(start)), "csv")


def options_without_use(options: FileOptions, formats: Iterable[Format]) -> dict[str, list[str]]:
    """Return the given options that none of ``formats`` has, each with the names of the formats that do."""
    found = {name for known in formats for name in known.options}
    users: dict[str, list[str]] = {}
    for known in FORMATS:
        for name in known.options:
            users.setdefault(name, []).append(known.name)
    return {name: users[name] for name in sorted(options.model_fields_set & users.keys()) if name not in found}
