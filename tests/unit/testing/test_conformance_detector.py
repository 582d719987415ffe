"""check_detector accepts a good detector and names the law that each broken one breaks."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from pydantic import BaseModel, ConfigDict

from streamad.errors import ArtifactError, TrainingDataError
from streamad.ports import TrainingProgress, TrainingStep, TrainingSummary
from streamad.testing import check_detector
from streamad.types import FloatArray, IntArray, WindowSet
from tests.support.detectors import ROWS, SEQUENCES, Case

FILE = "mean.npz"


class Options(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class LooseOptions(BaseModel):
    pass


class Mean:
    """Trained and in service: two terms, the squared distance to the mean training window and its half."""

    n_terms = 2
    training: WindowSet

    def __init__(self, mean: np.ndarray, lengths: IntArray | None = None, n_sequences: int = 0) -> None:
        self.mean = mean
        self.window_shape = mean.shape
        self.summary = TrainingSummary(n_sequences, 2, 2, 0.0, 0.0, "cpu")

    def score(self, windows: FloatArray, lengths: IntArray) -> FloatArray:
        inside = np.arange(self.mean.shape[1]) < lengths[:, None, None]
        squared = (np.where(inside, windows - self.mean, 0.0).astype(np.float64) ** 2).mean(axis=(1, 2))
        terms: FloatArray = np.stack([squared, squared / 2], axis=1).astype(np.float32)
        return terms

    def training_scores(self) -> FloatArray:
        return self.score(self.training.values, self.training.lengths)

    def export(self, folder: Path) -> tuple[str, ...]:
        np.savez(folder / FILE, mean=self.mean)
        return (FILE,)


class Detector:
    """A good one; tests override what they break."""

    options_model: type[BaseModel] = Options
    fitted_as: type[Mean] = Mean

    def fit(
        self,
        data: WindowSet,
        *,
        seed: int,
        device: str,
        progress: TrainingProgress | None = None,
        resume: Path | None = None,
    ) -> Mean:
        if len(data) < 2 or not np.isfinite(data.values).all():
            raise TrainingDataError("at least two finite windows are needed")
        for epoch in (1, 2):
            if progress:
                progress(TrainingStep(epoch, 2, 0.0))
        mean = data.values.mean(axis=0) + np.random.default_rng(seed).normal(0, 1e-3)
        fitted = self.fitted_as(mean.astype(np.float32), n_sequences=len(data))
        fitted.training = data
        return fitted

    def load(self, folder: Path, *, device: str) -> Mean:
        try:
            with np.load(folder / FILE, allow_pickle=False) as arrays:
                return self.fitted_as(arrays["mean"])
        except OSError as error:
            raise ArtifactError(f"no model in {folder}") from error


def check(make: Callable[[], Any], folder: Path, case: Case = SEQUENCES, **options: Any) -> None:
    check_detector(make, normal=case.normal, anomalous=case.anomalous, folder=folder, **options)


@pytest.mark.parametrize("case", [SEQUENCES, ROWS], ids=["sequences", "rows"])
def test_a_good_detector_passes(case: Case, tmp_path: Path) -> None:
    check(Detector, tmp_path, case)


# --- training, scoring and loading wrongly ----------------------------------------------------------------------


def scoring(change: Callable[[Mean, FloatArray, IntArray, FloatArray], Any]) -> type[Detector]:
    """A detector whose scores go through ``change(model, windows, lengths, terms)``."""

    class BrokenMean(Mean):
        def score(self, windows: FloatArray, lengths: IntArray) -> FloatArray:
            changed: FloatArray = change(self, windows, lengths, super().score(windows, lengths))
            return changed

    class Broken(Detector):
        fitted_as = BrokenMean

    return Broken


def fitting(before: Callable[[WindowSet, dict[str, Any]], WindowSet]) -> type[Detector]:
    """A detector that trains on ``before(data, arguments)``."""

    class Broken(Detector):
        def fit(self, data: WindowSet, **arguments: Any) -> Mean:
            return super().fit(before(data, arguments), **arguments)

    return Broken


def draw(data: WindowSet, arguments: dict[str, Any]) -> WindowSet:
    np.random.random()
    return data


def draw_from_torch(data: WindowSet, arguments: dict[str, Any]) -> WindowSet:
    torch.rand(1)
    return data


def seed_from_python(data: WindowSet, arguments: dict[str, Any]) -> WindowSet:
    arguments["seed"] = int(random.Random(str(random.getstate())).random() * 1e6)
    return data


def scale_in_place(data: WindowSet, arguments: dict[str, Any]) -> WindowSet:
    data.values[...] *= 2
    return data


def report_wrongly(data: WindowSet, arguments: dict[str, Any]) -> WindowSet:
    if progress := arguments.get("progress"):
        progress(TrainingStep(2, 2, 0.0))
    return data


def fill_missing(data: WindowSet, arguments: dict[str, Any]) -> WindowSet:
    return WindowSet(np.nan_to_num(data.values), data.lengths, data.ids)


def add_one(data: WindowSet, arguments: dict[str, Any]) -> WindowSet:
    return data.take(np.append(np.arange(len(data)), 0))


TRAINING_AND_SCORING = [
    (fitting(draw), "fit must leave the caller's random state alone"),
    (fitting(draw_from_torch), "fit must leave the caller's random state alone"),
    (fitting(seed_from_python), "the same seed must give the same scores"),
    (fitting(scale_in_place), "fit must not change its arguments"),
    (fitting(report_wrongly), r"progress must count epochs .* \[2, 1, 2\]"),
    (fitting(fill_missing), "NaN in training must be a TrainingDataError"),
    (fitting(add_one), "the summary must state the sequences trained on: 37 of 36"),
    (scoring(lambda m, w, n, t: -t), r"anomalies must score higher .* AUC 0\.000"),
    (scoring(lambda m, w, n, t: t[:, 0]), r"terms must have shape \[B, K\]"),
    (scoring(lambda m, w, n, t: t.astype(np.float64)), "terms must be float32"),
    (scoring(lambda m, w, n, t: t.astype(w.dtype)), "terms of float64 windows must be float32"),
    (scoring(lambda m, w, n, t: t * 2 if w.dtype == np.float64 else t), "float64 windows must score like float32"),
    (scoring(lambda m, w, n, t: t if w.flags.c_contiguous else 2 * t), "not contiguous must score like others"),
    (scoring(lambda m, w, n, t: t * (1 + (len(t) > 1))), "one window alone must score as in its batch"),
    (
        scoring(lambda m, w, n, t: t + w.sum(axis=(1, 2), dtype=np.float32)[:, None] * np.float32(1e-3)),
        "beyond a window's length",
    ),
    (scoring(lambda m, w, n, t: t if m.mean[0].std() > 0.1 else t * np.nan), "constant"),
]


class Forgetful(Detector):
    def load(self, folder: Path, *, device: str) -> Mean:
        return self.fitted_as(super().load(folder, device=device).mean * np.float32(0.5))


class DrawsWhileLoading(Detector):
    def load(self, folder: Path, *, device: str) -> Mean:
        np.random.random()
        return super().load(folder, device=device)


class LoadsNothing(Detector):
    def load(self, folder: Path, *, device: str) -> Mean:
        return super().load(folder, device=device) if (folder / FILE).exists() else Mean(np.zeros((3, 24), np.float32))


class OtherNames(Mean):
    def export(self, folder: Path) -> tuple[str, ...]:
        super().export(folder)
        return ("model.ts",)


class SpoilsItself(Mean):
    def export(self, folder: Path) -> tuple[str, ...]:
        names = super().export(folder)
        self.mean = self.mean * np.float32(1.00001)
        return names


class KnowsItsWindows(Mean):
    """As a distance to the nearest training window, which is 0 for one of them."""

    def training_scores(self) -> FloatArray:
        return np.zeros_like(super().training_scores())


class ForgetsOne(Mean):
    def training_scores(self) -> FloatArray:
        return super().training_scores()[1:]


class DoublesItsOwn(Mean):
    def training_scores(self) -> FloatArray:
        own = super().training_scores()
        own[0] += 2 * own[-1]
        return own


def with_class(**attributes: Any) -> type[Detector]:
    return type("Broken", (Detector,), attributes)


@pytest.mark.parametrize(
    ("broken", "law"),
    [
        *TRAINING_AND_SCORING,
        (Forgetful, "a loaded model must score like the one that was exported"),
        (DrawsWhileLoading, "load must leave the caller's random state alone"),
        (LoadsNothing, "loading from an empty folder must be an ArtifactError"),
        (
            with_class(fitted_as=OtherNames),
            r"export must return the files it wrote, \['mean\.npz'\], not \['model\.ts'\]",
        ),
        (with_class(fitted_as=SpoilsItself), "export must leave the fitted model as it was"),
        (with_class(fitted_as=KnowsItsWindows), "a window trained on twice must score like its copies"),
        (with_class(fitted_as=ForgetsOne), r"\(36, 2\)"),
        (with_class(fitted_as=DoublesItsOwn), "a window trained on twice must score like its copies"),
        (with_class(options_model=LooseOptions), "options_model must forbid unknown options"),
    ],
)
def test_a_broken_detector_breaks_its_law(broken: type[Detector], law: str, tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match=law):
        check(broken, tmp_path)


def test_the_caller_chooses_the_least_auc(tmp_path: Path) -> None:
    backwards = scoring(lambda m, w, n, t: -t)
    with pytest.raises(AssertionError, match=r"at least 0\.5 is due"):
        check(backwards, tmp_path, min_auc=0.5)
    (tmp_path / "other").mkdir()
    check(backwards, tmp_path / "other", min_auc=0.0)


def test_the_global_random_state_is_unchanged(tmp_path: Path) -> None:
    before = random.getstate(), np.random.get_state()[1].tobytes(), torch.get_rng_state()
    check(Detector, tmp_path)
    assert random.getstate() == before[0]
    assert np.random.get_state()[1].tobytes() == before[1]
    assert torch.equal(torch.get_rng_state(), before[2])


def test_too_few_windows_are_refused(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="at least 16 normal and 2 anomalous"):
        check(Detector, tmp_path, Case(SEQUENCES.normal.take(np.arange(15)), SEQUENCES.anomalous))
