"""Damages one file of a plant: its bytes, its JSON, its cells, its archive, or what it is at all."""

from __future__ import annotations

import gzip
import io
import json
import os
import random
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.support.fuzz.npy import odd_npy
from tests.support.ingest.mutations import damaged_bytes, damaged_content

_CELLS = (
    *("", " ", "NaN", "inf", "-1e999", "1e308", "Bad", "#N/A", '"', '""', "\ufeff", "\x00", "a" * 200_000, "9" * 5_000),
    *("2026-01-01T00:00:00Z", "0001-01-01", "23.03.2026 06:00", "1,5", ";", "\t", "[red]x[/]", "\u202ex", "=1+1", "-0"),
)
_LINES = (
    b"\n",
    b"\r",
    b"\r\n",
    b"\x00\n",
    b"{}\n",
    b"[]\n",
    b"null\n",
    b"\xff\xfe\n",
    b"[" * 20_000 + b"\n",
    b'{"a":' * 20_000,
)
_JSON_ENDINGS = (".json", ".jsonl", ".position", ".yaml")


def damage_file(path: Path, rng: random.Random) -> None:
    """Replace ``path`` by something like it; seldom by nothing, a folder, a link or a device."""
    if rng.random() < 0.05:
        _other_kind(path, rng)
        return
    content = path.read_bytes()
    for _ in range(rng.choice([1, 1, 1, 2, 3])):
        content = rng.choice(_damages_of(path))(content, rng)
    path.write_bytes(content)


def _damages_of(path: Path) -> list[Callable[[bytes, random.Random], bytes]]:
    name = path.name.removesuffix(".gz")
    found: list[Callable[[bytes, random.Random], bytes]] = [damaged_bytes, damaged_bytes, _emptied]
    if path.suffix == ".gz":
        found += [_regzipped(_lines), _regzipped(damaged_bytes), _bomb]
    elif name.endswith(_JSON_ENDINGS):
        found += [_json_lines] * 6 + [_lines]
    elif name.endswith((".csv", ".ts")):
        found += [_cells] * 4 + [_lines, _lines]
    elif name.endswith((".npz", ".model.ts")) or _is_zip(path):
        found += [_members] * 6
    elif name.endswith(".npy"):
        found += [odd_npy] * 4
    elif name in {"CURRENT"}:
        found += [_word] * 4
    return found


def _is_zip(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(2) == b"PK"


def _other_kind(path: Path, rng: random.Random) -> None:
    path.unlink()
    kind = rng.randrange(6)
    if kind == 0:
        path.mkdir()
    elif kind == 1:
        path.symlink_to(rng.choice(["/dev/zero", "/dev/null", path.name, "nowhere", "../plant.yaml"]))
    elif kind == 2:
        os.mkfifo(path)
    elif kind == 3:
        path.write_bytes(b"")
    elif kind == 4:
        path.write_bytes(rng.randbytes(5_000))


def _emptied(content: bytes, rng: random.Random) -> bytes:
    return rng.choice(
        [b"", b"\n", b"\x00" * len(content), b"\xef\xbb\xbf" + content, content.decode("latin-1").encode("utf-16")]
    )


def _word(content: bytes, rng: random.Random) -> bytes:
    words = (
        "",
        "0003",
        "../0001",
        "0001\n0002",
        "\x00",
        "\u202e0001",
        "9" * 400,
        "/etc/passwd",
        "0001",
        " 0001 ",
        "[/]",
        "\x1b[31m",
    )
    return rng.choice(words).encode()


def _lines(content: bytes, rng: random.Random) -> bytes:
    lines = content.splitlines(keepends=True) or [b""]
    place = rng.randrange(len(lines))
    kind = rng.randrange(4)
    if kind == 0:
        lines.insert(place, rng.choice(_LINES))
    elif kind == 1:
        del lines[place]
    elif kind == 2:
        lines.insert(rng.randrange(len(lines)), lines[place])
    else:
        lines[place] = damaged_bytes(lines[place], rng)
    return b"".join(lines)


def _json_lines(content: bytes, rng: random.Random) -> bytes:
    """Change a value of one JSON line, or of the one object."""
    lines = content.split(b"\n")
    place = rng.randrange(len(lines))
    try:
        value: Any = json.loads(lines[place])
    except (ValueError, RecursionError):  # damaged before
        return damaged_bytes(content, rng)
    try:
        lines[place] = json.dumps(damaged_content(value, rng)).encode()
    except (TypeError, ValueError, RecursionError):
        return damaged_bytes(content, rng)
    return b"\n".join(lines)


def _cells(content: bytes, rng: random.Random) -> bytes:
    lines = content.decode("utf-8", "replace").split("\n")
    place = rng.randrange(min(len(lines), rng.choice([1, 1_000])))
    mark = ":" if lines[place].count(":") > 2 else ","
    cells = lines[place].split(mark)
    column, cell = rng.randrange(len(cells)), rng.choice(_CELLS)
    kind = rng.randrange(5)
    if kind == 0:
        del cells[column]
    elif kind == 1:
        cells.insert(column, cell)
    elif kind == 2 and cells[0]:
        cells += [cell[:100]] * rng.choice([1, 5, 3_000])
    else:
        cells[column] = cell
    lines[place] = mark.join(cells)
    return "\n".join(lines).encode("utf-8", "surrogatepass")


def _regzipped(inner: Callable[[bytes, random.Random], bytes]) -> Callable[[bytes, random.Random], bytes]:
    def damage(content: bytes, rng: random.Random) -> bytes:
        try:
            plain = gzip.decompress(content)
        except (OSError, EOFError, ValueError, zlib.error):
            return damaged_bytes(content, rng)
        return gzip.compress(inner(plain, rng), 1, mtime=0)

    return damage


def _bomb(content: bytes, rng: random.Random) -> bytes:
    return gzip.compress(rng.choice([b"0", b"\n", b"[", b"a,"]) * rng.choice([10_000, 300_000, 3_000_000]), 1, mtime=0)


def _members(content: bytes, rng: random.Random) -> bytes:
    """Change, drop, add, rename or encrypt a member of a ZIP archive."""
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            members = {name: archive.read(name) for name in archive.namelist()}
    except Exception:  # noqa: BLE001 - damaged before
        return damaged_bytes(content, rng)
    if not members:
        return damaged_bytes(content, rng)
    name = rng.choice(list(members))
    kind = rng.randrange(8)
    if kind == 0:
        del members[name]
    elif kind == 1:
        members[rng.choice(["x.npy", "../x.npy", " ", "a" * 300, "len.npy", "\u202e"])] = members[name]
    elif kind == 2:
        members[name] = damaged_bytes(members[name], rng)
    elif kind == 3:
        members[name] = b""
    else:
        members[name] = odd_npy(members[name], rng)
    return _zipped(members, rng)


def _zipped(members: dict[str, bytes], rng: random.Random) -> bytes:
    result = io.BytesIO()
    how = rng.choice(
        [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_DEFLATED, zipfile.ZIP_LZMA, zipfile.ZIP_BZIP2]
    )
    with zipfile.ZipFile(result, "w", how) as archive:
        for name, value in members.items():
            archive.writestr(name, value)
    content = bytearray(result.getvalue())
    place = content.find(b"PK\x01\x02")
    if place >= 0 and rng.random() < 0.15:  # flags (1: encrypted) or the method of the first entry
        content[place + rng.choice([8, 10])] ^= rng.choice([1, 2, 8, 64])
    return bytes(content)
