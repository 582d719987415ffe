"""Warnings on the page: apart from alerts, each leading to its sequence's verdict; running sequences by their p."""

from __future__ import annotations

import asyncio
import re
from datetime import timedelta
from itertools import permutations
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from streamad.messages import Looked, OpenSequence, WarningRef
from streamad.messages.accepting import accepted
from streamad.pictures.content import NormalCourse
from streamad.types import from_us
from streamad.web.charts.looks import said_of, small_line
from streamad.web.pages.departures import departure_of
from streamad.web.reading import Reading
from tests.support.waiting import LIMIT_S
from tests.support.web.messages import MODEL, messages_of, reasons_of, verdict, warning_of
from tests.support.web.page import SAME, PageUnderTest
from tests.support.web.status import curve_of, opened, status_of

SINKS = {role: f"file:{role}.jsonl" for role in ("alerts", "warnings", "attributions", "verdicts")}
SINKS["status"] = "file:status"
EARLY = {"false_alarm_rate": 0.02, "early": {"false_alarm_rate": 0.01}}


def looked(p_value: float = 0.2, largest: tuple[float, ...] = (-0.5, 1.5), **more: Any) -> Looked:
    given = {"age": 0.3, "limit": 3.0, "ages": [0.1 * (1 + number) for number in range(len(largest))]}
    return Looked(model=MODEL, p_value=p_value, largest=list(largest), **(given | more))


def page_of(folder: Path, *messages: Any, **more: Any) -> PageUnderTest:
    given = {"alerts": EARLY, "learning": None, "display": {"open": True}, "sinks": SINKS, **more}
    return PageUnderTest(folder, messages, **given)


def tell(page: PageUnderTest, *still_open: OpenSequence) -> None:
    page.workers.take(status_of(open_=still_open, created_at=from_us(page.plant.clock.now_us())))


def of_warning(i: int, **more: Any) -> OpenSequence:
    """Return the sequence of ``warning_of(i)`` while it runs."""
    warning = warning_of(i)
    one = opened(warning.stream, warning.sequence, 30, warning.start_time)
    return msgspec.structs.replace(one, looked=looked(**more))


def test_a_warning_of_a_running_sequence_stands_in_the_banner_and_apart_from_the_alerts(tmp_path: Path) -> None:
    warning = warning_of(1)
    page = page_of(tmp_path, *messages_of(2)[:2], warning, reasons_of(warning))
    tell(page, of_warning(1))
    text = page.browser().get("/").text
    assert "⚠ 1 running sequence leaves the normal course" in text
    assert "reactor-1 B-1 at 54\u00a0%" in text
    table = text[text.index('id="warnings"') : text.index('id="alerts"')]
    for part in (
        f'href="/s/{warning.warning_id}"',
        "temp_c 2 K above the band from 13\u00a0s to 27\u00a0s",
        "┄ running",
    ):
        assert part in table
    assert warning.warning_id not in text[text.index('data-walk="alerts"') : text.index("<h2>Running</h2>")]
    assert "at most 1\u00a0% are ever warned of" in text


def test_without_warnings_and_the_section_nothing_is_said_of_them(tmp_path: Path) -> None:
    page = page_of(tmp_path, *messages_of(1)[:2], alerts={"false_alarm_rate": 0.02})
    assert "Warning" not in page.browser().get("/").text


def test_before_the_verdict_the_page_says_that_nothing_can_be_judged_then_it_leads_to_the_verdict(
    tmp_path: Path,
) -> None:
    warning = warning_of(1)
    page = page_of(tmp_path, warning, reasons_of(warning))
    tell(page, of_warning(1))
    client = page.browser()
    text = client.get(f"/s/{warning.warning_id}").text
    age = "54\u00a0% of the usual length (27\u00a0s)"
    for part in (f"leaves the normal course at {age}", "cannot be judged before its end",
                 "/running?name=reactor-1", "100\u00a0%", "look 5 of model default 0001"):  # fmt: skip
        assert part in text
    assert "<form" not in text
    answer = client.post(f"/s/{warning.warning_id}/mark", data={"judgement": "false_alarm"}, headers=SAME)
    assert answer.status_code == 422
    assert "cannot be judged" in answer.text

    page.view.put([verdict(1, warning=WarningRef(warning.warning_id, warning.age))])
    answer = client.get(f"/s/{warning.warning_id}")
    assert (answer.status_code, answer.headers["location"]) == (303, f"/s/{1:032x}")
    text = client.get(f"/s/{1:032x}").text
    age = "54\u00a0% of the usual length (27\u00a0s)"
    warned = f"◆ Warned of while it ran, at {age}, 23\u00a0s before its end, p 0.01: temp_c 2 K"
    assert f"{warned} above the band" in text
    assert 'value="false_alarm"' in text, "a false warning of a normal sequence can be said to be one"


