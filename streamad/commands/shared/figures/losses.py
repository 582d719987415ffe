"""Signs that a config does not fit the recordings: lost samples, and lengths of sequences that differ widely."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from streamad.commands.shared.console import count
from streamad.ingest.bad_values import BAD_VALUE
from streamad.telemetry.metrics import Counters

MOST_LOST = 0.05
"""A larger share of lost samples is no accident: the config does not fit."""
_WIDE = 8.0
_ENDS = (0.05, 0.95)
"""Quantiles of the lengths: one broken sequence among many is no sign."""


@dataclass(frozen=True, slots=True)
class Losses:
    """Samples that came too late, and records that were refused (one sample each, as far as is known)."""

    n_all: int
    n_late: int
    n_refused: int

    @classmethod
    def of(cls, counters: Counters) -> Losses:
        """Return the losses that ``counters`` count."""
        refused = sum(n for kind, n in counters.dead_letters.items() if kind not in (BAD_VALUE, "time_jump"))
        jumps = counters.dead_letters["time_jump"]  # counted as samples, too
        return cls(counters.samples + refused, counters.late_samples, refused + jumps)

    @property
    def share(self) -> float:
        """Return the share of samples that are lost."""
        return (self.n_late + self.n_refused) / max(1, self.n_all)

    @property
    def are_many(self) -> bool:
        """Return whether too many are lost to go on."""
        return self.share > MOST_LOST

    @property
    def text(self) -> str:
        """Return the share and its parts, for people: ``37 % of 8792 samples (3253 too late)``."""
        parts = [f"{self.n_late} too late"] * bool(self.n_late)
        parts += [f"{count(self.n_refused, 'record')} refused"] * bool(self.n_refused)
        return f"{100 * self.share:.0f} % of {self.n_all} samples ({', '.join(parts)})"


def wide_lengths(n_samples: Sequence[int]) -> str | None:
    """Return the range of the lengths of sequences if they differ widely, as where sequences are cut wrongly."""
    if len(n_samples) < 2:
        return None
    low, high = np.quantile(n_samples, _ENDS)
    if high <= _WIDE * max(low, 1.0):
        return None
    return f"{len(n_samples)} sequences have {min(n_samples)} to {max(n_samples)} samples"


LENGTHS_ADVICE = (
    "sequences of one kind have similar lengths: check decode.fields.stream, decode.fields.sequence and sequences.end"
)
