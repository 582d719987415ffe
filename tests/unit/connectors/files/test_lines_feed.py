"""The feed of lines: on the disk after a flush, whole after a crash, and in a new file after a rotation."""

from __future__ import annotations

from pathlib import Path

import pytest

from streamad.errors import OutputError
from streamad.plugins import ConnectorContext
from streamad.testing import ManualClock
from streamad.types import FeedRecord
from streamad_connectors.files.lines_feed import LinesFeed, LinesFeedOptions


def feed_of(path: Path) -> LinesFeed:
    return LinesFeed(str(path), LinesFeedOptions(), ConnectorContext((), ManualClock()))


def records(*values: bytes) -> list[FeedRecord]:
    return [FeedRecord(value, b"key") for value in values]


async def test_lines_are_there_after_a_flush_and_a_cut_one_gets_its_end(tmp_path: Path) -> None:
    path = tmp_path / "new" / "lines.jsonl"
    feed = feed_of(path)
    await feed.send(records(b'{"a":1}', b'{"a":2}'))
    assert not path.exists()
    await feed.flush()
    await feed.flush()
    assert path.read_bytes() == b'{"a":1}\n{"a":2}\n'
    path.write_bytes(path.read_bytes() + b'{"a":3')
    again = feed_of(path)
    await again.send(records(b'{"a":3}'))
    await again.flush()
    assert path.read_bytes() == b'{"a":1}\n{"a":2}\n{"a":3\n{"a":3}\n'
    path.rename(tmp_path / "rotated.jsonl")
    await again.send(records(b'{"a":4}'))
    await again.flush()
    await again.close()
    assert path.read_bytes() == b'{"a":4}\n'


async def test_what_cannot_be_a_line_or_written_is_an_error(tmp_path: Path) -> None:
    feed = feed_of(tmp_path / "lines.jsonl")
    with pytest.raises(OutputError, match="several lines"):
        await feed.send(records(b"a\nb"))
    feed = feed_of(tmp_path)
    await feed.send(records(b"1"))
    with pytest.raises(OutputError, match="cannot write"):
        await feed.flush()
