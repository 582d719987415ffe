"""The micro-batcher: joins waiting windows into batches and scores them in a thread; the event loop never blocks.

Shapes: B windows, C channels, L window length, K transformations.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from hashlib import blake2b
from typing import Generic, ParamSpec, Protocol, TypeVar, runtime_checkable

import numpy as np
import numpy.typing as npt

from streamad.errors import DetectorError, StreamadError
from streamad.judge.attribution import Reference
from streamad.judge.calibration import Calibration, CalibrationMethod
from streamad.judge.early.model import EarlyModel
from streamad.judge.envelope import Envelope
from streamad.judge.verdicts import Moments, moments_of
from streamad.messages import ModelRef, Verdict
from streamad.plugins import contained, failure_of
from streamad.ports import Clock, Scorer
from streamad.safe_text import described
from streamad.settings.plant_yaml import RunSettings
from streamad.system.clock import pause
from streamad.telemetry.metrics import Histogram
from streamad.types import FloatArray, Window


@dataclass(frozen=True, slots=True, eq=False)
class TrainingIds:
    """64-bit hashes, ascending; two different ids are taken for one in about one of 10^14 lookups among 100,000."""

    hashes: npt.NDArray[np.uint64]
    _known: frozenset[int] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_known", frozenset(self.hashes.tolist()))

    @classmethod
    def of(cls, ids: Iterable[str]) -> TrainingIds:
        """Return those of ``ids``: "stream/sequence" (or ``id_with_start``) of recordings, verdict ids of the store."""
        return cls(np.unique(np.array([_hash(name) for name in ids], dtype=np.uint64)))

    def __contains__(self, name: str) -> bool:
        """Return whether ``name`` is among them."""
        return _hash(name) in self._known


def id_with_start(name: str, start: datetime) -> str:
    """Return the training id of a sequence ``name`` ("stream/sequence") whose id the plant uses again."""
    return f"{name} of {start.isoformat()}"


NO_TRAINING_IDS = TrainingIds(np.empty(0, np.uint64))


def _hash(name: str) -> int:
    return int.from_bytes(blake2b(name.encode("utf-8", "surrogatepass"), digest_size=8).digest())


P = ParamSpec("P")
T = TypeVar("T")


@runtime_checkable
class BatchScorer(Protocol):
    """A scorer that knows how many windows its device takes at once."""

    @property
    def n_together(self) -> int | None:
        """Return how many windows to score in one call, with the memory that is free now; None: as many as usual."""


TOGETHER = 256
"""Windows of recordings that are scored in one call, unless the scorer knows better; no verdict depends on it."""


def together(model: ModelInService) -> int:
    """Return how many windows of recordings ``model`` scores in one call."""
    n = model.scorer.n_together if isinstance(model.scorer, BatchScorer) else None
    return TOGETHER if n is None else n


_CLOSED = "the scorer is closed: no more windows are taken"
NO_MODEL_YET = "no model yet"
"""Detail of a verdict without a model if no learner counts sequences."""


@dataclass(slots=True)
class WaitingLine(Generic[T]):
    """Items waiting for a batch, in order of arrival; pure. A batch is due when full or when its first item waited."""

    batch_size: int
    wait_us: int
    _items: deque[tuple[int, T]] = field(default_factory=deque)

    def __len__(self) -> int:
        return len(self._items)

    def push(self, item: T, now_us: int) -> None:
        """Append ``item``, which waits from ``now_us``."""
        self._items.append((now_us, item))

    def due_in_us(self, now_us: int) -> int | None:
        """Return how long the next batch may still wait: 0 if it is due, None if nothing waits."""
        if not self._items:
            return None
        if len(self._items) >= self.batch_size:
            return 0
        return max(0, self._items[0][0] + self.wait_us - now_us)

    def take(self) -> list[T]:
        """Remove and return the next batch, the oldest first."""
        return [self._items.popleft()[1] for _ in range(min(self.batch_size, len(self._items)))]


@dataclass(frozen=True, slots=True, eq=False)
class ModelInService:
    """A model with its calibration; without ``reference`` there is no attribution. ``terms`` names the K terms.

    ``training_ids`` are of the sequences that trained or calibrated it; ``method`` is that of the calibration;
    ``envelope`` is of its training windows (None: of the reference windows); ``backend`` is what scores, ``refused``
    says in a line each which other backends must not, ``choice`` how ``auto`` chose, if it measured. ``early`` has the
    looks at running sequences, if it has any. ``digest`` is that of all that the version is.
    """

    ref: ModelRef
    scorer: Scorer
    calibration: Calibration
    reference: Reference | None = None
    terms: tuple[str, ...] = ()
    training_ids: TrainingIds = NO_TRAINING_IDS
    method: CalibrationMethod = "split"
    envelope: Envelope | None = None
    backend: str = "torchscript"
    refused: tuple[str, ...] = ()
    early: EarlyModel | None = None
    digest: str = ""
    choice: str = ""

    def knows(self, verdict: Verdict) -> bool:
        """Return whether the verdict's sequence has the id of one that trained or calibrated the model."""
        name = f"{verdict.stream}/{verdict.sequence}"
        ids = (verdict.verdict_id, name, id_with_start(name, verdict.start_time))
        return any(each in self.training_ids for each in ids)


