"""What holds for all simple kinds."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError

from streamad.errors import TrainingDataError
from streamad.plugins import make_detector
from streamad.testing import check_detector
from streamad.types import WindowSet
from streamad_models.simple import MiniRocketNearest, MiniRocketOptions, Nearest, PCAOptions, PointwiseOptions
from tests.support.detectors import SEQUENCES, sequences, windows

KINDS = {
    "pointwise": {},
    "pca": {},
    "nearest": {},
    "minirocket": {"n_features": 840},
    "unfolded": {},
    "mpca": {},
}
every_kind = pytest.mark.parametrize("kind", KINDS)


def fit(kind: str, data: WindowSet, seed: int = 0) -> Any:
    return make_detector(kind, KINDS[kind]).fit(data, seed=seed, device="cpu")


@every_kind
def test_it_keeps_the_laws_of_a_detector(kind: str, tmp_path: Path) -> None:
    check_detector(lambda: make_detector(kind, KINDS[kind]), **SEQUENCES._asdict(), folder=tmp_path)


@every_kind
def test_eight_windows_of_eight_steps_are_enough(kind: str) -> None:
    data = windows(np.random.default_rng(0).normal(size=(8, 2, 8)))
    fitted = fit(kind, data)
    new, wild = (windows(np.random.default_rng(1).normal(0, size, (8, 2, 8))) for size in (1, 30))
    normal, odd = (fitted.score(part.values, part.lengths).sum(axis=1) for part in (new, wild))
    assert np.isfinite(fitted.training_scores()).all()
    assert odd.mean() > normal.max()


@every_kind
@pytest.mark.parametrize("length", [2, 3, 9])
def test_short_windows_and_windows_of_one_sample_have_finite_scores(kind: str, length: int) -> None:
    data = windows(np.random.default_rng(0).normal(size=(12, 2, length)))
    ones = np.ones(12, np.int64)
    for fitted in (fit(kind, data), fit(kind, WindowSet(data.values, ones, data.ids))):
        assert np.isfinite(fitted.training_scores()).all()
        assert np.isfinite(fitted.score(data.values, ones)).all()


@every_kind
@pytest.mark.parametrize(
    "make",
    [
        lambda values: np.repeat(values[:4], 4, axis=0),
        lambda values: np.repeat(values[:1], 16, axis=0),
        lambda values: values * 1e20,
        lambda values: values * 1e-5 + 5,
    ],
    ids=["each four times", "all equal", "large", "hardly moving"],
)
def test_odd_training_windows_give_finite_scores(kind: str, make: Callable[[np.ndarray], np.ndarray]) -> None:
    values = np.random.default_rng(0).normal(size=(16, 2, 20))
    data = windows(make(values))
    fitted = fit(kind, data)
    assert np.isfinite(fitted.training_scores()).all()
    for part in (data, windows(values), windows(np.full_like(values, 3e38)), windows(np.zeros_like(values))):
        assert np.isfinite(fitted.score(part.values, part.lengths)).all()


@every_kind
def test_a_channel_that_never_changes_is_named(kind: str) -> None:
    values = np.random.default_rng(0).normal(size=(16, 2, 20))
    values[:, 1] = 4.0
    with pytest.raises(TrainingDataError, match="channel 1 never changes"):
        fit(kind, windows(values))


@every_kind
def test_seven_windows_are_too_few(kind: str) -> None:
    with pytest.raises(TrainingDataError, match="7 training sequences: at least 8"):
        fit(kind, windows(np.random.default_rng(0).normal(size=(7, 2, 20))))


@every_kind
def test_training_windows_score_like_new_ones_of_their_kind(kind: str) -> None:
    fitted, new = fit(kind, sequences(64)), sequences(200, seed=1)
    own, theirs = (np.median(t.sum(axis=1)) for t in (fitted.training_scores(), fitted.score(new.values, new.lengths)))
    assert fitted.training_scores().shape == (64, len(fitted.summary.terms))
    assert own == pytest.approx(theirs, rel=0.15)


@every_kind
def test_of_many_windows_a_part_drawn_by_the_seed_is_the_reference(kind: str) -> None:
    data = windows(np.random.default_rng(0).normal(size=(2010, 1, 6)))
    small = {"minirocket": {"n_features": 84}}.get(kind, {})
    one, same, other = (make_detector(kind, small).fit(data, seed=seed, device="cpu") for seed in (0, 0, 1))
    scores = [fitted.score(data.values, data.lengths) for fitted in (one, same, other)]
    assert one.summary.n_sequences == 2000
    assert one.training_scores().shape[0] == 2010
    assert np.array_equal(scores[0], scores[1])
    assert not np.array_equal(scores[0], scores[2])


def test_terms_are_named() -> None:
    names = {kind: fit(kind, sequences(20)).summary.terms for kind in KINDS}
    assert names == {
        "pointwise": ("channel_0.robust_z", "channel_1.robust_z", "channel_2.robust_z"),
        "pca": ("pca.residual",),
        "nearest": ("nearest.distance",),
        "minirocket": ("minirocket.distance",),
        "unfolded": ("unfolded.distance",),
        "mpca": ("mpca.t2", "mpca.spe"),
    }


@pytest.mark.parametrize(
    ("model", "wrong"),
    [
        (PointwiseOptions, {"floor": 0}),
        (PointwiseOptions, {"n_places": 1}),
        (PCAOptions, {"explained": 1.0}),
        (PCAOptions, {"components": 3}),
        (MiniRocketOptions, {"n_features": 80}),
        (Nearest.options_model, {"k": 5}),
        (MiniRocketNearest.options_model, {"n_groups": 2}),
    ],
)
def test_wrong_options_are_refused(model: Any, wrong: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        model(**wrong)
