"""Alerts in the order of their height above the threshold, with thumbnails, and those that a person asks for."""

from __future__ import annotations

import re
import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import msgspec
import numpy as np
import pytest

from streamad.commands.shared.plants import load_plant
from streamad.errors import UsageError
from streamad.messages import (
    ChannelSegment,
    ChannelShare,
    Event,
    Feedback,
    ModelRef,
    packed_values,
)
from streamad.outputs.cases import Normals
from streamad.types import to_us
from streamad.web.rendering import times_text
from streamad.web.store.alerts import Limit
from streamad.web.store.view import Place
from streamad.web.store.wanted import Wanted
from tests.support.learning.stored import CHANNELS, LEARNING, SHARES, add, plant_of, sequence, train
from tests.support.web.messages import T, messages_of, verdict, warning_of
from tests.support.web.page import PageUnderTest

PLUGINS = Path(__file__).parents[2] / "support" / "plugins"
LIMITS = [Limit("default", "0001", 0.02, 2.0), Limit("default", "0002", 0.02, 10.0)]
BERLIN = ZoneInfo("Europe/Berlin")


def alert(i: int, **more: Any) -> list[Any]:
    """Return verdict, alert and reasons of sequence ``i``; ``more``: of those of them that have such a field."""
    found = []
    for each in messages_of(i)[:3]:
        fields = {name: value for name, value in more.items() if hasattr(each, name)}
        found.append(msgspec.structs.replace(each, **fields))
    return found


def ids(text: str) -> list[int]:
    table = text.partition('data-walk="alerts"')[2]
    return [int(name, 16) for name in re.findall(r'<td data-head="sequence"><a href="/s/([0-9a-f]{32})"', table)]


def shown(page: PageUnderTest, **query: str) -> list[int]:
    answer = page.browser().get("/alerts", params=query)
    assert answer.status_code == 200
    return ids(answer.text)


# --- the order ---


def test_the_highest_above_its_own_threshold_comes_first_whichever_version_judged(tmp_path: Path) -> None:
    newer = ModelRef("default", "0002")
    given = [*alert(1, score=4.0), *alert(2, score=15.0, model=newer), *alert(3, score=6.0)]
    view = PageUnderTest(tmp_path, given).view
    assert [one.sequence for one in view.inbox(9, limits=LIMITS)] == ["B-3", "B-1", "B-2"]
    assert [one.sequence for one in view.inbox(9)] == ["B-3", "B-2", "B-1"]


def test_alerts_of_unknown_height_come_last_by_p_then_by_time(tmp_path: Path) -> None:
    gone = ModelRef("default", "0009")
    given = [
        *alert(1, score=4.0, p_value=0.02), *alert(2, score=99.0, model=gone, p_value=0.02),
        *alert(3, score=-5.0, p_value=0.01), *alert(4, score=0.0, p_value=0.02),
    ]  # fmt: skip
    view = PageUnderTest(tmp_path, given).view
    order = [one.sequence for one in view.inbox(9, limits=LIMITS)]
    assert order == ["B-1", "B-3", "B-4", "B-2"]
    assert [one.sequence for one in view.inbox(9, limits=[])] == ["B-3", "B-4", "B-2", "B-1"]


