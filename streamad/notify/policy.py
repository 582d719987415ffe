"""Which alerts a receiver gets, in which notice, and when: filters, digest, quiet period. Pure; times are seconds."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from hashlib import blake2b

from streamad.messages import Alert
from streamad.settings.outputs import ReceiverSettings

MOST_SHOWN = 5
"""Alerts of a digest that are in it with their reasons; the others are counted."""
MOST_HELD = 20_000
"""Alerts that wait at a time: with more the next notice goes early, and reading pauses."""
MOST_WAITING = 1_000
"""Notices that wait at a time."""
MOST_QUIET = 20_000
"""Streams that are quiet at a time: with more the oldest quiet period ends early."""
MOST_STREAMS = 100
"""Streams of a digest that are counted."""


@dataclass(frozen=True, slots=True)
class Arrival:
    """An alert, and when it was read."""

    alert: Alert
    at_s: float


@dataclass(slots=True)
class Batch:
    """The alerts of one notice: how many, the first few, and the numbers of their messages."""

    first: list[Arrival] = field(default_factory=list)
    numbers: list[int] = field(default_factory=list)
    streams: set[str] = field(default_factory=set)
    _ids: blake2b = field(default_factory=lambda: blake2b(digest_size=16))

    @property
    def count(self) -> int:
        """Return how many alerts it has."""
        return len(self.numbers)

    @property
    def id(self) -> str:
        """Return the alert's id; for several one that the same alerts have again."""
        return self.first[0].alert.alert_id if self.count == 1 else self._ids.hexdigest()

    def add(self, arrival: Arrival, number: int) -> None:
        """Add the alert of message ``number``."""
        if len(self.first) < MOST_SHOWN:
            self.first.append(arrival)
        if len(self.streams) < MOST_STREAMS:
            self.streams.add(arrival.alert.stream)
        self.numbers.append(number)
        self._ids.update(arrival.alert.alert_id.encode("utf-8", "replace"))

    def add_all(self, other: Batch) -> None:
        """Add the alerts of a later batch."""
        self.first += other.first[: MOST_SHOWN - len(self.first)]
        self.streams |= set(sorted(other.streams)[: MOST_STREAMS - len(self.streams)])
        self.numbers += other.numbers
        self._ids.update(other._ids.digest())


@dataclass(slots=True)
class _Quiet:
    """The quiet period of a stream: its end, and the alerts that wait for it."""

    until_s: float
    batch: Batch = field(default_factory=Batch)


class Policy:
    """Gathers the alerts of one receiver into notices."""

    def __init__(self, receiver: ReceiverSettings) -> None:
        self._receiver = receiver
        self._digest_s = receiver.digest_us / 1e6
        self._quiet_s = receiver.quiet / 1e6
        self._waiting: deque[Batch] = deque()
        self._quiet: dict[str, _Quiet] = {}  # all periods are of one length: the first one ends first
        self._next_notice_s = float("-inf")
        self.n_held = 0
        """Alerts that wait."""

    @property
    def is_full(self) -> bool:
        """Return whether no more alerts should be read for now."""
        return self.n_held >= MOST_HELD or len(self._waiting) >= MOST_WAITING

    def wants(self, alert: Alert) -> bool:
        """Return whether the receiver gets this alert."""
        receiver = self._receiver
        return (
            _matches(alert.stream, receiver.streams)
            and _matches(alert.model.name, receiver.models)
            and (receiver.max_p is None or alert.p_value <= receiver.max_p)
        )

    def add(self, alert: Alert, number: int, now_s: float) -> None:
        """Take the alert of message ``number``."""
        self._end_quiet(now_s)
        self.n_held += 1
        arrival, batch = Arrival(alert, now_s), Batch()
        quiet = self._quiet.get(alert.stream)
        if quiet is not None:
            quiet.batch.add(arrival, number)
            return
        batch.add(arrival, number)
        self._put(batch)
        self._begin_quiet(alert.stream, now_s)

    def due(self, now_s: float) -> Batch | None:
        """Return the alerts of the next notice if it may go now."""
        self._end_quiet(now_s)
        is_over = self.n_held >= MOST_HELD
        if is_over and not self._waiting:
            self._end_quiet(float("inf"), now_s)
        if not self._waiting or (now_s < self._next_notice_s and not is_over):
            return None
        batch = self._waiting.popleft()
        self.n_held -= batch.count
        self._next_notice_s = now_s + self._digest_s
        return batch

    def next_s(self, now_s: float) -> float | None:
        """Return in how many seconds a notice may be due; None: as long as no alert comes, never."""
        if self._waiting:
            return max(0.0, self._next_notice_s - now_s)
        first = next((quiet for quiet in self._quiet.values() if quiet.batch.count), None)
        return None if first is None else max(0.0, first.until_s - now_s)

    def _put(self, batch: Batch) -> None:
        if self._digest_s and self._waiting:
            self._waiting[-1].add_all(batch)
        else:
            self._waiting.append(batch)

    def _begin_quiet(self, stream: str, now_s: float) -> None:
        if not self._quiet_s:
            return
        if len(self._quiet) >= MOST_QUIET:
            oldest = self._quiet.pop(next(iter(self._quiet)))
            if oldest.batch.count:
                self._put(oldest.batch)
        self._quiet[stream] = _Quiet(now_s + self._quiet_s)

    def _end_quiet(self, until_s: float, now_s: float | None = None) -> None:
        """End the quiet periods that end by ``until_s``; one with alerts gives a notice, and begins anew."""
        ended = []
        for stream, quiet in self._quiet.items():
            if quiet.until_s > until_s:
                break
            ended.append(stream)
        for stream in ended:
            quiet = self._quiet.pop(stream)
            if quiet.batch.count:
                self._put(quiet.batch)
                self._begin_quiet(stream, until_s if now_s is None else now_s)


def _matches(name: str, patterns: tuple[str, ...]) -> bool:
    return not patterns or any(fnmatchcase(name, pattern) for pattern in patterns)
