"""SimCLR with NeuTraL AD's learnable transformations: the second loss that the paper argues against.

Legend: B windows, K transformations, C channels, L window length, Z embedding dimension, R reference windows.
"""

__all__ = ["SimClr", "SimClrOptions"]

import torch
from pydantic import BaseModel, Field, PositiveFloat, PositiveInt
from torch import Tensor

from streamad.errors import TrainingDataError
from streamad_models.baselines._network import Network, NetworkDetector, make_encoder
from streamad_models.baselines.losses import simclr_reference_terms, simclr_terms
from streamad_models.baselines.prediction import LearnableViewsOptions
from streamad_models.neutral_ad.transformations import MIN_LENGTH, Transformations


class SimClrOptions(LearnableViewsOptions):
    """The loss's temperature (NeuTraL AD's), and how many training windows the score compares with."""

    temperature: PositiveFloat = 0.1
    reference_size: PositiveInt = Field(default=64, description="training windows that scores are taken against")


class SimClrNetwork(Network):
    """Learnable transformations, the encoder, and the embedded views of the reference batch; terms [B, K]."""

    reference_RKZ: Tensor  # noqa: N815

    def __init__(self, n_channels: int, length: int, options: SimClrOptions, generator: torch.Generator) -> None:
        n_views = options.n_transformations
        super().__init__(n_channels, length, n_terms=n_views)
        if length < MIN_LENGTH:
            raise TrainingDataError(f"windows of length {length}: the transformations need at least {MIN_LENGTH} steps")
        self.temperature = options.temperature
        self.transformations = Transformations(n_views, n_channels, options.transformation, generator)
        self.encoder = make_encoder(options, n_channels, length, generator)
        self.register_buffer("reference_RKZ", torch.zeros(options.reference_size, n_views, options.embedding_dim))
        self.reference_key = int(torch.randint(2**31, (1,), generator=generator))

    def forward(self, windows_BCL: Tensor, lengths_B: Tensor) -> Tensor:
        """Return each window's L_C against the reference batch, averaged over the pairs of views, [B, K]."""
        return simclr_reference_terms(self.embed(windows_BCL, lengths_B), self.reference_RKZ, self.temperature)

    def embed(self, windows_BCL: Tensor, lengths_B: Tensor) -> Tensor:
        """Return the embeddings of all views [B, K, Z]."""
        x_LBC = self.prepare(windows_BCL, lengths_B).permute(2, 0, 1)
        views_KLBC = self.transformations(x_LBC)
        n_views, length, n, channels = views_KLBC.shape
        z_NZ: Tensor = self.encoder(views_KLBC.transpose(0, 1).reshape(length, n_views * n, channels))
        return z_NZ.view(n_views, n, z_NZ.shape[1]).transpose(0, 1)

    def loss(self, windows_BCL: Tensor, lengths_B: Tensor, generator: torch.Generator) -> Tensor:
        """Return the mean over the minibatch of L_C (paper, equation 6) under two transformations drawn for it."""
        first, second = torch.randperm(self.n_terms, generator=generator)[:2].tolist()
        x_LBC = self.prepare(windows_BCL, lengths_B).permute(2, 0, 1)
        views_LPBC = self.transformations(x_LBC)[[first, second]].transpose(0, 1)
        z_NZ = self.encoder(views_LPBC.flatten(1, 2))
        return simclr_terms(z_NZ[: len(windows_BCL)], z_NZ[len(windows_BCL) :], self.temperature).mean()

    def after_training(self, windows_BCL: Tensor, lengths_B: Tensor) -> None:
        """Keep the embedded views of training windows drawn by the seed as the reference batch."""
        key = torch.Generator().manual_seed(self.reference_key)
        chosen = torch.randperm(len(windows_BCL), generator=key)[: len(self.reference_RKZ)].to(windows_BCL.device)
        self.reference_RKZ = self.embed(windows_BCL[chosen], lengths_B[chosen])


class SimClr(NetworkDetector[SimClrOptions]):
    """L_C (paper, equation 6; Chen et al., SimCLR, ICML 2020) with transformations that are learned with the encoder.

    At each step two transformations are drawn. A window's score is its loss in a minibatch of itself and a stored
    reference batch of training windows, averaged over all pairs of transformations: no other scored window counts.
    A training window that lies in the reference meets itself among its negatives, and scores higher for it.
    Nothing keeps the transformations diverse (proposition 2), and a window unlike all of the reference pays less for
    its negatives: higher means a higher loss, and anomalies need not have one. Sequences only.
    """

    options_model: type[BaseModel] = SimClrOptions

    def __init__(self, options: SimClrOptions | None = None) -> None:
        super().__init__(options or SimClrOptions())

    def build(self, n_channels: int, length: int, generator: torch.Generator) -> SimClrNetwork:
        """Return the untrained network. Raises TrainingDataError for windows of one sample."""
        return SimClrNetwork(n_channels, length, self.options, generator)
