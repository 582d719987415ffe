"""The page Decisions: each entry of the log once, by kind and page by page, with the ends of the chains."""

from __future__ import annotations

import html
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path

from streamad.decisions.chain import Decided, Head, head_of, linked
from streamad.messages import DecisionEntry
from streamad.web.store.view import View
from tests.support.web.page import PageUnderTest

AT = datetime(2026, 3, 2, 8, tzinfo=UTC)


def chain(writer: str, *decided: Decided, since: datetime = AT) -> list[DecisionEntry]:
    entries: list[DecisionEntry] = []
    head = Head()
    for number, each in enumerate(decided):
        entries.append(linked(each, writer, head, since + timedelta(minutes=number)))
        head = head_of(entries[-1])
    return entries


def page_of(folder: Path, entries: list[DecisionEntry]) -> PageUnderTest:
    return PageUnderTest(folder, entries, sinks={"decisions": "file:decisions.jsonl"})


def shown(page: PageUnderTest, path: str = "/decisions", language: str = "en") -> str:
    text = page.browser().get(path, headers={"accept-language": language}).text
    return " ".join(html.unescape(re.sub("<[^>]*>", " ", text.partition("<main")[2])).split())


def test_it_says_who_decided_what_when_and_why(tmp_path: Path) -> None:
    by_page = chain(
        "hall/page",
        Decided("approve", "default 0003", "Anna", "authenticated", "better on line 2", {"digest": "ab12"}),
        Decided("promote", "default 0003", "<b>Eve</b>", "claimed", "https://eve:geheim@host"),
    )
    by_rule = chain("hall/trainer", Decided("refuse", "default 0004", "streamad", "program", "no", {}))
    page = page_of(tmp_path, [*by_page, *by_rule, by_page[0]])
    text = shown(page)
    for part in (
        "all (3)", "approved (1)", "default 0003", "Anna (name checked)", "better on line 2", "digest ab12",
        "put into service (1)", "<b>Eve</b> (name as given)", "refused (1)", "streamad (program)", "hall/page, 1",
        by_page[0].hash[:12],
    ):  # fmt: skip
        assert part in text, part
    assert "geheim" not in text
    assert f"hall/page 2 {by_page[1].hash}" in text
    assert f"hall/trainer 1 {by_rule[0].hash}" in text
    assert text.index("put into service", text.index("hash")) < text.index("better on line 2"), "the newest first"
    assert "Anna (Name geprüft)" in shown(page, language="de")


def test_one_kind_is_shown_and_an_unknown_one_is_all(tmp_path: Path) -> None:
    decided = [Decided(kind, f"of {kind}", "kim", "claimed") for kind in ("mark", "config", "mark", "strange")]
    page = page_of(tmp_path, chain("hall/page", *decided))
    assert shown(page, "/decisions?kind=mark").count("of mark") == 2
    assert "of config" not in shown(page, "/decisions?kind=mark")
    assert "strange (1)" in shown(page, "/decisions?kind=nothing")
    assert "of config" in shown(page, "/decisions?kind=nothing")


def test_earlier_ones_are_on_further_pages_each_once(tmp_path: Path) -> None:
    decided = [Decided("mark", f"number {number}.", "kim", "claimed") for number in range(120)]
    together = chain("hall/page", *decided[:60])
    at_once = [linked(each, "other", Head(number), AT) for number, each in enumerate(decided[60:])]
    page = page_of(tmp_path, [*together, *at_once])
    seen, path, browser = [], "/decisions?kind=mark", page.browser()
    for _ in range(3):
        text = browser.get(path).text
        seen += re.findall(r"number \d+\.", text)
        older = re.search(r'href="(/decisions\?kind=mark&amp;before=[^"]+)"', text)
        path = "" if older is None else html.unescape(older[1])
    assert path == ""
    assert sorted(seen) == sorted(f"number {number}." for number in range(120))


def test_without_a_log_it_names_the_key(tmp_path: Path) -> None:
    assert "(sinks.decisions)" in shown(PageUnderTest(tmp_path))
    assert "Nothing was decided yet." in shown(page_of(tmp_path, []))


def test_made_up_kinds_and_writers_make_no_endless_page(tmp_path: Path) -> None:
    """Whoever may write the log can name a new kind and a new writer in each entry."""
    view = View(tmp_path / "view.sqlite3", keep_us=1 << 60, max_bytes=1 << 30)
    view.put([linked(Decided(f"kind {n}", "", "", "claimed"), f"writer {n}", Head(), AT) for n in range(1_001)])
    view.put(chain("hall/page", *[Decided("mark", "", "", "claimed")] * 2))
    assert (len(view.log_heads()), len(view.log_kinds())) == (1_000, 50)
    assert view.log_kinds()["mark"] == 2
