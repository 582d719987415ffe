"""The status of a worker: what it says, where it is written, and that the pipeline notices nothing of it."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from streamad.errors import OutputError
from streamad.ingest.sequences import runs
from streamad.ingest.sequences.clocks import Clocks
from streamad.ingest.sequences.open_sequence import OpenSequence
from streamad.judge.bank import Router
from streamad.messages import ModelRef, Running, WorkerStatus, unpacked_curve
from streamad.partition_progress import Progress
from streamad.plant import Plant
from streamad.runtime import reports as snapshots
from streamad.runtime.reports import Reporter, StatusFolder, file_name
from streamad.settings.learning import RoutingSettings
from streamad.testing import ListSource, ManualClock
from streamad.types import ChannelSpec, PartitionAssigned, Position, RecordBatch, from_us
from tests.support.runtime.pipeline import START_US, Run, line, records_of, run_pipeline, settings_of, steps, until

OPTIONS = {"options": {"instance": "line-1"}}


class ListPlace:
    """Keeps what was put; raises or waits for ever where told to."""

    def __init__(self) -> None:
        self.puts: list[tuple[WorkerStatus, list[Running]]] = []
        self.failure: BaseException | None = None
        self.hangs = False

    async def put(self, status: WorkerStatus, running: Sequence[Running]) -> None:
        if self.hangs:
            await asyncio.Event().wait()
        if self.failure is not None:
            raise self.failure
        self.puts.append((status, list(running)))

    async def close(self) -> None:
        pass


def script(messages: Sequence[bytes]) -> ListSource:
    records = tuple(records_of(messages))
    return ListSource([PartitionAssigned("p"), RecordBatch("p", records, len(records), caught_up=True)], endless=True)


MESSAGES = [
    line("a", "a-0", [0, 1, 2], end=True),
    line("a", "a-1", [10, 11, 12, 13]),
    line("b", "b-0", [0], 10.0),
    b"{",
]


async def watched(place: Any, messages: Sequence[bytes] = MESSAGES, n_ticks: int = 0, **display: Any) -> Run:
    """Run over ``messages`` with a reporter beside it, ``n_ticks`` intervals long."""
    settings = settings_of(display=display, source={"url": "recordings", **OPTIONS})
    clock = ManualClock(START_US)

    async def beside(run: Run, task: asyncio.Task[None]) -> None:
        await until(lambda: run.pipeline.counters.records == len(messages) and bool(run.judged))
        plant = Plant(settings, Path(), clock, None)
        reporter = Reporter(plant, run.pipeline, lambda: [ModelRef("test", "0001")], place)
        reporter.start()
        for _ in range(n_ticks):
            await steps()
            clock.advance(settings.display.status_interval / 1e6)
        await steps()
        await reporter.close(is_clean=True)
        assert not task.done()
        run.pipeline.request_stop()

    return await run_pipeline(script(messages), settings, clock=clock, while_running=beside)


async def test_a_status_says_what_is_read_judged_and_open() -> None:
    place = ListPlace()
    await watched(place)
    (first, curves), (last, _) = place.puts
    assert (first.instance, first.stopped, last.stopped) == ("line-1", False, True)
    assert (first.records, first.samples, first.dead_letters, first.alerts) == (4, 8, 1, 0)
    assert (first.verdicts, first.partitions, first.interval_s) == ({"normal": 1}, 1, 10.0)
    assert first.models == [ModelRef("test", "0001")]
    assert [(one.stream, one.sequence, one.n_samples) for one in first.open] == [("a", "a-1", 4), ("b", "b-0", 1)]
    assert (first.n_open, first.open[0].start_time) == (2, from_us(START_US + 10_000_000))
    assert curves == []
    assert last.open == []


async def test_with_display_open_the_readings_so_far_come_with_each_status() -> None:
    place = ListPlace()
    await watched(place, n_ticks=12, open=True, status_interval="1s")
    curves = [curves for _, curves in place.puts[:-1]]
    assert [one.sequence for one in curves[0]] == ["a-1", "b-0"]
    assert curves[0][0].seconds == [0.0, 1.0, 2.0, 3.0]
    assert (unpacked_curve(curves[0][0]) == 1.0).all()
    assert len({id(one[0]) for one in curves}) == len(curves)
    assert len(curves) > 10


async def test_the_run_with_it_gives_the_outputs_of_the_run_without_it() -> None:
    found = []
    for opens in (True, False):
        run = await watched(ListPlace(), n_ticks=3, open=opens)
        found.append([msgspec.structs.asdict(verdict) | {"created_at": None} for verdict in run.verdicts])
    assert found[0] == found[1]
    assert len(found[0]) == 1


@pytest.mark.parametrize("failure", [OutputError("no broker"), ValueError("odd"), SystemExit(3), MemoryError()])
async def test_an_outage_is_one_warning_and_is_tried_again(
    failure: BaseException, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    place = ListPlace()
    place.failure = failure
    said: list[str] = []

    class Log:
        def warning(self, text: str, **_: Any) -> None:
            said.append(text)

    monkeypatch.setattr("streamad.runtime.reports.get_logger", Log)
    run = await watched(place, n_ticks=5)
    assert len(run.verdicts) == 1
    assert said == ["the status of this worker is not written"]


async def test_a_place_that_hangs_holds_up_neither_the_run_nor_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streamad.runtime.reports._LAST_S", 0.01)
    place = ListPlace()
    place.hangs = True
    run = await watched(place, n_ticks=3)
    assert len(run.verdicts) == 1
    assert place.puts == []


# --- open sequences ---


async def opened(messages: Sequence[bytes]) -> list[snapshots.Open]:
    """Return the open sequences of a run that has read ``messages``."""
    found: list[snapshots.Open] = []

    async def beside(run: Run, task: asyncio.Task[None]) -> None:
        await until(lambda: run.pipeline.counters.records == len(messages))
        found.extend(snapshots.open_sequences(run.pipeline.status.partitions.values()))
        run.pipeline.request_stop()

    await run_pipeline(script(messages), while_running=beside)
    return found


ONLY = Router("default", None)
CHANNELS = tuple(ChannelSpec(name) for name in ("temp", "pressure", "flow"))


@pytest.mark.parametrize("chunk", [1, 3, 1_000])
@pytest.mark.parametrize("n", [1, 2, 63, 64, 65, 66, 500])
async def test_long_sequences_are_thinned_evenly_and_the_last_sample_is_kept(n: int, chunk: int) -> None:
    times = list(range(n))
    (one,) = await opened([line("a", "x", times[at : at + chunk], float(at)) for at in range(0, n, chunk)])
    message = snapshots.running(one, "w", CHANNELS, START_US, ONLY)
    assert message is not None
    assert len(message.seconds) == len(set(message.seconds)) == min(n, 64)
    assert (message.seconds[0], message.seconds[-1], message.n_samples) == (0.0, n - 1.0, n)
    assert np.diff(message.seconds).max(initial=1) <= max(2 * n / 64, 1) + chunk % 1_000
    values = unpacked_curve(message)
    assert values.shape == (3, len(message.seconds))
    np.testing.assert_array_equal(values[0], [second // chunk * chunk for second in message.seconds])


@pytest.mark.parametrize(
    ("unknown", "missing", "model"),
    [("own", "default", "press.a"), ("default", "default", "press"), ("unscorable", "default", None)],
)
async def test_the_model_is_that_of_the_route_so_far(unknown: Any, missing: Any, model: str | None) -> None:
    (one,) = await opened([line("a", "x", [0, 1])])
    routing = RoutingSettings(field="recipe", values=("b",), unknown=unknown, missing=missing)
    router = Router("press", routing)
    bare = snapshots.running(one, "w", CHANNELS, START_US, router)
    assert bare is not None
    assert bare.model == "press"
    one.sequence.routes = ((0, "a"),)
    message = snapshots.running(one, "w", CHANNELS, START_US, router)
    assert message is not None
    assert message.model == model


def test_a_message_of_many_channels_is_at_most_100_kb() -> None:
    nothing = Clocks(None, None, None, None, None)
    times_us, values = START_US + 1_000_000 * np.arange(80), np.full((80, 1_000), 0.1, np.float32)
    samples = runs.Run("x", times_us, values, Position(0, 0), nothing, arrived_us=START_US)
    one = snapshots.Open("a", OpenSequence(samples, partial=False))
    one.sequence.append(samples)
    wide = tuple(ChannelSpec(f"c{number}") for number in range(1_000))
    message = snapshots.running(one, "w", wide, START_US, ONLY)
    assert message is not None
    assert len(msgspec.json.encode(message)) <= 100_000
    assert (message.seconds[0], message.seconds[-1]) == (0.0, 79.0)
    assert 8 <= len(message.seconds) < 64
    wider = tuple(ChannelSpec("n" * 200) for _ in range(1_000))
    assert snapshots.running(one, "w", wider, START_US, ONLY) is None


async def test_at_most_200_open_sequences_are_named() -> None:
    found = await opened([line(f"s{number}", "x", [number / 1_000]) for number in range(250)])
    assert len(found) == 200


async def test_looking_changes_nothing_of_the_assembler() -> None:
    """The progress of a run that is looked at after every record is that of one that nobody looks at."""
    progress: list[Progress | Any] = []
    for looks in (True, False):

        async def beside(run: Run, task: asyncio.Task[None], looks: bool = looks) -> None:
            await until(lambda: run.pipeline.counters.records == len(MESSAGES))
            (partition,) = run.pipeline.status.partitions.values()
            before = partition.intake.buffered_bytes
            for one in snapshots.open_sequences([partition]) if looks else ():
                snapshots.running(one, "w", CHANNELS, START_US, ONLY)
                one.message()
            assert partition.intake.buffered_bytes == before
            progress.append(partition.intake.progress(ended=False))
            run.pipeline.request_stop()

        await run_pipeline(script(MESSAGES), while_running=beside)
    assert progress[0] == progress[1]


# --- the folder ---


def status(instance: str = "w", **more: Any) -> WorkerStatus:
    given: dict[str, Any] = {
        "started_at": from_us(START_US), "interval_s": 10.0, "partitions": 1, "lag": None, "records": 0, "samples": 0,
        "verdicts": {}, "alerts": 0, "dead_letters": 0, "waiting_verdicts": 0, "waiting_attributions": 0,
        "latency_p50_ms": None, "latency_p99_ms": None, "models": [], "n_open": 0, "open": [],
        "created_at": from_us(START_US),
    }  # fmt: skip
    return WorkerStatus(instance=instance, **given | more)


async def test_the_file_of_a_worker_is_replaced_and_never_grows(tmp_path: Path) -> None:
    folder = StatusFolder(tmp_path / "deep" / "status")
    sizes = []
    for n in range(20):
        await folder.put(status(records=n % 10), [])
        (path,) = (tmp_path / "deep" / "status").iterdir()
        sizes.append(path.stat().st_size)
    assert path.name == "w.jsonl"
    assert set(sizes) == {sizes[0]}


@pytest.mark.parametrize("instance", ["../../etc/x", "a/b", "", ".", "..", "x" * 300, "<b>", "\u202ename", "a\nb"])
def test_an_instance_that_is_no_file_name_stays_in_the_folder(instance: str, tmp_path: Path) -> None:
    asyncio.run(StatusFolder(tmp_path / "status").put(status(instance), []))
    assert [path.name for path in tmp_path.iterdir()] == ["status"]
    (path,) = (tmp_path / "status").iterdir()
    assert msgspec.json.decode(path.read_bytes(), type=WorkerStatus).instance == instance


def test_a_worker_that_starts_removes_those_that_are_gone_and_nothing_else(tmp_path: Path) -> None:
    early = from_us(START_US - 90_000_000_000)
    for other in (status("ended", stopped=True), status("dead", created_at=early), status("alive")):
        (tmp_path / file_name(other.instance)).write_bytes(msgspec.json.encode(other) + b"\n")
    (tmp_path / "renamed.jsonl").write_bytes(msgspec.json.encode(status("x", stopped=True)))
    (tmp_path / "notes.jsonl").write_text('{"mine": 1}\n')
    (tmp_path / "bytes.jsonl").write_bytes(b"\xff\xfe")
    (tmp_path / "linked").write_bytes(msgspec.json.encode(status("link", stopped=True)))
    (tmp_path / "link.jsonl").symlink_to(tmp_path / "linked")
    os.mkfifo(tmp_path / "fifo.jsonl")
    asyncio.run(StatusFolder(tmp_path).put(status(), []))
    left = sorted(path.name for path in tmp_path.iterdir())
    kept = ["alive", "bytes", "fifo", "link", "notes", "renamed", "w"]
    assert left == sorted([*(f"{name}.jsonl" for name in kept), "linked"])


async def test_a_file_in_place_of_the_folder_is_one_error(tmp_path: Path) -> None:
    (tmp_path / "status").write_text("")
    with pytest.raises(OutputError, match=r"it is a file, and sinks\.status names a folder"):
        await StatusFolder(tmp_path / "status").put(status(), [])
