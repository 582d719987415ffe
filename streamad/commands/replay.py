"""``streamad replay``: the verdicts of the monitor on recordings."""

from __future__ import annotations

import re
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Annotated, Literal

import typer

from streamad.commands.shared.console import (
    Bar,
    ConfigOption,
    JsonOption,
    count,
    err,
    judge_on_one_thread,
    note,
    out,
    parse_speed,
    print_json,
    printed,
    run_async,
)
from streamad.commands.shared.figures.certification import certification_of
from streamad.commands.shared.figures.faults import found_faults_in_service, lines_of_faults
from streamad.commands.shared.figures.labels import (
    LabelColumnOption,
    LabelIdOption,
    LabelOptions,
    Labels,
    LabelsOption,
    NormalOption,
)
from streamad.commands.shared.figures.losses import check_usable
from streamad.commands.shared.figures.report import print_summary
from streamad.commands.shared.figures.warnings import warning_figures
from streamad.commands.shared.monitor import Monitor
from streamad.commands.shared.offline import JobsOption, OnOption, judge_files
from streamad.commands.shared.options import (
    FromOption,
    SinceOption,
    UntilOption,
    VersionOption,
    input_url,
    local_path,
    open_input,
    span_now,
    versions_asked,
)
from streamad.commands.shared.plants import check_out, load_whole_plant
from streamad.errors import UsageError
from streamad.judge.judging import JudgedSequence
from streamad.judge.shift import lines_of
from streamad.learn.parts import registry_of
from streamad.messages import Attribution, Role, Verdict
from streamad.outputs.cases import Case, Normals, courses_of_window
from streamad.pictures.content import Picture
from streamad.pictures.drawing import check_extra, drawn
from streamad.pictures.facts import Facts
from streamad.plant import Plant
from streamad.plugins import connect_sink
from streamad.ports import Sink
from streamad.runtime.checkpoint import UnsavedCommitter
from streamad.runtime.recordings import MeasuredSource, PacedSource
from streamad.settings.places import OUTPUT_ROLES
from streamad.system.files import write_atomically, writing

MOST_PICTURES = 200
_UNSAFE = re.compile(r"[^A-Za-z0-9_-]+")
_NAME_CHARACTERS = 40
_ID_CHARACTERS = 8


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
        Path | None,
        typer.Option(
            "--out", callback=local_path, help="New folder for alerts.jsonl, verdicts.jsonl and the other outputs."
        ),
    ] = None,
    form: Annotated[
        Literal["jsonl", "parquet"],
        typer.Option(
            "--format",
            help="With --out: jsonl, or parquet, with a folder for each role and a file for each file of recordings; "
            "files whose recordings, config and model are the same as before are kept.",
        ),
    ] = "jsonl",
    jobs: JobsOption = None,
    on: OnOption = None,
    plot: Annotated[
        Path | None, typer.Option("--plot", metavar="FOLDER", help="Draw a picture of every alert, at most 200.")
    ] = None,
    version: VersionOption = None,
    as_json: JsonOption = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print the figures alone.")] = False,
) -> None:
    """Judge recordings or a range of a topic as run would, without checkpoint and sinks.

    Prints the alerts; with --labels also AUC, the share found at the configured false-alarm rate, and the achieved
    false-alarm rate, with intervals, in all and by label; with --plot a picture of every alert (needs the extra plots).
    Learns nothing, whatever the config says: store and registry stay unchanged.

    With --format parquet it judges file by file, and the same command does what is left, as score --out does.

    Examples: streamad replay test.csv --labels truth.csv; streamad replay test.csv --plot pictures
    """
    label_options = LabelOptions(labels, normal, label_id, label_column)
    judge_on_one_thread()
    if _is_by_file(form, write_to, jobs, on, whole=(labels, plot, None if speed == "max" else speed)):
        judge_files(
            write_to or Path(), "replay", config, recordings=recordings, from_url=from_url, since=since, until=until,
            version=version, jobs=jobs, on=on, as_json=as_json,
        )  # fmt: skip
        return
    plant = load_whole_plant(config)
    versions = versions_asked(version, plant.settings)
    factor = parse_speed(speed)
    given = input_url(recordings, from_url)
    source = open_input(plant, given, span_now(plant, since, until))
    truth = label_options.read(source, plant.settings.decode)
    sinks = {} if write_to is None else _sinks(plant, write_to, given)
    plots = None if plot is None else Plots(plant, plot, given)
    silent = quiet or as_json

    async def work() -> None:
        monitor = Monitor(
            plant,
            quiet=silent,
            tells_events=not quiet,
            keeps_verdicts=True,
            watcher=plots,
            normal=None if truth is None else partial(_is_normal, truth),
            is_paced=factor is not None,
        )
        measured = MeasuredSource(source)
        report = await monitor.run(
            measured if factor is None else PacedSource(measured, factor, plant.clock, plant.settings, monitor.fetcher),
            UnsavedCommitter(sinks),
            explain=bool(sinks) or plots is not None or not silent,
            with_verdicts=True,
            with_windows=bool(sinks),
            versions=versions,
        )
        nothing_yet = report.interrupted and not report.verdicts
        evaluation = None if truth is None or nothing_yet else report.evaluation(truth)
        unlabelled, of_alerts = (0, 0) if truth is None else report.unlabelled(truth)
        rate, early = plant.settings.alerts.false_alarm_rate, plant.settings.alerts.early
        warned = None
        if early is not None and truth is not None and not nothing_yet:
            warned = warning_figures(report.warnings, report.verdicts, truth), early.false_alarm_rate
        certification = certification_of(report, plant.settings, truth, evaluation)
        found = found_faults_in_service(report, registry_of(plant), plant.settings)
        if as_json:
            figures = {}
            if evaluation is not None:
                figures = {**asdict(evaluation), "n_unlabelled": unlabelled, "n_unlabelled_alerts": of_alerts}
            drawn = {} if plots is None else {"pictures": plots.draw(quiet=True)}
            faults = {"found_faults": {name: asdict(one) for name, one in found.items()}} if found else {}
            warnings = {} if warned is None else {"warnings": asdict(warned[0])}
            print_json({**report.as_dict(), **figures, **warnings, **certification.as_dict(), **faults, **drawn})
        else:
            print_summary(report, rate, evaluation, warned)
            if unlabelled:
                n_all = len(report.verdicts)
                out.print(note(f"{unlabelled} of {n_all} judged sequences have no label; {of_alerts} of these alerted"))
            of_many = lines_of(report.many_alerts, plant.settings, learns=False)
            of_faults = lines_of_faults(found, certification.models)
            for line in (*of_many, *certification.lines, *of_faults):
                out.print(note(line))
            if plots is not None:
                plots.draw(quiet=False)
        if report.interrupted:
            raise typer.Exit(130)
        check_usable(report.counters, given=given, may_be_empty=since is not None or until is not None)

    run_async(work())


