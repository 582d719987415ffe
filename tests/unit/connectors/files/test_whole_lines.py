"""Whole lines of a file come once each, in linear time and bounded memory, whatever is written and cut."""

from __future__ import annotations

import os
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamad_connectors.files import whole_lines
from streamad_connectors.files.whole_lines import CHUNK_BYTES, FoundLine, WholeLines, last_line_end, lines_before

LIMIT = 20
SMALL = 16


@contextmanager
def opened(path: Path) -> Iterator[int]:
    file = os.open(path, os.O_RDONLY)
    try:
        yield file
    finally:
        os.close(file)


@contextmanager
def small_chunks() -> Iterator[list[int]]:
    """Read 16 bytes at a time; the list gets the number of bytes of each read."""
    reads: list[int] = []
    pread = os.pread

    def counting(file: int, n: int, offset: int) -> bytes:
        found = pread(file, n, offset)
        reads.append(len(found))
        return found

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(whole_lines, "CHUNK_BYTES", SMALL)
        patch.setattr(whole_lines, "_LATEST_BYTES", SMALL)
        patch.setattr(whole_lines, "_CHECKED_BYTES", 4)
        patch.setattr(whole_lines, "_DIGEST_BYTES", 8)
        patch.setattr(os, "pread", counting)
        yield reads


def all_of(found: WholeLines, file: int, position: int) -> list[FoundLine]:
    lines: list[FoundLine] = []
    while (some := found.after(file, position)) or found.has_more:
        lines += some
        position = lines[-1].start + lines[-1].length if lines else position
    return lines


PIECES = st.lists(st.binary(max_size=60).map(lambda piece: piece.replace(b"\x00", b"\n")), max_size=12)


@given(pieces=PIECES)
def test_each_whole_line_comes_once_and_a_byte_is_read_four_times_at_most(
    pieces: list[bytes], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Law: also if the file is looked at after each piece."""
    path = tmp_path_factory.mktemp("lines") / "a"
    path.touch()
    lines: list[FoundLine] = []
    with small_chunks() as reads, opened(path) as file:
        found, position = WholeLines(LIMIT), 0
        for piece in pieces:
            with path.open("ab") as writer:
                writer.write(piece)
            lines += (new := all_of(found, file, position))
            position += sum(line.length for line in new)
        n_calls = len(reads)
    content = b"".join(pieces)
    wanted = [line + b"\n" for line in content.split(b"\n")[:-1]]
    assert [line.length for line in lines] == [len(line) for line in wanted]
    assert [line.content for line in lines] == [line if len(line) <= LIMIT + 1 else None for line in wanted]
    # A call also checks 4 bytes before the place where it goes on, and a skipped line has a digest of its last 8.
    assert sum(reads) <= 4 * len(content) + 8 * n_calls


@given(
    steps=st.lists(st.tuples(st.integers(0, 80), st.binary(min_size=1, max_size=50)), min_size=1, max_size=8),
)
def test_a_line_in_part_that_is_cut_off_and_written_anew_is_found_whole(
    steps: list[tuple[int, bytes]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Law: whatever is cut off behind the position and written instead, the lines then are those of the file."""
    path = tmp_path_factory.mktemp("lines") / "a"
    path.touch()
    with small_chunks(), opened(path) as file:
        found = WholeLines(LIMIT)
        for keep, piece in steps:
            with path.open("r+b") as writer:
                writer.truncate(min(keep, path.stat().st_size))
                writer.seek(0, os.SEEK_END)
                writer.write(piece)
            all_of(found, file, 0)
        with path.open("ab") as writer:
            writer.write(b"\n")
        lines = all_of(found, file, 0)
    wanted = [line + b"\n" for line in path.read_bytes().split(b"\n")[:-1]]
    assert [(line.length, line.content is not None) for line in lines] == [
        (len(line), len(line) <= LIMIT + 1) for line in wanted
    ]


def test_empty_lines_do_not_fill_memory(tmp_path: Path) -> None:
    """A MiB of line ends took 700 MB."""
    path = tmp_path / "a"
    path.write_bytes(b"\n" * (1 << 20))
    n, position, found = 0, 0, WholeLines(1_000)
    tracemalloc.start()
    try:
        with opened(path) as file:
            while lines := found.after(file, position):
                n, position = n + len(lines), lines[-1].start + lines[-1].length
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert n == 1 << 20
    assert peak < 1 << 26


def test_a_line_above_the_limit_is_never_in_memory(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"x" * (40 * CHUNK_BYTES) + b"\nnext\n")
    tracemalloc.start()
    try:
        with opened(path) as file:
            lines = all_of(WholeLines(1_000), file, 0)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert [line.content for line in lines] == [None, b"next\n"]
    assert peak < 4 * CHUNK_BYTES


def test_a_hole_of_a_sparse_file_costs_a_few_reads(tmp_path: Path) -> None:
    path = tmp_path / "a"
    with path.open("wb") as file:
        file.truncate(1 << 40)
        file.seek(1 << 40)
        file.write(b"\nnext\n")
    if path.stat().st_blocks > 1_000:
        pytest.skip("this file system has no sparse files")
    found, position, calls = WholeLines(1_000), 0, 0
    lines: list[FoundLine] = []
    with opened(path) as descriptor:
        while (some := found.after(descriptor, position)) or found.has_more:
            lines += some
            position = lines[-1].start + lines[-1].length if lines else 0
            calls += 1
            assert calls < 20
    assert [(line.length, line.content) for line in lines] == [((1 << 40) + 1, None), (5, b"next\n")]


def test_a_line_without_an_end_is_known_to_be_too_long(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"short\n" + b"x" * 1_000)
    with opened(path) as file:
        found = WholeLines(1_000)
        assert [line.content for line in found.after(file, 0)] == [b"short\n"]
        assert found.after(file, 6) == []
        assert found.too_long is None
        with path.open("ab") as writer:
            writer.write(b"x")
        assert found.after(file, 6) == []
        assert found.too_long == 6


@pytest.mark.parametrize(
    ("content", "end"),
    [(b"", 0), (b"ab", 0), (b"a\n", 2), (b"a\nb", 2), (b"a\n" + b"x" * 15, 2), (b"x" * 100, 100 - 2 * SMALL)],
)
def test_the_last_line_end_is_looked_for_as_far_as_a_line_may_be_long(tmp_path: Path, content: bytes, end: int) -> None:
    path = tmp_path / "a"
    path.write_bytes(content)
    with small_chunks(), opened(path) as file:
        assert last_line_end(file, LIMIT) == end
        assert end == 0 or content[end - 1 : end] == b"\n" or len(content) - end > LIMIT + 1


def test_the_lines_before_a_place_are_whole(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"one\ntwo\nthree\nfour\nfive\n")
    with small_chunks(), opened(path) as file:
        lines = lines_before(file, 24, LIMIT, 9)
        assert [line.content for line in lines] == [b"four\n", b"five\n"]
        assert [line.start for line in lines] == [14, 19]
        assert [line.content for line in lines_before(file, 4, LIMIT, 9)] == [b"one\n"]
        assert [(line.start, line.content) for line in lines_before(file, 24, LIMIT, 1)] == [(19, b"five\n")]
