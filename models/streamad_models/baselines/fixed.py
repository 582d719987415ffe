"""Fixed transformations: a classifier tells twelve hand-made views apart; where it fails, the window is odd.

Legend: B windows, K = 12 transformations, C channels, L window length.
"""

from __future__ import annotations

__all__ = ["N_VIEWS", "FixedTransformations", "FixedTransformationsOptions", "fixed_views"]

import torch
from pydantic import BaseModel
from torch import Tensor

from streamad.errors import TrainingDataError
from streamad_models.baselines._network import Network, NetworkDetector, NetworkOptions, make_encoder
from streamad_models.baselines.losses import prediction_terms

N_VIEWS = 12
_MIN_LENGTH = 4  # a quarter of it is a step


class FixedTransformationsOptions(NetworkOptions):
    """Encoder and training as for NeuTraL AD; ``embedding_dim`` is not used: the encoder gives 12 logits."""


class FixedTransformationsNetwork(Network):
    """The twelve views and a classifier of them; terms [B, 12]."""

    def __init__(
        self, n_channels: int, length: int, options: FixedTransformationsOptions, generator: torch.Generator
    ) -> None:
        super().__init__(n_channels, length, n_terms=N_VIEWS)
        if length < _MIN_LENGTH:
            raise TrainingDataError(
                f"windows of length {length}: shifts by a quarter need at least {_MIN_LENGTH} steps"
            )
        self.encoder = make_encoder(options, n_channels, length, generator, n_outputs=N_VIEWS)

    def forward(self, windows_BCL: Tensor, lengths_B: Tensor) -> Tensor:
        """Return ``-log softmax_k`` of what the classifier says of view k, [B, 12]."""
        x_LBC = self.prepare(windows_BCL, lengths_B).permute(2, 0, 1)
        views_KLBC = fixed_views(x_LBC)
        n_views, length, n, channels = views_KLBC.shape
        logits = self.encoder(views_KLBC.transpose(0, 1).reshape(length, n_views * n, channels))
        return prediction_terms(logits.view(n_views, n, n_views).transpose(0, 1))

    def loss(self, windows_BCL: Tensor, lengths_B: Tensor, generator: torch.Generator) -> Tensor:
        """Return the mean over the windows of L_P (paper, equation 5)."""
        terms_BK: Tensor = self(windows_BCL, lengths_B)
        return terms_BK.sum(dim=1).mean()


class FixedTransformations(NetworkDetector[FixedTransformationsOptions]):
    """Transformation prediction (Wang et al., NeurIPS 2019) with the paper's hand-made transformations of sequences.

    All compositions of flipping time or not, flipping the order of the channels or not, and shifting along time by a
    quarter of the window's length forward, backward or not at all; the shift is circular, so that no sample is lost.
    A padded window is flipped and shifted whole, its padding with it. Sequences only. Higher is more anomalous.
    """

    options_model: type[BaseModel] = FixedTransformationsOptions

    def __init__(self, options: FixedTransformationsOptions | None = None) -> None:
        super().__init__(options or FixedTransformationsOptions())

    def build(self, n_channels: int, length: int, generator: torch.Generator) -> FixedTransformationsNetwork:
        """Return the untrained network. Raises TrainingDataError for windows too short to shift."""
        return FixedTransformationsNetwork(n_channels, length, self.options, generator)


def fixed_views(x_LBC: Tensor) -> Tensor:
    """Return the twelve views [12, L, B, C] of windows [L, B, C]; the first is the window itself. Scriptable."""
    quarter = x_LBC.shape[0] // 4
    views = []
    for in_time in (x_LBC, x_LBC.flip(0)):
        for in_both in (in_time, in_time.flip(2)):
            for shift in (0, quarter, -quarter):
                views.append(in_both.roll(shift, 0))
    return torch.stack(views)
