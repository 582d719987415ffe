from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
import torch

from streamad.errors import ArtifactError, DetectorError
from streamad_models import torchscript
from streamad_models.neutral_ad import NeutralAD
from streamad_models.torchscript import TorchScriptScorer, chunk_size, n_together, resolve_device
from tests.unit.models.small import options, sines

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def artifact(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("artifact")
    NeutralAD(options(epochs=2)).fit(sines(), seed=0, device="cpu").export(folder)
    return folder / "model.ts"


@pytest.mark.parametrize("chunk", [1, 5, 36, 37, 38])
def test_the_chunk_size_decides_no_score(artifact: Path, chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    scorer = TorchScriptScorer(artifact, device=CPU)
    data = sines(37, seed=2)
    expected = scorer.score(data.values, data.lengths)
    monkeypatch.setattr(torchscript, "CPU_CHUNK", chunk)
    np.testing.assert_allclose(scorer.score(data.values, data.lengths), expected, atol=1e-6, rtol=0)


def test_chunks_on_a_gpu_are_larger_the_fewer_for_wide_and_long_windows_and_never_empty() -> None:
    cuda = torch.device("cuda")
    assert chunk_size(CPU, 24, 51) == chunk_size(CPU, 512, 4096) == 16
    assert chunk_size(CPU, 24, 1) == 512
    assert chunk_size(cuda, 24, 51) == 1024
    assert 1 < chunk_size(cuda, 24, 4096) < chunk_size(cuda, 24, 1024) < 1024
    assert chunk_size(cuda, 512, 1024) < chunk_size(cuda, 24, 1024)
    assert chunk_size(cuda, 100_000, 100_000) == 1


def test_a_gpu_takes_as_many_windows_at_once_as_half_of_its_free_memory_holds() -> None:
    cuda, gib = torch.device("cuda"), 1 << 30
    assert n_together(cuda, (24, 51), 100 * gib) == chunk_size(cuda, 24, 51)
    assert gib // 2 // (4 * 51 * (1000 + 64 * 24)) == 1037
    assert n_together(cuda, (24, 51), gib // 2) == 518
    assert n_together(cuda, (24, 51), 0) == 1


def test_a_cpu_takes_the_usual_number_of_windows(artifact: Path) -> None:
    assert TorchScriptScorer(artifact, device=CPU).n_together is None


def test_a_reduced_precision_chosen_elsewhere_does_not_reach_the_scores(artifact: Path) -> None:
    scorer = TorchScriptScorer(artifact, device=CPU)
    data = sines(20, seed=2)
    expected = scorer.score(data.values, data.lengths)
    with _matmul_precision("medium"):
        assert np.array_equal(scorer.score(data.values, data.lengths), expected)
        assert torch.get_float32_matmul_precision() == "medium"


def test_windows_of_another_shape_are_refused(artifact: Path) -> None:
    scorer = TorchScriptScorer(artifact, device=CPU)
    with pytest.raises(ArtifactError, match=r"windows \[B, 3, 16\], not \(2, 3, 15\)"):
        scorer.score(np.zeros((2, 3, 15), np.float32), np.full(2, 15))
    with pytest.raises(ArtifactError, match="windows"):
        scorer.score(np.zeros((2, 3, 16), np.float32), np.full(3, 16))


@pytest.mark.parametrize("damage", ["missing", "empty", "random", "truncated", "flipped_head"])
def test_a_damaged_file_is_an_artifact_error_of_one_line(artifact: Path, tmp_path: Path, damage: str) -> None:
    content = artifact.read_bytes()
    damaged = {
        "empty": b"",
        "random": np.random.default_rng(0).bytes(5000),
        "truncated": content[: len(content) // 2],
        "flipped_head": bytes(byte ^ 0xFF for byte in content[:64]) + content[64:],
    }
    path = tmp_path / "model.ts"
    if damage != "missing":
        path.write_bytes(damaged[damage])
    with pytest.raises(ArtifactError, match="damaged or no TorchScript file") as caught:
        TorchScriptScorer(path, device=CPU)
    assert "\n" not in str(caught.value)


class _WithoutAttributes(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x


class _OtherForward(torch.nn.Module):
    def __init__(self, streamad_format: int = 1) -> None:
        super().__init__()
        self.n_channels, self.window_length, self.n_terms, self.streamad_format = 3, 16, 4, streamad_format

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x


class _WrongTerms(_OtherForward):
    def forward(self, x: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        return x.sum(dim=2) + lengths[:, None]


@pytest.mark.parametrize(
    ("foreign", "reason"),
    [
        (_WithoutAttributes(), "does not state its n_channels"),
        (_OtherForward(), "does not run as a streamad model"),
        (_OtherForward(2), "another version of streamad"),
        (_WrongTerms(), r"terms of shape \(1, 3\)"),
    ],
)
def test_a_foreign_torchscript_is_an_artifact_error(tmp_path: Path, foreign: torch.nn.Module, reason: str) -> None:
    path = tmp_path / "model.ts"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.jit.save(torch.jit.script(foreign), str(path))
    with pytest.raises(ArtifactError, match=reason) as caught:
        TorchScriptScorer(path, device=CPU)
    assert "\n" not in str(caught.value)


@contextmanager
def _matmul_precision(precision: str) -> Iterator[None]:
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision(precision)
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


@pytest.mark.parametrize("device", ["gpu", "cuda:99", "meta", ""])
def test_a_device_that_is_not_there_is_refused(device: str) -> None:
    with pytest.raises(DetectorError, match="use auto"):
        resolve_device(device)


def test_auto_takes_cuda_if_there_is_one() -> None:
    assert resolve_device("auto").type == ("cuda" if torch.cuda.is_available() else "cpu")
