"""The sequences of a stream that have ended: a late sample of one is known as such, and rereading ends them alike."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from functools import lru_cache
from hashlib import blake2b

import msgspec

from streamad.ingest.sequences.clocks import NEVER_US, Clocks
from streamad.ingest.sequences.held_readings import Held
from streamad.ingest.sequences.open_sequence import MAX_LATE_ENTRIES
from streamad.ingest.sequences.runs import Run
from streamad.partition_progress import ForcedEnd, LooksTaken, StreamProgress
from streamad.settings.plant_yaml import SequenceSettings
from streamad.types import FinishedSequence, Position

MAX_CLOSED_IDS = 100_000
MAX_FORCED_ENDS = 1_000


def memory_of(settings: SequenceSettings) -> int:
    """Return for how long a closed sequence is remembered, and a stream that is silent, in us of the record clock."""
    if settings.closed_memory is not None:
        return settings.closed_memory
    return settings.max_duration + settings.allowed_lateness


class Closed(msgspec.Struct, frozen=True, eq=False):
    """A finished sequence with the state that its progress needs until the verdict is committed.

    ``at_us`` is the partition's clock at its end, ``through_us`` the event time up to which it is closed; ``offset`` is
    the lowest of its samples and the one that ended it, ``before`` holds the clocks before that record. ``unseen``: its
    beginning may lie before the first record read. ``held`` are the readings that it began with, ``looks`` those that
    were taken at it while it ran.
    """

    sequence: FinishedSequence
    key: str | None
    at_us: int
    through_us: int
    offset: int
    before: Clocks
    unseen: bool = False
    held: Held = msgspec.field(default_factory=dict)
    looks: LooksTaken | None = None


@lru_cache(maxsize=10_000)
def id_hash(key: str) -> str:
    """Return the short hash under which a closed sequence id is remembered."""
    return blake2b(key.encode(), digest_size=9).hexdigest()


def hash_of(key: str | None) -> str:
    """Return ``id_hash`` of a sequence id, "" if there is none."""
    return "" if key is None else id_hash(key)


def looks_key(key: str | None, start_us: int) -> str:
    """Return what the progress calls the looks at the sequence ``key`` that began at ``start_us``."""
    return f"{hash_of(key)}@{start_us}"


class ClosedSequences:
    """The ended sequences of a stream: hashes of ids, or the event time through which those without an id end.

    Law: a sample of an ended sequence is known as such until the partition's clock has passed its end by ``memory_us``;
    after that its id may begin another sequence. A restart forgets the ends that were not committed, and these
    sequences end again. Ids of late sequences are kept apart: they displace no id of a judged one.
    """

    __slots__ = ("_committed_through_us", "_ids", "_late_ids", "_longest_us", "_through_us", "memory_us")

    def __init__(self, settings: SequenceSettings) -> None:
        self.memory_us = memory_of(settings)
        self._ids = _ClosedIds(MAX_CLOSED_IDS)
        self._late_ids = _ClosedIds(MAX_LATE_ENTRIES)
        self._longest_us = min(settings.max_duration, settings.gap or NEVER_US)
        self._through_us: int | None = None
        self._committed_through_us: int | None = None

    # --- who asks ---

    def holds(self, run: Run) -> bool:
        """Return whether the sequence of ``run``, which is not open, has ended."""
        if run.sequence is None:
            return self._through_us is not None and run.first_us <= self._through_us
        return self.knows(run.sequence, max(run.arrived_us, run.first_us))

    def begun_us(self, run: Run) -> int | None:
        """Return the time of what began the sequence of ``run``, its first samples; None if it may be that of another.

        Without an id it may have begun the one before, and so it may if it lies longer ago than a sequence lasts.
        """
        begun_us, through_us = run.begun_us, self._through_us
        if begun_us is None or run.first_us - begun_us > self._longest_us:
            return None
        return begun_us if run.sequence is not None or through_us is None or begun_us > through_us else None

    def knows(self, key: str, clock_us: int) -> bool:
        """Return whether the sequence ``key`` has ended, and is remembered at the clock ``clock_us``."""
        if not self._ids.ended and not self._late_ids.ended:
            return False
        hashed = id_hash(key)
        at_us = max(self._ids.ended.get(hashed, -NEVER_US), self._late_ids.ended.get(hashed, -NEVER_US))
        return clock_us <= at_us + self.memory_us

    def ended_us(self, hashed: str) -> int | None:
        """Return the clock at the end of the sequence whose id has this hash; None if it is not remembered."""
        return self._ids.ended.get(hashed)

    # --- what ends ---

    def end(self, closed: Closed) -> None:
        """Note the end of a sequence."""
        if closed.key is not None:
            _put_last(self._ids.ended, id_hash(closed.key), closed.at_us)
        elif self._through_us is None or closed.through_us > self._through_us:
            self._through_us = closed.through_us

    def end_late(self, key: str, at_us: int) -> None:
        """Note the end of a late sequence, at the clock ``at_us``."""
        _put_last(self._late_ids.ended, id_hash(key), at_us)
        self._late_ids.forget_ended()

    def forget(self, clock_us: int) -> None:
        """Forget the ids that may recur at the partition's clock ``clock_us``."""
        self._ids.forget_ended(clock_us - self.memory_us)
        self._late_ids.forget_ended(clock_us - self.memory_us)

    # --- what is saved ---

    def commit(self, closed: Closed) -> None:
        """Note that the verdict of ``closed`` is durable."""
        if closed.key is not None:
            ids = self._late_ids if closed.sequence.is_late else self._ids
            _put_last(ids.committed, id_hash(closed.key), closed.at_us)
        elif self._committed_through_us is None or closed.through_us > self._committed_through_us:
            self._committed_through_us = closed.through_us

    def forget_committed(self, clock_us: int) -> None:
        """Forget the ids that may recur at ``clock_us``, the partition's clock from which rereading starts."""
        self._ids.forget_committed(clock_us - self.memory_us)
        self._late_ids.forget_committed(clock_us - self.memory_us)

    @property
    def committed(self) -> tuple[dict[str, int], dict[str, int], int | None]:
        """Return what is committed, as progress saves it: ``closed``, ``closed_late``, ``closed_through_us``."""
        return dict(self._ids.committed), dict(self._late_ids.committed), self._committed_through_us

    def restore(self, saved: StreamProgress) -> None:
        """Set what ``saved`` holds."""
        self._ids.restore(saved.closed)
        self._late_ids.restore(saved.closed_late)
        self._through_us = self._committed_through_us = saved.closed_through_us


