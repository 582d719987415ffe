"""The ids of a stream's ended sequences, so that a late sample of one is known as such."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping

NEVER_US = 1 << 62


class ClosedIds:
    """Hashes of ids with the partition's clock at the end of their sequences, in the order of the ends.

    ``ended`` holds those of all ended sequences, ``committed`` those whose verdict is durable; at most ``most`` each,
    the newest ones. An ordered dict finds its oldest id at once, a plain one only behind all places of removed ids.
    """

    __slots__ = ("committed", "ended", "most")

    def __init__(self, most: int) -> None:
        self.ended: OrderedDict[str, int] = OrderedDict()
        self.committed: OrderedDict[str, int] = OrderedDict()
        self.most = most

    def end(self, hashed: str, at_us: int) -> None:
        """Note the end of a sequence."""
        _put_last(self.ended, hashed, at_us)

    def commit(self, hashed: str, at_us: int) -> None:
        """Note that the verdict of a sequence is durable."""
        _put_last(self.committed, hashed, at_us)

    def ended_us(self, hashed: str) -> int:
        """Return the clock at the end of a sequence; long ago if it is not known."""
        return self.ended.get(hashed, -NEVER_US)

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
