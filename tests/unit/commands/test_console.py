"""Options and output that commands share."""

from __future__ import annotations

import json

import pytest
from rich.markup import escape
from rich.table import Table

from streamad.commands.shared.console import err, one_line, out, parse_speed, print_json, print_table
from streamad.errors import UsageError

HOSTILE = "a\x1b[2J\x1b]0;title\x07\x9b31m\r\x7f\u202eb[red]"
SEEN = r"a\x1b[2J\x1b]0;title\x07\x9b31m\r\x7f\u202eb[red]"


@pytest.mark.parametrize(
    ("text", "factor"), [("max", None), ("real", 1.0), ("1", 1.0), ("10", 10.0), ("0.5", 0.5), ("1e-9", 1e-9)]
)
def test_a_speed_is_a_factor_of_real_time(text: str, factor: float | None) -> None:
    assert parse_speed(text) == factor


@pytest.mark.parametrize("text", ["", "fast", "REAL", "0", "-1", "inf", "nan", "1001"])
def test_any_other_speed_is_a_usage_error(text: str) -> None:
    with pytest.raises(UsageError, match=r"must be max, real or a factor above 0, at most 1000$"):
        parse_speed(text, at_most=1000)


def test_controls_in_names_and_notes_are_shown_and_not_obeyed(capsys: pytest.CaptureFixture[str]) -> None:
    """A sender's name could clear the screen, set the title or hide what stands behind it."""
    out.print(escape(HOSTILE))
    err.print(escape(HOSTILE))
    table = Table(box=None)
    table.add_column()
    table.add_row(escape(HOSTILE))
    print_table(table)
    printed = capsys.readouterr()
    assert [line.strip() for line in printed.out.splitlines() if line.strip()] == [SEEN, SEEN]
    assert printed.err == f"{SEEN}\n"


def test_json_on_a_terminal_has_no_controls_and_says_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    print_json({"by": HOSTILE})
    line = capsys.readouterr().out
    assert line.removesuffix("\n").isprintable()
    assert json.loads(line) == {"by": HOSTILE}


def test_a_name_cannot_pass_for_a_line_or_push_away_what_follows() -> None:
    assert one_line("kim\n  5f0c2a91   B-7" + 100 * " " + "(claimed)") == "kim 5f0c2a91 B-7 (claimed)"
