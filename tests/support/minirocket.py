"""MiniRocket with the draws of aeon's, so that both can be compared: its steps are ramps of next to no width."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import torch
from aeon.transformations.collection.convolution_based import MiniRocket as Published

from streamad_models.ensemble.minirocket import Dilation, MiniRocket

_WIDTH = 1e-4


def of_published(published: Published, n_channels: int, length: int) -> tuple[MiniRocket, np.ndarray]:
    """Return our module with the drawn channels, dilations and biases of aeon's, and the order of its features."""
    n_used, used, dilations, counts, biases = published.parameters
    order, modules, at, first = [], [], 0, 0
    for index, (dilation, count) in enumerate(zip(dilations.tolist(), counts.tolist(), strict=True)):
        weight, bias, place = np.zeros((84, n_channels, 9), np.float32), np.zeros((84, count), np.float32), []
        for kernel, taps in enumerate(combinations(range(9), 3)):
            n = n_used[index * 84 + kernel]
            channels = used[at : at + n]
            weight[kernel, channels] = -1.0
            weight[np.ix_([kernel], channels, taps)] = 2.0
            bias[kernel] = biases[first : first + count]
            place.append(np.arange(first, first + count))
            at, first = at + n, first + count
        padded = (index + np.arange(84)) % 2 == 0
        order += [np.array(place)[padded].ravel(), np.array(place)[~padded].ravel()]
        parts = (torch.from_numpy(part / _WIDTH) for part in (weight, bias))
        modules.append(Dilation(index, dilation, *parts, length))
    return MiniRocket(modules), np.concatenate(order)
