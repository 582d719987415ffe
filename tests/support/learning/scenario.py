"""A committed scenario of a plant that learns, and the decisions that come of it, life by life.

One partition, no sampling at the gate. Each life of the monitor judges what was recorded since the last one; then all
that is due is trained before the next life begins. Operators mark alerts and ask for a relearning in between.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from streamad.messages import SHARES
from streamad.types import from_us
from tests.support.kafka.workers import ForkServer
from tests.support.learning.store import NAME, LearningPlant
from tests.support.runtime.pipeline import CHANNELS, ROLES, START_US, L
from tests.support.waiting import LIMIT_S

LEARNING: dict[str, Any] = {
    "first_training": 60,
    "min_training": 20,
    "after_inliers": 40,
    "reserve": 0.4,
    "schedule": None,
    "min_interval": 0,
    "max_training": 150,
    "promotion": {"min_comparison": 5},
    "drift": {"min_sequences": 40, "changed_over": 20},
}
# How many sequences each life finds, and the level of some of them: by number within the life.
LIVES: list[tuple[int, dict[int, float]]] = [
    (50, {}),
    (40, {7: 10.0}),
    (60, {3: 10.0, 20: 10.0, 41: 4.0}),
    (60, {5: 1.2, 6: 1.2, 30: 10.0}),
    (30, {}),
    (70, dict.fromkeys(range(70), 2.0)),
    (70, dict.fromkeys(range(70), 2.0)),
    (60, {**dict.fromkeys(range(60), 2.0), 12: 12.0}),
]
_MARKS_AFTER, _RELEARN_AFTER = 3, 6


class Scenario:
    """A plant in ``folder``; ``process`` is its ``learning.process``, ``registry`` its ``model.registry``."""

    def __init__(
        self, folder: Path, process: str, learning: Mapping[str, Any] = LEARNING, *, registry: str = "registry"
    ) -> None:
        self.folder = folder
        model = {"detector": "mean", "device": "cpu", "references": [], "registry": registry}
        self.plant = LearningPlant(folder, learning={**learning, "process": process}, model=model)
        self._process = process
        self.n = self._n_commands = 0
        self.forks = ForkServer()
        (folder / "recordings").mkdir(parents=True)
        content = {
            "channels": [{"name": name} for name in CHANNELS],
            "source": {"url": "recordings"},
            "window": {"length": L, "min_samples": 1},
            "model": model,
            "alerts": {"false_alarm_rate": 0.05},
            "learning": {**learning, "process": process},
            "sinks": {role: f"out/{role}.jsonl" for role in ROLES},
            "run": {"commit_interval": "1ms", "batch_windows": 4, "batch_wait": "1ms"},
        }
        (folder / "plant.yaml").write_text(yaml.safe_dump(content))

    def streamad(self, *arguments: str) -> None:
        """Run a command to its end; it must succeed."""
        self._n_commands += 1
        log = self.folder / f"command-{self._n_commands}.log"
        worker = self.forks.start("command", arguments, self.folder, log)
        assert worker.process.wait(LIMIT_S) == 0, worker.said()[-3000:]

    def decisions(self) -> list[dict[str, Any]]:
        """Live all lives; return what was decided by the end of each."""
        found = []
        for number, (n, levels) in enumerate(LIVES):
            self.record(n, levels)
            self.streamad("run", "--quiet")
            if self._process == "elsewhere":
                self.streamad("learn", "--present")
            found.append(self._decided())
            if number == _MARKS_AFTER:
                self._mark()
            if number == _RELEARN_AFTER:
                since = from_us(START_US + 60_000_000 * (self.n - 140)).isoformat()
                if self._process == "elsewhere":
                    self.streamad("models", "relearn", "--since", since, "--request")
                    self.streamad("learn", "--present")
                else:
                    self.streamad("models", "relearn", "--since", since)
        return found

    def record(self, n: int, levels: dict[int, float]) -> None:
        """Let the next life find ``n`` more sequences, some at other ``levels``."""
        numbers = range(self.n, self.n + n)
        self.n += n
        lines = [self.plant.message(each, level=levels.get(each - numbers[0], 0.0)) for each in numbers]
        (self.folder / "recordings" / f"{numbers[0]:06d}.jsonl").write_bytes(b"".join(line + b"\n" for line in lines))

    def _mark(self) -> None:
        """Call the first alert a false alarm, confirm the second, and take a third one's mark back."""
        alerts = [each["alert_id"] for each in self.said("alerts") if each["type"] == "alert"]
        for alert_id, mark in zip(alerts, ["--false-alarm", "--confirmed", "--veto"], strict=False):
            self.streamad("feedback", "--alert", alert_id, mark)
        self.streamad("feedback", "--alert", alerts[2], "--withdraw")

    def said(self, role: str) -> list[dict[str, Any]]:
        """Return the messages of a role."""
        return [json.loads(line) for line in (self.folder / f"out/{role}.jsonl").read_text().splitlines()]

    def _decided(self) -> dict[str, Any]:
        registry = self.plant.registry
        verdicts = [(each["sequence"], each["decision"]) for each in self.said("verdicts")]
        stored = {share: sorted(self.plant.stored(share)) for share in SHARES}
        return {
            "in_service": registry.current(NAME),
            "versions": [self._version(version) for version in registry.versions(NAME)],
            "verdicts": _digest(sorted(verdicts)),
            "stored": {share: [len(names), _digest(names)] for share, names in stored.items()},
        }

    def _version(self, version: str) -> dict[str, Any]:
        manifest = self.plant.registry.manifest(NAME, version)
        learning, decision = manifest.learning, manifest.decision
        assert learning is not None
        return {
            "version": version,
            "parent": manifest.parent,
            "reason": learning.reason,
            "since_us": learning.since_us,
            "uses_marks": learning.uses_marks,
            "n_excluded": learning.n_excluded,
            "n_training": manifest.metrics.n_training,
            "n_calibration": manifest.metrics.n_calibration,
            "promoted": None if decision is None else decision.promoted,
            "why": None if decision is None else decision.reason,
        }


def _digest(value: object) -> str:
    return hashlib.sha256(json.dumps(value).encode()).hexdigest()[:16]


if __name__ == "__main__":
    print(json.dumps(Scenario(Path(sys.argv[2]), sys.argv[1]).decisions(), indent=1))
