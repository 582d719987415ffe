"""Retraining seen from the worker: at most one training process per model, and the requests that wait for it."""

from __future__ import annotations

import asyncio
import pickle
import signal
import sys
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path

import msgspec

from streamad.errors import ConfigError, Problem, RegistryError, StreamadError
from streamad.learn.parts import registry_of
from streamad.learn.trainer.lease import Lease, LeaseTimes
from streamad.learn.trainer.process import Ended, Process
from streamad.learn.trainer.requests import (
    FailureKind,
    TrainingFailed,
    TrainingRequest,
    TrainingResult,
    posted_requests,
)
from streamad.learn.trainer.status import read_status, written_status
from streamad.plant import Plant
from streamad.settings.plant_yaml import Settings
from streamad.system.tasks import Backoff
from streamad.system.threads import LoneThread, in_thread
from streamad.telemetry.logs import get_logger

LOST_LEASE_CODE = 75
"""Exit code of a trainer that was stopped for so long that another one has its lease (EX_TEMPFAIL of sysexits.h)."""
_COMMAND = (sys.executable, "-m", "streamad.learn.trainer")
_LONGEST_PAUSE_US = 3_600_000_000


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainerSpec:
    """One training, pickled for the process that does it; secrets are in ``settings`` only as their places.

    ``posted``: file name of the request, which must still be there. ``resumes``: the training was interrupted, and no
    other worker must have finished it.
    """

    settings: Settings
    base_dir: Path
    model: str
    request: TrainingRequest
    posted: str | None
    resumes: bool
    times: LeaseTimes


def _pickled(spec: TrainerSpec) -> bytes:
    try:
        return pickle.dumps(spec)
    except (pickle.PicklingError, TypeError, AttributeError, RecursionError) as error:
        message = f"hold a value that cannot be passed to the training process: {error}"
        raise ConfigError([Problem("options of the source, the sinks or the model", message)]) from error


class Child:
    """Trains the model ``model`` in a process of its own, whenever ``start`` is called and none runs.

    ``on_end`` gets the result of each start, also if another process was training already, unless ``close`` came
    first; no failure there reaches the worker. Children that share ``turns`` train one after the other.
    ``grace_s``: how long a training may take to save its state when it is ended. ``retry_s``: how long ``waiting``
    returns nothing after a failure, doubled with each further one. Use it inside one running event loop.
    """

    def __init__(
        self,
        plant: Plant,
        model: str,
        on_end: Callable[[TrainingResult], None],
        *,
        turns: asyncio.Semaphore | None = None,
        times: LeaseTimes | None = None,
        grace_s: float = 10.0,
        retry_s: float = 10.0,
        command: Sequence[str] = _COMMAND,
    ) -> None:
        self._plant = plant
        self._model = model
        self._clock = plant.clock
        self._on_end = on_end
        self._turns = turns
        self._times = times or LeaseTimes()
        self._grace_s = grace_s
        self._command = command
        self._registry = registry_of(plant)
        self._training = self._registry.training_folder(model)
        self._lease = Lease(self._training, self._times, lambda: plant.clock.monotonic_us() / 1e6)
        self._thread = LoneThread("streamad-retraining")
        self._task: asyncio.Task[None] | None = None
        self._process: Process | None = None
        self._is_running = False
        self._closed = False
        self._not_before_us = plant.clock.monotonic_us()
        self._backoff = Backoff(round(retry_s * 1e6), _LONGEST_PAUSE_US)

    @property
    def is_running(self) -> bool:
        """Return whether a training was started here and has not ended."""
        return self._is_running

    @property
    def pid(self) -> int | None:
        """Return the process id of the training that runs here, None if none does."""
        return None if self._process is None else self._process.pid

    def waiting(self) -> TrainingRequest | None:
        """Return the request that no process works on: of a dead or stopped training, else a posted one.

        Call it often (it reads a few small files), and pass the request to ``start``. None while a training runs, here
        or elsewhere, and for a while after a failure. Raises RegistryError.
        """
        if self.is_running or self._closed or self._clock.monotonic_us() < self._not_before_us:
            return None
        holder = self._lease.holder()
        if holder not in ("none", "stopped"):
            return None
        status = read_status(self._registry, self._model)
        if status.state == "interrupted" or (status.state == "running" and holder == "stopped"):
            return status.request
        return next(iter(posted_requests(self._registry, self._model).values()), None)

    def start(self, request: TrainingRequest) -> bool:
        """Start a process that trains; False if one runs here, or after ``close``. ``on_end`` gets its result."""
        if self._is_running or self._closed:
            return False
        self._is_running = True
        self._task = asyncio.get_running_loop().create_task(self._train(request))
        return True

    async def wait(self) -> None:
        """Return once no training runs here."""
        while self._task is not None and not self._task.done():  # ``on_end`` may start another
            await asyncio.wait({self._task})

    async def close(self) -> None:
        """End what runs here: it saves its state and resumes at the next start; after ``grace_s`` it is killed."""
        self._closed = True
        if self._task is not None:
            if self._process is None:  # it waits for its turn, or has ended
                self._task.cancel()
            for number in (signal.SIGTERM, signal.SIGKILL):
                if self._process is not None:
                    self._process.send(number)
                await asyncio.wait({self._task}, timeout=self._grace_s)
            await asyncio.wait({self._task})
        self._thread.shutdown(cancel_futures=True)
        self._is_running = False

    async def _train(self, request: TrainingRequest) -> None:
        try:
            async with self._turns or nullcontext():
                result = await self._result(request)
        finally:
            self._process = None
            self._is_running = False
        if isinstance(result, TrainingFailed):
            self._not_before_us = self._clock.monotonic_us() + self._backoff.pause_us
            if result.kind != "refused":
                self._backoff.failed()
        else:
            self._backoff.reset()
        self._on_end(result)

    async def _result(self, request: TrainingRequest) -> TrainingResult:
        learning = self._plant.settings.learning
        try:
            spec = await in_thread(self._thread, self._spec, request)
            threads = learning.threads if learning is not None else 1
            self._process = await Process.start(self._command, _pickled(spec), threads)
        except StreamadError as error:
            return self._failed(request, " ".join(str(error).split()))
        except OSError as error:
            return self._failed(request, f"cannot start the training process: {error.strerror or error}")
        ended = await self._process.ended()
        if ended.errors:
            get_logger().debug("the trainer wrote", model=self._model, text=ended.errors)
        try:
            result: TrainingResult = msgspec.json.decode(ended.output, type=TrainingResult)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return await in_thread(self._thread, self._failure_of, spec.request, ended)
        return result

    def _spec(self, request: TrainingRequest) -> TrainerSpec:
        """Return the spec: an interrupted training resumes with its own request, a new one takes what is stored now."""
        posted, resumes = None, written_status(self._training).request == request
        if not resumes:
            asked = posted_requests(self._registry, self._model)
            posted = next((path.name for path, other in asked.items() if other == request), None)
            request = msgspec.structs.replace(request, requested_us=self._clock.now_us())
        return TrainerSpec(
            settings=self._plant.settings,
            base_dir=self._plant.base_dir.absolute(),
            model=self._model,
            request=request,
            posted=posted,
            resumes=resumes,
            times=self._times,
        )

    def _failure_of(self, request: TrainingRequest, ended: Ended) -> TrainingFailed:
        """Return the failure of a trainer that ended without a result."""
        if ended.code == LOST_LEASE_CODE:
            return self._failed(request, "it was stopped for so long that another training took its place", "refused")
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
