"""What runs, as the page sees it: silence by this machine's clock, and readings only of what is open."""

from __future__ import annotations

import asyncio
import os
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
from pydantic import BaseModel

from streamad.messages import Event, Message, ModelRef, OpenSequence, Running, WorkerStatus
from streamad.messages.accepting import accepted
from streamad.ports import StoredMessage
from streamad.settings.plant_yaml import WindowSettings
from streamad.testing import ManualClock
from streamad.types import from_us, to_us
from streamad.web.http.changes import Changes
from streamad.web.pages.running import clock_of, model_of
from streamad.web.reading import Reading
from streamad.web.workers import Workers
from tests.support.waiting import LIMIT_S
from tests.support.web.messages import MODEL, T, messages_of, verdict
from tests.support.web.page import PageUnderTest, plant_in
from tests.support.web.status import curve_of, opened, status_of
from tests.unit.web.test_reading import opened as opened_view


def clock_and_workers() -> tuple[ManualClock, Workers]:
    clock = ManualClock(to_us(T))
    return clock, Workers(clock)


def state(workers: Workers) -> list[tuple[str, bool]]:
    return [(each.status.instance, each.is_live) for each in workers.seen()]


# --- silence ---


@pytest.mark.parametrize("skew_s", [-90_000.0, -40.0, 0.0, 40.0, 90_000.0])
def test_a_worker_that_writes_is_never_silent_and_one_that_is_gone_soon_is(skew_s: float) -> None:
    clock, workers = clock_and_workers()
    for _ in range(6):
        workers.take(status_of(created_at=from_us(clock.now_us()) + timedelta(seconds=skew_s)))
        clock.advance(10.0)
    assert state(workers) == [("line-1", True)]
    clock.advance(21.0)
    assert state(workers) == [("line-1", True)]
    clock.advance(2.0)
    assert state(workers) == [("line-1", False)]


def test_old_states_that_are_read_at_once_make_no_worker_live() -> None:
    clock, workers = clock_and_workers()
    for minutes in (120, 119, 118):
        workers.take(status_of(created_at=T - timedelta(minutes=minutes)))
        clock.advance(0.001)
    assert state(workers) == [("line-1", False)]
    assert workers.seen()[0].silent_s == pytest.approx(118 * 60, abs=1)


def test_a_worker_whose_clock_was_set_back_goes_on() -> None:
    clock, workers = clock_and_workers()
    for seconds in (0, -3_600, -3_590):
        workers.take(status_of(created_at=T + timedelta(seconds=seconds)))
        clock.advance(10.0)
    assert state(workers) == [("line-1", True)]


@pytest.mark.parametrize(("interval_s", "limit_s"), [(-1.0, 5), (0.0, 5), (1e300, 10_802), (10.0, 32)])
def test_intervals_that_are_none_are_bounded(interval_s: float, limit_s: int) -> None:
    clock, workers = clock_and_workers()
    workers.take(status_of(interval_s=interval_s))
    clock.advance(limit_s - 0.1)
    assert state(workers) == [("line-1", True)]
    clock.advance(0.2)
    assert state(workers) == [("line-1", False)]


def test_a_clock_that_is_far_behind_makes_no_worker_forgotten_beside_another() -> None:
    clock, workers = clock_and_workers()
    for _ in range(4):
        workers.take(status_of("right", created_at=from_us(clock.now_us())))
        workers.take(status_of("behind", created_at=from_us(clock.now_us()) - timedelta(hours=30)))
        for _ in range(10):
            workers.look()
            clock.advance(1.0)
    assert state(workers) == [("behind", True), ("right", True)]


@pytest.mark.parametrize(
    ("new", "started_s", "found"),
    [
        ("hall-7002", 60, ["hall-7002"]),  # started in its place
        ("hall-7002", -60, ["hall-7001", "hall-7002"]),  # ran beside it
        ("roof-7002", 60, ["hall-7001", "roof-7002"]),
    ],
)
def test_a_worker_that_was_started_again_has_no_ghost(new: str, started_s: int, found: list[str]) -> None:
    clock, workers = clock_and_workers()
    workers.take(status_of("hall-7001"))
    clock.advance(100.0)
    workers.take(status_of(new, started_at=T + timedelta(seconds=started_s), created_at=from_us(clock.now_us())))
    assert [name for name, _ in state(workers)] == found


