"""The process that reads Parquet: pyarrow has no limit of memory, so the kernel limits this process instead.

A file of 565 bytes makes pyarrow take gigabytes, and one changed byte in a footer makes it abort its process; neither
may happen to a worker. ``python -m`` this module with the limit in bytes answers requests on stdin, one line of JSON
each: path, first row, largest row group in bytes, zone of times without one. Each answer begins with its length.

With names of columns in such a request as well, the answers are columns, and after each of them another request is
awaited: two row numbers ask for these rows of the newest batches, null for the next columns. Another null ends it.
"""

from __future__ import annotations

import json
import resource
import struct
import sys
from collections import Counter, deque
from collections.abc import Collection, Iterator
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any, Literal, TypeAlias

import msgspec

from streamad_connectors.files.formats.parquet_files.arrays import ColumnsAnswer, columns_of, counts_rows

LENGTH = struct.Struct("<I")
Answer: TypeAlias = tuple[
    Literal["rows", "columns", "done", "damaged", "refused", "too large", "shrunk"], ColumnsAnswer | list[bytes] | str
]
"""Some rows, each as msgpack, or by column; no more rows; what is damaged; what the user must change; what takes too
much memory; the number of rows of a file that has fewer than were skipped."""

_MAX_BATCH_ROWS = 512
_MOST_TOGETHER = 8_192
_CELLS_TOGETHER = 1 << 17
_BYTES_TOGETHER = 1 << 23
_KEPT_BATCHES = 2
_ROWS_BYTES = 1 << 20
_BUFFER_BYTES = 1 << 20
_ANSWER_BYTES = 1 << 16
_TICKS_PER_S = {"s": 1, "ms": 1_000, "us": 1_000_000}


def main() -> None:
    """Answer the requests on stdin until it ends."""
    limit = int(sys.argv[1])
    with suppress(ValueError, OSError):  # macOS does not limit the memory of a process
        resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
    with suppress(OSError):  # if the machine's memory runs out, Linux ends this process first
        Path("/proc/self/oom_score_adj").write_text("1000")
    for request in sys.stdin.buffer:
        for answer in _answers(*json.loads(request)):
            content = msgspec.msgpack.encode(answer)
            sys.stdout.buffer.write(LENGTH.pack(len(content)))
            sys.stdout.buffer.write(content)
            sys.stdout.buffer.flush()


def _answers(
    path: str, offset: int, largest: int, zone: str, wanted: Collection[str] | None = None
) -> Iterator[Answer]:
    """Yield the rows from number ``offset`` on; row groups before it are not read."""
    step = "its footer"
    kept: deque[tuple[int, Any]] = deque(maxlen=_KEPT_BATCHES)
    try:
        import pyarrow.parquet  # noqa: PLC0415

        with Path(path).open("rb") as handle, pyarrow.parquet.ParquetFile(handle, pre_buffer=False) as file:
            total = file.metadata.num_rows
            groups, number = _groups_from(file.metadata, offset)
            complaint = _name_complaint(file.schema_arrow.names)
            packed = _packed_texts(file.metadata)
            if offset > total or complaint:
                yield ("shrunk", str(total)) if offset > total else ("refused", complaint)
                return  # whoever asked ends this process
            sizes = {group: file.metadata.row_group(group).total_byte_size for group in groups}
            n_rows = {group: file.metadata.row_group(group).num_rows for group in groups}
            most = _MAX_BATCH_ROWS if wanted is None else _most_together(file.metadata)
        options = {"read_dictionary": packed, "pre_buffer": False, "buffer_size": _BUFFER_BYTES}
        with Path(path).open("rb") as handle, pyarrow.parquet.ParquetFile(handle, **options) as file:
            for group in groups:
                step = f"row group {group}"
                if sizes[group] > largest:
                    raise MemoryError
                own = range(number, number + n_rows[group])
                for first, batch in _batches(file, group, most, own, offset):
                    if wanted is None:
                        for rows in _encoded(batch, zone):
                            yield "rows", rows
                        continue
                    kept.append((first, batch))
                    yield "columns", columns_of(batch, first, wanted, zone)
                    yield from _asked(kept, zone)
                number = own.stop
        yield "done", ""
    except MemoryError:  # pyarrow's is an ArrowException, too
        yield "too large", step
    except Exception as error:  # noqa: BLE001 - pyarrow raises what it likes for a damaged file
        yield "damaged", " ".join(str(error).split()) or type(error).__name__
    if wanted is not None:
        yield from _asked(kept, zone)


