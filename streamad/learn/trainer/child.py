"""One training process of a model, seen from the learner that starts it."""

from __future__ import annotations

import asyncio
import os
import pickle
import signal
import sys
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryFile

import msgspec

from streamad.errors import RegistryError
from streamad.learn.parts import registry_of
from streamad.learn.store.records import TrainingRequest
from streamad.learn.trainer.results import FailureKind, TrainingFailed, TrainingResult
from streamad.learn.trainer.status import read_status
from streamad.plant import Plant
from streamad.settings.plant_yaml import Settings
from streamad.telemetry.logs import get_logger

_COMMAND = (sys.executable, "-m", "streamad.learn.trainer")
_KEPT_BYTES = 20_000
_THREAD_VARIABLES = (
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
)


def environment_of(threads: int) -> dict[str, str]:
    """Return this process's environment with ``threads`` for all numeric libraries."""
    return {**os.environ, **dict.fromkeys(_THREAD_VARIABLES, str(threads))}


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainerSpec:
    """One training, pickled for the process that does it; secrets are in ``settings`` only as their places."""

    settings: Settings
    base_dir: Path
    model: str
    request: TrainingRequest


class Child:
    """Trains the model ``model`` in a process of its own, one training at a time.

    Use it inside one running event loop. ``multiprocessing`` would import the caller's ``__main__`` in the process
    before that can lower its priority and redirect its output.
    """

    def __init__(self, plant: Plant, model: str, *, command: Sequence[str] = _COMMAND) -> None:
        self._plant = plant
        self._model = model
        self._registry = registry_of(plant)
        self._command = command
        self._process: asyncio.subprocess.Process | None = None
        self._is_ending = False

    @property
    def pid(self) -> int | None:
        """Return the process id of the training that runs, None if none does."""
        return None if self._process is None else self._process.pid

    async def train(self, request: TrainingRequest) -> TrainingResult:
        """Train and return the result; a process that cannot be started or ends without a result is a failure.

        The process is killed if the caller is cancelled.
        """
        learning = self._plant.settings.learning
        assert learning is not None
        base_dir = self._plant.base_dir.absolute()
        spec = TrainerSpec(settings=self._plant.settings, base_dir=base_dir, model=self._model, request=request)
        with ExitStack() as stack:
            try:
                # A file, not a pipe: a process that the training has started may keep a pipe open after its end.
                errors = stack.enter_context(TemporaryFile())
                process = self._process = await asyncio.create_subprocess_exec(
                    *self._command,
                    stdin=asyncio.subprocess.PIPE,
                    stdout=asyncio.subprocess.PIPE,
                    stderr=errors,
                    env=environment_of(learning.threads),
                )
            except OSError as error:
                return self._failed(request, f"cannot start the training process: {error.strerror or error}")
            assert process.stdin is not None
            assert process.stdout is not None
            try:
                if self._is_ending:  # since before it was started: it has done nothing that could be lost
                    self.send(signal.SIGKILL)
                process.stdin.write(pickle.dumps(spec))  # not closed: its end says that this process has died
                output = await process.stdout.read()
                code = await process.wait()
            finally:
                self.send(signal.SIGKILL)
                await process.wait()
                self._process = None
            errors.seek(max(0, errors.seek(0, os.SEEK_END) - _KEPT_BYTES))
            text = errors.read().decode(errors="replace").strip()
        if text:
            get_logger().debug("the trainer wrote", model=self._model, text=text)
        try:
            result: TrainingResult = msgspec.json.decode(output, type=TrainingResult)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return await asyncio.to_thread(self._failure_of, request, code, text)
        return result

    def end(self) -> None:
        """Let the process save its state and end: the next training with its request resumes."""
        self._is_ending = True
        self.send(signal.SIGTERM)

    def send(self, number: signal.Signals) -> None:
        """Send a signal to the process if it runs."""
        if self._process is not None and self._process.returncode is None:
            with suppress(ProcessLookupError):
                os.kill(self._process.pid, number)  # below Python 3.13 its own method may reap it before asyncio does

    def _failure_of(self, request: TrainingRequest, code: int, errors: str) -> TrainingFailed:
        """Return the failure of a process that ended without a result."""
        try:
            status = read_status(self._registry, self._model)
            resumes = status.state == "interrupted" and status.request == request
        except RegistryError:
            resumes = False
        if self._is_ending and code < 0:
            then = ": it resumes at the next start" if resumes else " before it had begun"
            return self._failed(request, f"the training was interrupted{then}", "interrupted")
        by = f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
        lines = errors.splitlines()
        text = f"the training process {by}" + (f": {lines[-1][:300]}" if lines else "")
        if resumes:
            return self._failed(request, f"{text}; it is started again", "interrupted")
        return self._failed(request, text)

    def _failed(self, request: TrainingRequest, error: str, kind: FailureKind = "failed") -> TrainingFailed:
        return TrainingFailed(model=self._model, error=error, request=request, kind=kind)
