"""The two losses that the paper argues against, L_P and L_C, with NeuTraL AD's learnable transformations.

Legend: B windows, K transformations, C channels, L window length, Z embedding dimension, R reference windows.
"""  # no postponed annotations: TorchScript reads the types of the buffers

from abc import abstractmethod

import torch
import torch.nn.functional as F
from pydantic import Field, PositiveFloat, PositiveInt
from torch import Tensor, nn

from benchmarks.paper.baselines.networks.network import Network, NetworkDetector, NetworkOptions, make_encoder
from streamad_models.neutral_ad.data import MIN_LENGTH, check_length
from streamad_models.neutral_ad.networks import Transformations
from streamad_models.neutral_ad.options import Parametrisation


def prediction_terms(logits_BKK: Tensor) -> Tensor:
    """Return the terms [B, K] of L_P (paper, equation 5) whose sum over K is a window's loss.

    Row k of ``logits_BKK`` holds the classifier's logits of the view ``T_k(x)``; term k is ``-log softmax_k`` of it,
    computed as ``softplus(logsumexp_{l != k} logit_l - logit_k)``. So a sure classifier gives 1e-20 and not 0: the
    logarithm of a float32 softmax has no value between 0 and 6e-8, and all such windows would have the same score.
    """
    same_KK = torch.eye(logits_BKK.shape[2], dtype=torch.bool, device=logits_BKK.device)
    others_BK = logits_BKK.masked_fill(same_KK, -torch.inf).logsumexp(2)
    return F.softplus(others_BK - logits_BKK.diagonal(dim1=1, dim2=2))


def simclr_terms(first_BZ: Tensor, second_BZ: Tensor, temperature: float) -> Tensor:
    """Return ``L_C(x_1, x_2) + L_C(x_2, x_1)`` [B] of each window of a minibatch (paper, equation 6; Chen et al. 2020).

    The rows are the embeddings of the same windows under two transformations; the other windows are the negatives.
    """
    return _one_way(first_BZ, second_BZ, temperature) + _one_way(second_BZ, first_BZ, temperature)


def _one_way(first_BZ: Tensor, second_BZ: Tensor, temperature: float) -> Tensor:
    first, second = F.normalize(first_BZ, dim=1), F.normalize(second_BZ, dim=1)
    across_BB = first @ second.t() / temperature
    within_BB = first @ first.t() / temperature
    itself_BB = torch.eye(len(first), device=first.device, dtype=torch.bool)
    rivals = torch.cat([across_BB, within_BB.masked_fill(itself_BB, -float("inf"))], dim=1)
    return torch.logsumexp(rivals, dim=1) - across_BB.diagonal()


def simclr_reference_terms(z_BKZ: Tensor, reference_RKZ: Tensor, temperature: float) -> Tensor:
    """Return terms [B, K] of L_C of each window in a minibatch of it and the reference batch (R windows' K views).

    Their sum is ``simclr_terms`` of the window in that minibatch, ``L_C(x_k, x_l) + L_C(x_l, x_k)``, averaged over all
    pairs k != l. Term k is the part of the pairs with ``x_k`` as the first view.
    """
    n_views = z_BKZ.shape[1]
    unit_BKZ, unit_RKZ = F.normalize(z_BKZ, dim=2), F.normalize(reference_RKZ, dim=2)
    pairs_BKK = torch.matmul(unit_BKZ, unit_BKZ.transpose(1, 2)) / temperature
    # Negatives of x_k that come from view l of the reference, summed over the reference: [B, K, L].
    rivals_BKKR = torch.einsum("bkz,rlz->bklr", unit_BKZ, unit_RKZ) / temperature
    rivals_BKK = torch.logsumexp(rivals_BKKR, dim=3)
    own_BKK = rivals_BKK.diagonal(dim1=1, dim2=2).unsqueeze(2)
    losses_BKK = torch.logaddexp(torch.logaddexp(pairs_BKK, rivals_BKK), own_BKK) - pairs_BKK
    itself_KK = torch.eye(n_views, device=z_BKZ.device, dtype=torch.bool)
    return losses_BKK.masked_fill(itself_KK, 0.0).sum(dim=2) * (2.0 / (n_views * (n_views - 1)))


class LearnableViewsOptions(NetworkOptions):
    """The form of a window's views. In transformation prediction the encoder gives K logits, not embeddings."""

    transformation: Parametrisation = Field(default="multiplicative", description="form of T_k")
    n_transformations: int = Field(default=11, ge=2, le=64, description="K")


