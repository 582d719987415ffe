"""The whole job on real recordings of arm movements, from the command line alone."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.runtime.cli import CliPlant

# Fewer folds and epochs than the defaults, which take more than three times as long for an AUC of 0.966, not 0.960.
CONFIG = """\
source: {{url: {data}}}
window: {{length: 51}}
model: {{detector: neutral_ad, folds: 2, options: {{epochs: 25}}, device: cpu}}
channels: [{channels}]
"""


def test_natops_one_class_against_the_rest(
    data_file: Callable[[str], Path],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    data = data_file("natops.npz")
    channels = ", ".join(f"{{name: s{number:02}}}" for number in range(24))
    plant = CliPlant(tmp_path, capsys, monkeypatch)
    plant.config.write_text(CONFIG.format(data=json.dumps(str(data)), channels=channels))
    trained = plant("train", f"{data}?split=train&classes=1.0", "--json")
    assert trained.code == 0, trained.err
    metrics = trained.last_json["metrics"]
    assert (metrics["n_training"], metrics["n_calibration"], metrics["method"]) == (30, 30, "out_of_fold")
    replayed = plant("replay", f"{data}?split=test", "--labels", "source", "--normal", "1", "--json")
    assert replayed.code == 0, replayed.err
    report = replayed.last_json
    assert (report["sequences"], report["n_normal"], report["n_anomalous"]) == (180, 30, 150)
    assert report["auc"] >= 0.90
    assert report["false_alarm_rate"] <= 0.2

    unknown = plant("replay", f"{data}?split=test", "--labels", "source", "--normal", "one")
    unknown.assert_one_line_error("--normal", "1.0, 2.0, 3.0, 4.0, 5.0, 6.0")
