"""How far the training of a model is, and how the last one ended: what ``streamad models status`` shows."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal

import msgspec

from streamad.errors import OutputError, RegistryError
from streamad.learn.registry.registry import Registry
from streamad.learn.trainer.lease import LeaseRecord, is_held, read_record, status_path
from streamad.learn.trainer.requests import TrainingRequest, TrainingResult
from streamad.learn.training.fits import FitStep
from streamad.ports import Clock
from streamad.system.files import write_atomically
from streamad.system.untrusted_json import decode_json

_READS = 3
_WRITE_EVERY_S = 1.0


class TrainingStatus(msgspec.Struct, frozen=True, kw_only=True):
    """State of the training of one model; times in Unix microseconds.

    ``idle``: nothing is being trained; the fields of a running one are those of the last. ``interrupted``: its process
    was stopped or has died, and a worker will take it up again. ``last``, ``last_started_us`` and ``last_ended_us`` are
    of the last training that came to an end. ``phase``: preparing, then those of ``FitStep``.
    """

    state: Literal["idle", "running", "interrupted"] = "idle"
    request: TrainingRequest | None = None
    attempt: int = 0
    phase: str = ""
    fit: int = 0
    n_fits: int = 0
    epoch: int = 0
    n_epochs: int = 0
    loss: float | None = None
    started_us: int | None = None
    updated_us: int | None = None
    pid: int | None = None
    host: str | None = None
    last: TrainingResult | None = None
    last_started_us: int | None = None
    last_ended_us: int | None = None


def read_status(registry: Registry, name: str) -> TrainingStatus:
    """Return the status of the model ``name``, whether it was ever trained or not. Raises RegistryError."""
    training = registry.training_folder(name)
    status = TrainingStatus()
    for _ in range(_READS):  # a new holder may remove the former one's file in between
        record = read_record(training)
        if record is None:
            return status
        running = is_held(training, record)
        found = written_status(training, record)
        if found is not None:
            return found if running or found.state != "running" else msgspec.structs.replace(found, state="interrupted")
    return status


def written_status(training: Path, record: LeaseRecord) -> TrainingStatus | None:
    """Return what a holder wrote last, None where nothing readable is there; a dead one may still say running."""
    try:
        return decode_json(status_path(training, record.token).read_bytes(), TrainingStatus)
    except (FileNotFoundError, msgspec.DecodeError):
        return None
    except OSError as error:
        raise RegistryError(f"cannot read the training status in {training}: {error.strerror}") from error


class StatusWriter:
    """Writes the status of one training to the holder's own file: progress at most once a second, the rest at once."""

    def __init__(
        self, path: Path, status: TrainingStatus, clock: Clock, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._path = path
        self._status = status
        self._clock = clock
        self._monotonic = monotonic
        self._written_s = monotonic()

    def on_step(self, step: FitStep) -> None:
        """Tell of an epoch; where that cannot be written, the training goes on all the same."""
        now_s = self._monotonic()
        if now_s - self._written_s < _WRITE_EVERY_S and step.phase == self._status.phase:
            return
        self._written_s = now_s
        epoch = step.step
        with suppress(OutputError):
            self._write(
                phase=step.phase,
                fit=step.fit,
                n_fits=step.n_fits,
                epoch=epoch.epoch,
                n_epochs=epoch.n_epochs,
                loss=epoch.loss,
            )

    def interrupted(self) -> None:
        """Say that the training goes on later; where that cannot be written, the lock of the dead process says so."""
        with suppress(OutputError):
            self._write(state="interrupted")

    def ended(self, result: TrainingResult) -> None:
        """Say how it ended. Raises OutputError."""
        now_us = self._clock.now_us()
        self._write(state="idle", last=result, last_started_us=self._status.started_us, last_ended_us=now_us)

    def begin(self) -> None:
        """Write the status it began with. Raises OutputError."""
        self._write()

    def _write(self, **changes: Any) -> None:
        self._status = msgspec.structs.replace(self._status, **changes, updated_us=self._clock.now_us())
        write_atomically(self._path, msgspec.json.encode(self._status))
