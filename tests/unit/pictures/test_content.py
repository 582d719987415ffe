"""What a picture shows: which channels, in which order, where, and what it says is missing."""

from __future__ import annotations

import math
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest

from streamad.judge.calibration import Calibration
from streamad.pictures.content import NormalCourse, Picture, Scores, limits_of, picture_of
from streamad.pictures.facts import departure, headline, speakers, when
from tests.support.pictures import attribution_of, calibration_of, facts_of, segment_of, window_of

NAMES = [f"c{number}" for number in range(9)]


def names_of(picture: object) -> list[str]:
    return [panel.name for panel in picture.panels]  # type: ignore[attr-defined]


def test_channels_are_in_the_order_of_shares_six_at_most_and_the_rest_is_named() -> None:
    courses, envelope = window_of(NAMES, 20)
    shares = {"c4": 0.5, "c1": 0.2, "c7": 0.1, "c0": 0.08, "c2": 0.06, "c3": 0.04, "c5": 0.02, "c6": 0.0, "c8": 0.0}
    picture = picture_of(facts_of(), courses, attribution=attribution_of(shares), envelope=envelope)
    assert names_of(picture) == ["c4", "c1", "c7", "c0", "c2", "c3"]
    assert picture.panels[0].share == 0.5
    assert picture.others == "not drawn: c5 2\u00a0%, c6, c8"


def test_channels_without_a_share_of_one_percent_are_not_drawn_after_the_third() -> None:
    courses, envelope = window_of(NAMES, 20)
    shares = dict.fromkeys(NAMES, 0.0) | {"c8": 1.0}
    picture = picture_of(facts_of(), courses, attribution=attribution_of(shares), envelope=envelope)
    assert names_of(picture) == ["c8", "c0", "c1"]


def test_without_shares_the_channel_furthest_from_its_band_is_first() -> None:
    courses, envelope = window_of(NAMES, 20)
    values = courses.values.copy()
    values[5] += 30
    picture = picture_of(facts_of(decision="normal"), replace(courses, values=values), envelope=envelope)
    assert names_of(picture)[0] == "c5"
    assert len(picture.panels) == 6


def test_without_shares_and_band_channels_are_in_the_configured_order() -> None:
    courses, _ = window_of(NAMES, 20)
    picture = picture_of(facts_of(), courses, notes=["the model is gone"])
    assert names_of(picture) == NAMES[:6]
    assert picture.panels[0].normal is None
    assert picture.notes == ("the model is gone",)


def test_a_thousand_channels_name_a_dozen() -> None:
    courses, envelope = window_of([f"c{number}" for number in range(1000)], 3)
    picture = picture_of(facts_of(), courses, envelope=envelope)
    assert len(picture.panels) == 6
    assert picture.others.count(",") == 11
    assert picture.others.endswith(" and 982 more")


def test_the_time_axis_ends_where_the_window_ends() -> None:
    courses, envelope = window_of(NAMES, 21, 64)
    whole = picture_of(facts_of(60.0), courses, envelope=envelope)
    assert whole.at[[0, 1, -1]] == pytest.approx([0.0, 3.0, 60.0])
    cut = picture_of(facts_of(60.0), replace(courses, shown=0.5), envelope=envelope)
    assert cut.at[-1] == pytest.approx(30.0)
    assert cut.notes == ("the judged window holds the first 50\u00a0% of the sequence",)


def test_an_aligned_picture_is_over_the_share_of_the_sequence() -> None:
    courses, envelope = window_of(NAMES, 21, 64)
    picture = picture_of(facts_of(60.0), courses, envelope=envelope, clock="aligned")
    assert (picture.clock, picture.is_aligned, picture.extent) == ("aligned", True, 100.0)
    assert picture.at[[0, 1, -1]] == pytest.approx([0.0, 5.0, 100.0])
    panel = picture.panels[0]
    assert panel.normal is not None
    band = envelope.band(21, "aligned")
    assert panel.normal.middle == pytest.approx(band.middle[NAMES.index(panel.name)])
    cut = picture_of(facts_of(60.0), replace(courses, shown=0.5), envelope=envelope, clock="aligned")
    assert (cut.at[-1], cut.extent) == (pytest.approx(50.0), 100.0)


def test_without_a_band_there_is_no_clock_to_choose() -> None:
    courses, _ = window_of(NAMES, 20)
    picture = picture_of(facts_of(60.0), courses, clock="aligned")
    assert (picture.clock, picture.is_aligned, picture.at[-1]) == (None, False, 60.0)


def test_the_order_of_channels_and_the_explanation_s_clock_stay_whatever_clock_is_drawn() -> None:
    courses, envelope = window_of(NAMES, 20)
    plain = picture_of(facts_of(), courses, envelope=envelope)
    assert (plain.clock, plain.is_aligned) == (envelope.clock_for(20), False)
    for clock in ("own", "aligned"):
        assert names_of(picture_of(facts_of(), courses, envelope=envelope, clock=clock)) == names_of(plain)


