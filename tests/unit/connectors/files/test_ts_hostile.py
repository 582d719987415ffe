"""Lines of ``.ts`` files that would fill the memory end the run in one line."""

from __future__ import annotations

import gzip
import tracemalloc
from pathlib import Path

import pytest

from streamad.errors import SourceError
from tests.support.files import read_one


@pytest.mark.parametrize("lines", [b"@data\n" + b"1," * 1_000, b"#" * 1_001 + b"\n@data\n"])
async def test_a_line_above_the_limit(lines: bytes, tmp_path: Path) -> None:
    (tmp_path / "a.ts").write_bytes(lines)
    with pytest.raises(SourceError, match=r"a\.ts: line [12] is too long; raise the option max_record_bytes"):
        await read_one("a.ts", tmp_path, max_record_bytes=1_000)


async def test_a_line_at_the_limit(tmp_path: Path) -> None:
    (tmp_path / "a.ts").write_bytes(b"@data\n" + b"1" * 1_000 + b"\n")
    assert len(await read_one("a.ts", tmp_path, max_record_bytes=1_000)) == 1


async def test_a_packed_line_is_not_unpacked_whole(tmp_path: Path) -> None:
    (tmp_path / "a.ts.gz").write_bytes(gzip.compress(b"@data\n" + b"1," * 20_000_000, 1))
    tracemalloc.start()
    try:
        with pytest.raises(SourceError, match="line 2 is too long"):
            await read_one("a.ts.gz", tmp_path, max_record_bytes="1MiB")
        assert tracemalloc.get_traced_memory()[1] < 8 << 20
    finally:
        tracemalloc.stop()


async def test_one_long_dimension_among_many_short_ones(tmp_path: Path) -> None:
    """A line of some KB stands for an array of dimensions x the longest one."""
    (tmp_path / "a.ts").write_bytes(b"@data\n" + b"1:" * 1_000 + b"1," * 999 + b"1\n")
    with pytest.raises(
        SourceError, match=r"line 2 with 1001 dimensions of up to 1000 values would take more than 1 MiB"
    ):
        await read_one("a.ts", tmp_path, max_decompressed_bytes="1MiB")
