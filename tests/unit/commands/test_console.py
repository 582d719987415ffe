"""Options and output that commands share."""

from __future__ import annotations

import json
from io import StringIO

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.table import Table

from streamad.commands.shared.console import (
    Fields,
    VisibleConsole,
    err,
    note,
    notice,
    out,
    parse_speed,
    print_json,
    print_table,
    run_async,
)
from streamad.errors import UsageError
from streamad.safe_text import one_line
from streamad.system.threads import judging_on_one_thread

HOSTILE = "a\x1b[2J\x1b]0;title\x07\x9b31m\r\x7f\u202eb[red]:smile:[/x]\\["
SEEN = r"a\x1b[2J\x1b]0;title\x07\x9b31m\r\x7f\u202eb[red]:smile:[/x]\["


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
    out.print(HOSTILE)
    err.print(HOSTILE)
    table = Table(box=None)
    table.add_column()
    table.add_row(HOSTILE)
    print_table(table)
    printed = capsys.readouterr()
    assert [line.strip() for line in printed.out.splitlines() if line.strip()] == [SEEN, SEEN]
    assert printed.err == f"{SEEN}\n"


@pytest.mark.parametrize("text", ["[bold]", "[/]", ":smile:", ":warning:", "[link=http://x]y[/link]", "\\[x]"])
def test_markup_and_emoji_codes_are_printed_as_they_are(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A batch called [/] ended a command with a traceback."""
    out.print(text)
    out.print(Fields(2).add(text))
    assert capsys.readouterr().out == f"{text}\n{text}\n"


def shown_at(width: int, *fields: str) -> list[str]:
    """Return the lines of ``fields`` on a terminal of ``width`` columns."""
    page = StringIO()
    line = Fields(4)
    for field in fields:
        line.add(field)
    VisibleConsole(file=page, force_terminal=True, width=width, soft_wrap=True, no_color=True).print(line)
    return page.getvalue().splitlines()


def test_a_notice_breaks_between_words_on_a_narrow_terminal_and_is_one_line_elsewhere() -> None:
    text = "4 of 9 sequences: copies of others, as kafka://user:secret@broker/topic has them"
    assert str(note("one  fact")) == "note: one fact"
    assert str(notice("left out", f" {text}")) == f"left out {text}".replace("user:secret", "***")
    page = StringIO()
    VisibleConsole(file=page, force_terminal=True, width=30, soft_wrap=True, no_color=True).print(note("a bc " * 15))
    lines = page.getvalue().splitlines()
    assert " ".join(lines).split() == ["note:", *["a", "bc"] * 15]
    assert max(map(len, lines)) <= 30 < len(" ".join(lines))


@given(st.lists(st.text("aB7-[界é", min_size=1, max_size=40), min_size=1, max_size=8))
def test_a_narrow_terminal_breaks_a_line_between_fields_only(fields: list[str]) -> None:
    """An id that is broken in two cannot be copied."""
    lines = shown_at(80, *fields)
    assert [field for line in lines for field in line.split()] == fields
    assert max(map(cell_len, lines)) <= 80
    assert len(lines) == 1 or cell_len("  ".join(fields)) > 80


def test_lines_that_follow_are_indented() -> None:
    lines = shown_at(11, "ALERT r1", "score 1", "p 0.1", "x" * 9, "y" * 12)
    assert lines == ["ALERT r1", "    score 1", "    p 0.1", "x" * 9, "y" * 12]


def test_json_on_a_terminal_has_no_controls_and_says_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    print_json({"by": HOSTILE})
    line = capsys.readouterr().out
    assert line.removesuffix("\n").isprintable()
    assert json.loads(line) == {"by": HOSTILE}


def test_a_name_cannot_pass_for_a_line_or_push_away_what_follows() -> None:
    assert one_line("kim\n  5f0c2a91   B-7" + 100 * " " + "(claimed)") == "kim 5f0c2a91 B-7 (claimed)"


def test_no_text_is_made_of_what_async_work_returns() -> None:
    """asyncio's handling of signals shows the finished task with its result; a sample's text takes seconds."""

    class Sample:
        shown = 0

        def __repr__(self) -> str:
            Sample.shown += 1
            return "a sample"

    async def work() -> Sample:
        return Sample()

    assert isinstance(run_async(work()), Sample)
    assert Sample.shown == 0


def test_after_a_training_torch_judges_on_one_thread_and_then_has_its_own_number_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    torch = pytest.importorskip("torch")
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(3)
        monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
        with judging_on_one_thread():
            assert torch.get_num_threads() == 1
        assert torch.get_num_threads() == 3
        monkeypatch.setenv("OMP_NUM_THREADS", "3")
        with judging_on_one_thread():
            assert torch.get_num_threads() == 3
    finally:
        torch.set_num_threads(before)