@pytest.mark.parametrize("judgement", ["false_alarm", "confirmed"])
def test_a_mark_on_the_verdict_is_shown_beside_the_warning(judgement: str, tmp_path: Path) -> None:
    warning = warning_of(1)
    page = page_of(tmp_path, warning, verdict(1))
    client = page.browser()
    assert client.post(f"/s/{1:032x}/mark", data={"judgement": judgement}, headers=SAME).status_code == 303
    for path in ("/", "/warnings"):
        (state,) = re.findall(r'data-head="since then">(.*?)</td>', client.get(path).text, re.DOTALL)
        assert "● normal</span> 23\u00a0s later" in state
        assert f"{judgement.replace('_', ' ')} by kim" in state


def test_a_warning_whose_sequence_no_worker_names_is_neither_running_nor_in_the_banner(tmp_path: Path) -> None:
    page = page_of(tmp_path, warning_of(1))
    tell(page)
    text = page.browser().get("/").text
    assert "no verdict yet" in text
    assert "the normal course" not in text


@pytest.mark.parametrize(
    ("p99_ms", "lag", "said"),
    [(9.0, 0, "9 ms"), (9.0, None, "9 ms"), (499_000.0, 0, "499 s"), (5e5, 0, "over 500 s"), (5e5, None, ""),
     (None, 0, "")],
)  # fmt: skip
def test_a_latency_beyond_what_is_measured_is_said_to_be_one(
    p99_ms: float | None, lag: int | None, said: str, tmp_path: Path
) -> None:
    """A source without a lag is a file: samples of the past, as the demo plays them, have latencies of years."""
    page = page_of(tmp_path, verdict(1))
    page.workers.take(status_of(latency_p99_ms=p99_ms, lag=lag, created_at=from_us(page.plant.clock.now_us())))
    (shown,) = re.findall(r'data-head="99 of 100 verdicts within">(.*?)</td>', page.browser().get("/").text)
    assert shown.strip() == said


def test_the_first_warning_under_an_id_stays_and_hides_no_alert(tmp_path: Path) -> None:
    forged = warning_of(1, warning_id=f"{1:032x}", stream="other", time=warning_of(1).time - timedelta(days=2_000))
    page = page_of(tmp_path, forged, warning_of(1, warning_id=f"{1:032x}"), *messages_of(1)[:2])
    found = page.view.warning(f"{1:032x}")
    assert found is not None
    assert (found.stream, found.verdict) == ("other", None)
    page.view.trim()
    assert page.view.warning(f"{1:032x}") is None
    assert "▲ ALERT" in page.browser().get(f"/s/{1:032x}").text


def test_all_warnings_are_reached_also_those_of_one_moment(tmp_path: Path) -> None:
    at = warning_of(1).time
    page = page_of(tmp_path, *(warning_of(i, warning_id=f"{i:032x}", time=at) for i in range(300)))
    client, path, found = page.browser(), "/warnings", list[int]()
    while path:
        text = client.get(path).text
        found += [int(each, 16) for each in re.findall(r'<a href="/s/([0-9a-f]{32})"', text)]
        older = re.search(r'href="(/warnings\?before=[^"]*)"', text)
        path = older[1].replace("&amp;", "&") if older else ""
    assert found == list(range(300))


def test_running_sequences_are_ordered_by_p_with_their_lines_then_the_newest(tmp_path: Path) -> None:
    page = page_of(tmp_path, warning_of(1))
    others = [opened("mixer-1", "C-1"), opened("mixer-2", "C-2", start=warning_of(9).start_time)]
    usual = msgspec.structs.replace(opened("mixer-3", "C-3"), looked=looked(0.6))
    tell(page, *others, usual, of_warning(1, p_value=0.005, largest=(1.0, 4.0)))
    text = page.browser().get("/").text
    assert re.findall(r'<a href="/running\?name=[^"]*"[^>]*>([BC]-\d)</a>', text) == ["B-1", "C-3", "C-2", "C-1"]
    assert text.count('<svg class="looks"') == 2
    assert "◆ at 54\u00a0%" in text
    assert "2 open sequences" in text


def test_the_page_of_a_running_sequence_has_its_line_and_its_warning(tmp_path: Path) -> None:
    warning = warning_of(1)
    page = page_of(tmp_path, warning, reasons_of(warning))
    one = of_warning(1, p_value=0.005, largest=(1.0, 4.0))
    tell(page, one)
    path = f"/running?name={one.stream}"
    for is_written in (False, True):  # also without the readings
        if is_written:
            page.workers.take(curve_of(one, [[1.0, 2.0, 3.0]]))
        text = page.browser().get(path).text
        for part in ("is at 30\u00a0% of the usual length: p 0.005, a warning at 0.01 or less", 'class="looks large"',
                     "Warned of</span> at 54\u00a0%: temp_c 2 K above the band"):  # fmt: skip
            assert part in text, is_written


