"""NeuTraL AD as a detector: the application's kind ``neutral_ad``. A fit imports torch, settings do not."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import BaseModel

from streamad.ports import TrainingProgress
from streamad.types import WindowSet
from streamad_models.detector import TorchScriptDetector
from streamad_models.neutral_ad.data import check_training_data
from streamad_models.neutral_ad.options import NeutralADOptions

if TYPE_CHECKING:
    from streamad_models.fitted import FittedModule
    from streamad_models.neutral_ad.model import NeutralADModel


class NeutralAD(TorchScriptDetector[NeutralADOptions]):
    """Neural Transformation Learning for Anomaly Detection (Qiu et al., ICML 2021, arXiv:2103.16440).

    Higher scores are more anomalous; an untrained model scores about 1.
    """

    options_model: type[BaseModel] = NeutralADOptions  # as the protocol has it: it is invariant
    backends = ("openvino", "torchscript", "onnxruntime")

    def fit(
        self,
        data: WindowSet,
        *,
        seed: int,
        device: str = "auto",
        progress: TrainingProgress | None = None,
        resume: Path | None = None,
    ) -> FittedModule:
        """Train on ``data``: the same data, settings, seed and threads give the same weights, bit by bit, on a CPU.

        The caller's random state does not change. ``resume`` names a file for the run's state, written every few
        seconds and at any interruption: called again with the same arguments, the run continues and ends exactly as
        if it had never stopped. The state of another run (other data, settings, seed or kind of device) is replaced; a
        file that is no such state is refused. The file stays after the end, so that a repeated call returns at once;
        the caller deletes it.

        Raises TrainingDataError if the data cannot give a model, DetectorError for an unknown device, a foreign resume
        file or a loss that diverges, OutputError if the resume file cannot be written.
        """
        from streamad_models.neutral_ad.training import fit_model  # noqa: PLC0415

        model = self.untrained(data, seed)
        return fit_model(model, data, self.options, seed=seed, device=device, progress=progress, resume=resume)

    def untrained(self, data: WindowSet, seed: int) -> NeutralADModel:
        """Return the untrained model for windows [N, C, L]. Raises TrainingDataError."""
        from streamad_models.neutral_ad.model import NeutralADModel  # noqa: PLC0415

        check_training_data(data)
        return NeutralADModel(data.values.shape[1], data.values.shape[2], self.options, seed)