def test_named_workers_of_one_machine_do_not_stand_for_each_other() -> None:
    clock, workers = clock_and_workers()
    workers.take(status_of("plant-hall-1"))
    clock.advance(100.0)
    workers.take(status_of("plant-hall-2", started_at=T + timedelta(seconds=60), created_at=from_us(clock.now_us())))
    assert state(workers) == [("plant-hall-1", False), ("plant-hall-2", True)]


def test_falling_silent_is_noticed_once() -> None:
    clock, workers = clock_and_workers()
    workers.take(status_of())
    assert workers.look()
    number = workers.number
    assert not workers.look()
    clock.advance(33.0)
    assert workers.look()
    assert workers.number == number + 1
    assert not workers.look()


@pytest.mark.parametrize(("age_s", "step_s"), [(40, 10), (1_000, 60), (8_000, 3_600), (200_000, 86_400)])
def test_the_age_of_a_silent_worker_is_shown_anew_step_by_step(age_s: int, step_s: int) -> None:
    clock, workers = clock_and_workers()
    workers.take(status_of())
    clock.advance(age_s - age_s % step_s)
    assert workers.look()
    clock.advance(step_s - 1)
    assert not workers.look()
    clock.advance(1)
    assert workers.look()


async def test_an_open_page_hears_of_a_growing_silence_without_any_status(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("streamad.web.reading._LOOK_S", 0.001)
    page, (clock, workers) = page_with(tmp_path), clock_and_workers()
    changes = Changes(page.view, 9, workers)
    workers.take(status_of())
    reading = asyncio.create_task(Reading(page.plant, page.view, changes.wake, workers).run())
    told = changes.stream(page.view.mark)
    numbers = []
    async with asyncio.timeout(LIMIT_S):
        assert (await anext(told)).startswith("retry")
        for age_s in (40.0, 50.0, 60.0):
            clock.advance(age_s - (clock.now_us() - to_us(T)) / 1e6)
            while not (event := await anext(told)).startswith("event: status") or not workers.seen()[0].is_silent:
                pass
            numbers.append(event)
    assert len(set(numbers)) == 3
    await told.aclose()  # type: ignore[attr-defined]
    reading.cancel()
    await asyncio.gather(reading, return_exceptions=True)


def test_what_is_over_is_forgotten_while_another_worker_runs_and_kept_if_none_does() -> None:
    clock, workers = clock_and_workers()
    workers.take(status_of("gone"))
    workers.take(status_of("ended", stopped=True))
    clock.advance(86_500.0)
    workers.look()
    assert {name for name, _ in state(workers)} == {"gone", "ended"}
    workers.take(status_of("new", created_at=from_us(clock.now_us())))
    workers.look()
    assert state(workers) == [("new", True)]


def test_a_worker_of_many_names_costs_bounded_memory() -> None:
    _, workers = clock_and_workers()
    for number in range(1_200):
        workers.take(status_of(f"w-{number}"))
        workers.take(curve_of(opened(), [[1.0] * 3], f"w-{number}"))
    assert len(workers.seen()) == 1_000
    assert state(workers)[0][0] == "w-1000"


def test_of_too_many_workers_those_that_ended_or_are_silent_go_first_and_the_page_says_so(tmp_path: Path) -> None:
    page = page_with(tmp_path)
    now = now_of(page)
    page.workers.take(status_of("running", created_at=now))
    page.workers.take(status_of("ended", created_at=now, stopped=True))
    page.workers.take(status_of("silent", created_at=now - timedelta(hours=1)))
    for number in range(998):
        assert page.workers.left_out is None
        page.workers.take(status_of(f"w-{number}", created_at=now))
    page.workers.take(status_of("w-998", created_at=now))
    names = {name for name, _ in state(page.workers)}
    assert len(names) == 1_000
    assert {"running", "w-998"} <= names
    assert not names & {"ended", "silent"}
    assert "not all workers are shown" in page.browser().get("/").text


def test_many_bytes_of_statuses_cost_bounded_memory_and_the_newest_stay() -> None:
    clock, workers = clock_and_workers()
    names = ["x" * 1_000] * 20
    large = [opened(stream=name, sequence=name) for name in names * 10]
    for number in range(150):
        workers.take(status_of(f"w-{number}", open_=large, created_at=from_us(clock.now_us())))
    known = [name for name, _ in state(workers)]
    assert 40 < len(known) < 100
    assert "w-149" in known
    assert "w-0" not in known
    assert workers.left_out is not None
    workers.replace("w-149", [status_of("w-149")])
    clock.advance(3_601.0)
    assert workers.left_out is None


# --- readings so far ---


def test_readings_count_only_while_a_live_status_names_their_sequence() -> None:
    clock, workers = clock_and_workers()
    one = opened()
    workers.take(curve_of(one, [[1.0, 2.0, 3.0]]))
    assert workers.running("reactor-1") is None
    workers.take(status_of(open_=[one]))
    assert workers.running("reactor-1") is not None
    workers.take(status_of(open_=[opened(sequence="B-78")]))
    assert workers.running("reactor-1") is None
    workers.take(curve_of(opened(sequence="B-78"), [[1.0, 2.0, 3.0]]))
    assert workers.running("reactor-1") is not None
    clock.advance(60.0)
    assert workers.running("reactor-1") is None
    assert workers.open() == []


def test_of_two_workers_the_one_counts_that_names_the_sequence() -> None:
    """A stream that moved to another worker is in the old one's readings until that writes again."""
    _, workers = clock_and_workers()
    one = opened()
    workers.take(status_of("a", open_=[one]))
    workers.take(curve_of(one, [[1.0, 1.0, 1.0]], "a"))
    workers.take(status_of("b"))
    workers.take(curve_of(one, [[2.0, 2.0, 2.0]], "b"))
    found = workers.running("reactor-1")
    assert found is not None
    assert found[0].instance == "a"


# --- reading ---


def encoded(*messages: Message | WorkerStatus | Running) -> bytes:
    return b"".join(msgspec.json.encode(each) + b"\n" for each in messages)


async def test_the_folder_is_followed(tmp_path: Path) -> None:
    plant = plant_in(tmp_path, sinks={"status": "status"})
    view = opened_view(tmp_path)
    changed = asyncio.Event()
    reading = Reading(plant, view, changed.set)
    one, now = opened(), from_us(plant.clock.now_us())
    folder = tmp_path / "status"
    folder.mkdir()
    (folder / "notes.txt").write_text("x")
    (folder / "junk.jsonl").write_bytes(b"\xff\n[]\n")
    (folder / "link.jsonl").symlink_to("/etc/passwd")

    def write(name: str, content: bytes) -> None:
        (folder / "new").write_bytes(content)
        (folder / "new").replace(folder / name)

    async def until(what: Any) -> None:
        async with asyncio.timeout(LIMIT_S):
            while not what():
                changed.clear()
                await changed.wait()

    task = asyncio.create_task(reading.run())
    try:
        write("line-1.jsonl", encoded(status_of(open_=[one], created_at=now), curve_of(one, [[1.0, 2.0, 3.0]])))
        await until(lambda: reading.workers.running("reactor-1") is not None)
        write("line-1.jsonl", encoded(status_of(open_=[one], created_at=now + timedelta(seconds=1))))
        await until(lambda: reading.workers.running("reactor-1") is None)
        write("line-2.jsonl", encoded(status_of("line-2", created_at=now)))
        await until(lambda: len(reading.workers.seen()) == 2)
        (folder / "line-2.jsonl").unlink()
        async with asyncio.timeout(LIMIT_S):
            while len(reading.workers.seen()) == 2:  # noqa: ASYNC110 - a removal is no event
                await asyncio.sleep(0.01)
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    assert reading.troubles == {}
    view.close()


class Topic:
    """A subscription to the messages ``given``; then it waits."""

    options_model = BaseModel

    def __init__(self, *given: tuple[str, Any]) -> None:
        self.given = given

    async def messages(self) -> Any:
        for key, message in self.given:
            value = b"" if message is None else encoded(message)
            yield StoredMessage(value, "topic[0]", key=key.encode())
        await asyncio.Event().wait()

    def done(self) -> None:
        pass

    async def close(self) -> None:
        pass


async def test_a_removed_status_of_the_topic_removes_the_worker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = opened()
    statuses = {name: status_of(name, open_=[one], created_at=datetime.now(UTC)) for name in ("a", "b/c", "d")}
    given: list[tuple[str, Any]] = list(statuses.items())
    given += [(f"{name}/{one.stream}", curve_of(one, [[1.0, 2.0, 3.0]], name)) for name in ("b/c", "d")]
    given += [("a", None), (f"d/{one.stream}", None), ("unknown", None)]
    topic = Topic(*given)
    monkeypatch.setattr("streamad.web.reading.subscription_of", lambda *_, **__: topic)
    plant = plant_in(tmp_path, sinks={"status": "kafka://h:1/status"})
    view, changed = opened_view(tmp_path), asyncio.Event()
    reading = Reading(plant, view, changed.set)
    task = asyncio.create_task(reading.run())
    async with asyncio.timeout(LIMIT_S):
        while reading.workers.number < len(given):
            changed.clear()
            await changed.wait()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert {name for name, _ in state(reading.workers)} == {"b/c", "d"}
    found = reading.workers.running(one.stream)
    assert found is not None
    assert found[0].instance == "b/c"
    view.close()


async def test_a_folder_of_many_odd_files_hides_no_worker_and_the_page_says_what_is_left_out(tmp_path: Path) -> None:
    folder = tmp_path / "status"
    folder.mkdir()
    for number in range(1_500):
        (folder / f"odd-{number}.jsonl").write_text("odd")
        os.utime(folder / f"odd-{number}.jsonl", (1e9, 1e9 + number))
    (folder / "worker.jsonl").write_bytes(encoded(status_of(created_at=datetime.now(UTC))))
    reading = await _read_folder(tmp_path, lambda reading: bool(reading.workers.seen()))
    assert "501 files beyond the 1,000 newest" in reading.troubles["workers"]


async def test_beyond_64_mb_of_statuses_the_oldest_are_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("streamad.web.reading._MOST_FOLDER_BYTES", 9_000)
    monkeypatch.setattr("streamad.web.reading._MOST_FILE_BYTES", 8_000)
    folder = tmp_path / "status"
    folder.mkdir()
    for number in range(8):
        path = folder / f"w-{number}.jsonl"
        padding = b"\n" * (2_000 if number else 9_000)
        path.write_bytes(encoded(status_of(f"w-{number}", created_at=datetime.now(UTC))) + padding)
        os.utime(path, (1e9, 1e9 + (number or 99)))
    reading = await _read_folder(tmp_path, lambda reading: len(reading.workers.seen()) == 3)
    assert {name for name, _ in state(reading.workers)} == {"w-5", "w-6", "w-7"}
    assert "5 files beyond the 3 newest" in reading.troubles["workers"]


async def _read_folder(tmp_path: Path, done: Any) -> Reading:
    view, changed = opened_view(tmp_path), asyncio.Event()
    reading = Reading(plant_in(tmp_path, sinks={"status": "status"}), view, changed.set)
    task = asyncio.create_task(reading.run())
    async with asyncio.timeout(LIMIT_S):
        while not done(reading):
            changed.clear()
            await changed.wait()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    view.close()
    return reading


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
async def test_a_folder_that_cannot_be_read_is_a_trouble(tmp_path: Path) -> None:
    await _trouble_of(tmp_path, lambda folder: folder.mkdir(mode=0))


async def test_a_file_in_place_of_the_folder_is_a_trouble(tmp_path: Path) -> None:
    await _trouble_of(tmp_path, lambda folder: folder.write_text("x"))


async def _trouble_of(tmp_path: Path, make: Any) -> None:
    plant = plant_in(tmp_path, sinks={"status": "status"})
    make(tmp_path / "status")
    view, changed = opened_view(tmp_path), asyncio.Event()
    reading = Reading(plant, view, changed.set)
    task = asyncio.create_task(reading.run())
    async with asyncio.timeout(LIMIT_S):
        while not reading.troubles:
            changed.clear()
            await changed.wait()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert "status cannot be read" in reading.troubles["status"]
    view.close()


def refuse(message: Any) -> None:
    with pytest.raises(msgspec.ValidationError):
        accepted(message)


def _changed(message: Any, **more: Any) -> Any:
    return msgspec.structs.replace(message, **more)


@pytest.mark.parametrize(
    "more",
    [
        {"seconds": [0.0, 2.0, 1.0]},
        {"seconds": [-1.0, 0.0, 1.0]},
        {"seconds": [0.0, 1.0, 1.7e308]},
        {"seconds": [float(i) for i in range(65)]},
        {"channels": ["a"] * 1_001},
        {"n_samples": 0},
        {"start_time": msgspec.json.decode('"9999-12-31T23:59:59-12:00"', type=type(T))},
    ],
)
def test_readings_that_no_worker_writes_are_refused(more: dict[str, Any]) -> None:
    accepted(curve_of(opened(), [[1.0, 2.0, 3.0]]))
    refuse(_changed(curve_of(opened(), [[1.0, 2.0, 3.0]]), **more))


@pytest.mark.parametrize("n", [-1, 10**400, 2**63])
def test_whole_numbers_that_none_are_make_no_page_fail(n: int) -> None:
    """Two counts of thousands of digits in one message of a compacted topic took the page Now down for everybody."""
    one = opened()
    refuse(_changed(status_of(), verdicts={"normal": n}))
    refuse(_changed(status_of(), lag=n))
    refuse(_changed(curve_of(one, [[1.0, 2.0, 3.0]]), n_samples=n))
    kept = accepted(status_of(open_=[_changed(one, n_samples=n), one]))
    assert isinstance(kept, WorkerStatus)
    assert kept.open == [one]


def test_a_status_is_cut_to_what_a_page_can_show() -> None:
    far = msgspec.json.decode('"9999-12-31T23:59:59-12:00"', type=type(T))
    given = status_of("x" * 5_000, open_=[opened(start=far), *[opened()] * 300], models=[MODEL] * 50)
    kept = accepted(_changed(given, verdicts={"normal": 1, "x": 2}))
    assert isinstance(kept, WorkerStatus)
    assert (len(kept.instance), len(kept.open), len(kept.models), kept.verdicts) == (1_000, 200, 20, {"normal": 1})
    refuse(_changed(given, started_at=far))


# --- pages ---

RUNNING = {"sinks": {"verdicts": "file:verdicts.jsonl", "status": "status"}, "display": {"open": True}}


def page_with(tmp_path: Path, *messages: Any, judged: bool = True, **more: Any) -> PageUnderTest:
    page = PageUnderTest(tmp_path, [verdict(i) for i in range(6)] if judged else [], **{**RUNNING, **more})
    for each in messages:
        page.workers.take(each)
    return page


def now_of(page: PageUnderTest) -> Any:
    return from_us(page.plant.clock.now_us())


@pytest.mark.parametrize("judged", [True, False])
def test_now_shows_workers_and_what_they_have_open(tmp_path: Path, judged: bool) -> None:
    page = page_with(tmp_path, judged=judged)
    page.workers.take(status_of(open_=[opened()], created_at=now_of(page), lag=7, waiting_attributions=2))
    text = page.browser().get("/").text
    for part in ("Running", "line-1", "● running", "7 records", "reasons of 2 alerts", "1 open sequence", "B-77"):
        assert part in text
    assert "silent" not in text
    assert 'class="bar open"' in text.partition('class="legend"')[0]
    assert f'data-status="{page.workers.number}"' in text


OPEN_ONES = {
    "on a stream without a verdict": ("mixer-9", "B-1", timedelta(minutes=7), True),
    "under a name that was judged before": ("reactor-0", "B-0", timedelta(minutes=7), True),
    "after a long pause": ("reactor-0", "B-77", timedelta(days=3), True),
    "the one that was judged": ("reactor-1", "B-1", timedelta(seconds=10), False),
    "by a clock that is ahead": ("reactor-0", "B-77", timedelta(days=3_000), False),
}


@pytest.mark.parametrize("case", OPEN_ONES)
def test_the_lines_show_what_runs(case: str, tmp_path: Path) -> None:
    stream, sequence, since, is_drawn = OPEN_ONES[case]
    page = page_with(tmp_path)
    one = OpenSequence(stream=stream, sequence=sequence, start_time=T + since, n_samples=3)
    page.workers.take(status_of(open_=[one], created_at=now_of(page)))
    text = page.browser().get("/").text
    assert (f"{stream} {sequence}: running" in text) is is_drawn
    if is_drawn:
        width = float(re.findall(r'class="bar open"[^>]* width="([0-9.]+)%"', text)[0])
        assert width > 0.6


def test_the_legend_of_the_streams_shows_what_is_drawn(tmp_path: Path) -> None:
    page = page_with(tmp_path)
    page.view.put(messages_of(300)[:2])
    text = page.browser().get("/").text
    drawn, _, below = text.partition('<p class="legend">')
    legend = below.partition("</p>")[0]
    kinds = set(re.findall(r'<rect class="bar (\w+)"', drawn))
    assert kinds >= {"normal", "anomalous"}
    assert kinds <= set(re.findall(r'<rect class="bar (\w+)"', legend))


def test_very_many_open_sequences_are_one_bar_for_each_stream(tmp_path: Path) -> None:
    page = page_with(tmp_path, judged=False)
    for n in range(64):
        open_ = [opened(f"line-{k}", f"B-{n}", start=T - timedelta(minutes=n)) for k in range(200)]
        page.workers.take(status_of(f"worker-{n}", open_=open_, created_at=now_of(page)))
    text = page.browser().get("/").text
    assert text.partition('class="legend"')[0].count('class="bar open"') == 200
    assert "line-7: 64 running sequences" in text
    assert len(text) < 300_000


def test_of_too_many_streams_those_with_alerts_are_drawn_and_the_page_says_so(tmp_path: Path) -> None:
    given = [msgspec.structs.replace(verdict(i), stream=f"line-{i:03}") for i in range(250)]
    odd = [msgspec.structs.replace(each, stream="line-999") for each in messages_of(300)[:2]]
    page = page_with(tmp_path, judged=False)
    page.view.put([*given, *odd])
    text = page.browser().get("/").text
    lanes = text[text.index('class="lanes"') :]
    assert "line-999 " in lanes[: lanes.index("</svg>")]
    assert "51 more streams are not drawn: those with alerts come first." in text


async def test_many_statuses_wake_the_open_pages_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read, looked, wakes = asyncio.Event(), asyncio.Event(), []

    class Read(Topic):
        async def messages(self) -> Any:
            async for each in super().messages():
                yield each
                if each.key == b"last":
                    read.set()

    class Looked(Workers):
        def look(self) -> bool:
            looked.set()
            return super().look()

    now = datetime.now(UTC)
    topic = Read(*((name, status_of(name, created_at=now)) for name in (*map(str, range(300)), "last")))
    monkeypatch.setattr("streamad.web.reading.subscription_of", lambda *_, **__: topic)
    monkeypatch.setattr("streamad.web.reading._LOOK_S", 0.02)
    plant = plant_in(tmp_path, sinks={"status": "kafka://h:1/status"})
    view, workers = opened_view(tmp_path), Looked(plant.clock)
    reading = Reading(plant, view, lambda: wakes.append(workers.number), workers)
    task = asyncio.create_task(reading.run())
    async with asyncio.timeout(LIMIT_S):
        await read.wait()
        while not wakes or wakes[-1] < 301:
            looked.clear()
            await looked.wait()
            await asyncio.sleep(0)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert len(wakes) < 100
    view.close()


def test_a_silent_worker_is_in_the_banner(tmp_path: Path) -> None:
    page = page_with(tmp_path)
    page.workers.take(status_of(created_at=now_of(page) - timedelta(minutes=5), open_=[opened()]))
    text = page.browser().get("/").text
    assert "line-1 is silent" in text
    assert "its last status is 5\u00a0min old" in text
    assert "No worker runs" in text
    assert "B-77" not in text


def test_a_worker_that_ended_is_no_trouble(tmp_path: Path) -> None:
    page = page_with(tmp_path)
    page.workers.take(status_of(created_at=now_of(page) - timedelta(days=3), stopped=True))
    text = page.browser().get("/").text
    assert "○ ended" in text
    assert "silent" not in text


def test_without_the_role_nothing_is_said_of_workers(tmp_path: Path) -> None:
    text = page_with(tmp_path, sinks={"verdicts": "file:verdicts.jsonl"}).browser().get("/").text
    assert "Running" not in text
    assert "data-status" not in text


def test_new_dead_letters_are_in_the_banner_and_old_ones_are_not(tmp_path: Path) -> None:
    page = page_with(tmp_path)
    page.workers.take(status_of(created_at=now_of(page), dead_letters=5))
    assert "unreadable" not in page.browser().get("/").text
    page.workers.take(status_of(created_at=now_of(page), dead_letters=1_008))
    page.workers.take(status_of(created_at=now_of(page), dead_letters=1_008))
    assert "1,008 so far, more within the last hour" in page.browser().get("/").text


@pytest.mark.parametrize("kind", ["too_many_streams", "plant_changed", "broker_silent", "feedback_unreadable"])
def test_an_event_of_a_serious_kind_is_in_the_banner(kind: str, tmp_path: Path) -> None:
    event = Event(kind=kind, message="it happened", created_at=T)
    text = PageUnderTest(tmp_path, [verdict(1), event]).browser().get("/").text
    banner = text.partition('aria-label="Needs attention"')[2].partition("</section>")[0]
    assert f"⚠ {kind.replace('_', ' ')}" in banner
    assert "it happened" in banner


def test_many_unscorable_sequences_are_in_the_banner(tmp_path: Path) -> None:
    odd = [verdict(i, "unscorable" if i % 4 == 0 else "normal") for i in range(100, 140)]
    assert "10 of the last 40 sequences could not be judged" in PageUnderTest(tmp_path, odd).browser().get("/").text
    (other := tmp_path / "other").mkdir()
    page = PageUnderTest(other, [verdict(i) for i in range(100, 140)])
    assert "could not be judged:" not in page.browser().get("/").text


def test_the_readings_so_far_are_drawn(tmp_path: Path) -> None:
    page = page_with(tmp_path)
    one = opened(n_samples=400)
    page.workers.take(status_of(open_=[one], created_at=now_of(page), models=[]))
    page.workers.take(curve_of(one, [[1.0, float("nan"), 3.0]]))
    text = page.browser().get("/running?name=reactor-1").text
    for part in ("B-77: 400 samples so far", "worker line-1", 'class="course"', "Nothing is judged before its end",
                 "No normal band: there is no model yet", "3 of 400 samples are drawn"):  # fmt: skip
        assert part in text
    assert "nan" not in text.lower()


@pytest.mark.parametrize(
    ("named", "models", "expected"),
    [
        ("press.a", ("press.a", "press.b"), ModelRef("press.a", "0002")),
        ("press.b", ("press.a", "press.b"), ModelRef("press.b", "0002")),
        ("press.c", ("press.a", "press.b"), "the model press.c, which will judge it, is not in service yet"),
        (None, ("press.a",), ModelRef("press.a", "0002")),  # a worker of an earlier release
        (None, ("press.a", "press.b"), "several models are in service, and no message of the sequence has said yet"),
    ],
)
def test_the_band_is_that_of_the_model_that_will_judge(
    named: str | None, models: tuple[str, ...], expected: ModelRef | str
) -> None:
    one = opened()
    status = status_of(open_=[one], models=[ModelRef(name, "0002") for name in models])
    found = model_of(curve_of(one, [[1.0, 2.0, 3.0]], model=named), status)
    assert found == expected or str(found).startswith(str(expected))


def test_what_is_missing_is_said(tmp_path: Path) -> None:
    page = page_with(tmp_path)
    assert "No worker tells of an open sequence" in page.browser().get("/running?name=reactor-1").text
    off = page_with(tmp_path, display={"open": False})
    assert "display.open: true" in off.browser().get("/running?name=reactor-1").text
    one = opened()
    page.workers.take(status_of(open_=[one], created_at=now_of(page)))
    page.workers.take(curve_of(one, [[1.0, 2.0, 3.0]]))
    assert "No normal band: model default 0001 cannot be read" in page.browser().get("/running?name=reactor-1").text
    page.workers.take(_changed(curve_of(one, [[1.0, 2.0, 3.0]]), values="AAAA"))
    assert "No worker tells of an open sequence" in page.browser().get("/running?name=reactor-1").text


async def test_the_stream_of_changes_tells_of_workers(tmp_path: Path) -> None:
    page = page_with(tmp_path)
    told = page.changes.stream(page.view.mark)
    async with asyncio.timeout(LIMIT_S):
        assert (await anext(told)).startswith("retry")
        assert await anext(told) == "event: status\ndata: 0\n\n"
        coming = asyncio.ensure_future(anext(told))
        await asyncio.sleep(0)
        page.workers.take(status_of())
        page.changes.wake()
        assert await coming == "event: status\ndata: 1\n\n"
    await told.aclose()  # type: ignore[attr-defined]


def test_hostile_names_of_workers_are_text(tmp_path: Path) -> None:
    bad = "<script>alert(1)</script>\"'&"
    page = page_with(tmp_path)
    one = OpenSequence(stream=bad, sequence=bad, start_time=T, n_samples=3)
    page.workers.take(status_of(bad, open_=[one], created_at=now_of(page)))
    page.workers.take(curve_of(one, [[1.0, 2.0, 3.0]], bad, channels=[bad], units=[bad]))
    for path in ("/", "/running?name=%3Cscript%3Ealert%281%29%3C%2Fscript%3E%22%27%26"):
        text = page.browser().get(path).text
        assert "<script>alert" not in text
        assert "&lt;script&gt;alert(1)" in text


# --- the band's clock ---


def placed(window: dict[str, Any], n_samples: int, seconds: list[float], usual: tuple[float, float] | None) -> Any:
    one = curve_of(opened(n_samples=n_samples), [[0.0] * len(seconds)], seconds=seconds)
    return clock_of(one, WindowSettings(**window), usual)


GRID = {"length": 11, "resample": {"period": "2s"}}


@pytest.mark.parametrize(
    ("window", "usual", "step_s"),
    [
        ({"length": 100, "longer": "truncate"}, None, 0.5),
        ({"length": 100}, (80.0, 40.0), 0.5),
        ({"length": 11}, (101.0, 50.0), 5.0),  # ten samples become one
        (GRID, (1_000.0, 20.0), 2.0),
        (GRID, (1_000.0, 100.0), 10.0),  # 51 points of the grid become 11
        (GRID | {"longer": "truncate"}, (1_000.0, 100.0), 2.0),
    ],
)
def test_a_point_of_the_band_lies_where_normal_sequences_had_it(
    window: dict[str, Any], usual: tuple[float, float] | None, step_s: float
) -> None:
    found = placed(window, 21, [0.0, 5.0, 10.0], usual)
    assert found[0] == pytest.approx(step_s)


def test_without_a_place_on_the_band_the_reason_is_said() -> None:
    assert "too few samples" in placed({"length": 11}, 1, [0.0], (5.0, 5.0))
    assert "usual length is not known" in placed({"length": 11}, 21, [0.0, 10.0], None)