@dataclass(frozen=True, slots=True, eq=False)
class Scored:
    """The terms float32 [K] of one window, the model that gave them, and the window's moments."""

    terms: FloatArray
    model: ModelInService
    moments: Moments


@dataclass(frozen=True, slots=True, eq=False)
class _Request:
    window: Window
    result: asyncio.Future[Scored]


class Judging:
    """Whether windows are being judged, for threads that let them go first; the context of each window."""

    def __init__(self) -> None:
        self._n_windows = 0
        self._is_idle = threading.Event()
        self._is_idle.set()

    def __enter__(self) -> None:
        """Count a window as being judged; only the event loop's thread uses it."""
        if not self._n_windows:
            self._is_idle.clear()
        self._n_windows += 1

    def __exit__(self, *_: object) -> None:
        """Count it no more."""
        self._n_windows -= 1
        if not self._n_windows:
            self._is_idle.set()

    def wait_until_idle(self, limit_s: float) -> bool:
        """Wait until no window is being judged, for ``limit_s`` at most; return whether that came."""
        return self._is_idle.wait(limit_s)


JUDGING = Judging()
"""Of the whole process: its cores and its interpreter are what judging and explaining compete for."""


class MicroBatcher:
    """Scores windows in order of submission with the model in service, if there is one.

    At most ``capacity`` windows wait or are being scored; ``submit`` blocks beyond that (back-pressure). ``name`` is
    the model's name, also before its first version. ``thread`` is shared with other batchers and never shut down here;
    without it the batcher makes its own. ``learning`` returns the progress of a first model, for the verdicts given
    before it. ``durations`` takes the time of each batch. Use inside one running event loop; ``close`` ends the task
    and its own thread.
    """

    def __init__(
        self,
        model: ModelInService | None,
        clock: Clock,
        settings: RunSettings | None = None,
        *,
        capacity: int | None = None,
        name: str = "",
        thread: ThreadPoolExecutor | None = None,
        durations: Histogram | None = None,
    ) -> None:
        settings = settings or RunSettings()
        # Above 15 attributes: one queue, with the flags of its end (flush, close, abandon), which change together.
        self.durations = durations if durations is not None else Histogram()
        self.name = name or (model.ref.name if model is not None else "")
        self.learning: Callable[[], str] = lambda: NO_MODEL_YET
        self._model = model
        self._clock = clock
        self._line: WaitingLine[_Request] = WaitingLine(settings.batch_windows, settings.batch_wait)
        self._room = asyncio.Semaphore(capacity or 4 * settings.batch_windows)
        self._changed = asyncio.Event()
        self._between_batches = asyncio.Lock()
        self._open_submits = 0
        self._to_flush = 0
        self._closed = False
        self._ended = False
        self._abandoned = False
        self._owns_thread = thread is None
        self._thread = thread or ThreadPoolExecutor(max_workers=1, thread_name_prefix="streamad-scoring")
        self._task: asyncio.Task[None] | None = None

    @property
    def model(self) -> ModelInService | None:
        """Return the model that scores the next batch; None before the first one."""
        return self._model

    @property
    def is_idle(self) -> bool:
        """Return whether no batch is being scored."""
        return not self._between_batches.locked()

    @property
    def label(self) -> str:
        """Return name and version of the model in service, for people."""
        return f"{self.name} {self._model.ref.version if self._model is not None else '(learning)'}"

    @property
    def models(self) -> tuple[ModelInService, ...]:
        """Return the model in service, if there is one."""
        return () if self._model is None else (self._model,)

    async def batcher_for(self, routes: tuple[str, ...]) -> MicroBatcher:
        """Return this batcher, whatever the routes."""
        return self

    async def submit(self, window: Window) -> Scored | None:
        """Return the terms of ``window`` once its batch was scored; None, at once, if there is no model yet.

        A first model scores only windows submitted after it came. Raises DetectorError if the window does not fit the
        model, the model fails or the batcher is closed.
        """
        if self._closed:
            raise DetectorError(_CLOSED)
        if self._model is None:
            return None
        self._open_submits += 1
        try:
            async with self._room:
                if self._ended:
                    raise DetectorError(_CLOSED)
                result: asyncio.Future[Scored] = asyncio.get_running_loop().create_future()
                self._line.push(_Request(window, result), self._clock.monotonic_us())
                self._wake()
                with JUDGING:
                    return await result
        finally:
            self._open_submits -= 1
            if self._closed:
                self._wake()

    async def run(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run ``function(...)`` in the scoring thread, the only thread that may use a scorer; see ``contained``."""
        call = partial(contained, function, *args, **kwargs)
        return await asyncio.get_running_loop().run_in_executor(self._thread, call)

    async def swap(self, model: ModelInService) -> None:
        """Put ``model``, perhaps the first one, into service between two batches."""
        async with self._between_batches:
            self._model = model

    def flush(self) -> None:
        """Score the windows that wait now without waiting for more (a commit is near, or the input has ended)."""
        self._to_flush = len(self._line)
        self._wake()

    async def close(self) -> None:
        """Score all that was submitted, then end the task and its own thread; safe to call twice."""
        self._closed = True
        self._wake()
        if self._task is not None:
            await asyncio.wait({self._task})
            if not self._task.cancelled() and isinstance(error := self._task.exception(), Exception):
                raise error
        if self._owns_thread:
            self._thread.shutdown(wait=not self._abandoned)

    def abandon(self) -> None:
        """Abandon a model that hangs: nothing more is scored, and ``close`` waits for nothing.

        Its thread cannot be ended; the process must exit without waiting for it.
        """
        self._closed = True
        if self._task is not None:
            self._task.cancel()
            self._task = None
        if self._owns_thread:
            self._thread.shutdown(wait=False, cancel_futures=True)
        self._abandoned = True

    def _wake(self) -> None:
        self._changed.set()
        if self._task is None and not self._abandoned:
            self._task = asyncio.get_running_loop().create_task(self._work_until_closed())

    async def _work_until_closed(self) -> None:
        """Score batches until ``close``; however it ends, nobody waits for a score that will never come."""
        try:
            await self._work()
        except BaseException as error:
            self._closed = self._ended = True
            while not self._abandoned and (left := self._line.take()):
                _fail(left, DetectorError(f"the scorer has ended: {described(error)}"), error)
            raise

    async def _work(self) -> None:
        while True:
            self._changed.clear()
            due_in_us = self._line.due_in_us(self._clock.monotonic_us())
            if due_in_us is None:
                if self._closed and not self._open_submits:
                    return
                await self._changed.wait()
            elif due_in_us == 0 or self._to_flush or self._closed:
                async with self._between_batches:
                    batch = self._line.take()
                    self._to_flush = max(0, self._to_flush - len(batch))
                    await self._score(batch)
            else:
                await pause(due_in_us / 1e6, self._clock, self._changed)

    async def _score(self, requests: list[_Request]) -> None:
        """Score one batch and set the results of its requests, errors included."""
        model = self._model
        assert model is not None  # nothing is submitted before the first one, and none is ever removed
        wanted = [request for request in requests if not request.result.done()]  # others were cancelled
        begun_us = self._clock.monotonic_us()
        try:
            terms, moments = await self.run(_terms, model, [request.window for request in wanted])
            self.durations.add((self._clock.monotonic_us() - begun_us) / 1e6)
        except StreamadError as error:
            _fail(wanted, error)
        except BaseException as error:  # the model is foreign code, and the waiting requests must fail
            if not self._abandoned:
                text = f"model {model.ref.name} {model.ref.version} failed: {failure_of(error)}"
                _fail(wanted, DetectorError(text), error)
            if not isinstance(error, Exception):  # a Ctrl-C, or this task is cancelled
                raise
        else:
            for request, own, found in zip(wanted, terms, moments, strict=True):
                if not request.result.done():
                    request.result.set_result(Scored(own, model, found))


def _terms(model: ModelInService, windows: list[Window]) -> tuple[FloatArray, list[Moments]]:
    """Return terms float32 [B, K] and moments; raises DetectorError if anything does not have the model's shape.

    The moments are computed here because those of a batch take a fifth of the time of those of each window alone.
    """
    if not windows:
        return np.zeros((0, model.scorer.n_terms), dtype=np.float32), []
    shape = model.scorer.window_shape
    for window in windows:
        if window.values.shape != shape:
            raise DetectorError(f"a window is {window.values.shape}, but model {model.ref.name} takes {shape}")
    values = np.stack([window.values for window in windows])
    terms = model.scorer.score(values, np.array([window.length for window in windows], dtype=np.int64))
    if terms.shape != (len(windows), model.scorer.n_terms):
        raise DetectorError(f"model {model.ref.name} gave terms {terms.shape} for {len(windows)} windows")
    return terms, moments_of(windows)


def _fail(requests: list[_Request], error: StreamadError, cause: BaseException | None = None) -> None:
    for request in requests:
        if not request.result.done():
            copy = DetectorError(str(error))  # one each: several waiters would extend one traceback
            copy.__cause__ = cause or error
            request.result.set_exception(copy)
