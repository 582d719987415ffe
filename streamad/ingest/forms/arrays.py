"""Chunks of plain numbers straight into arrays, without a Python object for each, if simdjson is installed.

Law (tests/unit/ingest/test_arrays.py): what is read here is, bit for bit, what the typed decoder of ``decode_own.py``
reads of the same bytes. It reads less: all else, also what both would refuse, is left to that decoder.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from streamad.types import FloatArray


def _parser_type() -> Any:
    """Return simdjson's parser, None without the extra ``simdjson``."""
    try:
        from simdjson import Parser  # noqa: PLC0415 - the module may be absent
    except ImportError:
        return None
    return Parser


parser_type = _parser_type()
# KeyError for an absent field, AttributeError and TypeError for a value of another type, RuntimeError if another thread
# reads with the same parser, ValueError for what is no JSON or has a number beyond the range.
_REFUSED = (KeyError, AttributeError, TypeError, ValueError, RuntimeError, MemoryError)
_FIELDS = frozenset({"stream", "sequence", "times", "values", "channels", "end"})
_BRACKET = ord("[")
_KEPT_BYTES = 8_000_000
"""A parser that has read more is not kept: it keeps four to six times as much, for as long as it lives."""
_LARGEST = 3.4e38
"""Larger numbers may be infinite as float32."""


class Chunk(NamedTuple):
    """A message of the own format: ``times`` int64 or float64 [n]; ``values`` float32 [n, c], c its own channels."""

    stream: str | int
    sequence: str | int | None
    channels: list[str] | None
    end: bool | None
    times: npt.NDArray[Any]
    values: FloatArray


class ArrayReader:
    """Reads chunks with a parser that keeps its memory from one to the next, but for very long ones."""

    def __init__(self) -> None:
        self._parser = parser_type()

    @classmethod
    def if_installed(cls) -> Self | None:
        """Return a reader, None without simdjson."""
        return None if parser_type is None else cls()

    def read(self, value: bytes) -> Chunk | None:
        """Return the content of a chunk that has nothing but the own format's fields and numbers; else None."""
        if value[:1] != b"{" or b'"times"' not in value:
            return None
        try:
            if not value.isascii():
                value.decode()  # simdjson is given no invalid UTF-8: its binding makes that error in an unsafe way
            n_brackets = int(np.count_nonzero(np.frombuffer(value, np.uint8) == _BRACKET))  # bytes.count takes longer
            return _chunk(self._parser.parse(value), n_brackets)
        except _REFUSED:
            return None
        finally:
            if len(value) > _KEPT_BYTES:
                self._parser = parser_type()


def _chunk(message: Any, n_brackets: int) -> Chunk | None:
    names = list(message)
    if len(set(names)) < len(names) or not _FIELDS.issuperset(names):
        return None
    head = {name: message[name] for name in names if name not in {"times", "values"}}
    stream, sequence, channels, end = head["stream"], head.get("sequence"), head.get("channels"), head.get("end")
    channels = None if channels is None else channels.as_list()
    is_typed = (
        type(stream) in {str, int} and type(sequence) in {str, int, type(None)} and type(end) in {bool, type(None)}
    )
    if not is_typed or not all(type(name) is str for name in channels or ()):
        return None
    rows, times = message["values"], message["times"]
    n, widths = len(rows), set(map(len, rows))
    # A buffer is flat, whatever was nested: so many brackets leave no room for a list inside a row.
    if len(widths) != 1 or n_brackets != n + 2 + (channels is not None) or len(times) != n:
        return None
    numbers = np.frombuffer(rows.as_buffer(of_type="d"))
    if len(numbers) != n * widths.pop():
        return None
    if numbers[numbers.argmax()] > _LARGEST or numbers[numbers.argmin()] < -_LARGEST:
        return None
    return Chunk(stream, sequence, channels, end, _times(times), numbers.astype(np.float32).reshape(n, -1))


def _times(times: Any) -> npt.NDArray[Any]:
    """Return the times as ``np.array`` makes them of a list: integers if all are."""
    if type(times[0]) is int:
        try:
            return np.frombuffer(times.as_buffer(of_type="i"), dtype=np.int64)
        except TypeError:
            pass
    return np.frombuffer(times.as_buffer(of_type="d"))
