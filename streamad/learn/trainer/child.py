"""Retraining seen from the worker: one process at a time that trains, and the requests that wait for it."""

from __future__ import annotations

import asyncio
import json
import os
import selectors
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext, suppress
from typing import IO, NamedTuple

import msgspec
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource

from streamad.errors import ConfigError, Problem, RegistryError, StreamadError
from streamad.learn.parts import registry_of
from streamad.learn.trainer.lease import LeaseTimes, LeaseWatch, read_record
from streamad.learn.trainer.requests import (
    FailureKind,
    TrainingFailed,
    TrainingRequest,
    TrainingResult,
    posted_requests,
)
from streamad.learn.trainer.status import read_status
from streamad.plant import Plant
from streamad.settings.plant_yaml import Settings
from streamad.system.threads import LoneThread, in_thread
from streamad.telemetry.logs import get_logger

_OUTPUT_BYTES = 1_000_000
_LAST_WORDS_BYTES = 20_000
_LOOK_S = 0.2
_THREAD_VARIABLES = (
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
)


class Ended(NamedTuple):
    """How it ended: exit code (negative: the signal), the ends of what it wrote to stdout and to stderr."""

    code: int
    output: bytes
    last_words: str


def trainer_environment(threads: int) -> dict[str, str]:
    """Return this process's environment with the number of threads that numeric libraries may start."""
    return {**os.environ, **dict.fromkeys(_THREAD_VARIABLES, str(threads))}


class TrainerProcess:
    """A child process; ``run`` blocks one thread until it has ended, ``send`` may be called from any other."""

    def __init__(self, command: Sequence[str], line: bytes, environment: Mapping[str, str]) -> None:
        self._command = command
        self._line = line
        self._environment = environment
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._stopped = False

    @property
    def pid(self) -> int | None:
        """Return its process id, None before it was started."""
        return None if self._process is None else self._process.pid

    def run(self) -> Ended:
        """Start it, pass the line, and return once it has ended. Raises OSError where it cannot be started.

        Its standard input stays open until then: the end of that tells it that this process has died.
        """
        with self._lock:
            if self._stopped:
                return Ended(-signal.SIGTERM, b"", "")
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                bufsize=0,  # else what a dead child did not read would be written again at closing
                env=dict(self._environment),
            )
        with self._process as process:
            assert process.stdin is not None
            with suppress(BrokenPipeError):
                process.stdin.write(self._line)
            output, last_words = _read_until_end(process)
            code = process.wait()
        return Ended(code, output, last_words.decode(errors="replace"))

    def send(self, number: signal.Signals) -> None:
        """Send a signal, if it runs; where it was not started yet, it will not be."""
        with self._lock:
            self._stopped = True
            if self._process is not None:
                self._process.send_signal(number)


def _read_until_end(process: subprocess.Popen[bytes]) -> tuple[bytes, bytes]:
    """Return the ends of stdout and stderr, read while it runs; that others still hold them does not count."""
    assert process.stdout is not None
    assert process.stderr is not None
    limits: dict[IO[bytes], int] = {process.stdout: _OUTPUT_BYTES, process.stderr: _LAST_WORDS_BYTES}
    read = dict.fromkeys(limits, b"")
    with selectors.DefaultSelector() as selector:
        for file in limits:
            selector.register(file, selectors.EVENT_READ)
        while selector.get_map():
            has_ended = process.poll() is not None
            ready = selector.select(_LOOK_S)
            if has_ended and not ready:
                break
            for key, _ in ready:
                file = next(file for file in limits if file is key.fileobj)
                chunk = os.read(key.fd, 65_536)
                if not chunk:
                    selector.unregister(file)
                read[file] = (read[file] + chunk)[-limits[file] :]
    return read[process.stdout], read[process.stderr]


LOST_LEASE_CODE = 75
"""Exit code of a trainer that was stopped for so long that another one has its lease (EX_TEMPFAIL of sysexits.h)."""


class TrainerSpec(msgspec.Struct, frozen=True, kw_only=True):
    """One training: for which model of which plant, and why.

    ``posted``: the file of the request, taken on only while it is there. ``resumes``: token of the training that was
    interrupted, taken up only while nobody else has done so.
    """

    settings: str
    base_dir: str
    model: str
    request: TrainingRequest
    posted: str | None = None
    resumes: str | None = None
    times: LeaseTimes = LeaseTimes()


