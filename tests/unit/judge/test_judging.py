"""Judging one sequence: what is scored, what is refused, and which messages come of it."""

from __future__ import annotations

import numpy as np
import pytest

from streamad.ingest.windowing import Unscorable
from streamad.judge.attribution import METHOD
from streamad.judge.explainer import Ledger, terms_of, window_of
from streamad.judge.judging import Judge, JudgedSequence
from streamad.judge.scoring import MicroBatcher
from streamad.messages import NO_METHOD
from streamad.testing import ManualClock
from streamad.types import FinishedSequence, FloatArray, IntArray, Position
from tests.support.runtime.pipeline import CHANNELS, START_US, SquareScorer, explainer_of, model_of, settings_of


def sequence_of(n: int, value: float = 1.0, *, partial: bool = False, **lost: int) -> FinishedSequence:
    times_us = START_US + np.arange(n, dtype=np.int64) * 1_000_000
    values = np.full((n, len(CHANNELS)), value, dtype=np.float32)
    return FinishedSequence("a", "1", "marker", times_us, values, Position(7, 0), partial, **lost)


class InfiniteScorer(SquareScorer):
    def score(self, windows: FloatArray, lengths: IntArray) -> FloatArray:
        return np.full_like(super().score(windows, lengths), np.inf)


async def judged(
    sequence: FinishedSequence,
    *,
    refused: str | None = None,
    explain: bool = True,
    explains: bool = True,
    max_item_bytes: int | None = None,
    scorer: SquareScorer | None = None,
) -> tuple[JudgedSequence, SquareScorer]:
    settings = settings_of()
    scorer, clock = scorer or SquareScorer(), ManualClock(START_US)
    model = model_of(scorer, explains=explains)
    batcher = MicroBatcher(model, clock, settings.run)
    explainer = explainer_of(settings, clock, model) if explain else None
    try:
        ledger = Ledger(max_item_bytes=max_item_bytes)
        return await Judge(settings, batcher, clock, explainer).judge(sequence, ledger, refused), scorer
    finally:
        await batcher.close()


async def test_a_normal_sequence_gets_a_verdict_and_nothing_else() -> None:
    sequence, _ = await judged(sequence_of(5))
    assert (sequence.verdict.decision, sequence.verdict.score) == ("normal", pytest.approx(3.0))
    assert [record.role for record in sequence.outputs(with_verdicts=True)] == ["verdicts"]
    assert sequence.outputs(with_verdicts=False) == []


async def test_an_anomalous_sequence_gets_verdict_and_alert_and_owes_the_attribution() -> None:
    sequence, scorer = await judged(sequence_of(5, 10.0))
    records = sequence.outputs(with_verdicts=True)
    assert [(record.role, record.key) for record in records] == [("verdicts", "a"), ("alerts", "a")]
    assert [record.role for record in sequence.outputs(with_verdicts=False)] == ["alerts"]
    assert sequence.debt is not None
    assert sequence.debt.alert == sequence.alert
    assert window_of(sequence.debt).values.tolist() == sequence.window.values.tolist()  # type: ignore[union-attr]
    assert terms_of(sequence.debt).tolist() == [100.0] * len(CHANNELS)
    assert scorer.n_windows == 1


async def test_an_alert_whose_debt_has_no_room_waits_for_its_attribution() -> None:
    sequence, _ = await judged(sequence_of(5, 10.0), max_item_bytes=100)
    assert sequence.debt is None
    assert [record.role for record in sequence.outputs(with_verdicts=False)] == ["alerts", "attributions"]
    assert sequence.attribution is not None
    assert sequence.attribution.method == METHOD


async def test_an_alert_stands_alone_if_attribution_is_off() -> None:
    sequence, scorer = await judged(sequence_of(5, 10.0), explain=False)
    assert sequence.alert is not None
    assert (sequence.attribution, sequence.debt) == (None, None)
    assert scorer.n_windows == 1


async def test_an_attribution_by_a_model_without_reference_windows_says_so() -> None:
    sequence, _ = await judged(sequence_of(5, 10.0), explains=False, max_item_bytes=100)
    assert sequence.attribution is not None
    assert (sequence.attribution.method, sequence.attribution.channels) == (NO_METHOD, [])
    assert "has no reference windows" in str(sequence.attribution.detail)


