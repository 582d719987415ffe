"""Looks at running sequences, behind the judging of finished ones; and what is left of them at a sequence's end.

Law (tests/unit/runtime/test_looks.py, tests/faults/test_sigkill.py): whether a sequence is warned of, at which look
and with which p-value is a function of its accepted samples in event-time order, whenever the looks are taken and
however often the process is killed. A look is due once a sample lies behind its last point: then no sample that is
still accepted changes what it sees. Looks that were not taken while the sequence ran are taken at its end, before its
verdict.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import NamedTuple

import msgspec
import numpy as np

from streamad.errors import some_of
from streamad.ingest.intake import Intake
from streamad.ingest.sequences.open_sequence import OpenSequence
from streamad.ingest.sequences.sequence_ends import StreamState
from streamad.ingest.windowing import Unscorable
from streamad.judge.bank import Batchers
from streamad.judge.early.course import Course, course_of, look_at, n_seen, n_seen_of
from streamad.judge.early.model import NO_LOOK, EarlyModel, Look
from streamad.judge.early.pinned import MOST_LOADED, NotNowError, PinnedVersions
from streamad.judge.explainer import Explainer
from streamad.judge.scoring import MicroBatcher, ModelInService
from streamad.judge.verdicts import make_early_attribution
from streamad.messages import NO_METHOD, EarlyWarning, Looked, ModelRef, OutputRecord, Role, WarningRef
from streamad.partition_progress import LooksTaken
from streamad.ports import Clock
from streamad.safe_text import visible_name
from streamad.settings.plant_yaml import Settings
from streamad.telemetry.events import Emit
from streamad.types import FinishedSequence, FloatArray, Window, from_us

_ALL = 1_000_000
"""Looks that a sequence without a model counts as taken: there are no more."""
_IN_A_ROW = 256
"""Open sequences whose ages are compared before records, verdicts and commits get their turn."""
_MOST_EXPLAINED = 8
"""Sequences that may wait at their end for the reasons of their warnings: other verdicts and alerts wait for them."""
_TOO_MANY = "more sequences were warned of at their end than could be explained without delaying others"
_PATIENCE_US = 3_000_000
"""How long the end of a sequence waits for a version that cannot be read for a reason that may pass."""


def warning_id(stream: str, sequence: str, start_us: int) -> str:
    """Return the id of a sequence's warning: 32 hex digits of the SHA-256 of its identity.

    Unlike the id of its alert it does not contain the first position: a sample that comes later may still lower it.
    """
    identity = msgspec.json.encode(["warning", stream, sequence, start_us])
    return hashlib.sha256(identity).hexdigest()[:32]


class Seen(NamedTuple):
    """What looks have found at a sequence: the looks taken, and the messages of a new warning.

    ``maxima`` are the largest z [looks] after each of the looks that were taken now. ``unexplained``: a warning without
    its reasons, the number of its look, and what that saw.
    """

    looks: LooksTaken
    outputs: tuple[OutputRecord, ...] = ()
    maxima: tuple[float, ...] = ()
    unexplained: tuple[EarlyWarning, int, Window] | None = None


class _Pinned(NamedTuple):
    """A version and its looks; None: it has none, or cannot be loaded."""

    ref: ModelRef
    early: EarlyModel | None


class _Due(NamedTuple):
    """A running sequence of the stream ``name`` at which a look is due, and what scores it."""

    name: str
    stream: StreamState
    sequence: OpenSequence
    batcher: MicroBatcher


def _is_whole(sequence: OpenSequence) -> bool:
    return not sequence.partial and sequence.late is None and not sequence.is_torn


class Looking:
    """Takes the looks that are due, each sequence's by the version that took its first one.

    ``load`` returns a version by name and number, for sequences that began before another was put into service, or
    before a restart. ``explainer`` makes the attributions of warnings; without it there are none.
    """

    def __init__(
        self,
        settings: Settings,
        batchers: Batchers,
        clock: Clock,
        *,
        load: Callable[[ModelRef], ModelInService],
        explainer: Explainer | None,
        emit: Emit,
    ) -> None:
        assert settings.alerts.early is not None
        self._settings = settings
        self._rate = settings.alerts.early.false_alarm_rate
        self._channels = settings.channel_specs
        self._batchers = batchers
        self._clock = clock
        self._explainer = explainer
        self._emit = emit
        self._former = PinnedVersions(load, clock, emit)
        self._ages: dict[ModelRef, tuple[int, ...] | None] = {}
        self._limits: dict[ModelRef, float] = {}
        self._n_explained = 0

    async def visit(
        self, intake: Intake, tell: Callable[[list[OutputRecord]], None], is_split: Callable[[str], bool]
    ) -> None:
        """Take the looks that are due at open sequences, as long as no finished one is being judged.

        ``tell`` puts messages into the next commit, which also has the looks that were taken. ``is_split``: the stream
        lies in several partitions, so that its sequences are not whole.
        """
        self._former.drop_unneeded()
        for each in await self._due(intake, is_split):
            if not self._batchers.is_idle:
                return
            with suppress(NotNowError):
                await self._look_at(intake, tell, each)

    async def _due(self, intake: Intake, is_split: Callable[[str], bool]) -> list[_Due]:
        """Return the open sequences at which a look is due."""
        due, n_compared = [], 0
        for name, stream in list(intake.streams.items()):
            for sequence in list(stream.open.values()):
                n_compared += 1
                if n_compared % _IN_A_ROW == 0:
                    await asyncio.sleep(0)
                if not _is_whole(sequence) or is_split(name):
                    continue
                batcher = await self._batcher(tuple(value for _, value in sequence.routes))
                with suppress(NotNowError):  # what cannot be seen yet is seen later, or at its end
                    if batcher is not None and await self._is_due(batcher, sequence):
                        due.append(_Due(name, stream, sequence, batcher))
        return due

    async def _look_at(self, intake: Intake, tell: Callable[[list[OutputRecord]], None], due: _Due) -> None:
        """Take the looks at a sequence; if it ends meanwhile, its end has taken them, or takes them now."""
        name, stream, sequence, batcher = due
        if stream.open.get(sequence.key) is not sequence or not _is_whole(sequence):
            return
        held = None
        if stream.readings is not None:
            held = stream.readings.row_of(sequence.held, sequence.n_channels)
        seen = await self._seen(sequence.so_far(name, held), sequence.looks, batcher)
        if seen is not None and stream.open.get(sequence.key) is sequence:
            n, largest = (0, NO_LOOK) if sequence.looks is None else (sequence.looks.n, sequence.looks.largest)
            sequence.maxima = _continued(sequence.maxima, n, largest, seen.maxima)
            sequence.looks = seen.looks
            intake.looked_at(name)
            tell(list(seen.outputs))

    async def finish(self, sequence: FinishedSequence, looks: LooksTaken | None, batcher: MicroBatcher) -> Seen | None:
        """Take the looks at a finished sequence that were not taken while it ran.

        A warning that they raise has no reasons yet: an alert must not wait for them, and has its own.
        """
        if sequence.partial or sequence.is_late:
            return None
        left_us = _PATIENCE_US
        while True:
            try:
                return await self._seen(sequence, looks, batcher, explains=False)
            except NotNowError as error:
                assert looks is not None  # else the version in service looks at it
                left_us -= error.waited_us + error.wait_us
                if left_us < 0:
                    self._former.gave_up(looks.model)
                    return Seen(msgspec.structs.replace(looks, n=_ALL))
                await self._clock.sleep(error.wait_us / 1e6)

    async def explained(self, seen: Seen) -> Seen:
        """Return ``seen`` with the reasons of the warning that was raised at the end, if there is one.

        Of many at once only ``_MOST_EXPLAINED`` get theirs: verdicts and alerts wait for them.
        """
        if seen.unexplained is None or self._explainer is None:
            return seen
        if self._n_explained < _MOST_EXPLAINED:
            self._n_explained += 1
            try:
                attribution = await self._explainer.of_look(*seen.unexplained)
            finally:
                self._n_explained -= 1
        else:
            attribution = make_early_attribution(seen.unexplained[0], None, self._channels, NO_METHOD, _TOO_MANY)
        made = OutputRecord("attributions", attribution.stream, attribution)
        return seen._replace(outputs=(*seen.outputs, made), unexplained=None)

    def looked(self, sequence: OpenSequence) -> Looked | None:
        """Return what looks have found so far at an open sequence, None if that is nothing."""
        looks = sequence.looks
        early = None if looks is None else self._early_of(looks.model)
        if looks is None or early is None or looks.largest <= NO_LOOK:
            return None
        if looks.model not in self._limits:
            if len(self._limits) > MOST_LOADED:
                self._limits.clear()
            self._limits[looks.model] = early.calibration.alert_score(self._rate)
        limit = self._limits[looks.model]
        maxima = _continued(sequence.maxima, min(looks.n, len(early.looks)), looks.largest)
        known = np.flatnonzero(np.isfinite(maxima))
        return Looked(
            model=looks.model,
            age=round(self._n_points(sequence) / early.usual, 4),
            p_value=early.p_value(looks.largest)[0],
            limit=limit if np.isfinite(limit) else None,
            ages=[round(early.looks[number].form.n_points / early.usual, 4) for number in known.tolist()],
            largest=[float(f"{each:.5g}") for each in maxima[known].tolist()],
            warning_id=None if looks.warning is None else looks.warning.warning_id,
        )

    def _early_of(self, ref: ModelRef) -> EarlyModel | None:
        in_service = next((each for each in self._batchers.models if each.ref == ref), None)
        return self._former.in_memory(ref) if in_service is None else in_service.early

    def _n_points(self, sequence: OpenSequence) -> int:
        since_us = sequence.start_us if sequence.begun_us is None else sequence.begun_us
        return n_seen(self._settings.window, sequence.n, sequence.last_us - since_us)

    async def _is_due(self, batcher: MicroBatcher, sequence: OpenSequence) -> bool:
        """Return whether a look is due, by the ages of looks alone: neither samples nor a model are needed for it."""
        looks = sequence.looks
        if batcher.model is None:
            return False
        ref, n_taken = (batcher.model.ref, 0) if looks is None else (looks.model, looks.n)
        if ref not in self._ages:
            pinned = await self._pinned(batcher, looks)
            early = None if pinned is None else pinned.early
            self._ages[ref] = None if early is None else early.due_at
        if (ages := self._ages[ref]) is None:
            return looks is not None and n_taken < _ALL
        return n_taken < len(ages) and ages[n_taken] <= self._n_points(sequence)

    async def _batcher(self, routes: tuple[str, ...]) -> MicroBatcher | None:
        """Return what scores a sequence with ``routes``; None before the value that chooses its model was seen."""
        if self._settings.models is not None and len(routes) != 1:
            return None
        batcher = await self._batchers.batcher_for(routes)
        return None if isinstance(batcher, Unscorable) else batcher

    async def _pinned(self, batcher: MicroBatcher, looks: LooksTaken | None) -> _Pinned | None:
        """Return the version that looks at a sequence with these ``looks``: that of the first one, else the one served.

        None before the first version. Raises NotNowError.
        """
        served = batcher.model
        if served is None:
            return None
        if looks is None or looks.model == served.ref:
            return _Pinned(served.ref, served.early)
        return _Pinned(looks.model, await self._former.looks_of(looks.model))

    async def _seen(
        self,
        sequence: FinishedSequence,
        looks: LooksTaken | None,
        batcher: MicroBatcher,
        *,
        explains: bool = True,
    ) -> Seen | None:
        """Return what the looks that are due and not taken see; None if there are none. Raises NotNowError."""
        if (pinned := await self._pinned(batcher, looks)) is None:
            return None
        ref, early = pinned
        taken = LooksTaken(model=ref, n=0, largest=NO_LOOK) if looks is None else looks
        if early is None:
            return None if looks is None else Seen(msgspec.structs.replace(taken, n=_ALL))
        window = self._settings.window
        n_due, n_looks = early.n_due(n_seen_of(sequence, window)), len(early.looks)
        if n_due <= taken.n:
            return None if looks is None else Seen(taken)
        course = course_of(sequence, window, early.looks[min(n_due, n_looks) - 1].form.n_points)
        outputs: tuple[OutputRecord, ...] = ()
        largest, warned, maxima = taken.largest, taken.warning, list[float]()
        unexplained: tuple[EarlyWarning, int, Window] | None = None
        for number in range(taken.n, min(n_due, n_looks)):
            seen = look_at(course, early.looks[number].form.n_points, window, self._channels)
            if seen is None:  # too much is missing up to there
                maxima.append(largest)
                continue
            # Alone: in company the last digits of z would depend on the others, and on when the look is taken.
            largest = max(largest, float((await batcher.run(early.looks[number].z, [seen]))[0]))
            maxima.append(largest)
            outputs = (*outputs, *self._moved_early(sequence, course, early.looks[: number + 1], seen, ref))
            if warned is None and early.p_value(largest)[0] <= self._rate:
                warning = self._warning(sequence, ref, early, number, largest)
                warned = WarningRef(warning.warning_id, warning.age)
                outputs = (*outputs, *await self._told(warning, number, seen if explains else None))
                unexplained = None if explains else (warning, number, seen)
        if n_due > n_looks:
            text = f"goes on beyond the longest training sequence ({early.longest} points)"
            outputs = (*outputs, self._event("runs_long", sequence, text, ref))
        looks = LooksTaken(model=ref, n=n_due, largest=largest, warning=warned)
        return Seen(looks, outputs, tuple(maxima), unexplained)

    def _moved_early(
        self, sequence: FinishedSequence, course: Course, looks: Sequence[Look], window: Window, ref: ModelRef
    ) -> tuple[OutputRecord, ...]:
        """Return the event of channels that the last of ``looks``, at ``window``, is the first to see move too early.

        Whether it is the first follows from the samples alone: the looks before saw the beginning of the same course.
        """
        moved = looks[-1].moved(window)
        if moved:
            for look in reversed(looks[:-1]):
                before = look_at(course, look.form.n_points, self._settings.window, self._channels)
                if before is not None:
                    moved -= look.moved(before)
                    break
        if not moved:
            return ()
        which = some_of([self._channels[channel].name for channel in sorted(moved)])
        text = f"{which} moved within {window.length} points, earlier than in all training sequences"
        return (self._event("moved_early", sequence, text, ref),)

    def _event(self, kind: str, sequence: FinishedSequence, text: str, ref: ModelRef) -> OutputRecord:
        """Return an event of a sequence; it is committed with the looks taken."""
        text = f"{visible_name(sequence.sequence)}: {text}"
        event = self._emit(kind, text, stream=sequence.stream, model=ref, waits=False)
        return OutputRecord("events", sequence.stream, event)

    async def _told(self, warning: EarlyWarning, number: int, window: Window | None) -> tuple[OutputRecord, ...]:
        """Return the messages of ``warning``; without a sink of its own it goes to the alerts."""
        role: Role = "alerts" if self._settings.sinks.warnings is None else "warnings"
        told = OutputRecord(role, warning.stream, warning)
        if self._explainer is None or window is None:
            return (told,)
        attribution = await self._explainer.of_look(warning, number, window)
        return (told, OutputRecord("attributions", warning.stream, attribution))

    def _warning(
        self, sequence: FinishedSequence, ref: ModelRef, early: EarlyModel, number: int, largest: float
    ) -> EarlyWarning:
        n_points, resample = early.looks[number].form.n_points, self._settings.window.resample
        if resample is None:
            time_us = int(sequence.times_us[n_points - 1])
        else:
            time_us = sequence.start_us + (n_points - 1) * resample.period
        p_value, tail = early.p_value(largest)
        return EarlyWarning(
            warning_id=warning_id(sequence.stream, sequence.sequence, sequence.start_us),
            stream=sequence.stream,
            sequence=sequence.sequence,
            start_time=from_us(sequence.start_us),
            time=from_us(time_us),
            n_points=n_points,
            age=round(n_points / early.usual, 4),
            look=number + 1,
            score=largest,
            p_value=p_value,
            false_alarm_rate=self._rate,
            tail=tail,
            model=ref,
            created_at=from_us(self._clock.now_us()),
        )


def _continued(maxima: FloatArray, n: int, largest: float, new: tuple[float, ...] = ()) -> FloatArray:
    """Return the largest z float32 [looks] after each look: the ``maxima`` so far, and the ``new`` ones behind them.

    Of the ``n`` looks that were taken before a restart only the last one's is known, ``largest``; NaN where none was
    taken, too.
    """
    if n and not len(maxima):
        maxima = np.full(n, np.nan, dtype=np.float32)
        maxima[-1] = largest
    found: FloatArray = np.concatenate([maxima, np.array(new, dtype=np.float32)])
    found[found <= NO_LOOK] = np.nan
    return found