class StreamRereading:
    """The state of one stream that rereading needs, beside its samples and its ``done_below``.

    ``in_flight``: sequences that have ended and whose verdict is not durable, in the order of their ends. ``forced``:
    the ends that no record caused, in order, the newest ones. ``retired_at``: the stream was forgotten before the
    record at this offset. ``looks`` were taken before the restart at sequences that are read again.
    """

    __slots__ = ("forced", "in_flight", "looks", "retired_at")

    def __init__(self) -> None:
        self.in_flight: dict[tuple[str | None, Position], Closed] = {}
        self.forced: list[ForcedEnd] = []
        self.retired_at: int | None = None
        self.looks: Mapping[str, LooksTaken] = {}

    def looks_of(self, run: Run) -> LooksTaken | None:
        """Return the looks that were taken at the sequence that begins with ``run``."""
        return self.looks.get(looks_key(run.sequence, run.first_us)) if self.looks else None

    def ended(self, closed: Closed) -> None:
        """Note a finished sequence; it is in flight until its verdict is committed."""
        self.in_flight[closed.key, closed.sequence.first_position] = closed

    def committed(self, closed: Closed) -> bool:
        """Note that the verdict of ``closed`` is durable; return whether it was in flight here."""
        return self.in_flight.pop((closed.key, closed.sequence.first_position), None) is not None

    def force(self, end: ForcedEnd) -> None:
        """Note a forced end for a restart; of the wall-clock times at one offset only the last one counts."""
        last = self.forced[-1] if self.forced else None
        if last is not None and None not in (last.clock_us, end.clock_us) and last.offset == end.offset:
            self.forced.pop()
        self.forced.append(end)
        del self.forced[:-MAX_FORCED_ENDS]

    def take_back(self, end: ForcedEnd) -> None:
        """Remove ``end`` if it is the last one: a record causes it as well."""
        if self.forced and self.forced[-1] is end:
            self.forced.pop()


class _ClosedIds:
    """Hashes of ids with the partition's clock at the end of their sequences, in the order of the ends.

    ``ended`` holds those of all ended sequences, ``committed`` those whose verdict is durable; at most ``most`` each,
    the newest ones. An ordered dict finds its oldest id at once, a plain one only behind all places of removed ids.
    """

    __slots__ = ("committed", "ended", "most")

    def __init__(self, most: int) -> None:
        self.ended: OrderedDict[str, int] = OrderedDict()
        self.committed: OrderedDict[str, int] = OrderedDict()
        self.most = most

    def forget_ended(self, before_us: int = -NEVER_US) -> None:
        """Forget the ends before the clock ``before_us``, and the oldest of too many."""
        _forget(self.ended, before_us, self.most)

    def forget_committed(self, before_us: int) -> None:
        """Forget the commits of ends before the clock ``before_us``, and the oldest of too many."""
        _forget(self.committed, before_us, self.most)

    def restore(self, saved: Mapping[str, int]) -> None:
        """Set the ids that a progress holds."""
        self.ended, self.committed = OrderedDict(saved), OrderedDict(saved)


def _put_last(ids: OrderedDict[str, int], hashed: str, at_us: int) -> None:
    ids[hashed] = at_us
    ids.move_to_end(hashed)  # an id that recurs: the order is that of the ends


def _forget(ids: OrderedDict[str, int], before_us: int, most: int) -> None:
    while ids:
        oldest = next(iter(ids))
        if ids[oldest] >= before_us and len(ids) <= most:
            break
        del ids[oldest]
