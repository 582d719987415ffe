"""Simple detectors beside a trained model: the trial, its figures, and that they change nothing."""

from __future__ import annotations

from pathlib import Path

import msgspec
import numpy as np
import pytest

from streamad.injected_faults import SELECTION_KINDS, UNSEEN_KINDS
from streamad.learn.registry.manifest import MANIFEST_FILE, Manifest, References, read_manifest
from streamad.learn.registry.registry import Registry
from streamad.learn.training.fits import FitStep
from streamad.learn.training.references import Beside, Part, Scored, Trial, references_of
from streamad.plugins import make_detector
from streamad.settings.plant_yaml import Settings
from streamad.types import FloatArray, WindowSet
from tests.support.learning.life import Life
from tests.support.learning.plant import N_EPOCHS, MeanDetector, settings_of, train, windows_of

ALL = ["pointwise", "pca", "nearest", "minirocket", "unfolded", "mpca"]
RATE = 0.02
SMALL = {"ensemble": {"n_minirocket": 84, "n_groups": 2, "time_limit_s": 1e-6}}


def trial_on(n: int, seed: int = 0) -> Trial:
    trial = Trial.of(windows_of(n), seed)
    assert trial is not None
    return trial


def by_hand(n_normal: int, n_faulty: int) -> Trial:
    """A trial of faults of one kind, the i-th in the i-th normal window."""
    n = n_normal + n_faulty
    windows = WindowSet(np.zeros((n, 1, 2), np.float32), np.full(n, 2), ("",) * n)
    return Trial(windows, n_normal, n_faulty, np.array(["gain"] * n_faulty), np.arange(n_faulty))


def beside(references: list[str], kind: str = "mean") -> Settings:
    options = SMALL.get(kind, {})
    return settings_of(model={"detector": kind, "options": options, "device": "cpu", "references": references})


def record_of(root: Path, model: str = "default") -> References:
    record = Registry(root).manifest(model, "0001").references
    assert record is not None
    return record


# --- the trial -------------------------------------------------------------------------------------------------------


def test_a_trial_holds_faults_of_the_kinds_that_no_detector_chooses_by() -> None:
    trial = trial_on(30)
    assert (trial.n_normal, trial.n_bases) == (30, 20)
    assert set(trial.kinds) == {kind.name for kind in UNSEEN_KINDS}
    assert not set(trial.kinds) & SELECTION_KINDS
    assert len(SELECTION_KINDS) == len(UNSEEN_KINDS) == 6
    assert len(trial.windows) == 30 + len(trial.kinds) <= 30 + 360
    normal = trial.windows.values[: trial.n_normal]
    np.testing.assert_array_equal(normal, windows_of(30).values)
    for place, base in enumerate(trial.bases.tolist(), start=trial.n_normal):
        assert trial.windows.ids[place] == trial.windows.ids[base]
        assert not np.array_equal(trial.windows.values[place], normal[base])


@pytest.mark.parametrize(("n", "expected"), [(3, None), (4, (4, 4)), (20, (20, 20)), (250, (200, 20))])
def test_a_trial_is_bounded_and_needs_four_windows(n: int, expected: tuple[int, int] | None) -> None:
    trial = Trial.of(windows_of(n), 0)
    assert (None if trial is None else (trial.n_normal, trial.n_bases)) == expected


# --- figures ---------------------------------------------------------------------------------------------------------


def test_the_figure_is_the_share_of_pairs_in_the_right_order() -> None:
    trial = by_hand(4, 2)
    scores = np.array([1.0, 2.0, 3.0, 4.0, 3.0, 9.0])
    assert trial.by_fault(scores) == {"gain": (2.5 + 4) / 8}


def test_equal_detectors_have_no_difference_and_a_better_one_lies_above_its_interval() -> None:
    trial, rng = trial_on(60), np.random.default_rng(0)
    good, bad = (rng.normal(0, 1, len(trial.windows)) for _ in range(2))
    assert trial.interval(good, good) == (0.0, 0.0)
    good[60:] += 3.0
    bad[60:] += 0.5
    low, high = trial.interval(bad, good)
    assert 0.1 < low < high < 0.6
    back = trial.interval(good, bad)
    assert back == (-high, -low)
    gain = np.mean([*trial.by_fault(good).values()]) - np.mean([*trial.by_fault(bad).values()])
    assert low < gain < high


