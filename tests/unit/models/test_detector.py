from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from streamad.errors import ArtifactError
from streamad.plugins import load
from streamad.ports import Detector, FittedDetector, Scorer
from streamad.types import FloatArray, IntArray, WindowSet
from streamad_models.neutral_ad import NeutralAD, NeutralADOptions
from tests.unit.models.small import options, sines


def test_it_is_a_detector_found_by_its_kind(tmp_path: Path) -> None:
    assert load("detectors", "neutral_ad") is NeutralAD
    detector = NeutralAD(options(epochs=1))
    fitted = detector.fit(sines(), seed=0, device="cpu")
    fitted.export(tmp_path)
    assert isinstance(detector, Detector)
    assert isinstance(fitted, FittedDetector)
    assert isinstance(detector.load(tmp_path, device="cpu"), Scorer)
    assert detector.options_model is NeutralADOptions


def test_a_folder_without_a_model_is_an_artifact_error(tmp_path: Path) -> None:
    with pytest.raises(ArtifactError, match=r"model\.ts"):
        NeutralAD().load(tmp_path, device="cpu")


def _auc(scores: FloatArray, anomalous: np.ndarray) -> float:
    """Return the share of (anomalous, normal) pairs in which the anomalous one scores higher."""
    wins = scores[anomalous][:, None] > scores[~anomalous][None, :]
    return float(wins.mean())


def _natops(path: Path, part: str) -> tuple[FloatArray, IntArray, np.ndarray]:
    with np.load(path, allow_pickle=False) as arrays:
        values = np.nan_to_num(arrays[f"{part}_x"]).astype(np.float32)
        return values, arrays[f"{part}_len"].astype(np.int64), arrays[f"{part}_y"]


def test_default_options_separate_a_natops_class_from_the_rest(data_file: Callable[[str], Path]) -> None:
    path = data_file("natops.npz")
    values, lengths, labels = _natops(path, "train")
    normal = np.flatnonzero(labels == labels.min())
    training = WindowSet(values[normal], lengths[normal], tuple(str(i) for i in normal))
    fitted = NeutralAD(NeutralADOptions(epochs=40)).fit(training, seed=0, device="cpu")
    values, lengths, labels = _natops(path, "test")
    assert _auc(fitted.score(values, lengths).sum(axis=1), labels != labels.min()) >= 0.90
