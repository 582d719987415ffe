"""NeuTraL AD for tables as a detector; its rows are windows of one sample."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import BaseModel

from streamad.types import WindowSet
from streamad_models.neutral_ad.data import check_training_rows
from streamad_models.neutral_ad.detector import ContrastiveDetector
from streamad_models.neutral_ad.options import NeutralADTabularOptions

if TYPE_CHECKING:
    from streamad_models.neutral_ad.tabular.model import TabularModel


class NeutralADTabular(ContrastiveDetector[NeutralADTabularOptions]):
    """NeuTraL AD with linear mask networks and encoder (Qiu et al., ICML 2021, arXiv:2103.16440, section 4.4).

    Higher scores are more anomalous; an untrained model scores about 1.
    """

    options_model: type[BaseModel] = NeutralADTabularOptions  # as the protocol has it: it is invariant

    def untrained(self, data: WindowSet, seed: int) -> TabularModel:
        """Return the untrained model for rows [N, D, 1]; unlike a channel, an attribute may be constant."""
        from streamad_models.neutral_ad.tabular.model import TabularModel  # noqa: PLC0415

        check_training_rows(data)
        return TabularModel(data.values.shape[1], self.options, seed)
