"""From records to sequences in flight: what a partition's sequences become once they end, and how many may wait."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Coroutine
from typing import Any

from streamad.ingest.sequences.closed_sequences import Closed, memory_of
from streamad.judge.bank import Batchers
from streamad.judge.judging import Judge, JudgedSequence
from streamad.ports import Clock
from streamad.runtime.partition import SPLIT, InFlight, Partition, Results, Stage
from streamad.runtime.stream_homes import MAX_STREAMS, StreamHomes
from streamad.settings.plant_yaml import Settings
from streamad.tables import ColumnBatch
from streamad.telemetry.events import EventLog
from streamad.types import RecordBatch

_REREADING_SHARE = 2
_SEQUENCE_BYTES = 4_000
"""A sequence in flight holds so much beside its arrays: its verdict, its task, the clocks at its end."""
_MOST_JUDGED_BYTES = 24_000_000
"""Judged sequences that wait for a commit hold at most so much: then a commit begins, however soon after the last."""
_GROWING_SHARE = 16
"""After a failed commit has halved the bound, each that succeeds raises it by this part of what it held."""
_CHECKS = 16


class Submitter:
    """Passes records to the intake of their partition, and each sequence that ends to ``judge``, in order.

    ``partitions`` are those that are read now; ``on_done`` is called when a verdict is there, or has failed. The first
    verdict of a stream in a partition waits until its claim was read back (``homes``). Once a second partition's claim
    is known, what is in flight of the stream is judged anew, as unscorable.
    """

    def __init__(
        self,
        settings: Settings,
        clock: Clock,
        judge: Judge,
        batchers: Batchers,
        events: EventLog,
        *,
        homes: StreamHomes,
        partitions: Callable[[], Collection[Partition]],
        on_done: Callable[[asyncio.Task[Any]], None],
    ) -> None:
        self._settings = settings
        self._clock = clock
        self._judge = judge
        self._batchers = batchers
        self._events = events
        self._partitions = partitions
        self._on_done = on_done
        self.homes = homes
        self._memory_us = memory_of(settings.sequences)
        self._own_bytes = _SEQUENCE_BYTES + 4 * len(settings.channel_specs) * settings.window.length
        self._has_said_full = False
        self._n_unjudged = 0
        self._most_judged_bytes = _MOST_JUDGED_BYTES

    @property
    def model(self) -> str:
        """Return the models that judge, for people."""
        return self._batchers.label

    @property
    def n_waiting(self) -> int:
        """Return how many sequences wait for their verdict or its commit."""
        return sum(len(partition.in_flight) for partition in self._partitions())

    @property
    def held_bytes(self) -> int:
        """Return how many bytes open sequences hold."""
        return sum(partition.intake.buffered_bytes for partition in self._partitions())

    @property
    def is_full(self) -> bool:
        """Return whether too much waits for its verdict, or too much is held, to read on."""
        # Tasks count until the loop has told of their end, a moment longer than their partition or its commit waits.
        n_unjudged = min(self._n_unjudged, self.n_waiting)
        return n_unjudged > 2 * self._settings.run.batch_windows or self.holds_too_much

    @property
    def holds_too_much(self) -> bool:
        """Return whether sequences in flight hold so much that only commits make room."""
        in_flight_bytes = sum(partition.in_flight_bytes for partition in self._partitions())
        if in_flight_bytes > self._most_judged_bytes and self.n_waiting > 2 * self._settings.run.batch_windows:
            return True
        return self.held_bytes + in_flight_bytes > self._settings.sequences.max_buffered_bytes

    async def take(self, partition: Partition, batch: RecordBatch | ColumnBatch) -> bool:
        """Take records of ``partition`` that continue where it is; return whether it has passed an offset."""
        now_us = self._clock.now_us()
        caught_up = isinstance(batch, RecordBatch) and batch.caught_up
        has_records = batch.n > 0 if isinstance(batch, ColumnBatch) else bool(batch.records)
        has_passed = has_records or batch.next_offset > partition.expected
        partition.expected = batch.next_offset
        partition.idle.on_batch(self._clock.monotonic_us(), caught_up=caught_up, has_records=has_records)
        finished = partition.intake.take(batch, now_us)
        if caught_up:
            n_streams = len(partition.intake.streams)
            finished += partition.intake.expire(partition.idle.idle_us, now_us)
            partition.moved = partition.moved or len(partition.intake.streams) < n_streams
        partition.moved = partition.moved or has_passed  # also over transaction markers and aborted records
        if partition.orphans or partition.split or partition.left:
            self._let_go(partition)
        partition.caught_up = caught_up
        partition.lag = None if batch.end_offset is None else max(0, batch.end_offset - batch.next_offset)
        self._submit(partition, finished)
        if finished and (caught_up or self._batchers.is_idle):
            await self.flush()  # no further record waits, or the scorer is idle: waiting would not fill a batch
        return has_passed

    def finish(self, partition: Partition, *, may_hold: bool) -> int:
        """End the open sequences of an ended partition, or hold them if it wants that; return how many are held.

        Those of batches that run still (``sequences.table``) are held always.
        """
        if partition.holds_open and may_hold:
            partition.intake.hold_open()
            self._submit(partition, [])
        else:
            self._submit(partition, partition.intake.end_of_input(self._clock.now_us()))
        partition.stage = max(partition.stage, Stage.ENDED)
        return partition.intake.open_sequences

    def evict_largest(self) -> bool:
        """End the largest open sequence of the fullest partition; return whether there was one."""
        held = [partition for partition in self._partitions() if partition.intake.buffered_bytes]
        # Sequences being read again were not evicted here at first: evicting them now is the last resort.
        if self.held_bytes <= _REREADING_SHARE * self._settings.sequences.max_buffered_bytes:
            held = [partition for partition in held if not partition.intake.is_recovering]
        if not held:
            return False
        fullest = max(held, key=lambda partition: partition.intake.buffered_bytes)
        finished = fullest.intake.evict_largest(self._clock.now_us())
        self._submit(fullest, finished)
        return bool(finished)

    async def flush(self) -> None:
        """Let the scorer begin with what waits."""
        await asyncio.sleep(0)  # new tasks submit their windows first
        self._batchers.flush()

    def _submit(self, partition: Partition, finished: list[Closed]) -> None:
        self._claim_new(partition)
        for notice in partition.intake.take_notices(self._clock.now_us()):
            self._events.emit(notice.kind, notice.text, partition=partition.name, stream=notice.stream)
        partition.set_aside(partition.intake.take_aside())
        now_us = self._clock.monotonic_us()
        for closed in finished:
            sequence = closed.sequence
            nbytes = sequence.values.nbytes + sequence.times_us.nbytes + self._own_bytes
            task = self._judging(partition, closed)
            partition.add(InFlight(closed, task, now_us, nbytes, partition.intake.clock_us))

    def _judging(self, partition: Partition, closed: Closed) -> asyncio.Task[JudgedSequence]:
        """Begin to judge a finished sequence, or to wait until its stream's claim was read back."""
        stream = closed.sequence.stream
        # A file that has ended claims nothing more: its streams go on in the next one.
        is_claimed = partition.stage > Stage.READING and not self.homes.are_shared
        is_claimed = is_claimed or self.homes.knows(stream, partition.name)
        if not is_claimed:  # forgotten, or ended by a former owner
            self.homes.claim([stream], partition.name, partition.intake.clock_us)
            self._take_claims()
            is_claimed = self.homes.knows(stream, partition.name)
        if is_claimed:
            split = SPLIT if self.homes.is_split(stream) else None
            task = asyncio.create_task(
                self._judge.judge(closed.sequence, partition.payments.ledger, split, closed.looks)
            )
        else:
            task = asyncio.create_task(self._judged_once_claimed(partition, closed))
        self._n_unjudged += 1
        task.add_done_callback(self._on_judged)
        return task

    def _on_judged(self, task: asyncio.Task[JudgedSequence]) -> None:
        self._n_unjudged -= 1
        self._on_done(task)

    async def _judged_once_claimed(self, partition: Partition, closed: Closed) -> JudgedSequence:
        await self.homes.claimed(closed.sequence.stream, partition.name)
        return await self._judged(partition, closed)

    def _judged(self, partition: Partition, closed: Closed) -> Coroutine[Any, Any, JudgedSequence]:
        """Return the judging of a sequence, by what is known now of its stream's partitions."""
        split = SPLIT if self.homes.is_split(closed.sequence.stream) else None
        return self._judge.judge(closed.sequence, partition.payments.ledger, split, closed.looks)

    # --- streams in several partitions ---

    def begin(self, partition: Partition) -> None:
        """Claim the streams of a restored partition, and find the claims of its former owners on others.

        Without other processes they are claimed with its first batch: of several files only one may be read on.
        """
        if not self.homes.are_shared:
            return
        self._claim_new(partition)
        known = partition.intake.streams
        claimed = self.homes.in_partition(partition.name)
        times = [(home.time_us or 0, stream) for stream, home in claimed if stream not in known]
        partition.orphans = {stream: time_us for time_us, stream in sorted(times)}

    async def meet(self) -> None:
        """Take in the claims that were read: call it before commits begin. Raises SourceError, OutputError."""
        if self._take_claims():
            await self.flush()

    def failed(self) -> None:
        """Note that a commit failed: perhaps it was too large for its time, so the next ones are smaller.

        Each that succeeds lets them grow, slowly: few fail where a link is thin, or the broker far.
        """
        self._most_judged_bytes //= 2

    def committed(self, partition: Partition, results: Results) -> None:
        """End the claims on streams that a commit has forgotten, and say what now can be said about split ones."""
        grown_bytes = self._most_judged_bytes + sum(done.nbytes for done in results.done) // _GROWING_SHARE
        self._most_judged_bytes = min(_MOST_JUDGED_BYTES, grown_bytes)
        gone = {name for name in results.forgotten if name not in partition.intake.streams}
        left = {stream for stream in partition.leaving if self._is_silent(partition, stream)}
        partition.split = (partition.split | partition.leaving) - gone - left
        partition.left |= left
        partition.leaving.clear()
        self.homes.end(gone | left, partition.name)
        self._take_claims()

    def _claim_new(self, partition: Partition) -> None:
        new = partition.intake.take_new_streams()
        claimed = []
        for stream in new:
            is_known = self.homes.knows(stream, partition.name)
            if not is_known and self._is_silent(partition, stream):  # of a restored partition, and let go before
                partition.left.add(stream)
                continue
            claimed.append(stream)
            partition.orphans.pop(stream, None)
            if is_known and self.homes.is_split(stream):
                self._split(partition, stream)
        self.homes.claim(claimed, partition.name, partition.intake.clock_us)
        if new:
            self._take_claims()

    def _take_claims(self) -> bool:
        """Take in the claims that were read; return whether there were any."""
        changed = self.homes.update()
        if changed or any(partition.unsettled for partition in self._partitions()):
            self._apply(changed)
        return bool(changed)

    def _apply(self, changed: list[str]) -> None:
        for stream in changed:
            if not self.homes.is_split(stream):
                continue
            for partition in self._partitions():
                if self.homes.knows(stream, partition.name):
                    self._split(partition, stream)
        for partition in self._partitions():
            if partition.unsettled and partition.committing is None:  # what it has committed is certain
                self._settle(partition)
        if self.homes.has_forgotten and not self._has_said_full:
            self._has_said_full = True
            text = (
                f"more than {MAX_STREAMS:,} streams: the oldest claims are forgotten and made again at the stream's "
                "next sequence, so that a stream in two partitions may be noticed late"
            )
            self._events.emit("stream_homes_full", text)

    def _split(self, partition: Partition, stream: str) -> None:
        """Judge anew what is in flight of a stream that is now known to be split."""
        partition.unsettled.add(stream)
        partition.split.add(stream)
        seen_us = partition.intake.last_seen_us(stream)
        partition.let_go_us = min(partition.let_go_us, self._memory_us + (seen_us or 0))
        for waiting in partition.in_flight:
            if waiting.closed.sequence.stream != stream:
                continue
            if waiting.task.done() and not waiting.task.cancelled() and waiting.task.exception() is None:
                judged = waiting.task.result()
                if judged.verdict.detail == SPLIT:
                    continue
                if judged.debt is not None:
                    partition.payments.ledger.paid(judged.debt.alert.alert_id)
            waiting.task.cancel()
            waiting.task = self._judging(partition, waiting.closed)

    def _settle(self, partition: Partition) -> None:
        """Say what ``partition`` has to say about its split streams: how many verdicts stand, and the one event."""
        homes, name, intake = self.homes, partition.name, partition.intake
        for stream in list(partition.unsettled):
            if not homes.is_split(stream) or not homes.knows(stream, name):
                partition.unsettled.discard(stream)
                continue
            unanswered, is_teller = homes.unanswered(stream), homes.teller(stream) == name
            if is_teller and not intake.has_told_split(stream) and unanswered <= {name}:
                self._tell(partition, stream)
            has_told = intake.has_told_split(stream) and stream not in partition.telling
            if name in unanswered or (is_teller and has_told):
                homes.say(stream, name, intake.n_judged(stream), told=has_told)
            elif not is_teller:
                partition.unsettled.discard(stream)

    def _tell(self, partition: Partition, stream: str) -> None:
        """Put the event about a split stream into the next commit of ``partition``, with the mark that it is told."""
        others = [home for home in self.homes.of(stream) if home.partition != partition.name]
        n = partition.intake.n_judged(stream) + sum(home.n_judged or 0 for home in others)
        where = ", ".join(sorted(home.partition for home in others))
        text = (
            f"also in {where}: its sequences are unscorable from now on; "
            f"verdicts committed before, which stand: {n}; check the message key"
        )
        event = self._events.emit(
            "stream_in_two_partitions", text, partition=partition.name, stream=stream, waits=False
        )
        partition.set_aside(self._events.records([event]))
        partition.intake.tell_split(stream)
        partition.telling.add(stream)
        partition.moved = True

    def _is_silent(self, partition: Partition, stream: str) -> bool:
        """Return whether ``partition`` has not seen ``stream`` for ``closed_memory``, and all of it is done."""
        seen_us = partition.intake.last_seen_us(stream)
        return (
            seen_us is not None and _now_us(partition) - seen_us > self._memory_us and partition.intake.is_done(stream)
        )

    def _let_go(self, partition: Partition) -> None:
        """End claims on streams that ``partition`` has not seen for ``closed_memory``: split ones, and former owners'.

        Claims on other streams end when the stream is forgotten.
        """
        intake, now_us = partition.intake, _now_us(partition)
        if now_us > partition.let_go_us:
            silent = {stream for stream in partition.split if self._is_silent(partition, stream)}
            for stream in silent:
                intake.leave(stream)
            partition.moved = partition.moved or bool(silent)
            partition.split -= silent
            partition.leaving |= silent
            due_us = [(intake.last_seen_us(stream) or now_us) + self._memory_us for stream in partition.split]
            later_us = now_us + self._memory_us // _CHECKS  # for those with an open sequence
            partition.let_go_us = min((at if at >= now_us else later_us for at in due_us), default=later_us)
        for stream in [stream for stream in partition.left if not self._is_silent(partition, stream)]:
            partition.left.discard(stream)
            if stream in intake.streams:  # it is here again
                self.homes.claim([stream], partition.name, intake.clock_us)
        over = []
        for stream, time_us in partition.orphans.items():
            if now_us - time_us <= self._memory_us:
                break
            over.append(stream)
        for stream in over:
            del partition.orphans[stream]
        self.homes.end(over, partition.name)


def _now_us(partition: Partition) -> int:
    """Return the record clock, with the silence since that counts."""
    return (partition.intake.clock_us or 0) + partition.idle.idle_us
