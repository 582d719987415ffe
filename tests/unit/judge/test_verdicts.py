"""Verdicts, alerts and attributions hold what was decided."""

import hashlib
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from streamad.ingest.windowing import Unscorable
from streamad.judge.attribution import Explanation, Segment
from streamad.judge.calibration import Calibration
from streamad.judge.verdicts import alert_id, make_alert, make_attribution, moments_of, scored, unscorable
from streamad.messages import ModelRef, NearestSequence
from streamad.settings.outputs import AlertSettings
from streamad.types import FILE_OFFSETS, ChannelSpec, FinishedSequence, Position, Window

START_US = 1_772_352_930_250_000
NOW_US = START_US + 60_000_000
MODEL = ModelRef("default", "0007")
CHANNELS = (ChannelSpec("temp", "°C"), ChannelSpec("pressure", "bar"), ChannelSpec("ph"))
SEQUENCE = FinishedSequence(
    "reactor-1",
    "B-1042",
    "marker",
    np.array([START_US, START_US + 500_000], dtype=np.int64),
    np.zeros((2, 3), dtype=np.float32),
    Position(17, 3),
)
CALIBRATION = Calibration.from_terms(np.arange(98, dtype=np.float32).reshape(49, 2))
POLICY = AlertSettings(false_alarm_rate=0.02)
NEAREST = NearestSequence(sequence="reactor-1/B-1017", distance=0.5), NearestSequence(sequence="r/2", distance=0.75)


WINDOW = Window(np.zeros((3, 4), dtype=np.float32), 2)


def judged(terms, policy=POLICY, calibration=CALIBRATION, window=WINDOW):
    return scored(
        SEQUENCE,
        window,
        np.array(terms, dtype=np.float32),
        calibration=calibration,
        settings=policy,
        model=MODEL,
        now_us=NOW_US,
    )


def test_alert_id_is_fixed_by_its_documented_encoding():
    expected = hashlib.sha256(b'["reactor-1","B-1042",17,3,1000]').hexdigest()[:32]
    assert alert_id("reactor-1", "B-1042", Position(17, 3), 1000) == expected
    of_the_second_file = Position(FILE_OFFSETS + 17, 3)
    assert alert_id("reactor-1", "B-1042", of_the_second_file, 1000) == expected
    assert alert_id("reactor-1", "B-1042", of_the_second_file, 1001) != expected


_small = st.integers(0, 9)
_identity = st.tuples(st.text(max_size=4), st.text(max_size=4), _small, _small, _small)


@given(_identity, _identity)
def test_alert_ids_are_equal_only_for_equal_identities(one, other):
    ids = [alert_id(stream, sequence, Position(*at), start_us) for stream, sequence, *at, start_us in (one, other)]
    assert (ids[0] == ids[1]) == (one == other)


def test_alert_id_does_not_confuse_where_names_end():
    at = Position(0, 0)
    assert alert_id('a","b', "c", at, 0) != alert_id("a", 'b","c', at, 0)
    assert alert_id("a", "b", Position(1, 11), 0) != alert_id("a", "b", Position(11, 1), 0)


@pytest.mark.parametrize(("score", "decision"), [(193.0, "normal"), (193.5, "anomalous")])
def test_alert_exactly_at_the_rate(score, decision):
    """Calibration scores end at 96 + 97 = 193; only above it p = 1/50 = 0.02, exactly the rate."""
    verdict = judged([score - 100, 100])
    assert verdict.decision == decision
    assert (make_alert(verdict, POLICY) is not None) == (decision == "anomalous")


def test_alert_repeats_the_verdict():
    verdict = judged([100, 200])
    alert = make_alert(verdict, POLICY)
    assert alert is not None
    assert alert.alert_id == verdict.verdict_id == alert_id("reactor-1", "B-1042", Position(17, 3), START_US)
    assert (alert.score, alert.p_value, alert.false_alarm_rate, alert.tail) == (300.0, 0.02, 0.02, "empirical")
    assert (alert.stream, alert.sequence, alert.reason, alert.n_samples) == ("reactor-1", "B-1042", "marker", 2)
    assert alert.start_time == datetime(2026, 3, 1, 8, 15, 30, 250_000, tzinfo=UTC)
    assert alert.end_time == datetime(2026, 3, 1, 8, 15, 30, 750_000, tzinfo=UTC)
    assert alert.created_at == datetime(2026, 3, 1, 8, 16, 30, 250_000, tzinfo=UTC)
    assert alert.model == MODEL


