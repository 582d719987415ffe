"""The learner under kills: ``streamad learn`` runs beside the workers and is killed, every second time while it stores.

It trains nothing, so that all verdicts stay those of one version. Afterwards its store must hold exactly the committed
windows, each in the share that its record names.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from streamad.messages import SHARES
from streamad.outputs.stored import open_store, stored_models
from streamad.plant import Plant
from streamad.settings.plant_yaml import load_settings
from streamad.system.clock import SystemClock
from tests.support.kafka.workers import ForkServer, Worker

MOST_LIFE_S = 6.0
AMID_WORK_SHARE = 0.5
MOST_AFTER_S = 0.3
END_S = 600.0
WRONG = ("windows_not_stored", "stored_without_a_window", "stored_in_another_share")
_ALL = 1_000_000


@dataclass(slots=True)
class Learned:
    """``streamad learn`` beside the workers of the plant in ``folder``; use it in a ``with`` block."""

    folder: Path
    forks: ForkServer
    rng: random.Random
    lives: list[Worker] = field(default_factory=list)
    n_kills: int = 0
    _killing: asyncio.Task[None] | None = None

    def __enter__(self) -> Learned:
        return self

    def __exit__(self, *_: object) -> None:
        if self._killing is not None:
            self._killing.cancel()
        for life in self.lives:
            life.end()

    def section(self) -> dict[str, Any]:
        """Return the section ``learning`` of the config."""
        most = {"max_training": _ALL}
        return {"process": "elsewhere", "schedule": None, "on_drift": False, "drift": {"enabled": False}, **most}

    def begin(self) -> None:
        """Start the learner, and kill it at random moments from now on."""
        self._start()
        self._killing = asyncio.create_task(self._kill())

    async def finish(self) -> None:
        """Kill it once more, then let one last life take all that is there. Raises SystemExit if that fails."""
        assert self._killing is not None
        self._killing.cancel()
        await asyncio.wait([self._killing])
        self.lives[-1].kill()
        self.n_kills += 1
        life = self._start("--present")
        if code := await life.wait(END_S):
            raise SystemExit(f"streamad learn --present ended with {code}: {life.said()[-3000:]}")

    def figures(self, windows: Iterable[Mapping[str, Any]]) -> dict[str, int]:
        """Return how the store differs from the committed ``windows``."""
        wanted = {window["verdict_id"]: window["share"] for window in windows if window["share"] is not None}
        plant = Plant(load_settings(self.folder / "plant.yaml"), self.folder, SystemClock())
        stores = [open_store(plant, name) for name in stored_models(plant)]
        found = [(one, share) for store in stores for share in SHARES for one in store.read(share)]
        stored = {one.id: share for one, share in found}
        stored_s = {one.stored_us / 1e6 for one, _ in found}
        return {
            "windows_stored": len(stored),
            "windows_not_stored": len(wanted.keys() - stored.keys()),
            "stored_without_a_window": len(stored.keys() - wanted.keys()),
            "stored_in_another_share": sum(wanted.get(name, share) != share for name, share in stored.items()),
            "kills_of_learn": self.n_kills,
            "lives_of_learn_that_stored": sum(
                any(life.started_s < at_s < life.ended_s for at_s in stored_s) for life in self.lives[: self.n_kills]
            ),
        }

    def _start(self, *arguments: str) -> Worker:
        log = self.folder / f"learn-{len(self.lives)}.log"
        command = ["--verbose", "learn", "--config", "plant.yaml", *arguments]
        self.lives.append(self.forks.start("learn", command, self.folder, log))
        return self.lives[-1]

    async def _kill(self) -> None:
        while True:
            life_s = self.rng.random() * MOST_LIFE_S
            if self.rng.random() < AMID_WORK_SHARE:
                before = self._changed_ns()
                while self._changed_ns() == before:  # noqa: ASYNC110 - by another process
                    await asyncio.sleep(0.05)
                life_s = self.rng.random() * MOST_AFTER_S
            await asyncio.sleep(life_s)
            self.lives[-1].kill()
            self.n_kills += 1
            self._start()

    def _changed_ns(self) -> int:
        """Return when the store was written to last."""
        return max((file.stat().st_mtime_ns for file in self.folder.glob("inliers/*.sqlite3-wal")), default=0)