class _Told(Settings):
    """Settings that come from their JSON alone: the environment has had its say when they were first read."""

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Leave the environment out."""
        return (init_settings,)


def settings_to_json(settings: Settings) -> str:
    """Return the settings for another process; secrets are not in them, only their places.

    Raises ConfigError where an option is of a kind that JSON would change, such as a date.
    """
    try:
        text = settings.model_dump_json()
        is_same = settings_from_json(text) == settings
    except ValueError:
        is_same = False
    if not is_same:
        message = "holds values that JSON has no form for (dates, .inf, .nan): put them in quotes"
        raise ConfigError([Problem("options of the source, the sinks or the model", message)])
    return text


def settings_from_json(text: str) -> Settings:
    """Return what ``settings_to_json`` was given, whatever the environment says."""
    told = _Told(**json.loads(text))
    return Settings.model_construct(**{name: getattr(told, name) for name in Settings.model_fields})


_COMMAND = (sys.executable, "-m", "streamad.learn.trainer")
_LONGEST_PAUSE_US = 3_600_000_000


class Retrainer:
    """Trains the model ``model`` in a process of its own, whenever ``start`` is called and none runs.

    ``on_event`` hears once how each start ended, also where another process was training already (only not where
    ``close`` came before its turn); nothing that goes wrong there reaches the worker. Retrainers that share ``turns``
    train one after the other. ``grace_s``: how long a training may take to save its state when it is ended.
    ``retry_s``: how long what waits is left alone after a failure, doubled with each further one. Use it inside one
    running event loop.
    """

    def __init__(
        self,
        plant: Plant,
        model: str,
        on_event: Callable[[TrainingResult], None],
        *,
        turns: asyncio.Semaphore | None = None,
        times: LeaseTimes | None = None,
        grace_s: float = 10.0,
        retry_s: float = 10.0,
        command: Sequence[str] = _COMMAND,
    ) -> None:
        clock = plant.clock
        self._plant = plant
        self._model = model
        self._clock = clock
        self._on_event = on_event
        self._turns = turns
        self._times = times or LeaseTimes()
        self._grace_s = grace_s
        self._first_pause_us = round(retry_s * 1e6)
        self._command = command
        self._registry = registry_of(plant)
        self._training = self._registry.training_folder(model)
        self._watch = LeaseWatch(self._training, self._times.stopped_after_s, lambda: clock.monotonic_us() / 1e6)
        self._looking = LoneThread("streamad-retraining")
        self._task: asyncio.Task[None] | None = None
        self._process: TrainerProcess | None = None
        self._is_running = False
        self._closed = False
        self._not_before_us = clock.monotonic_us()
        self._pause_us = self._first_pause_us

    @property
    def is_running(self) -> bool:
        """Return whether a training was started here and has not ended."""
        return self._is_running

    @property
    def pid(self) -> int | None:
        """Return the process id of the training that runs here, None where there is none."""
        return None if self._process is None else self._process.pid

    def waiting(self) -> TrainingRequest | None:
        """Return what was asked for and nobody does: a training whose process died or stands, else a posted request.

        Ask often (it reads a few small files), and pass it to ``start``. None while a training runs, here or elsewhere,
        and for a while after one failed. Raises RegistryError.
        """
        if self.is_running or self._closed or self._clock.monotonic_us() < self._not_before_us:
            return None
        holder = self._watch.look()
        if holder not in ("none", "stopped"):
            return None
        status = read_status(self._registry, self._model)
        if status.state == "interrupted" or (status.state == "running" and holder == "stopped"):
            return status.request
        return next(iter(posted_requests(self._registry, self._model).values()), None)

    def start(self, request: TrainingRequest) -> bool:
        """Start a process that trains; False where one runs here, or after ``close``. ``on_event`` hears of its end."""
        if self._is_running or self._closed:
            return False
        self._is_running = True
        self._task = asyncio.get_running_loop().create_task(self._train(request))
        return True

    async def wait(self) -> None:
        """Return once no training runs here."""
        while self._task is not None and not self._task.done():  # another may be started where an end is told
            await asyncio.wait({self._task})

    async def close(self) -> None:
        """End what runs here: it saves its state, and goes on at the next start; after ``grace_s`` it is killed."""
        self._closed = True
        if self._task is not None:
            await self._end(self._task)
        self._looking.shutdown(cancel_futures=True)
        self._is_running = False

    async def _end(self, task: asyncio.Task[None]) -> None:
        if self._process is None:  # it waits for its turn, or has ended
            task.cancel()
        for number in (signal.SIGTERM, signal.SIGKILL):
            if self._process is not None:
                self._process.send(number)
            await asyncio.wait({task}, timeout=self._grace_s)
        await asyncio.wait({task})

    async def _train(self, request: TrainingRequest) -> None:
        try:
            async with self._turns or nullcontext():
                result = await self._result(request)
        finally:
            self._process = None
            self._is_running = False
        self._pause(result)
        self._on_event(result)

    async def _result(self, request: TrainingRequest) -> TrainingResult:
        try:
            spec = await in_thread(self._looking, self._spec, request)
            ended = await self._run(spec)
        except StreamadError as error:
            return self._failed(request, " ".join(str(error).split()))
        except OSError as error:
            return self._failed(request, f"cannot start the training process: {error.strerror or error}")
        if ended.last_words:
            get_logger().debug("the trainer wrote", model=self._model, text=ended.last_words)
        try:
            result: TrainingResult = msgspec.json.decode(ended.output, type=TrainingResult)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return await in_thread(self._looking, self._death, spec.request, ended)
        return result

    async def _run(self, spec: TrainerSpec) -> Ended:
        learning = self._plant.settings.learning
        environment = trainer_environment(learning.threads if learning is not None else 1)
        process = TrainerProcess(self._command, msgspec.json.encode(spec) + b"\n", environment)
        self._process = process
        if self._closed:
            process.send(signal.SIGTERM)
        # A thread of its own: a training takes hours, and the loop's executor has few.
        with ThreadPoolExecutor(1, thread_name_prefix="streamad-trainer") as thread:
            try:
                return await asyncio.get_running_loop().run_in_executor(thread, process.run)
            except asyncio.CancelledError:
                process.send(signal.SIGKILL)
                raise

    def _spec(self, request: TrainingRequest) -> TrainerSpec:
        """Return what the process is told; a new training begins now, a resumed one as it was."""
        now_us = self._clock.now_us()
        resumes = posted = None
        record = read_record(self._training)
        if record is not None and record.request == request:
            resumes = record.token
        else:
            asked = posted_requests(self._registry, self._model)
            posted = next((path.name for path, other in asked.items() if other == request), None)
            request = msgspec.structs.replace(request, requested_us=now_us)
        return TrainerSpec(
            settings=settings_to_json(self._plant.settings),
            base_dir=str(self._plant.base_dir.absolute()),
            model=self._model,
            request=request,
            posted=posted,
            resumes=resumes,
            times=self._times,
        )

    def _death(self, request: TrainingRequest, ended: Ended) -> TrainingFailed:
        """Say how a trainer ended that said nothing."""
        if ended.code == LOST_LEASE_CODE:
            return self._failed(request, "it was stopped for so long that another training took its place", "refused")
        goes_on = self._will_go_on(request)
        if self._closed and ended.code < 0:
            then = ": it goes on at the next start" if goes_on else " before it had begun"
            return self._failed(request, f"the training was interrupted{then}", "interrupted")
        by = f"was killed by signal {-ended.code}" if ended.code < 0 else f"ended with exit code {ended.code}"
        words = ended.last_words.strip().splitlines()
        text = f"the training process {by}" + (f": {words[-1][:300]}" if words else "")
        if goes_on:
            return self._failed(request, f"{text}; it is started again", "interrupted")
        return self._failed(request, text)

    def _will_go_on(self, request: TrainingRequest) -> bool:
        try:
            status = read_status(self._registry, self._model)
        except RegistryError:
            return False
        return status.state == "interrupted" and status.request == request

    def _failed(self, request: TrainingRequest, error: str, kind: FailureKind = "failed") -> TrainingFailed:
        return TrainingFailed(model=self._model, error=error, request=request, kind=kind)

    def _pause(self, result: TrainingResult) -> None:
        """Let what waits wait longer after each failure in a row: its cause may take time to go away."""
        if isinstance(result, TrainingFailed):
            self._not_before_us = self._clock.monotonic_us() + self._pause_us
            if result.kind != "refused":
                self._pause_us = min(2 * self._pause_us, _LONGEST_PAUSE_US)
        else:
            self._pause_us = self._first_pause_us
