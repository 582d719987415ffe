"""NeuTraL AD for tables as a detector; its rows are windows of one sample."""

from __future__ import annotations

from pathlib import Path

from pydantic import BaseModel

from streamad.ports import TrainingProgress
from streamad.types import WindowSet
from streamad_models.fitted import FittedModule
from streamad_models.neutral_ad.data import check_training_rows
from streamad_models.neutral_ad.options import NeutralADTabularOptions
from streamad_models.neutral_ad.tabular.model import TabularModel
from streamad_models.neutral_ad.training import fit_model, resolve_device
from streamad_models.torchscript import FILE_NAME, TorchScriptScorer


class NeutralADTabular:
    """NeuTraL AD with linear mask networks and encoder (Qiu et al., ICML 2021, arXiv:2103.16440, section 4.4).

    Higher scores are more anomalous; an untrained model scores about 1.
    """

    options_model: type[BaseModel] = NeutralADTabularOptions

    def __init__(self, options: NeutralADTabularOptions | None = None) -> None:
        self.options = options or NeutralADTabularOptions()

    def fit(
        self,
        data: WindowSet,
        *,
        seed: int,
        device: str = "auto",
        progress: TrainingProgress | None = None,
        resume: Path | None = None,
    ) -> FittedModule:
        """Train on rows [N, D, 1]; all else is as ``NeutralAD.fit`` says, but that an attribute may be constant."""
        check_training_rows(data)
        target = resolve_device(device)
        model = TabularModel(data.values.shape[1], self.options, seed)
        return fit_model(model, data, self.options, seed=seed, device=target, progress=progress, resume=resume)

    def load(self, folder: Path, *, device: str = "auto") -> TorchScriptScorer:
        """Load the exported model in ``folder``; its sha256 must have been verified. Raises ArtifactError."""
        return TorchScriptScorer(folder / FILE_NAME, device=resolve_device(device))
