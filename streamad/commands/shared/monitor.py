"""Runs a pipeline for ``run`` and ``replay``: the same code, another source, committer and speed."""

from __future__ import annotations

import asyncio
import gc
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.markup import escape
from rich.progress import Progress, SpinnerColumn, TextColumn

from streamad.commands.shared.console import err, stop_on_signals
from streamad.commands.shared.report import RunReport
from streamad.errors import StalledError
from streamad.judge.judging import JudgedSequence
from streamad.judge.scoring import Batchers
from streamad.learn.live.live_learning import LiveLearning, models_at_work
from streamad.messages import Alert, Attribution, Event, Verdict
from streamad.plant import Plant
from streamad.ports import Committer, Source
from streamad.runtime.pipeline import Pipeline
from streamad.telemetry.events import EventLog

_LATENCIES = 10_000
_OBJECTS_BEFORE_COLLECTION = 20_000
_PROGRESS_S = 1.0
_ID_CHARACTERS = 8
"""So much of an alert's id is shown: `streamad feedback --alert` takes the beginning of a stored one, from six on."""


def p_text(p_value: float) -> str:
    """Return a p-value for people; it is never 0."""
    return f"{p_value:.4f}" if p_value >= 0.0001 else f"{p_value:.0e}"


def alert_line(alert: Alert, attribution: Attribution | None = None) -> str:
    """Return one line for a person: what, how sure, which channels, and as much of its id as feedback needs."""
    why = ""
    if attribution is not None:
        first = [f"{share.channel} {share.share:.0%}" for share in attribution.channels[:2] if share.share >= 0.01]
        why = f"  because of {', '.join(first)}" if first else ""
    tail = "  (extrapolated)" if alert.tail == "extrapolated" else ""
    return (
        f"[bold red]ALERT[/] {escape(alert.stream)} {escape(alert.sequence)}  "
        f"score {alert.score:.3f}  p {p_text(alert.p_value)}{tail}{escape(why)}"
        f"  [dim]id {escape(alert.alert_id[:_ID_CHARACTERS])}[/]"
    )


def _n_of(n: int, what: str) -> str:
    return f"{n} {what}{'s' * (n != 1)}"


def unscorable_line(verdict: Verdict) -> str:
    """Return one line for a person: what could not be judged, and why."""
    return f"[yellow]UNSCORABLE[/] {escape(f'{verdict.stream} {verdict.sequence}  {verdict.detail or str()}')}"


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

    ``learns``: the models follow the plant as the config says; else they are read, and nothing else is touched.
    ``on_start`` is given the function that requests the stop, once the pipeline is there; it returns for how many
    seconds after a first signal further ones mean the same stop.
    """

    def __init__(
        self,
        plant: Plant,
        *,
        quiet: bool = False,
        keep: bool = False,
        learns: bool = False,
        on_start: Callable[[Callable[[], None]], float] | None = None,
    ) -> None:
        self._on_start = on_start
        self._plant = plant
        self._quiet = quiet
        self._keep = keep
        on_event = self._on_event if err.is_terminal and not quiet else None
        self._events = EventLog(plant.settings.name, plant.clock, on_event)
        self._following = LiveLearning(plant, self._events) if learns and plant.settings.learning is not None else None
        self._is_through = False
        self._verdicts: list[Verdict] = []
        self._latencies_us: deque[int] = deque(maxlen=_LATENCIES)
        self._n_judged = 0
        self._n_alerts = 0
        self._n_learning = 0
        self._n_scored = 0
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
            following = self._following
            batchers = await (following.begin() if following is not None else models_at_work(plant, version=version))
            pipeline = Pipeline(
                plant.settings,
                source,
                committer,
                batchers,
                plant.clock,
                explain=explain,
                with_verdicts=with_verdicts,
                on_judged=self._on_judged,
                events=self._events,
            )
            if following is not None:
                pipeline.counters.learning = following.counters

            def request_stop() -> None:
                pipeline.request_stop()
                if following is not None:
                    following.request_stop()

            repeats_s = self._on_start(request_stop) if self._on_start is not None else 0.0
            started = time.perf_counter()
            with calm_garbage_collector(), self._status, stop_on_signals(request_stop, repeats_s=repeats_s):
                await self._run(pipeline, batchers)
        finally:
            try:
                await source.close()
            finally:
                await committer.close()
        return RunReport(
            counters=pipeline.counters.as_dict(),
            wall_s=time.perf_counter() - started,
            model=batchers.label,
            latencies_us=list(self._latencies_us),
            verdicts=self._verdicts,
            interrupted=pipeline.was_stopped,
        )

    async def _run(self, pipeline: Pipeline, batchers: Batchers) -> None:
        """Run to the end of the source, then train what is due; learning ends before scoring does."""
        following = self._following
        showing = asyncio.create_task(self._show_progress())
        try:
            await pipeline.run()
            if following is not None:
                self._is_through = True
                await following.close(wait=not pipeline.was_stopped)
                await pipeline.commit_events()
        except Exception as error:
            if following is not None:
                await following.close(wait=False)
            if isinstance(error, StalledError):
                batchers.abandon()
            raise
        finally:
            showing.cancel()
            await batchers.close()

    async def _show_progress(self) -> None:
        """Keep the status line on what is learned; where there is none, say once what the end of the run waits for."""
        has_said = self._quiet or self._following is None
        while self._following is not None:
            self._show()
            if self._is_through and not has_said and (progress := self._following.progress):
                has_said = True
                err.print(f"all is judged; {progress}: the run ends with it (Ctrl-C: it goes on at the next start)")
            await self._plant.clock.sleep(_PROGRESS_S)

    def _show(self) -> None:
        progress = self._following.progress if self._following is not None else ""
        judged = f"{_n_of(self._n_judged - self._n_learning, 'sequence')} judged, {_n_of(self._n_alerts, 'alert')}"
        if not self._n_scored:  # there was no model so far
            judged = f"{_n_of(self._n_judged, 'sequence')}, none judged yet"
        self._status.update(self._task, description=", ".join(part for part in (judged, progress) if part))

    def _on_judged(self, judged: JudgedSequence, latency_us: int) -> None:
        verdict, alert = judged.verdict, judged.alert
        self._latencies_us.append(latency_us)
        if self._keep:
            self._verdicts.append(verdict)
        self._n_judged += 1
        self._n_alerts += alert is not None
        self._n_learning += verdict.decision == "learning"
        self._n_scored += verdict.decision in ("normal", "anomalous")
        self._show()
        if self._following is not None:
            self._following.judged(judged)
        if self._quiet:
            return
        if alert is not None:
            err.print(alert_line(alert, judged.attribution))
        elif verdict.decision == "unscorable":
            err.print(unscorable_line(verdict))

    def _on_event(self, event: Event) -> None:
        named = None
        if self._plant.settings.models is not None and event.model is not None:
            named = None if event.message.startswith(f"{event.model.name} ") else event.model.name
        parts = [event.kind, event.stream or event.partition, named, event.message]
        err.print(f"[yellow]EVENT[/] {escape(': '.join(part for part in parts if part))}")