def _batches(file: Any, group: int, most: int, own: range, offset: int) -> Iterator[tuple[int, Any]]:
    """Yield the rows of ``group``, whose numbers are its ``own``, from ``offset`` on with the number of the first.

    At most ``most`` come at once, fewer if that takes too much memory: no header says how much texts take. Raises
    ValueError for more rows or fewer: their offsets would depend on where reading begins.
    """
    for n_rows in (most, _MAX_BATCH_ROWS):
        behind = own.start
        try:
            for found in file.iter_batches(n_rows, row_groups=[group], use_threads=False):
                batch = found[min(max(offset - behind, 0), found.num_rows) :]
                behind += found.num_rows
                offset = max(offset, behind)
                if batch.num_rows:
                    yield behind - batch.num_rows, batch
        except MemoryError:
            if n_rows == _MAX_BATCH_ROWS:
                raise
        else:
            if behind != own.stop:
                raise ValueError(f"row group {group}: its footer says another number of rows")
            return


def _most_together(metadata: Any) -> int:
    """Return how many rows are read by column at once: few of wide ones, and few that hold long texts."""
    groups = [group for group in map(metadata.row_group, range(metadata.num_row_groups)) if group.num_rows]
    bytes_of_row = max((group.total_byte_size / group.num_rows for group in groups), default=0.0)
    n_rows: int = min(_CELLS_TOGETHER // max(metadata.num_columns, 1), int(_BYTES_TOGETHER / max(bytes_of_row, 1.0)))
    return max(min(n_rows, _MOST_TOGETHER), _MAX_BATCH_ROWS)


def _asked(kept: Collection[tuple[int, Any]], zone: str) -> Iterator[Answer]:
    """Answer requests for rows of ``kept`` batches, each with the number of its first row, up to one for columns.

    The rows end with an empty answer, before the last one if they are long.
    """
    for request in iter(sys.stdin.buffer.readline, b""):
        asked = json.loads(request)
        if asked is None:
            return
        first, last = asked
        for number, batch in kept:
            if number <= first < number + batch.num_rows:
                size = 0
                for rows in _encoded(batch[first - number : last - number], zone):
                    yield "rows", rows
                    size += sum(map(len, rows))
                    if size >= _ROWS_BYTES:
                        break
        yield "rows", []


def _encoded(batch: Any, zone: str) -> Iterator[list[bytes]]:
    import pyarrow  # noqa: PLC0415 - as above

    yield from _joined(map(msgspec.msgpack.Encoder().encode, _rows(pyarrow, batch, zone)))


def _joined(rows: Iterator[bytes]) -> Iterator[list[bytes]]:
    """Join ``rows`` up to some KB, so that one long text that comes again and again takes its memory once."""
    found: list[bytes] = []
    size = 0
    for row in rows:
        found.append(row)
        size += len(row)
        if size >= _ANSWER_BYTES:
            yield found
            found, size = [], 0
    if found:
        yield found


def _groups_from(metadata: Any, offset: int) -> tuple[list[int], int]:
    """Return the row groups that hold rows from ``offset`` on, and the number of the first group's first row."""
    first = 0
    for group in range(metadata.num_row_groups):
        n_rows = metadata.row_group(group).num_rows
        if first + n_rows > offset:
            return list(range(group, metadata.num_row_groups)), first
        first += n_rows
    return [], first


def _name_complaint(names: list[str]) -> str:
    """Return what is wrong with the names of the columns: two alike, or one with a NUL."""
    twice = next((name for name, count in Counter(names).items() if count > 1), None)
    if twice is not None:
        return f"column {twice!r} appears twice; rename one"
    if (cut := next((name for name in names if "\0" in name), None)) is not None:
        return f"the name of column {cut!r} holds a NUL character, where pyarrow ends it; rename it"
    return ""


def _packed_texts(metadata: Any) -> list[str]:
    """Return the columns of text that stand as numbers of texts in the file.

    They are read as that: some KB may stand for GB of one long text that comes again and again.
    """
    if not metadata.num_row_groups:
        return []
    columns = [metadata.row_group(0).column(i) for i in range(metadata.num_columns)]
    return [
        column.path_in_schema
        for i, column in enumerate(columns)
        if column.has_dictionary_page and "." not in column.path_in_schema and _is_text(metadata.schema.column(i))
    ]


def _is_text(column: Any) -> bool:
    return column.physical_type == "BYTE_ARRAY" and column.logical_type.type in ("STRING", "NONE")


def _rows(pyarrow: Any, batch: Any, zone: str) -> Iterator[dict[str, Any]]:
    kept = [i for i, field in enumerate(batch.schema) if not counts_rows(pyarrow, field)]
    names = [batch.schema.names[i] for i in kept]
    columns = [_plain(pyarrow, batch.column(i), zone) for i in kept]
    for cells in zip(*columns, strict=True):
        yield dict(zip(names, cells, strict=True))


def _plain(pyarrow: Any, column: Any, zone: str) -> list[Any]:
    """Return the cells of ``column`` as numbers, text, lists of them, or None; times without a zone are of ``zone``.

    A text that is no UTF-8 becomes bytes, a time that no calendar of Python has a text that is no time: the decoder
    refuses both.
    """
    if pyarrow.types.is_dictionary(column.type):
        values = _plain(pyarrow, column.dictionary, zone)
        return [None if index is None else values[index] for index in column.indices.to_pylist()]
    try:
        return _converted(pyarrow, column, zone)
    except (UnicodeDecodeError, OverflowError, ValueError):  # pyarrow.ArrowInvalid is a ValueError
        if len(column) == 1:
            return [_unreadable(column)]
        return [_plain(pyarrow, column.slice(i, 1), zone)[0] for i in range(len(column))]


def _unreadable(column: Any) -> object:
    cell = column[0]
    if hasattr(cell, "as_buffer"):
        return cell.as_buffer().to_pybytes()
    value = getattr(cell, "value", None)
    return f"{column.type} out of range" if value is None else f"{value} as {column.type}"


def _converted(pyarrow: Any, column: Any, zone: str) -> list[Any]:
    """Return the cells as ``_plain``. Raises UnicodeDecodeError, OverflowError, ValueError."""
    kind = column.type
    types = pyarrow.types
    if types.is_timestamp(kind):
        # Nanoseconds are cut, which a safe cast refuses; coarser times must not wrap around.
        is_finer = kind.unit == "ns"
        times = column.cast(pyarrow.timestamp("us", tz=kind.tz or zone or None), safe=not is_finer)
        return [None if time is None else time.isoformat() for time in times.to_pylist()]
    if types.is_duration(kind):
        ticks = column.cast(pyarrow.int64()).to_pylist()
        return [None if count is None else _seconds(count, kind.unit) for count in ticks]
    if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        return _lists(_plain(pyarrow, column.flatten(), zone), _lengths(types, column))
    if types.is_decimal(kind):
        column = column.cast(pyarrow.float64())
    elif types.is_boolean(kind):
        column = column.cast(pyarrow.int8())
    plain: list[Any] = column.to_pylist()
    return plain


def _lengths(types: Any, column: Any) -> list[int | None]:
    if types.is_fixed_size_list(column.type):
        return [column.type.list_size if is_valid else None for is_valid in column.is_valid().to_pylist()]
    lengths: list[int | None] = column.value_lengths().to_pylist()
    return lengths


def _lists(values: list[Any], lengths: list[int | None]) -> list[list[Any] | None]:
    """Cut ``values`` into lists of these lengths; None is no list, and has no values."""
    left = iter(values)
    return [None if length is None else list(islice(left, length)) for length in lengths]


def _seconds(count: int, unit: str) -> float:
    """Return a duration in seconds, cut to microseconds."""
    return count // 1_000 / 1_000_000 if unit == "ns" else count / _TICKS_PER_S[unit]


if __name__ == "__main__":
    main()
