"""Judging in batches: a partition's verdicts depend on no other partition, and memory on no length of the input."""

from __future__ import annotations

from pathlib import Path
from typing import cast

import numpy as np
import pytest

from streamad.errors import ArtifactError
from streamad.judge.calibration import Calibration
from streamad.judge.scoring import TOGETHER, ModelInService, together
from streamad.messages import ModelRef, Verdict
from streamad.notebook.config import plant_of, settings_of
from streamad.offline import judging
from streamad.offline.judging import SequenceJudge
from streamad.offline.models import Models
from streamad.types import FinishedSequence, FloatArray, IntArray, Position

N_POINTS = 4


class CountingScorer:
    """A scorer whose term is how many windows were scored together, so that a verdict tells its batch."""

    window_shape = (1, N_POINTS)
    n_terms = 1

    def __init__(self, n_together: int | None = None) -> None:
        self.n_together = n_together

    def score(self, windows: FloatArray, lengths: IntArray) -> FloatArray:
        return np.full((len(windows), 1), len(windows), np.float32)


class OneModel:
    """``Models`` of a plant with one model."""

    def __init__(self, scorer: CountingScorer | None) -> None:
        self._scorer = scorer

    def get(self, name: str) -> ModelInService:
        if self._scorer is None:
            raise ArtifactError("it is damaged")
        calibration = Calibration.from_terms(np.arange(50, dtype=np.float32)[:, None], 0.1)
        return ModelInService(ModelRef(name, "0001"), self._scorer, calibration)

    def ref_of(self, name: str | None) -> ModelRef | None:
        return None if name is None or self._scorer is None else self.get(name).ref


@pytest.fixture
def judge(tmp_path: Path) -> SequenceJudge:
    return judge_with(CountingScorer(), tmp_path)


def judge_with(scorer: CountingScorer | None, folder: Path) -> SequenceJudge:
    settings = settings_of(["a"], [""], model={"detector": "nearest"}, window={"length": N_POINTS}, alerts={})
    return SequenceJudge(plant_of(settings, folder), cast("Models", OneModel(scorer)))


def sequence(number: int, *, n: int = N_POINTS) -> FinishedSequence:
    times_us = np.arange(n, dtype=np.int64) * 1_000_000
    return FinishedSequence("s", f"B-{number}", "marker", times_us, np.ones((n, 1), np.float32), Position(number, 0))


def names(verdicts: list[Verdict]) -> list[str]:
    return [verdict.sequence for verdict in verdicts]


def test_a_batch_is_judged_when_it_is_full_and_the_rest_at_the_end(judge: SequenceJudge) -> None:
    found = [judge.add("p", sequence(number)) for number in range(TOGETHER + 2)]
    assert [number for number, each in enumerate(found) if each] == [TOGETHER - 1]
    assert names(found[TOGETHER - 1]) == [f"B-{number}" for number in range(TOGETHER)]
    rest = judge.finish()
    assert [(each.sequence, each.score) for each in rest] == [(f"B-{TOGETHER}", 2.0), (f"B-{TOGETHER + 1}", 2.0)]
    assert judge.finish() == []
    assert judge.decisions.total() == judge.n_scored == TOGETHER + 2


def test_partitions_are_judged_apart_also_if_they_come_mixed(judge: SequenceJudge) -> None:
    for number in range(5):
        assert judge.add("even" if number % 2 == 0 else "odd", sequence(number)) == []
    assert [(each.sequence, each.score) for each in judge.end("odd")] == [("B-1", 2.0), ("B-3", 2.0)]
    assert [(each.sequence, each.score) for each in judge.finish()] == [("B-0", 3.0), ("B-2", 3.0), ("B-4", 3.0)]
    assert judge.end("odd") == []


def test_long_sequences_do_not_wait_for_a_full_batch(judge: SequenceJudge, monkeypatch: pytest.MonkeyPatch) -> None:
    of_one = 12 * N_POINTS + 4 * N_POINTS  # times and values, and the window
    monkeypatch.setattr(judging, "_MOST_BYTES", 3 * of_one)
    found = [len(judge.add("p", sequence(number))) for number in range(7)]
    assert found == [0, 0, 3, 0, 0, 3, 0]


def test_sequences_without_a_window_keep_their_place(judge: SequenceJudge) -> None:
    for number in range(3):
        judge.add("p", sequence(number, n=1 if number == 1 else N_POINTS))
    verdicts = judge.finish()
    assert [(each.sequence, each.decision) for each in verdicts][1] == ("B-1", "unscorable")
    assert names(verdicts) == ["B-0", "B-1", "B-2"]
    assert judge.reasons.total() == 1


def test_a_model_that_cannot_be_used_makes_its_sequences_unscorable_and_is_an_error_at_the_end(tmp_path: Path) -> None:
    judge = judge_with(None, tmp_path)
    judge.add("p", sequence(0))
    (verdict,) = judge.finish()
    assert (verdict.decision, verdict.detail) == ("unscorable", "it is damaged")
    with pytest.raises(ArtifactError, match="it is damaged"):
        judge.check_models()


@pytest.mark.parametrize(("said", "used"), [(None, TOGETHER), (700, 700), (1, 1)])
def test_a_scorer_may_say_how_many_windows_it_takes(said: int | None, used: int, tmp_path: Path) -> None:
    scorer = CountingScorer(said)
    assert together(OneModel(scorer).get("default")) == used
    judge = judge_with(scorer, tmp_path)
    found = [judge.add("p", sequence(number)) for number in range(used)]
    assert {verdict.score for verdict in found[-1]} == {float(used)}
