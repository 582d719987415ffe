from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamad.judge.gate import gate, is_reserved
from streamad.messages import Decision, ModelRef, Verdict
from streamad.settings.learning import LearningSettings

SETTINGS = LearningSettings(reserve=0.2, accept_above=0.05)
CHAMPION, FORMER = ModelRef("default", "0002"), ModelRef("default", "0001")
AT = datetime(2026, 3, 1, tzinfo=UTC)
NAMES = [f"B-{i}" for i in range(200)]
RESERVED = next(name for name in NAMES if is_reserved("r", name, 0.2))
OTHER = next(name for name in NAMES if not is_reserved("r", name, 0.2))


def verdict(decision: Decision, name: str, p: float | None = None, model: ModelRef | None = None) -> Verdict:
    return Verdict(
        verdict_id="v",
        stream="r",
        sequence=name,
        decision=decision,
        reason="marker",
        start_time=AT,
        end_time=AT,
        n_samples=5,
        score=None if p is None else 1.0,
        p_value=p,
        model=model,
        created_at=AT,
    )


# The rules of docs/learning/inliers.md, in its order; the first that fits decides.
ROWS = [
    ("unscorable", verdict("unscorable", OTHER), CHAMPION, None),
    ("unscorable, reserved", verdict("unscorable", RESERVED), CHAMPION, None),
    ("reserved, normal", verdict("normal", RESERVED, 0.5, CHAMPION), CHAMPION, "reserve"),
    ("reserved, low p", verdict("normal", RESERVED, 0.03, CHAMPION), CHAMPION, "reserve"),
    ("reserved, anomalous", verdict("anomalous", RESERVED, 0.001, CHAMPION), CHAMPION, "reserve"),
    ("reserved, former model", verdict("normal", RESERVED, 0.5, FORMER), CHAMPION, "reserve"),
    ("reserved, no model", verdict("learning", RESERVED), None, "reserve"),
    ("anomalous", verdict("anomalous", OTHER, 0.001, CHAMPION), CHAMPION, "aside"),
    ("anomalous, high p", verdict("anomalous", OTHER, 0.9, CHAMPION), CHAMPION, "aside"),
    ("former model", verdict("normal", OTHER, 0.5, FORMER), CHAMPION, "aside"),
    ("model gone from service", verdict("normal", OTHER, 0.5, CHAMPION), None, "aside"),
    ("normal without a model", verdict("normal", OTHER, 0.5), None, "aside"),
    ("another model's version", verdict("normal", OTHER, 0.5, ModelRef("b", "0002")), CHAMPION, "aside"),
    ("learning, since trained", verdict("learning", OTHER), CHAMPION, "aside"),
    ("low p", verdict("normal", OTHER, 0.049, CHAMPION), CHAMPION, "aside"),
    ("p exactly at the limit", verdict("normal", OTHER, 0.05, CHAMPION), CHAMPION, "aside"),
    ("without p", verdict("normal", OTHER, None, CHAMPION), CHAMPION, "aside"),
    ("accepted", verdict("normal", OTHER, 0.0501, CHAMPION), CHAMPION, "accepted"),
    ("learning", verdict("learning", OTHER), None, "accepted"),
]


@pytest.mark.parametrize(("judged", "champion", "share"), [row[1:] for row in ROWS], ids=[row[0] for row in ROWS])
def test_the_truth_table(judged: Verdict, champion: ModelRef | None, share: str | None) -> None:
    assert gate(judged, settings=SETTINGS, champion=champion) == share


@pytest.mark.parametrize(("p", "share"), [(0.001, "accepted"), (0.0, "aside")])
def test_accepting_above_zero_still_needs_a_p_value(p: float, share: str) -> None:
    everything = LearningSettings(accept_above=0)
    judged = verdict("normal", OTHER, p, CHAMPION)
    assert gate(judged, settings=everything, champion=CHAMPION) == share


@given(
    st.sampled_from(["normal", "anomalous", "learning"]),
    st.one_of(st.none(), st.floats(0, 1)),
    st.sampled_from([None, FORMER, CHAMPION]),
    st.sampled_from([None, FORMER, CHAMPION]),
    st.sampled_from(NAMES),
)
def test_no_decision_moves_a_sequence_into_the_reserve_or_out_of_it(
    decision: Decision, p: float | None, model: ModelRef | None, champion: ModelRef | None, name: str
) -> None:
    found = gate(verdict(decision, name, p, model), settings=SETTINGS, champion=champion)
    assert (found == "reserve") == is_reserved("r", name, SETTINGS.reserve)
