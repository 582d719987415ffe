"""An ONNX artifact: export from torch, and scoring by ONNX Runtime, which needs no torch.

Legend: B windows, C channels, L window length, K terms.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from streamad.errors import ArtifactError, DetectorError, OutputError
from streamad.types import FloatArray, IntArray

if TYPE_CHECKING:
    from torch import nn

ONNX_FILE = "model.onnx"
_FORMAT = "1"
_CHUNK = 16  # windows whose activations fit a core's second-level cache, as for TorchScript
_ROWS = 512  # rows of a table (windows of one sample)
_MOST_WINDOWS = 4096  # of one call, as the export declares them
_INPUTS, _OUTPUT = ("windows", "lengths"), "terms"
_WARM_UP_BATCHES = (1, 2, 8)


def export_onnx(model: nn.Module, folder: Path) -> tuple[str, ...]:
    """Write ``model.onnx`` (weights included) into ``folder`` and return its name.

    ``model`` maps windows float32 [B, C, L] and lengths int64 [B] to terms float32 [B, K], on the CPU. Takes several
    seconds of CPU time. Raises DetectorError if the packages onnx and onnxscript are missing or the model cannot be
    exported; OutputError.
    """
    import torch  # noqa: PLC0415

    channels, length, n_terms = (int(getattr(model, name)) for name in ("n_channels", "window_length", "n_terms"))
    windows, lengths = torch.zeros(3, channels, length), torch.full((3,), length, dtype=torch.int64)
    batch = torch.export.Dim("B", min=1, max=_MOST_WINDOWS)
    try:
        with torch.no_grad(), _without_warnings():
            program: Any = torch.onnx.export(
                model, (windows, lengths), dynamo=True, dynamic_shapes=({0: batch}, {0: batch}),
                input_names=_INPUTS, output_names=(_OUTPUT,), verbose=False,
            )  # fmt: skip
        proto = program.model_proto
    except ImportError as error:
        raise DetectorError(f"the export to ONNX needs the extra onnxruntime ({error})") from error
    except Exception as error:  # torch's exporter raises errors of its own for what it cannot translate
        reason = str(error).strip().splitlines() or [type(error).__name__]
        raise DetectorError(f"the model cannot be exported to ONNX ({reason[0][:200]})") from error
    described = {"streamad_format": _FORMAT, "n_channels": channels, "window_length": length, "n_terms": n_terms}
    for name, value in described.items():
        entry = proto.metadata_props.add()
        entry.key, entry.value = name, str(value)
    path = folder / ONNX_FILE
    try:
        path.write_bytes(proto.SerializeToString())
    except OSError as error:
        raise OutputError(f"cannot write the model to {path}: {error.strerror or error}") from error
    return (ONNX_FILE,)


@contextmanager
def _without_warnings() -> Iterator[None]:
    """Keep the exporter's warnings, of torchvision for example, from people: they can do nothing about them."""
    log = logging.getLogger("torch.onnx")
    before = log.level
    log.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        log.setLevel(before)


class OnnxScorer:
    """An ONNX model in service by ONNX Runtime, on one thread of the CPU (``streamad.ports.Scorer``).

    The caller must have verified the file (sha256). Raises ArtifactError if the file is no model of streamad, or if
    the package onnxruntime is missing.
    """

    def __init__(self, path: Path) -> None:
        try:
            import onnxruntime  # noqa: PLC0415
        except ImportError as error:
            raise ArtifactError(
                f"the package onnxruntime is missing ({error}): install the extra onnxruntime"
            ) from error
        except Exception as error:  # a broken installation fails in any way
            raise ArtifactError(f"the package onnxruntime cannot be imported ({error}): install it anew") from error
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.log_severity_level = 4
        try:
            # From memory: the runtime then finds no files that an artifact may name as places of its weights.
            self._session: Any = onnxruntime.InferenceSession(
                path.read_bytes(), options, providers=["CPUExecutionProvider"]
            )
            described = self._session.get_modelmeta().custom_metadata_map
            shape = [int(described[name]) for name in ("n_channels", "window_length", "n_terms")]
        except OSError as error:
            raise ArtifactError(
                f"{path} cannot be read ({error.strerror or error}): restore it or train again"
            ) from error
        except Exception as error:  # the runtime's errors have no common base
            raise ArtifactError(f"{path} is damaged or no model of streamad: restore it or train again") from error
        if described.get("streamad_format") != _FORMAT or min(shape) < 1:
            raise ArtifactError(f"{path} was written by another version of streamad: train the model again")
        self.window_shape = (shape[0], shape[1])
        self.n_terms = shape[2]
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
        chunk = _ROWS if self.window_shape[1] == 1 else _CHUNK
        for start in range(0, len(windows), chunk):
            stop = start + chunk
            (part,) = self._session.run([_OUTPUT], {_INPUTS[0]: x_BCL[start:stop], _INPUTS[1]: lengths_B[start:stop]})
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
