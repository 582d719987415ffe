"""The pipeline: records in, sequences judged, outputs and progress committed together."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Collection
from typing import Any

from streamad.decisions.worker import Journals
from streamad.errors import PartitionLost
from streamad.ingest.table.rows import BatchTable
from streamad.judge.bank import Batchers
from streamad.judge.early.looking import Looking
from streamad.judge.explainer import Explainer, Ledger
from streamad.judge.gate import WindowRecords
from streamad.judge.judging import Judge, JudgedSequence
from streamad.messages import Attribution, EarlyWarning
from streamad.partition_progress import Debt
from streamad.ports import Clock, Committer, SharedSource, Source
from streamad.runtime.checkpoint import UnsavedCommitter
from streamad.runtime.commits import Commits
from streamad.runtime.partition import Committing, Partition, Payments, Restoring, Stage
from streamad.runtime.status import Status
from streamad.runtime.stream_homes import LocalClaims, StreamHomes
from streamad.runtime.submitter import Submitter
from streamad.runtime.takeover import Releases, TakeOver
from streamad.schemas.fetching import Fetcher
from streamad.schemas.waiting import SchemaWaits
from streamad.settings.plant_yaml import Settings
from streamad.system.tasks import look_at, wait_for_either
from streamad.tables import ColumnarSource, ColumnBatch
from streamad.telemetry.events import EventLog
from streamad.telemetry.logs import get_logger
from streamad.telemetry.metrics import Counters
from streamad.types import (
    PartitionAssigned,
    PartitionEnded,
    PartitionRevoked,
    Rebalanced,
    RecordBatch,
    SourceEvent,
    SourceNotice,
)

_SHORTEST_TICK_US = 10_000


class Pipeline:
    """Runs one source through assembly and judging to a committer, until the source ends or ``request_stop``.

    Verdicts of a partition commit in the order in which its sequences ended, together with the dead letters and late
    records of everything read so far and the progress that covers it; partitions commit independently of each other
    and of reading. A partition that its committer lost is restored from its progress and read again.
    ``explainer`` makes attributions, behind the verdicts; ``with_verdicts`` writes each verdict, ``with_windows`` the
    judged windows. After the commit ``on_judged`` is called with the latency in us since the batch that ended the
    sequence, ``on_explained`` with an attribution,
    ``on_warned`` with a warning and its attribution. Tasks beside it log through ``events`` or ``emit``. ``table`` is
    that of ``sequences.table``; ``looking`` looks at running sequences, if that is wanted; ``fetcher`` fetches the
    schemas of ``decode.registry``; ``journals`` record in the decision log what judges.
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
        table: BatchTable | None = None,
        looking: Looking | None = None,
        on_warned: Callable[[EarlyWarning, Attribution | None], None] | None = None,
        fetcher: Fetcher | None = None,
        journals: Journals | None = None,
    ) -> None:
        # Above 15 attributes: it makes the parts of the way of a message and joins them; each part holds its own state.
        self.counters = Counters()
        self._settings = settings
        self._source = source
        self._committer = committer
        self._clock = clock
        events = events if events is not None else EventLog(settings.name, clock)
        self.emit = events.emit
        self._log = get_logger().bind(plant=settings.name)
        # The partitions that are read, those that are being restored, and the releases of those that are not ours.
        self._partitions: dict[str, Partition] = {}
        self._restoring: dict[str, Restoring] = {}
        self._releases = Releases(committer)
        self._wake = asyncio.Event()
        claims = source.claims(self._wake.set) if isinstance(source, SharedSource) else LocalClaims()
        self._homes = StreamHomes(claims)
        self.status = Status(settings, clock, self.counters, self._partitions)

        def payments(debts: Collection[Debt]) -> Payments:
            made = Payments(Ledger(debts, committer.max_item_bytes), explainer, self._on_done)
            made.take_up(debts)
            return made

        schemas = None if fetcher is None else fetcher.schemas
        self._waits = SchemaWaits(source, fetcher, clock, self._on_done)
        self.status.held = self._waits.held
        self._take_over = TakeOver(
            settings,
            source,
            clock,
            self.counters,
            payments,
            table=table,
            schemas=schemas,
            by_column=isinstance(committer, UnsavedCommitter),
        )
        self._submitter = Submitter(
            settings,
            clock,
            Judge(settings, batchers, clock, explainer, looking),
            batchers,
            events,
            homes=self._homes,
            partitions=self._partitions.values,
            on_done=self._on_done,
        )
        self._commits = Commits(
            committer,
            clock,
            self.status,
            events,
            windows=WindowRecords(settings, batchers) if with_windows else None,
            with_verdicts=with_verdicts,
            on_done=self._on_done,
            on_judged=on_judged,
            on_explained=on_explained,
            on_warned=on_warned if looking is not None else None,
        )
        self.looking = looking
        self._journals = journals
        self._visit: asyncio.Task[None] | None = None
        self._next_look_us = 0
        self._give_up_us: int | None = None  # once a stop is requested, when to stop waiting for verdicts
        self._is_through = False

    @property
    def was_stopped(self) -> bool:
        """Return whether a stop was requested: the next run may bring further verdicts."""
        return self._give_up_us is not None

    def request_stop(self) -> None:
        """Stop reading; verdicts that come within ``run.stop_timeout`` are committed, the rest is read again."""
        if self._give_up_us is None:
            self._log.info("stop requested")
            self._give_up_us = self._clock.monotonic_us() + self._settings.run.stop_timeout
        self._wake.set()

    async def commit_events(self) -> None:
        """Commit the events logged after ``run`` ended; progress stays as the last commit left it.

        Does nothing if no partition is ours. Raises OutputError.
        """
        try:
            await self._commits.write_events()
        except PartitionLost as lost:
            self._log.warning("events not committed", reason=str(lost))

    async def run(self) -> None:
        """Run until the source ends or a stop is requested; the caller closes source, committer and batchers.

        Raises SourceError, OutputError, CheckpointError, DetectorError, StalledError.
        """
        self._log.info("run started", model=self._submitter.model)
        self.status.moved()
        ticker = asyncio.create_task(self._tick())
        source_events = self._source_events()
        try:
            await self._read(source_events)
            await self._drain()
            self._log.info("run ended", **self.counters.as_dict())
        finally:
            ticker.cancel()
            left: list[asyncio.Task[Any]] = [ticker, *self._releases.tasks, *self._waits.tasks]
            left += [] if self._visit is None else [self._visit]
            left += [restoring.task for restoring in self._restoring.values()]
            for partition in self._partitions.values():
                left += partition.tasks
            for task in left:
                task.cancel()
            await asyncio.gather(*left, return_exceptions=True)
            if isinstance(source_events, AsyncGenerator):
                await source_events.aclose()

    def _source_events(self) -> AsyncIterator[SourceEvent | ColumnBatch]:
        """Return the events of the source; rows of tables by column if no progress, thus no cursor, is kept."""
        columns = self._take_over.columns
        if columns is None or not isinstance(self._source, ColumnarSource):
            return self._source.batches()
        return self._source.column_batches(columns.wanted)

    async def _read(self, source_events: AsyncIterator[SourceEvent | ColumnBatch]) -> None:
        pull: asyncio.Future[SourceEvent | ColumnBatch | None] | None = None
        is_first = True
        try:
            while not self.was_stopped:
                await self._make_room()
                for held in self._waits.released():
                    await self._handle(held)
                if pull is None and not self._waits.held and not self._has_early_columns:
                    pull = asyncio.ensure_future(anext(source_events, None))
                await self._wait_for(*([] if pull is None or self._waits.held else [pull]))
                await self._finish_tasks()
                if pull is not None and pull.done() and not self._waits.held:
                    event, pull = pull.result(), None
                    if is_first:
                        await self._take_up_unread()
                        is_first = False
                    if event is None:
                        return
                    await self._handle(event)
                self._look()
                self._commits.begin_due(self._partitions.values(), self._settings.run.commit_interval)
        finally:
            if pull is not None:
                pull.cancel()
                await asyncio.gather(pull, return_exceptions=True)

    def _look(self) -> None:
        """Look at running sequences, behind all else: if nothing is due, a look over their ages is all that it is."""
        if self._visit is not None and self._visit.done():
            self._visit.result()
            self._visit = None
        if self.looking is not None and self._visit is None and self._is_time_to_look():
            self._visit = asyncio.create_task(self._looks(self.looking))
            self._visit.add_done_callback(self._on_done)

    def _is_time_to_look(self) -> bool:
        now_us = self._clock.monotonic_us()
        if now_us < self._next_look_us:
            return False
        self._next_look_us = now_us + self._settings.run.commit_interval
        return True

    async def _looks(self, looking: Looking) -> None:
        for partition in list(self._partitions.values()):
            await looking.visit(partition.intake, partition.tell, self._homes.is_split)

    async def _take_up_unread(self) -> None:
        """Pay the debts of partitions that the source may never assign; if it does, they are dropped first."""
        for name, progress in (await self._committer.owing()).items():
            if name not in self._restoring and name not in self._partitions:
                self._partitions[name] = self._take_over.unread(progress)

    @property
    def _has_early_columns(self) -> bool:
        """Return whether columns wait for their partition: their rows can be made until the next event is asked for."""
        return any(isinstance(event, ColumnBatch) for each in self._restoring.values() for event in each.early)

    async def _wait_for(self, *pulls: asyncio.Future[SourceEvent | ColumnBatch | None]) -> None:
        """Return when one of ``pulls`` is done or something happened (a verdict, a commit, a tick, a stop)."""
        if any(pull.done() for pull in pulls):
            return
        await wait_for_either(self._wake, *pulls)
        self._wake.clear()
        # The log of claims waits for absent brokers, and ends the run if that lasts too long.
        self.status.check_stall(0 if self._homes.are_awaited else self._submitter.n_waiting)

    async def _tick(self) -> None:
        interval_us = max(self._settings.run.commit_interval, _SHORTEST_TICK_US)
        while True:
            await self._clock.sleep(interval_us / 1e6)
            self.status.report()
            self._wake.set()

    # --- events of the source ---

    async def _handle(self, event: SourceEvent | ColumnBatch) -> None:
        if not isinstance(event, ColumnBatch) and self._waits.holds(event):
            return
        match event:
            case RecordBatch() | ColumnBatch():
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
        await self._homes.catch_up()
        self._restoring[event.partition].is_sought = True
        partition = await self._take_over.begin(event, progress, first_begin)
        if self._journals is not None:
            partition.journal = await self._journals.of(event.partition, None if progress is None else progress.log)
        return partition

    async def _finish_tasks(self) -> None:
        """Handle claims, and the restores and commits whose tasks have ended, some perhaps by an error."""
        await self._submitter.meet()
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
            self._submitter.begin(self._partitions[name])
            self.status.moved()
            for early in restoring.early:
                await self._handle(early)
        for partition in list(self._partitions.values()):
            if partition.fetching is not None and partition.fetching.done() and not self._is_through:
                fetched, partition.fetching = partition.fetching, None
                fetched.result()
                self.status.moved()
            if partition.committing is not None and partition.committing.task.done():
                self._committed(partition, partition.committing)

    def _drop(self, name: str, *, is_ours: bool = False) -> None:
        """Forget all state of a partition and release it, unless it ``is_ours`` and will be restored."""
        restoring = self._restoring.pop(name, None)
        partition = self._partitions.pop(name, None)
        if restoring is None and partition is None:
            return
        self._commits.forget(name, partition)
        self._waits.forget(name)
        left: list[asyncio.Task[Any]] = [restoring.task] if restoring is not None else []
        if partition is not None:
            left += partition.tasks
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
        self.counters.held += self._submitter.finish(partition, may_hold=self._commits.keep_progress)
        self._homes.leave(partition.name, self._partitions)

    async def _take(self, batch: RecordBatch | ColumnBatch) -> None:
        if (restoring := self._restoring.get(batch.partition)) is not None and restoring.is_sought:
            restoring.early.append(batch)
        partition = self._partitions.get(batch.partition)
        if partition is None:
            return
        ready: RecordBatch | ColumnBatch | None = batch
        if isinstance(batch, RecordBatch):
            rest = partition.rest_of(batch)
            ready = None if rest is None else self._waits.ready(partition, rest)
        if ready is not None and await self._submitter.take(partition, ready):
            self.status.moved()

    # --- judging and commits ---

    def _on_done(self, task: asyncio.Task[Any]) -> None:
        look_at(task)  # of many that fail together, the commit raises only the first
        self._wake.set()

    async def _make_room(self) -> None:
        """Wait while too much waits; if no verdict can come, end the largest open sequence."""
        while not self.was_stopped and self._submitter.is_full:
            n_waiting, held_bytes = self._submitter.n_waiting, self._submitter.held_bytes
            if n_waiting:
                await self._submitter.flush()
                await self._finish_tasks()
                if self._submitter.holds_too_much:
                    self._commits.begin_ready(self._partitions.values())
                else:
                    self._commits.begin_due(self._partitions.values(), self._settings.run.commit_interval)
                if self._submitter.n_waiting == n_waiting and self._submitter.is_full:
                    await self._wait_for()
            elif not self._submitter.evict_largest() and self._submitter.held_bytes >= held_bytes:
                return

    def _committed(self, partition: Partition, commit: Committing) -> None:
        try:
            self._commits.ended(partition, commit)
        except PartitionLost as lost:
            self.counters.commits_failed += 1
            self._submitter.failed()
            self._log.warning("commit failed, partition restored", partition=partition.name, reason=str(lost))
            self._drop(partition.name, is_ours=True)
            if self._is_through and not self.was_stopped:
                raise  # reading has ended: the next run restores it
            if not self.was_stopped:
                self._restore(partition.event, partition.begin)
            return
        self._submitter.committed(partition, commit.results)
        if partition.is_done:
            del self._partitions[partition.name]
        elif partition.stage is Stage.ENDING and not partition.in_flight:
            self._finish(partition)

    async def _drain(self) -> None:
        """Finish and commit the sequences in flight, attributions, dead letters, late records and events."""
        self._is_through = True
        for name in list(self._restoring):
            self._drop(name)
        while self._submitter.n_waiting or self._is_committing or not self._are_settled:
            is_too_late = self._give_up_us is not None and self._clock.monotonic_us() >= self._give_up_us
            if is_too_late and self._is_unfinished:
                self._give_up()
            await self._submitter.flush()
            await self._finish_tasks()
            self._commits.begin_ready(self._partitions.values())
            is_ready = any(partition.has_results for partition in self._partitions.values())
            if self._is_committing or (self._is_unfinished and not is_ready):
                await self._wait_for()
        for partition in list(self._partitions.values()):
            is_changed = partition.moved or partition.aside or partition.has_ended or self._commits.have_events
            if is_changed and partition.intake.may_commit and partition.stage is not Stage.OVER:
                self._commits.begin(partition)
        while self._is_committing:
            await self._wait_for()
            await self._finish_tasks()
        await asyncio.gather(*self._releases.tasks)

    @property
    def _is_committing(self) -> bool:
        return any(partition.committing is not None for partition in self._partitions.values())

    @property
    def _is_unfinished(self) -> bool:
        return bool(self._submitter.n_waiting) or any(
            partition.payments.owes for partition in self._partitions.values()
        )

    @property
    def _are_settled(self) -> bool:
        return all(partition.payments.are_settled for partition in self._partitions.values())

    def _give_up(self) -> None:
        """Leave the sequences not judged to the next run, and the debts, unless no progress is kept.

        The end of a partition counts only as a whole.
        """
        why = None if self._commits.keep_progress else "the run was stopped before it was made"
        for name, partition in list(self._partitions.items()):
            left, owed = partition.give_up(why)
            self._log.info("left to the next run", partition=name, sequences=left, attributions=owed)
            is_cut_short = partition.stage is Stage.ENDED and partition.committing is None
            if is_cut_short and why is None:
                del self._partitions[name]
