"""The counters and gauges of a run."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np

from streamad.types import BAD_REASONS, BadValues

_LATENCIES = 10_000
_REASONS = 100


@dataclass(slots=True)
class LearningCounters:
    """Counters of one model since the run began; ``version`` is in service, None before the first one.

    ``accepted``, ``reserved`` and ``aside`` count sequences written to the inlier store, ``unkept`` those lost because
    it was unavailable; ``trainings`` the finished trainings of this process.
    """

    version: str | None = None
    accepted: int = 0
    reserved: int = 0
    aside: int = 0
    unkept: int = 0
    drifts: int = 0
    trainings: int = 0
    promotions: int = 0
    swaps: int = 0

    def count(self, share: Literal["accepted", "reserve", "aside"], n: int) -> None:
        """Add ``n`` sequences to a share of the store."""
        name = "reserved" if share == "reserve" else share
        setattr(self, name, getattr(self, name) + n)


class Counters:
    """Counters of input, results and commits since the run began.

    ``samples`` = ``sequence_samples`` + ``merged`` + ``late_samples`` + ``dead_letters["time_jump"]`` (one sample each)
    + samples still held: no sample is lost (records
    read again after a failed commit count again). With Kafka every commit is a transaction, and ``commits_failed``
    counts the aborted ones. ``attributions`` are committed, ``unexplained`` those of them without reasons (method
    none). ``trained_model`` counts judged sequences that trained or calibrated the model, ``held``
    those left open at the end of a finite input. ``without_id`` counts samples left out by
    ``sequences.without_id``. ``bad_values`` counts values that cannot be used, by channel and
    reason; only some of them become dead letters.
    ``unscorable`` counts verdicts by reason. ``learning`` is by model, and empty if the plant does not learn.
    """

    def __init__(self) -> None:
        self.records = 0
        self.samples = 0
        self.ignored = 0
        self.tombstones = 0
        self.without_id = 0
        self.sequence_samples = 0
        self.merged = 0
        self.duplicates = 0
        self.late_samples = 0
        self.commits = 0
        self.commits_failed = 0
        self.rebalances = 0
        self.alerts = 0
        self.attributions = 0
        self.unexplained = 0
        self.trained_model = 0
        self.held = 0
        self.dead_letters: Counter[str] = Counter()
        self.bad_values: dict[str, Counter[str]] = {}
        self.sequences: Counter[str] = Counter()
        self.verdicts: Counter[str] = Counter()
        self.unscorable: Counter[str] = Counter()
        self.learning: dict[str, LearningCounters] = {}

    def count_unscorable(self, reason: str) -> None:
        """Count a verdict ``unscorable``; reasons beyond the first hundred count as "other"."""
        known = reason in self.unscorable or len(self.unscorable) < _REASONS
        self.unscorable[reason if known else "other"] += 1

    def count_bad_values(self, bad: BadValues, channels: Sequence[str]) -> None:
        """Add the bad values of a block."""
        for column, code in bad.first:
            of_channel = self.bad_values.setdefault(channels[column], Counter())
            of_channel[BAD_REASONS[code]] += int(np.count_nonzero(bad.codes[:, column] == code))

    def as_dict(self) -> dict[str, Any]:
        """Return all as plain numbers, counters by kind or model as nested mappings."""
        plain = {name: dict(of) if isinstance(of, Counter) else of for name, of in sorted(vars(self).items())}
        del plain["learning"]
        plain["bad_values"] = {channel: dict(of) for channel, of in self.bad_values.items()}
        learning = {model: asdict(counters) for model, counters in self.learning.items()}
        return {**plain, "learning": learning} if learning else plain


@dataclass(frozen=True, slots=True)
class Gauges:
    """The state of a run at one moment; None: unknown.

    ``lag``: records that wait in the source; ``low_watermark_age_s``: the age of the oldest sample without a verdict,
    by the records' own times; ``waiting_attributions``: committed alerts without theirs; ``latency_*_ms``: from the
    time of the record that ended a sequence to the commit of its verdict.
    """

    partitions: int
    lag: int | None
    low_watermark_age_s: float | None
    open_sequences: int
    buffered_bytes: int
    waiting_verdicts: int
    waiting_attributions: int
    latency_p50_ms: float | None
    latency_p99_ms: float | None

    def as_dict(self) -> dict[str, Any]:
        """Return all as plain numbers."""
        return asdict(self)


class Latencies:
    """Quantiles of the latest latencies since the last call."""

    def __init__(self) -> None:
        self._latest: deque[int] = deque(maxlen=_LATENCIES)

    def add(self, latency_us: int) -> None:
        """Add a latency; a negative one (clocks of two machines) counts as 0."""
        self._latest.append(max(0, latency_us))

    def take_ms(self) -> tuple[float | None, float | None]:
        """Return median and 99th percentile in milliseconds since the last call, None if there were none."""
        if not self._latest:
            return None, None
        p50, p99 = np.quantile(np.fromiter(self._latest, dtype=np.int64), (0.5, 0.99)) / 1e3
        self._latest.clear()
        return round(float(p50), 3), round(float(p99), 3)
