"""One partition in the pipeline: its idle time, sequences in flight and debts, and the outputs of its next commit."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import IntEnum, auto
from typing import Any

import msgspec

from streamad.decisions.worker import Journal
from streamad.ingest.intake import Intake
from streamad.ingest.sequences.closed_sequences import Closed
from streamad.judge.explainer import Explainer, Ledger
from streamad.judge.gate import WindowRecords
from streamad.judge.judging import JudgedSequence
from streamad.judge.verdicts import unexplained
from streamad.messages import Attribution, DeadLetter, Event, LateRecord, OutputRecord
from streamad.partition_progress import Debt, Progress, ProgressUpdate, unchanged
from streamad.tables import ColumnBatch
from streamad.types import PartitionAssigned, PartitionEnded, RecordBatch


class Payments:
    """Pays the debts of a partition, each once: from the commit of its alert to that of its attribution.

    Without an ``explainer`` (nobody wants attributions any more) debts of a former run are paid without reasons.
    ``on_made`` is called whenever an attribution is ready.
    """

    def __init__(
        self, ledger: Ledger, explainer: Explainer | None, on_made: Callable[[asyncio.Task[Any]], None]
    ) -> None:
        self.ledger = ledger
        self._explainer = explainer
        self._on_made = on_made
        self._making: dict[str, tuple[Debt, asyncio.Task[Attribution]]] = {}
        self._ready: list[Attribution] = []

    @property
    def owes(self) -> int:
        """Return how many committed alerts have no attribution that was taken to be committed."""
        return len(self._making)

    @property
    def are_settled(self) -> bool:
        """Return whether no attribution is being made or ready."""
        return not self._making and not self._ready

    @property
    def are_ready(self) -> bool:
        """Return whether an attribution can be committed."""
        return bool(self._ready) or any(task.done() for _, task in self._making.values())

    @property
    def tasks(self) -> list[asyncio.Task[Any]]:
        """Return the tasks that make attributions."""
        return [task for _, task in self._making.values()]

    def take_up(self, debts: Iterable[Debt]) -> None:
        """Begin to make the attributions of committed ``debts``."""
        for debt in debts:
            if self._explainer is None:
                self._ready.append(unexplained(debt.alert, "attributions were switched off before it was made"))
                continue
            task = asyncio.create_task(self._explainer.attribution_of(debt))
            task.add_done_callback(self._on_made)
            self._making[debt.alert.alert_id] = debt, task

    def take(self) -> list[Attribution]:
        """Return the attributions that are ready, and forget their debts: they are about to be committed."""
        for name in [name for name, (_, task) in self._making.items() if task.done()]:
            self._ready.append(self._making.pop(name)[1].result())
        ready, self._ready = self._ready, []
        return ready

    def give_up(self, *, why: str | None) -> None:
        """Make no more attributions: the rest stays owed, or ends with the reason ``why``."""
        for name, (debt, task) in list(self._making.items()):
            if task.done():
                continue
            task.cancel()
            del self._making[name]
            if why is not None:
                self._ready.append(unexplained(debt.alert, why))


SPLIT = "stream seen in two partitions: its samples are split between them; check the message key"
"""The reason of the verdicts of a split stream."""
_MESSAGE_BYTES = 500
_ROW_BYTES = 200
_COMMITTING_SHARE = 10


class IdleClock:
    """Wall-clock idle time of a partition, counted only while its source reports that it is caught up.

    The source reports so with empty batches. Without one for longer than ``outage_us`` (a stalled broker), counting
    starts anew: an outage must not end sequences.
    """

    def __init__(self, outage_us: int) -> None:
        self._outage_us = outage_us
        self._seen_us: int | None = None
        self.idle_us = 0

    def on_batch(self, now_us: int, *, caught_up: bool, has_records: bool) -> None:
        """Note a batch that came at monotonic time ``now_us``."""
        passed = now_us - self._seen_us if self._seen_us is not None else None
        if has_records or not caught_up or passed is None or passed > self._outage_us:
            self.idle_us = 0
        else:
            self.idle_us += passed
        self._seen_us = now_us if caught_up else None


@dataclass(slots=True, eq=False)
class InFlight:
    """A finished sequence whose verdict is not committed; ``record_us`` is the partition's record clock at its end.

    ``nbytes``: of its samples, its window and what comes with them, about.
    """

    closed: Closed
    task: asyncio.Task[JudgedSequence]
    since_us: int
    nbytes: int
    record_us: int | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Results:
    """The contents of one commit: judged sequences, attributions of alerts committed before, and the progress.

    ``outputs`` are their messages and those set aside.
    """

    update: ProgressUpdate
    done: list[InFlight]
    judged: list[JudgedSequence]
    attributions: list[Attribution]
    outputs: list[OutputRecord]

    @property
    def debts(self) -> list[Debt]:
        """Return the debts that begin with this commit."""
        return [debt for debt in self.update.debts.values() if debt is not None]

    @property
    def forgotten(self) -> list[str]:
        """Return the streams of which nothing is saved any more, but what they hold."""
        return [name for name, saved in self.update.streams.items() if saved is None or saved.forgotten]


@dataclass(slots=True, eq=False)
class Committing:
    """A commit under way, with its contents."""

    results: Results
    task: asyncio.Task[None]
    since_us: int
    events: list[Event]


@dataclass(slots=True, eq=False)
class Restoring:
    """A partition that is being restored; batches that come after its seek wait in ``early``.

    ``first_begin`` is the offset where it began in this run if it was lost before its first commit.
    """

    event: PartitionAssigned
    task: asyncio.Task[Partition]
    first_begin: int | None = None
    is_sought: bool = False
    early: list[RecordBatch | ColumnBatch | PartitionEnded] = field(default_factory=list)


class Stage(IntEnum):
    """How far a partition is; it only goes forward, except that a stop leaves the end to the next run.

    READING. ENDING: its last record was read; the verdicts of before are committed first. ENDED: its open sequences
    were ended, or held; they are committed all at once. OVER: that is committed, and only debts keep it.
    """

    READING = auto()
    ENDING = auto()
    ENDED = auto()
    OVER = auto()


@dataclass(slots=True, eq=False)
class Partition:
    """A partition that is being read: its intake, its sequences in flight, its dead letters and late records.

    ``unread``: the progress of one that no source assigned, from which only debts are left: it is over.
    ``holds_open``: at its end open sequences stay open. ``moved``: more was read than the last commit covers.
    ``unsettled`` are its split streams of which it has to say something to other partitions or to the operator;
    ``telling``: the event about them is in no commit yet. ``split`` are all of them; those not seen for
    ``closed_memory`` go to ``leaving`` until a commit, and then to ``left``, as long as something is known of them; on
    the record clock none is due before ``let_go_us``.
    ``fetching``: its records wait for schemas; nothing is read of it until then. ``journal``: its decisions.
    ``orphans``: claims of a former owner on streams that are not known here, with their record times, the oldest first.
    """

    event: PartitionAssigned
    intake: Intake
    idle: IdleClock
    payments: Payments
    expected: int
    begin: int
    in_flight: deque[InFlight] = field(default_factory=deque)
    in_flight_bytes: int = 0
    aside: list[OutputRecord] = field(default_factory=list)
    aside_bytes: int = 0
    committing: Committing | None = None
    moved: bool = False
    stage: Stage = Stage.READING
    holds_open: bool = False
    caught_up: bool = False
    committed_us: int = 0
    commit_took_us: int = 0
    lag: int | None = None
    low_watermark_us: int | None = None
    unread: Progress | None = None
    unsettled: set[str] = field(default_factory=set)
    telling: set[str] = field(default_factory=set)
    split: set[str] = field(default_factory=set)
    leaving: set[str] = field(default_factory=set)
    left: set[str] = field(default_factory=set)
    let_go_us: int = 0
    orphans: dict[str, int] = field(default_factory=dict)
    fetching: asyncio.Task[None] | None = None
    journal: Journal | None = None

    @property
    def name(self) -> str:
        """Return the partition's name."""
        return self.intake.partition

    @property
    def has_ended(self) -> bool:
        """Return whether its open sequences were ended or held, committed or not."""
        return self.stage >= Stage.ENDED

    @property
    def has_verdicts(self) -> bool:
        """Return whether verdicts can be committed; those of the partition's end are committed all at once.

        A crash at the end therefore repeats either all of the end or nothing of it.
        """
        if self.has_ended:
            return bool(self.in_flight) and all(waiting.task.done() for waiting in self.in_flight)
        return bool(self.in_flight) and self.in_flight[0].task.done()

    @property
    def has_results(self) -> bool:
        """Return whether verdicts or attributions can be committed; at the end attributions wait for the verdicts."""
        return self.has_verdicts or (self.payments.are_ready and not (self.has_ended and self.in_flight))

    @property
    def is_done(self) -> bool:
        """Return whether its end is committed and it has no debt."""
        return self.stage is Stage.OVER and self.payments.are_settled

    @property
    def tasks(self) -> list[asyncio.Task[Any]]:
        """Return the tasks under way: judging, explaining, the commit, and fetching schemas."""
        others = [] if self.committing is None else [self.committing.task]
        others += [] if self.fetching is None else [self.fetching]
        return [*(waiting.task for waiting in self.in_flight), *self.payments.tasks, *others]

    def is_through(self, event: PartitionEnded) -> bool:
        """Return whether all before ``event`` was read; False for an event from before the last seek."""
        return event.next_offset is None or event.next_offset == self.expected

    def rest_of(self, batch: RecordBatch) -> RecordBatch | None:
        """Return the part of ``batch`` that continues at ``expected``, None if there is none.

        Part of a batch from before the last seek may continue there; the source then delivers it again.
        """
        begins_at, expected = batch.begins_at, self.expected
        if begins_at is None or begins_at == expected:
            return batch
        if not begins_at < expected < batch.next_offset:
            return None
        records = tuple(record for record in batch.records if record.offset >= expected)
        return replace(batch, records=records, begins_at=expected)

    def is_due(self, now_us: int, interval_us: int, *, has_events: bool) -> bool:
        """Return whether it is time to commit; ``has_events``: events wait to be written.

        Verdicts and attributions wait at most ``interval_us``. They do not wait if no record waits to be read, or once
        commits would take at most a tenth of the time.
        """
        since_us = now_us - self.committed_us
        if self.stage is Stage.OVER:
            return self.has_results
        if self.has_ended:
            return self.has_verdicts or not self.in_flight
        is_cheap = since_us >= _COMMITTING_SHARE * self.commit_took_us
        if self.has_results and (self.caught_up or self.stage is Stage.ENDING or is_cheap):
            return True
        return since_us >= interval_us and (self.has_results or self.moved or has_events)

    def take_results(
        self, events: list[OutputRecord], windows: WindowRecords | None, at: datetime, *, with_verdicts: bool
    ) -> Results:
        """Remove and return what the next commit holds, ``events`` among it; raise the failure of a sequence.

        ``at``: the time of what it records in the decision log.
        ``windows`` makes the window records, now: their shares are those of the models in service at the commit.
        """
        done = self._take_judged()
        judged = [waiting.task.result() for waiting in done]
        outputs = self.take_aside() + events
        for waiting, sequence in zip(done, judged, strict=True):
            self.intake.committed(waiting.closed, is_split=sequence.verdict.detail == SPLIT)
            window = windows.of(sequence, waiting.closed.sequence) if windows is not None else None
            outputs += sequence.outputs(window, with_verdicts=with_verdicts)
        attributions = self.payments.take()
        outputs += [OutputRecord("attributions", each.stream, each) for each in attributions]
        debts: dict[str, Debt | None] = {each.alert_id: None for each in attributions}
        debts |= {each.debt.alert.alert_id: each.debt for each in judged if each.debt is not None}
        self.moved = False
        update = unchanged(self.unread) if self.unread is not None else self.intake.progress(ended=self.has_ended)
        if self.journal is not None:
            models = [(each.verdict.model, each.digest) for each in judged if each.digest]
            outputs += self.journal.entries(((model, digest) for model, digest in models if model is not None), at)
            update = msgspec.structs.replace(update, log=self.journal.logged)
        return Results(msgspec.structs.replace(update, debts=debts), done, judged, attributions, outputs)

    def committed(self, commit: Committing, now_us: int) -> None:
        """Note that ``commit`` succeeded: its debts are taken up, and those paid count no more."""
        results = commit.results
        update = results.update
        self.committed_us, self.commit_took_us = now_us, now_us - commit.since_us
        self.low_watermark_us = update.low_watermark_us if update.low_watermark < update.next_offset else None
        for each in results.attributions:
            self.payments.ledger.paid(each.alert_id)
        self.payments.take_up(results.debts)
        self.telling.clear()
        self.stage = Stage.OVER if update.ended else self.stage

    def give_up(self, why: str | None) -> tuple[int, int]:
        """Leave what is in flight, and the debts unless there is a reason ``why`` they cannot wait; return how many."""
        left, owed = len(self.in_flight), self.payments.owes
        for waiting in self.in_flight:
            waiting.task.cancel()
        self.in_flight.clear()
        self.in_flight_bytes = 0
        self.payments.give_up(why=why)
        self.stage = Stage.READING if self.stage is Stage.ENDING else self.stage
        return left, owed

    def _take_judged(self) -> list[InFlight]:
        """Remove and return the judged sequences up to the first failure; raise a failure that comes first."""
        taken: list[InFlight] = []
        while self.in_flight and self.in_flight[0].task.done():
            if self.in_flight[0].task.exception() is not None and taken and not self.has_ended:
                break
            self.in_flight[0].task.result()
            taken.append(self.in_flight.popleft())
        self.in_flight_bytes -= sum(waiting.nbytes for waiting in taken)
        return taken

    def add(self, waiting: InFlight) -> None:
        """Add a sequence in flight."""
        self.in_flight.append(waiting)
        self.in_flight_bytes += waiting.nbytes

    def set_aside(self, records: list[OutputRecord]) -> None:
        """Keep ``records`` for the next commit."""
        self.aside += records
        self.aside_bytes += sum(map(_size_of, records))

    def tell(self, records: list[OutputRecord]) -> None:
        """Keep ``records`` for the next commit, which is then due."""
        self.set_aside(records)
        self.moved = True

    def take_aside(self) -> list[OutputRecord]:
        """Return the records set aside since the last call."""
        aside, self.aside = self.aside, []
        self.aside_bytes = 0
        return aside


def _size_of(record: OutputRecord) -> int:
    """Return the approximate size in memory of a record set aside."""
    message = record.message
    if isinstance(message, DeadLetter):
        return _MESSAGE_BYTES + len(message.value)
    return _MESSAGE_BYTES + (_ROW_BYTES * len(message.times) if isinstance(message, LateRecord) else 0)
