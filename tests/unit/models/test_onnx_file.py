"""ONNX Runtime gives the terms of TorchScript and serves without torch; another file is refused in one line."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import yaml

from streamad.errors import ArtifactError
from streamad.learn.registry.artifact import probe_deviation
from streamad.ports import Scorer
from streamad.testing import check_scorer
from streamad_models.ensemble import Ensemble
from streamad_models.neutral_ad import NeutralAD
from streamad_models.onnx_file import ONNX_FILE, OnnxScorer
from tests.support.detectors import SEQUENCES, sequences
from tests.unit.models.small import options

pytest.importorskip("onnxscript")
DETECTORS: dict[str, Any] = {"ensemble": Ensemble(), "neutral_ad": NeutralAD(options(epochs=1))}


class Both(NamedTuple):
    """The same model as both backends serve it, and the file of one."""

    torchscript: Scorer
    onnxruntime: OnnxScorer
    path: Path


@pytest.fixture(scope="module", params=DETECTORS)
def both(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Both:
    folder, detector = tmp_path_factory.mktemp(request.param), DETECTORS[request.param]
    fitted = detector.fit(SEQUENCES.normal, seed=0, device="cpu")
    fitted.export(folder)
    assert fitted.export_for("onnxruntime", folder) == ONNX_FILE
    loaded = detector.load_by("onnxruntime", folder, device="auto")
    return Both(detector.load(folder, device="cpu"), loaded, folder / ONNX_FILE)


def test_the_terms_are_those_of_torchscript_alone_and_in_company(both: Both) -> None:
    for data in (sequences(37, seed=3), sequences(21, anomalous=True, seed=4)):
        expected = both.torchscript.score(data.values, data.lengths)
        assert probe_deviation(both.onnxruntime.score(data.values, data.lengths), expected) < 1e-4
        for i in range(0, len(data), 5):
            alone = both.onnxruntime.score(data.values[i : i + 1], data.lengths[i : i + 1])
            assert probe_deviation(alone, expected[i : i + 1]) < 1e-4


def test_it_keeps_the_laws_of_a_scorer(both: Both) -> None:
    data = sequences(9, seed=5)
    check_scorer(both.onnxruntime, data.values, data.lengths)


def test_windows_of_another_shape_are_refused(both: Both) -> None:
    with pytest.raises(ArtifactError, match=r"windows \[B, 3, 24\], not \(2, 3, 15\)"):
        both.onnxruntime.score(np.zeros((2, 3, 15), np.float32), np.full(2, 15))


@pytest.mark.parametrize("damage", ["missing", "empty", "random", "truncated", "foreign"])
def test_a_damaged_file_is_an_artifact_error_of_one_line(both: Both, tmp_path: Path, damage: str) -> None:
    content = both.path.read_bytes()
    damaged = {
        "empty": b"",
        "random": np.random.default_rng(0).bytes(5000),
        "truncated": content[: len(content) // 2],
        "foreign": content.replace(b"streamad_format", b"another_format_"),
    }
    path = tmp_path / ONNX_FILE
    if damage in damaged:
        path.write_bytes(damaged[damage])
    with pytest.raises(ArtifactError) as refused:
        OnnxScorer(path)
    assert "\n" not in str(refused.value)


WITHOUT_TORCH = "import sys; sys.modules['torch'] = None; from streamad.cli import main; main()"


def run(folder: Path, *arguments: str, without_torch: bool = True) -> subprocess.CompletedProcess[str]:
    start = WITHOUT_TORCH if without_torch else "from streamad.cli import main; main()"
    command = [sys.executable, "-c", start, *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def plant(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A simulated plant whose model was trained for ONNX Runtime."""
    folder = tmp_path_factory.mktemp("plant")
    sizes = ["--train", "60", "--normal", "6", "--faulty", "3"]
    assert run(folder, "simulate", "--out", ".", *sizes, without_torch=False).returncode == 0
    config = yaml.safe_load((folder / "plant.yaml").read_text())
    config["model"] |= {"backend": "onnxruntime", "references": []}
    (folder / "plant.yaml").write_text(yaml.safe_dump(config))
    trained = run(folder, "train", without_torch=False)
    assert trained.returncode == 0, trained.stderr
    return folder


def test_a_worker_without_torch_judges_as_one_with_it(plant: Path) -> None:
    verdicts = []
    for without_torch in (True, False):
        ended = run(plant, "replay", "--json", without_torch=without_torch)
        assert ended.returncode == 0, ended.stderr
        assert "refused" not in ended.stderr
        verdicts.append(json.loads(ended.stdout)["counters"])
    assert verdicts[0] == verdicts[1]
    for arguments, said in ((["check"], "onnxruntime scores"), (["run", "--quiet"], ""), (["models", "list"], "0001")):
        ended = run(plant, *arguments)
        assert ended.returncode == 0, ended.stderr
        assert said in ended.stdout + ended.stderr


def test_without_torch_no_model_is_trained_and_one_line_says_so(plant: Path) -> None:
    ended = run(plant, "train")
    assert ended.returncode != 0
    assert "torch" in ended.stderr.strip().splitlines()[-1]
    assert "Traceback" not in ended.stderr


def test_a_file_that_scores_otherwise_is_refused_and_torchscript_serves(plant: Path, both: Both) -> None:
    (onnx,) = plant.rglob(ONNX_FILE)
    manifest = onnx.with_name("manifest.json")
    kept, described = onnx.read_bytes(), manifest.read_text()
    other = both.path.read_bytes()
    sums = {hashlib.sha256(kept).hexdigest(): hashlib.sha256(other).hexdigest(), f"{len(kept)}": f"{len(other)}"}
    for former, new in sums.items():
        assert former in manifest.read_text()
        manifest.write_text(manifest.read_text().replace(former, new))
    onnx.write_bytes(other)
    try:
        ended = run(plant, "check", without_torch=False)
        assert ended.returncode == 0, ended.stderr
        assert "scores windows of (3, 24)" in ended.stderr
        assert "onnxruntime scores" not in ended.stdout
        alone = run(plant, "check")
        assert alone.returncode == 1
        assert "Traceback" not in alone.stderr
    finally:
        onnx.write_bytes(kept)
        manifest.write_text(described)
