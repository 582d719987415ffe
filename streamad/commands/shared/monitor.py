"""Runs a plant's pipeline for ``run`` and ``replay``; they differ in source, committer and speed."""

from __future__ import annotations

import asyncio
import gc
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, contextmanager, nullcontext
from functools import partial
from typing import TYPE_CHECKING, Protocol, TypeAlias

from streamad.commands.shared.console import Bar, Fields, count, err, stop_on_signals, stop_with_parent
from streamad.commands.shared.figures.report import RunReport
from streamad.errors import StalledError
from streamad.judge.verdicts import NO_REASON, p_text, span_text
from streamad.language import percent
from streamad.messages import NO_METHOD, Alert, Attribution, EarlyWarning, Event, ModelRef, Verdict, WarningRef
from streamad.plant import Plant
from streamad.ports import Committer, SizedSource, Source, TransactionalSource
from streamad.schemas.fetching import fetcher_of
from streamad.system.tasks import is_stop
from streamad.telemetry.events import Emit, EventLog

if TYPE_CHECKING:
    from streamad.decisions.worker import Journals
    from streamad.judge.bank import Batchers
    from streamad.judge.explainer import Explainer
    from streamad.judge.judging import JudgedSequence
    from streamad.judge.shift import AlertWatch
    from streamad.learn.serving.serving import Learning, Serving
    from streamad.runtime.pipeline import Pipeline
    from streamad.runtime.reports import Reporter
    from streamad.telemetry.metrics import Counters


class Watcher(Protocol):
    """Is told of every judged sequence and every attribution of a run, in the event loop."""

    def judged(self, judged: JudgedSequence) -> None:
        """Take a judged sequence; its attribution may follow."""
        ...

    def explained(self, attribution: Attribution) -> None:
        """Take the attribution of an alert that was judged before."""
        ...


Beside: TypeAlias = "Callable[[Pipeline, Batchers, Explainer | None, EventLog], AbstractAsyncContextManager[None]]"
_LATENCIES = 10_000
_OBJECTS_BEFORE_COLLECTION = 20_000
_PROGRESS_S = 1.0
_REASONS_S = 1.0
"""As long as an alert waits for its reasons before it is printed."""
_ID_CHARACTERS = 8
"""Characters shown of an alert's id; `streamad feedback --alert` needs at least the first six."""
_NAME_CHARACTERS, _TEXT_CHARACTERS = 60, 80


def alert_line(alert: Alert, attribution: Attribution | None = None, warned: WarningRef | None = None) -> Fields:
    """Return one line for a person: sequence, score, warning, reasons, and as much of the id as feedback needs."""
    line = Fields(len("ALERT ")).add("ALERT", "bold red").add(alert.stream, gap=" ").add(alert.sequence, gap=" ")
    line.add(f"score {alert.score:.3f}").add(f"p {p_text(alert.p_value)}")
    if alert.tail == "extrapolated":
        line.add("(extrapolated)")
    if warned is not None:
        line.add(f"warned of at {percent(warned.age)}")
    if attribution is not None:
        _add_reasons(line, attribution)
    return line.add(f"id {alert.alert_id[:_ID_CHARACTERS]}", "dim")


def warning_line(warning: EarlyWarning, attribution: Attribution | None = None) -> Fields:
    """Return one line for a person: which running sequence leaves the normal course, at which age, and why."""
    line = Fields(len("WARN ")).add("WARN", "bold yellow").add(warning.stream, gap=" ").add(warning.sequence, gap=" ")
    line.add(f"at {percent(warning.age)} of the usual length", gap=" ")
    line.add(f"({span_text((warning.time - warning.start_time).total_seconds())})", gap=" ")
    line.add(f"p {p_text(warning.p_value)}")
    if warning.tail == "extrapolated":
        line.add("(extrapolated)")
    if attribution is not None:
        _add_reasons(line, attribution)
    return line.add(f"id {warning.warning_id[:_ID_CHARACTERS]}", "dim")


def attribution_line(attribution: Attribution) -> Fields:
    """Return one line for a person: why the alert of a sequence was raised."""
    line = Fields(len("WHY ")).add("WHY", "bold").add(attribution.stream, gap=" ").add(attribution.sequence, gap=" ")
    _add_reasons(line, attribution)
    return line.add(f"id {attribution.alert_id[:_ID_CHARACTERS]}", "dim")


