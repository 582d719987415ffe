"""Runs a pipeline for ``run`` and ``replay``: the same code, another source, committer and speed."""

from __future__ import annotations

__all__ = ["Monitor", "RunReport", "alert_line", "p_text", "unscorable_line"]

import gc
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
from rich.markup import escape
from rich.progress import Progress, SpinnerColumn, TextColumn

from streamad.commands._common import Plant, err, stop_on_signals
from streamad.commands._labels import Labels
from streamad.errors import SourceError, StalledError
from streamad.judge.evaluation import Evaluation, evaluate
from streamad.judge.scoring import MicroBatcher
from streamad.pipeline import JudgedSequence, Pipeline
from streamad.ports import Committer, Source
from streamad.types import Alert, Attribution, Event, Verdict
from streamad.wiring import model_in_service

_LATENCIES = 10_000
_OBJECTS_BEFORE_COLLECTION = 20_000


def p_text(p_value: float) -> str:
    """Return a p-value for people; it is never 0."""
    return f"{p_value:.4f}" if p_value >= 0.0001 else f"{p_value:.0e}"


def alert_line(alert: Alert, attribution: Attribution | None = None) -> str:
    """Return one line for a person: what, how sure, and which channels."""
    why = ""
    if attribution is not None:
        first = [f"{share.channel} {share.share:.0%}" for share in attribution.channels[:2] if share.share >= 0.01]
        why = f"  because of {', '.join(first)}" if first else ""
    tail = "  (extrapolated)" if alert.tail == "extrapolated" else ""
    return (
        f"[bold red]ALERT[/] {escape(alert.stream)} {escape(alert.sequence)}  "
        f"score {alert.score:.3f}  p {p_text(alert.p_value)}{tail}{escape(why)}"
    )


def unscorable_line(verdict: Verdict) -> str:
    """Return one line for a person: what could not be judged, and why."""
    return f"[yellow]UNSCORABLE[/] {escape(f'{verdict.stream} {verdict.sequence}  {verdict.detail or str()}')}"


@dataclass(slots=True)
class RunReport:
    """What a run did, for the summary; ``verdicts`` only where they were asked for, latencies of the latest ones."""

    counters: dict[str, Any]
    wall_s: float
    model: str
    latencies_us: list[int]
    verdicts: list[Verdict]
    interrupted: bool = False

    @property
    def sequences(self) -> int:
        """Return the number of verdicts."""
        return sum(self.counters["verdicts"].values())

    def latency_ms(self, share: float) -> float | None:
        """Return a quantile of the time from a sequence's end to its committed verdict."""
        return float(np.quantile(self.latencies_us, share)) / 1e3 if self.latencies_us else None

    def evaluation(self, labels: Labels) -> Evaluation:
        """Compare the judged sequences that have a label with it. Raises SourceError where none has."""
        truths = [labels.is_anomalous(verdict.stream, verdict.sequence) for verdict in self.verdicts]
        labelled = [(verdict, truth) for verdict, truth in zip(self.verdicts, truths, strict=True) if truth is not None]
        if self.verdicts and not labelled:
            raise SourceError(
                f"none of the {len(self.verdicts)} judged sequences has a label: the recordings say "
                f"{self.verdicts[0].sequence!r} of stream {self.verdicts[0].stream!r}, the labels {labels.example!r}"
            )
        return evaluate(
            [verdict.score for verdict, _ in labelled],
            [verdict.decision == "anomalous" for verdict, _ in labelled],
            [truth for _, truth in labelled],
        )

    def as_dict(self) -> dict[str, Any]:
        """Return the figures for machines."""
        return {
            "sequences": self.sequences,
            "alerts": self.counters["alerts"],
            "model": self.model,
            "interrupted": self.interrupted,
            "wall_s": round(self.wall_s, 3),
            "sequences_per_s": round(self.sequences / self.wall_s, 3) if self.wall_s else None,
            "decision_latency_ms": {"p50": self.latency_ms(0.5), "p99": self.latency_ms(0.99)},
            "counters": self.counters,
        }


