"""``streamad feedback``: what an operator says of an alert, so that learning hears of it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import msgspec
import typer
from rich.markup import escape

from streamad.commands.shared.console import ConfigOption, JsonOption, err
from streamad.commands.shared.marking import (
    ByOption,
    Desk,
    NoteOption,
    SequenceOption,
    StreamOption,
    print_marked,
)
from streamad.commands.shared.plants import load_plant
from streamad.commands.shared.stored import ModelOption
from streamad.errors import UsageError
from streamad.learn.feedback.table import FeedbackRow, read_feedback_csv
from streamad.learn.store.records import JudgementWord
from streamad.messages import Feedback


def feedback(
    *,
    config: ConfigOption = Path("plant.yaml"),
    alerts: Annotated[
        list[str] | None,
        typer.Option("--alert", metavar="ID", help="The alert's (or verdict's) id; may be repeated."),
    ] = None,
    stream: StreamOption = None,
    sequence: SequenceOption = None,
    false_alarm: Annotated[bool, typer.Option("--false-alarm", help="It was normal: it may train.")] = False,
    confirmed: Annotated[
        bool, typer.Option("--confirmed", help="It was an anomaly: it never trains, but tests new models.")
    ] = False,
    veto: Annotated[bool, typer.Option("--veto", help="Leave it out of all learning.")] = False,
    table: Annotated[
        Path | None,
        typer.Option(
            "--import",
            metavar="FILE.csv",
            help="Many at once: columns alert_id (or stream, sequence), judgement; perhaps note, by, time, model.",
        ),
    ] = None,
    skip_bad: Annotated[
        bool, typer.Option("--skip-bad", help="Import the good lines although others are wrong.")
    ] = False,
    note: NoteOption = "",
    by: ByOption = None,
    model: ModelOption = None,
    as_json: JsonOption = False,
) -> None:
    """Say of an alert whether it was right: false alarms become training material, anomalies test material.

    Goes to the topic or file learning.feedback, else into the inlier store itself. The latest word on an id counts.

    Examples: streamad feedback --alert 5f0c2a... --false-alarm --note "filter was changed";
    streamad feedback --import shift.csv
    """
    words: dict[JudgementWord, bool] = {"false_alarm": false_alarm, "confirmed": confirmed, "veto": veto}
    said: list[JudgementWord] = [word for word, is_said in words.items() if is_said]
    _check(said, alerts, stream, sequence, table, note, skip_bad=skip_bad)
    plant = load_plant(config)
    desk = Desk(plant, model, by=by)
    if table is not None:
        marked = desk.keep(_of_table(desk, table, plant.settings.decode.max_clock_skew, skip_bad=skip_bad))
    else:
        ids = [*(alerts or []), *([desk.id_of(stream, sequence)] if stream and sequence else [])]
        marked = desk.keep([desk.said(alert_id, said[0], note) for alert_id in ids])
    print_marked(marked, as_json=as_json)


def _check(  # noqa: PLR0917 - the command's options
    said: list[JudgementWord],
    alerts: list[str] | None,
    stream: str | None,
    sequence: str | None,
    table: Path | None,
    note: str,
    *,
    skip_bad: bool,
) -> None:
    """Raise UsageError for options that contradict each other, or say too little."""
    if table is not None:
        if said or alerts or stream or sequence or note:
            raise UsageError("--import says of which sequences what: leave the other options out (but --by, --model)")
        return
    if skip_bad:
        raise UsageError("--skip-bad goes with --import")
    if (stream is None) != (sequence is None):
        raise UsageError("--stream and --sequence go together: an id alone may occur on several streams")
    if not alerts and stream is None:
        raise UsageError("say of which sequence: --alert ID, --stream and --sequence, or --import FILE.csv")
    if len(said) != 1:
        which = "one of --false-alarm, --confirmed and --veto"
        raise UsageError(f"say {which}" if not said else f"only {which} can be true of a sequence")


def _of_table(desk: Desk, path: Path, skew_us: int, *, skip_bad: bool) -> list[Feedback]:
    """Return what the table says. Raises UsageError where lines are wrong, each told before; SourceError."""
    rows, problems = read_feedback_csv(path, now_us=desk.now_us, by=desk.by, skew_us=skew_us)
    found = []
    for row in rows:
        try:
            found.append(_identified(desk, row))
        except UsageError as error:
            problems.append(f"line {row.line}: {error}")
    for problem in sorted(problems, key=_line_of):
        err.print(f"[yellow]{'left out' if skip_bad else 'wrong'}[/] {escape(problem)}")
    if problems and (not skip_bad or not found):
        then = "" if skip_bad else ": mend that, or import the others with --skip-bad"
        wrong = "1 line is wrong" if len(problems) == 1 else f"{len(problems)} lines are wrong"
        raise UsageError(f"{path}: {wrong}, nothing was imported{then}")
    return found


def _identified(desk: Desk, row: FeedbackRow) -> Feedback:
    model = desk.model_of(row.feedback.model)
    alert_id = row.key if isinstance(row.key, str) else desk.id_of(*row.key)
    return msgspec.structs.replace(row.feedback, alert_id=alert_id, model=model)


def _line_of(problem: str) -> int:
    return int(problem.removeprefix("line ").partition(":")[0])
