"""A TorchScript artifact in service: loading, warm-up, and scoring in pieces that stay in cache.

Legend: B windows, C channels, L window length, K terms.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from streamad.errors import ArtifactError, DetectorError
from streamad.types import FloatArray, IntArray
from streamad_models.devices import GPU_TURN, GraphedModel, full_precision

FILE_NAME = "model.ts"
_FORMATS = (1,)
CPU_CHUNK = 16  # windows whose activations fit a core's second-level cache; measured in benchmarks/speed/scoring.py
_CPU_ROWS = 512  # rows of a table (windows of one sample), whose activations are as much smaller
_CUDA_CHUNK = 1024
_CUDA_VALUES = 2**28  # float32 numbers of one call on a GPU, about 1 GB
_RECORDED_SHARE = 4  # of a chunk is recorded: of more windows launching takes less time than computing
_VALUES_A_SAMPLE, _VALUES_A_READING = 1000, 64  # of the widest kinds: MiniRocket's comparisons, NeuTraL AD's views
_FLOAT_BYTES = 4
_WARM_UP_BATCHES = (1, 2, 8)


def resolve_device(device: str) -> torch.device:
    """Return the torch device of ``auto``, ``cpu`` or ``cuda[:i]``. Raises DetectorError."""
    if device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        resolved = torch.device(device)
    except RuntimeError as error:
        raise DetectorError(f"unknown device {device!r}: use auto, cpu, cuda or cuda:0") from error
    if resolved.type not in ("cpu", "cuda"):
        raise DetectorError(f"device {device!r} is not supported: use auto, cpu, cuda or cuda:0")
    if resolved.type == "cuda" and (resolved.index or 0) >= torch.cuda.device_count():
        raise DetectorError(f"device {device!r} is not there (there are {torch.cuda.device_count()}): use auto or cpu")
    return resolved


class TorchScriptScorer:
    """A TorchScript model in service (``streamad.ports.Scorer``).

    The caller must have verified the file (sha256): loading TorchScript can run its code. The script states its
    ``n_channels``, ``window_length``, ``n_terms`` and ``streamad_format``, and maps windows float32 [B, C, L], lengths
    int64 [B] to terms float32 [B, K]. Raises ArtifactError for anything else.
    """

    def __init__(self, path: Path, *, device: torch.device) -> None:
        script = _load(path, device)
        self._device = device
        self.window_shape = (_attribute(script, "n_channels", path), _attribute(script, "window_length", path))
        self.n_terms = _attribute(script, "n_terms", path)
        if _attribute(script, "streamad_format", path) not in _FORMATS:
            raise ArtifactError(f"{path} was written by another version of streamad: train the model again")
        frozen = _frozen(script)
        self._model = frozen if device.type == "cpu" else _unoptimised(frozen)
        self._graphed: GraphedModel | None = None
        self._warm_up(path)
        if device.type == "cuda":
            limit = max(chunk_size(device, *self.window_shape) // _RECORDED_SHARE, 1)
            self._graphed = GraphedModel(self._model, device, self.window_shape, self.n_terms, limit=limit)

    def score(self, windows: FloatArray, lengths: IntArray) -> FloatArray:
        """Return the terms float32 [B, K] of windows float32 [B, C, L] in engineering units, lengths int64 [B].

        Raises ArtifactError if the windows do not have the model's shape.
        """
        if windows.shape[1:] != self.window_shape or lengths.shape != windows.shape[:1]:
            raise ArtifactError("the model takes windows [B, {}, {}], not {}".format(*self.window_shape, windows.shape))
        if self._device.type == "cpu":
            return score_in_chunks(self._model, self._device, self.n_terms, windows, lengths)
        if self._graphed is not None and 0 < len(windows) <= self._graphed.most:
            return self._graphed.score(windows, lengths)
        with GPU_TURN:
            return score_in_chunks(self._model, self._device, self.n_terms, windows, lengths)

    @property
    def n_together(self) -> int | None:
        """Return how many windows a GPU takes at once, with the memory that is free now; None on a CPU."""
        if self._device.type == "cpu":
            return None
        return n_together(self._device, self.window_shape, torch.cuda.mem_get_info(self._device)[0])

    def _warm_up(self, path: Path) -> None:
        """Run each batch size twice: the executor specialises on its first calls, and a wrong script fails."""
        try:
            for n in _WARM_UP_BATCHES * 2:
                self.score(np.zeros((n, *self.window_shape), np.float32), np.full(n, self.window_shape[1], np.int64))
        except (RuntimeError, ValueError, TypeError) as error:
            reason = str(error).strip().splitlines()[-1]
            raise ArtifactError(f"{path} does not run as a streamad model ({reason})") from error


@torch.inference_mode()
def score_in_chunks(
    model: Callable[[Tensor, Tensor], Tensor],
    device: torch.device,
    n_terms: int,
    windows: FloatArray,
    lengths: IntArray,
) -> FloatArray:
    """Return ``model(windows, lengths)``, computed in chunks, in float32 on every device (no TF32)."""
    chunk = chunk_size(device, *windows.shape[1:])
    terms = np.empty((len(windows), n_terms), np.float32)
    x_BCL = torch.from_numpy(np.ascontiguousarray(windows, dtype=np.float32))
    lengths_B = torch.from_numpy(np.ascontiguousarray(lengths, dtype=np.int64))
    with full_precision(device):
        for start in range(0, len(windows), chunk):
            stop = start + chunk
            part = model(x_BCL[start:stop].to(device), lengths_B[start:stop].to(device))
            if part.shape != terms[start:stop].shape:
                raise ArtifactError(f"the model gives terms of shape {tuple(part.shape)}: it is not a streamad model")
            terms[start:stop] = part.cpu().numpy()
    return terms


def chunk_size(device: torch.device, n_channels: int, length: int) -> int:
    """Return how many windows are computed at once: on a CPU as many as fit its cache, on a GPU its memory."""
    if device.type == "cpu":
        return _CPU_ROWS if length == 1 else CPU_CHUNK
    numbers = length * (_VALUES_A_SAMPLE + _VALUES_A_READING * n_channels)
    return max(min(_CUDA_VALUES // numbers, _CUDA_CHUNK), 1)


def n_together(device: torch.device, shape: tuple[int, int], free_bytes: int) -> int:
    """Return how many windows [C, L] a GPU takes at once: no more than a chunk, or than half of its free memory."""
    n_channels, length = shape
    a_window = _FLOAT_BYTES * length * (_VALUES_A_SAMPLE + _VALUES_A_READING * n_channels)
    return max(min(free_bytes // (2 * a_window), chunk_size(device, n_channels, length)), 1)


def _load(path: Path, device: torch.device) -> torch.jit.ScriptModule:
    with deprecation_silenced():
        try:
            script: torch.jit.ScriptModule = torch.jit.load(str(path), map_location=device)  # type: ignore[no-untyped-call]
        except (OSError, RuntimeError, ValueError) as error:
            raise ArtifactError(f"{path} is damaged or no TorchScript file: restore it or train again") from error
    if not hasattr(script, "forward"):
        raise ArtifactError(f"{path} holds no model: restore it or train again")
    return script


def _frozen(script: torch.jit.ScriptModule) -> torch.jit.ScriptModule:
    with deprecation_silenced():
        frozen: torch.jit.ScriptModule = torch.jit.freeze(script.eval())
        return frozen


def _unoptimised(script: torch.jit.ScriptModule) -> Callable[[Tensor, Tensor], Tensor]:
    """Return the script run as it is: on a GPU the optimiser compiles kernels of its own.

    For the default detector that takes longer than half a minute (docs/internals/gpu.md).
    """

    def run(windows_BCL: Tensor, lengths_B: Tensor) -> Tensor:
        with torch.jit.optimized_execution(False):  # type: ignore[attr-defined]
            terms_BK: Tensor = script(windows_BCL, lengths_B)
            return terms_BK

    return run


def _attribute(script: torch.jit.ScriptModule, name: str, path: Path) -> int:
    value = getattr(script, name, None)
    if not isinstance(value, int):
        raise ArtifactError(f"{path} does not state its {name}: it is not a streamad model")
    return value


@contextmanager
def deprecation_silenced() -> Iterator[None]:
    """Silence upstream's deprecation of TorchScript, the artifact here (docs/model/model.md)."""
    with warnings.catch_warnings():
        for category in (DeprecationWarning, FutureWarning):  # which one depends on torch's version
            warnings.filterwarnings("ignore", message=".*torch.jit", category=category)
        yield
