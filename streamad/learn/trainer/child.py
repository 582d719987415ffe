"""One training process of a model, seen from the learner that starts it."""

from __future__ import annotations

import asyncio
import pickle
import signal
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from streamad.errors import ConfigError, Problem, RegistryError, StreamadError
from streamad.learn.parts import registry_of
from streamad.learn.store.records import TrainingRequest
from streamad.learn.trainer.process import Ended, Process
from streamad.learn.trainer.results import FailureKind, TrainingFailed, TrainingResult
from streamad.learn.trainer.status import read_status
from streamad.plant import Plant
from streamad.settings.plant_yaml import Settings
from streamad.telemetry.logs import get_logger

_COMMAND = (sys.executable, "-m", "streamad.learn.trainer")


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainerSpec:
    """One training, pickled for the process that does it; secrets are in ``settings`` only as their places."""

    settings: Settings
    base_dir: Path
    model: str
    request: TrainingRequest


def _pickled(spec: TrainerSpec) -> bytes:
    try:
        return pickle.dumps(spec)
    except (pickle.PicklingError, TypeError, AttributeError, RecursionError) as error:
        message = f"hold a value that cannot be passed to the training process: {error}"
        raise ConfigError([Problem("options of the source, the sinks or the model", message)]) from error


class Child:
    """Trains the model ``model`` in a process of its own, one training at a time.

    ``grace_s``: how long a training may take to save its state when it is ended. Use it inside one running event loop.
    """

    def __init__(self, plant: Plant, model: str, *, grace_s: float = 10.0, command: Sequence[str] = _COMMAND) -> None:
        self._plant = plant
        self._model = model
        self._registry = registry_of(plant)
        self._grace_s = grace_s
        self._command = command
        self._process: Process | None = None
        self._ended = asyncio.Event()
        self._closed = False

    @property
    def pid(self) -> int | None:
        """Return the process id of the training that runs, None if none does."""
        return None if self._process is None else self._process.pid

    async def train(self, request: TrainingRequest) -> TrainingResult:
        """Train and return the result; a process that cannot be started or ends without a result is a failure."""
        self._ended.clear()
        try:
            return await self._result(request)
        finally:
            self._process = None
            self._ended.set()

    async def close(self) -> None:
        """End the process: it saves its state, and the next training with its request resumes; then it is killed."""
        self._closed = True
        for number in (signal.SIGTERM, signal.SIGKILL):
            if self._process is not None:
                self._process.send(number)
                waiting = asyncio.ensure_future(self._ended.wait())
                await asyncio.wait({waiting}, timeout=self._grace_s)
                waiting.cancel()

    async def _result(self, request: TrainingRequest) -> TrainingResult:
        learning = self._plant.settings.learning
        spec = TrainerSpec(
            settings=self._plant.settings,
            base_dir=self._plant.base_dir.absolute(),
            model=self._model,
            request=request,
        )
        try:
            process = await Process.start(
                self._command, _pickled(spec), learning.threads if learning is not None else 1
            )
        except StreamadError as error:
            return self._failed(request, " ".join(str(error).split()))
        except OSError as error:
            return self._failed(request, f"cannot start the training process: {error.strerror or error}")
        self._process = process
        if self._closed:  # while it was started: it has done nothing that could be lost
            process.send(signal.SIGKILL)
        ended = await process.ended()
        if ended.errors:
            get_logger().debug("the trainer wrote", model=self._model, text=ended.errors)
        try:
            result: TrainingResult = msgspec.json.decode(ended.output, type=TrainingResult)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return await asyncio.to_thread(self._failure_of, request, ended)
        return result

    def _failure_of(self, request: TrainingRequest, ended: Ended) -> TrainingFailed:
        """Return the failure of a process that ended without a result."""
        try:
            status = read_status(self._registry, self._model)
            resumes = status.state == "interrupted" and status.request == request
        except RegistryError:
            resumes = False
        if self._closed and ended.code < 0:
            then = ": it resumes at the next start" if resumes else " before it had begun"
            return self._failed(request, f"the training was interrupted{then}", "interrupted")
        by = f"was killed by signal {-ended.code}" if ended.code < 0 else f"ended with exit code {ended.code}"
        lines = ended.errors.strip().splitlines()
        text = f"the training process {by}" + (f": {lines[-1][:300]}" if lines else "")
        if resumes:
            return self._failed(request, f"{text}; it is started again", "interrupted")
        return self._failed(request, text)

    def _failed(self, request: TrainingRequest, error: str, kind: FailureKind = "failed") -> TrainingFailed:
        return TrainingFailed(model=self._model, error=error, request=request, kind=kind)
