"""The runtime that joins the rooms: records in, sequences judged, outputs and progress committed together."""

from __future__ import annotations

__all__ = ["JudgedSequence", "Pipeline"]

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from typing import Any, NamedTuple

from streamad._partition import IdleClock, InFlight, Partition
from streamad.ingest.assembly import Closed
from streamad.ingest.decode import Decoder
from streamad.ingest.intake import Intake
from streamad.judge.judging import Judge, Judgement
from streamad.judge.scoring import MicroBatcher
from streamad.logs import get_logger
from streamad.metrics import Counters
from streamad.ports import Clock, Committer, Source
from streamad.settings import Settings
from streamad.types import (
    Event,
    OutputRecord,
    PartitionAssigned,
    PartitionEnded,
    PartitionRevoked,
    RecordBatch,
    SourceEvent,
    from_us,
)

_MAX_ASIDE_BYTES = 16_000_000
_MAX_HOMES = 100_000
_SHORTEST_TICK_US = 10_000


class JudgedSequence(NamedTuple):
    """One committed judgement; ``latency_us`` from the arrival of what ended the sequence to the commit."""

    judgement: Judgement
    latency_us: int


class Pipeline:
    """Runs one source through assembly and judging to a committer, until the source ends or ``request_stop``.

    Verdicts of a partition commit in the order in which its sequences ended, together with the dead letters and late
    records of everything read so far and the progress that says so. ``explain`` adds attributions to alerts;
    ``with_verdicts`` writes a verdict for every sequence. ``on_judged`` is called after the commit.
    """

    def __init__(
        self,
        settings: Settings,
        source: Source,
        committer: Committer,
        batcher: MicroBatcher,
        clock: Clock,
        *,
        explain: bool,
        with_verdicts: bool,
        on_judged: Callable[[JudgedSequence], None] | None = None,
        on_event: Callable[[Event], None] | None = None,
    ) -> None:
        self.counters = Counters()
        self._settings = settings
        self._source = source
        self._committer = committer
        self._batcher = batcher
        self._judge = Judge(settings, batcher, clock, explain=explain)
        self._clock = clock
        self._with_verdicts = with_verdicts
        self._decoder = Decoder(settings.decode, settings.channels)
        self._on_judged = on_judged
        self._on_event = on_event
        self._partitions: dict[str, Partition] = {}
        self._homes: dict[str, set[str]] = {}
        self._in_flight_bytes = 0
        self._wake = asyncio.Event()
        self._stopping = False
        self._give_up_us = 0
        self._log = get_logger().bind(plant=settings.name)

    @property
    def was_stopped(self) -> bool:
        """Return whether a stop was requested: verdicts may be missing that the next run will bring."""
        return self._stopping

    def request_stop(self) -> None:
        """Stop reading; what is judged within ``run.stop_timeout`` is committed, all else is read again next time."""
        if not self._stopping:
            self._log.info("stop requested")
            self._give_up_us = self._clock.monotonic_us() + self._settings.run.stop_timeout
        self._stopping = True
        self._wake.set()

    async def run(self) -> None:
        """Run until the source ends or a stop is requested; the caller closes source, committer and batcher.

        Raises SourceError, OutputError, CheckpointError, DetectorError.
        """
        self._log.info("run started", model=self._batcher.model.ref.name, version=self._batcher.model.ref.version)
        ticker = asyncio.create_task(self._tick())
        events = self._source.batches()
        try:
            await self._read(events)
            await self._drain()
            self._log.info("run ended", **self.counters.as_dict())
        finally:
            ticker.cancel()
            left = [waiting.task for partition in self._partitions.values() for waiting in partition.in_flight]
            for task in left:
                task.cancel()
            await asyncio.gather(ticker, *left, return_exceptions=True)
            if isinstance(events, AsyncGenerator):
                await events.aclose()

    async def _read(self, events: AsyncIterator[SourceEvent]) -> None:
        pull: asyncio.Future[SourceEvent | None] | None = None
        try:
            while not self._stopping:
                await self._make_room()
                if pull is None:
                    pull = asyncio.ensure_future(anext(events, None))
                await self._wait_for(pull)
                if pull.done():
                    event, pull = pull.result(), None
                    if event is None:
                        return
                    await self._handle(event)
                await self._commit_due()
        finally:
            if pull is not None:
                pull.cancel()
                await asyncio.gather(pull, return_exceptions=True)

    async def _wait_for(self, pull: asyncio.Future[SourceEvent | None] | None) -> None:
        """Return when ``pull`` is done or something happened (a verdict, a tick, a stop)."""
        if pull is not None and pull.done():
            return
        woken = asyncio.ensure_future(self._wake.wait())
        try:
            waited: set[asyncio.Future[Any]] = {woken} if pull is None else {woken, pull}
            await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
        finally:
            woken.cancel()
        self._wake.clear()

    async def _tick(self) -> None:
        interval_us = max(self._settings.run.commit_interval, _SHORTEST_TICK_US)
        while True:
            await self._clock.sleep(interval_us / 1e6)
            self._wake.set()

    # --- what the source says ---

    async def _handle(self, event: SourceEvent) -> None:
        match event:
            case RecordBatch():
                self._take(event)
            case PartitionAssigned():
                await self._assign(event)
            case PartitionRevoked():
                self._revoke(event.partition)
            case PartitionEnded():
                self._end(event.partition)

    async def _assign(self, event: PartitionAssigned) -> None:
        self._revoke(event.partition)
        progress = await self._committer.restore(event.partition)
        intake = Intake(
            event.partition,
            self._settings,
            self._decoder,
            self.counters,
            seen_from_start=event.seen_from_start,
            progress=progress,
        )
        partition = Partition(intake, IdleClock(self._settings.run.outage_after))
        partition.committed_us = self._clock.monotonic_us()
        self._partitions[event.partition] = partition
        if progress is None:
            self._log.info("partition assigned", partition=event.partition, first_start=True)
        else:
            self._log.info(
                "partition assigned",
                partition=event.partition,
                next_offset=progress.next_offset,
                low_watermark=progress.low_watermark,
            )
        await self._source.seek(event.partition, None if progress is None else progress.low_watermark)

    def _revoke(self, name: str) -> None:
        partition = self._partitions.pop(name, None)
        if partition is None:
            return
        for waiting in partition.in_flight:
            waiting.task.cancel()
            self._in_flight_bytes -= waiting.nbytes
        self._leave_home(name)
        self._log.info("partition revoked", partition=name)

    def _end(self, name: str) -> None:
        partition = self._partitions.get(name)
        if partition is None:
            return
        partition.ending = True
        self._leave_unshared_home(name)
        if not partition.in_flight:
            self._finish(partition)

    def _finish(self, partition: Partition) -> None:
        """End what is open in an ended partition: not before all that its samples had ended is committed."""
        self._submit(partition, partition.intake.end_of_input(self._clock.now_us()))
        partition.ended = True
        self._leave_home(partition.intake.partition)

    def _take(self, batch: RecordBatch) -> None:
        partition = self._partitions.get(batch.partition)
        if partition is None:
            return
        now_us = self._clock.now_us()
        partition.idle.on_batch(self._clock.monotonic_us(), caught_up=batch.caught_up, has_records=bool(batch.records))
        finished = partition.intake.take(batch, now_us)
        if batch.caught_up:
            finished += partition.intake.expire(partition.idle.idle_us, now_us)
        partition.moved = partition.moved or bool(batch.records)
        partition.caught_up = batch.caught_up
        self._submit(partition, finished)

    # --- judging ---

    def _submit(self, partition: Partition, finished: list[Closed]) -> None:
        for stream in partition.intake.assembler.take_new_streams():
            self._settle(stream, partition.intake.partition)
        partition.set_aside(partition.intake.take_aside())
        now_us = self._clock.monotonic_us()
        for closed in finished:
            sequence = closed.sequence
            self.counters.sequences[sequence.reason] += 1
            self.counters.sequence_samples += sequence.n_samples
            self.counters.merged += closed.merged
            self.counters.duplicates += sequence.duplicates
            refused = None
            if len(self._homes.get(sequence.stream, ())) > 1:
                refused = "stream seen in two partitions: its samples are split between them; check the message key"
            task = asyncio.create_task(self._judge.judge(sequence, refused))
            task.add_done_callback(self._on_done)
            nbytes = sequence.values.nbytes + sequence.times_us.nbytes
            self._in_flight_bytes += nbytes
            partition.in_flight.append(InFlight(closed, task, now_us, nbytes))

    def _on_done(self, task: asyncio.Task[Judgement]) -> None:
        if not task.cancelled():
            task.exception()  # looked at: of many that fail together only the first is raised, by its commit
        self._wake.set()

    def _settle(self, stream: str, partition: str) -> None:
        """Note that ``stream`` lives in ``partition``; where it has lived in two, its sequences are unscorable."""
        while len(self._homes) >= _MAX_HOMES and stream not in self._homes:
            del self._homes[next(iter(self._homes))]
        homes = self._homes.setdefault(stream, set())
        is_split = bool(homes) and partition not in homes
        homes.add(partition)
        if not is_split:
            return
        event = Event(
            kind="stream_in_two_partitions",
            message=f"also in {min(homes - {partition})}: its sequences are unscorable; check the message key",
            partition=partition,
            stream=stream,
            created_at=from_us(self._clock.now_us()),
        )
        self._partitions[partition].set_aside([OutputRecord("events", stream, event)])
        self._log.warning("stream in two partitions", stream=stream, partitions=sorted(homes))
        if self._on_event is not None:
            self._on_event(event)

    def _leave_unshared_home(self, partition: str) -> None:
        """Forget the streams that lived in ``partition`` alone: they may go on in the next file."""
        for stream in [stream for stream, homes in self._homes.items() if homes == {partition}]:
            del self._homes[stream]

    def _leave_home(self, partition: str) -> None:
        """Forget the streams that lived in ``partition`` alone; one that was split stays so while the other is read."""
        for stream in [stream for stream, homes in self._homes.items() if partition in homes]:
            if all(home == partition or home not in self._partitions for home in self._homes[stream]):
                del self._homes[stream]

    # --- memory ---

    async def _make_room(self) -> None:
        """Hold the source back while too much waits; if nothing can drain, end the largest open sequence."""
        limit = self._settings.sequences.max_buffered_bytes
        most_waiting = 2 * self._settings.run.batch_windows
        while not self._stopping:
            waiting, held = self._waiting, self._held_bytes
            if held + self._in_flight_bytes <= limit and waiting <= most_waiting:
                return
            if waiting:
                await self._flush()
                await self._commit_ready()
                if self._waiting == waiting:
                    await self._wait_for(None)
            elif not self._evict() and self._held_bytes >= held:
                return

    @property
    def _waiting(self) -> int:
        return sum(len(partition.in_flight) for partition in self._partitions.values())

    @property
    def _held_bytes(self) -> int:
        return sum(partition.intake.assembler.buffered_bytes for partition in self._partitions.values())

    def _evict(self) -> bool:
        """End the largest open sequence of the fullest partition; return whether there was one."""
        fullest = max(self._partitions.values(), key=lambda partition: partition.intake.assembler.buffered_bytes)
        finished = fullest.intake.evict_largest(self._clock.now_us())
        self._submit(fullest, finished)
        return bool(finished)

    async def _flush(self) -> None:
        await asyncio.sleep(0)  # tasks just made submit their windows first
        self._batcher.flush()

    # --- commits ---

    async def _commit_due(self) -> None:
        """Commit what is ready where the interval has passed, the source is caught up, or much waits."""
        now_us = self._clock.monotonic_us()
        for partition in list(self._partitions.values()):
            interval_over = now_us - partition.committed_us >= self._settings.run.commit_interval
            if partition.ended:
                is_due = partition.has_verdicts or not partition.in_flight
            elif partition.has_verdicts and (interval_over or partition.caught_up or partition.ending):
                is_due = True
            else:
                is_due = (interval_over and partition.moved) or partition.aside_bytes > _MAX_ASIDE_BYTES
            if is_due:
                await self._commit(partition)

    async def _commit_ready(self) -> None:
        for partition in list(self._partitions.values()):
            if partition.has_verdicts:
                await self._commit(partition)

    async def _commit(self, partition: Partition) -> None:
        done = partition.take_judged()
        judgements = [waiting.task.result() for waiting in done]
        outputs = partition.take_aside()
        for waiting, judgement in zip(done, judgements, strict=True):
            partition.intake.assembler.committed(waiting.closed)
            outputs += judgement.outputs(with_verdicts=self._with_verdicts)
            self._in_flight_bytes -= waiting.nbytes
        partition.moved = False
        update = partition.intake.progress(ended=partition.ended)
        await self._committer.commit(update, outputs)
        self._log.debug(
            "committed",
            partition=update.partition,
            next_offset=update.next_offset,
            low_watermark=update.low_watermark,
            verdicts=len(done),
            messages=len(outputs),
        )
        partition.committed_us = now_us = self._clock.monotonic_us()
        self.counters.commits += 1
        for waiting, judgement in zip(done, judgements, strict=True):
            self.counters.verdicts[judgement.verdict.decision] += 1
            self.counters.alerts += judgement.alert is not None
            if self._on_judged is not None:
                self._on_judged(JudgedSequence(judgement, now_us - waiting.since_us))
        if partition.ended:
            self._log.info("partition ended", partition=update.partition, next_offset=update.next_offset)
            del self._partitions[partition.intake.partition]
        elif partition.ending and not partition.in_flight:
            self._finish(partition)
            if not partition.in_flight:
                await self._commit(partition)

    async def _drain(self) -> None:
        """Finish and commit what is being scored, and what fell aside."""
        while self._waiting:
            if self._stopping and self._clock.monotonic_us() >= self._give_up_us:
                self._give_up()
                break
            await self._flush()
            await self._commit_ready()
            if any(p.in_flight and not p.has_verdicts for p in self._partitions.values()):
                await self._wait_for(None)
        for partition in list(self._partitions.values()):
            if partition.moved or partition.aside or partition.ended:
                await self._commit(partition)

    def _give_up(self) -> None:
        """Leave to the next run what is not judged; the end of a partition counts only as a whole."""
        for name, partition in list(self._partitions.items()):
            self._log.info("left to the next run", partition=name, sequences=len(partition.in_flight))
            for waiting in partition.in_flight:
                waiting.task.cancel()
            partition.in_flight.clear()
            if partition.ended:
                del self._partitions[name]
            partition.ending = False
