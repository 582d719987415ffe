"""The learner of a plant: follows its windows and marks, and keeps one ``ModelLearner`` for each model."""

from __future__ import annotations

import asyncio
import re
from base64 import b64decode
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import numpy as np

from streamad.errors import RegistryError, SourceError, StoreError, StreamadError, TakenOverError
from streamad.judge.early.packing import unpacked
from streamad.learn.parts import known_models, may_be_added, registry_of, store_for, stored_names
from streamad.learn.process.feedback_reader import FeedbackReader
from streamad.learn.process.model_learner import ModelLearner
from streamad.learn.process.state import LearnerState, ModelState, StateFile
from streamad.learn.store.records import StoredSequence, mark_of
from streamad.messages import Feedback, Request, Share, Window, unpacked_values
from streamad.messages.accepting import is_alert_id
from streamad.outputs.reader import Decoder, Reader, Received, Unreadable
from streamad.outputs.reading import subscription_of
from streamad.plant import Plant
from streamad.ports import (
    EndingSubscription,
    ExclusiveSubscription,
    HoldingSubscription,
    Subscription,
)
from streamad.safe_text import described
from streamad.settings.places import file_path, sink_urls
from streamad.system.clock import pause
from streamad.system.tasks import wait_for_either
from streamad.system.threads import LoneThread
from streamad.telemetry.events import Emit
from streamad.telemetry.logs import get_logger
from streamad.telemetry.metrics import LearningCounters
from streamad.types import MAX_TIME_US, ChannelSpec, to_us
from streamad.types import Window as Values

_RETRY_S = 5.0
_TURN_S = 1.0
_DETAIL = re.compile("[:`']")  # what follows in a reason is of one line alone


