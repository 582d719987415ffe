"""The default detector: distances from the training windows in five feature spaces, joined into one score.

A fit imports torch, settings do not.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import BaseModel

from streamad.ports import TrainingProgress
from streamad.types import WindowSet
from streamad_models.detector import TorchScriptDetector
from streamad_models.ensemble.options import EnsembleOptions

if TYPE_CHECKING:
    from streamad_models.fitted import FittedReference


class Ensemble(TorchScriptDetector[EnsembleOptions]):
    """Distances in the spaces of ``features``, and a network where it is cheap (docs/model/detector.md).

    Higher scores are more anomalous; a usual window's score is about the sum of the weights times log 2.
    """

    options_model: type[BaseModel] = EnsembleOptions  # as the protocol has it: it is invariant

    def fit(
        self,
        data: WindowSet,
        *,
        seed: int,
        device: str = "auto",
        progress: TrainingProgress | None = None,
        resume: Path | None = None,
    ) -> FittedReference:
        """Fit on ``data``: the same data, settings and seed give the same model.

        Neighbours are fitted on the CPU in seconds, the networks of ``effort`` in epochs, on ``device``; their states
        are files named ``resume`` plus a number. Of more than 2,000 windows, 2,000 drawn by ``seed`` are the reference.
        Raises TrainingDataError, and for networks as ``NeutralAD.fit``.
        """
        from streamad_models.ensemble.fitting import fit_ensemble  # noqa: PLC0415

        return fit_ensemble(self.options, data, seed=seed, device=device, progress=progress, resume=resume)