def test_extrapolated_tail_is_marked_in_verdict_and_alert():
    policy = AlertSettings(false_alarm_rate=1e-3)
    terms = np.arange(98, dtype=np.float32).reshape(49, 2)
    table = Calibration.from_terms(terms, policy.false_alarm_rate)
    verdict = judged([5000, 5000], policy, table)
    alert = make_alert(verdict, policy)
    assert verdict.tail == "extrapolated"
    assert alert is not None
    assert alert.tail == "extrapolated"
    assert judged([0, 0], policy, table).tail == "extrapolated"


def test_a_verdict_bears_mean_and_spread_of_the_window_without_its_padding():
    values = np.array([[1, 3, 0, 0], [5, 5, 7, 7], [123456.789, 123456.789, 0, 0]], dtype=np.float32)
    verdict = judged([100, 200], window=Window(values, 2))
    assert verdict.means == [2.0, 5.0, 123457.0]
    assert verdict.spreads == [1.0, 0.0, 0.0]


_finite = st.floats(allow_nan=False, allow_infinity=False, width=32)


@given(st.lists(st.lists(_finite, min_size=3, max_size=3), min_size=1, max_size=5))
def test_means_and_spreads_are_finite_numbers_of_six_digits(rows):
    verdict = judged([1.0, 2.0], window=Window(np.array(rows, dtype=np.float32), 3))
    assert len(verdict.means) == len(verdict.spreads) == len(rows)
    for value in verdict.means + verdict.spreads:
        assert np.isfinite(value)
        assert value == float(f"{value:.6g}")
    assert all(spread >= 0 for spread in verdict.spreads)


@given(st.data())
def test_the_moments_of_a_window_are_the_same_alone_and_in_company(data):
    shape = data.draw(st.tuples(st.integers(1, 6), st.integers(1, 4), st.integers(1, 40)))
    values = data.draw(arrays(np.float32, shape, elements=_finite))
    windows = [Window(each, data.draw(st.integers(1, shape[2]))) for each in values]
    together = moments_of(windows)
    assert together == [moments_of([window])[0] for window in windows]
    for window, (means, spreads) in zip(windows, together, strict=True):
        samples = window.values[:, : window.length].astype(np.float64)
        largest = np.abs(samples).max(axis=1)
        assert np.all(np.abs(np.array(means) - samples.mean(axis=1)) <= 1e-5 * largest)
        assert np.all(np.abs(np.array(spreads) - samples.std(axis=1)) <= 1e-5 * largest)


def test_without_a_window_there_is_neither_mean_nor_spread():
    verdict = unscorable(SEQUENCE, Unscorable("partial"), NOW_US)
    assert (verdict.means, verdict.spreads) == ([], [])
    large = judged([1.0, np.inf], window=Window(np.full((3, 4), 3e38, dtype=np.float32), 2))
    assert (large.decision, large.means) == ("unscorable", [3e38] * 3)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_not_finite_terms_are_unscorable_not_normal(bad):
    verdict = judged([1.0, bad])
    assert verdict.decision == "unscorable"
    assert verdict.score is None
    assert "no finite score" in verdict.detail
    assert verdict.model == MODEL


def test_unscorable_gives_the_reason():
    verdict = unscorable(SEQUENCE, Unscorable("too few samples: 2"), NOW_US)
    assert (verdict.decision, verdict.detail, verdict.score, verdict.p_value) == (
        "unscorable",
        "too few samples: 2",
        None,
        None,
    )
    assert make_alert(verdict, POLICY) is None


