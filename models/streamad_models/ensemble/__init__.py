"""The ensemble: distances from the training windows in several feature spaces, joined into one score."""

from streamad_models.ensemble.detector import Ensemble
from streamad_models.ensemble.options import EnsembleOptions

__all__ = ["Ensemble", "EnsembleOptions"]
