"""NeuTraL AD for tables as a detector; its rows are windows of one sample."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import BaseModel

from benchmarks.paper.neutral_ad_tabular.options import NeutralADTabularOptions
from streamad.errors import TrainingDataError
from streamad.ports import TrainingProgress
from streamad.types import WindowSet
from streamad_models.detector import TorchScriptDetector
from streamad_models.neutral_ad.data import MIN_SEQUENCES, check_windows

if TYPE_CHECKING:
    from benchmarks.paper.neutral_ad_tabular.model import TabularModel
    from streamad_models.fitted import FittedModule

MIN_ATTRIBUTES = 2


class NeutralADTabular(TorchScriptDetector[NeutralADTabularOptions]):
    """NeuTraL AD with linear mask networks and encoder (Qiu et al., ICML 2021, arXiv:2103.16440, section 4.4).

    Higher scores are more anomalous; an untrained model scores about 1.
    """

    options_model: type[BaseModel] = NeutralADTabularOptions  # as the protocol has it: it is invariant

    def fit(
        self,
        data: WindowSet,
        *,
        seed: int,
        device: str = "auto",
        progress: TrainingProgress | None = None,
        resume: Path | None = None,
    ) -> FittedModule:
        """Train on ``data`` as ``NeutralAD.fit`` does."""
        from streamad_models.neutral_ad.training import fit_model  # noqa: PLC0415

        model = self.untrained(data, seed)
        return fit_model(model, data, self.options, seed=seed, device=device, progress=progress, resume=resume)

    def untrained(self, data: WindowSet, seed: int) -> TabularModel:
        """Return the untrained model for rows [N, D, 1]; unlike a channel, an attribute may be constant."""
        from benchmarks.paper.neutral_ad_tabular.model import TabularModel  # noqa: PLC0415

        check_training_rows(data)
        return TabularModel(data.values.shape[1], self.options, seed)


def check_training_rows(data: WindowSet) -> None:
    """Raise TrainingDataError unless the rows [N, D, 1] can give a model; an attribute may be constant."""
    check_windows(data, MIN_SEQUENCES)
    if data.values.shape[2] != 1:
        raise TrainingDataError(f"windows of length {data.values.shape[2]}: a table's rows are windows of one sample")
    if data.values.shape[1] < MIN_ATTRIBUTES:
        raise TrainingDataError("rows of one attribute: networks without bias see its sign alone, give at least 2")
