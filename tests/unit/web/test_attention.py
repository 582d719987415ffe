"""The page Now with clocks that are wrong: nothing of the year 2099 or 1970 hides what happens now."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from streamad.messages import Event
from streamad.types import to_us
from streamad.web.pages.span import span_of
from streamad.web.rendering import duration
from tests.support.web.messages import T, messages_of, verdict
from tests.support.web.page import PageUnderTest

NOW = datetime.now(UTC)
DAY = timedelta(days=1)


def dated(message: Any, end: datetime, **more: Any) -> Any:
    """Return ``message`` about a sequence of 50 s that ended at ``end``."""
    if not hasattr(message, "end_time"):
        return msgspec.structs.replace(message, created_at=end, **more)
    start = end - timedelta(seconds=50)
    return msgspec.structs.replace(message, **({"start_time": start, "end_time": end, "created_at": end} | more))


def recent(n: int = 20) -> list[Any]:
    return [dated(verdict(i), NOW - timedelta(minutes=i)) for i in range(n)]


def event(kind: str, at: datetime, message: str = "") -> Event:
    return Event(kind=kind, message=message or f"text of {kind}", created_at=at)


def now(tmp_path: Path, *messages: Any) -> str:
    return PageUnderTest(tmp_path, messages).browser().get("/").text


def bars(text: str) -> dict[str, float]:
    """Return the left edge of each sequence's bar in the lines."""
    found = re.findall(r'<a href="/s/(\w+)"[^>]*><title>[^<]*</title><rect class="bar \w+" x="([\d.]+)%"', text)
    return {name: float(x) for name, x in found}


def ids(messages: list[Any]) -> set[str]:
    return {each.verdict_id for each in messages}


@pytest.mark.parametrize("wrong", [datetime(2099, 1, 1, tzinfo=UTC), datetime(1970, 1, 2, tzinfo=UTC)])
def test_one_verdict_with_a_wrong_clock_leaves_the_lines_as_they_are(wrong: datetime, tmp_path: Path) -> None:
    usual = recent()
    text = now(tmp_path, *usual, dated(verdict(99), wrong))
    places = bars(text)
    assert places.keys() == ids(usual)
    assert max(places.values()) - min(places.values()) > 83  # per cent


def test_a_sequence_that_began_in_1970_and_ended_now_reaches_from_the_left_edge(tmp_path: Path) -> None:
    odd = dated(verdict(99), NOW, start_time=datetime(1970, 1, 2, tzinfo=UTC))
    places = bars(now(tmp_path, *recent(), odd))
    assert places[odd.verdict_id] == 0.0
    assert max(places.values()) > 90


def test_what_is_not_drawn_is_said(tmp_path: Path) -> None:
    old, new = (dated(verdict(i), datetime(year, 1, 2, tzinfo=UTC)) for i, year in ((98, 1970), (99, 2099)))
    text = now(tmp_path, *recent(), old, new, event("drift", datetime(2099, 1, 2, tzinfo=UTC)))
    assert "1 sequence dated long before the others is not drawn" in text
    assert "1 sequence and 1 event bear times after this page" in text
    assert re.search(r"by up to \d\d\syears, the newest of stream reactor-0: look at the clock", text)


def test_recordings_of_years_ago_have_their_lines(tmp_path: Path) -> None:
    old = [dated(verdict(i), datetime(2019, 5, 1, tzinfo=UTC) + timedelta(minutes=i)) for i in range(20)]
    text = now(tmp_path, *old)
    assert bars(text).keys() == ids(old)
    assert "a clock is ahead" not in text


def test_lines_are_drawn_if_the_pages_own_clock_is_behind_all_others(tmp_path: Path) -> None:
    later = [dated(verdict(i), NOW + 3 * DAY + timedelta(minutes=i)) for i in range(20)]
    text = now(tmp_path, *later)
    assert bars(text).keys() == ids(later)
    assert "a clock is ahead" in text


def test_a_clock_that_is_a_little_ahead_stays_in_the_lines(tmp_path: Path) -> None:
    usual = recent()
    near = dated(verdict(98), NOW + timedelta(minutes=15))
    assert bars(now(tmp_path, *usual, near)).keys() == ids([*usual, near])


