"""Rules of ``deploy/prometheus`` that need a broker or a long fault: each is brought to fire on a real Prometheus.

The other rules are in ``tests/integration/test_prometheus.py``. The times of the rules are shortened (windows of 30
or 300 s, waits of 1 s). A worker runs, Prometheus scrapes it, then comes the fault:

| rule | fault |
|---|---|
| LowWatermarkOld | a sequence stays open in a topic that keeps records for 20 s |
| LagGrows | the worker gets a tenth of its machine's time while records flow |
| NotCommitting | the broker freezes; the scorer hangs |
| TrainingFails, ModelOld | the training process is killed again and again, as for want of memory |
| PlantChanged | all sequences have another level from now on |

Run: ``python benchmarks/rules.py [--only RULE] [--json]``; exit code 1 if one does not fire.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Any

import yaml

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.support.kafka.broker import Broker, Message, configure, new_broker
from tests.support.kafka.child import PLUGINS
from tests.support.kafka.plant import KafkaPlant, traffic
from tests.support.kafka.workers import Worker, spawn
from tests.support.learning.store import LearningPlant
from tests.support.ports import free_port
from tests.support.prometheus import Alerts, prometheus, until_ready
from tests.support.runtime.pipeline import CHANNELS, L, line

LIMIT_S = 240.0
RETENTION_S = 20
SHARE, TURN_S = 0.1, 0.1
Fired = Callable[[str], Awaitable[float]]


@asynccontextmanager
async def watched(folder: Path, port: int, window: str = "30s") -> AsyncIterator[Fired]:
    """Run Prometheus at the worker's ``port``; yield what waits for a rule and returns after how long (s) it fires."""
    with prometheus(folder, port, interval="1s", window=window) as alerts:

        async def fired(name: str) -> float:
            began_s = time.monotonic()
            await asyncio.to_thread(_wait, alerts, f"Streamad{name}")
            return time.monotonic() - began_s

        yield fired


def _wait(alerts: Callable[[], Alerts], name: str) -> None:
    end = time.monotonic() + LIMIT_S
    while name not in alerts():
        if time.monotonic() > end:
            raise TimeoutError(f"{name} did not fire within {LIMIT_S:g} s; {alerts() or 'nothing'} does")
        time.sleep(0.2)


@asynccontextmanager
async def kafka_worker(
    broker: Broker, folder: Path, port: int, topic: Mapping[str, str] | None = None
) -> AsyncIterator[tuple[KafkaPlant, Worker]]:
    """Yield a plant of one partition and its worker, which is ready; ``topic``: settings of its input."""
    plant = KafkaPlant(folder, broker.bootstrap, partitions=1, options={"retention_check": "1s"})
    try:
        await plant.create()
        await configure(plant.bootstrap, plant.topic, dict(topic or {}))
        worker = plant.start(STREAMAD_METRICS__LISTEN=f"127.0.0.1:{port}")
        await asyncio.to_thread(until_ready, port)
        yield plant, worker
    finally:
        plant.close()


# --- faults -----------------------------------------------------------------------------------------------------------


async def low_watermark_old(broker: Broker, folder: Path) -> dict[str, float]:
    """Leave a sequence open in a topic that forgets soon."""
    port = free_port()
    keeps = {"retention.ms": str(RETENTION_S * 1000)}
    async with kafka_worker(broker, folder / "plant", port, keeps) as (plant, _), watched(folder / "w", port) as fired:
        await plant.feed([Message(line("open", "open-0", [0.0, 1.0]), b"k", 0, int(time.time() * 1000))])
        return {"LowWatermarkOld": await fired("LowWatermarkOld")}


async def lag_grows(broker: Broker, folder: Path) -> dict[str, float]:
    """Let records flow faster than a worker reads them that gets ``SHARE`` of the time."""
    port = free_port()
    async with kafka_worker(broker, folder / "plant", port) as (plant, worker), watched(folder / "w", port) as fired:
        messages = traffic(1, partitions=1, streams=20, sequences=6_000).messages
        slowing = asyncio.create_task(_slow(worker))
        flow = asyncio.create_task(plant.feed(messages, per_s=5_000.0))
        try:
            return {"LagGrows": await fired("LagGrows")}
        finally:
            for task in (slowing, flow):
                task.cancel()
            await asyncio.wait([slowing, flow])


async def _slow(worker: Worker) -> None:
    try:
        while True:
            worker.send(signal.SIGSTOP)
            await asyncio.sleep(TURN_S * (1 - SHARE))
            worker.send(signal.SIGCONT)
            await asyncio.sleep(TURN_S * SHARE)
    finally:
        worker.send(signal.SIGCONT)


async def broker_freezes(broker: Broker, folder: Path) -> dict[str, float]:
    """Freeze the broker while sequences end."""
    port = free_port()
    async with (
        kafka_worker(broker, folder / "plant", port) as (plant, worker),
        watched(folder / "watch", port) as fired,
    ):
        flow = asyncio.create_task(
            plant.feed(traffic(1, partitions=1, streams=20, sequences=500).messages, per_s=300.0)
        )
        await worker.until(lambda: worker.n_commits > 20)
        broker.pause()
        try:
            return {"NotCommitting, broker": await fired("NotCommitting")}
        finally:
            broker.resume()
            flow.cancel()
            await asyncio.wait([flow])


