"""A trained torch module as the application wants it: it scores, and becomes the artifact file.

TorchScript, unfrozen, self-contained. Legend: B windows, C channels, L window length, K terms.
"""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import torch

from streamad.errors import OutputError
from streamad.ports import TrainingSummary
from streamad.types import FloatArray, IntArray
from streamad_models.torchscript import FILE_NAME, score_in_chunks


class FittedModule:
    """A trained module (``streamad.ports.FittedDetector``) that has ``n_terms`` and a buffer ``mean_C``."""

    def __init__(self, model: Any, summary: TrainingSummary) -> None:
        self.model = model
        self._summary = summary

    @property
    def summary(self) -> TrainingSummary:
        """Return what the training did."""
        return self._summary

    def score(self, windows: FloatArray, lengths: IntArray) -> FloatArray:
        """Return terms float32 [B, K] of windows float32 [B, C, L] in engineering units, lengths int64 [B]."""
        return score_in_chunks(self.model, self.model.mean_C.device, self.model.n_terms, windows, lengths)

    def export(self, folder: Path) -> tuple[str, ...]:
        """Write ``model.ts`` (TorchScript, on the CPU) into ``folder`` and return its name. Raises OutputError."""
        path = folder / FILE_NAME
        device = self.model.mean_C.device
        with warnings.catch_warnings():
            # The artifact is TorchScript until torch.export can serve it (DESIGN, the model artifact).
            for category in (DeprecationWarning, FutureWarning):  # which one depends on torch's version
                warnings.filterwarnings("ignore", message=".*torch.jit", category=category)
            script = torch.jit.script(self.model.cpu().eval())
            try:
                torch.jit.save(script, str(path))
            except (OSError, RuntimeError) as error:
                raise OutputError(f"cannot write the model to {path}: {error}") from error
            finally:
                self.model.to(device)
        return (FILE_NAME,)
