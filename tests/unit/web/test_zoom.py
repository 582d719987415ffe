"""Ranges of time: what an address names, and which ones a page leads to."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import msgspec
import pytest

from streamad.language import Asking, asked_by
from streamad.types import to_us
from streamad.web.charts.zoom import Span, part_of, percent_text, time_field, time_of, time_text, zoom_of
from tests.support.web.messages import T, verdict
from tests.support.web.page import PageUnderTest


@pytest.mark.parametrize(
    ("start", "end", "part"),
    [
        ("50", "88.5", (0.5, 0.885)),
        ("0", "100", (0.0, 1.0)),
        ("88", "50", None),
        ("50", "50", None),
        ("50", "101", None),
        ("-1", "50", None),
        ("nan", "50", None),
        ("x", "50", None),
        ("", "", None),
    ],
)
def test_a_part_of_a_sequence_is_in_per_cent(start: str, end: str, part: tuple[float, float] | None) -> None:
    assert part_of({"from": start, "to": end}) == part


def test_steps_stay_within_the_whole_and_keep_the_rest_of_the_address() -> None:
    zoom = zoom_of("/s/a", {"clock": "own"}, (0.1, 0.5), (0.0, 1.0), percent_text, is_part=True)
    assert {name: href.partition("&")[2] for name, href in zoom.steps.items()} == {
        "earlier": "from=0&to=40",
        "later": "from=50&to=90",
        "closer": "from=20&to=40",
        "wider": "from=0&to=70",
        "whole": "",
    }
    assert all(href.startswith("/s/a?clock=own") for href in zoom.steps.values())
    assert list(zoom_of("/s/a", {}, (0.0, 1.0), (0.0, 1.0), percent_text, is_part=False).steps) == ["closer"]


def test_a_time_without_an_offset_is_of_the_plant_s_zone() -> None:
    noon = to_us(datetime(2026, 7, 1, 12, tzinfo=UTC))
    assert time_of("2026-07-01T12:00") == time_of("2026-07-01T14:00:00+02:00") == time_of(time_text(noon)) == noon
    with asked_by(Asking(zone=ZoneInfo("Europe/Berlin"))):
        assert time_of("2026-07-01T14:00") == time_of(time_field(noon)) == time_of(time_text(noon)) == noon
    assert [time_of(text) for text in ("", "x", "2026-13-01", "9999-12-31T23:59:59-23:00")][:3] == [None] * 3


def test_the_last_second_of_a_span_counts_whole() -> None:
    span = Span.of({"from": "2026-01-01T00:00:00Z", "to": "2026-01-01T00:00:01Z"})
    assert span.within[1] - span.within[0] == 1_999_999
    assert not Span.of({"from": "x"}).is_part


def stream_page(folder: Path, query: str) -> str:
    given = [verdict(1 + 3 * i) for i in range(10)]  # three minutes apart, the first at 1 minute
    return str(PageUnderTest(folder, given).browser().get(f"/stream?name=reactor-1{query}").text)


def at(minutes: float) -> str:
    return f"{T + timedelta(minutes=minutes):%Y-%m-%dT%H:%M:%SZ}"


def test_a_stream_shows_the_sequences_that_ended_in_the_range_and_offers_others(tmp_path: Path) -> None:
    text = stream_page(tmp_path, f"&from={at(4)}&to={at(10)}")
    assert "Scores of 3 sequences" in text
    assert len(re.findall(r'data-head="sequence"', text)) == 3
    times = re.search(r'data-times="([\d,]+)"', text)
    assert times is not None
    assert [datetime.fromtimestamp(int(each), UTC) - T for each in times[1].split(",")] == [
        timedelta(minutes=minutes) for minutes in (4, 7, 10)
    ]
    for step in ("earlier", "later", "closer", "wider", "whole", "last day"):
        assert f">{step}</a>" in text
    assert ">whole</a>" not in stream_page(tmp_path, "")


def test_a_range_without_a_sequence_says_so_and_leads_back(tmp_path: Path) -> None:
    text = stream_page(tmp_path, "&from=2020-01-01&to=2020-01-02")
    assert "No sequence of this stream ended in this time." in text
    assert ">whole</a>" in text


def test_the_band_of_means_is_that_of_normal_sequences_if_they_are_enough(tmp_path: Path) -> None:
    given = [msgspec.structs.replace(verdict(1 + 3 * i), means=[float(i)], spreads=[0.1]) for i in range(21)]
    page = PageUnderTest(tmp_path, given[:19])
    assert "latest normal sequences" not in page.browser().get("/stream?name=reactor-1").text
    page.view.put(given[19:])
    text = page.browser().get("/stream?name=reactor-1").text
    assert "of the 21 latest normal sequences" in text
    picture = text[text.index('class="means-box"') :]
    assert picture.index('class="band"') < picture.index('class="means"')


@pytest.mark.parametrize("zone", [None, "Europe/Berlin", "America/New_York"])
@pytest.mark.parametrize("end", ["0001-01-01T00:00:00%2B14:00", "9999-12-31T23:59:59-14:00", "9999-12-31T23:59:59Z"])
def test_a_range_at_an_end_of_the_calendar_has_a_page(end: str, zone: str | None, tmp_path: Path) -> None:
    page = PageUnderTest(tmp_path, [verdict(0), verdict(3)], **({} if zone is None else {"decode": {"timezone": zone}}))
    for query in (f"from={end}", f"to={end}", f"from={end}&to={end}", f"from={end}&to={at(1)}"):
        assert page.browser().get(f"/stream?name=reactor-0&{query}").status_code == 200
