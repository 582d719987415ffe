"""Trainings of a model as commands and the page ask for them and describe them."""

from __future__ import annotations

import msgspec

from streamad.learn.parts import registry_of
from streamad.learn.registry.registry import Registry
from streamad.learn.trainer.requests import (
    TrainingFailed,
    TrainingRequest,
    TrainingResult,
    post_request,
    posted_requests,
)
from streamad.learn.trainer.status import TrainingStatus, read_status
from streamad.outputs.stored import learning_of
from streamad.plant import Plant
from streamad.ranges import parse_time_us
from streamad.types import from_us

_PHASES = {
    "first": "first fit",
    "calibration": "calibrating",
    "final": "final fit",
    "proof": "proving",
    "comparison": "comparing",
}


def relearn_request(plant: Plant, since: str, what: str = "--since") -> TrainingRequest:
    """Return the request to train on what ended since ``since``, a time or how long ago; ``what`` names it in errors.

    Raises UsageError for a text that is no time.
    """
    now_us = plant.clock.now_us()
    since_us = parse_time_us(since, now_us, what)
    detail = f"streamad models relearn --since {since}"
    return TrainingRequest(reason="relearn", requested_us=now_us, since_us=since_us, detail=detail)


def relearn_by_monitor(plant: Plant, name: str, since: str, *, by: str | None = None) -> str:
    """Ask the running monitors of the model ``name`` to relearn; return what happens next, for people.

    ``by``: who asks on the page, noted with the request; None: a command.
    Raises UsageError without a section learning or for a text that is no time, RegistryError, OutputError.
    """
    learning_of(plant)
    request = relearn_request(plant, since, "since")
    if by is not None:
        request = msgspec.structs.replace(request, detail=f"asked for on the page by {by}")
    post_request(registry_of(plant), name, request)
    return f"model {name}: asked for {request_text(request)}; a running monitor takes it on"


def trainings_of(registry: Registry, name: str) -> dict[str, str]:
    """Return in words the running training, those asked for, and the last one. Raises RegistryError."""
    training = read_status(registry, name)
    asked = "; ".join(map(request_text, posted_requests(registry, name).values()))
    found = {"Training": training_text(training)}
    if asked:
        found["Asked for"] = f"{asked}; a running monitor takes it on"
    if training.last is not None:
        found["Last training"] = ended_text(training.last, training.last_ended_us)
    return found


def request_text(request: TrainingRequest) -> str:
    """Return why and from when on to train."""
    since = "" if request.since_us is None else f" from {from_us(request.since_us):%Y-%m-%d %H:%M:%S} UTC on"
    return f"{request.reason}{since}" + (f" ({request.detail})" if request.detail else "")


def training_text(training: TrainingStatus) -> str:
    """Return what is being trained, and how far it is."""
    if training.state == "idle":
        return "none is running"
    what = request_text(training.request) if training.request is not None else "it"
    if training.state == "interrupted":
        return f"{what} was interrupted and resumes with a running monitor"
    since = "" if training.started_us is None else f", since {from_us(training.started_us):%Y-%m-%d %H:%M:%S} UTC"
    where = f"process {training.pid} on {training.host}"
    return f"{what}: {progress_text(training)}{since} ({where})"


def ended_text(result: TrainingResult, ended_us: int | None) -> str:
    """Return when a training ended, and what it made."""
    when = "" if ended_us is None else f"{from_us(ended_us):%Y-%m-%d %H:%M:%S} UTC, "
    if isinstance(result, TrainingFailed):
        return f"{when}{result.request.reason}: {result.kind}: {result.error}"
    return f"{when}{result.request.reason}: version {result.version or '(none)'}: {result.reason}"


def progress_text(training: TrainingStatus) -> str:
    """Return phase, epoch and loss of a training."""
    phase = _PHASES.get(training.phase, training.phase)
    if training.phase == "proof":
        return f"{phase} that a new process can use the version"
    if training.phase == "comparison":
        return f"{phase}, step {training.epoch} of {training.n_epochs}"
    fit = f" {training.fit} of {training.n_fits}" if training.n_fits > 1 else ""
    epoch = f", epoch {training.epoch} of at most {training.n_epochs}" if training.n_epochs else ""
    loss = "" if training.loss is None else f", loss {training.loss:.4g}"
    return f"{phase}{fit}{epoch}{loss}"
