"""An OpenVINO artifact: conversion from torch, and scoring by OpenVINO, which needs no torch.

The conversion starts from the torch module: from an ONNX file the mask of -inf gave wrong scores.
Legend: B windows, C channels, L window length, K terms.
"""

from __future__ import annotations

import sys
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from streamad.errors import ArtifactError, DetectorError, OutputError
from streamad.types import FloatArray, IntArray

if TYPE_CHECKING:
    from torch import nn

GRAPH_FILE, WEIGHTS_FILE = "model.xml", "model.bin"
_FORMAT = "1"
_CHUNK = 16  # windows whose activations fit a core's second-level cache, as for TorchScript
_ROWS = 512  # rows of a table (windows of one sample)
_MOST_WINDOWS = 4096  # of one call, as the export declares them
_WARM_UP_BATCHES = (1, 2, 16)
OPENVINO_SETTINGS = {"INFERENCE_PRECISION_HINT": "f32", "INFERENCE_NUM_THREADS": 1, "NUM_STREAMS": 1}
"""float32 also where the processor has bfloat16, and one thread of the CPU."""
_TELEMETRY = "openvino_telemetry"


def import_openvino() -> Any:
    """Return the module openvino, imported without the package that reports its use to its maker at every import.

    Raises ImportError.
    """
    if "openvino" not in sys.modules and _TELEMETRY not in sys.modules:
        sys.modules[_TELEMETRY] = None  # type: ignore[assignment]  # an import of it fails; openvino then goes without
        try:
            import openvino  # noqa: PLC0415
        finally:
            del sys.modules[_TELEMETRY]
    import openvino  # noqa: PLC0415

    return openvino


def export_openvino(model: nn.Module, folder: Path) -> tuple[str, ...]:
    """Write ``model.xml`` and ``model.bin`` into ``folder`` and return their names.

    ``model`` maps windows float32 [B, C, L] and lengths int64 [B] to terms float32 [B, K], on the CPU. Takes several
    seconds of CPU time. Raises DetectorError if the package openvino is missing or the model cannot be converted;
    OutputError.
    """
    import torch  # noqa: PLC0415

    channels, length, n_terms = (int(getattr(model, name)) for name in ("n_channels", "window_length", "n_terms"))
    windows, lengths = torch.zeros(3, channels, length), torch.full((3,), length, dtype=torch.int64)
    batch = torch.export.Dim("B", min=1, max=_MOST_WINDOWS)
    try:
        openvino = import_openvino()
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            program = torch.export.export(model, (windows, lengths), dynamic_shapes=({0: batch}, {0: batch}))
            converted = openvino.convert_model(program)
        converted.reshape({0: [-1, channels, length], 1: [-1]})
    except ImportError as error:
        raise DetectorError(f"the export to OpenVINO needs the extra openvino ({error})") from error
    except Exception as error:  # both raise errors of their own for what they cannot translate
        reason = str(error).strip().splitlines() or [type(error).__name__]
        raise DetectorError(f"the model cannot be converted to OpenVINO ({reason[-1][:200]})") from error
    described = {"format": _FORMAT, "n_channels": channels, "window_length": length, "n_terms": n_terms}
    for name, value in described.items():
        converted.set_rt_info(str(value), ["streamad", name])
    path = folder / GRAPH_FILE
    try:
        openvino.save_model(converted, path, compress_to_fp16=False)
    except (OSError, RuntimeError) as error:
        raise OutputError(f"cannot write the model to {path}: {str(error).strip().splitlines()[-1]}") from error
    return GRAPH_FILE, WEIGHTS_FILE


class OpenVinoScorer:
    """An OpenVINO model in service, on one thread of the CPU (``streamad.ports.Scorer``).

    It is compiled three times, because graphs of known shapes are faster: for one window, of which most batches of a
    running plant consist, for a whole chunk, and for any number of windows.
    The caller must have verified the files (sha256). Raises ArtifactError if they are no model of streamad, or if the
    package openvino is missing.
    """

    def __init__(self, folder: Path) -> None:
        path = folder / GRAPH_FILE
        try:
            openvino = import_openvino()
        except ImportError as error:
            raise ArtifactError(f"the package openvino is missing ({error}): install the extra openvino") from error
        except Exception as error:  # a broken installation fails in any way
            raise ArtifactError(f"the package openvino cannot be imported ({error}): install it anew") from error
        try:
            # From memory: the runtime then finds no files that an artifact may name as places of its weights.
            content, weights = path.read_bytes(), (folder / WEIGHTS_FILE).read_bytes()
        except OSError as error:
            raise ArtifactError(
                f"{error.filename or path} cannot be read ({error.strerror or error}): restore it or train again"
            ) from error
        try:
            core = openvino.Core()
            model = core.read_model(content, weights)
            described = {name: str(model.get_rt_info(["streamad", name]).value) for name in ("format", "n_terms")}
            channels, length = (int(size.get_length()) for size in list(model.input(0).get_partial_shape())[1:])
            self.n_terms = int(described["n_terms"])
            self._chunk = _ROWS if length == 1 else _CHUNK
            self._any_number: Any = core.compile_model(model, "CPU", OPENVINO_SETTINGS).create_infer_request()
            self._requests: dict[int, Any] = {}
            for n in (1, self._chunk):
                model.reshape({0: [n, channels, length], 1: [n]})
                self._requests[n] = core.compile_model(model, "CPU", OPENVINO_SETTINGS).create_infer_request()
        except Exception as error:  # the runtime's errors have no common base
            raise ArtifactError(f"{path} is damaged or no model of streamad: restore it or train again") from error
        if described["format"] != _FORMAT or min(channels, length, self.n_terms) < 1:
            raise ArtifactError(f"{path} was written by another version of streamad: train the model again")
        self.window_shape = (channels, length)
        self._warm_up(path)

    def score(self, windows: FloatArray, lengths: IntArray) -> FloatArray:
        """Return the terms float32 [B, K] of windows float32 [B, C, L] in engineering units, lengths int64 [B].

        Raises ArtifactError if the windows do not have the model's shape.
        """
        if windows.shape[1:] != self.window_shape or lengths.shape != windows.shape[:1]:
            raise ArtifactError("the model takes windows [B, {}, {}], not {}".format(*self.window_shape, windows.shape))
        x_BCL = np.ascontiguousarray(windows, dtype=np.float32)
        lengths_B = np.ascontiguousarray(lengths, dtype=np.int64)
        terms = np.empty((len(windows), self.n_terms), np.float32)
        for start in range(0, len(windows), self._chunk):
            stop = min(start + self._chunk, len(windows))
            request = self._requests.get(stop - start, self._any_number)
            (part,) = request.infer([x_BCL[start:stop], lengths_B[start:stop]], share_inputs=True).to_tuple()
            if part.shape != terms[start:stop].shape:
                raise ArtifactError(f"the model gives terms of shape {part.shape}: it is not a streamad model")
            terms[start:stop] = part
        return terms

    def _warm_up(self, path: Path) -> None:
        """Run small batches: a wrong graph fails now."""
        try:
            for n in _WARM_UP_BATCHES:
                self.score(np.zeros((n, *self.window_shape), np.float32), np.full(n, self.window_shape[1], np.int64))
        except ArtifactError:
            raise
        except Exception as error:
            reason = str(error).strip().splitlines() or [type(error).__name__]
            raise ArtifactError(f"{path} does not run as a streamad model ({reason[-1][:200]})") from error
