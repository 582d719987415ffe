"""NPZ files that are damaged, or made to fill the memory, end in one line with the file and what to do.

Law: whatever the bytes of a file are, reading it raises SourceError or returns; and no array is made that the file's
headers declare to be larger than ``max_decompressed_bytes``.
"""

from __future__ import annotations

import io
import struct
import tracemalloc
import zipfile
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamad.errors import SourceError
from tests.support.files import read_one, source

X = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
ADVICE = ("save it anew", "save plain numbers and text", "needed is one", "max_decompressed_bytes")


def npy(array: Any) -> bytes:
    written = io.BytesIO()
    np.lib.format.write_array(written, np.asarray(array), allow_pickle=True)
    return written.getvalue()


def declared(descr: str, shape: tuple[int, ...], data: bytes = b"", version: bytes = b"\x01\x00") -> bytes:
    header = str({"descr": descr, "fortran_order": False, "shape": shape}).encode()
    header += b" " * (63 - (10 + len(header)) % 64) + b"\n"
    return b"\x93NUMPY" + version + struct.pack("<H", len(header)) + header + data


def headed(header: str, data: bytes = b"") -> bytes:
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode() + data


def archive(path: Path, method: int = zipfile.ZIP_STORED, **members: bytes) -> Path:
    with zipfile.ZipFile(path, "w", method) as file:
        for name, content in members.items():
            file.writestr(f"{name}.npy", content)
    return path


def patched(path: Path, local: tuple[int, bytes], central: tuple[int, bytes]) -> None:
    """Overwrite a field of every local header and of every entry of the directory (APPNOTE.TXT, 4.3.7 and 4.3.12)."""
    content = bytearray(path.read_bytes())
    for mark, (offset, value) in ((b"PK\x03\x04", local), (b"PK\x01\x02", central)):
        at = -1
        while (at := content.find(mark, at + 1)) >= 0:
            content[at + offset : at + offset + len(value)] = value
    path.write_bytes(content)


BROKEN: dict[str, dict[str, bytes]] = {
    "no dimension": {"x": npy(np.float32(3))},
    "no dimension of lengths": {"x": npy(X), "len": npy(3)},
    "no dimension of channels": {"x": npy(X), "channels": npy("a")},
    "no dimension of classes": {"x": npy(X), "y": npy([0, 1]), "classes": npy("a")},
    "no dimension of labels": {"x": npy(X), "y": npy(1)},
    "no channel": {"x": npy(np.zeros((2, 0, 4))), "len": npy([4, 4])},
    "no content": {"x": b""},
    "no header": {"x": b"hello"},
    "half a header": {"x": b"\x93NUMPY\x01\x00"},
    "unknown version": {"x": declared("<f4", (2, 3, 4), version=b"\x09\x00")},
    "unknown type": {"x": declared("<q9", (2, 3, 4))},
    "a header without end": {"x": headed("{" * 300 + "\n")},
    "a header nested deeply": {"x": headed("-" * 5_000 + "1\n")},
    "a header with a list as key": {"x": headed("{[]: 1}\n")},
    "a type of no parts": {"x": headed("{'descr': (), 'fortran_order': False, 'shape': (2, 3, 4)}\n")},
    "a length that is true": {"x": headed("{'descr': '<f4', 'fortran_order': False, 'shape': (True,)}\n", b"1234")},
    "negative length": {"x": declared("<f4", (-1, 3, 4))},
    "too short": {"x": declared("<f4", (2, 3, 4), b"1234")},
    "objects": {"x": npy(np.array([X, None], dtype=object))},
    "objects as ids": {"x": npy(X), "batch_id": npy(np.array(["a", None], dtype=object))},
    "records": {"x": npy(X), "y": npy(np.zeros(2, dtype=[("a", "f4")]))},
    "no character": {"x": npy(X), "batch_id": declared("<U1", (2,), struct.pack("<II", 0x110000, 65))},
    "half a character": {"x": npy(X), "channels": npy(np.array(["a", "b\udc80", "c"]))},
    "huge": {"x": declared("<f4", (1 << 20, 1 << 10, 1 << 10), b"1234")},
    "beyond 64 bits": {"x": declared("<f4", (1 << 40, 1 << 40, 1 << 40), b"1234")},
    "huge and empty": {"x": declared("<f4", (1 << 40, 0, 1))},
    "huge lengths": {"x": npy(X), "len": declared("<i8", (1 << 40,), b"1234")},
    "huge text": {"x": npy(X), "batch_id": declared("<U500000000", (2,), b"1234")},
}


@pytest.mark.parametrize("members", BROKEN.values(), ids=BROKEN.keys())
async def test_a_broken_array_is_one_line(members: dict[str, bytes], tmp_path: Path) -> None:
    archive(tmp_path / "a.npz", **members)
    with pytest.raises(SourceError) as caught:
        await read_one("a.npz", tmp_path)
    assert str(caught.value).startswith(f"{tmp_path / 'a.npz'}: ")
    assert "\n" not in str(caught.value)
    assert any(advice in str(caught.value) for advice in ADVICE) or "needed" in str(caught.value)


async def test_a_header_of_python_2_is_read_without_a_warning(tmp_path: Path) -> None:
    header = "{'descr': '<f4', 'fortran_order': False, 'shape': (2L, 3L, 4L), }\n"
    archive(tmp_path / "a.npz", x=headed(header, X.tobytes()))
    assert len(await read_one("a.npz", tmp_path)) == 2


