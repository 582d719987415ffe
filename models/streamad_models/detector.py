"""The half of a detector that loads. It imports torch in its first call: options are checked without it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Generic, TypeVar, cast

from pydantic import BaseModel

from streamad.errors import ArtifactError
from streamad.ports import Scorer

if TYPE_CHECKING:
    from streamad_models.torchscript import TorchScriptScorer

OptionsT = TypeVar("OptionsT", bound=BaseModel)


class TorchScriptDetector(Generic[OptionsT]):
    """The half of ``streamad.ports.Detector`` that loads: any detector whose artifact is one TorchScript file."""

    options_model: type[BaseModel]
    backends: tuple[str, ...] = ("openvino", "onnxruntime", "torchscript")
    """The fastest first, as ``benchmarks/speed/backends.py`` measures them (docs/model/backends.md)."""

    def __init__(self, options: OptionsT | None = None) -> None:
        self.options = options or cast("OptionsT", self.options_model())

    def load(self, folder: Path, *, device: str = "auto") -> TorchScriptScorer:
        """Load the exported model in ``folder``; its sha256 must have been verified. Raises ArtifactError."""
        from streamad_models.torchscript import FILE_NAME, TorchScriptScorer, resolve_device  # noqa: PLC0415

        return TorchScriptScorer(folder / FILE_NAME, device=resolve_device(device))

    def load_by(self, backend: str, folder: Path, *, device: str = "auto") -> Scorer:
        """Load the model that ``export_for`` wrote; its sha256 must have been verified. Imports no torch.

        Raises ArtifactError, also for a device other than the CPU.
        """
        if backend not in ("onnxruntime", "openvino"):
            raise ArtifactError(f"there is no backend {backend!r}")
        if device not in ("auto", "cpu"):
            raise ArtifactError(f"{backend} serves on the CPU, not on {device}")
        if backend == "openvino":
            from streamad_models.onnx_openvino import OpenVinoScorer  # noqa: PLC0415

            return OpenVinoScorer(folder)
        from streamad_models.onnx_openvino import ONNX_FILE, OnnxScorer  # noqa: PLC0415

        return OnnxScorer(folder / ONNX_FILE)
