"""NeuTraL AD: learnable transformations and a deterministic contrastive loss (ICML 2021); sequences, and tables."""

from __future__ import annotations

__all__ = ["NeutralAD", "NeutralADOptions", "NeutralADTabular", "NeutralADTabularOptions"]

from streamad_models.neutral_ad.detector import NeutralAD
from streamad_models.neutral_ad.options import NeutralADOptions, NeutralADTabularOptions
from streamad_models.neutral_ad.tabular.detector import NeutralADTabular
