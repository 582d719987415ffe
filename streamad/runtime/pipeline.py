"""The pipeline: records in, sequences judged, outputs and progress committed together."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Collection
from typing import Any

from msgspec.structs import replace

from streamad.errors import PartitionLost
from streamad.ingest.sequences.closed_sequences import Closed
from streamad.judge.debts import Ledger
from streamad.judge.explainer import Explainer
from streamad.judge.gate import WindowRecords
from streamad.judge.judging import Judge, JudgedSequence
from streamad.judge.scoring import Batchers
from streamad.messages import Attribution
from streamad.partition_progress import Debt, ProgressUpdate
from streamad.ports import Clock, Committer, Source
from streamad.runtime.checkpoint import UnsavedCommitter
from streamad.runtime.partition import Committing, InFlight, Partition, Restoring, Stage
from streamad.runtime.payments import Payments
from streamad.runtime.status import Status
from streamad.runtime.stream_homes import StreamHomes
from streamad.runtime.takeover import Releases, TakeOver
from streamad.settings.plant_yaml import Settings
from streamad.system.tasks import look_at, wait_for_either
from streamad.telemetry.events import EventLog
from streamad.telemetry.logs import get_logger
from streamad.telemetry.metrics import Counters, Gauges
from streamad.types import (
    PartitionAssigned,
    PartitionEnded,
    PartitionRevoked,
    Rebalanced,
    RecordBatch,
    SourceEvent,
    SourceNotice,
)

_MAX_ASIDE_BYTES = 16_000_000
_SHORTEST_TICK_US = 10_000
_REREADING_SHARE = 2


class Pipeline:
    """Runs one source through assembly and judging to a committer, until the source ends or ``request_stop``.

    Verdicts of a partition commit in the order in which its sequences ended, together with the dead letters and late
    records of everything read so far and the progress that covers it; partitions commit independently of each other
    and of reading. A partition that its committer lost is restored from its progress and read again.
    ``explainer`` makes attributions, behind the verdicts; ``with_verdicts`` writes each verdict, ``with_windows`` the
    judged windows. After the commit ``on_judged`` is called with the latency in us since the batch that ended the
    sequence, ``on_explained`` with an attribution. Tasks beside it log through ``events`` or ``emit``.
    """

    def __init__(
        self,
        settings: Settings,
        source: Source,
        committer: Committer,
        batchers: Batchers,
        clock: Clock,
        *,
        explainer: Explainer | None,
        with_verdicts: bool,
        with_windows: bool = False,
        on_judged: Callable[[JudgedSequence, int], None] | None = None,
        on_explained: Callable[[Attribution], None] | None = None,
        events: EventLog | None = None,
    ) -> None:
        self.counters = Counters()
        self._settings = settings
        self._source = source
        self._committer = committer
        self._batchers = batchers
        self._explainer = explainer
        self._judge = Judge(settings, batchers, clock, explainer)
        self._windows = WindowRecords(settings, batchers) if with_windows else None
        self._clock = clock
        self._with_verdicts = with_verdicts
        self._take_over = TakeOver(settings, source, clock, self.counters, self._payments)
        self._on_judged = on_judged
        self._on_explained = on_explained
        self._events = events if events is not None else EventLog(settings.name, clock)
        self.emit = self._events.emit
        self._partitions: dict[str, Partition] = {}
        self._restoring: dict[str, Restoring] = {}
        self._releases = Releases(committer)
        self._homes = StreamHomes()
        self.status = Status(settings, clock, self.counters, self._partitions)
        self._last_update: ProgressUpdate | None = None
        self._in_flight_bytes = 0
        self._wake = asyncio.Event()
        self._stopping = False
        self._is_through = False
        self._is_unread_taken_up = False
        self._give_up_us = 0
        self._log = get_logger().bind(plant=settings.name)

    @property
    def was_stopped(self) -> bool:
        """Return whether a stop was requested: the next run may bring further verdicts."""
        return self._stopping

    def request_stop(self) -> None:
        """Stop reading; verdicts that come within ``run.stop_timeout`` are committed, the rest is read again."""
        if not self._stopping:
            self._log.info("stop requested")
            self._give_up_us = self._clock.monotonic_us() + self._settings.run.stop_timeout
        self._stopping = True
        self._wake.set()

    async def commit_events(self) -> None:
        """Commit the events logged after ``run`` ended; progress stays as the last commit left it.

        Does nothing if no partition is ours. Raises OutputError.
        """
        if not self._events or self._last_update is None:
            return
        events = self._events.take()
        try:
            await self._committer.commit(self._last_update, self._events.records(events))
        except PartitionLost as lost:
            self._log.warning("events not committed", reason=str(lost), events=len(events))

    def _payments(self, debts: Collection[Debt]) -> Payments:
        payments = Payments(Ledger(debts, self._committer.max_item_bytes), self._explainer, self._on_done)
        payments.take_up(debts)
        return payments

    def gauges(self) -> Gauges:
        """Return the current state, without latencies."""
        return self.status.gauges(self._partitions.values(), self._in_flight_bytes)

    async def run(self) -> None:
        """Run until the source ends or a stop is requested; the caller closes source, committer and batchers.

        Raises SourceError, OutputError, CheckpointError, DetectorError, StalledError.
        """
        self._log.info("run started", model=self._batchers.label)
        self.status.moved()
        ticker = asyncio.create_task(self._tick())
        source_events = self._source.batches()
        try:
            await self._read(source_events)
            await self._drain()
            self._log.info("run ended", **self.counters.as_dict())
        finally:
            ticker.cancel()
            left: list[asyncio.Task[Any]] = [ticker, *self._releases.tasks]
            left += [restoring.task for restoring in self._restoring.values()]
            for partition in self._partitions.values():
                left += partition.tasks
            for task in left:
                task.cancel()
            await asyncio.gather(*left, return_exceptions=True)
            if isinstance(source_events, AsyncGenerator):
                await source_events.aclose()

    async def _read(self, source_events: AsyncIterator[SourceEvent]) -> None:
        pull: asyncio.Future[SourceEvent | None] | None = None
        try:
            while not self._stopping:
                await self._make_room()
                if pull is None:
                    pull = asyncio.ensure_future(anext(source_events, None))
                await self._wait_for(pull)
                await self._finish_tasks()
                if pull.done():
                    event, pull = pull.result(), None
                    await self._take_up_unread()
                    if event is None:
                        return
                    await self._handle(event)
                self._commit_due()
        finally:
            if pull is not None:
                pull.cancel()
                await asyncio.gather(pull, return_exceptions=True)

    async def _take_up_unread(self) -> None:
        """Once, pay the debts of partitions that the source may never assign; if it does, they are dropped first."""
        if self._is_unread_taken_up:
            return
        self._is_unread_taken_up = True
        for name, progress in (await self._committer.owing()).items():
            if name not in self._restoring and name not in self._partitions:
                self._partitions[name] = self._take_over.unread(progress)

    async def _wait_for(self, *pulls: asyncio.Future[SourceEvent | None]) -> None:
        """Return when one of ``pulls`` is done or something happened (a verdict, a commit, a tick, a stop)."""
        if any(pull.done() for pull in pulls):
            return
        await wait_for_either(self._wake, *pulls)
        self._wake.clear()
        self.status.check_stall(self._waiting)

    async def _tick(self) -> None:
        interval_us = max(self._settings.run.commit_interval, _SHORTEST_TICK_US)
        while True:
            await self._clock.sleep(interval_us / 1e6)
            self.status.report(self._partitions.values(), self._in_flight_bytes)
            self._wake.set()

    # --- events of the source ---

    async def _handle(self, event: SourceEvent) -> None:
        match event:
            case RecordBatch():
                await self._take(event)
            case PartitionAssigned():
                self._drop(event.partition)
                self._restore(event)
            case PartitionRevoked():
                self._drop(event.partition)
            case PartitionEnded():
                self._end(event)
            case Rebalanced():
                self.counters.rebalances += 1
                self._log.info("rebalanced", partitions=len(event.partitions))
            case SourceNotice():
                self.emit(event.kind, event.message, partition=event.partition)

    @property
    def has_resumed(self) -> bool:
        """Return whether a partition was continued behind records that were read before."""
        return self._take_over.has_resumed

    def _restore(self, event: PartitionAssigned, first_begin: int | None = None) -> None:
        task = asyncio.create_task(self._restored(event, first_begin))
        task.add_done_callback(self._on_done)
        self._restoring[event.partition] = Restoring(event, task, first_begin)

    async def _restored(self, event: PartitionAssigned, first_begin: int | None) -> Partition:
        await self._releases.done(event.partition)
        progress = await self._committer.restore(event.partition)
        self._restoring[event.partition].is_sought = True
        return await self._take_over.begin(event, progress, first_begin)

    async def _finish_tasks(self) -> None:
        """Handle the restores and commits whose tasks have ended, some perhaps by an error."""
        for name, restoring in list(self._restoring.items()):
            if not restoring.task.done():
                continue
            del self._restoring[name]
            try:
                self._partitions[name] = restoring.task.result()
            except PartitionLost as lost:
                self._log.warning("partition not restored, trying again", partition=name, reason=str(lost))
                self._restore(restoring.event, restoring.first_begin)
                continue
            self.status.moved()
            for early in restoring.early:
                await self._handle(early)
        for partition in list(self._partitions.values()):
            if partition.committing is not None and partition.committing.task.done():
                self._committed(partition, partition.committing)

    def _drop(self, name: str, *, is_ours: bool = False) -> None:
        """Forget all state of a partition and release it, unless it ``is_ours`` and will be restored."""
        restoring = self._restoring.pop(name, None)
        partition = self._partitions.pop(name, None)
        if restoring is None and partition is None:
            return
        if self._last_update is not None and self._last_update.partition == name:
            self._last_update = None
        left: list[asyncio.Task[Any]] = [restoring.task] if restoring is not None else []
        if partition is not None:
            left += partition.tasks
            if partition.committing is not None:
                self._events.give_back(partition.committing.events)
            self._in_flight_bytes -= sum(waiting.nbytes for waiting in partition.in_flight)
            self._homes.leave(name, self._partitions)
        self._releases.begin(name, left, is_ours=is_ours)
        self._log.info("partition dropped", partition=name)

    def _end(self, event: PartitionEnded) -> None:
        if (restoring := self._restoring.get(event.partition)) is not None and restoring.is_sought:
            restoring.early.append(event)
        partition = self._partitions.get(event.partition)
        if partition is None or not partition.is_through(event):
            return
        partition.stage, partition.holds_open = max(partition.stage, Stage.ENDING), event.holds_open
        self._homes.leave_unshared(partition.name)
        if not partition.in_flight and partition.committing is None:
            self._finish(partition)

    def _finish(self, partition: Partition) -> None:
        """End the open sequences of an ended partition, once all verdicts before are committed, or hold them.

        Without a checkpoint no next run would know them, so none is held.
        """
        if partition.holds_open and not isinstance(self._committer, UnsavedCommitter):
            self.counters.held += partition.intake.hold_open()
            self._submit(partition, [])
        else:
            self._submit(partition, partition.intake.end_of_input(self._clock.now_us()))
        partition.stage = max(partition.stage, Stage.ENDED)
        self._homes.leave(partition.name, self._partitions)

    async def _take(self, batch: RecordBatch) -> None:
        if (restoring := self._restoring.get(batch.partition)) is not None and restoring.is_sought:
            restoring.early.append(batch)
        partition = self._partitions.get(batch.partition)
        rest = None if partition is None else partition.rest_of(batch)
        if partition is None or rest is None:
            return
        batch = rest
        now_us = self._clock.now_us()
        has_passed = bool(batch.records) or batch.next_offset > partition.expected
        partition.expected = batch.next_offset
        partition.idle.on_batch(self._clock.monotonic_us(), caught_up=batch.caught_up, has_records=bool(batch.records))
        finished = partition.intake.take(batch, now_us)
        if batch.caught_up:
            finished += partition.intake.expire(partition.idle.idle_us, now_us)
        if has_passed:  # also over offsets without a record: transaction markers, aborted records
            partition.moved = True
            self.status.moved()
        partition.caught_up = batch.caught_up
        partition.lag = None if batch.end_offset is None else max(0, batch.end_offset - batch.next_offset)
        self._submit(partition, finished)
        if finished and (batch.caught_up or self._batchers.is_idle):
            await self._flush()  # no further record waits, or the scorer is idle: waiting would not fill a batch

    # --- judging ---

    def _submit(self, partition: Partition, finished: list[Closed]) -> None:
        for stream in partition.intake.take_new_streams():
            if others := self._homes.claim(stream, partition.name):
                message = f"also in {min(others)}: its sequences are unscorable; check the message key"
                self.emit("stream_in_two_partitions", message, partition=partition.name, stream=stream)
        for notice in partition.intake.take_notices(self._clock.now_us()):
            self.emit(notice.kind, notice.text, partition=partition.name, stream=notice.stream)
        partition.set_aside(partition.intake.take_aside())
        now_us = self._clock.monotonic_us()
        for closed in finished:
            sequence = closed.sequence
            split = None
            if self._homes.is_split(sequence.stream):
                split = "stream seen in two partitions: its samples are split between them; check the message key"
            task = asyncio.create_task(self._judge.judge(sequence, partition.payments.ledger, split))
            task.add_done_callback(self._on_done)
            nbytes = sequence.values.nbytes + sequence.times_us.nbytes
            self._in_flight_bytes += nbytes
            record_us = partition.intake.clock_us
            partition.in_flight.append(InFlight(closed, task, now_us, nbytes, record_us))

    def _on_done(self, task: asyncio.Task[Any]) -> None:
        look_at(task)  # of many that fail together, the commit raises only the first
        self._wake.set()

    async def _make_room(self) -> None:
        """Wait while too much waits; if no verdict can come, end the largest open sequence."""
        limit = self._settings.sequences.max_buffered_bytes
        most_waiting = 2 * self._settings.run.batch_windows
        while not self._stopping:
            waiting, held = self._waiting, self._held_bytes
            if held + self._in_flight_bytes <= limit and waiting <= most_waiting:
                return
            if waiting:
                await self._flush()
                await self._finish_tasks()
                self._commit_ready()
                if self._waiting == waiting:
                    await self._wait_for()
            elif not self._evict() and self._held_bytes >= held:
                return

    @property
    def _waiting(self) -> int:
        return sum(len(partition.in_flight) for partition in self._partitions.values())

    @property
    def _held_bytes(self) -> int:
        return sum(partition.intake.buffered_bytes for partition in self._partitions.values())

    def _evict(self) -> bool:
        """End the largest open sequence of the fullest partition; return whether there was one."""
        held = [partition for partition in self._partitions.values() if partition.intake.buffered_bytes]
        # Sequences being read again were not evicted here at first: evicting them now is the last resort.
        if self._held_bytes <= _REREADING_SHARE * self._settings.sequences.max_buffered_bytes:
            held = [partition for partition in held if not partition.intake.is_recovering]
        if not held:
            return False
        fullest = max(held, key=lambda partition: partition.intake.buffered_bytes)
        finished = fullest.intake.evict_largest(self._clock.now_us())
        self._submit(fullest, finished)
        return bool(finished)

    async def _flush(self) -> None:
        await asyncio.sleep(0)  # new tasks submit their windows first
        self._batchers.flush()

    # --- commits ---

    def _commit_due(self) -> None:
        """Begin the commits that are due."""
        now_us, interval_us = self._clock.monotonic_us(), self._settings.run.commit_interval
        for partition in self._partitions.values():
            if partition.committing is not None or not partition.intake.may_commit:
                continue
            is_due = partition.is_due(now_us, interval_us, has_events=bool(self._events))
            if is_due or partition.aside_bytes > _MAX_ASIDE_BYTES:
                self._commit(partition)

    def _commit_ready(self) -> None:
        for partition in self._partitions.values():
            if partition.has_results and partition.committing is None:
                self._commit(partition)

    def _commit(self, partition: Partition) -> None:
        """Begin to commit the judged sequences; ``_finish_tasks`` handles the result."""
        events = self._events.take()
        records = self._events.records(events)
        results = partition.take_results(records, self._windows, with_verdicts=self._with_verdicts)
        self._in_flight_bytes -= sum(waiting.nbytes for waiting in results.done)
        task = asyncio.create_task(self._committer.commit(results.update, results.outputs))
        task.add_done_callback(self._on_done)
        partition.committing = Committing(results, task, self._clock.monotonic_us(), events)

    def _committed(self, partition: Partition, commit: Committing) -> None:
        partition.committing = None
        try:
            commit.task.result()
        except PartitionLost as lost:
            self.counters.commits_failed += 1
            self._log.warning("commit failed, partition restored", partition=partition.name, reason=str(lost))
            self._events.give_back(commit.events)
            self._drop(partition.name, is_ours=True)
            if self._is_through and not self._stopping:
                raise  # reading has ended: the next run restores it
            if not self._stopping:
                self._restore(partition.event, partition.begin)
            return
        results = commit.results
        self._last_update = replace(results.update, streams={}, debts={})
        partition.committed(commit, self._clock.monotonic_us())
        self.status.committed(partition.name, results)
        if self._on_judged is not None:
            for waiting, sequence in zip(results.done, results.judged, strict=True):
                self._on_judged(sequence, partition.committed_us - waiting.since_us)
        if self._on_explained is not None:
            for attribution in results.attributions:
                self._on_explained(attribution)
        if partition.is_done:
            del self._partitions[partition.name]
        elif partition.stage is Stage.ENDING and not partition.in_flight:
            self._finish(partition)

    async def _drain(self) -> None:
        """Finish and commit the sequences in flight, attributions, dead letters, late records and events."""
        self._is_through = True
        for name in list(self._restoring):
            self._drop(name)
        while self._waiting or self._is_committing or not self._are_settled:
            if self._stopping and self._clock.monotonic_us() >= self._give_up_us and self._is_unfinished:
                self._give_up()
            await self._flush()
            await self._finish_tasks()
            self._commit_ready()
            is_ready = any(partition.has_results for partition in self._partitions.values())
            if self._is_committing or (self._is_unfinished and not is_ready):
                await self._wait_for()
        for partition in list(self._partitions.values()):
            is_changed = partition.moved or partition.aside or partition.has_ended or self._events
            if is_changed and partition.intake.may_commit and partition.stage is not Stage.OVER:
                self._commit(partition)
        while self._is_committing:
            await self._wait_for()
            await self._finish_tasks()
        await asyncio.gather(*self._releases.tasks)

    @property
    def _is_committing(self) -> bool:
        return any(partition.committing is not None for partition in self._partitions.values())

    @property
    def _is_unfinished(self) -> bool:
        return bool(self._waiting) or any(partition.payments.owes for partition in self._partitions.values())

    @property
    def _are_settled(self) -> bool:
        return all(partition.payments.are_settled for partition in self._partitions.values())

    def _give_up(self) -> None:
        """Leave the sequences not judged to the next run, and the debts, unless no progress is kept.

        The end of a partition counts only as a whole.
        """
        why = "the run was stopped before it was made" if isinstance(self._committer, UnsavedCommitter) else None
        for name, partition in list(self._partitions.items()):
            left, owed = partition.give_up(why)
            self._log.info("left to the next run", partition=name, sequences=left, attributions=owed)
            is_cut_short = partition.stage is Stage.ENDED and partition.committing is None
            if is_cut_short and why is None:
                del self._partitions[name]
