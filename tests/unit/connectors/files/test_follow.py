"""A file that is followed gives the records of the finished one, however it was written, rotated and read."""

from __future__ import annotations

import csv
import io
import json
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from streamad.types import FILE_OFFSETS, Record
from tests.support.files import read_one
from tests.support.follow import Tail, append, rotate


def json_lines(first: int, after: int) -> bytes:
    return b"".join(
        json.dumps({"n": n, "text": "µ" * (n % 5)}).encode() + b"\n\r\n"[: 1 + n % 3] for n in range(first, after)
    )


def csv_rows(first: int, after: int) -> bytes:
    text = io.StringIO()
    writer = csv.writer(text)
    for n in range(first, after):
        writer.writerow([f"B-{n}", n / 7, f'two\nlines, "{n}" µ' if n % 3 else "x"])
        if n % 4 == 0:
            text.write("broken\n")
    return text.getvalue().encode()


FORMATS = {"app.jsonl": (b"", json_lines), "app.csv": (b"id,temp,note\r\n", csv_rows)}
OPTIONS: dict[str, Any] = {"channels": ("temp",)}


# --- the law ---------------------------------------------------------------------------------------------------------

STEPS = st.one_of(
    st.integers(1, 400),  # so many bytes are appended
    st.sampled_from(["look", "look", "rotate", "copytruncate", "stop", "stop and lose"]),
)


@given(name=st.sampled_from(sorted(FORMATS)), steps=st.lists(STEPS, max_size=25), data=st.data())
@settings(max_examples=150, deadline=None)
async def test_followed_equals_finished(name: str, steps: list[int | str], data: st.DataObject) -> None:
    """Written in any pieces, rotated and read again at any moment: the records of its generations, each once."""
    header, rows = FORMATS[name]
    with tempfile.TemporaryDirectory() as folder:
        writer = Writer(Path(folder) / name, header, rows(0, 60))
        reader = Reader(name, Path(folder), data)
        writer.write(5)
        await reader.look()
        for step in steps:
            if isinstance(step, int):
                writer.write(step)
            elif step == "look":
                await reader.look()
            elif step in ("rotate", "copytruncate"):
                if step == "copytruncate" and reader.is_running:
                    await reader.look()  # what comes between a look and the cut is in the copy, too
                writer.rotate(copies=step == "copytruncate")
            else:
                await reader.stop(loses=step == "stop and lose")
        writer.write(10**6)
        await reader.look()
        await reader.stop(loses=False)
        assert reader.records == await writer.expected()


class Writer:
    """Writes a log in pieces; every generation begins with the header."""

    def __init__(self, path: Path, header: bytes, rows: bytes) -> None:
        self._path, self._header, self._rows = path, header, rows
        self._left = header + rows
        self._generations = [b""]
        path.touch()

    def write(self, n_bytes: int) -> None:
        piece, self._left = self._left[:n_bytes], self._left[n_bytes:]
        append(self._path, piece)
        self._generations[-1] += piece

    def rotate(self, *, copies: bool) -> None:
        if not self._generations[-1]:
            return
        rotate(self._path, copies=copies)
        if self._left:  # loggers rotate between two records: what was cut off begins as a record of its own
            self._left = self._header + self._left
        self._generations.append(b"")

    async def expected(self) -> list[tuple[int, bytes]]:
        """Offset in its generation and value of each record, as a finite source reads them."""
        found: list[tuple[int, bytes]] = []
        for number, content in enumerate(self._generations):
            is_growing = number == len(self._generations) - 1
            path = self._path.with_name(f"finished-{number}{self._path.suffix}")
            path.write_bytes(content[: content.rfind(b"\n") + 1] if is_growing else content)
            found += [(record.offset, record.value) for record in await read_one(path, path.parent, **OPTIONS)]
        return found


class Reader:
    """Follows a log; a stop keeps what was committed, at any batch so far if it ``loses``."""

    def __init__(self, name: str, folder: Path, data: st.DataObject) -> None:
        self._name, self._folder, self._data = name, folder, data
        self._tail: Tail | None = None
        self._committed: list[Record] = []
        self._after: tuple[int, str] | None = None

    @property
    def is_running(self) -> bool:
        return self._tail is not None

    async def look(self) -> None:
        if self._tail is None:
            self._tail = Tail(self._name, self._folder, **OPTIONS)
            if self._after is None:
                await self._tail.begin()
            else:
                await self._tail.begin(self._low_watermark(), self._after[1])
        await self._tail.catch_up()

    def _low_watermark(self) -> int:
        """Any offset to read again from: that of one of the last records, or the end of all."""
        assert self._after is not None
        offsets = [record.offset for record in self._committed[-12:]]
        return self._data.draw(st.sampled_from([*offsets, self._after[0]]))

    async def stop(self, *, loses: bool) -> None:
        if self._tail is None:
            return
        tail, self._tail = self._tail, None
        await tail.__aexit__(None, None, None)
        commits = [(batch.next_offset, batch.cursor) for batch in tail.batches if batch.cursor is not None]
        commits = [(at, cursor) for at, cursor in commits if self._after is None or at >= self._after[0]]
        if commits:
            number = self._data.draw(st.integers(0, len(commits) - 1)) if loses else len(commits) - 1
            at, cursor = commits[number]
            assert cursor is not None
            before = 0 if self._after is None else self._after[0]
            again = [record for record in tail.records if record.offset < before]
            assert again == self._committed[len(self._committed) - len(again) :], "read again, the same records come"
            self._committed += [record for record in tail.records if before <= record.offset < at]
            self._after = (at, cursor)

    @property
    def records(self) -> list[tuple[int, bytes]]:
        return [(record.offset % FILE_OFFSETS, record.value) for record in self._committed]