class ViewsNetwork(Network):
    """K views of a window, and an encoder of each; terms [B, K]."""

    def __init__(self, n_channels: int, length: int, n_views: int, encoder: nn.Module) -> None:
        super().__init__(n_channels, length, n_terms=n_views)
        self.encoder = encoder

    @abstractmethod
    def views(self, x_LBC: Tensor, lengths_B: Tensor) -> Tensor:
        """Return the views [K, L, B, C] of scaled windows [L, B, C]."""

    def embed(self, windows_BCL: Tensor, lengths_B: Tensor) -> Tensor:
        """Return the encoder's outputs of all views [B, K, Z]."""
        x_LBC = self.prepare(windows_BCL, lengths_B).permute(2, 0, 1)
        views_KLBC = self.views(x_LBC, lengths_B)
        n_views, length, n, channels = views_KLBC.shape
        z_NZ: Tensor = self.encoder(views_KLBC.transpose(0, 1).reshape(length, n_views * n, channels))
        return z_NZ.view(n_views, n, z_NZ.shape[1]).transpose(0, 1)


class PredictionNetwork(ViewsNetwork):
    """An encoder whose K outputs of a view are a classifier's logits; the loss L_P (equation 5) is the score."""

    def forward(self, windows_BCL: Tensor, lengths_B: Tensor) -> Tensor:
        """Return ``-log softmax_k`` of the logits of view k, [B, K]."""
        return prediction_terms(self.embed(windows_BCL, lengths_B))


class TransformationPredictionNetwork(PredictionNetwork):
    """Learnable transformations and a classifier of their views."""

    def __init__(
        self, n_channels: int, length: int, options: LearnableViewsOptions, generator: torch.Generator
    ) -> None:
        transformations = learnable_views(n_channels, length, options, generator)
        n_views = options.n_transformations
        encoder = make_encoder(options, n_channels, length, generator, n_outputs=n_views)
        super().__init__(n_channels, length, n_views, encoder)
        self.transformations = transformations

    def views(self, x_LBC: Tensor, lengths_B: Tensor) -> Tensor:
        """Return the transformed windows [K, L, B, C]."""
        views_KLBC: Tensor = self.transformations(x_LBC)
        return views_KLBC


class TransformationPrediction(NetworkDetector[LearnableViewsOptions]):
    """L_P (paper, equation 5; Wang et al., NeurIPS 2019) with transformations that are learned with the classifier.

    The loss does not keep a view like its window: it falls as well if views depend on k alone (proposition 1).
    Sequences only. Higher is more anomalous.
    """

    options_model = LearnableViewsOptions
    network = TransformationPredictionNetwork


class SimClrOptions(LearnableViewsOptions):
    """The loss's temperature (NeuTraL AD's), and the number of training windows in the score's reference batch."""

    temperature: PositiveFloat = 0.1
    reference_size: PositiveInt = Field(default=64, description="training windows in the score's reference batch")


class SimClrNetwork(ViewsNetwork):
    """Learnable transformations, the encoder, and the embedded views of the reference batch."""

    reference_RKZ: Tensor  # noqa: N815

    def __init__(self, n_channels: int, length: int, options: SimClrOptions, generator: torch.Generator) -> None:
        transformations = learnable_views(n_channels, length, options, generator)
        n_views = options.n_transformations
        super().__init__(n_channels, length, n_views, make_encoder(options, n_channels, length, generator))
        self.transformations = transformations
        self.temperature = options.temperature
        self.register_buffer("reference_RKZ", torch.zeros(options.reference_size, n_views, options.embedding_dim))
        self.reference_key = int(torch.randint(2**31, (1,), generator=generator))

    def forward(self, windows_BCL: Tensor, lengths_B: Tensor) -> Tensor:
        """Return each window's L_C against the reference batch, averaged over the pairs of views, [B, K]."""
        return simclr_reference_terms(self.embed(windows_BCL, lengths_B), self.reference_RKZ, self.temperature)

    def views(self, x_LBC: Tensor, lengths_B: Tensor) -> Tensor:
        """Return the transformed windows [K, L, B, C]."""
        views_KLBC: Tensor = self.transformations(x_LBC)
        return views_KLBC

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

    Each step draws two transformations. A window's score is its loss in a minibatch of itself and a stored reference
    batch of training windows, averaged over all pairs of transformations: no other scored window counts. A training
    window in the reference is among its own negatives, and scores higher for it.
    The loss does not keep the transformations diverse (proposition 2), and a window unlike all of the reference pays
    less for its negatives: higher means a higher loss, and anomalies need not have one. Sequences only.
    """

    options_model = SimClrOptions
    network = SimClrNetwork


def learnable_views(
    n_channels: int, length: int, options: LearnableViewsOptions, generator: torch.Generator
) -> Transformations:
    """Return untrained transformations. Raises TrainingDataError for windows of one sample."""
    check_length(length, MIN_LENGTH, "the set of transformations")
    return Transformations(options.n_transformations, n_channels, options.transformation, generator)
