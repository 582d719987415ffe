"""The law of the progress topic: what is read back is the merge of what was written, compacted or not."""

from __future__ import annotations

import random
from collections.abc import Iterable

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamad.errors import CheckpointError
from streamad.judge.explainer import debt_of
from streamad.messages import ModelRef
from streamad.partition_progress import LooksTaken, Progress, ProgressUpdate, StreamProgress, merge
from streamad.types import Window
from streamad_connectors.kafka.writing.progress_topic import BUCKET_ENTRIES, Item, ProgressLog, needed_models
from tests.support.runtime.debts import alert_of

PARTITION = "press:line-a-3"
NAMES = ["a", "a:0", "c:a:256", "", "p", "ü:ß/\x00"]


WINDOW = Window(np.ones((1, 2), np.float32), 2)
DEBTS = [debt_of(alert_of(number), np.ones(2, np.float32), WINDOW) for number in range(6)]
clocks = st.integers(-(2**40), 2**60)
ids = st.sampled_from([f"id{number}" for number in range(12)])
models = st.builds(ModelRef, name=st.just("test"), version=st.sampled_from(["0001", "0002", "0003"]))
streams = st.builds(
    StreamProgress,
    done_below=st.integers(0, 2**62),
    max_time_us=st.none() | clocks,
    floor_us=st.none() | clocks,
    last_record_us=st.none() | clocks,
    closed=st.dictionaries(ids, st.integers(0, 3), max_size=12),
    closed_through_us=st.none() | clocks,
    partial=st.booleans(),
    starts=st.dictionaries(ids, st.tuples(st.integers(0, 1), st.integers(0, 1)), max_size=12),
    second_0_us=st.none() | clocks,
    looks=st.dictionaries(ids, st.builds(LooksTaken, model=models, n=st.integers(0, 9), largest=st.floats(-9, 9))),
)
updates = st.builds(
    ProgressUpdate,
    partition=st.just(PARTITION),
    next_offset=st.integers(0, 2**62),
    low_watermark=st.integers(0, 2**62),
    clock_us=st.none() | clocks,
    low_watermark_us=st.none() | clocks,
    partial_until_us=st.none() | clocks,
    streams=st.dictionaries(st.sampled_from(NAMES), st.none() | streams, max_size=4),
    ended=st.booleans(),
    cursor=st.none() | st.text(),
    untold=st.lists(st.tuples(st.sampled_from(NAMES), ids, st.integers(0, 2**62)), max_size=3).map(tuple),
    debts=st.dictionaries(st.sampled_from(range(6)), st.booleans(), max_size=4).map(
        lambda drawn: {f"{number:032x}": DEBTS[number] if owed else None for number, owed in drawn.items()}
    ),
)


def compacted(items: Iterable[Item], *, with_tombstones: bool) -> list[Item]:
    """Return what compaction may leave: the last record of each key, where it lay; tombstones go at last."""
    last: dict[bytes, bytes | None] = {}
    for key, value in items:
        last.pop(key, None)
        last[key] = value
    return [Item(key, value) for key, value in last.items() if with_tombstones or value is not None]


def ordered(progress: Progress | None) -> object:
    """Return all that ``progress`` says, with the order of the closed ids."""
    if progress is None:
        return None
    return progress, {name: list(stream.closed.items()) for name, stream in progress.streams.items()}


def read(items: Iterable[Item]) -> tuple[ProgressLog, Progress | None]:
    log, saved = ProgressLog.read(PARTITION, items)
    assert saved is None or saved.n_partitions == 6
    return log, None if saved is None else saved.progress


@given(st.lists(st.tuples(updates, st.booleans(), st.sampled_from(["keep", "compact", "drop"])), max_size=8))
def test_what_is_read_back_is_the_merge_of_the_updates(steps: list[tuple[ProgressUpdate, bool, str]]) -> None:
    log, expected, topic = ProgressLog(PARTITION), None, []
    for update, restarts, cleaning in steps:
        topic += log.write(update, 6)
        if cleaning != "keep":
            topic = compacted(topic, with_tombstones=cleaning == "compact")
        expected = merge(expected, update)
        found, progress = read(topic)
        assert ordered(progress) == ordered(expected)
        assert needed_models(compacted(topic, with_tombstones=True)) == expected.needed_models
        if restarts:
            log = found


def life(seed: int, n_commits: int) -> Iterable[ProgressUpdate]:
    """Updates as an assembler makes them: ids close in order, the oldest are forgotten, some recur, streams end."""
    rng = random.Random(seed)
    closed: dict[str, dict[str, int]] = {name: {} for name in NAMES}
    starts: dict[str, dict[str, tuple[int, int]]] = {name: {} for name in NAMES}
    for commit in range(n_commits):
        changed: dict[str, StreamProgress | None] = {}
        for name in rng.sample(NAMES, rng.randrange(3)):
            own, begun = closed[name], starts[name]
            for _ in range(rng.choice([0, 1, 1, 3, 400])):
                key = f"{rng.randrange(2000):x}"
                own.pop(key, None)
                own[key] = commit
                begun[key] = (commit, rng.randrange(9))
            while own and own[next(iter(own))] < commit - 15:
                del own[next(iter(own))]
            starts[name] = begun = {key: start for key, start in begun.items() if key in own}
            if rng.random() < 0.1:
                own.clear()
                begun.clear()
                changed[name] = None
            else:
                changed[name] = StreamProgress(done_below=commit, closed=dict(own), starts=dict(begun))
        yield ProgressUpdate(
            partition=PARTITION, next_offset=commit, low_watermark=commit, clock_us=commit, streams=changed
        )