def test_every_alert_is_reached_portion_by_portion_in_the_order_of_height(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    given = [each for i in range(60) for each in alert(i, score=float(rng.integers(-2, 9)))]
    view = PageUnderTest(tmp_path, given).view
    whole = [one.id for one in view.inbox(99, limits=LIMITS)]
    found, behind = [], None
    while portion := view.inbox(7, limits=LIMITS, behind=behind):
        found += [one.id for one in portion]
        behind = Place.behind(portion[-1])
    assert found == whole
    assert len(set(found)) == 60


def test_further_alerts_keep_order_and_filter(tmp_path: Path) -> None:
    page = PageUnderTest(tmp_path, [each for i in range(400) for each in alert(i)])
    client, path, found = page.browser(), "/alerts?order=height&stream=reactor-1", []
    while path:
        text = client.get(path).text
        found.append(ids(text))
        links = [each.replace("&amp;", "&") for each in re.findall(r'href="(/alerts[^"]*)"', text)]
        path = next((each for each in links if "before=" in each), "")
    assert [len(each) for each in found] == [120, 13]
    assert sorted(each for portion in found for each in portion) == list(range(1, 400, 3))


@pytest.mark.parametrize(
    ("times", "text"), [(None, ""), (1.0, "1.00"), (1.234, "1.23"), (6.44, "6.4"), (12.6, "13"), (12345.6, "12346")]
)
def test_times_are_said_in_few_digits(times: float | None, text: str) -> None:
    assert times_text(times) == text


# --- what is wanted ---


def test_each_field_of_the_form_narrows_the_list(tmp_path: Path) -> None:
    share = [ChannelShare(channel="ph", unit="", share=0.9), ChannelShare(channel="temp_c", unit="K", share=0.01)]
    marks = [
        Feedback(alert_id=f"{1:032x}", judgement="confirmed", note="valve 3", by="kim", created_at=T),
        Feedback(alert_id=f"{2:032x}", judgement="withdrawn", assignee="lee", comment="50 % open", created_at=T),
    ]
    page = PageUnderTest(
        tmp_path,
        [*alert(1, batch={"recipe": "PX_1"}), *alert(2, batch={"recipe": "PXA1"}), *alert(3, channels=share), *marks],
    )
    assert shown(page) == [3, 2, 1]
    assert shown(page, stream="reactor-1") == [1]
    assert shown(page, stream="reactor") == []
    assert shown(page, channel="ph") == [3]
    assert shown(page, channel="temp_c") == [2, 1]
    assert shown(page, batch="PX_1") == [1]  # a wildcard of LIKE is a letter
    assert shown(page, batch="b-2") == [2]
    assert shown(page, batch="recipe") == []  # names of columns are no batch
    assert shown(page, state="new") == [3, 2]
    assert shown(page, state="judged") == [1]
    assert shown(page, state="confirmed") == [1]
    assert shown(page, state="false_alarm") == []
    assert shown(page, assigned="lee") == [2]
    assert shown(page, q="VALVE") == [1]
    assert shown(page, q="50 %") == [2]
    assert shown(page, q="%") == [2]
    assert shown(page, q="PXA") == [2]
    assert shown(page, q="reactor-0") == [3]
    assert shown(page, **{"from": "2026-03-01T06:02", "to": "2026-03-01T06:02"}) == [2]
    assert shown(page, to="2026-03-01") == [3, 2, 1]
    assert shown(page, **{"from": "2026-03-02"}) == []
    assert shown(page, state="new", channel="temp_c", q="b-") == [2]


def test_dates_are_in_the_zone_of_the_plant() -> None:
    wanted = Wanted.of({"from": "2026-07-01T06:00", "to": "2026-07-01"}, BERLIN)
    assert wanted.since_us == to_us(datetime(2026, 7, 1, 4, tzinfo=UTC))
    assert wanted.until_us == to_us(datetime(2026, 7, 1, 22, tzinfo=UTC)) - 1


def test_without_a_zone_of_the_plant_dates_are_in_that_of_the_browser(tmp_path: Path) -> None:
    wanted = Wanted.of({"from": "2026-07-01T06:00", "zone": "Europe/Berlin"}, None)
    assert wanted.since_us == to_us(datetime(2026, 7, 1, 4, tzinfo=UTC))
    assert Wanted.of({"from": "2026-07-01T06:00", "zone": ""}, None).since_us == to_us(
        datetime(2026, 7, 1, 6, tzinfo=UTC)
    )
    for name in ("Mars", "../../etc/passwd", "x" * 5_000):
        answer = PageUnderTest(tmp_path, alert(1)).browser().get("/alerts", params={"zone": name})
        assert answer.status_code == 422


def test_the_hand_over_is_what_nobody_has_judged_since_yesterday_at_six(tmp_path: Path) -> None:
    page = PageUnderTest(tmp_path, alert(1), decode={"format": "json", "timezone": "Europe/Berlin"})
    yesterday = (datetime.now(UTC).astimezone(BERLIN) - timedelta(days=1)).date()
    link = f'href="/alerts?state=new&amp;from={yesterday}T06%3A00"'
    for path in ("/", "/alerts"):
        assert link in page.browser().get(path).text
    text = page.browser().get(f"/alerts?state=new&from={yesterday}T06:00").text
    assert "No alert is" in text
    assert f'value="{yesterday}T06:00"' in text
    assert "From (<span>Europe/Berlin</span>)" in text


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ({"from": "yesterday"}, "no time: write it as 2026-11-28"),
        ({"to": "2026-02-30"}, "no time: write it as"),
        ({"to": "9999-12-31"}, "no time: write it as"),
        ({"from": "0001-01-01T00:00+23:59"}, ""),
        ({"from": "2026-03-02", "to": "2026-03-01"}, "lies after to"),
        ({"state": "x' OR 1=1 --"}, "there is no state"),
        ({"q": "x" * 201}, "no text of 200 characters or less"),
        ({"batch": "a\0b"}, "no text of 200 characters or less"),
    ],
)
def test_what_cannot_be_asked_is_said_and_the_form_keeps_its_values(
    query: dict[str, str], said: str, tmp_path: Path
) -> None:
    answer = PageUnderTest(tmp_path, alert(1)).browser().get("/alerts", params={"stream": "reactor-1", **query})
    assert answer.status_code == (422 if said else 200)
    assert said in answer.text
    assert 'value="reactor-1"' in answer.text