class PlantLearner:
    """Learns the models of ``plant`` from its committed windows and marks; it judges nothing.

    A window is done, for the group that reads them, only when it is durable in the store; the store knows what it has,
    so that whatever comes again changes nothing. ``run`` follows until it is cancelled; ``finish`` takes what is there
    now, trains what is due, and returns. ``state`` is the file that says how far each model is, and how many ``events``
    were emitted, by kind. Without ``trains`` it only stores, marks and deletes.
    """

    def __init__(
        self,
        plant: Plant,
        emit: Emit,
        state: StateFile | None = None,
        *,
        events: Mapping[str, int] | None = None,
        trains: bool = True,
    ) -> None:
        assert plant.settings.learning is not None
        # Above 15 attributes: the root of the process, which makes its parts and joins them.
        self._plant = plant
        self._clock = plant.clock
        self._emit = emit
        self._state = state
        self._events = events or {}
        self._trains = trains
        self._thread = LoneThread("streamad-learner")
        self._turns = asyncio.Semaphore(1)
        self._learners: dict[str, ModelLearner] = {}
        self._feedback: FeedbackReader | None = None
        self._beside: list[asyncio.Task[None]] = []
        self._opening = asyncio.Lock()
        self._is_failing = False
        self._cannot_train = False
        self._has_begun = False
        self._skipped: Counter[str] = Counter()  # by the reason, since the start
        self.purged: dict[str, int] = {}
        """How many sequences each purge has deleted, by the id of its request."""
        self._subscription: Subscription | None = None
        self._ending = asyncio.Event()
        self._stopped = asyncio.Event()
        self.counters: dict[str, LearningCounters] = {}
        """Of each model, since the start."""

    async def open(self) -> None:
        """Open the stores of the models that are known by now. Raises StoreError, RegistryError."""
        for name in known_models(self._plant, stored_names(self._plant)):
            await self._learner_of(name)

    async def run(self) -> None:
        """Follow windows and marks and train what is due, until ``finish`` has read what is there, or cancelled.

        Raises StoreError or RegistryError if what there is cannot be opened at the first time.
        """
        try:
            await self._follow()
        finally:
            await self._end_work()

    def request_stop(self) -> None:
        """End reading and begin no more training; one that runs is ended and resumes at the next start."""
        self._stopped.set()
        self._end_reading()

    @property
    def is_stopped(self) -> bool:
        """Return whether a stop was requested."""
        return self._stopped.is_set()

    def finish(self) -> None:
        """Let ``run`` end once all that lies there now is stored, and the trainings that are due by it have ended."""
        self._end_reading()

    def _end_reading(self) -> None:
        self._ending.set()
        if isinstance(self._subscription, EndingSubscription):
            self._subscription.end_with_present()

    async def close(self) -> None:
        """End what runs; safe to call twice."""
        await self._end_work()
        self._thread.shutdown(cancel_futures=True)

    # --- reading ---

    async def _follow(self) -> None:
        while not self._stopped.is_set():
            try:
                await self._read()
                if self._ending.is_set():
                    return
            except TakenOverError as error:
                get_logger().warning("nothing is learned here until the other learner ends", why=str(error))
                if self._ending.is_set():
                    raise
            except StreamadError as error:
                if not self._is_failing:
                    self._emit("learning_failed", f"nothing is learned: {error}; scoring goes on", level="error")
                self._is_failing = True
                cannot_begin = not self._has_begun and isinstance(error, StoreError | RegistryError)
                if self._ending.is_set() or cannot_begin:
                    raise
            await pause(_RETRY_S, self._clock, self._ending)

    async def _read(self) -> None:
        """Read until the end, or a stop; if another learner has the windows, first wait until it has ended."""
        subscription = self._subscription = windows_of(self._plant)
        assert isinstance(subscription, HoldingSubscription)
        if self._ending.is_set():
            self._end_reading()
        async with Reader(subscription, WINDOWS, on_unreadable=self.skip, ahead=True) as messages:
            try:
                if not await self._has_taken(subscription, messages):
                    return
                await self._begin_work()
                await self._take_all(messages)
            finally:
                if isinstance(subscription, ExclusiveSubscription):  # from its end on another learner may work
                    await self._end_work()

    async def _has_taken(self, subscription: Subscription, messages: Reader[Window]) -> bool:
        """Return True once the windows are this learner's alone, False if it is stopped first. Raises SourceError."""
        if not isinstance(subscription, ExclusiveSubscription):
            return True
        taking = asyncio.ensure_future(subscription.taken())
        try:
            await wait_for_either(self._stopped, taking)
        finally:
            taking.cancel()
            await asyncio.gather(taking, return_exceptions=True)
        if taking.cancelled():
            return False
        if not taking.result():
            await messages.arrived()  # raises why they cannot be read
            raise TakenOverError("another learner has taken over")
        return True

    async def _take_all(self, messages: Reader[Window]) -> None:
        """Take what arrives; at the end also the marks that are there, and train what is due."""
        while batch := await messages.arrived():
            await self._check_ours()
            await self.take(batch)
            messages.done(one.number for one in batch)
            self._is_failing = False
            if self._stopped.is_set():
                return
        if self._ending.is_set() and not self._stopped.is_set():
            assert self._feedback is not None
            left = await self._feedback.read_present(self._stopped, self._plant.settings.run.stop_timeout / 1e6)
            if left is not None:
                self._emit("feedback_left", f"{left.text}, for the next start: {left.why}")
            await self.train_to_the_end()

    async def _check_ours(self) -> None:
        """Raise TakenOverError unless this is the only learner: nothing that was read before may be stored then."""
        subscription = self._subscription
        if isinstance(subscription, ExclusiveSubscription) and not await subscription.is_ours():
            raise TakenOverError("another learner has taken over: what was read here and not stored is its to learn")

    async def _begin_work(self) -> None:
        """Open the stores; take marks and train what is due from now on. Raises StoreError, RegistryError."""
        if self._feedback is not None:
            return
        await self.open()
        self._has_begun = True
        self._feedback = FeedbackReader(self._plant, self._told, self._emit)
        self._write_state()
        self._beside += [asyncio.create_task(self._feedback.run()), asyncio.create_task(self._turn_on())]

    async def _end_work(self) -> None:
        """End the marks, and the trainings, which resume at the next start; close the stores. Safe to call twice."""
        beside, self._beside = self._beside, []
        for task in beside:
            task.cancel()
        await asyncio.gather(*beside, return_exceptions=True)
        feedback, self._feedback = self._feedback, None
        if feedback is not None:
            await feedback.close()
        learners = tuple(self._learners.values())
        await asyncio.gather(*(learner.trainings.close() for learner in learners))
        if learners:
            self._write_state()
        self._learners.clear()
        for learner in learners:
            await learner.close()

    async def take(self, batch: Sequence[Received[Window]]) -> None:
        """Take a slice of windows, durable on return; those that are none to learn from are skipped."""
        by_model: dict[str, list[tuple[StoredSequence, Share]]] = {}
        first: dict[str, str] = {}
        for received in batch:
            window, one = received.message, self._sequence_of(received.message)
            if isinstance(one, str):
                self.skip(Unreadable(received.place, one))
            else:
                assert window.share is not None
                name = window.model_name or self._plant.settings.model.name
                by_model.setdefault(name, []).append((one, window.share))
                first.setdefault(name, received.place)
        for name, sequences in by_model.items():
            if (learner := await self._learner_of(name)) is not None:
                sequences.sort(key=lambda each: (each[0].time_us, each[0].id))
                await learner.take(sequences)
            else:
                why = f"its model is none of this plant's or one too many: model {name[:80]}"
                self.skip(Unreadable(first[name], why))
        self._write_state()

    def _sequence_of(self, window: Window) -> StoredSequence | str:
        settings = self._plant.settings
        return stored_sequence(window, settings.channel_specs, settings.window.length, self._clock.now_us())

    def skip(self, unreadable: Unreadable) -> None:
        """Say of the first, tenth, hundredth ... message with a reason that it and others like it are skipped."""
        place, why = unreadable
        reason = _DETAIL.split(why, maxsplit=1)[0]
        self._skipped[reason] = n = self._skipped[reason] + 1
        if str(n).strip("0") == "1":
            text = f"{place}: not learned from, nor are others like it: {why[:300]}"
            self._emit("window_skipped", text, figures={"skipped": n})

    async def _learner_of(self, name: str) -> ModelLearner | None:
        """Return the learner of a model, None if it is none of this plant's."""
        async with self._opening:  # a window and a mark may name a new model at the same time
            return self._learners.get(name) or await self._opened(name)

    async def _opened(self, name: str) -> ModelLearner | None:
        if not may_be_added(self._plant.settings, name, tuple(self._learners)):
            return None
        learner = ModelLearner(
            name,
            self._plant,
            store_for(self._plant, name),
            registry_of(self._plant),
            thread=self._thread,
            emit=self._emit,
            counters=self.counters.setdefault(name, LearningCounters()),
            turns=self._turns,
        )
        await learner.open()
        self._learners[name] = learner
        self._beside.append(asyncio.create_task(learner.trainings.watch()))
        return learner

    async def _told(self, message: Feedback | Request, sender: str | None) -> None:
        """Store a mark, or do what is requested, in the store of its model; in all of them if it names none.

        Raises StoreError before there is a model, and if another learner has taken over: the message waits.
        """
        try:
            await self._check_ours()
        except SourceError as error:
            raise StoreError(str(error)) from error
        learners = await self._addressed(message)
        if isinstance(message, Request):
            await self._ask(message, sender, learners)
            return
        mark = mark_of(message, received_us=self._clock.now_us(), by=sender)
        for learner in learners:
            await learner.mark(mark)

    async def _ask(self, request: Request, sender: str | None, learners: Sequence[ModelLearner]) -> None:
        """Let each of ``learners`` do what is requested. Raises StoreError."""
        by = sender or (f"{request.by} (claimed)" if request.by else "")
        n = sum([await learner.ask(request, by) for learner in learners])
        if request.action == "purge":
            self.purged[request.request_id] = n
            text = f"{n} stored sequences deleted, as asked" + (f" by {by}" if by else "")
            self._emit("inliers_purged", text, level="info")
        elif not learners:
            why = f"{request.model} is none of this plant's models, or one too many"
            self._emit("request_refused", f"{request.action}: {why}")
        self._write_state()

    async def _addressed(self, message: Feedback | Request) -> tuple[ModelLearner, ...]:
        """Return the learner of the message's model; all if it names none or an unknown one. Raises StoreError."""
        name = message.model
        if name is None and isinstance(message, Request) and message.action != "purge":
            name = self._plant.settings.model.name
        named = None if name is None else await self._learner_of(name)
        if isinstance(message, Request) and name is not None and named is None:
            return ()
        learners = tuple(self._learners.values()) if named is None else (named,)
        if not learners and not isinstance(message, Request):  # a purge of nothing is done, and not due later
            raise StoreError("there is no model yet that could store it: it waits for the first one")
        return learners

    # --- training ---

    async def _turn_on(self) -> None:
        while True:
            if self._ending.is_set():  # one training at the end, on all that is there
                self._write_state()
            else:
                await self.turn()
            await pause(_TURN_S, self._clock, self._stopped)
            if self._stopped.is_set():
                return

    async def turn(self, *, only_waiting: bool = False) -> None:
        """Start the trainings that are due; ``only_waiting``: those that wait for a result alone."""
        failure = ""
        for learner in tuple(self._learners.values()) if self._trains else ():
            try:
                await learner.train_due(only_waiting=only_waiting)
            except Exception as error:  # noqa: BLE001 - the other models must not depend on it
                failure = str(error) if isinstance(error, StreamadError) else described(error)
        if failure and not self._cannot_train:
            self._emit("learning_failed", f"no training is begun: {failure}", level="error")
        self._cannot_train = bool(failure)
        self._write_state()

    async def train_to_the_end(self) -> None:
        """Start the trainings that are due and return once they have ended, or a stop is requested.

        Then it starts the trainings that persons asked for and those whose process died, if they have no result yet.
        All others wait for the next start: a training that fails again and again must not keep a run from its end.
        """
        is_first = True
        while not self._stopped.is_set():
            await self.turn(only_waiting=not is_first)
            is_first = False
            learners = tuple(self._learners.values())
            if any(learner.trainings.is_running for learner in learners):
                ended = asyncio.gather(*(learner.trainings.wait() for learner in learners))
                await wait_for_either(self._stopped, ended)
                ended.cancel()
                await asyncio.gather(ended, return_exceptions=True)
            elif not self._trains or not any([await learner.is_waiting() for learner in learners]):
                return
            else:  # for the end of another process, or the end of a pause
                await pause(_TURN_S, self._clock, self._stopped)

    def _write_state(self) -> None:
        if self._state is None:
            return
        models = {
            name: ModelState(**learner.held, training=learner.trainings.progress, counters=self.counters[name])
            for name, learner in self._learners.items()
        }
        self._state.write(LearnerState(models=models, events=dict(self._events)))


