"""Sums what the pages of a Parquet file say they take once unpacked: pyarrow believes them, whatever the footer says.

A page header is a struct of Thrift's compact protocol, PageHeader in parquet.thrift of Apache Parquet.
"""

from __future__ import annotations

from typing import Any, BinaryIO

_FIRST_READ_BYTES = 1 << 9
_LONGEST_HEADER_BYTES = 1 << 24  # pyarrow refuses longer ones, too
_DATA, _DICTIONARY, _DATA_V2 = 0, 2, 3
_HEADERS = {5: _DATA, 7: _DICTIONARY, 8: _DATA_V2}
"""The field of PageHeader that holds the header of each type of page; field 1 of each is its number of values."""
_DICTIONARY_ENTRY_BYTES = 16  # the widest entry that pyarrow makes room for before it reads one: pointer and length
_VALUE_BYTES = 8
_DEEPEST = 16
_FIXED_BYTES = {1: 0, 2: 0, 3: 1, 7: 8}
"""Size of a field by its type: of true and false, which are the type itself, of a byte, and of a floating number."""
_LONGEST_FILE_BYTES = 1 << 62


class PageHeaderError(Exception):
    """Raised when a page has no readable header."""


def unpacked_bytes(file: BinaryIO, column: Any, at_most: int, *, has_lists: bool = False) -> int:
    """Return the bytes that a column chunk (its metadata) takes once unpacked, by its pages.

    A sum above ``at_most`` ends the search. A page's size is what its header says, because pyarrow takes as much memory
    and unpacks no more; entries of a dictionary count as well, and, as one row may hold all values, those of a column
    of lists. Raises PageHeaderError, OSError.
    """
    first = column.data_page_offset
    if column.has_dictionary_page and column.dictionary_page_offset:
        first = min(first, column.dictionary_page_offset)
    position, end, n_values, total = first, first + column.total_compressed_size, 0, 0
    while position < end and n_values < column.num_values and total <= at_most:
        header, length = _header_at(file, position)
        kind, unpacked, packed = header.get(1, -1), header.get(2, -1), header.get(3, -1)
        if unpacked < 0 or packed < 0:
            raise PageHeaderError(f"the page at byte {position} has a negative size")
        total += unpacked
        count = header.get(-kind - 1, 0)
        if kind == _DICTIONARY:
            total += _DICTIONARY_ENTRY_BYTES * max(count, 0)
        elif kind in (_DATA, _DATA_V2):
            n_values += max(count, 0)
            total += _VALUE_BYTES * max(count, 0) if has_lists else 0
        position += length + packed
    return total


def _header_at(file: BinaryIO, position: int) -> tuple[dict[int, int], int]:
    """Return the page header at byte ``position`` and its length.

    Whole numbers are keyed by field; the number of values by -1 - type of page, which no field has.
    """
    if not 0 <= position < _LONGEST_FILE_BYTES:
        raise PageHeaderError(f"a page at byte {position}")
    size = _FIRST_READ_BYTES
    while True:
        file.seek(position)
        content = file.read(size)
        try:
            reader = _Reader(content)
            return reader.page_header(), reader.position
        except IndexError:
            if len(content) < size or size >= _LONGEST_HEADER_BYTES:
                raise PageHeaderError(f"the page at byte {position} has no whole header") from None
            size *= 16


class _Reader:
    """Reads a struct of the compact protocol; raises IndexError at the end of the bytes."""

    def __init__(self, content: bytes) -> None:
        self._content = content
        self.position = 0

    def page_header(self) -> dict[int, int]:
        numbers: dict[int, int] = {}
        field = 0
        while (start := self._byte()) != 0:
            field, kind = self._field(start, field)
            if kind in (4, 5, 6):
                numbers[field] = self._zigzag()
            elif kind == 12 and field in _HEADERS:
                numbers[-1 - _HEADERS[field]] = self._count()
            else:
                self._skip(kind, 0)
        return numbers

    def _count(self) -> int:
        """Read a struct and return its field 1, 0 if it has none."""
        field, count = 0, 0
        while (start := self._byte()) != 0:
            field, kind = self._field(start, field)
            if field == 1 and kind in (4, 5, 6):
                count = self._zigzag()
            else:
                self._skip(kind, 0)
        return count

    def _field(self, start: int, former: int) -> tuple[int, int]:
        step = start >> 4
        return (former + step if step else self._zigzag()), start & 15

    def _skip(self, kind: int, depth: int) -> None:
        if depth > _DEEPEST:
            raise PageHeaderError("a page header is nested too deep")
        if kind in _FIXED_BYTES:
            self._forward(_FIXED_BYTES[kind])
        elif kind in (4, 5, 6):
            self._varint()
        elif kind == 8:
            self._forward(self._varint())
        elif kind in (9, 10):
            start = self._byte()
            size = start >> 4
            for _ in range(self._varint() if size == 15 else size):
                self._skip_element(start & 15, depth)
        elif kind == 12:
            while (start := self._byte()) != 0:
                self._skip(self._field(start, 0)[1], depth + 1)
        else:  # no page header has a map, type 11
            raise PageHeaderError(f"a page header has a field of the unknown type {kind}")

    def _skip_element(self, kind: int, depth: int) -> None:
        """Skip an element of a list, in which a truth value takes a byte."""
        if kind in (1, 2):
            self._forward(1)
        else:
            self._skip(kind, depth + 1)

    def _byte(self) -> int:
        value = self._content[self.position]
        self.position += 1
        return value

    def _forward(self, n: int) -> None:
        if n > len(self._content) - self.position:
            raise IndexError
        self.position += n

    def _varint(self) -> int:
        value, shift = 0, 0
        while True:
            byte = self._byte()
            value |= (byte & 127) << shift
            if byte < 128:
                return value
            shift += 7
            if shift > 63:
                raise PageHeaderError("a number in a page header is too long")

    def _zigzag(self) -> int:
        value = self._varint()
        return (value >> 1) ^ -(value & 1)
