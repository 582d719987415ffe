"""Read operators' feedback from a CSV table: one mark a line, by alert id or by stream and sequence."""

from __future__ import annotations

import csv
import io
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import get_args

import msgspec

from streamad.errors import SourceError, UsageError
from streamad.learn.store.records import MarkKind
from streamad.messages import Feedback
from streamad.outputs.marks.rules import feedback_problem
from streamad.ranges import parse_time_us
from streamad.system.opening import open_regular
from streamad.system.rights import reason
from streamad.types import from_us

_COLUMNS = ("alert_id", "stream", "sequence", "judgement", "note", "by", "assignee", "comment", "time", "model")
_MOST_BYTES = 1 << 24
_KINDS: dict[str, MarkKind] = {kind.replace("_", ""): kind for kind in get_args(MarkKind)}


@dataclass(frozen=True, slots=True)
class FeedbackRow:
    """One line of the table: ``key`` is the alert's id, or stream and sequence; then ``feedback`` has an empty id."""

    line: int
    key: str | tuple[str, str]
    feedback: Feedback


def _kind_of(text: str) -> MarkKind | None:
    """Return the judgement that ``text`` names (``false alarm``, ``False-Alarm``, ``falsealarm`` too), or None."""
    return _KINDS.get(re.sub(r"[-_\s]", "", text).lower())


def read_feedback_csv(
    path: Path, *, now_us: int, by: str = "", skew_us: int = 0
) -> tuple[list[FeedbackRow], list[str]]:
    """Return the good lines of a CSV file, and a problem with its line number for each other line.

    Columns: alert_id, or stream and sequence; judgement (false_alarm, confirmed, veto, withdrawn); optional note, by,
    assignee, comment, model and time (RFC 3339 with an offset, a date, or how long ago). ``by`` and ``now_us`` replace
    an empty by and time. Separated by commas, semicolons or tabs, UTF-8, 16 MiB at most. Raises SourceError if the file
    as a whole cannot be used.
    """
    try:
        file = io.StringIO(_content(path).decode("utf-8-sig"), newline="")
        header = file.readline()
        file.seek(0)
        reader = csv.DictReader(file, delimiter=max(",;\t", key=header.count), restkey="")
        reader.fieldnames = [name.strip().lower() for name in reader.fieldnames or ()]
        _check_columns(path, reader.fieldnames)
        return _sorted_out(_rows(reader, now_us, by, skew_us), path)
    except OSError as error:
        raise SourceError(f"{path}: cannot read the feedback ({reason(error, path, 'read')})") from error
    except (UnicodeDecodeError, csv.Error) as error:
        raise SourceError(f"{path}: is not a CSV file in UTF-8 ({error})") from error


def _content(path: Path) -> bytes:
    """Return the bytes of a regular file. Raises SourceError if it is too large for a table, OSError."""
    with os.fdopen(open_regular(path), "rb") as file:
        content = file.read(_MOST_BYTES + 1)
    if len(content) > _MOST_BYTES:
        raise SourceError(
            f"{path}: is larger than {_MOST_BYTES >> 20} MiB: import a table in parts, each with a header"
        )
    return content


def _check_columns(path: Path, names: list[str]) -> None:
    there = ", ".join(names) or "none"
    if "judgement" not in names:
        raise SourceError(f"{path}: no column judgement (columns: {there})")
    if "alert_id" not in names and not {"stream", "sequence"} <= set(names):
        raise SourceError(f"{path}: no column alert_id, nor stream and sequence (columns: {there})")
    twice = sorted({name for name in names if names.count(name) > 1})
    unknown = sorted(set(names) - set(_COLUMNS))
    if twice or unknown:
        wrong = f"column twice: {', '.join(twice)}" if twice else f"unknown column: {', '.join(unknown)}"
        raise SourceError(f"{path}: {wrong} (known: {', '.join(_COLUMNS)})")


def _sorted_out(found: Iterator[FeedbackRow | str], path: Path) -> tuple[list[FeedbackRow], list[str]]:
    """Return rows and problems; two different marks of one sequence with the same time are a problem."""
    rows: dict[tuple[object, datetime], FeedbackRow] = {}
    problems = []
    for row in found:
        if isinstance(row, str):
            problems.append(row)
            continue
        first = rows.setdefault((row.key, row.feedback.created_at), row)
        if first.feedback.judgement != row.feedback.judgement:
            problems.append(
                f"line {row.line}: {row.feedback.judgement}, but line {first.line} of the same time has "
                f"{first.feedback.judgement}"
            )
    if not rows and not problems:
        raise SourceError(f"{path}: holds no feedback")
    return list(rows.values()), problems


def _rows(reader: csv.DictReader[str], now_us: int, by: str, skew_us: int) -> Iterator[FeedbackRow | str]:
    for cells in reader:
        line = reader.line_num
        if cells.get(""):
            yield f"line {line}: has more cells than the header"
            continue
        row = {name: (cells.get(name) or "").strip() for name in _COLUMNS}
        if any(row.values()):
            found = _row(line, row, now_us, by, skew_us)
            yield f"line {line}: {found}" if isinstance(found, str) else found


def _row(line: int, row: Mapping[str, str], now_us: int, by: str, skew_us: int) -> FeedbackRow | str:
    """Return the row, or what is wrong with it."""
    judgement = _kind_of(row["judgement"])
    if judgement is None:
        return f"judgement {row['judgement'][:80]!r} is not one of {', '.join(_KINDS.values())}"
    if not row["alert_id"] and not (row["stream"] and row["sequence"]):
        return "names no sequence: it needs an alert_id, or stream and sequence"
    try:
        at_us = parse_time_us(row["time"], now_us, "time") if row["time"] else now_us
    except UsageError as error:
        return str(error)
    feedback = Feedback(
        alert_id=row["alert_id"],
        judgement=judgement,
        note=row["note"],
        by=row["by"] or by,
        assignee=row["assignee"],
        comment=row["comment"],
        model=row["model"] or None,
        created_at=from_us(at_us),
    )
    checked = feedback if row["alert_id"] else msgspec.structs.replace(feedback, alert_id="later")
    if (problem := feedback_problem(checked, now_us + skew_us)) is not None:
        return problem
    return FeedbackRow(line, row["alert_id"] or (row["stream"], row["sequence"]), feedback)
