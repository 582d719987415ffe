"""``streamad replay``: the verdicts of the monitor on recordings."""

from __future__ import annotations

from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from streamad.commands.shared.console import (
    ConfigOption,
    JsonOption,
    judge_on_one_thread,
    note,
    out,
    parse_speed,
    print_json,
    run_async,
)
from streamad.commands.shared.figures.certification import certification_of, found_faults_in_service
from streamad.commands.shared.figures.labels import (
    LabelColumnOption,
    LabelIdOption,
    LabelOptions,
    Labels,
    LabelsOption,
    NormalOption,
)
from streamad.commands.shared.figures.plots import Plots
from streamad.commands.shared.figures.report import check_usable, print_summary
from streamad.commands.shared.input import FromOption, SinceOption, UntilOption, input_url, open_input, span_now
from streamad.commands.shared.monitor import Monitor
from streamad.commands.shared.plants import check_out, load_whole_plant
from streamad.errors import UsageError
from streamad.judge.shift.many_alerts import lines_of
from streamad.learn.parts import registry_of
from streamad.messages import Role, Verdict
from streamad.plant import Plant
from streamad.plugins import connect_sink
from streamad.ports import Sink, Source
from streamad.runtime.checkpoint import UnsavedCommitter
from streamad.runtime.replay import PacedSource
from streamad.settings.places import OUTPUT_ROLES


def replay(
    recordings: Annotated[
        str | None, typer.Argument(help="Recordings to replay instead of the config's source: path or URL.")
    ] = None,
    *,
    config: ConfigOption = Path("plant.yaml"),
    from_url: FromOption = None,
    since: SinceOption = None,
    until: UntilOption = None,
    labels: LabelsOption = None,
    normal: NormalOption = None,
    label_id: LabelIdOption = None,
    label_column: LabelColumnOption = None,
    speed: Annotated[str, typer.Option(help="max, real, or a factor of real time, such as 10.")] = "max",
    write_to: Annotated[
        Path | None, typer.Option("--out", help="New folder for alerts.jsonl, verdicts.jsonl and the other outputs.")
    ] = None,
    plot: Annotated[
        Path | None, typer.Option("--plot", metavar="FOLDER", help="Draw a picture of every alert, at most 200.")
    ] = None,
    version: Annotated[str | None, typer.Option(help="Model version, if not the one in service.")] = None,
    as_json: JsonOption = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Do not print alerts.")] = False,
) -> None:
    """Judge recordings or a range of a topic as run would, without checkpoint and sinks.

    Prints the alerts; with --labels also AUC, the share found at the configured false-alarm rate, and the achieved
    false-alarm rate, with intervals, in all and by label; with --plot a picture of every alert (needs the extra plots).
    Learns nothing, whatever the config says: store and registry stay unchanged.

    Examples: streamad replay test.csv --labels truth.csv; streamad replay test.csv --plot pictures
    """
    label_options = LabelOptions(labels, normal, label_id, label_column)
    judge_on_one_thread()
    plant = load_whole_plant(config)
    factor = parse_speed(speed)
    source = open_input(plant, input_url(recordings, from_url), span_now(plant, since, until))
    truth = label_options.read(source, plant.settings.decode)
    sinks = {} if write_to is None else _sinks(plant, write_to, input_url(recordings, from_url))
    plots = None if plot is None else Plots(plant, plot, input_url(recordings, from_url))
    silent = quiet or as_json

    async def work() -> None:
        paced: Source = source if factor is None else PacedSource(source, factor, plant.clock, plant.settings)
        normal = None if truth is None else partial(_is_normal, truth)
        report = await Monitor(plant, quiet=silent, keeps_verdicts=True, watcher=plots, normal=normal).run(
            paced,
            UnsavedCommitter(sinks),
            explain=bool(sinks) or plots is not None or not silent,
            with_verdicts=True,
            with_windows=bool(sinks),
            version=version,
        )
        nothing_yet = report.interrupted and not report.verdicts
        evaluation = None if truth is None or nothing_yet else report.evaluation(truth)
        unlabelled, of_alerts = (0, 0) if truth is None else report.unlabelled(truth)
        rate = plant.settings.alerts.false_alarm_rate
        certification = certification_of(report, plant.settings, truth, evaluation)
        found = found_faults_in_service(report, registry_of(plant), plant.settings)
        if as_json:
            figures = {}
            if evaluation is not None:
                figures = {**asdict(evaluation), "n_unlabelled": unlabelled, "n_unlabelled_alerts": of_alerts}
            drawn = {} if plots is None else {"pictures": plots.draw(quiet=True)}
            faults = {"found_faults": {name: asdict(one) for name, one in found.items()}} if found else {}
            print_json({**report.as_dict(), **figures, **certification.as_dict(), **faults, **drawn})
        else:
            print_summary(report, rate, evaluation)
            if unlabelled:
                n_all = len(report.verdicts)
                out.print(note(f"{unlabelled} of {n_all} judged sequences have no label; {of_alerts} of these alerted"))
            of_many = lines_of(report.many_alerts, plant.settings, learns=False)
            of_faults = certification.lines_of_faults(found)
            for line in (*of_many, *certification.lines, *of_faults):
                out.print(note(line))
            if plots is not None:
                plots.draw(quiet=False)
        if report.interrupted:
            raise typer.Exit(130)
        check_usable(report.counters, given=input_url(recordings, from_url))

    run_async(work())


def _is_normal(truth: Labels, verdict: Verdict) -> bool:
    return truth.is_anomalous(verdict.stream, verdict.sequence) is False


def _sinks(plant: Plant, folder: Path, replayed: str | None) -> dict[Role, Sink]:
    """Make a sink of each role in ``folder``; raises UsageError if it has outputs, or is a place of the plant's."""
    existing = [role for role in OUTPUT_ROLES if (folder / f"{role}.jsonl").exists()]
    if existing:
        raise UsageError(f"{folder} already holds {existing[0]}.jsonl: name another folder with --out")
    files = {role: folder.absolute() / f"{role}.jsonl" for role in OUTPUT_ROLES}
    for path in files.values():
        check_out(plant, path, is_recording=False, also_read=replayed)
    return {role: connect_sink(f"file:{path}", {}, plant.context) for role, path in files.items()}