def _add_reasons(line: Fields, attribution: Attribution) -> None:
    """Add the channels with the largest shares, when the first one departs from normal, and the nearest sequence."""
    first = [f"{share.channel} {percent(share.share)}" for share in attribution.channels[:2] if share.share >= 0.01]
    if first:
        line.add(f"because of {', '.join(first)}")
    for segment in attribution.segments[:1]:
        line.add(_cut(segment.text, _TEXT_CHARACTERS))
    for each in attribution.nearest[:1]:
        line.add(f"nearest normal {_cut(each.sequence)}")
    if not first and not attribution.segments and attribution.method != NO_METHOD:
        line.add(NO_REASON)
    if attribution.method == NO_METHOD:
        line.add("not explained:").add_words(attribution.detail or "no reason given")


def _cut(text: str, most: int = _NAME_CHARACTERS) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"


def unscorable_line(verdict: Verdict) -> Fields:
    """Return one line for a person: which sequence could not be judged, and why."""
    line = Fields(len("UNSCORABLE ")).add("UNSCORABLE", "yellow")
    line.add(verdict.stream, gap=" ").add(verdict.sequence, gap=" ")
    first, *others = (verdict.detail or "").split() or [""]
    return line.add(first).add_words(" ".join(others)) if first else line


def event_line(event: Event, *, names_model: bool) -> Fields:
    """Return one line for a person; ``names_model``: with the model's name, unless the message begins with it."""
    model = event.model.name if names_model and event.model is not None else None
    if model is not None and event.message.startswith(f"{model} "):
        model = None
    line = Fields(len("EVENT ")).add("EVENT", "yellow")
    for part in (event.kind, event.stream or event.partition, model):
        if part:
            line.add(f"{part}:", gap=" ")
    return line.add_words(event.message)


def event_printer(plant: Plant) -> Callable[[Event], None]:
    """Return what prints an event of ``plant`` on stderr, as one line."""
    names_model = plant.settings.models is not None
    return lambda event: err.print(event_line(event, names_model=names_model))


def shown_events(plant: Plant, *, quiet: bool, is_service: bool) -> Callable[[Event], None] | None:
    """Return what prints the events of a run; None: they go to the log, as those of a service do."""
    if is_service:
        return event_printer(plant) if err.is_terminal else None
    return (lambda _: None) if quiet else event_printer(plant)


@contextmanager
def calm_garbage_collector() -> Iterator[None]:
    """Exclude from garbage collection what a long run never frees: modules, the model, the config.

    Measured, its repeated scans take a fifth of the time of a message of one sample.
    """
    before = gc.get_threshold()
    gc.collect()
    gc.freeze()
    gc.set_threshold(_OBJECTS_BEFORE_COLLECTION, 20, 20)
    try:
        yield
    finally:
        gc.unfreeze()  # at exit some libraries check that their objects were freed
        gc.set_threshold(*before)


def _in_service(batchers: Batchers) -> list[ModelRef]:
    return [model.ref for model in batchers.models]


class AlertLines:
    """Prints each alert with its reasons if they come within a second, else the reasons on a line of their own.

    Nobody waits for an alert of recordings (``is_recorded``): it waits for its reasons as long as they take.
    """

    def __init__(self, is_recorded: Callable[[], bool] = lambda: False) -> None:
        self._is_recorded = is_recorded
        self._waiting: dict[str, tuple[JudgedSequence, asyncio.TimerHandle | None]] = {}

    def alert(self, judged: JudgedSequence) -> None:
        """Print the alert of ``judged`` now, or wait for its reasons if it is going to get some."""
        assert judged.alert is not None
        if judged.debt is not None:
            name = judged.alert.alert_id
            if name in self._waiting:  # a copy of a file has the same alerts again
                self._give_up(name)
            soon = None
            if not self._is_recorded():
                soon = asyncio.get_running_loop().call_later(_REASONS_S, self._give_up, name)
            self._waiting[name] = judged, soon
        else:
            _print_alert(judged, judged.attribution)

    def explained(self, attribution: Attribution) -> None:
        """Print reasons, with their alert if it waits."""
        if (waiting := self._waiting.pop(attribution.alert_id, None)) is None:
            err.print(attribution_line(attribution))
            return
        judged, soon = waiting
        if soon is not None:
            soon.cancel()
        _print_alert(judged, attribution)

    def close(self) -> None:
        """Print the alerts that wait."""
        for name in [*self._waiting]:
            self._give_up(name)

    def _give_up(self, name: str) -> None:
        judged, soon = self._waiting.pop(name)
        if soon is not None:
            soon.cancel()
        _print_alert(judged, None)


def _print_alert(judged: JudgedSequence, attribution: Attribution | None) -> None:
    assert judged.alert is not None
    err.print(alert_line(judged.alert, attribution, judged.verdict.warning))


