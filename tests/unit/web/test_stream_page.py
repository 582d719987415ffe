"""The page of a stream over time: versions, events and judgements at the sequences that they belong to."""

from __future__ import annotations

import gzip
import re
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from streamad.messages import Event, Feedback, ModelRef
from streamad.types import to_us
from streamad.web.pages.events import event_marks
from streamad.web.store.view import SeenEvent
from tests.support.web.messages import T, messages_of, verdict
from tests.support.web.page import PageUnderTest

NEWER = ModelRef("default", "0002")
STREAM = "/stream?name=reactor-1"


def verdicts(n: int = 10, newer_from: int = 6) -> list[Any]:
    """Return verdicts on one stream, a minute apart; from ``newer_from`` on another version judged."""
    given = [verdict(1 + 3 * i) for i in range(n)]
    return [msgspec.structs.replace(one, model=NEWER) if i >= newer_from else one for i, one in enumerate(given)]


def event(kind: str, minutes: float, **more: Any) -> Event:
    given = {"message": f"{kind} it was", "created_at": T + timedelta(minutes=minutes)} | more
    return Event(kind=kind, **given)


def chart(folder: Path, given: list[Any], path: str = STREAM) -> str:
    text = PageUnderTest(folder, given).browser().get(path).text
    return text[text.index('class="course-of-scores"') : text.index("Each dot is a sequence")]


def lines(svg: str) -> list[float]:
    return [float(x) for x in re.findall(r'<g class="eventmark"><line class="event" x1="([\d.]+)%"', svg)]


def left_of(number: int, n: int = 10) -> float:
    return number * 100 / n


def test_times_at_which_sequences_ended_are_below_and_each_date_once(tmp_path: Path) -> None:
    svg = chart(tmp_path, [verdict(1 + 3 * i * 60) for i in range(10)])  # every three hours from 6:01 on
    assert re.findall(r"<tspan[^>]*>([^<]+)<", svg) == [
        "06:01 UTC", "2026-03-01", "12:01", "18:01", "21:01", "03:01", "2026-03-02", "09:01",
    ]  # fmt: skip


def test_times_of_quick_sequences_have_seconds(tmp_path: Path) -> None:
    svg = chart(tmp_path, [verdict(1), verdict(4)])
    assert re.findall(r"<tspan[^>]*>([^<]+)<", svg) == ["06:01:00 UTC", "2026-03-01", "06:04:00"]


def test_each_version_is_a_strip_over_its_sequences_with_its_name(tmp_path: Path) -> None:
    svg = chart(tmp_path, verdicts())
    strips = re.findall(
        r'<rect class="strip strip(\d)" x="([\d.]+)%" y="4.0" width="([\d.]+)%"[^>]*/><text[^>]*>(\d+)', svg
    )
    assert [(one[0], one[3]) for one in strips] == [("0", "0001"), ("1", "0002")]
    assert float(strips[0][1]) == pytest.approx(0, abs=0.1)
    assert float(strips[1][1]) == pytest.approx(left_of(6), abs=0.1)
    assert float(strips[1][1]) + float(strips[1][2]) == pytest.approx(100, abs=0.1)


def test_an_event_stands_before_the_first_sequence_that_was_judged_after_it(tmp_path: Path) -> None:
    drift = event("drift", 12)  # sequences were judged at 1, 4, 7, 10, 13 minutes
    svg = chart(tmp_path, [*verdicts(), drift, event("plant_changed", 0.5), event("store_back", 12)])
    assert lines(svg) == pytest.approx([left_of(4)], abs=0.1)
    assert "drift: drift it was" in svg
    text = PageUnderTest(tmp_path, []).browser().get(STREAM).text
    assert "1 event of this time" in text


def test_events_of_other_streams_and_models_are_left_out(tmp_path: Path) -> None:
    foreign = [event("drift", 12, stream="reactor-2"), event("drift", 12, model=ModelRef("other", "0001"))]
    assert lines(chart(tmp_path, [*verdicts(), *foreign])) == []
    ours = [event("drift", 12, stream="reactor-1"), event("drift", 15, model=NEWER)]
    assert len(lines(chart(tmp_path, ours))) == 2


def test_an_older_portion_has_no_events_that_came_later(tmp_path: Path) -> None:
    given = [*verdicts(130, 130), event("drift", 388)]
    assert len(lines(chart(tmp_path, given))) == 1
    assert lines(chart(tmp_path, [], f"{STREAM}&before={to_us(T + timedelta(minutes=30))}")) == []