@contextmanager
def calm_garbage_collector() -> Iterator[None]:
    """Keep the collector from what a long run never drops: modules, the model, the config.

    It would look through all of it again and again; measured, that is a fifth of the time of a message of one sample.
    """
    before = gc.get_threshold()
    gc.collect()
    gc.freeze()
    gc.set_threshold(_OBJECTS_BEFORE_COLLECTION, 20, 20)
    try:
        yield
    finally:
        gc.unfreeze()  # libraries look at the end whether all of theirs is gone
        gc.set_threshold(*before)


class Monitor:
    """Puts a plant's pipeline to work once, telling on stderr what comes out; ``keep`` holds on to the verdicts.

    ``on_start`` is given the function that requests the stop, once the pipeline is there; it returns for how many
    seconds after a first signal further ones mean the same stop.
    """

    def __init__(
        self,
        plant: Plant,
        *,
        quiet: bool = False,
        keep: bool = False,
        on_start: Callable[[Callable[[], None]], float] | None = None,
    ) -> None:
        self._on_start = on_start
        self._plant = plant
        self._quiet = quiet
        self._keep = keep
        self._verdicts: list[Verdict] = []
        self._latencies_us: deque[int] = deque(maxlen=_LATENCIES)
        self._n_judged = 0
        self._n_alerts = 0
        self._status = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}"),
            console=err,
            transient=True,
            disable=not err.is_terminal or on_start is not None,  # several workers would fight for one line
        )
        self._task = self._status.add_task("waiting for the first sequence to end", total=None)

    async def run(
        self, source: Source, committer: Committer, *, explain: bool, with_verdicts: bool, version: str | None = None
    ) -> RunReport:
        """Run to the end of the source or the first signal. Raises StreamadError."""
        plant = self._plant
        try:
            model = model_in_service(plant.settings, plant.base_dir, version)
            batcher = MicroBatcher(model, plant.clock, plant.settings.run)
            pipeline = Pipeline(
                plant.settings,
                source,
                committer,
                batcher,
                plant.clock,
                explain=explain,
                with_verdicts=with_verdicts,
                on_judged=self._on_judged,
                on_event=self._on_event if err.is_terminal and not self._quiet else None,
            )
            repeats_s = self._on_start(pipeline.request_stop) if self._on_start is not None else 0.0
            started = time.perf_counter()
            stopping = stop_on_signals(pipeline.request_stop, repeats_s=repeats_s)
            with calm_garbage_collector(), self._status, stopping:
                try:
                    await pipeline.run()
                except StalledError:
                    batcher.abandon()
                    raise
                finally:
                    await batcher.close()
        finally:
            try:
                await source.close()
            finally:
                await committer.close()
        return RunReport(
            counters=pipeline.counters.as_dict(),
            wall_s=time.perf_counter() - started,
            model=f"{model.ref.name} {model.ref.version}",
            latencies_us=list(self._latencies_us),
            verdicts=self._verdicts,
            interrupted=pipeline.was_stopped,
        )

    def _on_judged(self, judged: JudgedSequence) -> None:
        verdict, alert = judged.judgement.verdict, judged.judgement.alert
        self._latencies_us.append(judged.latency_us)
        if self._keep:
            self._verdicts.append(verdict)
        self._n_judged += 1
        self._n_alerts += alert is not None
        self._status.update(self._task, description=f"{self._n_judged} sequences judged, {self._n_alerts} alerts")
        if self._quiet:
            return
        if alert is not None:
            err.print(alert_line(alert, judged.judgement.attribution))
        elif verdict.decision == "unscorable":
            err.print(unscorable_line(verdict))

    @staticmethod
    def _on_event(event: Event) -> None:
        parts = [event.kind, event.stream or event.partition, event.message]
        err.print(f"[yellow]EVENT[/] {escape(': '.join(part for part in parts if part))}")
