"""``streamad feedback``: an operator's marks on alerts, for learning."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from streamad.commands.shared.console import ConfigOption, JsonOption, err, notice
from streamad.commands.shared.marked import print_marked
from streamad.commands.shared.options import (
    ByOption,
    ModelOption,
    NoteOption,
    SequenceOption,
    StreamOption,
    check_names,
)
from streamad.commands.shared.plants import load_plant
from streamad.errors import UsageError
from streamad.learn.store.records import MarkKind
from streamad.messages import Feedback
from streamad.outputs.marks.table import FeedbackRow, read_feedback_csv
from streamad.outputs.marks.writing import MarkWriter


def feedback(
    *,
    config: ConfigOption = Path("plant.yaml"),
    alerts: Annotated[
        list[str] | None,
        typer.Option("--alert", metavar="ID", help="The alert's (verdict's, warning's) id; may be repeated."),
    ] = None,
    stream: StreamOption = None,
    sequence: SequenceOption = None,
    false_alarm: Annotated[
        bool, typer.Option("--false-alarm", help="It was normal: a version that waits for a person trains on it.")
    ] = False,
    confirmed: Annotated[bool, typer.Option("--confirmed", help="It was an anomaly: it does not train.")] = False,
    veto: Annotated[bool, typer.Option("--veto", help="Neither, or unknown: it does not train.")] = False,
    withdraw: Annotated[
        bool, typer.Option("--withdraw", help="Take back what was said: it counts as never marked.")
    ] = False,
    table: Annotated[
        Path | None,
        typer.Option(
            "--import",
            metavar="FILE.csv",
            help="A table with columns alert_id (or stream, sequence) and judgement; optional: note, by, assignee, "
            "comment, time, model.",
        ),
    ] = None,
    skip_bad: Annotated[
        bool, typer.Option("--skip-bad", help="Import the valid lines even if others are wrong.")
    ] = False,
    note: NoteOption = "",
    by: ByOption = None,
    model: ModelOption = None,
    as_json: JsonOption = False,
) -> None:
    """Say of alerts that they were false alarms, or confirmed anomalies.

    By itself, a mark only keeps a sequence out of training. A version that false alarms have changed waits for a
    person: see streamad models status.

    Marks go to the file or topic of the key marks, by default marks.jsonl; reports, the page and the learner read them.
    The latest mark of an id counts.

    Examples: streamad feedback --alert 5f0c2a... --false-alarm --note "filter was changed";
    streamad feedback --import shift.csv
    """
    options: dict[MarkKind, bool] = {
        "false_alarm": false_alarm,
        "confirmed": confirmed,
        "veto": veto,
        "withdrawn": withdraw,
    }
    chosen: list[MarkKind] = [judgement for judgement, is_given in options.items() if is_given]
    _check(chosen, alerts, stream, sequence, table, note, skip_bad=skip_bad)
    plant = load_plant(config)
    writer = MarkWriter(plant, model, by=by)
    if table is not None:
        marked = writer.write(_of_table(writer, table, plant.settings.decode.max_clock_skew, skip_bad=skip_bad))
    else:
        ids = [*(alerts or []), *([writer.id_of(stream, sequence)] if stream and sequence else [])]
        marked = writer.write([writer.message(alert_id, chosen[0], note) for alert_id in ids])
    print_marked(marked, as_json=as_json)


def _check(  # noqa: PLR0917 - the command's options
    chosen: list[MarkKind],
    alerts: list[str] | None,
    stream: str | None,
    sequence: str | None,
    table: Path | None,
    note: str,
    *,
    skip_bad: bool,
) -> None:
    """Raise UsageError for contradicting or missing options."""
    if table is not None:
        if chosen or alerts or stream or sequence or note:
            raise UsageError("--import names sequences and marks: leave the other options out (except --by, --model)")
        return
    if skip_bad:
        raise UsageError("--skip-bad goes with --import")
    check_names(stream, sequence)
    if not alerts and stream is None:
        raise UsageError("name a sequence: --alert ID, --stream and --sequence, or --import FILE.csv")
    if len(chosen) != 1:
        which = "one of --false-alarm, --confirmed, --veto and --withdraw"
        raise UsageError(f"give {which}" if not chosen else f"only {which} can be true of a sequence")


def _of_table(writer: MarkWriter, path: Path, skew_us: int, *, skip_bad: bool) -> list[Feedback]:
    """Return the feedback in a table. Raises UsageError for wrong lines, after printing each; SourceError."""
    rows, problems = read_feedback_csv(path, now_us=writer.now_us, by=writer.by, skew_us=skew_us)
    found: list[Feedback] = []
    first: dict[tuple[str, datetime], tuple[int, MarkKind]] = {}
    for row in rows:
        try:
            one = _identified(writer, row)
            line, judgement = first.setdefault((one.alert_id, one.created_at), (row.line, one.judgement))
            if judgement != one.judgement:
                raise UsageError(f"{one.judgement}, but line {line} of the same time has {judgement}")
            found.append(one)
        except UsageError as error:
            problems.append(f"line {row.line}: {error}")
    for problem in sorted(problems, key=lambda text: int(text.removeprefix("line ").partition(":")[0])):
        err.print(notice("left out" if skip_bad else "wrong", f" {problem}"))
    if problems and (not skip_bad or not found):
        then = "" if skip_bad else ": correct that, or import the others with --skip-bad"
        wrong = "1 line is wrong" if len(problems) == 1 else f"{len(problems)} lines are wrong"
        raise UsageError(f"{path}: {wrong}, nothing was imported{then}")
    return found


def _identified(writer: MarkWriter, row: FeedbackRow) -> Feedback:
    """Return the row's feedback with whole id and model name. Raises UsageError if either is unknown."""
    model = writer.model_of(row.feedback.model)
    alert_id = writer.whole_id(row.key) if isinstance(row.key, str) else writer.id_of(*row.key)
    return msgspec.structs.replace(row.feedback, alert_id=alert_id, model=model)
