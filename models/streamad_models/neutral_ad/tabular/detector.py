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
from streamad_models.neutral_ad.training import fit_model
from streamad_models.torchscript import TorchScriptDetector, resolve_device


class NeutralADTabular(TorchScriptDetector):
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
        """Train on rows [N, D, 1] as ``NeutralAD.fit`` does; unlike a channel there, an attribute may be constant."""
        check_training_rows(data)
        target = resolve_device(device)
        model = TabularModel(data.values.shape[1], self.options, seed)
        return fit_model(model, data, self.options, seed=seed, device=target, progress=progress, resume=resume)
