"""Trainings of a model as commands and the page ask for them and describe them."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from uuid import uuid4

from streamad.decisions.recording import Actor
from streamad.errors import StoreError
from streamad.learn.parts import registry_of
from streamad.learn.store.records import TrainingRequest
from streamad.learn.trainer.results import TrainingFailed, TrainingResult
from streamad.learn.trainer.status import TrainingStatus, read_status
from streamad.messages import Request
from streamad.outputs.marks.place import send_feedback
from streamad.outputs.stored import learning_of, open_store, stored_models
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


def training_request(
    plant: Plant, name: str, since: str | None = None, *, what: str = "--since", by: str = "", note: str = ""
) -> Request:
    """Return the message that asks the learner to train the model ``name``; with ``since`` to relearn from then on.

    ``since``: a time or how long ago; ``what`` names it in errors. Raises UsageError without a section learning, or for
    a text that is no time.
    """
    learning_of(plant)
    now_us = plant.clock.now_us()
    since_us = None if since is None else parse_time_us(since, now_us, what)
    return Request(
        request_id=uuid4().hex,
        action="retrain" if since_us is None else "relearn",
        model=name,
        since=None if since_us is None else from_us(since_us),
        by=by,
        note=note,
        created_at=from_us(now_us),
    )


def ask_to_relearn(plant: Plant, name: str, since: str, *, by: Actor) -> str:
    """Ask the learner to relearn the model ``name``, for a person on the page; return what happens next, for people.

    Raises UsageError without a section learning or for a text that is no time, and if the message cannot be written
    PluginError, ConfigError, OutputError.
    """
    request = training_request(plant, name, since, what="since", by=by.who, note="asked for on the page")
    asyncio.run(send_feedback(plant, [request], by))
    return f"model {name}: asked for; the learner takes it on"


def asked_trainings(plant: Plant, name: str, training: TrainingStatus) -> list[TrainingRequest]:
    """Return the requests that the learner has read and not begun; none if its store is on another machine.

    ``training``: the status of the model. A request whose training has ended stays in the store until the next one.
    """
    begun = {None if training.request is None else training.request.id}
    begun.add(None if training.last is None else training.last.request.id)
    with suppress(StoreError):
        if name in stored_models(plant):
            return [each for each in open_store(plant, name).requests() if each.id not in begun]
    return []


def trainings_of(plant: Plant, name: str) -> dict[str, str]:
    """Return in words the running training, those asked for, and the last one. Raises RegistryError."""
    training = read_status(registry_of(plant), name)
    found = {"Training": training_text(training)}
    if asked := asked_trainings(plant, name, training):
        found["Asked for"] = f"{'; '.join(map(request_text, asked))}; the learner takes it on"
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
        return f"{what} was interrupted and resumes with the learner"
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
