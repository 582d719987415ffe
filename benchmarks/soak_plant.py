"""The plant of a soak: its lines, its config, and its processes: of each kind one that is killed, one that is spared.

The two workers share the group. Learner, page and notices are there twice, by two configs over the same topics: the
spared ones have a name, registry, store, view and receiver of their own, so that neither waits for the other.
"""

from __future__ import annotations

import json
import math
import random
import shutil
import signal
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from tests.support.kafka.plant import KafkaPlant
from tests.support.kafka.workers import Worker, spawn
from tests.support.notify.hook import SECRET, Hook
from tests.support.notify.plant import receiver
from tests.support.ports import free_port
from tests.support.runtime.pipeline import CHANNELS

MODELS: dict[str, dict[str, Any]] = {"ensemble": {"effort": "quick"}, "mean_square": {"references": []}}
SAMPLES = 40
"""Samples of a sequence, and the window's length."""
ODD_SHARE = 0.05
N_NORMAL = 300
UNREADABLE_EVERY, LATE_EVERY = 500, 700
TOKEN = "soak"
STOP_S = YOUNG_S = 60.0
OWN = ("registry", "inliers", "view.sqlite3", "marks.jsonl")
"""What the spared learner, page and notices have of their own, under these names with ``spared-`` before them."""


# --- what the lines send ---------------------------------------------------------------------------------------------


class Sent(NamedTuple):
    """A message, and what it is to its sequence."""

    key: bytes
    value: bytes
    sequence: str = ""
    is_first: bool = False
    is_last: bool = False


class Line:
    """A stream: one sequence after the other, every twentieth of them odd from its middle on."""

    def __init__(self, name: str, number: int, seed: int) -> None:
        self.name = name
        self._number = number
        self._rng = random.Random(f"{seed} {name} {number}")
        self._at = 0
        self._wait = self._rng.randrange(SAMPLES)
        self._before = self._sequence = ""
        self._begin()

    @property
    def is_between(self) -> bool:
        """Whether no sequence is open."""
        return self._at == 0

    def messages(self, time_s: float) -> Iterator[Sent]:
        """Yield the next sample, seldom with one that cannot be read, or one of the sequence before."""
        if self._wait:  # not all lines begin at once
            self._wait -= 1
            return
        is_last = self._at == SAMPLES - 1
        yield self._sent(self._sequence, time_s, is_first=self._at == 0, is_last=is_last)
        if self._rng.random() < 1 / UNREADABLE_EVERY:
            yield Sent(self.name.encode(), b"{")
        if self._before and self._at > SAMPLES // 2 and self._rng.random() < 2 / LATE_EVERY:
            yield self._sent(self._before, time_s - SAMPLES)._replace(sequence="")
        self._at += 1
        if is_last:
            self._number += 1
            self._at = 0
            self._begin()

    def _begin(self) -> None:
        self._before, self._sequence = self._sequence, f"B-{self._number:06d}"
        self._level = self._rng.gauss(1.0, 0.05)
        self._is_odd = self._rng.random() < ODD_SHARE

    def _sent(self, sequence: str, time_s: float, *, is_first: bool = False, is_last: bool = False) -> Sent:
        message: dict[str, Any] = {"stream": self.name, "sequence": sequence, "time": round(time_s, 3)}
        message["values"] = reading(self._rng, self._at, self._level, is_odd=self._is_odd)
        if is_last:
            message["end"] = True
        return Sent(self.name.encode(), json.dumps(message).encode(), sequence, is_first, is_last)


def reading(rng: random.Random, at: int, level: float, *, is_odd: bool) -> dict[str, float]:
    """Return the readings at point ``at`` of a sequence; an odd one loses its way half through."""
    phase = math.pi * at / SAMPLES
    odd = 2.0 * (at - SAMPLES / 2) / SAMPLES if is_odd and at > SAMPLES // 2 else 0.0
    shapes = (math.sin(phase), math.cos(phase), phase / math.pi)
    values = [level * shape + rng.gauss(0.0, 0.05) + odd for shape in shapes]
    return dict(zip(CHANNELS, (round(value, 4) for value in values), strict=True))


# --- config, model and topics ----------------------------------------------------------------------------------------


