"""The counters and gauges of a run."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import accumulate
from typing import Any, Final, Literal

import numpy as np

from streamad.types import BAD_REASONS, BadValues

_REASONS = 100
_MODELS = 200
_STEPS = 24  # of a bucket of the exposition: 2 to 5 % a step


@dataclass(slots=True)
class LearningCounters:
    """Counters of one model since its learner began.

    ``accepted``, ``reserved`` and ``aside`` count sequences written to the inlier store; ``trainings`` the finished
    trainings, of which ``failed`` made no version and ``not_promoted`` one that did not come into service.
    """

    accepted: int = 0
    reserved: int = 0
    aside: int = 0
    drifts: int = 0
    trainings: int = 0
    promotions: int = 0
    not_promoted: int = 0
    failed: int = 0

    def count(self, share: Literal["accepted", "reserve", "aside"], n: int) -> None:
        """Add ``n`` sequences to a share of the store."""
        name = "reserved" if share == "reserve" else share
        setattr(self, name, getattr(self, name) + n)


@dataclass(slots=True)
class ServedCounters:
    """Counters of one model since the run began; ``version`` is in service, None before the first one.

    ``learned`` is what the learner that this run has started says, None if the run has started none.
    """

    version: str | None = None
    swaps: int = 0
    learned: LearningCounters | None = None


class Counters:
    """Counters of input, results and commits since the run began.

    ``samples`` = ``sequence_samples`` + ``merged`` + ``late_samples`` + ``outside`` + ``dead_letters["time_jump"]``
    (one sample each) + samples still held: no sample is lost (records read again after a failed commit count again).
    With Kafka every commit is a transaction, and ``commits_failed`` counts the aborted ones. ``attributions`` are
    committed, ``unexplained`` those of them without reasons (method none). ``trained_model`` counts judged sequences
    that trained or calibrated the model, ``held`` those left open at the end of a finite input. ``without_id`` counts
    samples left out by ``sequences.without_id``, ``outside`` those in no sequence, ``before_tag`` those of them before
    the first reading of a tag, ``unbegun_ends`` end words of no sequence, ``late_boundaries`` words and tags' readings
    that came too late for their time, ``displaced`` merged samples that replaced another value. ``bad_values`` counts
    values that cannot be used, by channel and reason; only some of them become dead letters.
    ``unscorable`` counts verdicts by reason, ``judged`` by model and decision, ``warned`` warnings by model;
    ``last_alerts`` has the id of each model's last alert, ``last_warnings`` of its last warning. ``learning`` is by
    model, and empty if the plant does not learn. ``by_columns`` counts records that were read by column.
    """

    def __init__(self) -> None:
        # Above 15 attributes: one a figure, all reported together.
        self.records = 0
        self.samples = 0
        self.ignored = 0
        self.tombstones = 0
        self.without_id = 0
        self.outside = 0
        self.before_tag = 0
        self.unbegun_ends = 0
        self.late_boundaries = 0
        self.sequence_samples = 0
        self.merged = 0
        self.displaced = 0
        self.late_samples = 0
        self.commits = 0
        self.commits_failed = 0
        self.rebalances = 0
        self.alerts = 0
        self.attributions = 0
        self.unexplained = 0
        self.trained_model = 0
        self.held = 0
        self.by_columns = 0
        self.dead_letters: Counter[str] = Counter()
        self.bad_values: dict[str, Counter[str]] = {}
        self.sequences: Counter[str] = Counter()
        self.judged: Counter[tuple[str, str]] = Counter()
        self.last_alerts: dict[str, str] = {}
        self.warned: Counter[str] = Counter()
        self.last_warnings: dict[str, str] = {}
        self.unscorable: Counter[str] = Counter()
        self.learning: Mapping[str, ServedCounters] = {}

    @property
    def verdicts(self) -> Counter[str]:
        """Return the number of verdicts by decision."""
        found: Counter[str] = Counter()
        for (_, decision), n in self.judged.items():
            found[decision] += n
        return found

    def count_verdict(self, model: str, decision: str, alert_id: str | None) -> None:
        """Count a verdict of a model ("": none judged it), and its alert; models beyond the first 200 are "other"."""
        known = (model, decision) in self.judged or len(self.judged) < _MODELS
        name = model if known else "other"
        self.judged[name, decision] += 1
        if alert_id is not None:
            self.alerts += 1
            self.last_alerts[name] = alert_id

    @property
    def warnings(self) -> int:
        """Return the number of warnings."""
        return self.warned.total()

    def count_warning(self, model: str, warning_id: str) -> None:
        """Count a warning of a model; models beyond the first 200 are "other"."""
        name = model if model in self.warned or len(self.warned) < _MODELS else "other"
        self.warned[name] += 1
        self.last_warnings[name] = warning_id

    def count_unscorable(self, reason: str) -> None:
        """Count a verdict ``unscorable``; reasons beyond the first hundred count as "other"."""
        known = reason in self.unscorable or len(self.unscorable) < _REASONS
        self.unscorable[reason if known else "other"] += 1

    def count_odd(self, odd: Mapping[str, int]) -> None:
        """Add samples in no sequence, and words and tags that say nothing or come late, by counter."""
        for name, n in odd.items():
            setattr(self, name, getattr(self, name) + n)

    def count_bad_values(self, bad: BadValues, channels: Sequence[str]) -> None:
        """Add the bad values of a block."""
        for column, code in bad.first:
            of_channel = self.bad_values.setdefault(channels[column], Counter())
            of_channel[BAD_REASONS[code]] += int(np.count_nonzero(bad.codes[:, column] == code))

    def as_dict(self) -> dict[str, Any]:
        """Return all as plain numbers, counters by kind or model as nested mappings."""
        plain = {name: dict(of) if isinstance(of, Counter) else of for name, of in sorted(vars(self).items())}
        for name in ("learning", "judged", "last_alerts", "warned", "last_warnings", "by_columns"):
            del plain[name]
        plain["verdicts"], plain["warnings"] = dict(self.verdicts), self.warnings
        plain["bad_values"] = {channel: dict(of) for channel, of in self.bad_values.items()}
        learning = {model: asdict(counters) for model, counters in self.learning.items()}
        return {**plain, "learning": learning} if learning else plain


@dataclass(frozen=True, slots=True)
class Gauges:
    """The state of a run at one moment; None: unknown.

    ``lag``: records that wait in the source; ``low_watermark_age_s``: the age of the oldest sample without a verdict,
    by the records' own times; ``waiting_attributions``: committed alerts without theirs; ``waiting_for_schemas``:
    partitions that are not read on until the Schema Registry answers.
    """

    partitions: int
    lag: int | None
    low_watermark_age_s: float | None
    open_sequences: int
    buffered_bytes: int
    waiting_verdicts: int
    waiting_attributions: int
    waiting_for_schemas: int


class Histogram:
    """Counts times in fine steps: 24 of each bucket of the exposition (``BOUNDS_S``), so quantiles are good to 4 %.

    It only grows: many readers look at it, and none takes anything from another.
    """

    BOUNDS_S: Final[tuple[float, ...]] = tuple(
        round(step * 10.0**power, 9) for power in range(-4, 3) for step in (1, 2, 5)
    )
    """Upper bounds of the buckets, from 0.1 ms to 500 s."""
    _FINE_S: Final[tuple[float, ...]] = (
        0.0,
        *(
            low * (high / low) ** (part / _STEPS)
            for low, high in zip((BOUNDS_S[0] / 2, *BOUNDS_S[:-1]), BOUNDS_S, strict=True)
            for part in range(1, _STEPS + 1)
        ),
    )

    def __init__(self) -> None:
        self.counts = [0] * (len(self._FINE_S) + 1)
        self.sum_s = 0.0

    def add(self, seconds: float) -> None:
        """Count a time; a negative one (clocks of two machines) counts as 0."""
        seconds = max(0.0, seconds)
        self.counts[bisect_left(self._FINE_S, seconds * (1 - 1e-12))] += 1
        self.sum_s += seconds

    def buckets(self) -> list[tuple[float, int]]:
        """Return each bound with the number of times up to it, infinity at last."""
        below = list(accumulate(self.counts))
        at = [(bound, below[_STEPS * number]) for number, bound in enumerate(self.BOUNDS_S, start=1)]
        return [*at, (float("inf"), below[-1])]

    def quantile(self, share: float, since: Sequence[int]) -> float | None:
        """Return a quantile in seconds of the times counted after the counts were ``since``; None if there are none."""
        counts = [now - before for now, before in zip(self.counts, since, strict=True)]
        rank, below = share * sum(counts), 0
        for number, n in enumerate(counts):
            if n and below + n >= rank:
                high = self._FINE_S[min(number, len(self._FINE_S) - 1)]
                low = self._FINE_S[number - 1] if number else 0.0
                return low + (high - low) * max(0.0, rank - below) / n if low else high
            below += n
        return None


class Ages:
    """Counts ages of sequences as shares of the usual length, up to each of ``BOUNDS``."""

    BOUNDS: Final[tuple[float, ...]] = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.5, 2.0, float("inf"))

    def __init__(self) -> None:
        self._counts = [0] * len(self.BOUNDS)
        self.sum = 0.0

    def add(self, age: float) -> None:
        """Count an age."""
        self._counts[bisect_left(self.BOUNDS, age)] += 1
        self.sum += age

    def buckets(self) -> list[tuple[float, int]]:
        """Return each bound with the number of ages up to it."""
        return list(zip(self.BOUNDS, accumulate(self._counts), strict=True))


class Latencies:
    """Quantiles of what a histogram has counted since the last call."""

    def __init__(self, histogram: Histogram) -> None:
        self._histogram = histogram
        self._since = list(histogram.counts)

    def take_ms(self) -> tuple[float | None, float | None]:
        """Return median and 99th percentile in milliseconds since the last call, None if there were none."""
        p50, p99 = (self._histogram.quantile(share, self._since) for share in (0.5, 0.99))
        self._since = list(self._histogram.counts)
        if p50 is None or p99 is None:
            return None, None
        return round(1e3 * p50, 3), round(1e3 * p99, 3)
