"""Simple kinds of detectors: the least that another kind must beat, and good enough for many plants."""

from streamad_models.simple.nearest import MiniRocketNearest, Nearest
from streamad_models.simple.options import MiniRocketOptions, NearestOptions, PCAOptions, PointwiseOptions
from streamad_models.simple.pca import PCA
from streamad_models.simple.pointwise import Pointwise

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
