"""``streamad run``: monitors the source of the config."""

from __future__ import annotations

import platform
import re
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from streamad.commands.run.learner import LearnerBeside, learner_beside, learner_command
from streamad.commands.run.processes import Supervisor, page_beside, supervised_command
from streamad.commands.shared.console import (
    ConfigOption,
    JsonOption,
    count,
    err,
    judge_on_one_thread,
    note,
    out,
    print_json,
    run_async,
    stop_on_signals,
)
from streamad.commands.shared.figures.losses import check_usable, lost, unscorable_text
from streamad.commands.shared.figures.report import RunReport, print_summary
from streamad.commands.shared.monitor import Beside, Monitor
from streamad.commands.shared.plants import load_whole_plant, located, need_web, table_is_refused
from streamad.errors import ConfigError, Problem, UsageError
from streamad.judge.shift import lines_of
from streamad.learn.parts import registry_of
from streamad.learn.registry.places.place import RegistryAwayError
from streamad.plant import Plant
from streamad.plugins import without_options
from streamad.ports import Source, TransactionalSource
from streamad.runtime.wiring import check_clock, committer_for, source_for

_LAST_PORT = 65_535


def run(
    ctx: typer.Context,
    *,
    config: ConfigOption = Path("plant.yaml"),
    as_json: JsonOption = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Do not print alerts.")] = False,
    workers: Annotated[
        int,
        typer.Option(min=1, help="Processes that share the partitions, as one consumer group (Kafka)."),
    ] = 1,
    instance: Annotated[
        str | None,
        typer.Option(
            help="Name of this worker in its group (static membership, Kafka): after a restart it gets its partitions "
            "back at once. Unique for each worker.",
            metavar="NAME",
        ),
    ] = None,
    accept_gap: Annotated[
        bool,
        typer.Option(
            "--accept-gap", help="Continue although the topic no longer holds samples without a verdict (Kafka)."
        ),
    ] = False,
    web: Annotated[
        bool,
        typer.Option(
            "--web",
            help="Serve the page beside the run, in a process of its own (as streamad web); it needs the extra web.",
        ),
    ] = False,
    port: Annotated[
        int | None, typer.Option(min=0, max=65_535, help="Port of the page; 0: any free one. [default: web.port]")
    ] = None,
    supervised: Annotated[bool, typer.Option(hidden=True)] = False,
    number: Annotated[int, typer.Option(hidden=True, min=0)] = 0,
) -> None:
    """Read the source, judge every finished sequence, and write alerts to the sinks.

    Continues where the last run stopped: with the checkpoint (files) or the progress topic (Kafka) every verdict is
    written exactly once, also after a crash. Ctrl-C stops after the sequences being scored are committed.

    Example: streamad run --workers 4
    """
    judge_on_one_thread()
    if port is not None and not web:
        raise UsageError("--port is the page's: use it with --web")
    if web:
        need_web()
    plant = load_whole_plant(config)
    if (refused := table_is_refused(plant)) is not None:
        raise ConfigError(located([Problem("sequences.table", refused)]), source=str(config))
    given = {"instance": instance, "accept_gap": accept_gap or None}
    plant = with_options(plant, {key: value for key, value in given.items() if value is not None})
    plant = with_metrics_of(plant, number)
    verbosity = (ctx.parent.params if ctx.parent is not None else {}).get("verbosity", 0)
    page = None
    if web:
        page = supervised_command("web", config, verbosity, *(() if port is None else ("--port", str(port))))
    learner = learner_command(plant, config, verbosity) if not supervised else None
    if workers > 1:
        if as_json:
            raise UsageError("--json works with one worker: several would print one result each")
        options = [*(["--quiet"] if quiet else []), *(["--accept-gap"] if accept_gap else [])]
        program = supervised_command("run", config, verbosity, *options)
        run_async(_supervise(plant, workers, program, page, learner))
        return
    settings = plant.settings

    async def work() -> None:
        check_clock(plant)
        source = source_for(plant)
        async with page_beside(page) as beside:
            is_stopped = await monitor_source(source)
            if beside is not None and not is_stopped:
                await beside.stay()

    async def monitor_source(source: Source) -> bool:
        """Run to the end of the source or to a requested stop; return whether it was that."""
        monitor = Monitor(
            plant,
            quiet=quiet,
            learns=True,
            supervised=supervised,
            beside=_beside(plant, source),
            learner=None if learner is None else partial(LearnerBeside, learner, plant.clock),
        )
        report = await monitor.run(
            source,
            committer_for(plant, source),
            explain=settings.sinks.attributions is not None or not quiet,
            with_verdicts=settings.sinks.verdicts is not None,
            with_windows=settings.sinks.windows is not None,
        )
        if as_json:
            print_json(report.as_dict())
        elif supervised:
            err.print(worker_line(str(settings.source.options.get("instance")), report))
        else:
            print_summary(report, settings.alerts.false_alarm_rate)
            for line in lines_of(report.many_alerts, settings, learns=settings.learning is not None):
                out.print(note(line))
        if not report.interrupted and (report.counters["records"] or not report.resumed):
            check_usable(report.counters, f"no record is in {settings.source.url}: is source.url right?")
        return report.interrupted

    run_async(work())


