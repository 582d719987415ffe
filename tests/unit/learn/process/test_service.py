"""The learner's laws: its store is a function of the committed records, however they are read, whatever is killed."""

from __future__ import annotations

import asyncio
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from datetime import timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel

from streamad.errors import StoreError
from streamad.judge.gate import make_window
from streamad.judge.verdicts import alert_id
from streamad.learn.parts import store_for
from streamad.learn.process import service
from streamad.learn.process.service import WINDOWS, PlantLearner, windows_of
from streamad.learn.store.inliers import InlierStore
from streamad.messages import SHARES, Feedback, ModelRef, Share, Window
from streamad.outputs.reader import Reader, Received
from streamad.ports import EndingSubscription, StoredMessage
from streamad.types import Position, from_us
from tests.support.learning.inlier_cases import START_US, judged_as
from tests.support.learning.store import NAME, QUIET, LearningPlant
from tests.support.runtime.pipeline import CHANNELS, L
from tests.support.waiting import LIMIT_S

Kept = dict[str, tuple[str, str, float | None]]


def plant_in(folder: Path, **learning: Any) -> LearningPlant:
    given_learning = {**QUIET, "process": "elsewhere", "first_training": 200, **learning}
    return LearningPlant(folder, learning=given_learning)


def record(number: int, share: Share | None = None, **changes: Any) -> Window:
    """The committed window of sequence ``number``; its share follows from the number unless it is given."""
    share = SHARES[number % 3] if share is None else share
    end_us = START_US + number * 1_000_000
    verdict, window = judged_as(number, len(CHANNELS), L, end_us=end_us, decision="normal", score=1.0, p_value=0.5)
    specs = LearningPlant(Path()).settings.channel_specs
    return msgspec.structs.replace(make_window(verdict, window, specs, share, NAME), **changes)


def stored(*windows: Window) -> list[StoredMessage]:
    return [StoredMessage(msgspec.json.encode(window), "windows, somewhere") for window in windows]


class Given:
    """A subscription to the messages ``given``, which ends with them."""

    options_model = BaseModel

    def __init__(self, given: Sequence[StoredMessage]) -> None:
        self._given = given

    async def messages(self) -> AsyncIterator[StoredMessage]:
        for message in self._given:
            yield message

    def done(self) -> None: ...

    async def close(self) -> None: ...


async def received(learner: PlantLearner, messages: Sequence[StoredMessage]) -> list[Received[Window]]:
    async with Reader(Given(messages), WINDOWS, on_unreadable=learner.skip) as reader:
        return [each async for each in reader]


def in_store(plant: LearningPlant, name: str = NAME) -> Kept:
    store = store_for(plant.plant, name)
    return {
        one.id: (share, one.sequence, float(one.window.values.sum())) for share in SHARES for one in store.read(share)
    }


async def learned(plant: LearningPlant, slices: Sequence[Sequence[StoredMessage]]) -> list[tuple[str, str]]:
    """Take the slices one after the other; return the events."""
    events: list[tuple[str, str]] = []
    learner = PlantLearner(plant.plant, lambda kind, text, **_: events.append((kind, text)))
    await learner.open()
    for each in slices:
        await learner.take(await received(learner, each))
    await learner.close()
    return events


@given(
    order=st.permutations(range(24)),
    cuts=st.sets(st.integers(1, 23), max_size=6),
    again=st.lists(st.integers(0, 23), max_size=12),
    kills=st.sets(st.integers(0, 6), max_size=3),
)
@settings(max_examples=15, deadline=None)
def test_however_the_reads_are_cut_the_store_is_the_same(
    order: list[int], cuts: set[int], again: list[int], kills: set[int]
) -> None:
    """Slices of any size, in any order across partitions, records that come again, kills between two slices."""
    windows = {number: record(number) for number in range(24)}
    with tempfile.TemporaryDirectory() as name:
        expected = plant_in(Path(name) / "all")
        asyncio.run(learned(expected, [stored(*windows.values())]))
        edges = [0, *sorted(cuts), 24]
        slices = [[windows[number] for number in order[a:b]] for a, b in pairwise(edges)]
        slices.append([windows[number] for number in again])
        plant = plant_in(Path(name) / "cut")
        lives: list[list[Sequence[StoredMessage]]] = [[]]
        for number, each in enumerate(slices):
            lives[-1].append(stored(*each))
            if number in kills:
                lives.append([stored(*each)])  # killed before the slice was released: it comes again
        for life in lives:
            asyncio.run(learned(plant, life))
        assert in_store(plant) == in_store(expected)


