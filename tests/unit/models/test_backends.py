"""ONNX Runtime and OpenVINO give the terms of TorchScript for every kind of detector; other files are refused.

An export takes seconds: each kind is fitted once, on windows with and without ties; the ensemble has two of its own.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from streamad.errors import ArtifactError, DetectorError
from streamad.judge.calibration import Calibration
from streamad.learn.registry.arrays import PROBE_TOLERANCE, probe_deviation
from streamad.ports import Scorer
from streamad.testing import check_scorer
from streamad.types import WindowSet
from streamad_models.ensemble import Ensemble, EnsembleOptions
from streamad_models.fitted import FittedModule
from streamad_models.neutral_ad import NeutralAD, NeutralADOptions
from streamad_models.simple import MPCA, PCA, MiniRocketNearest, MiniRocketOptions, Pointwise, Unfolded
from tests.support.detectors import SEQUENCES, sequences
from tests.support.ties import assert_same, in_batches, joined, tied, windows

pytest.importorskip("onnxscript")
pytest.importorskip("openvino")
ENSEMBLE = "ensemble with a network"
HELD, COARSE, FLAT = TIES = ({"held", "steps", "repeats"}, {"held", "coarse", "repeats"}, {"flat", "steps"})
KINDS: dict[str, Any] = {
    ENSEMBLE: Ensemble(EnsembleOptions(n_minirocket=84, n_groups=2, effort="normal", time_limit_s=1e-6)),
    "neutral_ad": NeutralAD(NeutralADOptions(n_transformations=3, epochs=2)),
    "pointwise": Pointwise(),
    "pca": PCA(),
    "unfolded": Unfolded(),
    "mpca": MPCA(),
    "minirocket": MiniRocketNearest(MiniRocketOptions(n_features=840)),  # nearest without features is the same
}
TRAINED_WITH = {"neutral_ad": FLAT, "minirocket": COARSE}
FILES = {"onnxruntime": ("model.onnx",), "openvino": ("model.xml", "model.bin")}


class Exported(NamedTuple):
    """A model as each backend serves it, and the folder of its files."""

    kind: str
    fitted: FittedModule
    torchscript: Scorer
    others: dict[str, Scorer]
    folder: Path


def ties_of(n: int, ties: set[str], seed: int) -> WindowSet:
    return tied(sequences(n, seed=seed), frozenset(ties), seed, unit=0.25)


def export(kind: str, detector: Any, training: WindowSet, folder: Path) -> Exported:
    fitted = detector.fit(training, seed=0, device="cpu")
    fitted.export(folder)
    for backend, names in FILES.items():
        assert fitted.export_for(backend, folder) == names
    assert {path.name for path in folder.iterdir()} == {"model.ts", "model.onnx", "model.xml", "model.bin"}
    others = {backend: detector.load_by(backend, folder, device="auto") for backend in FILES}
    return Exported(kind, fitted, detector.load(folder, device="cpu"), others, folder)


@pytest.fixture(scope="module", params=KINDS)
def exported(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Exported:
    training = SEQUENCES.normal
    if request.param != ENSEMBLE:
        training = joined(training, ties_of(24, TRAINED_WITH.get(request.param, HELD), seed=7))
    return export(request.param, KINDS[request.param], training, tmp_path_factory.mktemp("exported"))


@pytest.fixture(scope="module")
def tied_ensemble(tmp_path_factory: pytest.TempPathFactory) -> Exported:
    """On windows so short that the export is half as long: all parts are there, at one dilation each."""
    training = windows(24, 3, 12, frozenset(HELD), 0)
    return export(ENSEMBLE, KINDS[ENSEMBLE], training, tmp_path_factory.mktemp("tied"))


@pytest.mark.parametrize("backend", FILES)
def test_the_terms_are_those_of_torchscript_alone_and_in_company(exported: Exported, backend: str) -> None:
    scorer = exported.others[backend]
    for data in (sequences(60, seed=3), sequences(40, anomalous=True, seed=4)):
        expected = exported.torchscript.score(data.values, data.lengths)
        assert probe_deviation(scorer.score(data.values, data.lengths), expected) < PROBE_TOLERANCE
        for i in range(0, len(data), 5):
            alone = scorer.score(data.values[i : i + 1], data.lengths[i : i + 1])
            assert probe_deviation(alone, expected[i : i + 1]) < PROBE_TOLERANCE


@pytest.mark.parametrize("backend", FILES)
def test_the_terms_are_those_of_torchscript_where_values_tie(exported: Exported, backend: str) -> None:
    new = joined(*(ties_of(12, ties, seed=8 + place) for place, ties in enumerate(TIES)))
    expected = exported.torchscript.score(new.values, new.lengths)
    for size in (1, 3, 16):
        found = in_batches(exported.others[backend], new, size)
        assert_same(found, expected, as_probe=exported.kind != "minirocket")


@pytest.mark.parametrize("backend", FILES)
def test_the_terms_of_an_ensemble_trained_on_ties_are_those_of_torchscript(
    tied_ensemble: Exported, backend: str
) -> None:
    new = joined(windows(12, 3, 12, frozenset(HELD), 1), windows(6, 3, 12, frozenset(FLAT), 2))
    expected = tied_ensemble.torchscript.score(new.values, new.lengths)
    for size in (1, 3, 16):
        assert_same(in_batches(tied_ensemble.others[backend], new, size), expected)


@pytest.mark.parametrize("backend", FILES)
def test_the_decisions_are_those_of_torchscript_with_ties_too(exported: Exported, backend: str) -> None:
    held = sequences(150, seed=5)
    calibration = Calibration.from_terms(exported.torchscript.score(held.values, held.lengths), 0.02)
    for data in (sequences(60, seed=3), sequences(40, anomalous=True, seed=4)):
        scores = [
            scorer.score(data.values, data.lengths).sum(axis=1, dtype=np.float64)
            for scorer in (exported.torchscript, exported.others[backend])
        ]
        decided = [[calibration.p_value(float(score))[0] <= 0.02 for score in each] for each in scores]
        assert decided[0] == decided[1]


@pytest.mark.parametrize("backend", FILES)
def test_it_keeps_the_laws_of_a_scorer(exported: Exported, backend: str) -> None:
    data = sequences(40, seed=6)
    check_scorer(exported.others[backend], data.values, data.lengths)
    with pytest.raises(ArtifactError, match=r"windows \[B, 3, 24\], not \(2, 3, 15\)"):
        exported.others[backend].score(np.zeros((2, 3, 15), np.float32), np.full(2, 15))


@pytest.mark.parametrize("exported", ["pointwise"], indirect=True)
@pytest.mark.parametrize(
    ("backend", "name", "damage"),
    [
        *(("onnxruntime", "model.onnx", each) for each in ("missing", "empty", "random", "truncated", "foreign")),
        *(("openvino", "model.xml", each) for each in ("missing", "empty", "random", "truncated", "foreign")),
        *(("openvino", "model.bin", each) for each in ("missing", "empty", "truncated")),  # all bytes are weights
    ],
)
def test_a_damaged_file_is_an_artifact_error_of_one_line(
    exported: Exported, tmp_path: Path, backend: str, name: str, damage: str
) -> None:
    for each in FILES[backend]:
        (tmp_path / each).write_bytes((exported.folder / each).read_bytes())
    content = (tmp_path / name).read_bytes()
    damaged = {
        "empty": b"",
        "random": np.random.default_rng(0).bytes(5000),
        "truncated": content[: len(content) // 2],
        "foreign": content.replace(b"streamad", b"another_"),
    }
    (tmp_path / name).unlink()
    if damage in damaged:
        (tmp_path / name).write_bytes(damaged[damage])
    with pytest.raises(ArtifactError) as refused:
        Pointwise().load_by(backend, tmp_path, device="cpu")
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("exported", ["pointwise"], indirect=True)
def test_an_unknown_backend_or_device_is_refused(exported: Exported, tmp_path: Path) -> None:
    with pytest.raises(ArtifactError, match="openvino serves on the CPU, not on cuda"):
        Pointwise().load_by("openvino", exported.folder, device="cuda")
    with pytest.raises(ArtifactError, match="no backend 'tensorrt'"):
        Pointwise().load_by("tensorrt", exported.folder, device="cpu")
    with pytest.raises(DetectorError, match="no export for the backend 'tensorrt'"):
        exported.fitted.export_for("tensorrt", tmp_path)


def test_openvino_is_imported_without_what_reports_its_use() -> None:
    """In a process that does not look like one of CI, where it would report nothing."""
    code = (
        "import sys; from streamad_models.onnx_openvino import import_openvino; print(import_openvino().__name__);"
        "import_openvino().Core; print(sorted(name for name in sys.modules if name.startswith('openvino_telemetry')))"
    )
    environment = {"PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.stdout.split() == ["openvino", "[]"], done.stderr
