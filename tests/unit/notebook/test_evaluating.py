"""Figures of labelled sequences: those of the judged verdicts, by label, beside other models."""

from __future__ import annotations

import numpy as np
import pytest

import streamad
from streamad import Model
from streamad.errors import InputError
from streamad.notebook import evaluating
from tests.support.walks import fitted, walks, with_faults

X = np.concatenate([walks(40, 1), with_faults(walks(5, 2)), walks(5, 3)])
LABELS = ["normal"] * 40 + ["step"] * 5 + ["nothing seen"] * 5


def test_the_figures_are_those_of_the_decisions_by_label(model: Model) -> None:
    alerts = model.predict(X)
    found = streamad.evaluate(model, X, LABELS)
    assert found.figures.false_alarm_rate == alerts[:40].mean()
    assert found.figures.detection_rate == alerts[40:].mean()
    assert {each.label: each.rate for each in found.figures.by_label} == {
        "normal": alerts[:40].mean(),
        "step": 1.0,
        "nothing seen": alerts[45:].mean(),
    }
    table = repr(found).splitlines()
    assert table[0] == "40 normal and 10 anomalous sequences, configured false-alarm rate 0.05"
    assert any(line.split()[:3] == ["step", "1.000", "100.0"] for line in table)
    assert found.plot().png.startswith(b"\x89PNG")


@pytest.mark.parametrize(
    "labels",
    [
        [0] * 40 + [1] * 10,
        [False] * 40 + [True] * 10,
        np.r_[np.zeros(40), np.ones(10)],
        np.r_[np.zeros(40), np.ones(10)].astype(object),
    ],
)
def test_labels_may_be_numbers(model: Model, labels: list[int]) -> None:
    found = streamad.evaluate(model, X, labels)
    assert (found.figures.n_normal, found.figures.n_anomalous) == (40, 10)


@pytest.mark.parametrize(
    ("labels", "says"),
    [
        ([0] * 3, "50 sequences, and there are 3 labels"),
        ([-1] * 50, "0 .normal. and 1"),
        ([], "one label for each"),
        ([[0], [0, 1]], "one label for each"),
        (["ok", None], "sequence 1 has no label"),
        (["ok", float("nan")], "sequence 1 has no label"),
        (["ok", ""], "sequence 1 has no label"),
        ([0, float("nan")], "0 .normal. and 1"),
        (np.array([0, float("nan")], dtype=object), "0 .normal. and 1"),
    ],
)
def test_labels_that_fit_not_are_refused(model: Model, labels: list[object], says: str) -> None:
    with pytest.raises(InputError, match=says):
        streamad.evaluate(model, X, labels)


def test_the_simple_kinds_stand_beside_it_on_the_same_training(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evaluating, "SIMPLE_KINDS", ("nearest", "pointwise"))
    found = streamad.evaluate(model, X, LABELS, training=walks(60))
    assert list(found.beside) == ["nearest", "pointwise"]
    assert found.beside["nearest"].auc == found.figures.auc
    assert "pointwise" in repr(found)


def test_models_are_compared_on_the_same_sequences(model: Model) -> None:
    other = fitted(walks(60), detector="pointwise")
    found = streamad.compare({"near": model, "points": other}, X, LABELS)
    assert (found.name, list(found.beside)) == ("near", ["points"])
    assert found.beside["points"].detection_rate == other.predict(X)[40:].mean()
    assert streamad.compare([model, other], X, LABELS).name == "1: nearest"
    with pytest.raises(InputError, match="at least one"):
        streamad.compare({}, X, LABELS)