async def test_a_share_is_that_of_the_record_and_never_decided_again(tmp_path: Path) -> None:
    plant = plant_in(tmp_path)
    numbers = {"accepted": 1, "reserve": 2, "aside": 3}
    odd = {share: number + 1 for share, number in numbers.items()}  # shares that no gate would give
    await learned(plant, [stored(*(record(number, share) for share, number in odd.items()))])
    assert {sequence: share for share, sequence, _ in in_store(plant).values()} == {
        f"B-{number}": share for share, number in odd.items()
    }


async def test_each_model_has_what_was_judged_for_it(tmp_path: Path) -> None:
    plant = LearningPlant(
        tmp_path, learning={**QUIET, "process": "elsewhere"}, models={"field": "recipe", "missing": "unscorable"}
    )
    names = [f"{NAME}.A", f"{NAME}.B", "another"]
    events = await learned(plant, [stored(*(record(number, model_name=name) for number, name in enumerate(names)))])
    assert [(kind, "model another" in text) for kind, text in events] == [("window_skipped", True)]
    assert {name: len(in_store(plant, name)) for name in names[:2]} == {names[0]: 1, names[1]: 1}


async def test_what_is_no_window_of_the_plant_is_skipped_and_named_once(tmp_path: Path) -> None:
    plant = plant_in(tmp_path)
    other = record(1, channels=["x", "y", "z"])
    bad = [
        StoredMessage(b"{", "line 1"),
        StoredMessage(b"", "line 2", problem="a line longer than max_record_bytes"),
        *stored(other, other, record(3, verdict_id="no id")),
        *stored(msgspec.structs.replace(record(4), share=None), record(5, values="AAAA", part=1, parts=2), record(6)),
        *stored(record(7, end_time=from_us(START_US) + timedelta(days=400 * 365))),
    ]
    events = await learned(plant, [bad])
    assert [kind for kind, _ in events] == ["window_skipped"] * 7
    told = "\n".join(text for _, text in events)
    for why in (
        "Input data was truncated",
        "longer than max_record_bytes",
        "are not those of the config",
        "values do not fit",
        "no share",
    ):
        assert why in told
    assert {sequence for _, sequence, _ in in_store(plant).values()} == {"B-6"}


async def test_windows_that_are_skipped_are_counted_and_told_ever_more_rarely(tmp_path: Path) -> None:
    plant = plant_in(tmp_path)
    told: list[tuple[float, str]] = []
    learner = PlantLearner(plant.plant, lambda _, text, *, figures, **__: told.append((figures["skipped"], text)))
    await learner.open()
    for _ in range(4):
        await learner.take(await received(learner, stored(*(record(number, values="AAAA") for number in range(30)))))
    await learner.close()
    assert [n for n, _ in told] == [1, 10, 100]
    assert all("its values do not fit: window" in text for _, text in told)


async def test_a_slice_is_released_whole_and_only_once_it_is_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The store fails at first: the group's position stays, and the next start takes all, once."""
    plant = LearningPlant(
        tmp_path,
        learning={**QUIET, "process": "elsewhere", "first_training": 200},
        sinks={"windows": "file:windows.jsonl"},
        run={"checkpoint": None},
    )
    lines = b"".join(msgspec.json.encode(record(number)) + b"\n" for number in range(9))
    (tmp_path / "windows.jsonl").write_bytes(lines)

    async def followed() -> None:
        learner = PlantLearner(plant.plant, lambda *_, **__: None)
        try:
            await learner.open()
            learner.finish()
            await learner.run()
        finally:
            await learner.close()

    def full(_: InlierStore) -> None:
        raise StoreError("the disk is full")

    with monkeypatch.context() as broken:
        broken.setattr(InlierStore, "flush", full)
        with pytest.raises(StoreError, match="the disk is full"):
            await followed()
    assert in_store(plant) == {}
    await followed()
    assert {sequence for _, sequence, _ in in_store(plant).values()} == {f"B-{number}" for number in range(9)}
    subscription = windows_of(plant.plant)
    assert isinstance(subscription, EndingSubscription)
    subscription.end_with_present()
    assert [message.place async for message in subscription.messages()] == []
    await subscription.close()


