"""Which member counts how much on a plant: a rule on measured facts of its training windows, no choice by scores.

The rule was read off recordings of three families (docs/model/detector.md): batches that follow one course are judged
by levels and by the course itself, movements by their shapes. Legend: C channels.
"""

from __future__ import annotations

from typing import TypeAlias

Weights: TypeAlias = dict[str, tuple[float, float, float]]

_LEARNED = (0.25, 0.75)
_FEW_WINDOWS, _MANY_WINDOWS = 40, 120
_LEAST_ALIGNED = 0.01  # so that the number of channels alone decides which members there are
_FEW_CHANNELS, _MANY_CHANNELS = 10, 50


def weights_of(n_channels: int, aligned: float) -> Weights:
    """Return the weights of a space's local distance, leverage and largest z; a member of weight 0 is left out.

    ``aligned`` is the share of the variance that the mean course explains, 0 to 1. If it is large and there are several
    channels, windows are runs of one process: a fault is a level or a course that a channel never has. The more
    channels there are, the more a single one that is far off counts, because distances over all channels hide it.
    """
    course = max(aligned, _LEAST_ALIGNED) * (1.0 - 1.0 / n_channels)
    many = min(max((n_channels - _FEW_CHANNELS) / (_MANY_CHANNELS - _FEW_CHANNELS), 0.0), 1.0)
    return {
        "minirocket": (1.0, 1.0, 0.0),
        "hydra": (1.0, 1.0, 0.0),
        "intervals": (0.25 + 0.5 * course, 0.25 + 0.5 * course, 0.0),
        "readings": (0.25 + 0.5 * course, 0.5 * course, 0.0),
        "moments": (0.25 + course, 0.25 + course, 0.25 + course + 0.75 * many),
    }


def learned_weight(n: int) -> float:
    """Return the weight of all networks' contrasts together, and that of their view distances, for ``n`` windows.

    On few windows a network sees what distances do not; on many it says little new (docs/model/detector.md).
    """
    few = min(max((_MANY_WINDOWS - n) / (_MANY_WINDOWS - _FEW_WINDOWS), 0.0), 1.0)
    return _LEARNED[0] + (_LEARNED[1] - _LEARNED[0]) * few
