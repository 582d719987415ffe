"""Simple kinds of detectors: the least that another kind must beat, and good enough for many plants."""

from streamad_models.simple.detector import MPCA, PCA, MiniRocketNearest, Nearest, Pointwise, Unfolded
from streamad_models.simple.options import (
    MiniRocketOptions,
    MPCAOptions,
    NearestOptions,
    PCAOptions,
    PointwiseOptions,
    UnfoldedOptions,
)

__all__ = [
    "MPCA",
    "PCA",
    "MPCAOptions",
    "MiniRocketNearest",
    "MiniRocketOptions",
    "Nearest",
    "NearestOptions",
    "PCAOptions",
    "Pointwise",
    "PointwiseOptions",
    "Unfolded",
    "UnfoldedOptions",
]
