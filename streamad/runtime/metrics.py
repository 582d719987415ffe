"""What a worker tells about itself over HTTP: its metrics, whether it is alive, and whether it is ready.

Metrics are read from the counters and gauges that the worker keeps anyway. Names follow Prometheus' conventions: base
units, ``_total`` for counters. Labels are bounded: models, kinds and reasons of our own, partitions of a topic; never a
stream, a sequence or a text of a message. The server has a thread, which answers also if the event loop hangs.
"""

from __future__ import annotations

import asyncio
import errno
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, Final, TypeAlias, get_args
from wsgiref.simple_server import make_server

from prometheus_client import CollectorRegistry
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.exposition import choose_encoder
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector
from prometheus_client.samples import Exemplar

from streamad.errors import OutputError
from streamad.ingest.dead_letters import BAD_VALUE, TIME_JUMP
from streamad.ingest.decode_values import DecodeErrorKind
from streamad.messages import Decision, ModelRef
from streamad.runtime.partition import Partition
from streamad.runtime.pipeline import Pipeline
from streamad.safe_text import one_line, visible_name
from streamad.settings.outputs import split_address
from streamad.telemetry.http_server import Handler, Server, Server6
from streamad.telemetry.logs import get_logger
from streamad.telemetry.metrics import Counters, Histogram, LearningCounters

if TYPE_CHECKING:
    from wsgiref.types import StartResponse, WSGIEnvironment


DEAD_LETTER_KINDS: Final = (*get_args(DecodeErrorKind), BAD_VALUE, TIME_JUMP)
"""Kinds that are there from the beginning: an increase from nothing to one is none for Prometheus."""
EVENT_KINDS: Final = (
    "backend_refused", "broker_back", "broker_silent", "drift", "low_watermark_old", "many_alerts", "model_promoted",
    "plant_changed", "schema_registry_back", "schema_registry_silent", "training_failed", "waits_for_review",
)  # fmt: skip
_DECISIONS: Final = get_args(Decision)
_MOST_PARTITIONS = 1_000
_MOST_LABEL = 200


