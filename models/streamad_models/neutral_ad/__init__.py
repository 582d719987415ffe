"""NeuTraL AD: learnable transformations and a deterministic contrastive loss (ICML 2021)."""

from __future__ import annotations

__all__ = ["NeutralAD", "NeutralADOptions"]

from streamad_models.neutral_ad.detector import NeutralAD
from streamad_models.neutral_ad.options import NeutralADOptions
