"""Which alerts and warnings a receiver gets, in which notice, and when: filters, digest, quiet period. Pure.

Times are seconds.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from hashlib import blake2b
from typing import TypeAlias

from streamad.messages import Alert, EarlyWarning
from streamad.settings.outputs import ReceiverSettings

Told: TypeAlias = Alert | EarlyWarning
"""What a notice tells of. What is said of alerts here holds for warnings, too."""
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


def id_of(message: Told) -> str:
    """Return the id of an alert or a warning."""
    return message.alert_id if isinstance(message, Alert) else message.warning_id


def key_of(message: Told) -> bytes:
    """Return 16 bytes in the place of the id."""
    return blake2b(id_of(message).encode("utf-8", "replace"), digest_size=16).digest()


def _id_of_keys(keys: list[bytes]) -> str:
    return blake2b(b"".join(sorted(keys)), digest_size=16).hexdigest()


@dataclass(frozen=True, slots=True)
class Arrival:
    """An alert, and when it was read."""

    message: Told
    at_s: float


@dataclass(slots=True)
class Batch:
    """The alerts of one notice: how many, the first few, the numbers of their messages and the keys of their ids."""

    first: list[Arrival] = field(default_factory=list)
    numbers: list[int] = field(default_factory=list)
    n_warnings: int = 0
    streams: set[str] = field(default_factory=set)
    keys: list[bytes] = field(default_factory=list)

    @property
    def count(self) -> int:
        """Return how many alerts it has."""
        return len(self.numbers)

    @property
    def id(self) -> str:
        """Return the alert's id; for several one that the same alerts have again, however they were joined."""
        return id_of(self.first[0].message) if self.count == 1 else _id_of_keys(self.keys)

    def add(self, arrival: Arrival, number: int) -> None:
        """Add the alert of message ``number``."""
        if len(self.first) < MOST_SHOWN:
            self.first.append(arrival)
        if len(self.streams) < MOST_STREAMS:
            self.streams.add(arrival.message.stream)
        self.numbers.append(number)
        self.n_warnings += isinstance(arrival.message, EarlyWarning)
        self.keys.append(key_of(arrival.message))

    def add_all(self, other: Batch) -> None:
        """Add the alerts of a later batch."""
        self.first += other.first[: MOST_SHOWN - len(self.first)]
        self.streams |= set(sorted(other.streams)[: MOST_STREAMS - len(self.streams)])
        self.numbers += other.numbers
        self.n_warnings += other.n_warnings
        self.keys += other.keys


@dataclass(slots=True)
class _Quiet:
    """The quiet period of a stream's alerts, or of its warnings: its end, and what waits for it."""

    until_s: float
    batch: Batch = field(default_factory=Batch)


class Policy:
    """Gathers the alerts of one receiver into notices."""

    def __init__(self, receiver: ReceiverSettings) -> None:
        self._receiver = receiver
        self._digest_s = receiver.digest_us / 1e6
        self._quiet_s = receiver.quiet / 1e6
        self._waiting: deque[Batch] = deque()
        # All periods are of one length: the first one ends first.
        self._quiet: dict[tuple[type[Told], str], _Quiet] = {}
        self._next_notice_s = float("-inf")
        self.n_held = 0
        """Alerts that wait."""

    @property
    def joins(self) -> bool:
        """Return whether a notice may have several alerts as a rule."""
        return self._digest_s > 0 or self._quiet_s > 0

    @property
    def is_full(self) -> bool:
        """Return whether no more alerts should be read for now."""
        return self.n_held >= MOST_HELD or len(self._waiting) >= MOST_WAITING

    def wants(self, message: Told) -> bool:
        """Return whether the receiver gets this alert."""
        receiver = self._receiver
        return (
            ("alerts" if isinstance(message, Alert) else "warnings") in receiver.on
            and _matches(message.stream, receiver.streams)
            and _matches(message.model.name, receiver.models)
            and (receiver.max_p is None or message.p_value <= receiver.max_p)
        )

    def add(self, message: Told, number: int, now_s: float) -> None:
        """Take the alert of message ``number``."""
        self._end_quiet(now_s)
        self.n_held += 1
        arrival, batch = Arrival(message, now_s), Batch()
        of = type(message), message.stream
        quiet = self._quiet.get(of)
        if quiet is not None:
            quiet.batch.add(arrival, number)
            return
        batch.add(arrival, number)
        self._put(batch)
        self._begin_quiet(of, now_s)

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

    def _begin_quiet(self, of: tuple[type[Told], str], now_s: float) -> None:
        if not self._quiet_s:
            return
        if len(self._quiet) >= MOST_QUIET:
            oldest = self._quiet.pop(next(iter(self._quiet)))
            if oldest.batch.count:
                self._put(oldest.batch)
        self._quiet[of] = _Quiet(now_s + self._quiet_s)

    def _end_quiet(self, until_s: float, now_s: float | None = None) -> None:
        """End the quiet periods that end by ``until_s``; one with alerts gives a notice, and begins anew."""
        ended = []
        for of, quiet in self._quiet.items():
            if quiet.until_s > until_s:
                break
            ended.append(of)
        for of in ended:
            quiet = self._quiet.pop(of)
            if quiet.batch.count:
                self._put(quiet.batch)
                self._begin_quiet(of, until_s if now_s is None else now_s)


def _matches(name: str, patterns: tuple[str, ...]) -> bool:
    return not patterns or any(fnmatchcase(name, pattern) for pattern in patterns)
