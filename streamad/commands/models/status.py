"""``streamad models status``: the running training, the next one, and the stored sequences."""

from __future__ import annotations

import time
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any

import typer
from cronsim import CronSim
from rich.console import Group
from rich.live import Live
from rich.text import Text

from streamad.commands.shared.console import ConfigOption, JsonOption, VisibleConsole, count, out, print_json, styled
from streamad.commands.shared.options import ModelOption
from streamad.commands.shared.plants import load_plant
from streamad.errors import StoreError, UsageError
from streamad.learn.parts import registry_of
from streamad.learn.process.state import cold_start_text
from streamad.learn.promotion.review import waiting_version
from streamad.learn.registry.approvals import approval_text, counted
from streamad.learn.registry.manifest import Manifest
from streamad.learn.store.records import Mark, TrainingRequest
from streamad.learn.trainer.status import TrainingStatus, read_status
from streamad.messages import Share
from streamad.outputs.stored import open_store, some_models, stored_models
from streamad.outputs.versions.training import asked_trainings, ended_text, request_text, training_text
from streamad.plant import Plant
from streamad.safe_text import one_line
from streamad.settings.learning import LearningSettings
from streamad.types import from_us

_REFRESH_S = 1.0
_LABEL = 12


def status(
    config: ConfigOption = Path("plant.yaml"),
    model: ModelOption = None,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Update every second, until Ctrl-C.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Print the running training, the next one, a version that waits for review, and the stored sequences.

    Example: streamad models status --watch
    """
    plant = load_plant(config)
    if watch and as_json:
        raise UsageError("--watch and --json contradict each other: leave one out")
    reports = _reports(plant, model)
    if as_json:
        print_json({"models": [report.as_dict() for report in reports]})
        return
    if not watch:
        out.print(_page(reports))
        return
    try:
        with Live(_page(reports), console=VisibleConsole(), auto_refresh=False) as live:
            while True:
                time.sleep(_REFRESH_S)
                live.update(_page(_reports(plant, model)), refresh=True)
    except KeyboardInterrupt:
        return


def _reports(plant: Plant, model: str | None) -> list[_Report]:
    return [_Report(plant, name) for name in some_models(plant, model)]


def _page(reports: list[_Report]) -> Group:
    if not reports:
        return Group(Text("no model yet: none is named in the config, none has versions or stored sequences"))
    return Group(*(line for report in reports for line in report.lines()))


class _Report:
    """The status of one model."""

    def __init__(self, plant: Plant, model: str) -> None:
        self.model = model
        registry = registry_of(plant)
        self.learning = plant.settings.learning
        self.champion = registry.current(model)
        self.n_versions = len(registry.versions(model))
        self.waiting = waiting_version(registry, model, self.champion)
        self.training: TrainingStatus = read_status(registry, model)
        self.asked: list[TrainingRequest] = asked_trainings(plant, model, self.training)
        self.now_us = plant.clock.now_us()
        self.store, self.marks, self.store_problem = _counts(plant, model)

    @property
    def n_marks_since(self) -> int:
        """Return how many marks were received after the decision on the version that waits; 0 if none does."""
        if self.waiting is None or self.waiting.decision is None:
            return 0
        decided_us = round(self.waiting.decision.decided_at.timestamp() * 1e6)
        return sum(mark.since_us > decided_us for mark in self.marks.values())

    @property
    def next_schedule(self) -> datetime | None:
        """Return when the schedule is due next, None without a schedule or without a model in service."""
        has_none = self.champion is None and self.waiting is None
        if self.learning is None or self.learning.schedule is None or has_none:
            return None
        return next(CronSim(self.learning.schedule, from_us(self.now_us)))

    def cold_start(self, unit: str = "") -> str | None:
        """Return the progress towards the first training, None if there is a model or no learning."""
        if self.champion is not None or self.learning is None:
            return None
        is_training = self.training.state == "running"
        return cold_start_text(self._n_stored, self.learning.first_training, is_training=is_training, unit=unit)

    @property
    def _n_stored(self) -> int:
        return self.store.get("accepted", 0) + self.store.get("reserve", 0)

    def as_dict(self) -> dict[str, Any]:
        """Return the status for machines; times RFC 3339, UTC."""
        training = self.training
        return {
            "model": self.model,
            "champion": self.champion,
            "versions": self.n_versions,
            "waits_for_review": None if self.waiting is None else _waiting_dict(self.waiting, self.n_marks_since),
            "learning": self.cold_start(),
            "state": training.state,
            "training": None if training.state == "idle" else _training_dict(training),
            "asked": self.asked,
            "last": training.last,
            "last_ended": _time(training.last_ended_us),
            "next_schedule": self.next_schedule,
            "store": self.store,
            "store_problem": self.store_problem,
        }

    def lines(self) -> list[Text]:
        """Return the status for people."""
        serves = f"{self.champion} in service" if self.champion else "no version in service"
        found = [styled((f"model {self.model}", "bold"), f": {serves}, {count(self.n_versions, 'version')}")]
        if self.learning is None:
            found += _line("learning", "off: the config has no section learning")
        elif (cold_start := self.cold_start("sequences")) is not None:
            found += _line("learning", cold_start)
        if self.waiting is not None and self.waiting.decision is not None:
            first, *more = f"{self.waiting.version} {self.waiting.decision.reason}".split("; ")
            more += [f"approved {approval_text(each)}" for each in counted(self.waiting)]
            found += _line("review", first)
            for part in more:
                found += _line("", part)
            if self.n_marks_since:
                marks, verb = count(self.n_marks_since, "mark"), "is" if self.n_marks_since == 1 else "are"
                found += _line("", f"{marks} since then {verb} not in it: the next training makes another one")
        if self.learning is None:
            return found
        found += _line("training", training_text(self.training))
        for request in self.asked:
            found += _line("asked for", f"{request_text(request)}; the learner takes it on")
        if self.training.last is not None:
            found += _line("last", f"{ended_text(self.training.last, self.training.last_ended_us)}")
        found += _line("next", self._next(self.learning))
        counts = ", ".join(f"{n} {share}" for share, n in self.store.items()) or "nothing yet"
        return found + _line("store", self.store_problem or counts)

    def _next(self, learning: LearningSettings) -> str:
        """Return the next training; before the first model, schedule and drift have no effect."""
        if self.champion is None and self.waiting is None:
            if self.training.state != "idle":
                return "as configured, once there is a model"
            if self._n_stored < learning.first_training:
                return f"the first model, once {learning.first_training} are stored"
            return "the first model is due when the learner works"
        due = self.next_schedule
        when = [] if due is None else [f"{due:%Y-%m-%d %H:%M} UTC by schedule"]
        others = [f"after {learning.after_inliers} new inliers"] if learning.after_inliers else []
        on_drift = ["on drift"] if learning.on_drift else []
        return ", or ".join([*when, *others, *on_drift]) or "only by `streamad models retrain`"


def _waiting_dict(waiting: Manifest, n_marks_since: int) -> dict[str, Any]:
    decision = waiting.decision
    assert decision is not None, "chosen by it"
    return {
        "version": waiting.version,
        "since": decision.decided_at,
        "reason": decision.reason,
        "marks_since": n_marks_since,
    }


def _training_dict(training: TrainingStatus) -> dict[str, Any]:
    plain = ("request", "attempt", "phase", "fit", "n_fits", "epoch", "n_epochs", "loss")
    return {
        **{name: getattr(training, name) for name in plain},
        "started": _time(training.started_us),
        "updated": _time(training.updated_us),
        "pid": training.pid,
        "host": training.host,
    }


def _counts(plant: Plant, model: str) -> tuple[dict[Share, int], Mapping[str, Mark], str | None]:
    """Return the counts of the model's store, operators' marks, and what is wrong with it."""
    if plant.settings.learning is None:
        return {}, {}, None
    try:
        if model not in stored_models(plant, model):
            return {}, {}, None
        store = open_store(plant, model)
        return store.counts(), store.marks(), None
    except StoreError as error:
        return {}, {}, str(error)


def _line(label: str, text: str) -> list[Text]:
    return [styled(f"{label:<{_LABEL}}{one_line(text)}")]


def _time(time_us: int | None) -> datetime | None:
    return None if time_us is None else from_us(time_us)