@pytest.mark.parametrize("n", [4, 20, 60])
def test_of_two_equally_good_detectors_one_is_called_better_in_a_twentieth_of_cases(n: int) -> None:
    trial, rng = trial_on(n), np.random.default_rng(0)
    n_called = 0
    for _ in range(100):
        scores = rng.normal(0, 1, (2, len(trial.windows)))
        scores[:, n:] = scores[:, trial.bases] + rng.normal(1, 0.7, (2, len(trial.kinds)))
        n_called += trial.interval(*scores)[0] > 0
    assert n_called <= 12  # of a binomial with 1/20, 12 or more have a probability of 0.004


def test_a_kind_that_fails_is_left_out_with_its_reason() -> None:
    trial = trial_on(30)
    found = Beside([Part(windows_of(7), windows_of(30))], RATE, 0).terms_of(["pca", "nothing", "nearest"], trial)
    assert str(found["pca"]).startswith("7 training sequences: at least 8 are needed")
    assert str(found["nothing"]).startswith("no detector 'nothing'")
    terms = (
        MeanDetector()
        .fit(windows_of(40, seed=1), seed=0, device="cpu")
        .score(trial.windows.values, trial.windows.lengths)
    )
    record = references_of(trial, Scored(terms, terms[:30]), found, RATE)
    assert record is not None
    assert [(one.kind, one.auc, one.interval) for one in record.others] == [
        (kind, None, None) for kind in ("pca", "nothing", "nearest")
    ]
    assert record.better is None
    assert 0.5 < record.auc <= 1


def test_the_kinds_are_fitted_on_windows_with_the_units_of_the_plant() -> None:
    (part,) = Beside.of(settings_of(), Part(windows_of(7), windows_of(30))).parts
    assert part.training.units == ("degC", "bar", "")


def test_a_model_without_finite_scores_has_no_references() -> None:
    trial = trial_on(10)
    good, bad = (np.full((len(trial.windows), 2), value, np.float32) for value in (1.0, np.nan))
    assert references_of(trial, Scored(bad, good), {}, RATE) is None
    assert references_of(trial, Scored(good, bad), {}, RATE) is None


def scored(*scores: FloatArray, n_normal: int) -> Scored:
    """A detector of one term, calibrated by its scores of the normal windows."""
    terms = np.concatenate(scores).astype(np.float32)[:, None]
    return Scored(terms, terms[:n_normal])


def test_of_the_kinds_that_find_more_at_the_rate_the_best_is_named_whatever_the_auc() -> None:
    trial, rng = by_hand(99, 99), np.random.default_rng(0)
    normal = rng.normal(10, 1, 99)
    half = np.where(np.arange(99) % 2 == 0, 30.0, 5.0)  # found or below all normal ones: half the AUC
    ranked = np.full(99, float(np.sort(normal)[-9]))  # above most: an AUC of 0.92 that finds nothing
    most = np.where(np.arange(99) % 5 == 0, 5.0, 30.0)
    others = {"half": scored(normal, half, n_normal=99), "most": scored(normal, most, n_normal=99), "none": "left out"}
    record = references_of(trial, scored(normal, ranked, n_normal=99), others, 0.01)
    assert record is not None
    assert record.found is not None
    assert (record.found.share, record.auc) == (0.0, pytest.approx(0.92, abs=0.01))
    assert record.better is not None
    assert record.better.kind == "most"
    assert record.better.auc is not None
    assert record.better.auc < record.auc
    assert record.better.found is not None
    assert record.better.gain == record.better.found.share == pytest.approx(79 / 99)