def test_attribution_orders_channels_and_names_the_dominating_transformation():
    alert = make_alert(judged([500, 7]), POLICY)
    terms, shares = np.array([500, 7], dtype=np.float32), np.array([0.2, 0.7, 0.1])
    why = make_attribution(
        alert,
        terms,
        calibration=CALIBRATION,
        explanation=Explanation(shares, NEAREST),
        channels=CHANNELS,
        method="channel-replacement",
    )
    assert why.alert_id == alert.alert_id
    assert [(c.channel, c.unit, c.share) for c in why.channels] == [
        ("pressure", "bar", 0.7),
        ("temp", "°C", 0.2),
        ("ph", "", 0.1),
    ]
    assert why.nearest == list(NEAREST)
    assert why.dominating_transformation == 0
    assert [(t.transformation, t.term) for t in why.terms] == [(0, 500.0), (1, 7.0)]
    assert why.terms[0].calibration_quantile == 1.0
    assert why.terms[1].calibration_quantile == 3 / 49  # 1, 3 and 5 lie below 7


def test_an_attribution_names_the_members_of_a_model_that_has_several():
    alert, terms = make_alert(judged([7, 500]), POLICY), np.array([7, 500], dtype=np.float32)
    rest = {
        "calibration": CALIBRATION,
        "explanation": Explanation(np.zeros(3), ()),
        "channels": CHANNELS,
        "method": "channel-replacement",
    }
    why = make_attribution(alert, terms, **rest, names=("raw.distance", "hydra.leverage"))
    assert [term.member for term in why.terms] == ["raw.distance", "hydra.leverage"]
    assert why.dominating_member == "hydra.leverage"
    assert make_attribution(alert, terms, **rest).dominating_member is None


@pytest.mark.parametrize(("terms", "largest"), [([7, 500], 1), ([250, 257], 1), ([500, 500], 0)])
def test_the_largest_term_dominates_and_of_equal_ones_the_first(terms, largest):
    alert = make_alert(judged(terms), POLICY)
    why = make_attribution(
        alert,
        np.array(terms, dtype=np.float32),
        calibration=CALIBRATION,
        explanation=Explanation(np.array([0.2, 0.7, 0.1]), ()),
        channels=CHANNELS,
        method="channel-replacement",
    )
    assert why.dominating_transformation == largest


def explained_by(*segments, terms=(500, 7), shown=1.0, detail=None, calibration=CALIBRATION):
    return make_attribution(
        make_alert(judged([500, 7]), POLICY),
        np.array(terms, dtype=np.float32),
        calibration=calibration,
        explanation=Explanation(np.array([0.2, 0.7, 0.1]), (), segments, detail),
        channels=CHANNELS,
        method="channel-replacement",
        shown=shown,
    )


@pytest.mark.parametrize(("shown", "start", "end"), [(1.0, 0.25, 0.75), (0.5, 0.125, 0.375)])
def test_a_segment_has_its_place_in_the_sequence_and_in_time(shown, start, end):
    (segment,) = explained_by(Segment(1, 0.25, 0.75, "above", 3.14), shown=shown).segments
    assert (segment.channel, segment.unit, segment.direction, segment.size) == ("pressure", "bar", "above", 3.14)
    assert (segment.start, segment.end) == (start, end)
    begin = datetime(2026, 3, 1, 8, 15, 30, 250_000, tzinfo=UTC)
    assert segment.start_time == begin + timedelta(seconds=0.5 * start)
    assert segment.end_time == begin + timedelta(seconds=0.5 * end)
    assert segment.text.startswith("pressure 3.1 bar above the band from ")


def test_what_an_explanation_leaves_out_is_said():
    assert explained_by().detail is None
    assert explained_by().segments == []
    assert explained_by(detail="too many channels").detail == "too many channels"


@pytest.mark.parametrize(
    ("terms", "leading"),
    [
        ([48, 49], []),  # the medians
        ([500, 7], [0]),
        ([148, 249], [1, 0]),
        ([48, 249], [1]),
        ([53, 149], [1]),  # 5 of 105 are too few
    ],
)
def test_the_leading_terms_lie_furthest_above_their_medians(terms, leading):
    assert explained_by(terms=terms).leading_terms == leading


def test_at_most_three_terms_lead():
    calibration = Calibration.from_terms(np.zeros((49, 5), np.float32))
    assert explained_by(terms=[2, 5, 3, 4, 1], calibration=calibration).leading_terms == [1, 3, 2]
