"""Windows in parts: what is put together is what was cut, however reads are cut; missing parts are told."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime

import msgspec
import numpy as np
import pytest
from aiokafka import ConsumerRecord, TopicPartition
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import UNSET

from streamad.messages import OutputRecord, Window, packed_values
from streamad_connectors.kafka.reading import window_parts
from streamad_connectors.kafka.reading.positions import Positions, Span
from streamad_connectors.kafka.reading.window_parts import WindowParts
from streamad_connectors.kafka.writing.messages import OutMessage, encode

NOW = datetime(2026, 3, 1, 8, 0, tzinfo=UTC)
PLACE = TopicPartition("windows", 0)
LIMIT = 1_000
IS_WINDOW = [("streamad-message", b"window")]


def window(number: int, n_points: int) -> Window:
    values = np.random.default_rng(number).normal(size=(2, n_points)).astype(np.float32)
    return Window(
        verdict_id=f"id{number}",
        stream="s",
        sequence=f"B-{number}",
        start_time=NOW,
        end_time=NOW,
        n_samples=n_points,
        model=None,
        channels=["a", "b"],
        units=["", "°C"],
        length=n_points,
        values=packed_values(values),
        alerted=False,
        score=0.1 + number,
        created_at=NOW,
        course="abcd" * (5 * number * n_points % 700) or UNSET,
    )


def parts_of(message: Window) -> list[OutMessage]:
    return encode(OutputRecord("windows", message.stream, message), PLACE.topic, LIMIT)


def record(offset: int, message: OutMessage, *, partition: int = 0) -> ConsumerRecord[bytes | None, bytes | None]:
    value = message.value or b""
    return ConsumerRecord(
        PLACE.topic, partition, offset, 0, 0, message.key, value, 0, 0, len(value), tuple(message.headers)
    )


Log = list[ConsumerRecord[bytes | None, bytes | None]]


@st.composite
def logs(draw: st.DrawFn) -> tuple[list[Window], Log]:
    """Windows of several producers, each of which writes one after the other, and their records in one partition."""
    sizes = draw(st.lists(st.lists(st.integers(1, 400), min_size=1, max_size=4), min_size=1, max_size=3))
    number = iter(range(100))
    producers = [[window(next(number), size) for size in each] for each in sizes]
    waiting = [[part for message in each for part in parts_of(message)] for each in producers]
    log: Log = []
    while waiting := [each for each in waiting if each]:
        turn = draw(st.sampled_from(waiting))
        log.append(record(len(log) * 2, turn.pop(0)))  # between them lie markers
    return [message for each in producers for message in each], log


class Reader:
    """A reader of a group, from where the group stands: what it takes, what it has done, and where it would commit."""

    def __init__(self, begin: int) -> None:
        self.positions, self.parts, self.begin = Positions(), WindowParts(), begin
        self.parts.begin_anew(PLACE, is_earliest=begin == 0)

    def read(self, log: Log) -> Iterator[bytes | None]:
        for each in log:
            taken = self.parts.take(each) if each.offset >= self.begin else None
            if taken is not None and self.positions.add(Span(PLACE, taken.first, each.offset)):
                yield taken.value

    def commit(self) -> None:
        for _, reached in self.positions.to_commit({PLACE}).items():
            at = self.parts.begin(PLACE, reached)
            assert at >= self.begin, "the group never goes back"
            self.begin = at


@given(logs(), st.lists(st.tuples(st.integers(0, 60), st.integers(0, 60)), max_size=6))
@settings(deadline=None)
def test_what_is_put_together_is_what_was_cut_however_reads_are_cut(
    written: tuple[list[Window], Log], lives: list[tuple[int, int]]
) -> None:
    """Each life reads some records, does some of the messages, commits, and is killed; the last one reads the rest."""
    windows, log = written
    expected = [msgspec.json.encode(each) for each in windows]
    begin, done = 0, set[bytes]()
    for n_records, most_done in lives:
        reader = Reader(begin)
        found = list(reader.read([each for each in log if each.offset >= begin][:n_records]))
        assert set(found) <= set(expected)
        n_done = min(most_done, len(found))
        reader.positions.done(n_done)
        done |= {value for value in found[:n_done] if value is not None}
        reader.commit()
        begin = reader.begin
    rest = Reader(begin)
    left = list(rest.read(log))
    assert len(set(left)) == len(left)
    assert done | set(left) == set(expected), "no window is lost or altered"
    rest.positions.done(len(left))
    rest.commit()
    assert rest.begin in (begin, log[-1].offset + 1)


@given(logs(), st.data())
@settings(deadline=None)
def test_a_window_whose_beginning_was_deleted_is_told_once(
    written: tuple[list[Window], Log], data: st.DataObject
) -> None:
    windows, log = written
    n_deleted = data.draw(st.integers(0, len(log)))
    left = [msgspec.json.decode(each.value or b"", type=Window) for each in log[n_deleted:]]
    whole = [part.verdict_id for part in left if part.part == 1]
    found = list(Reader(0).read(log[n_deleted:]))
    values = [value for value in found if value is not None]
    assert sorted(values) == sorted(msgspec.json.encode(each) for each in windows if each.verdict_id in whole)
    assert found.count(None) == len({part.verdict_id for part in left} - set(whole))


def taken(parts: WindowParts, records: Sequence[ConsumerRecord[bytes | None, bytes | None]]) -> list[bytes | None]:
    return [found.value for each in records if (found := parts.take(each)) is not None]


def test_a_window_that_is_written_again_from_its_beginning_comes_once() -> None:
    """Without transactions a writer may be killed amid a window; the next one judges it again."""
    cut = parts_of(window(1, 400))
    assert len(cut) > 3
    written = [record(offset, part) for offset, part in enumerate([*cut[:2], *cut])]
    assert taken(WindowParts(), written) == [msgspec.json.encode(window(1, 400))]


def test_parts_of_one_partition_do_not_complete_those_of_another() -> None:
    cut = parts_of(window(1, 200))
    written = [record(offset, part, partition=offset % 2) for offset, part in enumerate(cut)]
    assert set(taken(WindowParts(), written)) <= {None}


def test_open_windows_take_bounded_memory_and_the_one_that_waits_longest_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(window_parts, "_MOST_BYTES", 6_000)
    first, second = parts_of(window(1, 800)), parts_of(window(2, 300))
    order = [*first[:3], *second[:-1], *first[3:], second[-1]]
    found = taken(WindowParts(), [record(offset, part) for offset, part in enumerate(order)])
    assert found == [None, msgspec.json.encode(window(2, 300))]


def test_windows_that_nobody_finishes_take_bounded_memory_and_time_and_are_told() -> None:
    """Whoever may write the topic begins a window with each message: of long ids, without values, in 10^9 parts."""
    parts, begun = WindowParts(), window(1, 1)
    n_lost = 0
    for number in range(200):
        verdict_id = f"{number:0{1 << 20}d}"
        message = msgspec.structs.replace(begun, verdict_id=verdict_id, values="", part=1, parts=10**9)
        found = parts.take(record(number, OutMessage("windows", b"s", msgspec.json.encode(message), IS_WINDOW)))
        n_lost += found is not None and found.value is None
    assert n_lost == 73, "127 ids of 1 MiB and what they take besides are within 128 MiB"
    assert 127 << 20 < parts.n_bytes <= 128 << 20
    parts.begin_anew(PLACE)
    assert parts.n_bytes == 0


def test_one_large_part_drops_as_many_small_windows_as_it_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(window_parts, "_MOST_BYTES", 20_000)
    parts = WindowParts()
    small = [parts_of(window(number, 200))[0] for number in range(10)]
    large = msgspec.structs.replace(window(99, 1), values="A" * 12_000, parts=2)
    records = [*small, OutMessage("windows", b"s", msgspec.json.encode(large), IS_WINDOW)]
    taken(parts, [record(offset, each) for offset, each in enumerate(records)])
    assert 12_000 < parts.n_bytes <= 20_000


def test_a_part_that_comes_twice_changes_nothing() -> None:
    cut = parts_of(window(1, 400))
    written = [cut[0], cut[1], cut[1], *cut[2:], cut[2]]
    assert taken(WindowParts(), [record(offset, each) for offset, each in enumerate(written)]) == [
        msgspec.json.encode(window(1, 400))
    ]


def test_a_window_with_a_part_missing_is_told() -> None:
    cut = parts_of(window(1, 400))
    assert len(cut) > 3
    written = [record(offset, each) for offset, each in enumerate([cut[0], *cut[2:]])]
    assert taken(WindowParts(), written) == [None]


@pytest.mark.parametrize("number", [0, -5])
def test_what_is_no_part_is_passed_on_and_drops_no_window(number: int) -> None:
    cut = parts_of(window(1, 400))
    other = msgspec.json.encode(msgspec.structs.replace(window(1, 1), part=number, parts=3))
    written = [cut[0], OutMessage("windows", b"s", other, IS_WINDOW), *cut[1:]]
    found = taken(WindowParts(), [record(offset, each) for offset, each in enumerate(written)])
    assert found == [other, msgspec.json.encode(window(1, 400))]


def test_a_window_that_is_never_finished_holds_its_group_back_for_100_000_messages_at_most() -> None:
    begun = parts_of(window(1, 400))[0]
    parts = WindowParts()
    parts.take(record(7, begun))
    assert parts.begin(PLACE, 50_000) == 7
    assert parts.begin(TopicPartition(PLACE.topic, 1), 50_000) == 50_000
    assert parts.begin(PLACE, 100_007) == 7
    assert parts.begin(PLACE, 100_008) == 100_008
    parts.take(record(100_009, begun))
    parts.begin_anew(PLACE)
    assert parts.begin(PLACE, 100_020) == 100_020


@pytest.mark.parametrize("value", [b"{", b"[]", b'{"part":2,"parts":"x"}', b'{"type":"window","part":1,"parts":2}'])
def test_what_is_no_window_is_passed_on_as_it_is(value: bytes) -> None:
    message = OutMessage("windows", b"s", value, IS_WINDOW)
    assert taken(WindowParts(), [record(3, message)]) == [value]