def test_a_sequence_longer_than_all_of_training_says_that_its_end_has_no_band() -> None:
    _, envelope = window_of(NAMES, 20, 64)
    longest = int(np.flatnonzero(envelope.clock_n)[-1]) + 1
    courses, _ = window_of(NAMES, longest + 1, 64)
    picture = picture_of(facts_of(), courses, envelope=envelope, clock="own")
    assert picture.notes == ("its end has no normal band: no training sequence is so long",)
    assert picture_of(facts_of(), courses, envelope=envelope).notes == ()


def test_the_band_lies_within_the_extremes_of_training() -> None:
    courses, envelope = window_of(NAMES, 20)
    for panel in picture_of(facts_of(), courses, envelope=envelope).panels:
        normal = panel.normal
        assert normal is not None
        for lower, upper in (
            (normal.lowest, normal.low),
            (normal.low, normal.middle),
            (normal.middle, normal.high),
            (normal.high, normal.highest),
        ):
            assert (lower <= upper).all()
        assert (normal.lowest <= panel.course).all()  # the sequence is one of training


@pytest.mark.parametrize(("n", "span_s"), [(1, 0.0), (3, 0.0), (3, 2.0)])
def test_short_sequences_have_points_or_times(n: int, span_s: float) -> None:
    courses, envelope = window_of(NAMES, n, 12)
    picture = picture_of(facts_of(span_s, n), courses, envelope=envelope)
    assert picture.is_timed == (span_s > 0)
    assert len(picture.at) == n
    assert picture.at[-1] == (span_s if span_s else n - 1)


@pytest.mark.parametrize("n_channels", [8, 10])
def test_an_envelope_of_other_channels_is_not_drawn(n_channels: int) -> None:
    courses, _ = window_of(NAMES, 20)
    _, other = window_of([f"d{number}" for number in range(n_channels)], 20)
    assert picture_of(facts_of(), courses, envelope=other).panels[0].normal is None


def test_a_window_longer_than_the_envelope_is_drawn_without_a_band() -> None:
    courses, _ = window_of(NAMES, 20)
    _, shorter = window_of(NAMES, 10)
    assert picture_of(facts_of(), courses, envelope=shorter).panels[0].normal is None


def test_segments_lie_with_their_channel() -> None:
    courses, envelope = window_of(NAMES, 20)
    segments = (segment_of("c2", 0.1, 0.2), segment_of("c2", 0.5, 0.6), segment_of("c1", 0.0, 1.0))
    attribution = attribution_of({"c2": 0.7, "c1": 0.3}, *segments)
    picture = picture_of(facts_of(), courses, attribution=attribution, envelope=envelope)
    assert [len(panel.segments) for panel in picture.panels] == [2, 1, 0]


@pytest.mark.parametrize(
    ("score", "words"),
    [
        (99.0, "above all 99 calibration sequences"),
        (-1.0, "not above any of the 99 calibration sequences"),
    ],
)
def test_the_place_among_the_calibration_scores_is_said(score: float, words: str) -> None:
    picture = picture_of(facts_of(score=score), window_of(NAMES, 5)[0], calibration=calibration_of())
    assert picture.scores is not None
    assert picture.scores.words == words
    assert picture.scores.limit.startswith("alerts from ")


def test_a_score_equal_to_one_of_the_calibration_does_not_lie_above_it() -> None:
    scores = Scores(2.0, False, np.array([1.0, 2.0, 3.0]), math.inf)
    assert scores.words == "above 1 of the 3 calibration sequences"
    assert scores.limit == "no score can alert"


def test_without_score_or_calibration_no_scores_are_drawn() -> None:
    courses, _ = window_of(NAMES, 5)
    assert picture_of(facts_of(), courses).scores is None
    assert picture_of(facts_of(score=None), courses, calibration=calibration_of()).scores is None
    assert picture_of(facts_of(rate=None), courses, calibration=calibration_of()).scores is None


def test_the_limit_drawn_is_the_lowest_score_that_alerts() -> None:
    calibration: Calibration = calibration_of()
    picture = picture_of(facts_of(), window_of(NAMES, 5)[0], calibration=calibration)
    assert picture.scores is not None
    limit = picture.scores.alerts_from
    assert calibration.p_value(limit)[0] <= 0.02 < calibration.p_value(np.nextafter(limit, -math.inf))[0]


# --- words ----------------------------------------------------------------------------------------------------------


def test_the_headline_is_the_first_segment_with_names_cut() -> None:
    attribution = attribution_of({"c" * 90: 1.0}, segment_of("c" * 90, 0.62, 0.8))
    assert headline(facts_of(sequence="S" * 90), attribution, 10) == (
        "r1 SSSSSSSSS…: ccccccccc… 3.1 K above the band from 62\u00a0% to 80\u00a0%"
    )


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({}, "r1 B-2: alert"),
        ({"decision": "normal"}, "r1 B-2: normal"),
        ({"decision": "unscorable", "detail": "too short"}, "r1 B-2: could not be judged (too short)"),
        ({"decision": "learning", "detail": "3 of 200"}, "r1 B-2: was not judged: there was no model yet (3 of 200)"),
    ],
)
def test_without_reasons_the_headline_is_the_decision(changes: dict[str, str], words: str) -> None:
    assert headline(facts_of(**changes), None) == words


