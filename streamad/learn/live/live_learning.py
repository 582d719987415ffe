"""The models of a run and their live learning: learners, and operators' feedback."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from streamad.errors import UsageError
from streamad.judge.bank import ModelBank
from streamad.judge.explainer import Explainer
from streamad.judge.scoring import Batchers, MicroBatcher, ModelInService
from streamad.learn.feedback.reader import FeedbackReader, Unread
from streamad.learn.live.learners import Learners
from streamad.learn.parts import registry_of, versions_of
from streamad.learn.registry.backends import emit_refused
from streamad.learn.store.records import mark_of
from streamad.messages import Feedback
from streamad.plant import Plant
from streamad.safe_text import described
from streamad.telemetry.events import Emit, EventLog
from streamad.telemetry.metrics import LearningCounters


async def models_at_work(
    plant: Plant,
    *,
    version: str | None = None,
    may_learn: bool = False,
    on_new: Callable[[str, MicroBatcher], None] | None = None,
    emit: Emit | None = None,
) -> Batchers:
    """Return the batchers that score: of the one model, or of several. ``on_new`` is called with each.

    ``may_learn``: a model without a version begins with a cold start. ``emit`` gets the events of refused backends.
    Raises NoModelError, RegistryError, ArtifactError, UsageError.
    """
    settings, name = plant.settings, plant.settings.model.name

    def taken(name: str, batcher: MicroBatcher) -> None:
        if on_new is not None:
            on_new(name, batcher)
        if emit is not None and batcher.model is not None:
            emit_refused(batcher.model, emit)

    if settings.models is None:
        model = _in_service(plant, name, version, may_learn=may_learn)
        batcher = MicroBatcher(model, plant.clock, settings.run, name=name)
        taken(name, batcher)
        return batcher
    if version is not None:
        raise UsageError("--version names a version of one model, but the config routes to several (models:)")
    bank = ModelBank(
        settings,
        plant.clock,
        lambda name: _in_service(plant, name, may_learn=settings.learning is not None),
        taken,
        existing=[model for model in registry_of(plant).names() if model.startswith(f"{name}.")],
    )
    await bank.open()
    return bank


def explainer_for(plant: Plant) -> Explainer:
    """Return what explains the alerts of the plant, with scorers of its own by version."""
    return Explainer(plant.settings, plant.clock, lambda model: versions_of(plant, model.name).load(model.version))


def _in_service(
    plant: Plant, name: str, version: str | None = None, *, may_learn: bool = False
) -> ModelInService | None:
    versions = versions_of(plant, name)
    if may_learn and version is None and versions.current() is None:
        return None
    return versions.load(version)


class LiveLearning(Learners):
    """The models of ``streamad run``, which learn as ``learning`` in the config says.

    Learners keep what was judged and train; operators' marks reach the stores. ``counters`` has an entry for each
    model.
    """

    def __init__(self, plant: Plant, events: EventLog) -> None:
        self.counters: dict[str, LearningCounters] = {}
        self._events = events
        super().__init__(plant, events.emit, self.counters)
        self._feedback = FeedbackReader(plant, self._take_feedback, events.emit)
        self._reading: asyncio.Task[None] | None = None
        self._stopped = asyncio.Event()
        self.unread: Unread | None = None
        """The feedback that the end of the input left unread, after ``close``."""

    async def begin(self) -> Batchers:
        """Return the batchers that score, and begin to learn. Raises what ``models_at_work`` does."""
        try:
            batchers = await models_at_work(self._plant, may_learn=True, on_new=self.add, emit=self._events.emit)
            await self.begun()
        except BaseException:
            await self.close(wait=False)
            raise
        self._reading = asyncio.create_task(self._feedback.run())
        return batchers

    @property
    def n_malformed_feedback(self) -> int:
        """How many messages of feedback were skipped because they were malformed."""
        return self._feedback.n_malformed

    async def _take_feedback(self, feedback: Feedback, sender: str | None) -> None:
        """Store an operator's mark; returns once it is durable. Raises StoreError, RegistryError: then try again."""
        await self.mark(mark_of(feedback, received_us=self._clock.now_us(), by=sender), feedback.model)

    def request_stop(self) -> None:
        """Begin no more training and end the one that runs, and leave feedback that waits: see ``Learners``."""
        self._stopped.set()
        super().request_stop()

    async def close(self, *, wait: bool) -> None:
        """Store what was judged; then, if ``wait``, train what is due, until ``request_stop``. Safe to call twice.

        ``wait``: the input has ended, so the marks of all feedback that is there now are stored first; what cannot be
        is the event ``feedback_left``.
        """
        if wait and not self._stopped.is_set():
            await self._read_present()
        await self._feedback.close()
        if self._reading is not None:
            (error,) = await asyncio.gather(self._reading, return_exceptions=True)
            if isinstance(error, BaseException) and not isinstance(
                error, asyncio.CancelledError
            ):  # what was judged must be stored all the same
                message = f"the reader of feedback has ended: {described(error)}"
                self._events.emit("learning_failed", message, level="error")
        await super().close(wait=wait)

    async def _read_present(self) -> None:
        left = self.unread = await self._feedback.read_present(
            self._stopped, self._plant.settings.run.stop_timeout / 1e6
        )
        if left is not None:
            self._events.emit("feedback_left", f"{left.text}, for the next run: {left.why}")
