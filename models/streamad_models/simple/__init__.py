"""Simple kinds of detectors: the least that another kind must beat, and good enough for many plants."""

from streamad_models.simple.detector import PCA, MiniRocketNearest, Nearest, Pointwise
from streamad_models.simple.options import MiniRocketOptions, NearestOptions, PCAOptions, PointwiseOptions

__all__ = [
    "PCA",
    "MiniRocketNearest",
    "MiniRocketOptions",
    "Nearest",
    "NearestOptions",
    "PCAOptions",
    "Pointwise",
    "PointwiseOptions",
]
