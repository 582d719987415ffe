from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamad.learn.live.gate import gate
from streamad.learn.store.records import Mark, is_reserved
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


def mark(judgement: str) -> Mark:
    return Mark(id="v", judgement=judgement, at_us=1)  # type: ignore[arg-type]


# The rows of docs/learning/inliers.md, in its order; the first that fits decides.
ROWS = [
    ("unscorable", verdict("unscorable", OTHER), CHAMPION, None, None),
    ("unscorable, reserved", verdict("unscorable", RESERVED), CHAMPION, None, None),
    ("unscorable, confirmed", verdict("unscorable", OTHER), CHAMPION, mark("confirmed"), None),
    ("veto", verdict("normal", OTHER, 0.5, CHAMPION), CHAMPION, mark("veto"), None),
    ("veto, reserved", verdict("normal", RESERVED, 0.5, CHAMPION), CHAMPION, mark("veto"), None),
    ("veto, no model", verdict("learning", OTHER), None, mark("veto"), None),
    ("confirmed", verdict("anomalous", OTHER, 0.001, CHAMPION), CHAMPION, mark("confirmed"), "aside"),
    ("confirmed, reserved", verdict("anomalous", RESERVED, 0.001, CHAMPION), CHAMPION, mark("confirmed"), "aside"),
    ("confirmed, though normal", verdict("normal", OTHER, 0.5, CHAMPION), CHAMPION, mark("confirmed"), "aside"),
    ("confirmed, no model", verdict("learning", OTHER), None, mark("confirmed"), "aside"),
    ("reserved, normal", verdict("normal", RESERVED, 0.5, CHAMPION), CHAMPION, None, "reserve"),
    ("reserved, low p", verdict("normal", RESERVED, 0.03, CHAMPION), CHAMPION, None, "reserve"),
    ("reserved, anomalous", verdict("anomalous", RESERVED, 0.001, CHAMPION), CHAMPION, None, "reserve"),
    ("reserved, former model", verdict("normal", RESERVED, 0.5, FORMER), CHAMPION, None, "reserve"),
    ("reserved, no model", verdict("learning", RESERVED), None, None, "reserve"),
    (
        "reserved, false alarm",
        verdict("anomalous", RESERVED, 0.001, CHAMPION),
        CHAMPION,
        mark("false_alarm"),
        "reserve",
    ),
    ("anomalous", verdict("anomalous", OTHER, 0.001, CHAMPION), CHAMPION, None, "aside"),
    ("anomalous, high p", verdict("anomalous", OTHER, 0.9, CHAMPION), CHAMPION, None, "aside"),
    ("anomalous, false alarm", verdict("anomalous", OTHER, 0.001, CHAMPION), CHAMPION, mark("false_alarm"), "aside"),
    ("former model", verdict("normal", OTHER, 0.5, FORMER), CHAMPION, None, "aside"),
    ("model gone from service", verdict("normal", OTHER, 0.5, CHAMPION), None, None, "aside"),
    ("normal without a model", verdict("normal", OTHER, 0.5), None, None, "aside"),
    ("another model's version", verdict("normal", OTHER, 0.5, ModelRef("b", "0002")), CHAMPION, None, "aside"),
    ("learning, since trained", verdict("learning", OTHER), CHAMPION, None, "aside"),
    ("low p", verdict("normal", OTHER, 0.049, CHAMPION), CHAMPION, None, "aside"),
    ("p exactly at the limit", verdict("normal", OTHER, 0.05, CHAMPION), CHAMPION, None, "aside"),
    ("without p", verdict("normal", OTHER, None, CHAMPION), CHAMPION, None, "aside"),
    ("low p, false alarm", verdict("normal", OTHER, 0.03, CHAMPION), CHAMPION, mark("false_alarm"), "aside"),
    ("accepted", verdict("normal", OTHER, 0.0501, CHAMPION), CHAMPION, None, "accepted"),
    ("accepted, false alarm", verdict("normal", OTHER, 0.5, CHAMPION), CHAMPION, mark("false_alarm"), "accepted"),
    ("learning", verdict("learning", OTHER), None, None, "accepted"),
]


@pytest.mark.parametrize(
    ("judged", "champion", "said", "share"), [row[1:] for row in ROWS], ids=[row[0] for row in ROWS]
)
def test_the_truth_table(judged: Verdict, champion: ModelRef | None, said: Mark | None, share: str | None) -> None:
    assert gate(judged, settings=SETTINGS, champion=champion, mark=said) == share


@pytest.mark.parametrize(("p", "share"), [(0.001, "accepted"), (0.0, "aside")])
def test_accepting_above_zero_still_needs_a_p_value(p: float, share: str) -> None:
    everything = LearningSettings(accept_above=0)
    judged = verdict("normal", OTHER, p, CHAMPION)
    assert gate(judged, settings=everything, champion=CHAMPION, mark=None) == share


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
    found = gate(verdict(decision, name, p, model), settings=SETTINGS, champion=champion, mark=None)
    assert (found == "reserve") == is_reserved("r", name, SETTINGS.reserve)
