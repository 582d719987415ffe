"""The counters of a run, kept in one place."""

from __future__ import annotations

__all__ = ["Counters"]

from collections import Counter
from typing import Any


class Counters:
    """What was read, what it became, and where it went.

    ``samples`` = ``sequence_samples`` + ``merged`` + ``late_samples`` + what is still held: no sample is lost.
    """

    def __init__(self) -> None:
        self.records = 0
        self.samples = 0
        self.ignored = 0
        self.sequence_samples = 0
        self.merged = 0
        self.duplicates = 0
        self.late_samples = 0
        self.commits = 0
        self.alerts = 0
        self.dead_letters: Counter[str] = Counter()
        self.sequences: Counter[str] = Counter()
        self.verdicts: Counter[str] = Counter()

    def as_dict(self) -> dict[str, Any]:
        """Return everything as plain numbers, counters by kind as nested mappings."""
        return {
            name: dict(value) if isinstance(value, Counter) else value for name, value in sorted(vars(self).items())
        }