# --- trainings -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("kind", "n"), [("mean", 30), ("mean", 149), ("mean", 150), ("ensemble", 30)])
def test_references_change_no_bit_of_model_calibration_and_promotion(tmp_path: Path, kind: str, n: int) -> None:
    data = windows_of(n)
    for name, references in (("with", ALL), ("without", [])):
        settings = beside(references, kind)
        detector = MeanDetector() if kind == "mean" else make_detector(kind, settings.model.options)
        train(tmp_path / name, data=data, settings=settings, detector=detector)
    one, other = (Registry(tmp_path / name) for name in ("with", "without"))
    folder = Path("default") / "versions" / "0001"
    names = {path.name for path in (tmp_path / "with" / folder).iterdir()} - {MANIFEST_FILE}
    assert {"calibration.npy", "model.ts" if kind == "ensemble" else "model.npz"} <= names
    for name in names:
        assert (tmp_path / "with" / folder / name).read_bytes() == (tmp_path / "without" / folder / name).read_bytes()
    with_them, without = one.manifest("default", "0001"), other.manifest("default", "0001")
    assert (with_them.metrics, with_them.decision) == (without.metrics, without.decision)
    assert one.current("default") == other.current("default")
    assert without.references is None
    assert with_them.references is not None
    assert [figures.kind for figures in with_them.references.others] == ALL
    assert with_them.references.n_held_out == {30: 6, 149: 30, 150: 49}[n]


def test_a_retraining_has_references_and_decides_as_without(tmp_path: Path) -> None:
    decided = []
    for name, references in (("with", ["pointwise", "pca"]), ("without", [])):
        life = Life(tmp_path / name)
        life.settings = life.settings.model_copy(
            update={"model": life.settings.model.model_copy(update={"references": tuple(references)})}
        )
        life.run(200)
        assert life.retrain("first").promoted
        life.run(200)
        decided.append((life.retrain(), life.manifest("0002").metrics))
        found = [life.manifest(version).references for version in ("0001", "0002")]
        assert [record is not None for record in found] == [bool(references)] * 2
    assert decided[0] == decided[1]


def test_a_kind_is_not_its_own_reference(tmp_path: Path) -> None:
    settings = beside(["pca", "pointwise"], "pca")
    train(tmp_path / "a", settings=settings, detector=make_detector("pca", {}))
    assert [one.kind for one in record_of(tmp_path / "a").others] == ["pointwise"]
    train(tmp_path / "b", settings=beside(["pca"], "pca"), detector=make_detector("pca", {}))
    assert Registry(tmp_path / "b").manifest("default", "0001").references is None


def test_the_references_of_a_split_are_those_of_the_exported_model(tmp_path: Path) -> None:
    settings = beside(["nearest"])
    train(tmp_path, data=windows_of(150), settings=settings)
    record = record_of(tmp_path)
    assert record.auc == pytest.approx(np.mean([*record.by_fault.values()]))
    (nearest,) = record.others
    assert nearest.auc is not None
    assert nearest.interval is not None
    assert nearest.difference == pytest.approx(nearest.auc - record.auc)
    assert nearest.interval[0] <= nearest.difference <= nearest.interval[1]


def test_an_interrupted_training_goes_on_to_the_same_references(tmp_path: Path) -> None:
    def interrupt(step: FitStep) -> None:
        if (step.fit, step.step.epoch) == (3, N_EPOCHS):
            raise KeyboardInterrupt

    settings = beside(["pointwise"])
    with pytest.raises(KeyboardInterrupt):
        train(tmp_path / "a", settings=settings, progress=interrupt)
    train(tmp_path / "a", settings=settings)
    train(tmp_path / "b", settings=settings)
    assert record_of(tmp_path / "a") == record_of(tmp_path / "b")


def test_a_manifest_from_before_loads(tmp_path: Path) -> None:
    train(tmp_path, settings=beside(["pointwise"]))
    path = Registry(tmp_path).versions("default")
    folder = tmp_path / "default" / "versions" / path[0]
    content = msgspec.json.decode((folder / MANIFEST_FILE).read_bytes())
    assert content.pop("references")["others"][0]["kind"] == "pointwise"
    (folder / MANIFEST_FILE).write_bytes(msgspec.json.encode(content))
    manifest: Manifest = read_manifest(folder, "model")
    assert manifest.references is None
