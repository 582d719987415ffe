"""Makes attributions behind the verdicts: in a thread of its own, with scorers of its own.

Until then they are owed: a debt keeps what is needed of an alert, and a ledger bounds the debts.
"""

from __future__ import annotations

import asyncio
import zlib
from collections import OrderedDict
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from dataclasses import replace
from datetime import timedelta
from functools import partial

import msgspec
import numpy as np

from streamad.errors import ArtifactError, StreamadError
from streamad.ingest.windowing import shown_share
from streamad.judge.attribution import METHOD, Reference, explain
from streamad.judge.early.model import EarlyModel
from streamad.judge.scoring import JUDGING, ModelInService
from streamad.judge.verdicts import make_attribution, make_early_attribution, unexplained
from streamad.messages import NO_METHOD, Alert, Attribution, EarlyWarning, ModelRef
from streamad.partition_progress import Debt
from streamad.plugins import failure_of
from streamad.ports import Clock, Scorer
from streamad.safe_text import masked, one_line, text_of
from streamad.settings.plant_yaml import Settings, WindowSettings
from streamad.system.clock import pause
from streamad.system.threads import LoneThread, give_back_memory
from streamad.telemetry.metrics import Histogram
from streamad.types import FloatArray, IntArray, Window

MOST_DEBTS = 256
"""Debts of a partition at most."""
MOST_DEBT_BYTES = 32_000_000
"""Bytes of the debts of a partition at most, and of one window before it is packed."""
_KEY_BYTES = 200  # of an item's key and framing
_FLOATS = np.dtype("<f4")


class LostWindowError(Exception):
    """Raised for a debt whose window or terms cannot be read any more."""


def debt_of(alert: Alert, terms: FloatArray, window: Window) -> Debt:
    """Return what must be kept of ``alert``, its terms [K] and its judged window."""
    n_channels, n_points = window.values.shape
    return Debt(
        alert=alert,
        terms=terms.astype(_FLOATS).tobytes(),
        shape=(n_channels, n_points),
        length=window.length,
        window=zlib.compress(window.values.astype(_FLOATS).tobytes(), 1),
    )


def terms_of(debt: Debt) -> FloatArray:
    """Return the terms float32 [K]. Raises LostWindowError."""
    if not debt.terms or len(debt.terms) % _FLOATS.itemsize:
        raise LostWindowError("its terms are damaged")
    return np.frombuffer(debt.terms, dtype=_FLOATS).astype(np.float32)


def window_of(debt: Debt) -> Window:
    """Return the judged window; at most ``MOST_DEBT_BYTES`` are unpacked. Raises LostWindowError."""
    if not debt.window:
        raise LostWindowError("its window is gone")
    n_channels, n_points = debt.shape
    n_bytes = n_channels * n_points * _FLOATS.itemsize
    if min(debt.shape) < 1 or not 1 <= debt.length <= n_points or n_bytes > MOST_DEBT_BYTES:
        raise LostWindowError("its window is damaged")
    unpacking = zlib.decompressobj()
    try:
        content = unpacking.decompress(debt.window, n_bytes + 1)
    except zlib.error as error:
        raise LostWindowError("its window is damaged") from error
    if len(content) != n_bytes or not unpacking.eof:
        raise LostWindowError("its window is damaged")
    values = np.frombuffer(content, dtype=_FLOATS).astype(np.float32).reshape(debt.shape)
    return Window(values, debt.length)


class Ledger:
    """The debts of one partition, at most ``MOST_DEBTS`` and ``MOST_DEBT_BYTES`` of them.

    Those of a restored partition count too, however many they are. ``max_item_bytes`` is that of the committer.
    """

    def __init__(self, debts: Iterable[Debt] = (), max_item_bytes: int | None = None) -> None:
        self._max_item_bytes = max_item_bytes
        self._sizes = {debt.alert.alert_id: _size_of(debt) for debt in debts}

    def owe(self, alert: Alert, terms: FloatArray, window: Window) -> Debt | None:
        """Return a new debt, which counts from now on; None if there is no room for it."""
        if len(self._sizes) >= MOST_DEBTS or window.values.nbytes > MOST_DEBT_BYTES:
            return None
        debt = debt_of(alert, terms, window)
        size = _size_of(debt)
        if self._max_item_bytes is not None and size > self._max_item_bytes:
            return None
        if sum(self._sizes.values()) + size > MOST_DEBT_BYTES or alert.alert_id in self._sizes:
            return None
        self._sizes[alert.alert_id] = size
        return debt

    def paid(self, alert_id: str) -> None:
        """Count the debt no more."""
        self._sizes.pop(alert_id, None)


def _size_of(debt: Debt) -> int:
    return len(msgspec.msgpack.encode(debt)) + _KEY_BYTES


