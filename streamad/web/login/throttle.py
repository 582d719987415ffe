"""Slows guessing of passwords down: attempts refill with time, for each name at an address, address, and name."""

from __future__ import annotations

import ipaddress
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass

_MOST_KEYS = 10_000


@dataclass(slots=True)
class _Level:
    """How many attempts were left at a time."""

    left: float
    at_s: float


class _Buckets:
    """At most ``most`` attempts at once for each key, and one more every ``refill_s``; full ones are forgotten."""

    def __init__(self, most: int, refill_s: float) -> None:
        self._most, self._refill_s = most, refill_s
        self._levels: OrderedDict[Hashable, _Level] = OrderedDict()

    def __len__(self) -> int:
        return len(self._levels)

    def left(self, key: Hashable, now_s: float) -> float:
        """Return how many attempts are left."""
        level = self._levels.get(key)
        if level is None:
            return self._most
        return min(float(self._most), level.left + (now_s - level.at_s) / self._refill_s)

    def wait_s(self, key: Hashable, now_s: float) -> float:
        """Return how long it takes until an attempt is left."""
        return max(0.0, (1.0 - self.left(key, now_s)) * self._refill_s)

    def add(self, key: Hashable, number: int, now_s: float) -> None:
        """Add attempts, or take some; beyond so many keys that of the oldest attempt is forgotten."""
        left = self.left(key, now_s) + number
        self._levels.pop(key, None)
        if left < self._most:
            self._levels[key] = _Level(left, now_s)
        if len(self._levels) > _MOST_KEYS:
            self._levels.popitem(last=False)


class Throttle:
    """Counts attempts; ``clock`` returns seconds that never go back."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._pairs = _Buckets(5, 60.0)
        self._addresses = _Buckets(20, 15.0)
        self._names = _Buckets(100, 15.0)

    def __len__(self) -> int:
        """Return how many counters there are."""
        return len(self._pairs) + len(self._addresses) + len(self._names)

    def take(self, name: str, address: str) -> float:
        """Take an attempt and return 0, or return after how many seconds one is left."""
        now_s = self._clock()
        wait_s = max(buckets.wait_s(key, now_s) for buckets, key in self._of(name, address))
        if wait_s <= 0:
            self._add(name, address, -1, now_s)
        return wait_s

    def give_back(self, name: str, address: str) -> None:
        """Give an attempt back that was none: its password was right, or nobody looked at it."""
        self._add(name, address, 1, self._clock())

    def _add(self, name: str, address: str, number: int, now_s: float) -> None:
        for buckets, key in self._of(name, address):
            buckets.add(key, number, now_s)

    def _of(self, name: str, address: str) -> Iterator[tuple[_Buckets, Hashable]]:
        network = _network(address)
        yield self._pairs, (name, network)
        yield self._addresses, network
        yield self._names, name


def _network(address: str) -> str:
    """Return what one attacker has: an IPv4 address, or 64 bits of an IPv6 one."""
    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        return ""
    if isinstance(found, ipaddress.IPv6Address):
        if found.ipv4_mapped is not None:
            return str(found.ipv4_mapped)
        return str(ipaddress.ip_network((int(found) >> 64 << 64, 64)))
    return str(found)
