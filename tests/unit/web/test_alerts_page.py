"""Alerts on the page Now and on the page of all of them: what each row says, and the way to older ones."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from streamad.messages import Alert, Attribution, ChannelShare, Feedback
from tests.support.web.messages import T, messages_of
from tests.support.web.page import PageUnderTest


def alerts(n: int, judged: int = 0) -> list[Any]:
    """Return ``n`` alerts, a minute apart; the first ``judged`` are confirmed."""
    marks = [Feedback(alert_id=f"{i:032x}", judgement="confirmed", by="kim", created_at=T) for i in range(judged)]
    return [*(each for i in range(n) for each in messages_of(i)[:2]), *marks]


def ids(text: str) -> list[int]:
    table = text[text.index('data-walk="alerts"') :]
    return [int(name, 16) for name in re.findall(r'<td data-head="sequence"><a href="/s/([0-9a-f]{32})"', table)]


def links(text: str) -> list[str]:
    return [each.replace("&amp;", "&") for each in re.findall(r'href="(/alerts[^"]*)"', text)]


def further(text: str) -> str:
    """Return the address of the next portion, "" if there is none."""
    return next((each for each in links(text) if "before=" in each), "")


def test_a_row_names_the_version_that_judged(tmp_path: Path) -> None:
    text = PageUnderTest(tmp_path, alerts(1)).browser().get("/").text
    assert '<td data-head="model"><span class="short">default 0001</span></td>' in text


def test_up_to_30_alerts_need_no_older_ones_and_the_list_by_time_is_linked(tmp_path: Path) -> None:
    text = PageUnderTest(tmp_path, alerts(29)).browser().get("/").text
    assert further(text) == ""
    assert "/alerts" in links(text)


def test_more_than_30_unjudged_alerts_go_on_where_the_list_ends(tmp_path: Path) -> None:
    client = PageUnderTest(tmp_path, alerts(40, judged=2)).browser()
    text = client.get("/").text
    assert ids(text) + ids(client.get(further(text)).text) == list(range(39, 1, -1))


def test_all_alerts_are_reached_portion_by_portion_also_those_of_one_moment(tmp_path: Path) -> None:
    given = [
        msgspec.structs.replace(one, end_time=T + timedelta(minutes=one_of_three(one) // 3)) for one in alerts(300)
    ]
    client = PageUnderTest(tmp_path, given).browser()
    path, found = "/alerts", []
    while path:
        text = client.get(path).text
        found.append(ids(text))
        path = further(text)
    assert len(found) == 3
    assert sorted(each for portion in found for each in portion) == list(range(300))


@pytest.mark.parametrize("query", ["", "?state=new"])
def test_very_many_alerts_of_one_moment_are_all_reached(query: str, tmp_path: Path) -> None:
    given = [msgspec.structs.replace(one, start_time=T - timedelta(minutes=1), end_time=T) for one in alerts(300)]
    client = PageUnderTest(tmp_path, given).browser()
    text = client.get("/").text
    shown, older = ids(text), further(text)
    path, found = f"/alerts{query}", []
    while path:
        text = client.get(path).text
        found += ids(text)
        path = further(text)
    assert found == list(range(300))
    assert shown + ids(client.get(older).text) == list(range(150))


def one_of_three(message: Any) -> int:
    return int(message.alert_id if isinstance(message, Alert) else message.verdict_id, 16)


def test_the_state_is_in_the_address(tmp_path: Path) -> None:
    client = PageUnderTest(tmp_path, alerts(5, judged=3)).browser()
    assert ids(client.get("/alerts").text) == [4, 3, 2, 1, 0]
    text = client.get("/alerts?state=new").text
    assert ids(text) == [4, 3]
    assert '<a href="/alerts?state=new" aria-current="true">' in text


def test_a_time_that_is_none_is_no_time(tmp_path: Path) -> None:
    client = PageUnderTest(tmp_path, alerts(2)).browser()
    for before in ("x", "-1", "²", "9" * 18, ""):
        assert ids(client.get(f"/alerts?before={before}").text) == [1, 0]
    assert "No older alert" in client.get("/alerts?before=1").text
    assert "No older alert that nobody has judged" in client.get("/alerts?state=new&before=1").text


@pytest.mark.parametrize(
    ("share", "method", "said"),
    [
        (0.8, "channel-replacement", "because of temp_c"),
        (0.01, "channel-replacement", "no channel stands out"),
        (0.01, "none", "not explained"),
    ],
)
def test_a_row_says_why_also_where_no_channel_departs(tmp_path: Path, share: float, method: str, said: str) -> None:
    channels = [ChannelShare(channel="temp_c", unit="", share=share)]
    given = [
        msgspec.structs.replace(one, segments=[], channels=channels, method=method)
        if isinstance(one, Attribution)
        else one
        for one in messages_of(1)
    ]
    page = PageUnderTest(tmp_path, given).browser().get("/").text
    assert said in page
    assert "reasons follow" not in page


def test_a_sequence_without_a_date_has_elapsed_times_and_says_what_it_lost(tmp_path: Path) -> None:
    begin = datetime(1970, 1, 1, 0, 5, tzinfo=UTC)
    dates = {"start_time": begin, "end_time": begin + timedelta(seconds=75)}
    given = [
        msgspec.structs.replace(one, **dates, n_merged=3, n_late=1, batch={"recipe": "<PX>"})
        for one in messages_of(1)[:2]
    ]
    client = PageUnderTest(tmp_path, given).browser()
    assert '0:06:15 <span class="soft">elapsed</span>' in client.get("/alerts").text
    page = client.get(f"/s/{1:032x}").text
    assert "0:05:00 elapsed to 0:06:15 elapsed" in re.sub(r"<[^>]+>", "", page)
    assert "3 displaced by another of their time, 1 too late, recipe: &lt;PX&gt;" in page
    assert "1970" not in page
