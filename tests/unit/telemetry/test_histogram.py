"""The histogram of times: exact buckets, quantiles good to 4 %, and readers that take nothing from each other."""

from __future__ import annotations

import math

import numpy as np
import pytest

from streamad.telemetry.metrics import Counters, Histogram, Latencies


def filled(times_s: list[float]) -> Histogram:
    histogram = Histogram()
    for time_s in times_s:
        histogram.add(time_s)
    return histogram


@pytest.mark.parametrize("seed", range(3))
def test_buckets_are_exact_and_quantiles_good(seed: int) -> None:
    times = np.exp(np.random.default_rng(seed).normal(-4, 1.5, 5_000))
    histogram = filled(times.tolist())
    for bound, n in histogram.buckets():
        assert n == (times <= bound).sum()
    for share in (0.01, 0.5, 0.99):
        assert histogram.quantile(share, [0] * len(histogram.counts)) == pytest.approx(
            np.quantile(times, share), rel=0.04
        )
    assert histogram.sum_s == pytest.approx(times.sum())


@pytest.mark.parametrize("bound_s", Histogram.BOUNDS_S)
def test_a_time_on_a_bound_belongs_below_it(bound_s: float) -> None:
    counts = dict(filled([bound_s]).buckets())
    assert counts[bound_s] == 1
    assert sum(counts.values()) == sum(1 for each in (*Histogram.BOUNDS_S, math.inf) if each >= bound_s)


def test_times_beyond_the_bounds_count() -> None:
    histogram = filled([-5.0, 0.0, 1e9])
    assert histogram.buckets()[0] == (1e-4, 2)
    assert histogram.buckets()[-1] == (math.inf, 3)
    assert histogram.quantile(0.0, [0] * len(histogram.counts)) == 0.0
    assert histogram.quantile(1.0, [0] * len(histogram.counts)) == 500.0


def test_readers_see_what_came_since_they_looked_and_take_nothing_from_each_other() -> None:
    histogram = Histogram()
    first, second = Latencies(histogram), Latencies(histogram)
    assert first.take_ms() == (None, None)
    histogram.add(0.1)
    assert first.take_ms()[0] == pytest.approx(100, rel=0.04)
    histogram.add(1.0)
    assert first.take_ms()[0] == pytest.approx(1_000, rel=0.04)
    assert first.take_ms() == (None, None)
    p50_ms, p99_ms = second.take_ms()
    assert p50_ms == pytest.approx(100, rel=0.04)
    assert p99_ms == pytest.approx(1_000, rel=0.04)
    assert histogram.buckets()[-1][1] == 2


def test_verdicts_count_by_model_and_decision_within_a_bound() -> None:
    counters = Counters()
    for number in range(1_000):
        counters.count_verdict(f"m{number}", "anomalous", f"a{number}")
    assert len(counters.judged) == 201
    assert counters.judged["other", "anomalous"] == 800
    assert counters.verdicts == {"anomalous": 1_000}
    assert (counters.alerts, counters.last_alerts["other"]) == (1_000, "a999")
    assert {"judged", "last_alerts"}.isdisjoint(counters.as_dict())
    assert counters.as_dict()["verdicts"] == {"anomalous": 1_000}
