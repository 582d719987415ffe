"""Models in service without torch: the export to ONNX and to OpenVINO, and what scores by them.

The conversion to OpenVINO starts from the torch module: from an ONNX file the mask of -inf gave wrong scores.
Legend: B windows, C channels, L window length, K terms.
"""

from __future__ import annotations

import logging
import sys
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from streamad.errors import ArtifactError, DetectorError, OutputError
from streamad.types import FloatArray, IntArray

if TYPE_CHECKING:
    from torch import nn

ONNX_FILE = "model.onnx"
GRAPH_FILE, WEIGHTS_FILE = "model.xml", "model.bin"
_FORMAT = "1"
_CHUNK = 16  # windows whose activations fit a core's second-level cache, as for TorchScript
_ROWS = 512  # rows of a table (windows of one sample)
_MOST_WINDOWS = 4096  # of one call, as the export declares them
_INPUTS, _OUTPUT = ("windows", "lengths"), "terms"
_WARM_UP_BATCHES = (1, 2, 8, _CHUNK)
OPENVINO_SETTINGS = {"INFERENCE_PRECISION_HINT": "f32", "INFERENCE_NUM_THREADS": 1, "NUM_STREAMS": 1}
"""float32 also where the processor has bfloat16, and one thread of the CPU."""
_TELEMETRY = "openvino_telemetry"


# --- export ---------------------------------------------------------------------------------------------------------


class Program(NamedTuple):
    """A model as torch's exporter traced it: what all exports begin with."""

    sizes: dict[str, int]
    exported: Any


def program_of(model: nn.Module) -> Program:
    """Trace ``model``, which maps windows float32 [B, C, L] and lengths int64 [B] to terms float32 [B, K], on the CPU.

    Takes several seconds of CPU time. Raises DetectorError if the model cannot be exported.
    """
    import torch  # noqa: PLC0415

    sizes = {name: int(getattr(model, name)) for name in ("n_channels", "window_length", "n_terms")}
    channels, length, _ = sizes.values()
    batch = torch.export.Dim("B", min=1, max=_MOST_WINDOWS)
    inputs = torch.zeros(3, channels, length), torch.full((3,), length, dtype=torch.int64)
    with _exporting("torch", "a program", "exported", 0):
        return Program(sizes, torch.export.export(model, inputs, dynamic_shapes=({0: batch}, {0: batch})))


@contextmanager
def _exporting(package: str, form: str, verb: str, line: int) -> Iterator[None]:
    """Turn what an exporter raises into DetectorError, and keep its warnings: people can do nothing about them.

    ``line`` is that of its errors that says most.
    """
    import torch  # noqa: PLC0415

    log = logging.getLogger("torch.onnx")
    before = log.level
    log.setLevel(logging.ERROR)
    try:
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    except ImportError as error:
        raise DetectorError(f"the export to {form} needs the extra {package} ({error})") from error
    except Exception as error:  # exporters raise errors of their own for what they cannot translate
        raise DetectorError(f"the model cannot be {verb} to {form} ({_reason(error, line)})") from error
    finally:
        log.setLevel(before)


def export_onnx(program: Program, folder: Path) -> tuple[str, ...]:
    """Write ``model.onnx`` (weights included) into ``folder`` and return its name.

    Takes several seconds of CPU time. Raises DetectorError if the packages onnx and onnxscript are missing or the model
    cannot be exported; OutputError.
    """
    import torch  # noqa: PLC0415

    with _exporting("onnxruntime", "ONNX", "exported", 0):
        exported: Any = torch.onnx.export(
            program.exported, dynamo=True, dynamic_shapes=({0: "B"}, {0: "B"}),
            input_names=_INPUTS, output_names=(_OUTPUT,), verbose=False,
        )  # fmt: skip
        proto = exported.model_proto
    for name, value in {"streamad_format": _FORMAT, **program.sizes}.items():
        entry = proto.metadata_props.add()
        entry.key, entry.value = name, str(value)
    path = folder / ONNX_FILE
    try:
        path.write_bytes(proto.SerializeToString())
    except OSError as error:
        raise OutputError(f"cannot write the model to {path}: {error.strerror or error}") from error
    return (ONNX_FILE,)


def export_openvino(program: Program, folder: Path) -> tuple[str, ...]:
    """Write ``model.xml`` and ``model.bin`` into ``folder`` and return their names.

    Raises DetectorError if the package openvino is missing or the model cannot be converted; OutputError.
    """
    sizes = program.sizes
    with _exporting("openvino", "OpenVINO", "converted", -1):
        openvino = import_openvino()
        converted = openvino.convert_model(program.exported)
        converted.reshape({0: [-1, sizes["n_channels"], sizes["window_length"]], 1: [-1]})
    for name, value in {"format": _FORMAT, **sizes}.items():
        converted.set_rt_info(str(value), ["streamad", name])
    path = folder / GRAPH_FILE
    try:
        openvino.save_model(converted, path, compress_to_fp16=False)
    except (OSError, RuntimeError) as error:
        raise OutputError(f"cannot write the model to {path}: {str(error).strip().splitlines()[-1]}") from error
    return GRAPH_FILE, WEIGHTS_FILE