def _is_by_file(form: str, folder: Path | None, jobs: int | None, on: str | None, *, whole: tuple[object, ...]) -> bool:
    """Return whether recordings are judged file by file. Raises UsageError for options that do not go together.

    ``whole`` are the options that need all sequences together.
    """
    if form == "parquet" and folder is not None:
        if any(each is not None for each in whole):
            raise UsageError("--format parquet judges file by file: leave out --labels, --plot and --speed")
        return True
    if (form, jobs, on) != ("jsonl", None, None):
        raise UsageError("--format parquet goes with --out FOLDER, and --jobs and --on with both")
    return False


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


def file_name(facts: Facts) -> str:
    """Return the name of a picture's file: stream, sequence and id, of letters, digits, "-" and "_" alone."""
    parts = [_UNSAFE.sub("_", name)[:_NAME_CHARACTERS].strip("_-") or "_" for name in (facts.stream, facts.sequence)]
    return f"{'-'.join([*parts, facts.id[:_ID_CHARACTERS]])}.png"


class Plots:
    """Gathers what to draw of the first 200 alerts of a run, and draws it into ``folder`` after it.

    Raises UsageError if the folder is a place of the plant's, or a file; PluginError without matplotlib.
    """

    def __init__(self, plant: Plant, folder: Path, replayed: str | None) -> None:
        check_extra()
        if folder.exists() and not folder.is_dir():
            raise UsageError(f"--plot {folder} is a file: name a folder")
        check_out(plant, folder / "picture.png", is_recording=False, also_read=replayed, option="--plot")
        self._plant = plant
        self._folder = folder
        self._normals = Normals(plant)
        self._waiting: dict[str, JudgedSequence] = {}
        self._ready: list[Picture] = []
        self._n_alerts = 0

    def judged(self, judged: JudgedSequence) -> None:
        """Note a judged sequence: an alert waits for its attribution."""
        if judged.alert is None:
            return
        self._n_alerts += 1
        if self._n_alerts > MOST_PICTURES:
            return
        self._waiting[judged.alert.alert_id] = judged
        if judged.attribution is not None:
            self.explained(judged.attribution)

    def explained(self, attribution: Attribution) -> None:
        """Take an attribution: what the picture shows is chosen now, and the window is forgotten."""
        judged = self._waiting.pop(attribution.alert_id, None)
        if judged is not None:
            self._choose(judged, attribution)

    def draw(self, *, quiet: bool) -> int:
        """Draw all into files; return how many. Raises OutputError."""
        for judged in self._waiting.values():
            self._choose(judged, None)
        self._waiting.clear()
        with writing(self._folder):
            self._folder.mkdir(parents=True, exist_ok=True)
        with Bar("drawing", quiet=quiet) as bar:
            for number, picture in enumerate(self._ready):
                bar.show(f"drawing: picture {number + 1} of {len(self._ready)}", number, len(self._ready))
                write_atomically(self._folder / file_name(picture.facts), drawn(picture))
        if not quiet:
            out.print(f"{count(len(self._ready), 'picture')} of {count(self._n_alerts, 'alert')} in {self._shown}")
        if self._n_alerts > MOST_PICTURES:
            more = self._n_alerts - MOST_PICTURES
            err.print(
                note(f"the {more} alerts after the first {MOST_PICTURES} are not drawn: streamad explain draws one")
            )
        return len(self._ready)

    @property
    def _shown(self) -> str:
        return printed(str(self._folder))

    def _choose(self, judged: JudgedSequence, attribution: Attribution | None) -> None:
        assert judged.alert is not None
        assert judged.window is not None
        facts = Facts.of(judged.alert)
        case = Case(facts, attribution, courses_of_window(judged.window, facts, self._plant.settings))
        picture = case.picture(self._normals.of(facts))
        assert picture is not None
        self._ready.append(picture)
