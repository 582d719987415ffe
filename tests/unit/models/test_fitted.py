from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import pytest
import torch

from streamad.errors import OutputError
from streamad.types import FloatArray, IntArray
from streamad_models.fitted import FittedModule
from streamad_models.neutral_ad import NeutralAD
from tests.unit.models.small import PARAMETRISATIONS, options, sines


def _fitted(device: str = "cpu", **changes: object) -> FittedModule:
    return NeutralAD(options(epochs=2, **changes)).fit(sines(), seed=0, device=device)


def _inputs(n: int) -> tuple[FloatArray, IntArray]:
    data = sines(n, seed=4)
    return data.values, data.lengths


@pytest.mark.parametrize("parametrisation", PARAMETRISATIONS)
def test_exported_scores_equal_eager_scores_on_the_cpu(tmp_path: Path, parametrisation: str) -> None:
    fitted = _fitted(transformation=parametrisation)
    assert fitted.export(tmp_path) == ("model.ts",)
    scorer = NeutralAD().load(tmp_path, device="cpu")
    for n in (1, 2, 7, 40):
        values, lengths = _inputs(n)
        np.testing.assert_allclose(scorer.score(values, lengths), fitted.score(values, lengths), atol=1e-5, rtol=0)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_exported_scores_equal_eager_cpu_scores_on_cuda(tmp_path: Path) -> None:
    fitted = _fitted()
    fitted.export(tmp_path)
    values, lengths = _inputs(40)
    scores = NeutralAD().load(tmp_path, device="cuda").score(values, lengths)
    np.testing.assert_allclose(scores, fitted.score(values, lengths), atol=1e-4, rtol=0)
    on_cuda = _fitted("cuda")
    (tmp_path / "trained").mkdir()
    on_cuda.export(tmp_path / "trained")
    on_cpu = NeutralAD().load(tmp_path / "trained", device="cpu").score(values, lengths)
    np.testing.assert_allclose(on_cpu, on_cuda.score(values, lengths), atol=1e-4, rtol=0)


def test_the_artifact_is_one_self_contained_unfrozen_file(tmp_path: Path) -> None:
    _fitted().export(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["model.ts"]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        script = torch.jit.load(str(tmp_path / "model.ts"))  # type: ignore[no-untyped-call]
    assert (script.n_channels, script.window_length, script.n_terms, script.streamad_format) == (3, 16, 3, 1)
    assert {name for name, _ in script.named_buffers()} >= {"mean_C", "scale_C"}


def test_export_and_load_warn_of_nothing_and_silence_nothing_else(tmp_path: Path) -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        _fitted().export(tmp_path)
        NeutralAD().load(tmp_path, device="cpu")
        warnings.warn("torch.jit elsewhere", DeprecationWarning, stacklevel=1)
    assert [str(warning.message) for warning in caught] == ["torch.jit elsewhere"]


def test_an_unwritable_folder_is_an_output_error(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match="cannot write the model"):
        _fitted().export(tmp_path / "missing")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device that is always full")
def test_a_full_disk_is_one_clear_error_and_the_process_lives(tmp_path: Path) -> None:
    (tmp_path / "model.ts").symlink_to("/dev/full")
    with pytest.raises(OutputError, match=r"cannot write the model to .*No space left"):
        _fitted().export(tmp_path)
