"""A model in MLflow judges as the model itself does, and is refused once a byte differs."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import mlflow
import numpy as np
import pandas as pd
import pytest

import streamad.mlflow
from streamad import Model
from streamad.errors import ArtifactError, InputError
from tests.support.walks import fitted, walks, with_faults

NORMAL, FAULTY = walks(6, 1), with_faults(walks(3, 2))
X = np.concatenate([NORMAL, FAULTY])


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory, model: Model) -> Path:
    folder = tmp_path_factory.mktemp("mlflow") / "saved"
    streamad.mlflow.save_model(model, folder, metadata={"line": "mixer"})
    return folder


def frame() -> pd.DataFrame:
    rows = [
        {"id": f"batch {place}", "time": float(point), "temp": a, "pressure": b}
        for place, each in enumerate(X)
        for point, (a, b) in enumerate(each.T.tolist())
    ]
    return pd.DataFrame(rows)


def test_what_mlflow_loads_judges_bit_for_bit_as_the_model(model: Model, saved: Path) -> None:
    """Law: scores, p-values and decisions of each form of X are those of ``Model``."""
    loaded = mlflow.pyfunc.load_model(str(saved))
    short = [each[:, : 30 + place] for place, each in enumerate(X)]
    for given in (X, short, frame()):
        found, expected = loaded.predict(given), model.verdicts(given)
        assert found.columns.tolist() == ["sequence", "score", "p_value", "decision"]
        for name in found.columns:
            assert found[name].tolist() == [getattr(each, name) for each in expected], name
    assert loaded.predict(X)["decision"].tolist()[6:] == ["anomalous"] * 3
    assert repr(loaded.get_raw_model()) == repr(model)
    assert loaded.metadata.metadata == {"line": "mixer"}


def test_a_sequence_without_a_score_has_a_row(saved: Path) -> None:
    found = mlflow.pyfunc.load_model(str(saved)).predict([X[0], np.zeros((2, 1))])
    assert found["decision"].tolist() == ["normal", "unscorable"]
    assert np.isnan(found["score"]).tolist() == np.isnan(found["p_value"]).tolist() == [False, True]


def test_a_new_process_loads_it(model: Model, saved: Path, tmp_path: Path) -> None:
    np.save(tmp_path / "X.npy", X)
    code = """
import sys
import mlflow.pyfunc
import numpy as np
found = mlflow.pyfunc.load_model(sys.argv[1]).predict(np.load(sys.argv[2]))
np.save(sys.argv[3], found["score"].to_numpy())
"""
    paths = (saved, tmp_path / "X.npy", tmp_path / "scores.npy")
    subprocess.run([sys.executable, "-c", code, *map(str, paths)], check=True)
    np.testing.assert_array_equal(np.load(tmp_path / "scores.npy"), model.decision_function(X))


def test_the_environment_of_a_plant_changes_nothing(saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STREAMAD_ALERTS__FALSE_ALARM_RATE", "0.5")
    assert mlflow.pyfunc.load_model(str(saved)).get_raw_model().false_alarm_rate == 0.05


def test_columns_looks_and_grid_are_kept(tmp_path: Path) -> None:
    data = frame().rename(columns={"id": "batch", "time": "at"})
    training = pd.concat(
        [data.assign(batch=data["batch"] + f"/{number}", temp=data["temp"] + number / 100) for number in range(4)]
    )
    made = fitted(training, id="batch", time="at", early=3, window={"length": 30, "resample": {"period": "2s"}})
    streamad.mlflow.save_model(made, tmp_path / "saved")
    again = mlflow.pyfunc.load_model(str(tmp_path / "saved")).get_raw_model()
    assert again.columns == made.columns
    np.testing.assert_array_equal(again.early(data).p_values, made.early(data).p_values)
    np.testing.assert_array_equal(again.p_values(data), made.p_values(data))


def test_one_other_byte_is_refused(model: Model, tmp_path: Path) -> None:
    streamad.mlflow.save_model(model, tmp_path / "saved")
    (path,) = (tmp_path / "saved").rglob("model.ts")
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    with pytest.raises(ArtifactError, match=r"model\.ts is damaged \(its sha256 differs"):
        mlflow.pyfunc.load_model(str(tmp_path / "saved"))


@pytest.mark.parametrize(
    ("name", "content"),
    [("settings.yaml", "a: ["), ("settings.yaml", ""), ("settings.yaml", "name: 3"), ("columns.json", "{"), (None, "")],
)
def test_a_folder_that_lacks_or_changed_what_goes_with_the_version_is_refused(
    saved: Path, tmp_path: Path, name: str | None, content: str
) -> None:
    shutil.copytree(saved, tmp_path / "copy")
    (settings,) = (tmp_path / "copy").rglob("settings.yaml")
    if name is None:
        shutil.rmtree(settings.parent / "registry")
    else:
        settings.with_name(name).write_text(content)
    with pytest.raises(ArtifactError, match="is not what save_model wrote"):
        mlflow.pyfunc.load_model(str(tmp_path / "copy"))


def test_a_folder_in_use_and_what_is_no_model_are_refused(model: Model, saved: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="in use"):
        streamad.mlflow.save_model(model, saved)
    nothing: Any = None
    for refused in (
        lambda: streamad.mlflow.save_model(nothing, tmp_path / "new"),
        lambda: streamad.mlflow.log_model(nothing),
    ):
        with pytest.raises(InputError, match="model is None"):
            refused()
    assert not (tmp_path / "new").exists()


def test_a_run_logs_it_with_the_packages_it_needs(
    model: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")  # any other tracking needs a server or a database
    mlflow.set_tracking_uri((tmp_path / "mlruns").as_uri())
    info = streamad.mlflow.log_model(model, "mixer")
    loaded = mlflow.pyfunc.load_model(info.model_uri)
    np.testing.assert_array_equal(loaded.predict(X)["score"], model.decision_function(X))
    wanted = mlflow.pyfunc.get_model_dependencies(info.model_uri)
    assert "streamad-monitor[mlflow]==" in Path(wanted).read_text()