def test_sequences_of_one_moment_are_all_reached(tmp_path: Path) -> None:
    given = [msgspec.structs.replace(verdict(i), stream="a&b", start_time=T, end_time=T) for i in range(300)]
    client = PageUnderTest(tmp_path, given).browser()
    path, found = "/stream?name=a%26b", []
    while path:
        text = client.get(path).text
        listed = text[text.index("Sequences, the newest first") :]
        names = re.findall(r'data-head="sequence"><a href="/s/([0-9a-f]{32})"', listed)
        found.append([int(name, 16) for name in names])
        links = re.findall(r'href="(/stream\?[^"]*before[^"]*)"', text)
        path = links[0].replace("&amp;", "&") if links else ""
    assert [len(each) for each in found] == [120, 120, 60]
    assert [each for portion in found for each in portion] == list(range(300))


def test_of_too_many_streams_the_newest_are_listed_and_the_page_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = PageUnderTest(tmp_path, [msgspec.structs.replace(verdict(i), stream=f"line-{i}") for i in range(4)])
    assert "<h1>4 streams</h1>" in page.browser().get("/streams").text
    monkeypatch.setattr("streamad.web.pages.stream._STREAMS", 3)
    text = page.browser().get("/streams").text
    assert "<h1>More than 3 streams</h1>" in text
    assert "line-1" in text
    assert "line-0" not in text


def test_a_judgement_stands_above_its_sequence_and_in_the_list(tmp_path: Path) -> None:
    given = [
        *verdicts(),
        *messages_of(1)[1:4],
        Feedback(alert_id=f"{1:032x}", judgement="confirmed", by="kim", created_at=T),
    ]
    svg = chart(tmp_path, given)
    assert "B-1: score 2, confirmed by kim" in svg
    assert ">✓</text>" in svg
    text = PageUnderTest(tmp_path, []).browser().get(STREAM).text
    assert text.count("confirmed by kim") == 2


@pytest.mark.parametrize("scores", [[2.0, 3.0], [1.0, 1.0], [1e-300, 1e300], [5e-324], [4.1, 4.2]])
def test_any_scores_have_an_axis(scores: list[float], tmp_path: Path) -> None:
    given = [msgspec.structs.replace(verdict(1 + 3 * i), score=score) for i, score in enumerate(scores)]
    svg = chart(tmp_path, given)
    assert 1 <= len(re.findall(r'<text class="tick" x="0%"', svg)) <= 8
    assert "nan" not in svg
    assert "inf" not in svg


def seen(kind: str, minutes: int, version: str | None = "0002", model: str = "default") -> SeenEvent:
    at_us = to_us(T + timedelta(minutes=minutes))
    return SeenEvent(str(minutes), 1, kind, f"{kind} {version}", None, model, version, at_us)


def test_a_version_s_way_into_service_is_marked_once_also_after_a_promotion_by_a_person() -> None:
    events = [seen("model_promoted", 1), seen("model_swapped", 2), seen("model_swapped", 3)]  # two workers take it up
    by_person = [seen("model_swapped", 9, "0001"), seen("model_swapped", 10, "0001"), seen("model_swapped", 20)]
    other = [seen("model_swapped", 11, "0001", "press.a")]
    marks = event_marks([*other, *by_person, *events])
    assert [(one.word, one.at_us) for one in marks] == [
        ("new model", to_us(T + timedelta(minutes=minutes))) for minutes in (1, 9, 11, 20)
    ]


def test_a_promotion_by_a_person_crosses_the_lanes_of_now(tmp_path: Path) -> None:
    given = [*verdicts(), event("model_swapped", 12, model=NEWER)]
    text = PageUnderTest(tmp_path, given).browser().get("/").text
    assert text.count('<g class="eventmark">') == 1
    assert "new model: model_swapped it was" in text


def test_a_long_range_of_many_channels_is_no_heavy_page_and_holds_its_alerts(tmp_path: Path) -> None:
    channels = [{"name": f"temperature_{number:02d}", "unit": "K"} for number in range(24)]
    numbers = np.random.default_rng(1)
    given = []
    for i in range(600):
        means, spreads = numbers.normal(50, 3, 24).tolist(), numbers.gamma(3, 1, 24).tolist()
        given.append(verdict(i, "anomalous" if i % 7 == 0 else "normal", means=means, spreads=spreads))
    given = [msgspec.structs.replace(one, stream="reactor-1") for one in given]
    alerts = [msgspec.structs.replace(messages_of(i)[1], stream="reactor-1") for i in range(0, 600, 7)]
    page = PageUnderTest(tmp_path, [*given, *alerts], channels=channels)
    answer = page.browser().get(f"{STREAM}&from=2026-03-01T00:00:00Z")
    assert len(gzip.compress(answer.content)) < 100_000
    assert len(answer.content) < 270_000
    drawn = int(re.findall(r"The newest (\d+) sequences of this time are drawn", answer.text)[0])
    signs = re.findall(r'<text class="odd" x="([^"]+)" y="([^"]+)"[^>]*>(▲+)<', answer.text)
    assert len(signs) == 24
    n_alerts = sum(i % 7 == 0 for i in range(600 - drawn, 600))
    assert {(xs.count("%"), len(ys.split()), len(text)) for xs, ys, text in signs} == {(n_alerts,) * 3}