@pytest.mark.parametrize(("partial", "refused"), [(True, None), (False, "split between two partitions")])
async def test_a_refused_sequence_is_not_scored_and_has_a_reason(partial: bool, refused: str | None) -> None:
    sequence, scorer = await judged(sequence_of(5, 10.0, partial=partial), refused=refused)
    assert sequence.verdict.decision == "unscorable"
    assert sequence.verdict.detail is not None
    assert (refused or "partial") in sequence.verdict.detail
    assert sequence.verdict.model is not None
    assert scorer.n_windows == 0
    assert [record.role for record in sequence.outputs(with_verdicts=False)] == ["alerts"]
    assert [record.role for record in sequence.outputs(with_verdicts=True)] == ["verdicts"]


async def test_a_judgement_holds_the_window_it_is_about_and_the_models_name() -> None:
    sequence, _ = await judged(sequence_of(5, 2.0))
    assert sequence.window is not None
    assert (sequence.window.length, sequence.window.values[0, :6].tolist()) == (5, [2.0] * 5 + [0.0])
    assert sequence.model_name == "test"
    refused, _ = await judged(sequence_of(5), refused="split between two partitions")
    assert (refused.window, refused.model_name) == (None, "test")
    not_finite, _ = await judged(sequence_of(5), scorer=InfiniteScorer())
    assert (not_finite.verdict.decision, not_finite.window) == ("unscorable", None)


async def test_without_a_model_the_verdict_states_the_progress_of_learning_and_no_alert_is_raised() -> None:
    settings = settings_of()
    clock = ManualClock(START_US)
    batcher = MicroBatcher(None, clock, settings.run, name="press")
    batcher.learning = lambda: "3 of 200"
    judge = Judge(settings, batcher, clock, explainer_of(settings, clock))
    sequence = await judge.judge(sequence_of(5, 10.0), Ledger())
    verdict = sequence.verdict
    assert (verdict.decision, verdict.detail, verdict.model, verdict.score) == ("learning", "3 of 200", None, None)
    assert sequence.window is not None
    assert sequence.model_name == "press"
    assert [record.role for record in sequence.outputs(with_verdicts=True)] == ["verdicts"]
    assert sequence.outputs(with_verdicts=False) == []
    refused = await judge.judge(sequence_of(5, partial=True), Ledger())
    assert (refused.verdict.decision, refused.verdict.model) == ("unscorable", None)
    await batcher.close()


async def test_a_sequence_for_which_there_is_no_model_is_unscorable_with_a_reason() -> None:
    class Nobody(MicroBatcher):
        async def batcher_for(self, routes: tuple[str, ...]) -> Unscorable:  # type: ignore[override]
            return Unscorable(f"no model for {routes}")

    settings = settings_of()
    clock = ManualClock(START_US)
    batcher = Nobody(model_of(), clock, settings.run)
    sequence = await Judge(settings, batcher, clock, explainer_of(settings, clock)).judge(sequence_of(5), Ledger())
    assert (sequence.verdict.decision, sequence.verdict.detail) == ("unscorable", "no model for ()")
    assert (sequence.verdict.model, sequence.window, sequence.model_name) == (None, None, "")
    await batcher.close()


@pytest.mark.parametrize(
    ("lost", "reason"),
    [
        ({"merged": 20, "displaced": 5}, None),  # 5 of 100
        ({"merged": 20, "displaced": 6}, "merged_samples"),
        ({"merged": 20}, None),
        ({"n_late": 4}, None),  # 4 of 84
        ({"n_late": 5}, "late_samples"),
    ],
)
async def test_a_sequence_that_lost_more_than_a_twentieth_of_its_samples_is_unscorable(
    lost: dict[str, int], reason: str | None
) -> None:
    sequence, scorer = await judged(sequence_of(80, 10.0, batch=(("recipe", "PX-7"),), **lost))
    verdict = sequence.verdict
    assert (verdict.n_merged, verdict.n_late) == (lost.get("displaced", 0), lost.get("n_late", 0))
    assert verdict.batch == {"recipe": "PX-7"}
    if reason is None:
        assert sequence.alert is not None
        assert sequence.alert.batch == verdict.batch
        assert (sequence.alert.n_merged, sequence.alert.n_late) == (verdict.n_merged, verdict.n_late)
        return
    assert (verdict.decision, sequence.alert, scorer.n_windows) == ("unscorable", None, 0)
    assert Unscorable(str(verdict.detail)).reason == reason
    assert "allowed are 5\u00a0% (sequences.max_" in str(verdict.detail)
    partial, _ = await judged(sequence_of(80, 10.0, partial=True, **lost))
    assert str(partial.verdict.detail).startswith("partial: ")