class SoakPlant(KafkaPlant):
    """A plant with a fixed name, so that a later run goes on with it; ``streamad topics create`` makes its topics."""

    def __init__(self, folder: Path, bootstrap: str, hooks: Mapping[str, Hook], detector: str) -> None:
        options = {"session_timeout": "10s", "heartbeat_interval": "3s", "group": "soak.group"}
        options |= {"request_timeout": "40s", "transaction_timeout": "20s"}
        super().__init__(
            folder,
            bootstrap,
            partitions=4,
            options=options,
            with_events=True,
            sequences={"end": ["marker", "change"], "allowed_lateness": "1s"},
            window={"length": SAMPLES},
            model={"detector": detector, "keep": 2, "folds": 2, **MODELS[detector]},
            alerts={"false_alarm_rate": 0.02, "early": {"false_alarm_rate": 0.02}},
            learning={
                "process": "elsewhere",
                "schedule": "*/6 * * * *",
                "min_interval": "5m",
                "max_training": 300,
                "drift": {"false_events": 0.1},
            },
            run={"commit_interval": "500ms", "stop_timeout": "10s"},
            notify={"receivers": [receiver(hooks["notify"], "killed")]},
            web={"keep": "20m", "auth": {"token": {"file": "page.token"}}},
        )
        self.name, self.topic, self.group = "soak", "soak.samples", "soak.group"
        self._spared_hook = hooks["spared notify"]

    def write_config(self) -> None:
        """Write both configs, and the secrets that they name."""
        self.sections = {**self.sections, "sinks": {"status": f"kafka:///{self.output('status')}"}}  # type: ignore[arg-type]
        super().write_config()
        content = yaml.safe_load(self.config.read_text())
        content |= {"name": "soak-spared", "marks": "spared-marks.jsonl"}
        content["learning"]["store"] = "spared-inliers"
        content["model"]["registry"] = "spared-registry"
        content["web"]["view"] = "spared-view.sqlite3"
        content["notify"] = {"receivers": [receiver(self._spared_hook, "spared")]}
        (self.folder / "spared.yaml").write_text(yaml.safe_dump(content))
        (self.folder / "notify.secret").write_text(f"{SECRET}\n")
        (self.folder / "page.token").write_text(f"{TOKEN * 8}\n")

    def write_recordings(self) -> None:
        """Write normal sequences of the lines."""
        rng = random.Random(0)
        (self.folder / "normal").mkdir()
        with (self.folder / "normal" / "all.jsonl").open("w") as file:
            for number in range(N_NORMAL):
                level = rng.gauss(1.0, 0.05)
                for at in range(SAMPLES):
                    values = reading(rng, at, level, is_odd=False)
                    time_s = 1_767_225_600 + number * SAMPLES + at / 2
                    sample = {"stream": "n", "sequence": f"N-{number}", "time": time_s, "values": values}
                    file.write(json.dumps(sample | {"end": at == SAMPLES - 1}) + "\n")

    async def make_topics(self) -> None:
        """Create the topics of both configs; the spared learner begins with a copy of the first model."""
        shutil.copytree(self.folder / "registry", self.folder / "spared-registry")
        for words in (
            ("topics", "create", "--partitions", str(self.partitions)),
            ("topics", "create", "--config", "spared.yaml"),
        ):
            done = self.streamad(*words, timeout_s=600.0)
            assert done.returncode == 0, f"{words}: {done.stdout}{done.stderr}"


# --- processes -------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Part:
    """A process of the plant and its lives; a spared one has a single life."""

    name: str
    arguments: tuple[str, ...]
    environment: dict[str, str] = field(default_factory=dict)
    address: str = ""
    lives: list[Worker] = field(default_factory=list)

    @property
    def is_spared(self) -> bool:
        """Whether it is never killed."""
        return self.name.startswith("spared")

    @property
    def life(self) -> Worker:
        """The latest life."""
        return self.lives[-1]

    def start(self, plant: SoakPlant) -> None:
        """Start it, in a session of its own, by which its children are known."""
        log = plant.folder / f"{self.name.replace(' ', '-')}-{len(self.lives)}-{time.time():.0f}.log"
        environment = {**plant.environment(), "PYTHONFAULTHANDLER": "1", **self.environment}
        self.lives.append(spawn(self.name, self.arguments, plant.folder, log, environment, start_new_session=True))


def parts() -> list[Part]:
    """Return all processes of the plant, not started: the spared ones first."""
    made = []
    for spared, config in (("spared ", "spared.yaml"), ("", "plant.yaml")):
        metrics, page = f"127.0.0.1:{free_port()}", free_port()
        # Both workers judge by the same config, for they are one group.
        worker = ("run", "--config", "plant.yaml", "--quiet", "--instance", f"{spared}worker".replace(" ", "-"))
        made += [
            Part(f"{spared}worker", worker, {"STREAMAD_METRICS__LISTEN": metrics}, metrics),
            Part(f"{spared}learn", ("learn", "--config", config)),
            Part(f"{spared}web", ("web", "--config", config, "--port", str(page)), {}, f"127.0.0.1:{page}"),
            Part(f"{spared}notify", ("notify", "--config", config)),
        ]
    return made


async def stop(all_parts: list[Part]) -> dict[str, int]:
    """End all by SIGTERM; return the exit codes of those that did not end well.

    One that is still starting cannot end in good order yet.
    """
    young = {part.name for part in all_parts if time.time() - part.life.started_s < YOUNG_S}
    for part in all_parts:
        part.life.send(signal.SIGTERM)
    codes = {part.name: await _ended(part.life) for part in all_parts}
    return {name: code for name, code in codes.items() if code and (name not in young or code != -signal.SIGTERM)}


async def _ended(life: Worker) -> int:
    """Return the exit code of ``life``; one that does not end says where it is, and is aborted."""
    try:
        return await life.wait(STOP_S)
    except TimeoutError:
        life.send(signal.SIGABRT)
        code = await life.wait(STOP_S)
        print(f"{life.name} did not stop within {STOP_S} s:\n{life.said()[-10_000:]}", file=sys.stderr)
        return code