@pytest.mark.parametrize("text", ["'", '"', "\\", "%' --", "<script>alert(1)</script>", "\u202e", "🦊", "[", "_" * 200])
def test_hostile_texts_find_nothing_and_are_text(text: str, tmp_path: Path) -> None:
    page = PageUnderTest(tmp_path, alert(1))
    for name in ("q", "stream", "channel", "batch", "assigned"):
        answer = page.browser().get("/alerts", params={name: text})
        assert answer.status_code == 200
        assert ids(answer.text) == []
        assert "<script>alert" not in answer.text


def test_an_unknown_order_is_that_of_time(tmp_path: Path) -> None:
    page = PageUnderTest(tmp_path, [*alert(1, score=9.0), *alert(2, score=3.0)])
    assert shown(page, order="x' --") == [2, 1]
    assert 'href="/" aria-current="true">newest first' in page.browser().get("/?order=x").text


def test_a_time_without_a_date_in_it_raises_what_the_page_says() -> None:
    with pytest.raises(UsageError, match="no time"):
        Wanted.of({"from": "12:00"}, UTC)


# --- over a version's scores and its normal band ---


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a plant with a version."""
    folder = tmp_path_factory.mktemp("trained")
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.syspath_prepend(PLUGINS)
        model = {"detector": "mean_square", "folds": 2, "device": "cpu", "references": []}
        path = plant_of(folder, learning={**LEARNING, "feedback": "file:feedback.jsonl"}, model=model)
        add(path, {share: [sequence(n) for n in numbers] for share, numbers in SHARES.items()})  # type: ignore[misc]
        assert train(path) == "0001"
    return folder


@pytest.fixture
def config(trained: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(trained, tmp_path / "plant")) / "plant.yaml"


def whole(i: int, score: float, *, has_window: bool = True) -> list[Any]:
    """Return the messages of an alert with a window of the plant's channels."""
    segment = ChannelSegment(
        channel=CHANNELS[1], unit="", start=0.5, end=1.0, start_time=T, end_time=T, direction="above", size=2.0,
        text=f"{CHANNELS[1]} 2 above the band",
    )  # fmt: skip
    values = np.random.default_rng(i).normal(20, 3, (len(CHANNELS), 6)).astype(np.float32)
    fields: dict[str, Any] = {
        "score": score, "segments": [segment], "channels": [ChannelShare(channel=CHANNELS[1], unit="", share=0.9)],
        "false_alarm_rate": 0.2,
    }  # fmt: skip
    window = messages_of(i)[3]
    kept = msgspec.structs.replace(
        window, channels=list(CHANNELS), units=[""] * len(CHANNELS), length=6, values=packed_values(values)
    )
    return [*alert(i, **fields), *([kept] if has_window else [])]


