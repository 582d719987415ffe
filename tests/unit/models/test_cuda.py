"""What only a GPU can show. A machine without one skips the file: a GPU is a device, no service that CI could start."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch

from streamad.judge.calibration import Calibration, scores_of
from streamad.learn.registry.registry import Registry
from streamad.plugins import make_detector
from streamad.ports import Detector, TrainingStep
from streamad.testing import check_scorer
from streamad.types import FloatArray, WindowSet
from streamad_models.neutral_ad import NeutralAD, NeutralADOptions
from tests.support.data import data_file
from tests.support.detectors import SEQUENCES
from tests.support.learning.plant import settings_of, train, windows_of

DEVICE = "cuda"
pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")

TOLERANCE = 1e-4
NETWORK = {"n_transformations": 4, "embedding_dim": 8, "epochs": 4}
SMALL: dict[str, tuple[str, dict[str, Any]]] = {
    "neutral_ad": ("neutral_ad", NETWORK),
    "feed_forward": ("neutral_ad", {**NETWORK, "transformation": "feed_forward"}),
    "ensemble": ("ensemble", {"n_minirocket": 840, "n_groups": 4}),
    "ensemble with a network": (
        "ensemble",
        {"n_minirocket": 840, "n_groups": 4, "effort": "normal", "time_limit_s": 1},
    ),
    "pointwise": ("pointwise", {}),
    "pca": ("pca", {}),
    "unfolded": ("unfolded", {}),
    "mpca": ("mpca", {}),
    "nearest": ("nearest", {}),
    "minirocket": ("minirocket", {"n_features": 840}),
}
BOTH = WindowSet(
    np.concatenate([SEQUENCES.normal.values, SEQUENCES.anomalous.values]),
    np.concatenate([SEQUENCES.normal.lengths, SEQUENCES.anomalous.lengths]),
    (*SEQUENCES.normal.ids, *SEQUENCES.anomalous.ids),
)


class Exported(NamedTuple):
    """A kind of detector, its model, and the folder that it was exported to."""

    detector: Detector
    fitted: Any
    folder: Path

    def score(self, data: WindowSet, device: str) -> FloatArray:
        return self.detector.load(self.folder, device=device).score(data.values, data.lengths)


def exported(kind: str, folder: Path, device: str, data: WindowSet = SEQUENCES.normal) -> Exported:
    detector = make_detector(*SMALL[kind])
    fitted = detector.fit(data, seed=0, device=device)
    fitted.export(folder)
    return Exported(detector, fitted, folder)


@pytest.fixture(scope="module", params=SMALL)
def of_cpu(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Exported:
    """A small model of each kind, trained on the CPU."""
    return exported(request.param, tmp_path_factory.mktemp("of_cpu"), "cpu")


def alike(found: FloatArray, expected: FloatArray, tolerance: float = TOLERANCE) -> None:
    np.testing.assert_allclose(found, expected, rtol=0, atol=tolerance * max(1.0, float(np.abs(expected).max())))


# --- scoring ---------------------------------------------------------------------------------------------------------


def test_it_keeps_the_laws_of_a_scorer(of_cpu: Exported) -> None:
    check_scorer(of_cpu.detector.load(of_cpu.folder, device=DEVICE), BOTH.values, BOTH.lengths)


def test_terms_are_those_of_the_cpu(of_cpu: Exported) -> None:
    alike(of_cpu.score(BOTH, DEVICE), of_cpu.score(BOTH, "cpu"))


@pytest.mark.parametrize("n", [3, 64, 65, 128, 129, 1100])
def test_batches_of_any_size_score_as_a_few_windows_do(of_cpu: Exported, n: int) -> None:
    places = np.arange(n) % len(BOTH)
    alike(of_cpu.score(BOTH.take(places), DEVICE), of_cpu.score(BOTH, "cpu")[places])


def test_a_model_that_cannot_be_recorded_scores_alike(of_cpu: Exported, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object, **__: object) -> None:
        raise RuntimeError("CUDA out of memory")

    monkeypatch.setattr(torch.cuda, "graph", refused)
    alike(of_cpu.score(BOTH, DEVICE), of_cpu.score(BOTH, "cpu"))


def test_a_model_that_leaves_service_frees_its_memory(of_cpu: Exported) -> None:
    of_cpu.score(BOTH, DEVICE)  # what libraries keep for good
    before = torch.cuda.memory_allocated()
    scorer = of_cpu.detector.load(of_cpu.folder, device=DEVICE)
    assert torch.cuda.memory_allocated() > before
    del scorer
    assert torch.cuda.memory_allocated() == before


def test_tf32_chosen_elsewhere_does_not_reach_the_scores(of_cpu: Exported) -> None:
    scorer = of_cpu.detector.load(of_cpu.folder, device=DEVICE)
    expected = scorer.score(BOTH.values, BOTH.lengths)
    before = torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32
    torch.set_float32_matmul_precision("medium")
    torch.backends.cudnn.allow_tf32 = True
    try:
        alike(scorer.score(BOTH.values, BOTH.lengths), expected, 1e-6)
    finally:
        torch.set_float32_matmul_precision(before[0])
        torch.backends.cudnn.allow_tf32 = before[1]


def test_threads_that_load_and_score_at_the_same_time_do_not_disturb_each_other(of_cpu: Exported) -> None:
    expected = of_cpu.score(BOTH, DEVICE)
    with ThreadPoolExecutor(3) as threads:
        for found in threads.map(lambda _: of_cpu.score(BOTH, DEVICE), range(6)):
            alike(found, expected)


def test_auto_loads_onto_the_gpu(of_cpu: Exported) -> None:
    before = torch.cuda.memory_allocated()
    scorer = of_cpu.detector.load(of_cpu.folder, device="auto")
    assert torch.cuda.memory_allocated() > before
    assert scorer.n_terms > 0


@pytest.mark.parametrize(
    "kind", ["neutral_ad", "ensemble", "pointwise", "pca", "nearest", "minirocket", "unfolded", "mpca"]
)
def test_the_default_settings_decide_real_recordings_as_on_the_cpu(kind: str, tmp_path: Path) -> None:
    with np.load(data_file("natops.npz"), allow_pickle=False) as arrays:
        values, lengths, y = (arrays[f"train_{name}"] for name in ("x", "len", "y"))
        new = WindowSet(np.nan_to_num(arrays["test_x"]).astype(np.float32), arrays["test_len"].astype(np.int64), ())
    kept = np.flatnonzero(y < 4)
    data = WindowSet(np.nan_to_num(values[kept]), lengths[kept].astype(np.int64), tuple(map(str, kept)))
    detector = make_detector(kind, {"epochs": 2} if kind == "neutral_ad" else {})
    fitted = detector.fit(data, seed=0, device="cpu")
    fitted.export(tmp_path)
    calibration = Calibration.from_terms(fitted.training_scores())
    on_cpu, on_gpu = (
        detector.load(tmp_path, device=device).score(new.values, new.lengths) for device in ("cpu", DEVICE)
    )
    alike(on_gpu, on_cpu)
    for rate in (0.01, 0.05, 0.2):
        decisions = [
            [calibration.p_value(float(score))[0] <= rate for score in scores_of(terms)] for terms in (on_cpu, on_gpu)
        ]
        assert decisions[0] == decisions[1]
    assert any(decisions[0])
    assert not all(decisions[0])


# --- training --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", SMALL)
def test_a_model_trained_on_the_gpu_serves_on_the_cpu(kind: str, tmp_path: Path) -> None:
    trained = exported(kind, tmp_path, DEVICE)
    assert trained.fitted.summary.device == DEVICE
    own = trained.fitted.score(BOTH.values, BOTH.lengths)
    alike(trained.score(BOTH, "cpu"), own)
    alike(trained.score(BOTH, DEVICE), own)
    assert np.isfinite(trained.fitted.training_scores()).all()


def test_auto_trains_on_the_gpu_and_the_anomalies_score_higher() -> None:
    fitted = NeutralAD(NeutralADOptions(n_transformations=4, epochs=20)).fit(SEQUENCES.normal, seed=0)
    assert fitted.summary.device == DEVICE
    low, high = (fitted.score(part.values, part.lengths).sum(axis=1) for part in SEQUENCES)
    assert np.quantile(low, 0.9) < high.min()


def test_a_fit_of_neighbours_is_the_same_on_both(tmp_path: Path) -> None:
    scores = []
    for device in ("cpu", DEVICE):
        folder = tmp_path / device
        folder.mkdir()
        scores.append(exported("ensemble", folder, device).score(BOTH, "cpu"))
    assert np.array_equal(*scores)


def test_an_interrupted_training_continues_on_the_gpu(tmp_path: Path) -> None:
    detector = NeutralAD(NeutralADOptions.model_validate(NETWORK))

    def interrupt(step: TrainingStep) -> None:
        if step.epoch == 2:
            raise KeyboardInterrupt

    whole = detector.fit(SEQUENCES.normal, seed=0, device=DEVICE)
    with pytest.raises(KeyboardInterrupt):
        detector.fit(SEQUENCES.normal, seed=0, device=DEVICE, progress=interrupt, resume=tmp_path / "run")
    epochs: list[int] = []
    continued = detector.fit(
        SEQUENCES.normal,
        seed=0,
        device=DEVICE,
        progress=lambda step: epochs.append(step.epoch),
        resume=tmp_path / "run",
    )
    assert epochs == [3, 4]
    alike(continued.score(BOTH.values, BOTH.lengths), whole.score(BOTH.values, BOTH.lengths), 1e-3)


def test_bfloat16_trains_the_encoder() -> None:
    options = NeutralADOptions.model_validate({**NETWORK, "precision": "bfloat16"})
    fitted = NeutralAD(options).fit(SEQUENCES.normal, seed=0, device=DEVICE)
    assert np.isfinite(fitted.score(BOTH.values, BOTH.lengths)).all()


# --- the registry ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("there", "here"), [("cpu", DEVICE), (DEVICE, "cpu"), (DEVICE, DEVICE), (DEVICE, "auto")])
@pytest.mark.parametrize("kind", SMALL)
def test_the_probe_of_a_version_holds_on_the_other_device(kind: str, there: str, here: str, tmp_path: Path) -> None:
    name, options = SMALL[kind]

    def plant(device: str) -> Any:
        return settings_of(model={"detector": name, "options": options, "device": device, "references": []})

    data = windows_of(160)
    train(tmp_path, data=data, detector=make_detector(name, options), settings=plant(there))
    loaded = Registry(tmp_path).load("default", settings=plant(here), detector=make_detector(name, options))
    assert loaded.backend == "torchscript"
    assert loaded.manifest.training.device == there
    assert loaded.scorer.score(data.values, data.lengths).shape == (160, loaded.calibration_terms.shape[1])
