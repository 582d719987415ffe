"""An exported model scores and decides elsewhere as streamad does, by what its README says."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import mlflow
import numpy as np
import onnxruntime
import pytest
from typer.testing import CliRunner

from streamad.cli import app
from streamad.errors import PluginError
from tests.support.proof import proved_in_fork
from tests.support.walks import fitted, walks, with_faults


@pytest.fixture
def _plant(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("streamad.notebook.fitting.proved_in_new_process", proved_in_fork)


@pytest.mark.usefixtures("_plant")
def test_the_exported_file_decides_as_the_model_does() -> None:
    model = fitted(walks(60), backend="onnxruntime", units=["K", "bar"])
    model.save("registry")
    Path("plant.yaml").write_text(model.plant_yaml("recording.csv"))

    printed = CliRunner().invoke(app, ["models", "export", "--onnx", "out/edge"])

    assert printed.exit_code == 0, printed.output
    X = np.concatenate([walks(20, 1), with_faults(walks(5, 2))]).astype(np.float32)
    lengths = np.full(len(X), X.shape[2], dtype=np.int64)
    session = onnxruntime.InferenceSession("out/edge/model.onnx")
    (terms,) = session.run(["terms"], {"windows": X, "lengths": lengths})
    scores, calibration = terms.sum(axis=1), np.load("out/edge/calibration_scores.npy")
    np.testing.assert_allclose(scores, model.decision_function(X), rtol=1e-3, atol=1e-4)
    p_values = (1 + (calibration >= scores[:, None]).sum(axis=1)) / (len(calibration) + 1)
    np.testing.assert_array_equal(p_values <= 0.05, model.predict(X))
    readme = Path("out/edge/README.md").read_text()
    assert "| 0 | channel_0 | K |" in readme
    assert "[B, 2, 40]" in readme
    threshold = float(re.search(r"from a score of (\S+) on", readme)[1])  # type: ignore[index]
    np.testing.assert_array_equal(scores >= threshold, model.predict(X))

    Path("README.md").write_text("# My plant\n")
    refused = CliRunner().invoke(app, ["models", "export", "--onnx", "."])
    assert "README.md is there" in str(refused.exception)
    assert Path("README.md").read_text() == "# My plant\n"
    assert not Path("model.onnx").exists()
    assert CliRunner().invoke(app, ["models", "export", "--onnx", "out/edge"]).exit_code == 0


@pytest.mark.usefixtures("_plant")
def test_a_version_without_the_file_says_how_to_make_one() -> None:
    model = fitted(walks(60))
    model.save("registry")
    Path("plant.yaml").write_text(model.plant_yaml("recording.csv"))
    printed = CliRunner().invoke(app, ["models", "export", "--onnx", "out"])
    assert printed.exit_code == 1
    assert "model.backend: onnxruntime" in str(printed.exception)
    assert not Path("out").exists()
    for forms in ([], ["--onnx", "--mlflow"]):
        assert "--onnx or --mlflow" in str(CliRunner().invoke(app, ["models", "export", *forms, "out"]).exception)


@pytest.mark.usefixtures("_plant")
def test_a_version_for_mlflow_judges_as_the_model_does() -> None:
    model = fitted(walks(60))
    model.save("registry")
    Path("plant.yaml").write_text(model.plant_yaml("recording.csv"))
    printed = CliRunner().invoke(app, ["models", "export", "--mlflow", "out"])
    assert printed.exit_code == 0, printed.output
    X = np.concatenate([walks(5, 1), with_faults(walks(5, 2))])
    found = mlflow.pyfunc.load_model("out").predict(X)
    np.testing.assert_array_equal(found["score"], model.decision_function(X))
    np.testing.assert_array_equal(found["decision"] == "anomalous", model.predict(X) == 1)
    again = CliRunner().invoke(app, ["models", "export", "--mlflow", "out"])
    assert "in use" in str(again.exception)


@pytest.mark.usefixtures("_plant")
def test_without_mlflow_the_line_to_install_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    model = fitted(walks(60))
    model.save("registry")
    Path("plant.yaml").write_text(model.plant_yaml("recording.csv"))
    for name in [name for name in sys.modules if name.startswith("streamad.mlflow")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "mlflow", None)
    monkeypatch.setitem(sys.modules, "mlflow.pyfunc", None)
    refused = CliRunner().invoke(app, ["models", "export", "--mlflow", "out"])
    assert isinstance(refused.exception, PluginError)
    assert "pip install 'streamad-monitor[mlflow]'" in str(refused.exception)
