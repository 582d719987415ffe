"""What cannot train is an error that says why; what is odd but can train gives finite scores."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from streamad.errors import TrainingDataError
from streamad.judge.evaluation import auc
from streamad.types import WindowSet
from streamad_models.ensemble import Ensemble, EnsembleOptions
from streamad_models.fitted import FittedModule
from tests.support.detectors import sequences

C, L = 2, 8
SMALL = EnsembleOptions(n_minirocket=168, n_groups=2)


@pytest.fixture(autouse=True)
def _short_training(monkeypatch: pytest.MonkeyPatch) -> None:
    """A quarter of the steps: a network that odd windows drive to infinity gets there in its first ones."""
    monkeypatch.setattr("streamad_models.ensemble.learned._STEPS", 24)


def walks(n: int, length: int = L) -> np.ndarray:
    return np.random.default_rng(0).normal(size=(n, C, length)).cumsum(axis=2).astype(np.float32)


def windows(values: np.ndarray, length: int | None = None) -> WindowSet:
    """Sequences of ``length`` samples; None: as long as the window."""
    n = len(values)
    true = values.shape[2] if length is None else length
    values = np.where(np.arange(values.shape[2]) < true, values, np.float32(0))
    return WindowSet(values, np.full(n, true, np.int64), tuple(map(str, range(n))))


def fit(data: WindowSet) -> FittedModule:
    with np.errstate(divide="raise", invalid="raise"):
        return Ensemble(SMALL).fit(data, seed=0, device="cpu")


def with_reading(value: float) -> np.ndarray:
    values = walks(8)
    values[3, 1, 4] = value
    return values


def with_constant_channel() -> np.ndarray:
    values = walks(8)
    values[:, 1] = 7.0
    return values


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        (walks(1), "1 training sequences: at least 8 are needed"),
        (walks(7), "7 training sequences: at least 8 are needed"),
        (walks(8, 1), "windows of length 1: the model needs at least 2 steps"),
        (with_reading(np.nan), "NaN or infinite values in channel 1"),
        (with_reading(np.inf), "NaN or infinite values in channel 1"),
        (with_constant_channel(), "channel 1 never changes"),
        (np.zeros((8, C, L), np.float32), "channels 0, 1 never changes"),
    ],
    ids=["one window", "seven windows", "one step", "NaN", "infinite", "constant channel", "nothing but zeros"],
)
def test_what_cannot_train_is_an_error(values: np.ndarray, reason: str) -> None:
    with pytest.raises(TrainingDataError, match=reason):
        fit(windows(values))


ODD: dict[str, Callable[[], WindowSet]] = {
    "eight of eight steps": lambda: windows(walks(8)),
    "two steps": lambda: windows(walks(8, 2)),
    "all equal": lambda: windows(np.repeat(walks(1), 8, axis=0)),
    "all equal but one": lambda: windows(np.repeat(walks(2), (7, 1), axis=0)),
    "two kinds, four copies each": lambda: windows(np.repeat(walks(2), 4, axis=0)),
    "each twice": lambda: windows(np.repeat(walks(8), 2, axis=0)),
    "differing in the last digit": lambda: windows(
        walks(1) * (1 + 1e-7 * np.arange(8, dtype=np.float32)[:, None, None])
    ),
    "sequences of one sample": lambda: windows(walks(8), length=1),
    "sequences of two samples": lambda: windows(walks(8), length=2),
    "tiny readings": lambda: windows(walks(8) * np.float32(1e-30)),
    "huge readings": lambda: windows(walks(8) * np.float32(1e30)),
}


@pytest.mark.parametrize("odd", ODD)
def test_odd_training_windows_give_finite_scores_and_far_windows_higher_ones(odd: str) -> None:
    data = ODD[odd]()
    fitted = fit(data)
    known, own = fitted.score(data.values, data.lengths), fitted.training_scores()
    spread = np.ptp(data.values)
    far = fitted.score(data.values + 30 * spread * (data.values != 0), data.lengths)
    assert np.isfinite(known).all()
    assert np.isfinite(own).all()
    assert np.isfinite(far).all()
    assert far.sum(axis=1).min() > known.sum(axis=1).max()


def test_an_infinite_reading_scores_finitely_and_high_and_a_missing_one_has_no_score() -> None:
    """The judge calls a sequence without a finite score unscorable; windows made from samples hold neither."""
    data = windows(walks(16))
    fitted = fit(data)
    usual = fitted.score(data.values, data.lengths)
    values = data.values.copy()
    values[3, 1, 4], values[7, 0, 2] = np.inf, np.nan
    terms = fitted.score(values, data.lengths)
    assert np.isfinite(terms[3]).all()
    assert terms[3].sum() > usual.sum(axis=1).max()
    assert np.isnan(terms[7].sum())
    others = np.setdiff1d(np.arange(16), [3, 7])
    np.testing.assert_allclose(terms[others], usual[others], rtol=1e-4, atol=1e-4)


def test_one_fill_value_in_training_hides_no_anomaly() -> None:
    """NetCDF's fill value is 9.96921e36; the scale of a channel is that of its other readings."""
    data, new = sequences(30), sequences(100, seed=1)
    values = data.values.copy()
    values[3, 0, 2] = 9.96921e36
    fitted = Ensemble(SMALL).fit(WindowSet(values, data.lengths, data.ids), seed=0, device="cpu")
    odd = sequences(100, anomalous=True, seed=2)
    scores = [fitted.score(part.values, part.lengths).sum(axis=1) for part in (new, odd)]
    assert auc(np.concatenate(scores), np.arange(200) >= 100) > 0.95
