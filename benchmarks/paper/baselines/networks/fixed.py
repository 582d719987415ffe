"""Fixed transformations: a classifier of twelve hand-made views; its errors make a window's score.

Legend: B windows, K = 12 transformations, C channels, L window length.
"""

from __future__ import annotations

import torch
from torch import Tensor

from benchmarks.paper.baselines.networks.network import NetworkDetector, NetworkOptions, make_encoder
from benchmarks.paper.baselines.networks.other_losses import PredictionNetwork
from streamad_models.neutral_ad.data import check_length

N_VIEWS = 12
_MIN_LENGTH = 4  # a quarter of it is a step


class FixedTransformationsOptions(NetworkOptions):
    """Encoder and training as for NeuTraL AD; ``embedding_dim`` is not used: the encoder gives 12 logits."""


class FixedTransformationsNetwork(PredictionNetwork):
    """The twelve views and a classifier of them; terms [B, 12]."""

    def __init__(
        self, n_channels: int, length: int, options: FixedTransformationsOptions, generator: torch.Generator
    ) -> None:
        check_length(length, _MIN_LENGTH, "a shift by a quarter")
        encoder = make_encoder(options, n_channels, length, generator, n_outputs=N_VIEWS)
        super().__init__(n_channels, length, N_VIEWS, encoder)

    def views(self, x_LBC: Tensor, lengths_B: Tensor) -> Tensor:
        """Return the twelve views [12, L, B, C]."""
        return fixed_views(x_LBC, lengths_B)


class FixedTransformations(NetworkDetector[FixedTransformationsOptions]):
    """Transformation prediction (Wang et al., NeurIPS 2019) with the paper's hand-made transformations of sequences.

    All compositions of flipping time or not, flipping the order of the channels or not, and shifting along time by a
    quarter of the sequence's length forward, backward or not at all; the shift is circular, so that no sample is lost.
    The padding of a window does not move: moved with the sequence, it would give the view away without the sequence. A
    sequence of fewer than four steps has no quarter, so that its views coincide and it scores high. Sequences only.
    Higher is more anomalous.
    """

    options_model = FixedTransformationsOptions
    network = FixedTransformationsNetwork


def fixed_views(x_LBC: Tensor, lengths_B: Tensor) -> Tensor:
    """Return the twelve views [12, L, B, C] of windows [L, B, C] of lengths [B]; the first is the window itself."""
    step_L1 = torch.arange(x_LBC.shape[0], device=x_LBC.device).unsqueeze(1)
    length_1B = lengths_B.unsqueeze(0)
    quarter_1B = length_1B // 4
    views = []
    for flips_time in (False, True):
        for flips_channels in (False, True):
            for shift_1B in (torch.zeros_like(quarter_1B), quarter_1B, -quarter_1B):
                from_LB = torch.remainder(step_L1 - shift_1B, length_1B)
                if flips_time:
                    from_LB = length_1B - 1 - from_LB
                from_LB = torch.where(step_L1 < length_1B, from_LB, step_L1)  # the padding stays
                view_LBC = x_LBC.gather(0, from_LB.unsqueeze(2).expand_as(x_LBC))
                views.append(view_LBC.flip(2) if flips_channels else view_LBC)
    return torch.stack(views)
