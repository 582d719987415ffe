"""Law: a normal sequence alerts with the stated rate, over fits and sequences drawn anew."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support.walks import fitted, walks

N_FITS, N_CALIBRATE = 60, 79


def test_the_rate_is_kept_over_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streamad.notebook.fitting.proved_in_new_process", lambda *_: ())
    shares = []
    for fit in range(N_FITS):
        X = walks(300, fit, length=12)
        model = fitted(X[: 2 * N_CALIBRATE + 2])
        assert model.manifest.metrics.n_calibration == N_CALIBRATE
        shares.append(model.predict(X[2 * N_CALIBRATE + 2 :]).mean())
    # 4 of 80 ranks alert: the chance is 5 % exactly (Vovk et al. 2005), the share of one fit Beta distributed.
    error = np.std(shares, ddof=1) / np.sqrt(N_FITS)
    assert error < 0.006
    assert abs(np.mean(shares) - 0.05) < 3 * error