@dataclass(frozen=True, slots=True)
class ServedModel:
    """A model in service as its manifest describes it; None: unknown.

    ``trained_us``, and ``last_training_us`` of its newest version: in us since 1970; ``interval_s`` lies between two
    scheduled trainings. ``warning_rate`` is that of its warnings, None if the plant has none.
    """

    ref: ModelRef
    false_alarm_rate: float
    n_calibration: int | None = None
    trained_us: int | None = None
    last_training_us: int | None = None
    interval_s: float | None = None
    warning_rate: float | None = None


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
        yield _times(
            "verdict_latency_seconds", "From a sequence's last record to its verdict's commit.", status.latency
        )
        yield _times("scoring_batch_duration_seconds", "Time to score a batch of windows.", observed.scoring)
        if observed.explaining is not None:
            yield _times("explain_duration_seconds", "Time in which an attribution was made.", observed.explaining)
        if any(each.warning_rate is not None for each in models):
            said, ages = "Age of a sequence at its warning, as a share of the usual length.", status.warning_ages
            yield _histogram("warning_age_ratio", said, ages.buckets(), ages.sum)
        yield from _of_models(models, observed.pipeline.counters)

    def _of_partitions(self) -> Iterator[Metric]:
        observed = self._observed
        partitions = list(observed.pipeline.status.partitions.values())
        gauges = observed.pipeline.status.gauges()
        for name, said, value in (
            ("partitions", "Partitions (of topics, or files) that are read.", gauges.partitions),
            ("open_sequences", "Sequences that have begun and not ended.", gauges.open_sequences),
            ("buffered_bytes", "Bytes of samples in memory.", gauges.buffered_bytes),
            ("waiting_verdicts", "Finished sequences without a committed verdict.", gauges.waiting_verdicts),
            ("waiting_attributions", "Committed alerts without their attribution.", gauges.waiting_attributions),
            ("waiting_for_schemas", "Partitions that wait for the Schema Registry.", gauges.waiting_for_schemas),
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
        ("displaced_samples", "Samples that replaced another value of the same time.", counters.displaced),
        ("outside_samples", "Samples in no sequence, such as those between two batches.", counters.outside),
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
    alerted = {model: n for (model, decision), n in judged.items() if decision == "anomalous"}
    yield _with_last("alerts", "Committed alerts.", alerted, "alert_id", counters.last_alerts)
    warned = {each.ref.name: 0 for each in models if each.warning_rate is not None} | counters.warned
    if warned:
        said = "Committed warnings of running sequences."
        yield _with_last("warnings", said, warned, "warning_id", counters.last_warnings)
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
    warning = {(name,): each.warning_rate for name, each in ours.items() if each.warning_rate is not None}
    if warning:
        said = "How often a normal sequence may ever be warned of."
        yield _gauge("warning_rate_configured_ratio", said, ("model",), warning)
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


def _with_last(name: str, said: str, values: Mapping[str, int], key: str, last: Mapping[str, str]) -> Metric:
    """Return a counter by model, each with the id of its ``last`` message as exemplar."""
    family = CounterMetricFamily(f"streamad_{name}", said, labels=["model"])
    for model, n in values.items():
        exemplar = Exemplar({key: last[model]}, 1.0) if model in last else None
        family.add_metric([_label(model)], n, exemplar=exemplar)
    return family


def _gauge(name: str, said: str, labels: Sequence[str], values: Mapping[Any, float]) -> Metric:
    return _filled(GaugeMetricFamily(f"streamad_{name}", said, labels=labels), values)


def _filled(family: CounterMetricFamily | GaugeMetricFamily, values: Mapping[Any, float]) -> Metric:
    for labels, value in values.items():
        family.add_metric([_label(each) for each in labels], value)
    return family


def _times(name: str, said: str, histogram: Histogram) -> Metric:
    return _histogram(name, said, histogram.buckets(), histogram.sum_s)


def _histogram(name: str, said: str, found: Iterable[tuple[float, int]], total: float) -> Metric:
    family = HistogramMetricFamily(f"streamad_{name}", said)
    buckets = [("+Inf" if bound == float("inf") else repr(bound), float(n)) for bound, n in found]
    family.add_metric([], buckets, total)
    return family


_Encoder: TypeAlias = Callable[[Any], bytes]
TURN_LIMIT_S = 30.0
"""If the loop has not turned for so long, the worker is not alive."""
_TURN_S = 1.0
_COLLECT_S = 10.0
_MOST_SCRAPES = 8  # at a time, of the requests that the server takes
_REST = 4  # times as long as it takes to collect nothing is collected: a flood of scrapes leaves the loop to the plant
_TEXT = [("Content-Type", "text/plain; charset=utf-8")]


class MetricsServer:
    """Serves until ``close``; ``is_ready`` is asked in the server's thread.

    Law: a scrape changes nothing, runs between two turns of the loop, and cannot hold it for longer than the metrics
    take to collect. Raises OutputError if it cannot listen there.
    """

    def __init__(self, listen: str, collector: Collector, is_ready: Callable[[], bool]) -> None:
        self._registry = CollectorRegistry()  # it collects nothing before it is asked
        self._registry.register(collector)
        self._is_ready = is_ready
        self._loop = asyncio.get_running_loop()
        self._turned_at = time.monotonic()
        self._is_closing = False
        self._scrapes = threading.Semaphore(_MOST_SCRAPES)
        self._lock = threading.Lock()
        self._waiting: dict[str, Future[bytes]] = {}
        self._rests_until = 0.0
        host, port = split_address(listen)
        try:
            self._server = make_server(host, port, self._answer, Server6 if ":" in host else Server, Handler)
        except (OSError, TypeError, UnicodeError) as error:  # some host names are refused by their letters
            said = getattr(error, "strerror", None) or one_line(str(error))
            why = f"metrics.listen: {visible_name(listen)} cannot be listened at ({said}): {_remedy(error)}"
            raise OutputError(why) from error
        self._thread = threading.Thread(target=self._server.serve_forever, name="streamad-metrics", daemon=True)
        self._turning = asyncio.create_task(self._turn())
        self._thread.start()
        get_logger().info("metrics are served", listen=f"{host}:{self.port}")

    @property
    def port(self) -> int:
        """Return the port that it listens at."""
        return int(self._server.server_address[1])

    async def close(self) -> None:
        """Stop serving; a request in work is let go."""
        self._is_closing = True
        self._turning.cancel()
        await asyncio.gather(self._turning, return_exceptions=True)
        await asyncio.to_thread(self._server.shutdown)
        self._server.server_close()

    async def _turn(self) -> None:
        while True:
            self._turned_at = time.monotonic()
            await asyncio.sleep(_TURN_S)

    def _answer(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        path, method = environ.get("PATH_INFO", ""), environ.get("REQUEST_METHOD", "")
        if method not in ("GET", "HEAD"):
            start_response("405 Method Not Allowed", [*_TEXT, ("Allow", "GET, HEAD")])
            return [b"only GET is answered\n"]
        if path == "/metrics":
            return self._metrics(environ, start_response)
        if path == "/livez":
            silent_s = time.monotonic() - self._turned_at
            is_alive = silent_s <= TURN_LIMIT_S
            said = "alive" if is_alive else f"the event loop has not turned for {silent_s:.0f} s"
        elif path == "/readyz":
            is_alive = self._is_ready()
            said = "ready" if is_alive else "the source has not given anything to read yet"
        else:
            start_response("404 Not Found", list(_TEXT))
            return [b"there are /metrics, /livez and /readyz\n"]
        start_response("200 OK" if is_alive else "503 Service Unavailable", list(_TEXT))
        return [f"{said}\n".encode()]

    def _metrics(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        if not self._scrapes.acquire(blocking=False):
            start_response("503 Service Unavailable", list(_TEXT))
            return [f"{_MOST_SCRAPES} scrapes wait already\n".encode()]
        try:
            encode, content_type = _encoder(environ.get("HTTP_ACCEPT", ""))
            content = self._content(encode, content_type)
        finally:
            self._scrapes.release()
        if isinstance(content, str):
            start_response("503 Service Unavailable", list(_TEXT))
            return [f"the metrics could not be collected: {content}\n".encode()]
        start_response("200 OK", [("Content-Type", content_type)])
        return [content]

    def _content(self, encode: _Encoder, content_type: str) -> bytes | str:
        """Return the metrics, or why they could not be collected."""
        future: Future[bytes] | None = None
        try:
            future = self._future(encode, content_type)
            return future.result(_COLLECT_S)
        except Exception as error:  # noqa: BLE001 - whatever it is, the answer must be no half one
            if future is not None:
                future.cancel()
            if self._is_closing:
                return "the worker is stopping"
            return f"not within {_COLLECT_S:g} s" if isinstance(error, TimeoutError) else type(error).__name__

    def _future(self, encode: _Encoder, content_type: str) -> Future[bytes]:
        """Return a collection that has not begun: one for all who wait for the same."""
        with self._lock:
            future = self._waiting.get(content_type)
            if future is None or future.done():
                collected = self._collected(encode, content_type)
                try:
                    future = asyncio.run_coroutine_threadsafe(collected, self._loop)
                except BaseException:
                    collected.close()
                    raise
                self._waiting[content_type] = future
            return future

    async def _collected(self, encode: _Encoder, content_type: str) -> bytes:
        while (rest_s := self._rests_until - time.monotonic()) > 0:  # noqa: ASYNC110 - another one may have begun
            await asyncio.sleep(rest_s)
        self._waiting.pop(content_type, None)
        begun = time.monotonic()
        try:
            return encode(self._registry)
        finally:
            ended = time.monotonic()
            self._rests_until = ended + _REST * (ended - begun)


def _encoder(accept: str) -> tuple[_Encoder, str]:
    """Return how to write the metrics for the header Accept, and the type that they then have."""
    try:
        return choose_encoder(accept)
    except (TypeError, ValueError):  # a version that is no number
        return choose_encoder("")


def _remedy(error: Exception) -> str:
    number = getattr(error, "errno", None)
    if number == errno.EADDRINUSE:
        return "another program, or another worker on this machine, has the port: take another one"
    if number == errno.EACCES:
        return "ports below 1024 are for the administrator: take another one, such as 9464"
    return "write an address of this machine, such as 127.0.0.1, or 0.0.0.0 for all of its addresses"
