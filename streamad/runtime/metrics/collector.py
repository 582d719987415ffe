"""The metrics of a worker, read from the counters and gauges that it keeps anyway.

Names follow Prometheus' conventions: base units, ``_total`` for counters. Labels are bounded: models, kinds and reasons
of our own, partitions of a topic; never a stream, a sequence or a text of a message.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector
from prometheus_client.samples import Exemplar

from streamad.messages import ModelRef
from streamad.runtime.partition import Partition
from streamad.runtime.pipeline import Pipeline
from streamad.telemetry.metrics import Counters, Histogram

_MOST_PARTITIONS = 1_000
_MOST_LABEL = 200


@dataclass(frozen=True, slots=True)
class ServedModel:
    """A model in service as its manifest describes it; None: unknown. ``trained_us``: in us since 1970."""

    ref: ModelRef
    false_alarm_rate: float
    n_calibration: int | None = None
    trained_us: int | None = None


@dataclass(frozen=True, slots=True)
class Observed:
    """What the collector reads, in the event loop. ``events``: emitted so far, by kind."""

    pipeline: Pipeline
    models: Callable[[], Iterable[ServedModel]]
    events: Mapping[str, int]
    now_us: Callable[[], int]
    scoring: Histogram
    explaining: Histogram | None
    shares_topic: bool


class WorkerCollector(Collector):
    """Yields the metrics of one worker; ``collect`` must run in the event loop."""

    def __init__(self, observed: Observed) -> None:
        self._observed = observed

    def collect(self) -> Iterator[Metric]:
        """Yield all metrics."""
        observed = self._observed
        yield _gauge("build_info", "The release that runs.", ("version",), {(version("streamad-monitor"),): 1.0})
        yield from _of_counters(observed.pipeline.counters, observed.events)
        yield from self._of_partitions()
        status = observed.pipeline.status
        yield _histogram(
            "verdict_latency_seconds", "From a sequence's last record to its verdict's commit.", status.latency
        )
        yield _histogram("scoring_batch_duration_seconds", "Time to score a batch of windows.", observed.scoring)
        if observed.explaining is not None:
            yield _histogram("explain_duration_seconds", "Time in which an attribution was made.", observed.explaining)
        yield from _of_models(list(observed.models()), observed.pipeline.counters)

    def _of_partitions(self) -> Iterator[Metric]:
        observed = self._observed
        partitions = list(observed.pipeline.status.partitions.values())
        gauges = observed.pipeline.gauges()
        for name, said, value in (
            ("partitions", "Partitions (of topics, or files) that are read.", gauges.partitions),
            ("open_sequences", "Sequences that have begun and not ended.", gauges.open_sequences),
            ("buffered_bytes", "Bytes of samples in memory.", gauges.buffered_bytes),
            ("waiting_verdicts", "Finished sequences without a committed verdict.", gauges.waiting_verdicts),
            ("waiting_attributions", "Committed alerts without their attribution.", gauges.waiting_attributions),
        ):
            yield _gauge(name, said, (), {(): float(value)})
        lags = GaugeMetricFamily(
            "streamad_source_lag_records", "Records that wait in the source: its end less the next one read.",
            labels=["partition"],
        )  # fmt: skip
        ages = GaugeMetricFamily(
            "streamad_low_watermark_age_seconds", "Age of the oldest sample without a verdict, by the records' times.",
            labels=["partition"],
        )  # fmt: skip
        for label, ours in self._by_label(partitions):
            known = [each.lag for each in ours if each.lag is not None]
            if known:
                lags.add_metric([label], float(sum(known)))
            oldest_us = [each.low_watermark_us for each in ours if each.low_watermark_us is not None]
            age_s = max(0, observed.now_us() - min(oldest_us)) / 1e6 if oldest_us else 0.0
            ages.add_metric([label], age_s)
        yield lags
        yield ages

    def _by_label(self, partitions: list[Partition]) -> Iterator[tuple[str, list[Partition]]]:
        """Yield the partitions of each label: those of a topic one by one, files as one."""
        if not self._observed.shares_topic:
            if partitions:
                yield "files", partitions
            return
        ordered = sorted(partitions, key=lambda each: each.name)
        for each in ordered[:_MOST_PARTITIONS]:
            yield _label(each.name), [each]
        if len(ordered) > _MOST_PARTITIONS:
            yield "other", ordered[_MOST_PARTITIONS:]


def _of_counters(counters: Counters, events: Mapping[str, int]) -> Iterator[Metric]:
    for name, said, value in (
        ("records_read", "Records read.", counters.records),
        ("records_ignored", "Records that are no samples.", counters.ignored),
        ("samples", "Samples read.", counters.samples),
        ("late_samples", "Samples that came after their sequence had ended.", counters.late_samples),
        ("rebalances", "Rebalances of the group.", counters.rebalances),
        ("attributions", "Committed attributions.", counters.attributions),
    ):
        yield _counter(name, said, (), {(): value})
    yield _counter("dead_letters", "Unreadable records.", ("kind",), _by(counters.dead_letters))
    yield _counter("sequences", "Finished sequences by the reason of their end.", ("reason",), _by(counters.sequences))
    judged = {(model or "none", decision): n for (model, decision), n in counters.judged.items()}
    yield _counter("verdicts", "Committed verdicts.", ("model", "decision"), judged)
    alerts = CounterMetricFamily("streamad_alerts", "Committed alerts.", labels=["model"])
    for (model, decision), n in counters.judged.items():
        if decision == "anomalous":
            last = counters.last_alerts.get(model)
            alerts.add_metric([_label(model)], n, exemplar=None if last is None else Exemplar({"alert_id": last}, 1.0))
    yield alerts
    outcomes = {("committed",): counters.commits, ("failed",): counters.commits_failed}
    yield _counter("commits", "Commits of outputs and progress.", ("outcome",), outcomes)
    yield _counter("events", "Events for the operator.", ("kind",), _by(events))


def _of_models(models: list[ServedModel], counters: Counters) -> Iterator[Metric]:
    ours = {each.ref.name: each for each in models}
    versions = {(each.ref.name, each.ref.version): 1.0 for each in ours.values()}
    yield _gauge("model_info", "Models in service.", ("model", "version"), versions)
    trained = {(name,): each.trained_us / 1e6 for name, each in ours.items() if each.trained_us is not None}
    yield _gauge("model_trained_timestamp_seconds", "When the model in service was trained.", ("model",), trained)
    rates = {(name,): each.false_alarm_rate for name, each in ours.items()}
    said = "How often a normal sequence may raise an alert."
    yield _gauge("false_alarm_rate_configured_ratio", said, ("model",), rates)
    n_calibration = {(name,): each.n_calibration for name, each in ours.items() if each.n_calibration is not None}
    yield _gauge("calibration_sequences", "Sequences that calibrate the model in service.", ("model",), n_calibration)
    learning = counters.learning
    if not learning:
        return
    shares = (("accepted", "accepted"), ("reserve", "reserved"), ("aside", "aside"), ("unkept", "unkept"))
    kept = {(name, share): getattr(of, field) for name, of in learning.items() for share, field in shares}
    yield _counter("inliers", "Sequences written to the inlier store, by share.", ("model", "share"), kept)
    drifts = {(name,): of.drifts for name, of in learning.items()}
    yield _counter("drifts", "Drifts of the scores.", ("model",), drifts)
    outcomes = (("promoted", "promotions"), ("not_promoted", "not_promoted"), ("failed", "failed"))
    ended = {(name, outcome): getattr(of, field) for name, of in learning.items() for outcome, field in outcomes}
    yield _counter("trainings", "Finished trainings of this worker.", ("model", "outcome"), ended)


def _by(counts: Mapping[str, int]) -> dict[tuple[str, ...], float]:
    return {(name,): n for name, n in counts.items()}


def _label(value: str) -> str:
    return value[:_MOST_LABEL]


def _counter(name: str, said: str, labels: Sequence[str], values: Mapping[Any, float]) -> Metric:
    """Return a counter; ``values`` has a tuple of labels for each."""
    return _filled(CounterMetricFamily(f"streamad_{name}", said, labels=labels), values)


def _gauge(name: str, said: str, labels: Sequence[str], values: Mapping[Any, float]) -> Metric:
    return _filled(GaugeMetricFamily(f"streamad_{name}", said, labels=labels), values)


def _filled(family: CounterMetricFamily | GaugeMetricFamily, values: Mapping[Any, float]) -> Metric:
    for labels, value in values.items():
        family.add_metric([_label(each) for each in labels], value)
    return family


def _histogram(name: str, said: str, histogram: Histogram) -> Metric:
    family = HistogramMetricFamily(f"streamad_{name}", said)
    buckets = [("+Inf" if bound == float("inf") else repr(bound), float(n)) for bound, n in histogram.buckets()]
    family.add_metric([], buckets, histogram.sum_s)
    return family
