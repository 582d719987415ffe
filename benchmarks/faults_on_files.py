"""Faults on files: SIGKILL hits ``streamad run`` again and again while a folder of joined files grows.

Between two lives the newest file grows by some messages, or a new one begins. A life is killed during its start, or
after some of its commits; one that ends before that is no kill. With ``--early`` it follows the files, which grow
piece by piece while it lives, so that it looks at sequences that run. After each kill, no attribution may be there
without its alert, and no verdict without the warning that it names. At the end, the outputs must be those of one
undisturbed run.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from benchmarks.faults_attributions import attribution_figures
from benchmarks.faults_learning import Learned
from benchmarks.faults_operating import Operated
from benchmarks.faults_warnings import named_in, warning_figures
from streamad.messages import Role
from streamad.system.output_files import output_files
from tests.support.kafka.plant import LOOKING, ROLES, difference_of
from tests.support.kafka.workers import ForkServer, Worker
from tests.support.runtime.pipeline import (
    CHANNELS,
    HOLDING,
    IN_LISTS,
    WHILE,
    L,
    in_forms,
    line,
    messy_recordings,
)

STREAMS = 40
MESSAGES_PER_KILL = 300
MESSAGES_PER_SEQUENCE = 4.6
AT_START_SHARE = 0.2
NEW_FILE_SHARE = 0.15
AHEAD = 10  # messages for so many lives wait in the files
PIECES = 6
PIECE_S = 0.4  # enough for looks, which wait until nothing is being judged
END_S = 600.0
WINDOWS = "out/windows.jsonl?rotate=20kB"  # goes to another file some hundred times


class FilePlant:
    """A folder with plant.yaml, recordings that grow, and a model."""

    def __init__(
        self, folder: Path, forks: ForkServer, model: dict[str, Any], sections: Mapping[str, Any] | None = None
    ) -> None:
        self.folder = folder
        self._sections = dict(sections or {})
        self._forks = forks
        self._n_files = 0
        self.lives: list[Worker] = []
        (folder / "in").mkdir(parents=True)
        self.config(model, at_end="hold")
        self._model = model

    @property
    def roles(self) -> tuple[Role, ...]:
        """The roles of its outputs."""
        return ("warnings", *ROLES) if "early" in self._sections.get("alerts", {}) else ROLES

    @property
    def follows(self) -> bool:
        """Return whether lives go on with what is appended."""
        return "warnings" in self.roles

    def config(self, model: dict[str, Any], *, at_end: str) -> None:
        """Write plant.yaml."""
        end: dict[str, Any] = {"at_end": at_end}
        if self.follows and at_end == "hold":
            end = {"follow": True, "follow_interval": "10ms"}
        content: dict[str, Any] = {
            "channels": [{"name": name} for name in CHANNELS],
            "source": {"url": "in/*.jsonl", "options": {"files": "joined", **end}},
            "sequences": {"end": ["marker", "change"], "allowed_lateness": "3s"},
            "window": {"length": L, "min_samples": 1},
            "model": {"recordings": "normal.jsonl", "registry": "../registry", "folds": 2, "device": "cpu", **model},
            "sinks": {role: f"out/{role}.jsonl" for role in self.roles} | {"windows": WINDOWS},
            "run": {
                "commit_interval": "1ms",
                "batch_wait": "1ms",
                "batch_windows": 4,
                "stop_timeout": "5s",
                # No silence of a source that is followed ends anything: an undisturbed run waits at other places.
                "outage_after": "1ms",
            },
            **self._sections,
        }
        whole = self.folder / "plant.yaml.new"  # streamad notify may be reading it
        whole.write_text(yaml.safe_dump(content))
        whole.rename(self.folder / "plant.yaml")

    def grow(self, messages: Sequence[bytes], *, begin: bool) -> None:
        """Append ``messages`` to the newest file, or begin one with them."""
        self._n_files += begin or not self._n_files
        with (self.folder / "in" / f"day-{self._n_files}.jsonl").open("ab") as file:
            file.write(b"".join(message + b"\n" for message in messages))

    def start(self, *command: str) -> Worker:
        """Start a life; it has a log of its own."""
        log = self.folder / f"life-{len(self.lives)}.log"
        worker = self._forks.start("life", [*command, "--config", "plant.yaml"], self.folder, log)
        self.lives.append(worker)
        return worker

    def run(self) -> Worker:
        """Start ``streamad run``."""
        return self.start("-vv", "run", "--quiet")

    async def finish(self) -> None:
        """Judge what is left, open sequences as well. Raises SystemExit."""
        self.config(self._model, at_end="judge")
        await self.through(self.run())

    async def through(self, worker: Worker) -> None:
        """Wait for the end of ``worker``. Raises SystemExit if it fails."""
        if await worker.wait(END_S):
            raise SystemExit(f"a life ended by itself: {worker.said()[-3000:]}")

    async def train(self) -> None:
        """Train the model on quiet sequences."""
        rng = random.Random(0)
        spans = [(f"n-{i}", [10.0 * i + j for j in range(6)]) for i in range(60)]
        quiet = [line("n", name, times, rng.uniform(0.7, 1.3), end=True) for name, times in spans]
        states = "while" in self._sections.get("sequences", {})
        quiet = in_forms(quiet, 0, lists=self._sections.get("decode") == IN_LISTS, states=states)
        (self.folder / "normal.jsonl").write_bytes(b"".join(text + b"\n" for text in quiet))
        await self.through(self.start("train"))

    def explained(self) -> tuple[set[str], list[str]]:
        """Return the ids of the alerts in the outputs, and those of the attributions, as any reader finds them."""
        return set(self._ids("alerts")), self._ids("attributions")

    def warned(self) -> tuple[set[str], set[str]]:
        """Return the ids of the warnings in the outputs, and those that verdicts name, as any reader finds them."""
        named = {named_in(verdict) for verdict in self._whole("verdicts")}
        return {warning["warning_id"] for warning in self._whole("warnings")}, {name for name in named if name}

    def _ids(self, role: Role) -> list[str]:
        return [message["alert_id"] for message in self._whole(role) if "alert_id" in message]

    def _whole(self, role: Role) -> list[dict[str, Any]]:
        return [json.loads(text) for text in self._lines(role) if text.endswith("}")]  # a kill may leave half a line

    def outputs(self) -> dict[Role, list[dict[str, Any]]]:
        """Return what was written, less what depends on the wall clock."""
        return {role: [_plain(text) for text in self._lines(role)] for role in self.roles}

    def _lines(self, role: Role) -> list[str]:
        files = output_files(self.folder / "out" / f"{role}.jsonl")
        return [line for file in files for line in file.path.read_text().splitlines()]


def _plain(text: str) -> dict[str, Any]:
    message: dict[str, Any] = json.loads(text)
    message.pop("created_at", None)
    if message.get("kind") == "clock_skew":  # says how far ahead of the file
        message.pop("error")
    return message


@dataclass(slots=True)
class Kills:
    """Lets a plant's files grow and kills its lives."""

    plant: FilePlant
    rng: random.Random
    deadline_s: float
    counted: Counter[str] = field(default_factory=Counter)
    start_s: float = 1.0
    early: set[str] = field(default_factory=set)
    unwarned: set[str] = field(default_factory=set)

    async def run(self, messages: list[bytes], n: int) -> None:
        """Kill ``n`` times; all ``messages`` are in files at the end. Raises TimeoutError."""
        first = self.plant.run()
        await first.until_logged("committed")
        self.start_s = time.time() - first.started_s
        first.end()
        while self.counted["kills"] < n:
            if time.monotonic() > self.deadline_s:
                raise TimeoutError(f"{self.counted['kills']} of {n} kills in the time that there was: see --limit-s")
            share = len(messages) // max(1, n - self.counted["kills"])
            new = [messages.pop() for _ in range(min(len(messages), share))]
            pieces = [new]
            if self.plant.follows:
                size = max(1, -(-len(new) // PIECES))
                pieces = [new[first : first + size] for first in range(0, len(new), size)] or [[]]
            self._grow(pieces.pop(0))
            await self._kill(self.plant.run(), pieces)
            for piece in pieces:
                self.plant.grow(piece, begin=False)
        self._grow(messages[::-1])

    def _grow(self, messages: list[bytes]) -> None:
        begins = self.rng.random() < NEW_FILE_SHARE
        self.counted["files"] += begins
        self.plant.grow(messages, begin=begins)

    async def _kill(self, worker: Worker, pieces: list[list[bytes]]) -> None:
        """Kill ``worker``; while it lives, the newest file grows by some of the ``pieces``, which are removed."""
        at_start = self.rng.random() < AT_START_SHARE
        if at_start:
            await asyncio.sleep(self.rng.random() * self.start_s)
        elif pieces:
            await worker.until_logged("committed")
            for _ in range(self.rng.randrange(1, len(pieces) + 1)):
                self.plant.grow(pieces.pop(0), begin=False)
                await asyncio.sleep(PIECE_S)
            await asyncio.sleep(self.rng.random() * 0.1)
        else:
            await worker.until_logged("committed", self.rng.randrange(1, 6))
            await asyncio.sleep(self.rng.random() * 0.1)
        if not worker.is_running:
            await self.plant.through(worker)
            self.counted["lives_that_ended_before"] += 1
            return
        worker.kill()
        self.counted["kills"] += 1
        self.counted["kills_before_a_commit"] += worker.n_commits == 0
        warnings: set[str] = set()
        if "warnings" in self.plant.roles:
            warnings, named = self.plant.warned()
            self.unwarned |= named - warnings
            self.counted["kills_after_a_warning"] += bool(warnings - named)
        alerts, explained = self.plant.explained()
        self.early |= set(explained) - alerts - warnings
        self.counted["kills_with_open_debts"] += bool(alerts - set(explained))
        if self.counted["kills"] % 10 == 0:
            print(f"{self.counted['kills']} kills", file=sys.stderr)


async def measure(options: argparse.Namespace, model: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Return the figures that ``--json`` prints."""
    started_s = time.monotonic()
    forks = ForkServer(*(("torch",) if options.detector == "neutral_ad" or options.early else ()))
    with ExitStack() as stack:
        operated = None
        if options.operate:
            operated = stack.enter_context(Operated(folder / "plant", forks, random.Random(options.seed)))
        learned = None
        if options.learn:
            learned = stack.enter_context(Learned(folder / "plant", forks, random.Random(options.seed + 1)))
        figures = await _measure(options, model, folder, forks, operated=operated, learned=learned)
    return {**figures, "wall_s": round(time.monotonic() - started_s, 1)}


async def _measure(
    options: argparse.Namespace,
    model: dict[str, Any],
    folder: Path,
    forks: ForkServer,
    *,
    operated: Operated | None,
    learned: Learned | None,
) -> dict[str, Any]:
    deadline_s = time.monotonic() + options.limit_s
    sections: dict[str, Any] = {}
    if operated is not None:
        sections = {"metrics": {"listen": operated.listen("life")}, "notify": operated.notify()}
    if learned is not None:
        sections["learning"] = learned.section()
    forms: dict[str, Any] = {"channels": HOLDING} if options.hold else {}
    forms |= {"decode": IN_LISTS} if options.each else {}
    forms |= {"sequences": {"allowed_lateness": "3s", **WHILE}} if options.states else {}
    if options.early:
        forms |= {"alerts": LOOKING}
    sections |= forms
    plant = FilePlant(folder / "plant", forks, model, sections)
    await plant.train()
    n_sequences = max(2, round((options.kills + AHEAD) * MESSAGES_PER_KILL / STREAMS / MESSAGES_PER_SEQUENCE))
    names = [f"s{number}" for number in range(STREAMS)]
    messages = messy_recordings(options.seed, streams=names, sequences=n_sequences)
    messages = in_forms(messages, options.seed, holds=options.hold, lists=options.each, states=options.states)
    first = messages[: AHEAD * MESSAGES_PER_KILL]
    plant.grow(first, begin=True)
    kills = Kills(plant, random.Random(options.seed), deadline_s)
    try:
        if operated is not None:
            operated.begin()
        if learned is not None:
            learned.begin()
        await kills.run(messages[: len(first) - 1 : -1], options.kills)
        await plant.finish()
        if operated is not None:
            await operated.finish(plant.explained()[0], options.kills, END_S)
        if learned is not None:
            await learned.finish()
    finally:
        for life in plant.lives:
            life.end()
    same = {name: section for name, section in sections.items() if name in (*forms, "learning")}
    undisturbed = FilePlant(folder / "undisturbed", forks, model, same)
    for file in sorted((plant.folder / "in").iterdir()):
        (undisturbed.folder / "in" / file.name).write_bytes(file.read_bytes())
    await undisturbed.finish()
    expected = undisturbed.outputs()
    found = plant.outputs()
    difference = difference_of(expected, found, numbers=options.detector == "mean_square")
    if not difference.is_none:
        print(f"not as an undisturbed run: {difference}", file=sys.stderr)
    return {
        "detector": options.detector,
        "files": kills.counted["files"] + 1,
        "sequences": len(expected["verdicts"]),
        "messages": sum(len(expected[role]) for role in expected),
        **difference.counts,
        **attribution_figures(
            expected["alerts"],
            found["attributions"],
            before_their_alert=len(kills.early),
            kills_with_debts=kills.counted["kills_with_open_debts"],
        ),
        **(
            warning_figures(
                expected["warnings"],
                found,
                after_their_verdict=len(kills.unwarned),
                kills_after_a_warning=kills.counted["kills_after_a_warning"],
            )
            if options.early
            else {}
        ),
        "kills": kills.counted["kills"],
        "kills_before_a_commit": kills.counted["kills_before_a_commit"],
        "lives_that_ended_before": kills.counted["lives_that_ended_before"],
        **({} if operated is None else operated.figures(plant.explained()[0])),
        **({} if learned is None else learned.figures(found["windows"])),
    }


def run(options: argparse.Namespace, model: dict[str, Any]) -> dict[str, Any]:
    """Measure in a folder of this run."""
    with tempfile.TemporaryDirectory() as folder:
        return asyncio.run(measure(options, model, Path(folder)))