@pytest.mark.parametrize("seed", range(8))
def test_a_long_life_with_restarts_and_compaction_is_read_back(seed: int) -> None:
    rng = random.Random(seed)
    log, expected = ProgressLog(PARTITION), None
    topic: list[Item] = []
    for update in life(seed, 120):
        topic += log.write(update, 6)
        expected = merge(expected, update)
        if rng.random() < 0.2:
            topic = compacted(topic, with_tombstones=rng.random() < 0.5)
        if rng.random() < 0.2:
            log, progress = read(topic)
            assert ordered(progress) == ordered(expected)
    assert ordered(read(topic)[1]) == ordered(expected)


def update_of(stream: StreamProgress | None) -> ProgressUpdate:
    return ProgressUpdate(partition=PARTITION, next_offset=1, low_watermark=1, streams={"s": stream})


def remembering(first: int, last: int) -> StreamProgress:
    span = range(first, last)
    return StreamProgress(
        done_below=1,
        closed={f"{number:018x}": 1_767_225_600_000_000 + number for number in span},
        starts={f"{number:018x}": (1_767_225_600_000_000 + number, 1_767_225_600_000_000) for number in span},
    )


def test_a_commit_of_a_stream_with_many_ids_writes_little_and_no_record_is_large() -> None:
    log = ProgressLog(PARTITION)
    first = log.write(update_of(remembering(0, 100_000)), 6)
    assert max(len(item.value or b"") for item in first) < 20_000
    for number in range(1, 9):
        items = log.write(update_of(remembering(number, 100_000 + number)), 6)
        assert sum(len(item.key) + len(item.value or b"") for item in items) < 25_000
        assert len(items) <= 2 + 2 * 3


def test_what_recurs_leaves_no_permanent_garbage() -> None:
    log = ProgressLog(PARTITION)
    topic: list[Item] = []
    for number in range(2_000):
        closed = {"oldest": 0, f"{number % 2}": number, f"{(number + 1) % 2}": number}
        topic += log.write(update_of(StreamProgress(done_below=number, closed=closed)), 6)
    left = compacted(topic, with_tombstones=False)
    assert len(left) <= 2 + 3
    assert ordered(read(left)[1]) == ordered(merge(None, update_of(StreamProgress(done_below=1_999, closed=closed))))


def test_forgotten_ids_and_streams_leave_nothing_behind() -> None:
    log = ProgressLog(PARTITION)
    topic = log.write(update_of(remembering(0, 3 * BUCKET_ENTRIES)), 6)
    topic += log.write(update_of(remembering(3 * BUCKET_ENTRIES - 1, 3 * BUCKET_ENTRIES)), 6)
    keys = {item.key for item in compacted(topic, with_tombstones=False)}
    assert keys == {b"p", b"s:s", b"c:s:512", b"t:s:512"}
    log, _ = read(topic)
    topic += log.write(update_of(None), 6)
    assert {item.key for item in compacted(topic, with_tombstones=False)} == {b"p"}


def test_nothing_written_is_no_progress() -> None:
    assert read([])[1] is None
    assert read([Item(b"p", None), Item(b"s:a", None)])[1] is None


def test_fields_that_a_later_version_adds_are_passed_over() -> None:
    (item,) = ProgressLog(PARTITION).write(update_of(None), 6)
    content = msgspec.msgpack.decode(item.value or b"")
    content["progress"]["later"] = 1
    assert read([Item(b"p", msgspec.msgpack.encode(content))])[1] == merge(None, update_of(None))


def with_head(**changes: object) -> list[Item]:
    *items, head = ProgressLog(PARTITION).write(update_of(remembering(0, 2 * BUCKET_ENTRIES)), 6)
    content = msgspec.msgpack.decode(head.value or b"")
    return [*items, Item(b"p", msgspec.msgpack.encode({**content, **changes}))]


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (lambda items: [*items, Item(b"p", b"\xc1")], "cannot be decoded"),
        (lambda items: [*items, Item(b"p", b"{}")], "cannot be decoded"),
        (lambda items: [*items, Item(b"p", b"\x81\xa5other" + b"\x91" * 100_000)], "cannot be decoded"),
        (lambda items: [*items, Item(b"p", b"\x81\xa1\xff\x01")], "cannot be decoded"),
        (lambda items: [*items, Item(b"", b"x")], "unknown key b''"),
        (lambda items: [*items, Item(b"other", b"x")], "unknown key"),
        (lambda items: [*items, Item(b"x:s:1", b"x")], "cannot be decoded"),
        (lambda items: [*items, Item(b"c:s:one", b"x")], "unknown key"),
        (lambda items: [*items, Item(b"c:other:0", b"\x90")], "unknown stream 'other'"),
        (lambda items: [*items, Item(b"s:\xff", b"\x90")], "cannot be decoded"),
        (lambda items: [item for item in items if item.key != b"p"], "record is missing"),
        (lambda items: [item for item in items if item.key != b"c:s:0"], "from 0 on are missing"),
        (lambda items: with_head(progress={"partition": "x-0", "next_offset": 0, "low_watermark": 0}), "that of x-0"),
    ],
)
def test_damaged_or_foreign_progress_is_refused_in_one_line(damage: object, says: str) -> None:
    items = damage(with_head())  # type: ignore[operator]
    with pytest.raises(CheckpointError, match=says) as refusal:
        ProgressLog.read(PARTITION, items)
    assert "start over" in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_what_a_newer_version_wrote_is_refused() -> None:
    with pytest.raises(CheckpointError, match=r"format 2, here 1.*go on with that version"):
        ProgressLog.read(PARTITION, with_head(schema_version=2, n_partitions="unheard of"))


def test_items_of_a_kind_that_a_later_streamad_writes_are_skipped() -> None:
    items = ProgressLog(PARTITION).write(update_of(remembering(0, 3)), 6)
    assert read([*items, Item(b"y:anything", b"x")])[1] == read(items)[1]
