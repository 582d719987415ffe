"""Figures of labelled sequences: those of the judged verdicts, by label, beside other models."""

from __future__ import annotations

import io
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import streamad
from streamad import Model
from streamad.errors import InputError
from streamad.notebook import evaluating
from streamad.notebook.arguments import says
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
        ([], r"labels is \[\]: give one for each"),
        ([[0], [0, 1]], "labels is .*: give one for each"),
        (["ok", None], "labels: sequence 1 has none"),
        (["ok", float("nan")], "labels: sequence 1 has none"),
        (["ok", ""], "labels: sequence 1 has none"),
        ([0, 10**400], "0 .normal. and 1"),
        ([0, float("nan")], "0 .normal. and 1"),
        (np.array([0, float("nan")], dtype=object), "0 .normal. and 1"),
    ],
)
def test_labels_that_fit_not_are_refused(model: Model, labels: list[object], says: str) -> None:
    with pytest.raises(InputError, match=says):
        streamad.evaluate(model, X, labels)


def _frame() -> pd.DataFrame:
    rows = [
        pd.DataFrame({"id": f"b{n}", "time": np.arange(40), "temp": a, "pressure": b}) for n, (a, b) in enumerate(X)
    ]
    return pd.concat(rows)


IDS = [f"b{n}" for n in range(50)]


@pytest.mark.parametrize(
    "labels",
    [
        dict(zip(IDS[::-1], LABELS[::-1], strict=True)),
        pd.Series(LABELS, index=IDS).sample(frac=1, random_state=0),
        pd.Series([*LABELS, "of another test"], index=[*IDS, "b99"]),
        pd.Series(LABELS),
        pd.Series(LABELS, index=np.arange(50) + 7),
        LABELS,
    ],
)
def test_labels_of_a_frame_go_by_its_ids_if_they_have_them_else_by_order(model: Model, labels: Any) -> None:
    assert streamad.evaluate(model, _frame(), labels).labels == tuple(LABELS)
    assert streamad.compare([model], _frame(), labels).labels == tuple(LABELS)


@pytest.mark.parametrize(
    ("labels", "says"),
    [
        ({"b0": 1}, "labels has none for the sequence b1, b2"),
        (pd.Series(LABELS[1:], index=IDS[1:]), "labels has none for the sequence b0: give one for each id of X"),
        (pd.DataFrame({"id": IDS, "fault": LABELS}), "labels is a data frame with id, fault: give one column"),
    ],
)
def test_labels_by_id_that_lack_one_are_refused(model: Model, labels: Any, says: str) -> None:
    with pytest.raises(InputError, match=says):
        streamad.evaluate(model, _frame(), labels)


def test_the_table_has_the_labels_beneath_the_model_whose_they_are(model: Model) -> None:
    table = repr(streamad.compare({"near": model, "again": model}, X, LABELS)).splitlines()[2:]
    assert [line.partition("  ")[0] or line.strip().partition("  ")[0] for line in table] == [
        "near",
        "nothing seen",
        "step",
        "again",
    ]


def test_the_simple_kinds_stand_beside_it_on_the_same_training(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evaluating, "SIMPLE_KINDS", ("nearest", "pointwise"))
    found = streamad.evaluate(model, X, LABELS, training=walks(60))
    assert list(found.beside) == ["nearest", "pointwise"]
    assert found.beside["nearest"].auc == found.figures.auc
    assert "pointwise" in repr(found)


@pytest.mark.parametrize(("verbose", "lines"), [(True, ["beside it: nearest (1/1)"]), (None, []), (False, [])])
def test_it_tells_of_long_work_if_someone_looks(
    verbose: bool | None,
    lines: list[str],
    model: Model,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(evaluating, "SIMPLE_KINDS", ("nearest",))
    streamad.evaluate(model, X, LABELS, training=walks(60), verbose=verbose)
    assert capsys.readouterr().err.splitlines() == lines


def test_a_notebook_is_told_of_long_work(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not says(None)
    kernels = type("OutStream", (io.StringIO,), {"__module__": "ipykernel.iostream"})  # what sys.stderr is in a kernel
    monkeypatch.setattr(sys, "stderr", kernels())
    assert says(None)


def test_training_is_a_frame_with_the_columns_of_the_model_and_leaves_its_registry_alone(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(evaluating, "SIMPLE_KINDS", ("pointwise",))
    rows = [
        {"batch": str(place), "at": point, "a": a, "b": b}
        for place, each in enumerate(walks(40))
        for point, (a, b) in enumerate(each.T.tolist())
    ]
    frame = pd.DataFrame(rows)
    fitted(frame, id="batch", time="at", early=2).save(tmp_path / "registry")
    model = streamad.load(tmp_path / "registry", false_alarm_rate=0.05, id="batch", time="at")
    found = streamad.evaluate(model, frame, [0] * 39 + [1], training=frame)
    assert found.beside["pointwise"].n_normal == 39
    assert [path.name for path in (tmp_path / "registry" / "default" / "versions").iterdir()] == ["0001"]
    with pytest.raises(InputError, match=r"training: .* no column batch"):
        streamad.evaluate(model, frame, [0] * 39 + [1], training=frame.rename(columns={"batch": "id"}))


@pytest.mark.parametrize("normal", ["Normal", "i.O.", "pass", "healthy", "False", "0.0"])
def test_the_words_of_the_command_line_mean_normal(normal: str, model: Model) -> None:
    figures = streamad.evaluate(model, X, [normal] * 40 + ["step"] * 10).figures
    assert (figures.n_normal, figures.n_anomalous) == (40, 10)


def test_sequences_without_a_score_are_drawn_over(model: Model) -> None:
    found = streamad.evaluate(model, np.zeros((3, 2, 1)), [0, 1, 1])
    assert found.figures.n_unscorable == 3
    assert found.plot().png.startswith(b"\x89PNG")


def test_models_are_compared_on_the_same_sequences(model: Model) -> None:
    other = fitted(walks(60), detector="pointwise")
    found = streamad.compare({"near": model, "points": other}, X, LABELS)
    assert (found.name, list(found.beside)) == ("near", ["points"])
    assert found.beside["points"].detection_rate == other.predict(X)[40:].mean()
    assert streamad.compare([model, other], X, LABELS).name == "1: nearest"
    with pytest.raises(InputError, match="at least one"):
        streamad.compare({}, X, LABELS)