def page_of(config: Path, given: list[Any]) -> PageUnderTest:
    return PageUnderTest(config.parent, given, plant=load_plant(config))


def test_a_row_shows_how_many_times_its_threshold_the_score_is_and_the_leading_channel(config: Path) -> None:
    limit = limit_of(config)
    page = page_of(config, [*whole(1, 3 * limit), *whole(2, 7 * limit, has_window=False)])
    text = page.browser().get("/?order=height").text
    assert ids(text) == [2, 1]
    assert re.findall(r'data-head="times the threshold">([^<]*)<', text) == ["7.0", "3.0"]
    assert text.count('class="thumbnail"') == 1  # no window kept: no thumbnail
    picture = text.partition('<svg class="thumbnail"')[2].partition("</svg>")[0]
    assert f'role="img"><title>{CHANNELS[1]} over its normal band</title>' in picture
    assert 'class="band"' in picture
    assert 'class="segment"' in picture
    assert len(picture) < 1_500
    first = re.sub(r"<[^>]+>", "", text.partition('<p class="first">')[2].partition("</p>")[0])
    assert "Open this first:" in first
    assert "B-2, 7.0 times its threshold" in " ".join(first.split())
    assert "7.0 times the threshold" in page.browser().get(f"/s/{2:032x}").text


def limit_of(config: Path) -> float:
    """Return the lowest score that alerts at a rate of 0.2."""
    calibration = Normals(load_plant(config)).of_model(ModelRef("default", "0001"), 0.2).calibration
    assert calibration is not None
    return calibration.alert_score(0.2)


def test_a_version_that_is_gone_says_nothing_of_height(config: Path) -> None:
    (config.parent / "registry").rename(config.parent / "gone")
    page = page_of(config, [*whole(1, 3.0), *whole(2, 7.0)])
    text = page.browser().get("/?order=height").text
    assert re.findall(r'data-head="times the threshold">([^<]*)<', text) == ["", ""]
    assert ids(text) == [2, 1]  # by p, then by time
    assert f"<title>{CHANNELS[1]}</title>" in text  # the readings without a band


# --- what comes first on Now ---


def test_more_alerts_than_by_chance_are_the_banners_first_sentence(config: Path) -> None:
    given = [*(verdict(i) for i in range(20, 60)), *(each for i in range(30) for each in whole(i, 9.0))]
    banner = page_of(config, given).browser().get("/").text.partition('class="banner"')[2]
    assert banner.partition("<li>")[2].startswith("<strong>⚠ more alerts than by chance</strong>")


def test_a_judged_alert_is_not_opened_first(tmp_path: Path) -> None:
    mark = Feedback(alert_id=f"{2:032x}", judgement="confirmed", by="kim", created_at=T)
    page = PageUnderTest(tmp_path, [*alert(1), *alert(2), mark])
    first = page.browser().get("/").text.partition('class="first"')[2].partition("</p>")[0]
    assert f"/s/{1:032x}" in first
    page.view.put([msgspec.structs.replace(mark, alert_id=f"{1:032x}")])
    assert 'class="first"' not in PageUnderTest(tmp_path, plant=page.plant).browser().get("/").text


def test_warnings_of_sequences_that_are_not_judged_stand_apart(tmp_path: Path) -> None:
    page = PageUnderTest(tmp_path, [warning_of(1), warning_of(4), verdict(4)])
    text = page.browser().get("/").text
    unjudged, _, judged = text.partition('<details data-fold="warned">')
    assert "B-1" in unjudged.partition("<h2")[2]
    assert "1 warning of sequences that are judged by now" in judged
    assert "B-4" in judged


def test_events_name_their_stream(tmp_path: Path) -> None:
    event = Event(kind="drift", message="it drifts", stream="reactor-7", created_at=T + timedelta(minutes=5))
    text = PageUnderTest(tmp_path, [verdict(1), event]).browser().get("/").text
    assert '<td data-head="stream"><a href="/stream?name=reactor-7"' in text