@pytest.mark.parametrize(
    ("local", "central", "why"),
    [
        ((6, b"\x01\x00"), (8, b"\x01\x00"), "encrypted"),
        ((8, b"\x63\x00"), (10, b"\x63\x00"), "compression method"),
        ((8, b"\x0e\x00"), (10, b"\x0e\x00"), "."),  # LZMA, which it is not
        ((14, b"\0\0\0\0"), (16, b"\0\0\0\0"), "CRC"),
        ((0, b"PK\x03\x04"), (42, b"\xff\xff\xff\x7f"), "file header"),
    ],
)
async def test_a_broken_member_is_one_line(
    local: tuple[int, bytes], central: tuple[int, bytes], why: str, tmp_path: Path
) -> None:
    path = archive(tmp_path / "a.npz", zipfile.ZIP_DEFLATED, x=npy(X))
    patched(path, local, central)
    with pytest.raises(SourceError, match=rf"a\.npz: array 'x' cannot be read \(.*{why}.*\); save it anew"):
        await read_one("a.npz", tmp_path)


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 nothing", b"\x80\x04K\x01."])
async def test_what_is_no_archive(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "a.npz").write_bytes(content)
    with pytest.raises(SourceError, match=r"a\.npz: is no NumPy archive \(.*\); write it with numpy\.savez_compressed"):
        await read_one("a.npz", tmp_path)


async def test_an_archive_of_an_unknown_zip_version(tmp_path: Path) -> None:
    patched(archive(tmp_path / "a.npz", x=npy(X)), (4, b"\xff\x00"), (6, b"\xff\x00"))
    with pytest.raises(SourceError, match="is no NumPy archive"):
        await read_one("a.npz", tmp_path)


async def test_sequences_without_samples_are_skipped(tmp_path: Path) -> None:
    archive(tmp_path / "a.npz", x=npy(np.zeros((2, 3, 0), dtype=np.float32)))
    assert await read_one("a.npz", tmp_path) == []


async def test_a_bomb_is_refused_before_it_is_unpacked(tmp_path: Path) -> None:
    """64 MB of zeros in a file of some KB; what may be unpacked is 16 MiB."""
    path = tmp_path / "a.npz"
    archive(path, zipfile.ZIP_DEFLATED, x=npy(np.zeros((16, 1, 1_000_000), dtype=np.float32)))
    assert path.stat().st_size < 100_000
    tracemalloc.start()
    try:
        with pytest.raises(
            SourceError, match=r"array 'x' with the shape \(16, 1, 1000000\) would take more than 16 MiB"
        ):
            await read_one("a.npz", tmp_path, max_decompressed_bytes="16MiB")
        assert tracemalloc.get_traced_memory()[1] < 16 << 20
    finally:
        tracemalloc.stop()


async def test_labels_and_channels_are_bounded_too(tmp_path: Path) -> None:
    huge = declared("<U1000", (1 << 30,))
    archive(tmp_path / "a.npz", x=npy(X), channels=huge)
    archive(tmp_path / "b.npz", x=npy(X), y=npy([0, 1]), batch_id=huge)
    with pytest.raises(SourceError, match=r"array 'channels' .* would take more than 1024 MiB"):
        source("a.npz", tmp_path).channel_names()
    with pytest.raises(SourceError, match=r"array 'batch_id' .* would take more than 1024 MiB"):
        source("b.npz", tmp_path).labels()


async def test_the_arrays_of_a_file_count_together(tmp_path: Path) -> None:
    part = npy(np.zeros((1, 1, 200_000), dtype=np.float32))
    archive(tmp_path / "a.npz", train_x=part, test_x=part)
    limit = {"max_decompressed_bytes": 1 << 20}
    assert len(await read_one("a.npz?split=test", tmp_path, **limit)) == 782
    with pytest.raises(SourceError, match=r"array 'test_x' .* 1 MiB"):
        await read_one("a.npz", tmp_path, **limit)


async def test_too_little_memory_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise MemoryError("Unable to allocate 900 MiB")

    archive(tmp_path / "a.npz", x=npy(X))
    monkeypatch.setattr(np.lib.format, "read_array", fail)
    with pytest.raises(SourceError, match=r"a\.npz: there is not enough memory to read it; free some, or split"):
        await read_one("a.npz", tmp_path)


@given(st.lists(st.tuples(st.integers(0, 2_000), st.integers(0, 255)), min_size=1, max_size=6))
@settings(max_examples=60, deadline=None)
async def test_any_bytes_changed(tmp_path_factory: pytest.TempPathFactory, changes: list[tuple[int, int]]) -> None:
    folder = tmp_path_factory.mktemp("npz")
    path = archive(folder / "a.npz", zipfile.ZIP_DEFLATED, x=npy(X), len=npy([4, 2]), channels=npy(["a", "b", "c"]))
    content = bytearray(path.read_bytes())
    for at, value in changes:
        content[at % len(content)] = value
    path.write_bytes(content)
    opened = source("a.npz", folder, max_decompressed_bytes="1MiB")
    for read in (opened.channel_names, opened.labels):
        with suppress(SourceError):
            read()
    with suppress(SourceError):
        await read_one("a.npz", folder, max_decompressed_bytes="1MiB")
