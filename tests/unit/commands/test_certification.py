"""The line about a false-alarm rate that the calibration does not reach: its remedy is true of the next training."""

from __future__ import annotations

from pathlib import Path

import pytest

from streamad.commands.shared.figures.certification import Uncertified, uncertified
from streamad.judge.calibration import Calibration, CalibrationMethod
from streamad.learn.registry.registry import Registry
from streamad.settings.plant_yaml import Settings
from tests.support.learning.plant import settings_of, train


def trained(folder: Path, n: int, settings: Settings) -> tuple[Calibration, CalibrationMethod]:
    """Return the calibration of a training on ``n`` recordings."""
    version = train(folder, n, settings=settings)
    registry = Registry(folder)
    terms = registry.calibration_terms("default", version)
    method = registry.manifest("default", version).metrics.method
    return Calibration.from_terms(terms, settings.alerts.false_alarm_rate), method


def below(folder: Path, n: int, settings: Settings) -> Uncertified | None:
    return uncertified(*trained(folder, n, settings), settings)


@pytest.mark.parametrize(
    ("rate", "share", "n_few", "n_recordings"),
    [(0.02, 0.5, 30, 150), (0.01, 0.5, 60, 198), (0.02, 0.2, 30, 245), (0.005, 0.7, 149, 285), (0.003, 0.9, 30, 370)],
)
def test_so_many_recordings_certify_the_rate_and_one_fewer_do_not(
    tmp_path: Path, rate: float, share: float, n_few: int, n_recordings: int
) -> None:
    settings = settings_of(
        model={"detector": "mean", "device": "cpu", "references": [], "calibration": share},
        alerts={"false_alarm_rate": rate},
    )
    few = below(tmp_path / "few", n_few, settings)
    assert few is not None
    assert few.n_recordings == n_recordings
    said = f"train on {n_recordings} recordings or more ({few.n_held_out} of {n_recordings} are held out), or raise "
    assert few.remedy == f"{said}alerts.false_alarm_rate to {few.rank_rate:g}, an estimate as well"
    calibration, method = trained(tmp_path / "enough", n_recordings, settings)
    assert (calibration.n, method) == (few.n_held_out, "split")
    assert uncertified(calibration, method, settings) is None
    if n_recordings > 150:
        fewer = below(tmp_path / "fewer", n_recordings - 1, settings)
        assert fewer is not None
        assert (fewer.method, fewer.n_recordings) == ("split", n_recordings)
        assert fewer.remedy == f"{said}alerts.false_alarm_rate to {fewer.rank_rate:g}"
