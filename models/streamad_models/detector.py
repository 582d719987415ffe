"""The half of a detector that loads. It imports torch in its first call: options are checked without it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Generic, TypeVar, cast

from pydantic import BaseModel

if TYPE_CHECKING:
    from streamad_models.torchscript import TorchScriptScorer

OptionsT = TypeVar("OptionsT", bound=BaseModel)


class TorchScriptDetector(Generic[OptionsT]):
    """The half of ``streamad.ports.Detector`` that loads: any detector whose artifact is one TorchScript file."""

    options_model: type[BaseModel]

    def __init__(self, options: OptionsT | None = None) -> None:
        self.options = options or cast("OptionsT", self.options_model())

    def load(self, folder: Path, *, device: str = "auto") -> TorchScriptScorer:
        """Load the exported model in ``folder``; its sha256 must have been verified. Raises ArtifactError."""
        from streamad_models.torchscript import FILE_NAME, TorchScriptScorer, resolve_device  # noqa: PLC0415

        return TorchScriptScorer(folder / FILE_NAME, device=resolve_device(device))
