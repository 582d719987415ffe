"""Transformation prediction with NeuTraL AD's learnable transformations: the first loss that the paper argues against.

Legend: B windows, K transformations, C channels, L window length.
"""

from __future__ import annotations

__all__ = ["LearnableViewsOptions", "TransformationPrediction"]

import torch
from pydantic import BaseModel, Field
from torch import Tensor

from streamad.errors import TrainingDataError
from streamad_models.baselines._network import Network, NetworkDetector, NetworkOptions, make_encoder
from streamad_models.baselines.losses import prediction_terms
from streamad_models.neutral_ad.transformations import MIN_LENGTH, Parametrisation, Transformations


class LearnableViewsOptions(NetworkOptions):
    """How the views of a window are made. In transformation prediction the encoder gives K logits, not embeddings."""

    transformation: Parametrisation = Field(default="multiplicative", description="form of T_k")
    n_transformations: int = Field(default=11, ge=2, le=64, description="K")


class TransformationPredictionNetwork(Network):
    """Learnable transformations and an encoder whose K outputs are the logits; terms [B, K]."""

    def __init__(
        self, n_channels: int, length: int, options: LearnableViewsOptions, generator: torch.Generator
    ) -> None:
        n_views = options.n_transformations
        super().__init__(n_channels, length, n_terms=n_views)
        if length < MIN_LENGTH:
            raise TrainingDataError(f"windows of length {length}: the transformations need at least {MIN_LENGTH} steps")
        self.transformations = Transformations(n_views, n_channels, options.transformation, generator)
        self.encoder = make_encoder(options, n_channels, length, generator, n_outputs=n_views)

    def forward(self, windows_BCL: Tensor, lengths_B: Tensor) -> Tensor:
        """Return ``-log softmax_k`` of what the classifier says of view k, [B, K]."""
        x_LBC = self.prepare(windows_BCL, lengths_B).permute(2, 0, 1)
        views_KLBC = self.transformations(x_LBC)
        n_views, length, n, channels = views_KLBC.shape
        logits = self.encoder(views_KLBC.transpose(0, 1).reshape(length, n_views * n, channels))
        return prediction_terms(logits.view(n_views, n, n_views).transpose(0, 1))

    def loss(self, windows_BCL: Tensor, lengths_B: Tensor, generator: torch.Generator) -> Tensor:
        """Return the mean over the windows of L_P (paper, equation 5)."""
        terms_BK: Tensor = self(windows_BCL, lengths_B)
        return terms_BK.sum(dim=1).mean()


class TransformationPrediction(NetworkDetector[LearnableViewsOptions]):
    """L_P (paper, equation 5; Wang et al., NeurIPS 2019) with transformations that are learned with the classifier.

    Nothing keeps a view like its window: the loss falls as well where views depend on k alone (proposition 1).
    Sequences only. Higher is more anomalous.
    """

    options_model: type[BaseModel] = LearnableViewsOptions

    def __init__(self, options: LearnableViewsOptions | None = None) -> None:
        super().__init__(options or LearnableViewsOptions())

    def build(self, n_channels: int, length: int, generator: torch.Generator) -> TransformationPredictionNetwork:
        """Return the untrained network. Raises TrainingDataError for windows of one sample."""
        return TransformationPredictionNetwork(n_channels, length, self.options, generator)
