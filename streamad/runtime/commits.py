"""Commits of what partitions have judged: one at a time for each, independent of the others and of reading."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Any

from msgspec.structs import replace

from streamad.errors import PartitionLost
from streamad.judge.gate import WindowRecords
from streamad.judge.judging import JudgedSequence
from streamad.messages import Attribution, EarlyWarning, OutputRecord
from streamad.partition_progress import ProgressUpdate
from streamad.ports import Clock, Committer
from streamad.runtime.checkpoint import UnsavedCommitter
from streamad.runtime.partition import Committing, Partition
from streamad.runtime.status import Status
from streamad.telemetry.events import EventLog
from streamad.types import from_us

_MAX_ASIDE_BYTES = 16_000_000


class Commits:
    """Begins commits of ``committer``, and notes how each has ended.

    ``on_done`` is called when a commit's task is done; ``ended`` then takes its result. Events go with the commit that
    begins next, and wait for another one if it fails.
    """

    def __init__(
        self,
        committer: Committer,
        clock: Clock,
        status: Status,
        events: EventLog,
        *,
        windows: WindowRecords | None,
        with_verdicts: bool,
        on_done: Callable[[asyncio.Task[Any]], None],
        on_judged: Callable[[JudgedSequence, int], None] | None,
        on_explained: Callable[[Attribution], None] | None,
        on_warned: Callable[[EarlyWarning, Attribution | None], None] | None = None,
    ) -> None:
        self._committer = committer
        self._clock = clock
        self._status = status
        self._events = events
        self._windows = windows
        self._with_verdicts = with_verdicts
        self._on_done = on_done
        self._on_judged = on_judged
        self._on_explained = on_explained
        self._on_warned = on_warned
        self._last: ProgressUpdate | None = None  # of the last commit, without what it changed

    @property
    def keep_progress(self) -> bool:
        """Return whether a later run continues where these commits end."""
        return not isinstance(self._committer, UnsavedCommitter)

    @property
    def have_events(self) -> bool:
        """Return whether events wait to be written."""
        return bool(self._events)

    def begin_due(self, partitions: Iterable[Partition], interval_us: int) -> None:
        """Begin the commits that are due, or would free much memory."""
        now_us = self._clock.monotonic_us()
        for partition in partitions:
            if partition.committing is not None or not partition.intake.may_commit:
                continue
            is_due = partition.is_due(now_us, interval_us, has_events=self.have_events)
            if is_due or partition.aside_bytes > _MAX_ASIDE_BYTES:
                self.begin(partition)

    def begin_ready(self, partitions: Iterable[Partition]) -> None:
        """Begin the commits that have verdicts or attributions."""
        for partition in partitions:
            if partition.has_results and partition.committing is None:
                self.begin(partition)

    def begin(self, partition: Partition) -> None:
        """Begin to commit what is judged; raise the failure of a sequence."""
        events = self._events.take()
        records, at = self._events.records(events), from_us(self._clock.now_us())
        results = partition.take_results(records, self._windows, at, with_verdicts=self._with_verdicts)
        task = asyncio.create_task(self._committer.commit(results.update, results.outputs))
        task.add_done_callback(self._on_done)
        partition.committing = Committing(results, task, self._clock.monotonic_us(), events)

    def ended(self, partition: Partition, commit: Committing) -> None:
        """Note that the task of ``commit`` is done. Raises what it raised, such as PartitionLost."""
        partition.committing = None
        try:
            commit.task.result()
        except PartitionLost:
            self._events.give_back(commit.events)
            raise
        results = commit.results
        self._last = replace(results.update, streams={}, debts={})
        partition.committed(commit, self._clock.monotonic_us())
        self._status.committed(partition.name, results)
        if self._on_warned is not None:
            made = {each.alert_id: each for each in map(_attribution_in, results.outputs) if each is not None}
            for record in results.outputs:
                if isinstance(record.message, EarlyWarning):
                    self._on_warned(record.message, made.get(record.message.warning_id))
        if self._on_judged is not None:
            for waiting, sequence in zip(results.done, results.judged, strict=True):
                self._on_judged(sequence, partition.committed_us - waiting.since_us)
        if self._on_explained is not None:
            for attribution in results.attributions:
                self._on_explained(attribution)

    def forget(self, name: str, partition: Partition | None) -> None:
        """Note that the partition ``name`` is no longer ours; the events of a commit under way wait for another one."""
        if self._last is not None and self._last.partition == name:
            self._last = None
        if partition is not None and partition.committing is not None:
            self._events.give_back(partition.committing.events)

    async def write_events(self) -> None:
        """Commit the events alone, with progress as the last commit left it.

        Does nothing if no partition is ours. Raises OutputError, PartitionLost.
        """
        if not self._events or self._last is None:
            return
        await self._committer.commit(self._last, self._events.records(self._events.take()))


def _attribution_in(record: OutputRecord) -> Attribution | None:
    return record.message if isinstance(record.message, Attribution) else None