def test_without_segments_the_headline_is_the_largest_shares() -> None:
    attribution = attribution_of({"temp": 0.8, "flow": 0.16, "ph": 0.04})
    assert headline(facts_of(), attribution) == "r1 B-2: because of temp 80\u00a0%, flow 16\u00a0%"


def test_all_leading_terms_speak_and_older_messages_have_the_largest_one() -> None:
    older = attribution_of({})
    assert speakers(older) == ["pca.distance (term 2.5, above 100\u00a0% of calibration)"]
    assert speakers(attribution_of({}, leading_terms=[0, 7])) == speakers(older)
    assert speakers(attribution_of({}, terms=[], leading_terms=[])) == []


def test_a_departure_has_its_direction_and_a_shape_no_size() -> None:
    assert departure(segment_of("c", 0, 1, unit="", size=0.0312, direction="below")) == "0.031 below the band"
    assert departure(segment_of("c", 0, 1, size=None, direction="shape")) == "unusual shape"


def test_times_of_short_sequences_have_milliseconds() -> None:
    assert when(facts_of(0.75, 30)) == "2026-01-01 08:00:00.000 to 08:00:00.750 UTC, 30 samples"
    assert when(facts_of(86_400, 1)) == "2026-01-01 08:00:00 to 2026-01-02 08:00:00 UTC, 1 sample"


def test_a_sequence_without_a_date_has_elapsed_times_and_losses_are_said() -> None:
    begin = datetime(1970, 1, 1, 1, 2, 3, tzinfo=UTC)
    facts = facts_of(n_samples=40, start_time=begin, end_time=begin + timedelta(seconds=582.5), n_merged=2, n_late=1)
    facts = replace(facts, batch={"recipe": "PX-7", **{f"c{n}": "x" * 40 for n in range(9)}})
    cell = "x" * 31 + "…"
    assert when(facts) == (
        "1:02:03 to 1:11:45.500 since the start of its clock, 40 samples, 2 displaced by another of their time, "
        f"1 too late, recipe: PX-7, c0: {cell}, c1: {cell}, c2: {cell}, …"
    )


def with_readings_outside(*places: tuple[int, int], by: float = 50.0) -> Picture:
    """Return the picture of one channel of 21 readings, in the middle of the band but for those at ``places``."""
    courses, envelope = window_of(["c0"], 21)
    values = envelope.band(21).middle.astype(np.float32)
    for first, end in places:
        values[0, first:end] += by
    return picture_of(facts_of(), replace(courses, values=values), envelope=envelope)


def test_three_readings_in_a_row_outside_the_band_are_a_departure_two_are_not() -> None:
    (panel,) = with_readings_outside((4, 7), (12, 14)).panels
    assert [(each.start, each.end, each.direction) for each in panel.outside] == [
        (pytest.approx(4 / 20), pytest.approx(6 / 20), "above")
    ]
    (panel,) = with_readings_outside((18, 21), by=-50.0).panels
    assert [(each.start, each.end, each.direction) for each in panel.outside] == [(0.9, 1.0, "below")]


def test_readings_a_little_beyond_the_band_are_no_departure() -> None:
    courses, envelope = window_of(["c0"], 21)
    band = envelope.band(21)
    values = (band.high + 0.9 * (band.top - band.high)).astype(np.float32)
    (panel,) = picture_of(facts_of(), replace(courses, values=values), envelope=envelope).panels
    assert panel.outside == ()


def test_a_part_has_the_readings_and_the_band_of_its_time() -> None:
    whole = with_readings_outside((4, 7))
    part = whole.between(0.25, 0.5)
    assert part.at.tolist() == whole.at[5:11].tolist()
    assert part.panels[0].course.tolist() == whole.panels[0].course[5:11].tolist()
    assert part.panels[0].normal is not None
    assert len(part.panels[0].normal.low) == 6
    assert (part.first, part.last, part.extent) == (15.0, 30.0, 60.0)
    assert whole.between(0.26, 0.27).at.tolist() == whole.at[5:7].tolist()
    assert part.shows(0.1, 0.3)
    assert not part.shows(0.6, 0.7)


@pytest.mark.parametrize(("start", "end"), [(0.5, 0.5), (0.6, 0.4), (2.0, 3.0)])
def test_a_part_without_two_readings_is_the_whole(start: float, end: float) -> None:
    whole = with_readings_outside()
    assert whole.between(start, end) is whole


def test_an_axis_holds_the_extremes_of_training_unless_they_squeeze_the_readings() -> None:
    course = np.array([0.0, 10.0])
    normal = NormalCourse(course, course, course, np.array([-3.0, 0.0]), np.array([10.0, 1_000.0]))
    assert limits_of([course], normal) == (-3.0, 16.0)
    assert limits_of([course]) == (0.0, 10.0)
    assert limits_of([np.array([2.0, np.nan])]) == pytest.approx((1.9, 2.1))
    assert limits_of([np.array([np.nan])]) == (0.0, 1.0)