LIMIT_S = 60.0
"""An attribution that takes longer is given up."""
_MOST_MODELS, _MOST_VERSIONS = 4, 2
"""Models in memory at most, and versions of one name: alerts are of the version in service, or of the one before."""
_TOGETHER = 16
_PATIENCE_S = 0.2  # at most 11 times in an attribution
_REASON_CHARACTERS = 300


class _UnexplainedError(Exception):
    """Raised where an alert cannot be explained, with the reason."""


class NoReferenceError(ArtifactError):
    """Raised for a model without reference windows, which can explain nothing."""


def attribution_by(
    model: ModelInService, alert: Alert, terms: FloatArray, window: Window, settings: Settings
) -> Attribution:
    """Return why ``model`` gave these terms [K] to ``window``. Raises NoReferenceError, and whatever the model does."""
    if model.reference is None:
        raise NoReferenceError(f"{_label(alert.model)} has no reference windows to compare with: train again")
    span_us = round((alert.end_time - alert.start_time) / timedelta(microseconds=1))
    return make_attribution(
        alert,
        terms,
        calibration=model.calibration,
        explanation=explain(_BehindJudging(model.scorer), window, model.reference, model.envelope),
        channels=settings.channel_specs,
        method=METHOD,
        names=model.terms,
        shown=shown_share(settings.window, alert.n_samples, span_us),
    )


def _unsqueezed(reference: Reference, early: EarlyModel, settings: WindowSettings) -> Reference | None:
    """Return the windows whose points are those that a look sees, None if there are none.

    A longer sequence may be squeezed to the window's length: the points of such a window are others.
    """
    if settings.longer != "resample" or (early.longest is not None and early.longest < settings.length):
        return reference
    kept = np.flatnonzero(reference.lengths < settings.length)
    names = tuple(reference.names[place] for place in kept) if reference.names else ()
    return Reference(reference.values[kept], reference.lengths[kept], names) if len(kept) else None


class _BehindJudging:
    """A scorer that lets windows go first that are being judged: it scores a few at a time, after a bounded wait."""

    def __init__(self, scorer: Scorer) -> None:
        self._scorer = scorer
        self.window_shape = scorer.window_shape
        self.n_terms = scorer.n_terms

    def score(self, windows: FloatArray, lengths: IntArray) -> FloatArray:
        """Return the terms [B, K] of windows [B, C, L]."""
        terms = [np.empty((0, self.n_terms), np.float32)]
        for begin in range(0, len(windows), _TOGETHER):
            JUDGING.wait_until_idle(_PATIENCE_S)
            part = slice(begin, begin + _TOGETHER)
            terms.append(self._scorer.score(windows[part], lengths[part]))
        return np.concatenate(terms)


class _Worker:
    """A thread with the models that it has loaded; only it uses their scorers."""

    def __init__(self, settings: Settings, load: Callable[[ModelRef], ModelInService]) -> None:
        self._settings = settings
        self._load = load
        self._models: OrderedDict[ModelRef, ModelInService] = OrderedDict()
        self._thread = LoneThread("streamad-explaining")

    def begin(self, alert: Alert, terms: FloatArray, window: Window) -> Future[Attribution]:
        """Begin to explain ``alert``; the result may be _UnexplainedError."""
        return self._thread.submit(self._explained, alert, terms, window)

    def begin_of_look(self, warning: EarlyWarning, number: int, window: Window) -> Future[Attribution]:
        """Begin to explain ``warning``, of the look ``number``, from 0."""
        return self._thread.submit(self._explained_look, warning, number, window)

    def close(self) -> None:
        """Take no more; a call under way runs to its end."""
        self._thread.shutdown(cancel_futures=True)

    def _explained_look(self, warning: EarlyWarning, number: int, window: Window) -> Attribution:
        """Return the attribution, by method "none" with the reason if there is no explanation. Never fails."""
        channels = self._settings.channel_specs
        try:
            model = self._model(warning.model)
            if model.early is None or model.reference is None:
                raise NoReferenceError(f"{_label(warning.model)} has no looks or reference windows: train again")
            look = model.early.looks[number]
            reference = _unsqueezed(model.reference, model.early, self._settings.window)
            assert isinstance(look.scorer, Scorer)  # it was loaded
            look = replace(look, scorer=_BehindJudging(look.scorer))
            found = None if reference is None else look.explained(window, reference, channels)
        except BaseException as error:  # noqa: BLE001 - the model is foreign code and may fail in any way
            return make_early_attribution(warning, None, channels, NO_METHOD, _reason(error))
        why = "no reference window that was not squeezed is as long as the look" if found is None else ""
        return make_early_attribution(warning, found, channels, METHOD if found is not None else NO_METHOD, why)

    def _explained(self, alert: Alert, terms: FloatArray, window: Window) -> Attribution:
        try:
            model = self._model(alert.model)
        except BaseException as error:  # noqa: BLE001 - the model is foreign code and may fail in any way
            raise _UnexplainedError(f"{_label(alert.model)} cannot be loaded any more: {_reason(error)}") from None
        try:
            return attribution_by(model, alert, terms, window, self._settings)
        except NoReferenceError as error:
            raise _UnexplainedError(str(error)) from None
        except BaseException as error:  # noqa: BLE001 - as above
            raise _UnexplainedError(f"{_label(alert.model)} failed while explaining: {_reason(error)}") from None

    def _model(self, ref: ModelRef) -> ModelInService:
        model = self._models.pop(ref, None)
        if model is None:
            model = self._load(ref)
        self._models[ref] = model  # the one needed last is the last
        n = len(self._models)
        for kept in [kept for kept in self._models if kept.name == ref.name][:-_MOST_VERSIONS]:
            del self._models[kept]
        while len(self._models) > _MOST_MODELS:
            self._models.popitem(last=False)
        if len(self._models) < n:
            give_back_memory()
        return model