async def test_a_mark_before_the_first_model_waits_and_one_without_a_model_reaches_all(tmp_path: Path) -> None:
    plant = plant_in(tmp_path)
    learner = PlantLearner(plant.plant, lambda *_, **__: None)
    mark = Feedback(
        alert_id=alert_id("s", "B-1", Position(1, 0), 0), judgement="false_alarm", created_at=from_us(START_US)
    )
    with pytest.raises(StoreError, match="there is no model yet that could store it"):
        await learner._told(mark, None)  # noqa: SLF001 - what the reader of feedback calls
    await learner.take(await received(learner, stored(record(1))))
    await learner._told(mark, "operator")  # noqa: SLF001
    await learner.close()
    (found,) = store_for(plant.plant).marks().values()
    assert (found.by, found.by_verified, found.judgement) == ("operator", True, "false_alarm")


async def test_drift_is_told_once_although_the_records_come_again(tmp_path: Path) -> None:
    learning = {**QUIET, "process": "elsewhere", "drift": {"min_sequences": 20}}
    plant = LearningPlant(tmp_path, learning=learning)
    version = ModelRef(NAME, plant.train())

    def judged(number: int, level: float) -> Window:
        end_us = START_US + number * 60_000_000
        fields = {"decision": "normal", "score": 1.0, "p_value": 0.5, "model": version}
        verdict, window = judged_as(number, len(CHANNELS), L, end_us=end_us, level=level, **fields)
        return make_window(verdict, window, plant.settings.channel_specs, "accepted", NAME)

    usual = [judged(number, 0.0) for number in range(150)]
    moved = [judged(number, 5.0) for number in range(150, 250)]
    events = await learned(plant, [stored(*usual), stored(*moved), stored(*usual), stored(*moved)])
    kinds = Counter(kind for kind, _ in events)
    assert kinds["drift"] >= 1
    once = await learned(plant_of_same(tmp_path / "b", plant), [stored(*usual), stored(*moved)])
    assert kinds == Counter(kind for kind, _ in once)


def plant_of_same(folder: Path, plant: LearningPlant) -> LearningPlant:
    other = LearningPlant(folder, learning=plant.settings.learning.model_dump() if plant.settings.learning else {})
    other.train()
    return other


class TakenAway:
    """A subscription that is this reader's until ``n`` messages were read; then another reader has it."""

    options_model = BaseModel

    def __init__(self, messages: Sequence[StoredMessage], n: int) -> None:
        self._messages, self._n = messages, n
        self.n_read = self.n_released = 0

    async def messages(self) -> AsyncIterator[StoredMessage]:
        for message in self._messages:
            self.n_read += 1
            yield message
            await asyncio.sleep(0.2)  # time in which it is taken, one at a time
        await asyncio.Event().wait()

    def done(self) -> None: ...

    def hold(self) -> None: ...

    def release(self, n: int) -> None:
        self.n_released += n

    async def taken(self) -> bool:
        return True

    async def is_ours(self) -> bool:
        return self.n_read <= self._n

    async def close(self) -> None: ...


async def test_what_was_read_before_another_learner_took_over_is_not_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant = plant_in(tmp_path)
    subscriptions = [TakenAway(stored(*map(record, range(3))), 2), TakenAway(stored(record(7)), 1)]
    waiting = iter(subscriptions)
    monkeypatch.setattr(service, "windows_of", lambda _: next(waiting))
    monkeypatch.setattr(service, "_RETRY_S", 0.0)
    events: list[str] = []
    learner = PlantLearner(plant.plant, lambda kind, *_, **__: events.append(kind))
    running = asyncio.create_task(learner.run())
    async with asyncio.timeout(LIMIT_S):
        while not subscriptions[1].n_released:  # noqa: ASYNC110 - the store tells nobody
            await asyncio.sleep(0.02)
    learner.request_stop()
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    await learner.close()
    assert {sequence for _, sequence, _ in in_store(plant).values()} == {"B-0", "B-1", "B-7"}
    assert [each.n_released for each in subscriptions] == [2, 1]
    assert events == [], "it is no failure"
