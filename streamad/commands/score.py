"""``streamad score``: prints score, p-value and decision of every sequence of recordings."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from streamad.commands.shared.console import (
    Bar,
    ConfigOption,
    count,
    err,
    judge_on_one_thread,
    notice,
    out,
    print_json,
    print_table,
    run_async,
)
from streamad.commands.shared.figures.losses import check_usable, lost, unscorable_text
from streamad.commands.shared.figures.report import KNOWN_SEQUENCES
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
from streamad.commands.shared.plants import load_whole_plant
from streamad.errors import UsageError
from streamad.ingest.table.reading import read_table
from streamad.judge.scoring import ModelInService
from streamad.judge.verdicts import p_text
from streamad.messages import Verdict
from streamad.offline.judging import SequenceJudge, judged
from streamad.offline.models import Models
from streamad.plant import Plant
from streamad.ports import Source
from streamad.safe_text import visible_name
from streamad.telemetry.metrics import Counters


def score(
    recordings: Annotated[
        str | None, typer.Argument(help="Recordings: path or URL. Default: the config's source.")
    ] = None,
    *,
    config: ConfigOption = Path("plant.yaml"),
    from_url: FromOption = None,
    since: SinceOption = None,
    until: UntilOption = None,
    version: VersionOption = None,
    write_to: Annotated[
        Path | None,
        typer.Option(
            "--out",
            callback=local_path,
            metavar="FOLDER",
            help="Write the verdicts of each file to FOLDER/verdicts as Parquet; memory does not grow with the "
            "recordings. Files whose recordings, config and model are the same as before are kept.",
        ),
    ] = None,
    jobs: JobsOption = None,
    on: OnOption = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one verdict per line as JSON; with --out the counts as one object.")
    ] = False,
    quiet: Annotated[
        bool, typer.Option("--quiet", "-q", help="Print the counts of decisions instead of a line for each sequence.")
    ] = False,
) -> None:
    """Print score, p-value and decision of every sequence, or write them as Parquet with --out.

    With several models (models in the config) each sequence is scored by its own model. With --out the unit of work is
    a separate file, or all joined files together. After Ctrl-C, a crash or a file that failed the same command does
    what is left.

    Examples: streamad score batch-17.csv; streamad score 'years/*.parquet' --out verdicts --jobs 4
    """
    if as_json and quiet:
        raise UsageError("--json prints each verdict and --quiet none: leave one out")
    if write_to is None and (jobs, on) != (None, None):
        raise UsageError(f"{'--jobs' if on is None else '--on'} goes with --out FOLDER: verdicts on several files")
    judge_on_one_thread()
    if write_to is not None:
        judge_files(
            write_to, "score", config, recordings=recordings, from_url=from_url, since=since, until=until,
            version=version, jobs=jobs, on=on, as_json=as_json,
        )  # fmt: skip
        return
    plant = load_whole_plant(config)
    settings = plant.settings
    models = Models(plant, versions_asked(version, settings), _warn_of_backends)
    if settings.models is None:
        models.get(settings.model.name)
    given = input_url(recordings, from_url)
    source = open_input(plant, given, span_now(plant, since, until))
    judge, counters = SequenceJudge(plant, models), Counters()
    verdicts = run_async(_judged(plant, source, judge, counters))
    judge.check_models()
    counted = counters.as_dict()
    check_usable(counted, given=given, may_be_empty=since is not None or until is not None)
    for loss in lost(counted):
        err.print(notice(loss.what, f": {loss.text}"))
    if judge.n_known:
        err.print("warning: " + KNOWN_SEQUENCES.format(judge.n_known, len(verdicts)))
    if as_json:
        for verdict in verdicts:
            print_json(verdict)
        return
    if reasons := unscorable_text(judge.reasons):
        err.print(notice("unscorable", f": {reasons}"))
    if quiet:
        each = ", ".join(f"{n} {decision}" for decision, n in sorted(judge.decisions.items()))
        out.print(count(len(verdicts), "sequence") + (f" ({each})" if each else ""))
        return
    table = Table("stream", "sequence", "samples", "score", "p", "decision", box=None)
    for verdict in verdicts:
        table.add_row(
            visible_name(verdict.stream),
            visible_name(verdict.sequence),
            str(verdict.n_samples),
            "" if verdict.score is None else f"{verdict.score:.4f}",
            "" if verdict.p_value is None else p_text(verdict.p_value),
            verdict.decision + (f": {verdict.detail}" if verdict.detail else ""),
        )
    print_table(table, whole=("stream", "sequence", "score", "p"))


def _warn_of_backends(model: ModelInService) -> None:
    for line in model.refused:
        err.print(notice("backend refused", f": {line}"))


async def _judged(plant: Plant, source: Source, judge: SequenceJudge, counters: Counters) -> list[Verdict]:
    """Return all verdicts by the time of their beginning."""
    table = read_table(plant.settings, plant.base_dir)
    with Bar("reading") as bar:

        def show(counters: Counters, share: float | None) -> None:
            bar.show(f"reading: {counters.samples} samples, {counters.sequences.total()} sequences", share)

        found = [
            each async for verdicts in judged(plant, source, judge, counters, show, table=table) for each in verdicts
        ]
    return sorted(found, key=lambda verdict: verdict.start_time)