class Explainer:
    """Makes attributions, one at a time.

    ``load`` returns a model by name and version, with a scorer that nobody else uses. Law: every alert gets its
    attribution, by method "none" with the reason if the model cannot be loaded, fails, or takes over a minute. A thread
    that hangs is left to itself; alerts of its model are not explained until its call returns. Use inside one running
    event loop.
    """

    def __init__(self, settings: Settings, clock: Clock, load: Callable[[ModelRef], ModelInService]) -> None:
        self._settings = settings
        self._clock = clock
        self._load = load
        self._limit_s = LIMIT_S
        if settings.run.stall_timeout:  # an alert that waits for its attribution must not stall the run
            self._limit_s = min(LIMIT_S, settings.run.stall_timeout / 2e6)
        self._worker = _Worker(settings, load)
        self.durations = Histogram()
        """The times in which attributions were made."""
        self._one_at_a_time = asyncio.Lock()
        self._one_debt_at_a_time = asyncio.Lock()
        self._hanging: dict[ModelRef, Future[Attribution]] = {}

    async def attribution(self, alert: Alert, terms: FloatArray, window: Window) -> Attribution:
        """Return why ``alert`` was raised. Never fails."""
        try:
            async with self._one_at_a_time:
                return await self._made(alert, terms, window)
        except _UnexplainedError as error:
            return unexplained(alert, str(error))

    async def of_look(self, warning: EarlyWarning, number: int, window: Window) -> Attribution:
        """Return why ``warning`` was raised by the look ``number``, from 0, at ``window`` [C, n]. Never fails."""
        try:
            async with self._one_at_a_time:
                begin = partial(self._worker.begin_of_look, warning, number, window)
                return await self._waited_for(warning.model, begin)
        except _UnexplainedError as error:
            return make_early_attribution(warning, None, self._settings.channel_specs, NO_METHOD, str(error))

    async def attribution_of(self, debt: Debt) -> Attribution:
        """Return the attribution that is owed, after the alerts that wait for theirs. Never fails."""
        async with self._one_debt_at_a_time:
            try:
                terms, window = terms_of(debt), window_of(debt)
            except LostWindowError as error:
                return unexplained(debt.alert, str(error))
            return await self.attribution(debt.alert, terms, window)

    def close(self) -> None:
        """Take no more; a call under way runs to its end, at most until the process ends."""
        self._worker.close()

    async def _made(self, alert: Alert, terms: FloatArray, window: Window) -> Attribution:
        return await self._waited_for(alert.model, partial(self._worker.begin, alert, terms, window))

    async def _waited_for(self, model: ModelRef, begin: Callable[[], Future[Attribution]]) -> Attribution:
        self._hanging = {model: call for model, call in self._hanging.items() if not call.done()}
        if model in self._hanging:
            raise _UnexplainedError(f"{_label(model)} is still busy with an alert before: it hangs")
        begun_us = self._clock.monotonic_us()
        call = begin()
        ended = asyncio.Event()
        loop = asyncio.get_running_loop()
        call.add_done_callback(lambda _: _wake(loop, ended))
        if not call.done():
            await pause(self._limit_s, self._clock, ended)
        if call.done():
            self.durations.add((self._clock.monotonic_us() - begun_us) / 1e6)
            return call.result()
        self._hanging[model] = call
        self._worker.close()
        self._worker = _Worker(self._settings, self._load)
        raise _UnexplainedError(f"explaining took longer than {self._limit_s:g} s and was given up")


def _wake(loop: asyncio.AbstractEventLoop, ended: asyncio.Event) -> None:
    try:
        loop.call_soon_threadsafe(ended.set)
    except RuntimeError:  # the loop is closed: nobody waits any more
        return


def _label(model: ModelRef) -> str:
    return f"model {model.name} {model.version}"


def _reason(error: BaseException) -> str:
    text = text_of(error) if isinstance(error, StreamadError) else failure_of(error)
    return masked(one_line(text))[:_REASON_CHARACTERS]