def test_the_line_of_a_sequence_ends_at_its_age_and_is_odd_from_the_limit_on() -> None:
    usual, odd = small_line(looked()), small_line(looked(largest=(1.0, 3.0)))
    assert "odd" not in usual
    assert 'class="course odd"' in odd
    assert said_of(looked()) == "largest deviation 1.5 at 20\u00a0% of the usual length, a warning from 3 on"
    assert "no limit" in said_of(looked(limit=None))
    for far in (1e3, 1e11):
        assert "nan" not in small_line(looked(largest=(1.0, far)))


AT = np.arange(10, dtype=np.float64)
BAND = AT, NormalCourse(*(np.full(10, each, dtype=np.float64) for each in (-1, 0, 1, -2, 2)))


@pytest.mark.parametrize(
    ("readings", "said"),
    [
        ([0, 0, 0, 0, 0], None),
        ([0, 0, 5, 5, 0], None),  # two readings are noise
        ([0, 5, 5, 5, 0], "▲ 4 K above the band from 1\u00a0s to 3\u00a0s"),
        ([0, 0, -3, -3, -3], "▼ 2 K below the band since 2\u00a0s"),
        ([0, np.nan, 3, 3, 3], "▲ 2 K above the band since 2\u00a0s"),
        ([np.nan] * 5, None),
    ],
)
def test_a_channel_has_left_the_band_if_three_readings_in_a_row_lie_outside(readings: list[float], said: str) -> None:
    found = departure_of(AT[:5], np.array(readings, dtype=np.float64), BAND, "K")
    assert (None if found is None else found.said) == said
    assert found is None or found.is_now == ("since" in found.said)


def test_beyond_the_band_s_end_nothing_is_said() -> None:
    assert departure_of(AT + 100, np.full(10, 9.0), BAND, "K") is None


@pytest.mark.parametrize(
    "wrong",
    [
        {"p_value": 1.5},
        {"largest": []},
        {"ages": [0.2, 0.1]},
        {"ages": [0.1] * 60, "largest": [1.0] * 60},
        {"largest": [0.0, 1e300]},
        {"limit": -1e300},
        {"warning_id": "../x"},
    ],
)
def test_looks_that_no_worker_writes_are_left_out_of_its_status(wrong: dict[str, Any]) -> None:
    usual = msgspec.structs.replace(opened(), looked=looked())
    odd = msgspec.structs.replace(usual, looked=msgspec.structs.replace(looked(), **wrong))
    found = accepted(status_of(open_=[usual, odd])).open
    assert [one.looked for one in found] == [looked(), None]


@pytest.mark.parametrize(
    "wrong", [{"age": 1e308}, {"age": -0.1}, {"p_value": 1.5}, {"p_value": -1e-9}, {"score": 1e300}]
)
def test_warnings_that_no_look_raises_are_refused(wrong: dict[str, Any]) -> None:
    assert accepted(warning_of(1)) == warning_of(1)
    with pytest.raises(msgspec.ValidationError, match="no look"):
        accepted(warning_of(1, **wrong))


def test_a_warning_and_its_verdict_meet_in_any_order(tmp_path: Path) -> None:
    warning = warning_of(1)
    messages = [warning, reasons_of(warning), verdict(1)]
    for number, order in enumerate(permutations(messages)):
        (tmp_path / str(number)).mkdir()
        page = page_of(tmp_path / str(number), *order)
        found = page.view.warning(warning.warning_id)
        assert found is not None
        assert found.verdict == verdict(1).verdict_id
        assert page.view.attribution(warning.warning_id) == reasons_of(warning)
        assert page.view.warning_of("reactor-1", "B-1", found.start_us) == found


async def test_without_a_sink_of_their_own_warnings_are_read_from_the_alerts(tmp_path: Path) -> None:
    sinks = {"alerts": "file:alerts.jsonl", "verdicts": "file:verdicts.jsonl"}
    page = page_of(tmp_path, sinks=sinks)
    (tmp_path / "alerts.jsonl").write_bytes(msgspec.json.encode(warning_of(1)) + b"\n")
    came = asyncio.Event()
    reading = asyncio.create_task(Reading(page.plant, page.view, came.set).run())
    try:
        async with asyncio.timeout(LIMIT_S):
            await came.wait()
        assert page.view.warning(warning_of(1).warning_id) is not None
    finally:
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)