class Monitor:
    """Runs a plant's pipeline once and prints alerts and events on stderr.

    ``quiet``: it prints no alerts; ``tells_events``: but events.
    ``keeps_verdicts``: the report holds all verdicts. ``learns``: the versions that learning puts into service are
    swapped in, and the status of this worker is written; otherwise the models stay as they are. ``supervised``: it is
    one of several workers, and ends with its supervisor. ``watcher`` is told of every judged sequence and attribution.
    ``beside`` is entered while the pipeline runs. ``normal``: which sequences are labelled normal, if the alerts of
    these alone tell whether the plant differs from its training. ``learner`` makes the learner that the run starts.
    ``is_paced``: records of a recording come when they are due. ``fetcher`` fetches the schemas of ``decode.registry``.
    """

    def __init__(
        self,
        plant: Plant,
        *,
        quiet: bool = False,
        tells_events: bool = True,
        keeps_verdicts: bool = False,
        learns: bool = False,
        supervised: bool = False,
        watcher: Watcher | None = None,
        beside: Beside | None = None,
        normal: Callable[[Verdict], bool] | None = None,
        learner: Callable[[Emit], Learning] | None = None,
        is_paced: bool = False,
    ) -> None:
        self._supervised = supervised
        self._watcher = watcher
        self._beside: Beside = beside or (lambda *_: nullcontext())
        self._plant = plant
        self._quiet = quiet
        self._keeps_verdicts = keeps_verdicts
        self._events = EventLog(
            plant.settings.name, plant.clock, shown_events(plant, quiet=not tells_events, is_service=learns)
        )
        self.fetcher = fetcher_of(plant, self._events.emit)
        self._learning = self._serving_of(learner) if learns else None
        self._is_of_plant = learns
        self._normal = normal
        self._alert_watch: AlertWatch | None = None
        self._is_through = False
        self._verdicts: list[Verdict] = []
        self._warnings: list[EarlyWarning] = []
        self._latencies_us: deque[int] = deque(maxlen=_LATENCIES)
        self._is_paced = is_paced
        self._source: Source | None = None
        self._lines = AlertLines(lambda: self._is_recorded)
        self._bar: Bar

    def _serving_of(self, learner: Callable[[Emit], Learning] | None) -> Serving | None:
        """Return what keeps the models of this run up to date, None if nothing learns."""
        if (settings := self._plant.settings.learning) is None:
            return None
        from streamad.learn.process.state import state_file  # noqa: PLC0415 - help needs none
        from streamad.learn.serving.serving import Serving  # noqa: PLC0415

        started = None if learner is None else learner(self._events.emit)
        state = state_file(self._plant) if settings.process == "here" else None
        return Serving(self._plant, self._events, started, state)

    def _journals_of(self, source: Source) -> Journals | None:
        """Return what records in the decision log which config and versions judge; None for a replay."""
        if not self._is_of_plant:
            return None
        from streamad.decisions.worker import journals_for  # noqa: PLC0415 - help needs none

        return journals_for(self._plant, of_partitions=isinstance(source, TransactionalSource))

    async def run(
        self,
        source: Source,
        committer: Committer,
        *,
        explain: bool,
        with_verdicts: bool,
        with_windows: bool,
        versions: Mapping[str, str] | None = None,
    ) -> RunReport:
        """Run to the end of the source or the first signal. Raises StreamadError."""
        from streamad.ingest.table.reading import read_table  # noqa: PLC0415
        from streamad.judge.shift import AlertWatch  # noqa: PLC0415
        from streamad.learn.serving.models import explainer_for, looking_for, models_at_work  # noqa: PLC0415
        from streamad.runtime.pipeline import Pipeline  # noqa: PLC0415
        from streamad.runtime.reports import Reporter  # noqa: PLC0415

        plant = self._plant
        explainer = None
        self._source = source
        # Several workers would overwrite each other's line.
        self._bar = Bar("waiting for the first sequence to end", quiet=self._supervised, is_endless=self._share is None)
        try:
            learning = self._learning
            if learning is not None:
                batchers = await learning.begin()
            else:
                batchers = await models_at_work(plant, versions=versions, emit=self._events.emit)
            watch = self._alert_watch = AlertWatch(
                plant.settings,
                lambda: batchers.models,
                self._events.emit,
                normal=self._normal,
                learns=learning is not None,
            )
            explainer = explainer_for(plant) if explain else None
            pipeline = Pipeline(
                plant.settings,
                source,
                committer,
                batchers,
                plant.clock,
                explainer=explainer,
                with_verdicts=with_verdicts,
                with_windows=with_windows,
                on_judged=self._on_judged,
                on_explained=self._on_explained,
                events=self._events,
                table=read_table(plant.settings, plant.base_dir),
                looking=looking_for(plant, batchers, explainer, self._events.emit),
                on_warned=self._on_warned,
                fetcher=self.fetcher,
                journals=self._journals_of(source),
            )
            if learning is not None:
                pipeline.counters.learning = learning.counters

            def request_stop() -> None:
                pipeline.request_stop()
                if learning is not None:
                    learning.request_stop()

            repeats_s = 0.0
            last = "finishing what is being scored"
            if self._supervised:
                repeats_s, last = stop_with_parent(request_stop), ""  # the supervisor prints it once for all workers
            started = time.perf_counter()
            with calm_garbage_collector(), self._bar, stop_on_signals(request_stop, last, repeats_s=repeats_s):
                models = partial(_in_service, batchers)
                reporter = Reporter(plant, pipeline, models) if self._is_of_plant else None
                async with self._beside(pipeline, batchers, explainer, self._events):
                    await self._run(pipeline, batchers, reporter)
        finally:
            self._lines.close()
            if explainer is not None:
                explainer.close()
            if self.fetcher is not None:
                await self.fetcher.close()
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
            warnings=self._warnings,
            interrupted=pipeline.was_stopped,
            resumed=pipeline.has_resumed,
            is_recorded=self._is_recorded,
            in_service={model.ref.name: model for model in batchers.models},
            many_alerts=watch.found,
        )

    async def _run(self, pipeline: Pipeline, batchers: Batchers, reporter: Reporter | None) -> None:
        """Run to the end of the source, then train what is due; learning ends before scoring."""
        learning = self._learning
        showing = asyncio.create_task(self._show_progress(pipeline.counters))
        is_clean = False
        if reporter is not None:
            reporter.start()
        try:
            await pipeline.run()
            if learning is not None:
                self._is_through = True
                await learning.close(wait=not pipeline.was_stopped)
            await pipeline.commit_events()
            is_clean = True
        except BaseException as error:
            if learning is not None and not is_stop(error):
                await learning.close(wait=False)
            if isinstance(error, StalledError):
                batchers.abandon()
            raise
        finally:
            showing.cancel()
            try:
                if reporter is not None:
                    await reporter.close(is_clean=is_clean)
            finally:
                await batchers.close()

    async def _show_progress(self, counters: Counters) -> None:
        """Update the status line; print once which training the end of the run waits for."""
        is_printed = self._quiet
        while True:
            progress = "" if self._learning is None else self._learning.progress
            self._show(counters, progress)
            if self._is_through and not is_printed and progress:
                is_printed = True
                err.print(f"all is judged; {progress}: the run ends after it (Ctrl-C: it continues at the next start)")
            await self._plant.clock.sleep(_PROGRESS_S)

    def _show(self, counters: Counters, progress: str) -> None:
        verdicts, n_ended = counters.verdicts, counters.sequences.total()
        if verdicts["normal"] or verdicts["anomalous"]:
            n_judged = verdicts.total() - verdicts["learning"]
            judged = f"{count(n_judged, 'sequence')} judged, {count(counters.alerts, 'alert')}"
        elif verdicts or progress:  # there was no model so far
            judged = f"{count(verdicts.total(), 'sequence')}, none judged yet"
        elif n_ended:
            judged = f"judging the first {count(n_ended, 'sequence')}"
        else:
            return
        text = ", ".join(part for part in (judged, progress) if part)
        if not (share := self._share):
            self._bar.show(text)
            return
        # As many sequences as ended so far lie in the share that was read.
        self._bar.show(text, verdicts.total(), max(n_ended / share, verdicts.total()))

    @property
    def _share(self) -> float | None:
        """Return how much of a recording was read, 0 while it cannot be told; None of what has no end."""
        return self._source.share_read() if isinstance(self._source, SizedSource) else None

    @property
    def _is_recorded(self) -> bool:
        return not self._is_paced and self._share is not None

    def _on_judged(self, judged: JudgedSequence, latency_us: int) -> None:
        verdict, alert = judged.verdict, judged.alert
        self._latencies_us.append(latency_us)
        if self._keeps_verdicts:
            self._verdicts.append(verdict)
        if self._alert_watch is not None:
            self._alert_watch.judged(verdict)
        if self._watcher is not None:
            self._watcher.judged(judged)
        if self._quiet:
            return
        if alert is not None:
            self._lines.alert(judged)
        elif verdict.decision == "unscorable":
            err.print(unscorable_line(verdict))

    def _on_warned(self, warning: EarlyWarning, attribution: Attribution | None) -> None:
        if self._keeps_verdicts:
            self._warnings.append(warning)
        if not self._quiet:
            err.print(warning_line(warning, attribution))

    def _on_explained(self, attribution: Attribution) -> None:
        if self._watcher is not None:
            self._watcher.explained(attribution)
        if not self._quiet:
            self._lines.explained(attribution)
