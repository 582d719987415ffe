"""The progress of a model's training, and the result of the last one: what ``streamad models status`` shows."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal

import msgspec

from streamad.errors import OutputError, RegistryError
from streamad.learn.registry.registry import Registry
from streamad.learn.store.records import TrainingRequest
from streamad.learn.trainer.results import TrainingResult
from streamad.learn.training.fits import FitStep
from streamad.ports import Clock
from streamad.system.files import write_atomically
from streamad.system.locks import is_locked
from streamad.system.opening import read_state
from streamad.system.rights import reason
from streamad.system.untrusted_json import decode_json
from streamad.types import UnixUs

_WRITE_EVERY_S = 1.0


def lock_of(training: Path) -> Path:
    """Return the lock that a training process holds from its beginning to its end, however that comes."""
    return training / "lock"


class TrainingStatus(msgspec.Struct, frozen=True, kw_only=True):
    """State of the training of one model; times in Unix microseconds.

    ``idle``: none runs; the fields of a running one are those of the last. ``interrupted``: its process was stopped or
    has died, and the learner will resume it. ``last`` and ``last_ended_us`` belong to the last training that ended
    with a result. ``phase``: preparing, then those of ``FitStep``.
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
    started_us: UnixUs | None = None
    updated_us: UnixUs | None = None
    pid: int | None = None
    host: str | None = None
    last: TrainingResult | None = None
    last_ended_us: UnixUs | None = None


def read_status(registry: Registry, name: str) -> TrainingStatus:
    """Return the status of the model ``name``, trained or not. Raises RegistryError."""
    training = registry.training_folder(name)
    try:
        was_locked = is_locked(lock_of(training))
        status = written_status(training)
        if status.state == "running" and not was_locked and not is_locked(lock_of(training)):
            return msgspec.structs.replace(status, state="interrupted")
    except OSError as error:
        raise RegistryError(f"cannot read {training}: {reason(error, training, 'read')}") from error
    return status


def written_status(training: Path) -> TrainingStatus:
    """Return the status that was written last, ``idle`` if none is readable; that of a dead trainer may be ``running``.

    Raises RegistryError.
    """
    try:
        return decode_json(read_state(training / "status.json"), TrainingStatus)
    except (FileNotFoundError, msgspec.DecodeError):
        return TrainingStatus()
    except OSError as error:
        raise RegistryError(
            f"cannot read the training status in {training}: {reason(error, training, 'read')}"
        ) from error


def progress_of(status: TrainingStatus, pid: int | None) -> str:
    """Return the progress of the training process ``pid`` as a short text; ``status`` may still be a former one's."""
    if status.state != "running" or status.pid is None or status.pid != pid:
        return "training, starting"
    fit = f", fit {status.fit}/{status.n_fits}" if status.n_fits > 1 else ""
    epoch = f", epoch {status.epoch} of at most {status.n_epochs}" if status.n_epochs else ""
    return f"training{fit}{epoch}"


class StatusWriter:
    """Writes the status of one training: progress at most once a second, the rest at once.

    Its creation writes ``status`` and may raise OutputError.
    """

    def __init__(
        self,
        training: Path,
        status: TrainingStatus,
        clock: Clock,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._path = training / "status.json"
        self._status = status
        self._clock = clock
        self._monotonic = monotonic
        self._written_s = monotonic()
        for left in training.glob(".status.json.*.tmp"):  # of killed or long stopped trainers
            with suppress(OSError):
                left.unlink()
        self._write()

    def on_step(self, step: FitStep) -> None:
        """Write an epoch; if that fails, the training continues."""
        now_s = self._monotonic()
        if now_s - self._written_s < _WRITE_EVERY_S and step.phase == self._status.phase:
            return
        self._written_s = now_s
        epoch = step.step
        fields = {"phase": step.phase, "fit": step.fit, "n_fits": step.n_fits, "loss": epoch.loss}
        with suppress(OutputError):
            self._write(**fields, epoch=epoch.epoch, n_epochs=epoch.n_epochs)

    def interrupted(self) -> None:
        """Write that the training resumes later; if that fails, the lock of the ended process shows the same."""
        with suppress(OutputError):
            self._write(state="interrupted")

    def ended(self, result: TrainingResult) -> None:
        """Write the result. Raises OutputError."""
        now_us = self._clock.now_us()
        self._write(state="idle", last=result, last_ended_us=now_us)

    def _write(self, **changes: Any) -> None:
        self._status = msgspec.structs.replace(self._status, **changes, updated_us=self._clock.now_us())
        write_atomically(self._path, msgspec.json.encode(self._status), is_state=True)
