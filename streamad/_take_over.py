"""Taking a partition over: from its progress, or from where its source begins, to a partition that can be read."""

from __future__ import annotations

__all__ = ["TakeOver"]

from streamad._partition import IdleClock, Partition
from streamad.ingest.decode import Decoder
from streamad.ingest.intake import Intake
from streamad.logs import get_logger
from streamad.metrics import Counters
from streamad.ports import Clock, Source, TransactionalSource
from streamad.progress import Progress, after_gap
from streamad.settings import Settings
from streamad.types import PartitionAssigned


class TakeOver:
    """Begins to read the partitions of ``source``, once their former owners are kept out."""

    def __init__(self, settings: Settings, source: Source, clock: Clock, counters: Counters) -> None:
        self._settings = settings
        self._source = source
        self._clock = clock
        self._counters = counters
        self._decoder = Decoder(settings.decode, settings.channels, settings.route_field)
        self._log = get_logger().bind(plant=settings.name)

    async def begin(self, event: PartitionAssigned, progress: Progress | None, first_begin: int | None) -> Partition:
        """Seek the low watermark of ``progress``, without one ``first_begin``, and return the partition.

        ``first_begin`` is where it began in this run before its first commit; None: the source says. Where what lies
        behind the place sought is gone, sequences that may have lost samples begin anew as partial ones.
        """
        wanted = first_begin if progress is None else progress.low_watermark
        begin = await self._source.seek(event.partition, wanted)
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
        )
        partition = Partition(event, intake, IdleClock(self._settings.run.outage_after), expected=begin, begin=begin)
        partition.committed_us = self._clock.monotonic_us()
        if progress is not None and progress.low_watermark < progress.next_offset:
            partition.low_watermark_us = progress.low_watermark_us
        if progress is None:
            intake.next_offset = begin
            if isinstance(self._source, TransactionalSource):  # so that "latest" means the same place after a crash
                partition.moved, partition.committed_us = True, 0
        where = {} if progress is None else {"next_offset": progress.next_offset}
        self._log.info(
            "partition assigned", partition=event.partition, begin=begin, first_start=progress is None, **where
        )
        return partition