def test_alerts_of_the_future_are_listed_with_a_remark_and_leave_room_for_the_others(tmp_path: Path) -> None:
    future = [dated(each, NOW + 30 * DAY) for i in range(100, 160) for each in messages_of(i)[:2]]
    usual = [dated(each, NOW - timedelta(minutes=i)) for i in range(30) for each in messages_of(i)[:2]]
    table = now(tmp_path, *future, *usual).partition("Alerts, those not judged first")[2]
    listed = [int(name, 16) for name in re.findall(r'href="/s/([0-9a-f]{32})"', table)]
    assert sum(name >= 100 for name in listed) == 5
    assert len(listed) == 30
    assert "reasons follow (its clock is ahead by 30\u00a0days)" in table


@pytest.mark.parametrize("year", [2099, 2500])
def test_an_event_of_the_future_hides_no_line_of_the_banner(year: int, tmp_path: Path) -> None:
    changed = event("plant_changed", NOW - timedelta(hours=2), "all moved")
    text = now(tmp_path, *recent(), changed, event("drift", datetime(year, 1, 1, tzinfo=UTC)))
    assert "⚠ plant changed" in text
    assert "all moved" in text


def test_a_serious_event_of_the_future_is_in_the_banner_with_a_remark(tmp_path: Path) -> None:
    text = now(tmp_path, *recent(), event("plant_changed", NOW + 3 * DAY), event("drift", NOW))
    banner = text.partition("<h2>")[0]
    assert "text of plant_changed (its clock is ahead by 3\u00a0days)" in banner


def test_brokers_that_are_back_are_no_trouble(tmp_path: Path) -> None:
    silent, back = event("broker_silent", NOW - timedelta(hours=2)), event("broker_back", NOW - timedelta(hours=1))
    assert "broker silent" in now(tmp_path, *recent(), silent).partition("<h2>")[0]
    (other := tmp_path / "other").mkdir()
    again = PageUnderTest(other, [*recent(), silent, back])
    assert "broker silent" not in again.browser().get("/").text.partition("<h2>")[0]
    again.view.put([event("broker_silent", NOW)])
    assert "broker silent" in again.browser().get("/").text.partition("<h2>")[0]


def test_far_too_many_alerts_are_in_the_banner_until_they_are_over(tmp_path: Path) -> None:
    many, over = event("many_alerts", NOW - timedelta(hours=2)), event("many_alerts_over", NOW - timedelta(hours=1))
    assert "many alerts" in now(tmp_path, *recent(), many).partition("<h2>")[0]
    (third := tmp_path / "third").mkdir()
    later = PageUnderTest(third, [*recent(), many, over])
    assert "many alerts" not in later.browser().get("/").text.partition("<h2>")[0]


def test_streams_that_are_refused_are_in_the_banner(tmp_path: Path) -> None:
    assert "⚠ too many streams" in now(tmp_path, *recent(), event("too_many_streams", NOW))


def test_the_span_leaves_out_a_minority_far_before_the_rest_only(tmp_path: Path) -> None:
    page = PageUnderTest(tmp_path, [verdict(i) for i in range(9)])
    usual = page.view.latest(20)
    page.view.put([dated(verdict(99), T - 800 * DAY)])
    far = page.view.latest(20)
    assert span_of(far) == (*span_of(usual)[:2], 1)  # type: ignore[index]
    assert span_of(far[-2:]) == (to_us(T - 800 * DAY) - 50_000_000, to_us(T), 0)
    page.view.put([dated(verdict(98), T - timedelta(hours=12))])  # a night
    assert span_of([one for one in page.view.latest(20) if one.id != f"{99:032x}"])[2] == 0  # type: ignore[index]
    assert span_of([]) is None


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(119, "119 s"), (7_199, "120 min"), (172_799, "48 h"), (86_400 * 700, "700 days"), (2.3e9, "73 years")],
)
def test_times_are_said_as_people_say_them(seconds: float, text: str) -> None:
    assert duration(seconds) == text.replace(" ", "\u00a0")