def windows_of(plant: Plant) -> Subscription:
    """Return a subscription to the committed windows of ``plant``, in the learner's group.

    Raises PluginError, ConfigError, SourceError.
    """
    settings = plant.settings
    assert settings.learning is not None
    wanted: dict[str, Any] = {"group": f"streamad.{settings.name[:46]}.learner", "start": "earliest"}
    url = sink_urls(settings)["windows"]
    if file_path(url) is not None:
        wanted["keep"] = settings.learning.keep_windows
    if file_path(url) is not None and settings.run.checkpoint is not None:
        wanted |= {"checkpoint": str(plant.base_dir / settings.run.checkpoint), "sink": url}
    return subscription_of(plant, "windows", wanted, is_patient=True, is_exclusive=True)


def _with_share(window: Window) -> Window:
    """Return ``window`` if it is one to learn from. Raises ValidationError."""
    if not is_alert_id(window.verdict_id) or window.end_time.tzinfo is None:
        raise msgspec.ValidationError("its id or its end_time is none")
    if window.share is None:
        raise msgspec.ValidationError("it has no share: it was written without the section learning")
    return window


WINDOWS = Decoder((Window,), accept=_with_share, only=True)
"""What a learner takes from the windows of a plant."""


def stored_sequence(
    window: Window, channels: tuple[ChannelSpec, ...], length: int, stored_us: int
) -> StoredSequence | str:
    """Return what the store keeps of a window record, or why it cannot be learned from."""
    names, units = [channel.name for channel in channels], [channel.unit for channel in channels]
    if (window.channels, window.units) != (names, units):
        return "its channels or units are not those of the config"
    if window.length > length:
        return "it is longer than window.length"
    try:
        values = np.zeros((len(channels), length), np.float32)
        values[:, : window.length] = unpacked_values(window)
        course = b64decode(window.course, validate=True) if window.course else None
        if course is not None:
            unpacked(course, values[:, : window.length], length)
    except ValueError as error:
        return f"its values do not fit: {error}"
    time_us = to_us(window.end_time)
    if not np.isfinite(values).all() or not 0 <= time_us <= MAX_TIME_US:
        return "it has values or a time that no worker writes"
    return StoredSequence(
        id=window.verdict_id,
        stream=window.stream,
        sequence=window.sequence,
        time_us=time_us,
        stored_us=stored_us,
        window=Values(values, window.length),
        decision=window.decision or "normal",
        score=window.score,
        p_value=window.p_value,
        model_version=None if window.model is None else window.model.version,
        course=course,
    )
