"""``streamad run`` killed while it swaps models, and started again, time after time.

Afterwards registry and checkpoint are clean, and every sequence has its verdict once.
"""

from __future__ import annotations

import json
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from streamad.system.saved_progress import read_checkpoint
from tests.support.kafka.workers import ForkServer, Worker
from tests.support.learning.store import NAME, QUIET, LearningPlant
from tests.support.runtime.pipeline import CHANNELS, ROLES, L
from tests.support.waiting import LIMIT_S

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs SIGKILL")

AT_ONCE = 30
LEARNING: dict[str, Any] = {**QUIET, "process": "elsewhere"}


class Lives:
    """A plant on disk; each life of its monitor finds ``AT_ONCE`` more sequences, and dies as it is told."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.plant = LearningPlant(folder, learning=LEARNING)
        self._recordings = folder / "recordings"
        self._recordings.mkdir(parents=True)
        self._n = 0
        self.deaths: list[str] = []
        self.workers: list[Worker] = []
        self._forks = ForkServer()
        self.configure()

    def configure(self, **model: Any) -> None:
        content = {
            "channels": [{"name": name} for name in CHANNELS],
            "source": {"url": "recordings"},
            "window": {"length": L, "min_samples": 1},
            "model": {"detector": "mean", "device": "cpu", "references": [], **model},
            "alerts": {"false_alarm_rate": 0.05},
            "learning": LEARNING,
            "sinks": {role: f"out/{role}.jsonl" for role in ROLES},
            "run": {"commit_interval": "1ms", "batch_windows": 4, "batch_wait": "1ms"},
        }
        (self.folder / "plant.yaml").write_text(yaml.safe_dump(content))

    def record(self, n: int = AT_ONCE) -> None:
        numbers = range(self._n, self._n + n)
        self._n += n
        lines = b"".join(self.plant.message(number) + b"\n" for number in numbers)
        (self._recordings / f"{numbers[0]:06d}.jsonl").write_bytes(lines)

    def start(self, **kill: str) -> Worker:
        log = self.folder / f"worker-{len(self.workers)}.log"
        self.workers.append(self._forks.start("worker", ["run", "--quiet"], self.folder, log, **kill))
        return self.workers[-1]

    def assert_clean(self) -> None:
        """Live once more without dying, then look at everything that is on the disk."""
        self.record()
        worker = self.start()
        assert worker.process.wait(LIMIT_S) == 0, worker.said()
        verdicts = [json.loads(line) for line in (self.folder / "out/verdicts.jsonl").read_text().splitlines()]
        assert Counter(verdict["sequence"] for verdict in verdicts) == {f"B-{n}": 1 for n in range(self._n)}
        assert len({verdict["verdict_id"] for verdict in verdicts}) == self._n
        assert {progress.ended for progress in read_checkpoint(self.folder / "checkpoint").progress.values()} == {True}
        self._assert_registry_clean()

    def _assert_registry_clean(self) -> None:
        registry, versions = self.plant.registry, self.plant.versions
        assert registry.current(NAME) is not None
        for version in registry.versions(NAME):
            assert versions.load(version).ref.version == version
        assert [
            path.name for path in (self.folder / "registry" / NAME / "versions").iterdir() if "." in path.name
        ] == []


@pytest.fixture
def lives(tmp_path: Path) -> Iterator[Lives]:
    lives = Lives(tmp_path / "plant")
    yield lives
    for worker in lives.workers:  # what a failing test leaves behind, each by its id
        worker.end()


def test_killed_while_it_swaps(lives: Lives) -> None:
    lives.configure(options={"batch_ms": 300})  # four sequences at once: a life of 120 takes nine seconds
    lives.plant.train(0)
    challengers = [lives.plant.train(seed, promote=False) for seed in range(1, 7)]
    for challenger, (count, then) in zip(
        challengers, [(1, ""), (4, ""), (9, ""), (3, "checkpoint"), (6, "checkpoint"), (99, "")], strict=True
    ):
        lives.record(120)
        before = n_verdicts(lives)
        worker = lives.start(KILL_WORKER=f"versions/{challenger}:{count}" + (f":{then}" if then else ""))
        deadline = time.monotonic() + LIMIT_S
        while worker.is_running and n_verdicts(lives) <= before:
            assert time.monotonic() < deadline
            time.sleep(0.005)
        lives.plant.promote(challenger)
        code = worker.process.wait(LIMIT_S)
        assert code in (0, -signal.SIGKILL), worker.said()
        lives.deaths += [challenger] if code else []
    assert len(lives.deaths) == 5
    lives.assert_clean()
    verdicts = [json.loads(line) for line in (lives.folder / "out/verdicts.jsonl").read_text().splitlines()]
    used = Counter((verdict["model"] or {}).get("version") for verdict in verdicts)
    assert used.keys() == {"0001", *challengers}


def n_verdicts(lives: Lives) -> int:
    path = lives.folder / "out" / "verdicts.jsonl"
    return path.read_bytes().count(b"\n") if path.exists() else 0