def worker_line(name: str, report: RunReport) -> str:
    """Return what one of several workers has done, and what it could not use."""
    parts = [f"{count(report.sequences, 'sequence')} judged", count(report.counters["alerts"], "alert")]
    if reasons := unscorable_text(report.counters["unscorable"]):
        parts.append(f"unscorable ({reasons})")
    parts += [f"{loss.what}: {loss.text}" for loss in lost(report.counters)]
    for model, found in report.many_alerts.items():
        many = f"{found.n_alerts} of {found.n_judged} judged sequences"
        parts.append(f"far too many alerts of {model}: {many}, see the event many_alerts")
    return f"worker {name}: {'; '.join(parts)}"


def with_options(plant: Plant, options: dict[str, Any]) -> Plant:
    """Return ``plant`` with ``options`` of its source replaced, also those in its URL."""
    source = plant.settings.source
    changed = {"url": without_options(source.url, options), "options": {**source.options, **options}}
    source = source.model_copy(update=changed)
    return replace(plant, settings=plant.settings.model_copy(update={"source": source}))


def _beside(plant: Plant, source: Source) -> Beside | None:
    """Return what serves the worker's metrics beside its pipeline, None if the config does not ask for it."""
    if (listen := plant.settings.metrics.listen) is None:
        return None
    from streamad.commands.run.metrics import metrics_beside  # noqa: PLC0415 - 0.1 s, for those who want it

    return partial(metrics_beside, plant, listen=listen, shares_topic=isinstance(source, TransactionalSource))


def with_metrics_of(plant: Plant, number: int) -> Plant:
    """Return ``plant`` with the port of a worker's metrics: that of the config plus its number."""
    metrics = plant.settings.metrics
    if metrics.listen is None or not number:
        return plant
    host, _, port = metrics.listen.rpartition(":")
    if port == "0":
        return plant
    own = int(port) + number
    if own > _LAST_PORT:
        raise UsageError(f"metrics.listen: {metrics.listen} leaves no port for worker {number}")
    listen = metrics.model_copy(update={"listen": f"{host}:{own}"})
    return replace(plant, settings=plant.settings.model_copy(update={"metrics": listen}))


async def _supervise(
    plant: Plant, workers: int, program: list[str], page: list[str] | None, learner: list[str] | None
) -> None:
    """Run ``workers`` processes of ``program``, group members with names of their own; beside them page and learner."""
    source = source_for(plant)
    await source.close()
    if not isinstance(source, TransactionalSource):
        raise UsageError(
            f"--workers {workers}: the partitions of {plant.settings.source.url} cannot be shared among processes; "
            "a Kafka source can"
        )
    if plant.settings.learning is None and plant.settings.models is None:
        with suppress(RegistryAwayError):  # each worker says what it does without
            registry_of(plant).in_service(plant.settings.model.name)
    host = re.sub(r"[^A-Za-z0-9._-]", "-", platform.node())
    base = plant.settings.source.options.get("instance") or f"{plant.settings.name}-{host}"
    supervisor = Supervisor(
        lambda number: [*program, "--instance", f"{base}-{number}", "--number", str(number)],
        workers,
        stop_timeout_s=plant.settings.run.stop_timeout / 1e6,
    )
    serving = None if learner is None else [*learner, "--metrics"]  # at the port of the config: workers have later ones
    async with page_beside(page) as beside, learner_beside(serving, plant) as learning:
        with stop_on_signals(supervisor.request_stop):
            await supervisor.run()
        if learning is not None and not supervisor.is_stopping:
            await learning.finish()
        if beside is not None and not supervisor.is_stopping:
            await beside.stay()
