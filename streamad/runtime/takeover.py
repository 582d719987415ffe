"""Releasing partitions and taking them over: the seek, and the intake restored from progress."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Sequence
from typing import Any

from streamad.ingest.columns.reading import ColumnReader
from streamad.ingest.decode import Decoder
from streamad.ingest.intake import Intake
from streamad.ingest.schemas.known import Schemas
from streamad.ingest.table.rows import BatchTable
from streamad.partition_progress import Debt, Progress, after_gap
from streamad.ports import Clock, Committer, ResumableSource, Source, TransactionalSource
from streamad.runtime.partition import IdleClock, Partition, Payments, Stage
from streamad.settings.plant_yaml import Settings
from streamad.telemetry.logs import get_logger
from streamad.telemetry.metrics import Counters
from streamad.types import PartitionAssigned


class Releases:
    """Releases partitions by ``committer``; releases of the same partition run one after the other."""

    def __init__(self, committer: Committer) -> None:
        self._committer = committer
        self._under_way: dict[str, asyncio.Task[None]] = {}

    @property
    def tasks(self) -> list[asyncio.Task[None]]:
        """Return the releases under way; they raise what the committer raises."""
        return list(self._under_way.values())

    def begin(self, name: str, left: Sequence[asyncio.Task[Any]], *, is_ours: bool) -> None:
        """Cancel the tasks ``left`` of a partition; once they have ended, release it unless it ``is_ours``."""
        for task in left:
            task.cancel()
        before = self._under_way.get(name)
        release = asyncio.create_task(self._release(name, [*left, *([before] if before else [])], is_ours=is_ours))
        self._under_way[name] = release
        release.add_done_callback(lambda _: self._ended(name, release))

    async def done(self, name: str) -> None:
        """Return once no release of the partition is under way."""
        if (release := self._under_way.get(name)) is not None:
            await asyncio.wait([release])

    async def _release(self, name: str, left: list[asyncio.Task[Any]], *, is_ours: bool) -> None:
        await asyncio.gather(*left, return_exceptions=True)
        if not is_ours:  # otherwise the committer would forget how often and since when its commits fail
            await self._committer.release(name)

    def _ended(self, name: str, release: asyncio.Task[None]) -> None:
        if self._under_way.get(name) is release:
            del self._under_way[name]


class TakeOver:
    """Begins to read partitions of ``source`` after their former owners are fenced.

    ``payments`` makes the payments of a partition with these debts; they are taken up at once. ``by_column``: rows of
    tables are read by column where the plant's can be, which ``columns`` says; such rows have no cursor.
    """

    def __init__(
        self,
        settings: Settings,
        source: Source,
        clock: Clock,
        counters: Counters,
        payments: Callable[[Collection[Debt]], Payments],
        *,
        table: BatchTable | None = None,
        schemas: Schemas | None = None,
        by_column: bool = False,
    ) -> None:
        self._settings = settings
        self._table = table
        self._payments = payments
        self._source = source
        self._clock = clock
        self._counters = counters
        self.has_resumed = False
        """Whether a partition was continued behind records that an earlier run, or this one, has read."""
        self._decoder = Decoder(
            settings.decode, settings.channels, settings.route_field, settings.sequences.while_, schemas
        )
        self.columns = ColumnReader.of(settings, self._decoder) if by_column else None
        self._log = get_logger().bind(plant=settings.name)

    async def begin(self, event: PartitionAssigned, progress: Progress | None, first_begin: int | None) -> Partition:
        """Seek the low watermark of ``progress``, or else ``first_begin``, and return the partition.

        ``first_begin`` is where it began in this run before its first commit; None: the source decides. If the source
        begins later (retention), sequences that may have lost samples begin anew as partial ones.
        """
        wanted = first_begin if progress is None else progress.low_watermark
        begin = await self._seek(event.partition, wanted, None if progress is None else progress.cursor)
        has_gap = wanted is not None and begin > wanted
        if progress is not None and has_gap:
            progress = after_gap(progress, begin)
        intake = Intake(
            event.partition,
            self._settings,
            self._decoder,
            self._counters,
            seen_from_start=event.seen_from_start and not has_gap,
            progress=progress,
            table=self._table,
            columns=self.columns,
        )
        payments = self._payments(() if progress is None else tuple(progress.debts.values()))
        idle = IdleClock(self._settings.run.outage_after)
        partition = Partition(event, intake, idle, payments, expected=begin, begin=begin)
        partition.committed_us = self._clock.monotonic_us()
        if progress is not None and progress.low_watermark < progress.next_offset:
            partition.low_watermark_us = progress.low_watermark_us
        if progress is None:
            intake.next_offset = begin
            if isinstance(self._source, TransactionalSource):  # so that "latest" is the same offset after a crash
                partition.moved, partition.committed_us = True, 0
        else:
            self.has_resumed |= progress.next_offset > 0
            n_known = sum(not saved.forgotten for saved in progress.streams.values())
            partition.moved = len(intake.streams) < n_known  # the next commit forgets the others
        where = {} if progress is None else {"next_offset": progress.next_offset}
        self._log.info(
            "partition assigned", partition=event.partition, begin=begin, first_start=progress is None, **where
        )
        return partition

    def unread(self, progress: Progress) -> Partition:
        """Return a partition that no source has assigned, to pay its debts; nothing of it is read or judged."""
        event = PartitionAssigned(progress.partition)
        intake = Intake(
            progress.partition, self._settings, self._decoder, self._counters, progress=progress, table=self._table
        )
        payments, begin = self._payments(tuple(progress.debts.values())), progress.low_watermark
        idle = IdleClock(self._settings.run.outage_after)
        self._log.info("debts of a partition that is not read", partition=progress.partition, debts=payments.owes)
        return Partition(event, intake, idle, payments, expected=begin, begin=begin, unread=progress, stage=Stage.OVER)

    async def _seek(self, partition: str, offset: int | None, cursor: str | None) -> int:
        if offset is not None and cursor is not None and isinstance(self._source, ResumableSource):
            return await self._source.resume(partition, offset, cursor)
        return await self._source.seek(partition, offset)