class FilePlant:
    """A plant that follows a file and learns, with the detector ``mean`` of the tests; use it in a ``with`` block."""

    def __init__(self, folder: Path, port: int, **sections: Any) -> None:
        self.folder, self._port = folder, port
        self._source = LearningPlant(folder)
        self._next = 0
        self._worker: Worker | None = None
        content = {
            "channels": [{"name": name} for name in CHANNELS],
            "source": {"url": "live.jsonl", "options": {"follow": True, "follow_interval": "10ms"}},
            "sequences": {"end": ["marker"]},
            "window": {"length": L, "min_samples": 1},
            "model": {"recordings": "normal.jsonl", "detector": "mean", "folds": 2, "device": "cpu"},
            "alerts": {"false_alarm_rate": 0.05},
            "sinks": {"alerts": "out/alerts.jsonl", "verdicts": "out/verdicts.jsonl", "events": "out/events.jsonl"},
            "metrics": {"listen": f"127.0.0.1:{port}"},
        }
        folder.mkdir(parents=True)
        (folder / "plant.yaml").write_text(yaml.safe_dump(content | sections))
        self.feed(150, to="normal.jsonl")

    def feed(self, n: int, *, to: str = "live.jsonl", level: float = 0.0) -> None:
        """Write ``n`` more sequences of this level."""
        with (self.folder / to).open("ab") as file:
            for _ in range(n):
                file.write(self._source.message(self._next, level=level) + b"\n")
                self._next += 1

    def _spawn(self, *command: str) -> Worker:
        path = os.pathsep.join(filter(None, [str(PLUGINS), os.environ.get("PYTHONPATH", "")]))
        return spawn("w", command, self.folder, self.folder / f"{command[0]}.log", {**os.environ, "PYTHONPATH": path})

    async def train(self) -> None:
        """Train the model. Raises SystemExit."""
        worker = self._spawn("train")
        if await worker.wait(LIMIT_S):
            raise SystemExit(worker.said())

    @contextmanager
    def running(self) -> Iterator[Worker]:
        """Run the worker during the block."""
        worker = self._spawn("run", "--quiet")
        try:
            until_ready(self._port)
            yield worker
        finally:
            worker.end()


async def scorer_hangs(_: Broker, folder: Path) -> dict[str, float]:
    """Let a batch never end in the scorer."""
    port, hold = free_port(), folder / "hold"
    model = {"recordings": "normal.jsonl", "detector": "mean_square", "folds": 2, "device": "cpu"}
    plant = FilePlant(folder / "plant", port, model=model | {"options": {"hold": str(hold)}})
    await plant.train()
    with plant.running():
        async with watched(folder / "watch", port) as fired:
            hold.touch()
            plant.feed(5)
            return {"NotCommitting, scorer": await fired("NotCommitting")}


async def learning_fails(_: Broker, folder: Path) -> dict[str, float]:
    """Kill each training process; then change the plant."""
    port = free_port()
    learning = {
        "store": "inliers",
        "schedule": "* * * * *",
        "on_drift": False,
        "min_interval": 0,
        "min_training": 20,
        "first_training": 60,
        "drift": {"min_sequences": 40, "changed_over": 20},
        "promotion": {"min_comparison": 5},
    }
    plant = FilePlant(folder / "plant", port, learning=learning)
    await plant.train()
    found = {}
    with plant.running() as worker:
        async with watched(folder / "watch", port, "300s") as fired:
            tasks = [asyncio.create_task(_kill_trainers(worker)), asyncio.create_task(_feed_on(plant))]
            try:
                rules = ("TrainingFails", "ModelOld")
                found = dict(zip(rules, await asyncio.gather(*map(fired, rules)), strict=True))
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.wait(tasks)
            plant.feed(100)
            plant.feed(150, level=8.0)
            found["PlantChanged"] = await fired("PlantChanged")
    return found


async def _feed_on(plant: FilePlant) -> None:
    while True:
        plant.feed(3)
        await asyncio.sleep(0.5)


async def _kill_trainers(worker: Worker) -> None:
    while True:
        for pid in _trainers(worker.process.pid):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        await asyncio.sleep(0.05)


def _trainers(pid: int) -> list[int]:
    """Return the ids of the training processes below process ``pid``: its learner starts them."""
    found = []
    with suppress(OSError):
        for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
            found += _trainers(int(child))
            if b"streamad.learn.trainer" in Path(f"/proc/{child}/cmdline").read_bytes():
                found.append(int(child))
    return found


SCENES: Sequence[Callable[[Broker, Path], Awaitable[dict[str, float]]]] = (
    low_watermark_old,
    lag_grows,
    broker_freezes,
    scorer_hangs,
    learning_fails,
)


async def measure(wanted: Sequence[str]) -> dict[str, float | None]:
    """Return after how many seconds each rule fired; None: not in time."""
    found: dict[str, float | None] = {}
    quick = {"log.retention.check.interval.ms": "500", "log.initial.task.delay.ms": "0"}
    with new_broker(quick) as broker, tempfile.TemporaryDirectory() as folder:
        for scene in SCENES:
            if wanted and scene.__name__ not in wanted:
                continue
            try:
                fired = await scene(broker, Path(folder) / scene.__name__)
            except (TimeoutError, AssertionError) as error:
                print(f"{scene.__name__}: {error}", file=sys.stderr)
                found[scene.__name__] = None
            else:
                found |= {name: round(seconds, 1) for name, seconds in fired.items()}
                print(f"{scene.__name__}: {fired}", file=sys.stderr)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", default=[], choices=[scene.__name__ for scene in SCENES])
    parser.add_argument("--json", action="store_true", help="print one JSON object last")
    options = parser.parse_args()
    found = asyncio.run(measure(options.only))
    if options.json:
        print(json.dumps(found))
    else:
        for name, seconds in found.items():
            print(f"{name:<24}{'did not fire' if seconds is None else f'fired after {seconds} s'}")
    sys.exit(1 if None in found.values() else 0)


if __name__ == "__main__":
    main()
