"""ONNX Runtime and OpenVINO run every kind of detector: a plant may serve a model without torch.

Both converters refuse scripts (``model.ts``), so the fitted module is exported (``torch.export``) with batches of any
size, converted to ONNX, and that one file runs in both.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from streamad.learn.registry.artifact import PROBE_TOLERANCE_OTHER_DEVICES, probe_deviation
from streamad.types import FloatArray, IntArray, WindowSet
from streamad_models.ensemble import Ensemble, EnsembleOptions
from streamad_models.fitted import FittedModule
from streamad_models.simple import PCA, MiniRocketNearest, MiniRocketOptions, Pointwise

C, L = 2, 16
DETECTORS = {
    "ensemble with a network": Ensemble(
        EnsembleOptions(n_minirocket=84, n_groups=2, effort="normal", time_limit_s=1e-6)
    ),  # holds what the plain ensemble and neutral_ad consist of
    "pointwise": Pointwise(),
    "pca": PCA(),
    "minirocket": MiniRocketNearest(MiniRocketOptions(n_features=168)),  # nearest without features is the same
}


def walks(n: int, seed: int) -> WindowSet:
    """Random walks of lengths 8 to L."""
    rng = np.random.default_rng(seed)
    lengths = rng.integers(8, L + 1, n)
    values = rng.normal(size=(n, C, L)).cumsum(axis=2).astype(np.float32)
    values[np.broadcast_to(np.arange(L) >= lengths[:, None, None], values.shape)] = 0
    return WindowSet(values, lengths, tuple(map(str, range(n))))


def steady(fitted: FittedModule, n: int) -> WindowSet:
    """The ``n`` of 40 windows that rounding moves least: features that compare numbers may decide a tie otherwise."""
    candidates, rng = walks(40, seed=1), np.random.default_rng(0)
    terms, moved = fitted.score(candidates.values, candidates.lengths), np.zeros(40)
    for _ in range(4):
        rounded = candidates.values * (1 + 1e-6 * rng.standard_normal(candidates.values.shape)).astype(np.float32)
        moved = np.maximum(moved, np.abs(fitted.score(rounded, candidates.lengths) - terms).max(axis=1))
    return candidates.take(np.sort(np.argsort(moved)[:n]))


def converted(fitted: FittedModule, path: Path) -> None:
    """Write the fitted model as ONNX for batches of any size."""
    example, batch = walks(3, seed=2), torch.export.Dim("batch", min=1, max=4096)
    inputs = torch.from_numpy(example.values), torch.from_numpy(example.lengths)
    program = torch.export.export(fitted.model.eval(), inputs, dynamic_shapes=({0: batch}, {0: batch}))
    made = torch.onnx.export(program, dynamo=True, optimize=False, verbose=False)
    assert made is not None
    made.save(path)


def onnx_runtime(path: Path) -> Callable[[FloatArray, IntArray], FloatArray]:
    import onnxruntime  # noqa: PLC0415 - takes a second

    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    names = [each.name for each in session.get_inputs()]
    return lambda *inputs: np.asarray(session.run(None, dict(zip(names, inputs, strict=True)))[0])


def openvino(path: Path) -> Callable[[FloatArray, IntArray], FloatArray]:
    import openvino  # noqa: PLC0415

    model = openvino.convert_model(path)
    compiled: Any = openvino.Core().compile_model(model, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    return lambda *inputs: np.asarray(compiled(list(inputs))[0])


@pytest.mark.parametrize("kind", DETECTORS)
def test_other_runtimes_give_the_terms_of_torch(kind: str, tmp_path: Path) -> None:
    fitted = DETECTORS[kind].fit(walks(30, seed=0), seed=0, device="cpu")
    windows = steady(fitted, 6)
    assert len(set(windows.lengths.tolist())) > 1
    expected = fitted.score(windows.values, windows.lengths)
    converted(fitted, tmp_path / "model.onnx")
    for run in (onnx_runtime(tmp_path / "model.onnx"), openvino(tmp_path / "model.onnx")):
        for part in (slice(0, 1), slice(1, 6)):
            found = run(windows.values[part], windows.lengths[part])
            assert probe_deviation(found, expected[part]) <= PROBE_TOLERANCE_OTHER_DEVICES
