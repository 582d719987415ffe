"""A table to import: what is kept of its lines, and files that are none or far too large are refused in one line."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from streamad.errors import SourceError
from streamad.outputs.marks.table import FeedbackRow, read_feedback_csv
from tests.support.waiting import returned

NOW_US = 1_772_352_930_000_000


def imported(path: Path) -> tuple[list[FeedbackRow], list[str]]:
    return returned(lambda: read_feedback_csv(path, now_us=NOW_US))


def test_a_fifo_or_device_is_refused_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "shift.csv")
    for path in (tmp_path / "shift.csv", Path("/dev/zero")):
        with pytest.raises(SourceError, match=r"cannot read the feedback \(not a regular file"):
            imported(path)


def test_a_huge_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "shift.csv"
    with path.open("wb") as file:
        file.write(b"alert_id,judgement\na1,veto\n")
        file.truncate(1 << 40)
    with pytest.raises(SourceError, match="is larger than 16 MiB: import a table in parts"):
        imported(path)


def test_a_table_of_ten_thousand_lines_is_read(tmp_path: Path) -> None:
    path = tmp_path / "shift.csv"
    path.write_text("alert_id,judgement\n" + "".join(f"a{n},veto\n" for n in range(10_000)))
    rows, problems = imported(path)
    assert (len(rows), problems) == (10_000, [])


def test_assignee_and_comment_are_kept_with_the_mark_and_bounded(tmp_path: Path) -> None:
    path = tmp_path / "shift.csv"
    path.write_text(f"alert_id,judgement,assignee,comment\na1,withdrawn,lee,valve 3\na2,veto,{'x' * 201},\n")
    rows, problems = imported(path)
    assert [(row.feedback.assignee, row.feedback.comment) for row in rows] == [("lee", "valve 3")]
    assert problems == ["line 3: assignee has 201 characters, 200 at most are kept"]
