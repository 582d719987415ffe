"""A plant that has stored sequences: a config on disk, windows with known ids, and a way into its stores."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from streamad.commands.shared.plants import load_plant
from streamad.learn.parts import detector_for, registry_of, store_for
from streamad.learn.process.service import PlantLearner
from streamad.learn.registry.registry import Registry
from streamad.learn.store.inliers import InlierStore
from streamad.learn.store.records import StoredSequence, TrainingRequest
from streamad.learn.trainer.challenge import Workshop
from streamad.learn.trainer.retrain import Retraining
from streamad.messages import Share
from streamad.system.clock import SystemClock
from streamad.types import Window
from tests.support.learning.plant import taken_as_proved

CHANNELS = ("temp", "pressure")
L = 8
HOUR_US = 3_600_000_000
NOW_US = SystemClock().now_us()
LEARNING = {"min_training": 10, "first_training": 20, "promotion": {"min_comparison": 5}}
SHARES = {"accepted": range(40), "reserve": range(40, 64), "aside": range(64, 72)}
START_US = NOW_US // HOUR_US * HOUR_US - 100 * HOUR_US  # stored sequences that are too old are not shown


def plant_of(folder: Path, **sections: Any) -> Path:
    """Write plant.yaml with ``sections`` into ``folder`` and return its path."""
    content = {
        "channels": [{"name": name} for name in CHANNELS],
        "source": {"url": "in.jsonl"},
        "window": {"length": L},
        "learning": {},
        "sinks": {"alerts": "out/alerts.jsonl"},
    }
    path = folder / "plant.yaml"
    path.write_text(yaml.safe_dump({**content, **sections}))
    return path


def identity(n: int) -> str:
    """Return an id as verdicts have it."""
    return f"{n:032x}"


def sequence(n: int, **changes: Any) -> StoredSequence:
    """Return the ``n``-th sequence, of a length and course of its own, an hour after the one before."""
    length = 3 + n % (L - 2)
    values = np.zeros((len(CHANNELS), L), np.float32)
    values[:, :length] = np.random.default_rng(n).normal(20, 3, (len(CHANNELS), length))
    given: dict[str, Any] = {
        "id": identity(n),
        "stream": f"r{n % 2}",
        "sequence": f"B-{n}",
        "time_us": START_US + n * HOUR_US,
        "stored_us": START_US + n * HOUR_US,
        "window": Window(values, length),
        "decision": "normal",
        "score": 0.5 + n,
        "p_value": 0.5,
        "model_version": "0001",
    }
    return StoredSequence(**{**given, **changes})


def store_of(config: Path, model: str = "default") -> InlierStore:
    """Return the opened store of a model."""
    store = store_for(load_plant(config), model)
    store.open()
    return store


def add(config: Path, shares: dict[Share, list[StoredSequence]], model: str = "default") -> None:
    """Store sequences in their shares."""
    store = store_of(config, model)
    for share, sequences in shares.items():
        for one in sequences:
            assert store.offer(one, share)
    store.flush()
    store.close()


def learn(config: Path, *, trains: bool = False) -> list[tuple[str, str]]:
    """Let a learner read what was committed, marked and asked for until now; return its events.

    ``trains``: it also does the trainings that are due by then.
    """
    events: list[tuple[str, str]] = []
    asyncio.run(_learn(config, trains, events))
    return events


async def _learn(config: Path, trains: bool, events: list[tuple[str, str]]) -> None:
    learner = PlantLearner(load_plant(config), lambda kind, text, **_: events.append((kind, text)), trains=trains)
    learner.finish()
    try:
        await learner.run()
    finally:
        await learner.close()


def registry_at(config: Path) -> Registry:
    """Return the plant's registry."""
    return registry_of(load_plant(config))


def train(config: Path) -> str | None:
    """Do here what ``streamad models retrain`` does in a process of its own."""
    plant = load_plant(config)
    workshop = Workshop(
        detector=detector_for(plant),
        settings=plant.settings,
        model="default",
        registry=registry_at(config),
        clock=plant.clock,
        prove=taken_as_proved,
    )
    request = TrainingRequest(reason="command", requested_us=plant.clock.now_us())
    return Retraining(store=store_of(config), workshop=workshop, request=request).run().version


def another(config: Path) -> str:
    """Train one more version on a little more and return it; it serves."""
    n = len(registry_at(config).versions("default"))
    add(config, {"accepted": [sequence(100 * n + i) for i in range(3)]})
    version = train(config)
    assert version is not None
    current = registry_at(config).current("default")
    if current != version:
        registry_at(config).promote("default", version, expected=current)
    return version
