"""Simple kinds of detectors: the least that another kind must beat, and good enough for many plants."""

from streamad_models.simple.detector import (
    MPCA,
    PCA,
    MiniRocketNearest,
    MiniRocketOptions,
    MPCAOptions,
    Nearest,
    NearestOptions,
    PCAOptions,
    Pointwise,
    PointwiseOptions,
    Unfolded,
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
