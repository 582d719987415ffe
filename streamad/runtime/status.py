"""The status of a run: counters and gauges in the log, and the error of a run that stalls."""

from __future__ import annotations

import os
import platform
from collections.abc import Collection, Mapping
from dataclasses import asdict

from streamad.errors import StalledError
from streamad.ingest.windowing import Unscorable
from streamad.messages import NO_METHOD, EarlyWarning
from streamad.plugins import split_url
from streamad.ports import Clock
from streamad.runtime.partition import Partition, Results
from streamad.settings.plant_yaml import Settings
from streamad.telemetry.logs import get_logger, get_status_logger
from streamad.telemetry.metrics import Ages, Counters, Gauges, Histogram, Latencies
from streamad.types import SourceEvent


def worker_name(settings: Settings) -> str:
    """Return the name of this worker in its group (``instance``), else machine and process: workers share a log."""
    options = {**settings.source.options, **split_url(settings.source.url)[2]}
    return str(options.get("instance") or f"{platform.node()}-{os.getpid()}")


class Status:
    """Reports on a pipeline's ``partitions`` by name; ``moved`` is called at every progress.

    ``latency`` holds all of them; ``latencies`` are for the log and ``latencies_told`` for the status messages, each
    since it was last asked. ``warning_ages`` holds the ages of sequences at their warnings. ``held`` is what waits for
    schemas, of a source that cannot pause.
    """

    def __init__(
        self, settings: Settings, clock: Clock, counters: Counters, partitions: Mapping[str, Partition]
    ) -> None:
        self.partitions = partitions
        self._settings = settings
        self._clock = clock
        self._counters = counters
        self._log = get_status_logger().bind(plant=settings.name, worker=worker_name(settings))
        self._detail_log = get_logger().bind(plant=settings.name)
        self._moved_us = self._reported_us = clock.monotonic_us()
        self.held: Collection[SourceEvent] = ()
        self.latency = Histogram()
        self.warning_ages = Ages()
        self.latencies, self.latencies_told = Latencies(self.latency), Latencies(self.latency)

    def moved(self) -> None:
        """Note progress."""
        self._moved_us = self._clock.monotonic_us()

    def committed(self, name: str, results: Results) -> None:
        """Count and log a commit of the partition ``name`` that succeeded."""
        self.moved()
        self._log_commit(name, results)
        counters = self._counters
        counters.commits += 1
        for waiting, sequence in zip(results.done, results.judged, strict=True):
            verdict, alert = sequence.verdict, sequence.alert
            model = "" if verdict.model is None else verdict.model.name
            counters.count_verdict(model, verdict.decision, None if alert is None else alert.alert_id)
            if sequence.verdict.decision == "unscorable":
                counters.count_unscorable(Unscorable(sequence.verdict.detail or "unknown").reason)
            counters.trained_model += sequence.trained_model
            if waiting.record_us is not None:
                self.latency.add((self._clock.now_us() - waiting.record_us) / 1e6)
        for message in (record.message for record in results.outputs):
            if isinstance(message, EarlyWarning):
                counters.count_warning(message.model.name, message.warning_id)
                self.warning_ages.add(message.age)
        made = results.attributions + [each.attribution for each in results.judged if each.attribution is not None]
        counters.attributions += len(made)
        counters.unexplained += sum(each.method == NO_METHOD for each in made)

    def _log_commit(self, name: str, results: Results) -> None:
        update = results.update
        self._detail_log.debug(
            "committed",
            partition=name,
            next_offset=update.next_offset,
            low_watermark=update.low_watermark,
            verdicts=len(results.done),
            messages=len(results.outputs),
        )
        if update.ended:
            self._detail_log.info("partition ended", partition=name, next_offset=update.next_offset)

    def gauges(self) -> Gauges:
        """Return the current state."""
        partitions = self.partitions.values()
        lags = [partition.lag for partition in partitions]
        oldest_us = [partition.low_watermark_us for partition in partitions if partition.low_watermark_us is not None]
        return Gauges(
            partitions=len(partitions),
            lag=sum(lag for lag in lags if lag is not None) if lags and None not in lags else None,
            low_watermark_age_s=max(0, self._clock.now_us() - min(oldest_us)) / 1e6 if oldest_us else None,
            open_sequences=sum(partition.intake.open_sequences for partition in partitions),
            buffered_bytes=sum(each.intake.buffered_bytes + each.in_flight_bytes for each in partitions),
            waiting_verdicts=sum(len(partition.in_flight) for partition in partitions),
            waiting_attributions=sum(partition.payments.owes for partition in partitions),
            waiting_for_schemas=sum(partition.fetching is not None for partition in partitions) + bool(self.held),
        )

    def report(self) -> None:
        """Log counters and gauges if the report interval has passed."""
        interval_us, now_us = self._settings.run.report_interval, self._clock.monotonic_us()
        if interval_us and now_us - self._reported_us >= interval_us:
            self._reported_us = now_us
            p50_ms, p99_ms = self.latencies.take_ms()
            latencies = {"latency_p50_ms": p50_ms, "latency_p99_ms": p99_ms}
            self._log.info("status", **self._counters.as_dict(), **asdict(self.gauges()), **latencies)

    def check_stall(self, waiting: int) -> None:
        """Raise StalledError if sequences are ``waiting`` and nothing has moved for ``run.stall_timeout``."""
        limit_us = self._settings.run.stall_timeout
        if limit_us and waiting and self._clock.monotonic_us() - self._moved_us > limit_us:
            raise StalledError(
                f"{waiting} finished sequences wait and nothing has moved for {limit_us / 1e6:g} s: the scorer hangs; "
                "nothing uncommitted is lost, start streamad again"
            )
