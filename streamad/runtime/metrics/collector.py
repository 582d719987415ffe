"""The metrics of a worker, read from the counters and gauges that it keeps anyway.

Names follow Prometheus' conventions: base units, ``_total`` for counters. Labels are bounded: models, kinds and reasons
of our own, partitions of a topic; never a stream, a sequence or a text of a message.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any, Final, get_args

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector
from prometheus_client.samples import Exemplar

from streamad.messages import Decision, ModelRef
from streamad.runtime.partition import Partition
from streamad.runtime.pipeline import Pipeline
from streamad.telemetry.metrics import Counters, Histogram, LearningCounters

DEAD_LETTER_KINDS: Final = (
    "malformed", "schema_registry", "too_large", "too_many_samples", "wrong_type", "wrong_shape", "missing_field",
    "bad_id", "unknown_channel", "bad_time", "clock_skew", "mixed_message", "bad_value", "time_jump",
)  # fmt: skip
"""Kinds that are there from the beginning: an increase from nothing to one is none for Prometheus."""
EVENT_KINDS: Final = (
    "backend_refused", "broker_back", "broker_silent", "drift", "low_watermark_old", "many_alerts", "model_promoted",
    "plant_changed", "training_failed", "waits_for_review",
)  # fmt: skip
_DECISIONS: Final = get_args(Decision)
_MOST_PARTITIONS = 1_000
_MOST_LABEL = 200


@dataclass(frozen=True, slots=True)
class ServedModel:
    """A model in service as its manifest describes it; None: unknown.

    ``trained_us``, and ``last_training_us`` of its newest version: in us since 1970; ``interval_s`` lies between two
    scheduled trainings.
    """

    ref: ModelRef
    false_alarm_rate: float
    n_calibration: int | None = None
    trained_us: int | None = None
    last_training_us: int | None = None
    interval_s: float | None = None


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
        self._process = ProcessCollector(registry=None)

    def collect(self) -> Iterator[Metric]:
        """Yield all metrics."""
        observed = self._observed
        models = list(observed.models())
        yield from self._process.collect()
        yield _gauge("build_info", "The release that runs.", ("version",), {(version("streamad-monitor"),): 1.0})
        yield from _of_counters(observed.pipeline.counters, observed.events, models)
        yield from self._of_partitions()
        status = observed.pipeline.status
        yield _histogram(
            "verdict_latency_seconds", "From a sequence's last record to its verdict's commit.", status.latency
        )
        yield _histogram("scoring_batch_duration_seconds", "Time to score a batch of windows.", observed.scoring)
        if observed.explaining is not None:
            yield _histogram("explain_duration_seconds", "Time in which an attribution was made.", observed.explaining)
        yield from _of_models(models, observed.pipeline.counters)

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


class LearnerCollector(Collector):
    """Yields the metrics of a learner that no worker has started; ``events``: emitted so far, by kind."""

    def __init__(self, counters: Mapping[str, LearningCounters], events: Mapping[str, int]) -> None:
        self._counters = counters
        self._events = events
        self._process = ProcessCollector(registry=None)

    def collect(self) -> Iterator[Metric]:
        """Yield all metrics."""
        yield from _of_learning(self._counters)
        yield _counter("events", "Events for the operator.", ("kind",), _by(self._events, EVENT_KINDS))
        yield from self._process.collect()


def _of_counters(counters: Counters, events: Mapping[str, int], models: Sequence[ServedModel]) -> Iterator[Metric]:
    for name, said, value in (
        ("records_read", "Records read.", counters.records),
        ("records_ignored", "Records that are no samples.", counters.ignored),
        ("samples", "Samples read.", counters.samples),
        ("late_samples", "Samples that came after their sequence had ended.", counters.late_samples),
        ("rebalances", "Rebalances of the group.", counters.rebalances),
        ("attributions", "Committed attributions.", counters.attributions),
    ):
        yield _counter(name, said, (), {(): value})
    yield _counter("dead_letters", "Unreadable records.", ("kind",), _by(counters.dead_letters, DEAD_LETTER_KINDS))
    yield _counter(
        "sequences", "Finished sequences by the reason of their end.", ("reason",), _by(counters.sequences, ())
    )
    known = {(each.ref.name, decision): 0 for each in models for decision in _DECISIONS}
    judged = {("none", decision): 0 for decision in _DECISIONS if decision in ("unscorable", "learning")} | known
    judged |= {(model or "none", decision): n for (model, decision), n in counters.judged.items()}
    yield _counter("verdicts", "Committed verdicts.", ("model", "decision"), judged)
    alerts = CounterMetricFamily("streamad_alerts", "Committed alerts.", labels=["model"])
    for (model, decision), n in judged.items():
        if decision == "anomalous":
            last = counters.last_alerts.get(model)
            alerts.add_metric([_label(model)], n, exemplar=None if last is None else Exemplar({"alert_id": last}, 1.0))
    yield alerts
    outcomes = {("committed",): counters.commits, ("failed",): counters.commits_failed}
    yield _counter("commits", "Commits of outputs and progress.", ("outcome",), outcomes)
    yield _counter("events", "Events for the operator.", ("kind",), _by(events, EVENT_KINDS))


def _of_models(models: list[ServedModel], counters: Counters) -> Iterator[Metric]:
    ours = {each.ref.name: each for each in models}
    versions = {(each.ref.name, each.ref.version): 1.0 for each in ours.values()}
    yield _gauge("model_info", "Models in service.", ("model", "version"), versions)
    trained = {(name,): each.trained_us / 1e6 for name, each in ours.items() if each.trained_us is not None}
    yield _gauge("model_trained_timestamp_seconds", "When the model in service was trained.", ("model",), trained)
    newest = {(name,): each.last_training_us / 1e6 for name, each in ours.items() if each.last_training_us is not None}
    said = "When the model's newest version was trained, in service or not."
    yield _gauge("last_training_timestamp_seconds", said, ("model",), newest)
    between = {(name,): each.interval_s for name, each in ours.items() if each.interval_s is not None}
    yield _gauge("training_interval_seconds", "Time between two scheduled trainings.", ("model",), between)
    rates = {(name,): each.false_alarm_rate for name, each in ours.items()}
    said = "How often a normal sequence may raise an alert."
    yield _gauge("false_alarm_rate_configured_ratio", said, ("model",), rates)
    n_calibration = {(name,): each.n_calibration for name, each in ours.items() if each.n_calibration is not None}
    yield _gauge("calibration_sequences", "Sequences that calibrate the model in service.", ("model",), n_calibration)
    yield from _of_learning({name: of.learned for name, of in counters.learning.items() if of.learned is not None})


def _of_learning(learning: Mapping[str, LearningCounters]) -> Iterator[Metric]:
    """Yield the metrics of what was learned, by model; none if nothing is known of any."""
    if not learning:
        return
    shares = (("accepted", "accepted"), ("reserve", "reserved"), ("aside", "aside"))
    kept = {(name, share): getattr(of, field) for name, of in learning.items() for share, field in shares}
    yield _counter("inliers", "Sequences written to the inlier store, by share.", ("model", "share"), kept)
    drifts = {(name,): of.drifts for name, of in learning.items()}
    yield _counter("drifts", "Drifts of the scores.", ("model",), drifts)
    outcomes = (("promoted", "promotions"), ("not_promoted", "not_promoted"), ("failed", "failed"))
    ended = {(name, outcome): getattr(of, field) for name, of in learning.items() for outcome, field in outcomes}
    yield _counter("trainings", "Finished trainings.", ("model", "outcome"), ended)


def _by(counts: Mapping[str, int], known: Sequence[str]) -> dict[tuple[str, ...], float]:
    return {(name,): counts.get(name, 0) for name in (*known, *counts)}


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