# --- scoring --------------------------------------------------------------------------------------------------------


class _ExportedScorer(ABC):
    """An exported model in service, on one thread of the CPU (``streamad.ports.Scorer``).

    The caller must have verified the files (sha256). Raises ArtifactError if they are no model of streamad, or if the
    runtime's package is missing.
    """

    window_shape: tuple[int, int]
    n_terms: int

    @abstractmethod
    def _terms(self, windows: FloatArray, lengths: IntArray) -> FloatArray:
        """Return the terms of at most ``_chunk`` windows."""

    @property
    def _chunk(self) -> int:
        return _ROWS if self.window_shape[1] == 1 else _CHUNK

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
            rows = slice(start, start + self._chunk)
            part = self._terms(x_BCL[rows], lengths_B[rows])
            if part.shape != terms[rows].shape:
                raise ArtifactError(f"the model gives terms of shape {part.shape}: it is not a streamad model")
            terms[rows] = part
        return terms

    def _warm_up(self, path: Path) -> None:
        """Run small batches: a wrong graph fails now."""
        try:
            for n in _WARM_UP_BATCHES:
                self.score(np.zeros((n, *self.window_shape), np.float32), np.full(n, self.window_shape[1], np.int64))
        except ArtifactError:
            raise
        except Exception as error:
            raise ArtifactError(f"{path} does not run as a streamad model ({_reason(error)})") from error


class OnnxScorer(_ExportedScorer):
    """An ONNX model in service by ONNX Runtime."""

    def __init__(self, path: Path) -> None:
        onnxruntime = _imported("onnxruntime", _import_onnxruntime)
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.log_severity_level = 4
        with _reading(path):
            # From memory: the runtime then finds no files that an artifact may name as places of its weights.
            self._session: Any = onnxruntime.InferenceSession(
                path.read_bytes(), options, providers=["CPUExecutionProvider"]
            )
            described = self._session.get_modelmeta().custom_metadata_map
            shape = [int(described[name]) for name in ("n_channels", "window_length", "n_terms")]
        _check_format(path, described.get("streamad_format"), shape)
        self.window_shape = (shape[0], shape[1])
        self.n_terms = shape[2]
        self._warm_up(path)

    def _terms(self, windows: FloatArray, lengths: IntArray) -> FloatArray:
        terms: FloatArray = self._session.run([_OUTPUT], {_INPUTS[0]: windows, _INPUTS[1]: lengths})[0]
        return terms


class OpenVinoScorer(_ExportedScorer):
    """An OpenVINO model in service.

    It is compiled three times, because graphs of known shapes are faster: for one window, of which most batches of a
    running plant consist, for a whole chunk, and for any number of windows.
    """

    def __init__(self, folder: Path) -> None:
        path = folder / GRAPH_FILE
        openvino = _imported("openvino", import_openvino)
        with _reading(path):
            content, weights = path.read_bytes(), (folder / WEIGHTS_FILE).read_bytes()  # from memory, as above
            core = openvino.Core()
            model = core.read_model(content, weights)
            described = {name: str(model.get_rt_info(["streamad", name]).value) for name in ("format", "n_terms")}
            channels, length = (int(size.get_length()) for size in list(model.input(0).get_partial_shape())[1:])
            self.window_shape, self.n_terms = (channels, length), int(described["n_terms"])
            self._any_number: Any = core.compile_model(model, "CPU", OPENVINO_SETTINGS).create_infer_request()
            self._requests: dict[int, Any] = {}
            for n in (1, self._chunk):
                model.reshape({0: [n, channels, length], 1: [n]})
                self._requests[n] = core.compile_model(model, "CPU", OPENVINO_SETTINGS).create_infer_request()
        _check_format(path, described["format"], (channels, length, self.n_terms))
        self._warm_up(path)

    def _terms(self, windows: FloatArray, lengths: IntArray) -> FloatArray:
        request = self._requests.get(len(windows), self._any_number)
        terms: FloatArray = request.infer([windows, lengths], share_inputs=True).to_tuple()[0]
        return terms


def _import_onnxruntime() -> Any:
    import onnxruntime  # noqa: PLC0415

    return onnxruntime


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


def _imported(package: str, importing: Callable[[], Any]) -> Any:
    try:
        return importing()
    except ImportError as error:
        raise ArtifactError(f"the package {package} is missing ({error}): install the extra {package}") from error
    except Exception as error:  # a broken installation fails in any way
        raise ArtifactError(f"the package {package} cannot be imported ({error}): install it anew") from error


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    """Turn what reading the model at ``path`` raises into ArtifactError."""
    try:
        yield
    except OSError as error:
        where = error.filename or path
        raise ArtifactError(f"{where} cannot be read ({error.strerror or error}): restore it or train again") from error
    except Exception as error:  # the runtimes' errors have no common base
        raise ArtifactError(f"{path} is damaged or no model of streamad: restore it or train again") from error


def _check_format(path: Path, form: object, sizes: Sequence[int]) -> None:
    if form != _FORMAT or min(sizes) < 1:
        raise ArtifactError(f"{path} was written by another version of streamad: train the model again")


def _reason(error: Exception, line: int = -1) -> str:
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return lines[line][:200]
