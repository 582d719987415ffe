"""What runs, as the page sees it: silence by this machine's clock, and readings only of what is open."""

from __future__ import annotations

import asyncio
import os
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from streamad.messages import Message, OpenSequence, Running, WorkerStatus
from streamad.messages.accepting import accepted_status
from streamad.settings.plant_yaml import WindowSettings
from streamad.testing import ManualClock
from streamad.types import from_us, to_us
from streamad.web.pages.running import clock_of
from streamad.web.reading import Reading
from streamad.web.workers import Workers
from tests.support.web.messages import MODEL, T, verdict
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
        async with asyncio.timeout(30):
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
        async with asyncio.timeout(30):
            while len(reading.workers.seen()) == 2:  # noqa: ASYNC110 - a removal is no event
                await asyncio.sleep(0.01)
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    assert reading.troubles == {}
    view.close()


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
    async with asyncio.timeout(30):
        while not reading.troubles:
            changed.clear()
            await changed.wait()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert "status cannot be read" in reading.troubles["status"]
    view.close()


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
    assert accepted_status(curve_of(opened(), [[1.0, 2.0, 3.0]])) is not None
    assert accepted_status(_changed(curve_of(opened(), [[1.0, 2.0, 3.0]]), **more)) is None


@pytest.mark.parametrize("n", [-1, 10**400, 2**63])
def test_whole_numbers_that_none_are_make_no_page_fail(n: int) -> None:
    """Two counts of thousands of digits in one message of a compacted topic took the page Now down for everybody."""
    one = opened()
    assert accepted_status(_changed(status_of(), verdicts={"normal": n})) is None
    assert accepted_status(_changed(status_of(), lag=n)) is None
    assert accepted_status(_changed(curve_of(one, [[1.0, 2.0, 3.0]]), n_samples=n)) is None
    kept = accepted_status(status_of(open_=[_changed(one, n_samples=n), one]))
    assert isinstance(kept, WorkerStatus)
    assert kept.open == [one]


def test_a_status_is_cut_to_what_a_page_can_show() -> None:
    far = msgspec.json.decode('"9999-12-31T23:59:59-12:00"', type=type(T))
    given = status_of("x" * 5_000, open_=[opened(start=far), *[opened()] * 300], models=[MODEL] * 50)
    kept = accepted_status(_changed(given, verdicts={"normal": 1, "x": 2}))
    assert isinstance(kept, WorkerStatus)
    assert (len(kept.instance), len(kept.open), len(kept.models), kept.verdicts) == (1_000, 200, 20, {"normal": 1})
    assert accepted_status(_changed(given, started_at=far)) is None


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
    for part in ("Running", "line-1", "● running", "7 records", "2 attributions", "1 open sequence", "B-77"):
        assert part in text
    assert "silent" not in text
    assert ('class="bar open"' in text) is judged
    assert f'data-status="{page.workers.number}"' in text


def test_a_silent_worker_is_in_the_banner(tmp_path: Path) -> None:
    page = page_with(tmp_path)
    page.workers.take(status_of(created_at=now_of(page) - timedelta(minutes=5), open_=[opened()]))
    text = page.browser().get("/").text
    assert "line-1 is silent" in text
    assert "its last status is 5 min old" in text
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


def test_many_unscorable_sequences_are_in_the_banner(tmp_path: Path) -> None:
    odd = [verdict(i, "unscorable" if i % 4 == 0 else "normal") for i in range(100, 140)]
    assert "10 of the last 40 sequences could not be judged" in PageUnderTest(tmp_path, odd).browser().get("/").text
    page = PageUnderTest(tmp_path / "..", [verdict(i) for i in range(100, 140)])
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
    told = page.changes.stream(page.view.last_change)
    async with asyncio.timeout(30):
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
