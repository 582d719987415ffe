"""The decisions of a worker: which config and which versions judge, recorded in the commits that begin with them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from datetime import datetime

import msgspec

from streamad.decisions.chain import Head, head_of, linked
from streamad.decisions.in_service import InService, config_of
from streamad.decisions.recording import Actor, stored
from streamad.messages import DecisionEntry, ModelRef, OutputRecord
from streamad.partition_progress import Logged
from streamad.plant import Plant
from streamad.settings.places import sink_urls


class Journal:
    """The chain of one writer in commits: one entry when its verdicts begin to come from another config or version.

    A pure function of the verdicts: a commit that is tried again after ``logged`` was restored has the same entries.
    """

    def __init__(self, writer: str, config: InService, logged: Logged) -> None:
        self.writer = writer
        self.logged = logged
        """What the last commit that was begun has recorded: part of its progress."""
        self._actor = Actor(writer, "streamad", "program")
        self._config = config

    def entries(self, models: Iterable[tuple[ModelRef, str]], at: datetime) -> list[OutputRecord]:
        """Return the records that a commit at ``at`` has of verdicts by ``models``, each with its digest.

        The config counts with the first verdict.
        """
        found: list[OutputRecord] = []
        for model, digest in models:
            config = f"{self._config.digest} {self._config.release}"
            if self.logged.config != config:
                details = {"file": self._config.file, "release": self._config.release}
                before = self.logged.config.partition(" ")[0]
                self._take(found, at, "config", self._config.digest, **details, before=before)
                self.logged = msgspec.structs.replace(self.logged, config=config)
            serves = f"{model.version} {digest}"
            if self.logged.models.get(model.name) != serves:
                self._take(found, at, "model", f"{model.name} {model.version}", digest=digest)
                models_now = {**self.logged.models, model.name: serves}
                self.logged = msgspec.structs.replace(self.logged, models=models_now)
        return found

    def _take(self, found: list[OutputRecord], at: datetime, kind: str, subject: str, **details: str) -> None:
        decided = self._actor.decides(kind, subject, **details)
        entry = linked(decided, self.writer, Head(self.logged.number, self.logged.hash), at)
        self.logged = msgspec.structs.replace(self.logged, number=entry.number, hash=entry.hash)
        found.append(OutputRecord("decisions", self.writer, entry))


class Journals:
    """The journals of a worker: of each partition where a commit is a transaction of its own, else one for all.

    Each goes on where the partition's progress says, else from its last entry in the place.
    """

    def __init__(self, plant: Plant, config: InService, *, of_partitions: bool) -> None:
        self._plant = plant
        self._config = config
        self._of_partitions = of_partitions
        self._shared: Journal | None = None
        self._opening = asyncio.Lock()

    async def of(self, partition: str, logged: Logged | None) -> Journal:
        """Return the journal of a partition that was restored with ``logged``. Raises OutputError."""
        name = f"{self._plant.settings.name}/worker"
        if self._of_partitions:
            writer = f"{name}/{partition}"
            return Journal(writer, self._config, logged or await self._last(writer))
        async with self._opening:  # its writer has cut the place back to the last commit before
            if self._shared is None:
                self._shared = Journal(name, self._config, await self._last(name))
        return self._shared

    async def _last(self, writer: str) -> Logged:
        url = sink_urls(self._plant.settings)["decisions"]
        logged = Logged()
        async for entry in stored(self._plant, url, writer):
            logged = logged_with(logged, entry)
        return logged


def logged_with(logged: Logged, entry: DecisionEntry) -> Logged:
    """Return what is recorded once ``entry`` is, its writer's next one after ``logged``."""
    number, hash_ = head_of(entry)
    config, models, details = logged.config, logged.models, entry.details
    if entry.kind == "config":
        config = f"{entry.subject} {details.get('release', '')}"
    elif entry.kind == "model":
        name, _, number_of = entry.subject.rpartition(" ")
        models = {**models, name: f"{number_of} {details.get('digest', '')}"}
    return Logged(number=number, hash=hash_, config=config, models=models)


def journals_for(plant: Plant, *, of_partitions: bool) -> Journals | None:
    """Return the journals of a worker, None without ``sinks.decisions``."""
    if "decisions" not in sink_urls(plant.settings):
        return None
    return Journals(plant, config_of(plant), of_partitions=of_partitions)
