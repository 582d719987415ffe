"""Laws of the default detector together with training and calibration."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from streamad.judge.calibration import Calibration, calibration_count
from streamad.learn.training.calibrating import hash_order
from streamad.types import WindowSet
from streamad_models.ensemble import Ensemble, EnsembleOptions
from tests.support.detectors import sequences
from tests.support.learning.plant import settings_of, train, windows_of

SMALL = EnsembleOptions(n_minirocket=84, n_groups=2, time_limit_s=1e-6)
RATE = 0.02


def test_calibration_windows_do_not_move_the_model(tmp_path: Path) -> None:
    settings = settings_of(
        model={"detector": "ensemble", "options": SMALL.model_dump(), "device": "cpu", "references": []}
    )
    data = windows_of(160)
    n_held_out = calibration_count(160, settings.model.calibration, settings.alerts.false_alarm_rate)
    held_out = hash_order(data.ids, settings.model.seed)[:n_held_out]
    others = data.values.copy()
    others[held_out] *= 1.5
    models = []
    for name, values in (("as they are", data.values), ("others", others)):
        train(
            tmp_path / name, data=WindowSet(values, data.lengths, data.ids), detector=Ensemble(SMALL), settings=settings
        )
        models.append((tmp_path / name / "default" / "versions" / "0001" / "model.ts").read_bytes())
    assert models[0] == models[1]


def test_with_chosen_weights_the_rate_of_false_alarms_is_at_most_the_configured_one() -> None:
    rates = []
    for seed in range(20):
        fitted = Ensemble(SMALL).fit(sequences(24, seed=1000 + seed), seed=0, device="cpu")
        new = sequences(300, seed=2000 + seed)
        scores, rng = fitted.score(new.values, new.lengths).sum(axis=1, keepdims=True), np.random.default_rng(seed)
        for _ in range(10):
            drawn = rng.permutation(scores)
            calibration = Calibration.from_terms(drawn[:49], RATE)
            rates.append(np.mean([calibration.p_value(float(score))[0] <= RATE for score in drawn[49:, 0]]))
    of_models = np.array(rates).reshape(20, 10).mean(axis=1)
    assert of_models.mean() <= RATE + 2 * of_models.std(ddof=1) / np.sqrt(20)
