"""A trained torch module: it scores, and exports itself as one self-contained, unfrozen TorchScript file.

Legend: B windows, C channels, L window length, K terms.
"""

from __future__ import annotations

from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from streamad.errors import DetectorError, OutputError
from streamad.ports import TrainingSummary
from streamad.types import FloatArray, IntArray, WindowSet
from streamad_models.convolution_form import exported_form
from streamad_models.onnx_openvino import Program, export_onnx, export_openvino, program_of
from streamad_models.torchscript import FILE_NAME, deprecation_silenced, score_in_chunks

_EXPORTS = {"onnxruntime": export_onnx, "openvino": export_openvino}


class FittedModule:
    """A trained module (``streamad.ports.FittedDetector``) that has ``n_terms`` and a buffer ``mean_C``."""

    def __init__(self, model: Any, summary: TrainingSummary, training: WindowSet) -> None:
        self.model = model
        self.summary = summary
        self.training = training
        self._programs: dict[frozenset[type], Program] = {}

    def score(self, windows: FloatArray, lengths: IntArray) -> FloatArray:
        """Return terms float32 [B, K] of windows float32 [B, C, L] in engineering units, lengths int64 [B]."""
        return score_in_chunks(self.model, self.model.mean_C.device, self.model.n_terms, windows, lengths)

    def training_scores(self) -> FloatArray:
        """Return the terms float32 [N, K] of the windows given to ``fit``: a network has no reference set."""
        return self.score(self.training.values, self.training.lengths)

    def export(self, folder: Path) -> tuple[str, ...]:
        """Write ``model.ts`` (TorchScript, on the CPU) into ``folder`` and return its name. Raises OutputError.

        Through memory: torch ends the process if a disk is full while it writes a file itself.
        """
        path, device = folder / FILE_NAME, self.model.mean_C.device
        content = BytesIO()
        with deprecation_silenced():
            try:
                torch.jit.save(torch.jit.script(self.model.cpu().eval()), content)
            finally:
                self.model.to(device)
        try:
            path.write_bytes(content.getbuffer())
        except OSError as error:
            raise OutputError(f"cannot write the model to {path}: {error.strerror or error}") from error
        return (FILE_NAME,)

    def export_for(self, backend: str, folder: Path) -> tuple[str, ...]:
        """Write what ``load_by`` of the detector reads into ``folder`` and return the files' names.

        Raises DetectorError if there is no such export of this model; OutputError.
        """
        if backend not in _EXPORTS:
            raise DetectorError(f"there is no export for the backend {backend!r}")
        device = self.model.mean_C.device
        try:
            return _EXPORTS[backend](self._program_for(backend), folder)
        finally:
            self.model.to(device)

    def _program_for(self, backend: str) -> Program:
        """Return the model as its exporters take it; backends that take the same forms share the trace."""
        form = exported_form(self.model.cpu().eval(), backend)
        kinds = frozenset(map(type, form.modules()))
        if kinds not in self._programs:
            self._programs[kinds] = program_of(form)
        return self._programs[kinds]


class FittedReference(FittedModule):
    """A fitted model with reference windows, which knows what each of them scores without itself.

    ``kept`` are the indexes of the reference windows among the training windows, ``own_terms`` float32 [n, K] theirs.
    """

    def __init__(
        self,
        model: Any,
        summary: TrainingSummary,
        training: WindowSet,
        kept: npt.NDArray[np.int64],
        own_terms: FloatArray,
    ) -> None:
        super().__init__(model, summary, training)
        self._kept, self._own_terms = kept, own_terms

    def training_scores(self) -> FloatArray:
        """Return the terms float32 [N, K] of the training windows, each as if it were not in the reference."""
        terms = super().training_scores()
        terms[self._kept] = self._own_terms
        return terms


MAX_REFERENCES = 2000


def reference_indexes(n: int, seed: int) -> npt.NDArray[np.int64]:
    """Return the indexes of the reference windows, ascending: all, or 2,000 of ``n`` drawn by ``seed``."""
    if n <= MAX_REFERENCES:
        return np.arange(n)
    return np.sort(np.random.default_rng(seed).choice(n, MAX_REFERENCES, replace=False))
