"""DAGMM: an autoencoder and the density of its output, trained together (Zong et al., "Deep Autoencoding Gaussian
Mixture Model for Unsupervised Anomaly Detection", ICLR 2018).

Legend: B windows, C channels, L window length, E latent dimension, Z = E + 2 dimensions of the mixture, K components.
"""  # no postponed annotations: TorchScript reads the types of the buffers

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Literal

import torch
import torch.nn.functional as F
from pydantic import Field, NonNegativeFloat, PositiveInt
from torch import Tensor, nn

from benchmarks.paper.baselines.networks.network import Network, NetworkOptions, embed_shape, in_chunks, make_encoder
from benchmarks.paper.baselines.networks.selection import SelectingDetector
from streamad_models.neutral_ad.networks import block_widths, depth_for_length, lengths_after

_CHUNK = 1024  # windows at a time when the mixture is fitted
_RIDGE = 1e-6  # on the covariances' diagonals, besides this share of their mean


class DagmmOptions(NetworkOptions):
    """Settings besides the encoder's; the weights of energy and variance are the published ones (section 4.3)."""

    n_components: Literal["auto"] | PositiveInt = Field(
        default="auto", description="Gaussians in the mixture; auto: 4, 8 or 12, chosen on held-out windows"
    )
    latent_dim: PositiveInt = Field(default=2, description="outputs of the encoder; two errors join them")
    table: bool = Field(
        default=False, description="windows of one step: the published encoder of table_widths, not NeuTraL AD's"
    )
    table_widths: tuple[PositiveInt, ...] = Field(
        default=(12, 4), description="layers between the attributes of a table and the latent values"
    )
    estimation_dim: PositiveInt = Field(default=10, description="width of the network that assigns to components")
    energy_weight: NonNegativeFloat = Field(default=0.1, description="of the mean energy in the loss")
    variance_weight: NonNegativeFloat = Field(
        default=0.005, description="of the inverse variances in the loss, against collapsing components"
    )
    epochs: PositiveInt = 400
    batch_size: Literal["auto"] | PositiveInt = 1024
    scaling: Literal["standard", "none"] = "standard"


class DagmmNetwork(Network):
    """Autoencoder, mixture over its latent values and reconstruction errors, and the network that assigns to it."""

    weights_K: Tensor  # noqa: N815 - shape suffixes
    means_KZ: Tensor  # noqa: N815
    factors_KZZ: Tensor  # noqa: N815

    def __init__(self, n_channels: int, length: int, options: DagmmOptions, generator: torch.Generator) -> None:
        super().__init__(n_channels, length)
        n_components, n_dims = int(options.n_components), options.latent_dim + 2
        self.energy_weight, self.variance_weight = options.energy_weight, options.variance_weight
        self.table = options.table and length == 1
        if self.table:
            self.encoder: nn.Module = tanh_layers([n_channels, *options.table_widths, options.latent_dim])
        else:
            self.encoder = make_encoder(options, n_channels, length, generator, n_outputs=options.latent_dim)
        if length == 1:
            self.decoder: nn.Module = tanh_layers([options.latent_dim, *options.table_widths[::-1], n_channels])
        else:
            n_blocks = depth_for_length(length) if options.n_blocks == "auto" else options.n_blocks
            self.decoder = SequenceDecoder(
                n_channels, length, n_blocks=n_blocks, embedding_dim=options.latent_dim, base_width=options.base_width
            )
        self.hidden = nn.Sequential(nn.Linear(n_dims, options.estimation_dim), nn.Tanh())
        self.head = nn.Linear(options.estimation_dim, n_components)
        self.register_buffer("weights_K", torch.zeros(n_components, dtype=torch.float64))
        self.register_buffer("means_KZ", torch.zeros(n_components, n_dims, dtype=torch.float64))
        self.register_buffer("factors_KZZ", torch.zeros(n_components, n_dims, n_dims, dtype=torch.float64))

    def forward(self, windows_BCL: Tensor, lengths_B: Tensor) -> Tensor:
        """Return terms [B, 1]: the energy of windows [B, C, L]."""
        _, points_BZ = self.compress(self.prepare(windows_BCL, lengths_B), lengths_B)
        return energy(points_BZ, self.weights_K, self.means_KZ, self.factors_KZZ).to(points_BZ.dtype)[:, None]

    def compress(self, x_BCL: Tensor, lengths_B: Tensor) -> tuple[Tensor, Tensor]:
        """Return squared errors of reconstruction [B] of prepared windows [B, C, L], and the mixture's points [B, Z].

        A point is the latent values, the relative Euclidean distance and the cosine similarity (eq. 2), both of them
        without the padding.
        """
        latent_BE = self.encoder(embed_shape(x_BCL))
        back_BCL = self.decoder(latent_BE)
        if self.window_length == 1:
            back_BCL = back_BCL[:, :, None]
        steps_L = torch.arange(self.window_length, device=x_BCL.device)
        back_BCL = back_BCL.masked_fill(steps_L >= lengths_B[:, None, None], 0.0)
        x_BD, back_BD = x_BCL.flatten(1), back_BCL.flatten(1)
        size_B = torch.linalg.vector_norm(x_BD, dim=1).clamp(min=1e-6)
        distance_B = torch.linalg.vector_norm(x_BD - back_BD, dim=1) / size_B
        cosine_B = F.cosine_similarity(x_BD, back_BD, dim=1, eps=1e-6)
        error_B = (x_BD - back_BD).square().sum(1)
        return error_B, torch.cat([latent_BE, distance_B[:, None], cosine_B[:, None]], dim=1)

    def loss(self, windows_BCL: Tensor, lengths_B: Tensor, generator: torch.Generator) -> Tensor:
        """Return the scalar of eq. 7: error, energy under the batch's own mixture, inverse variances."""
        error_B, points_BZ = self.compress(self.prepare(windows_BCL, lengths_B), lengths_B)
        hidden_BH = self.hidden(points_BZ)
        kept_BH = torch.rand(hidden_BH.shape, generator=generator).to(hidden_BH.device) < 0.5
        shares_BK = self.head(2.0 * hidden_BH * kept_BH).softmax(1)
        weights_K, means_KZ, factors_KZZ = fit_mixture(points_BZ, shares_BK)
        energy_B = energy(points_BZ, weights_K, means_KZ, factors_KZZ)
        variance_KZ = factors_KZZ.square().sum(2)
        mixture = self.energy_weight * energy_B.mean() + self.variance_weight * variance_KZ.reciprocal().sum()
        return error_B.mean() + mixture.float()

    def after_training(self, windows_BCL: Tensor, lengths_B: Tensor) -> None:
        """Fit the mixture that scores to all training windows [B, C, L]."""
        parts = in_chunks(windows_BCL, lengths_B, _CHUNK)
        points_NZ = torch.cat([self.compress(self.prepare(*part), part[1])[1] for part in parts])
        shares_NK = self.head(self.hidden(points_NZ)).softmax(1)
        weights_K, means_KZ, factors_KZZ = fit_mixture(points_NZ, shares_NK)
        self.weights_K.copy_(weights_K)
        self.means_KZ.copy_(means_KZ)
        self.factors_KZZ.copy_(factors_KZZ)


class Dagmm(SelectingDetector[DagmmOptions]):
    """Scores a window by its energy: minus the log density of the mixture."""

    options_model = DagmmOptions
    selected = "n_components"

    def build(self, n_channels: int, length: int, generator: torch.Generator) -> DagmmNetwork:
        """Return the untrained network."""
        return DagmmNetwork(n_channels, length, self.options, generator)

    def candidates(self, length: int) -> Sequence[int]:
        """Return the numbers of components to choose from."""
        return (4, 8, 12)

    def judge(self, network: Network, windows_BCL: Tensor, lengths_B: Tensor) -> float:
        """Return the gain in mean log density of held-out windows over the one Gaussian of the same moments."""
        assert isinstance(network, DagmmNetwork)
        _, points_BZ = network.compress(network.prepare(windows_BCL, lengths_B), lengths_B)
        mixture = (network.weights_K, network.means_KZ, network.factors_KZZ)
        return float((energy(points_BZ, *matched_gaussian(*mixture)) - energy(points_BZ, *mixture)).mean())


class SequenceDecoder(nn.Module):
    """A linear layer to the encoder's last width and length; per block, twice the length and one k3 convolution."""

    def __init__(self, n_channels: int, length: int, *, n_blocks: int, embedding_dim: int, base_width: int) -> None:
        super().__init__()
        widths = block_widths(n_blocks, base_width)[::-1]
        self.lengths = [lengths_after(length, left) for left in range(n_blocks - 1, -1, -1)]
        self.n_inner = widths[0]
        self.inwards = nn.Linear(embedding_dim, widths[0] * lengths_after(length, n_blocks))
        self.blocks = nn.ModuleList(nn.Conv1d(n_in, n_out, 3, padding=1) for n_in, n_out in pairwise(widths))
        self.outwards = nn.Conv1d(widths[-1], n_channels, 3, padding=1)

    def forward(self, z_BZ: Tensor) -> Tensor:
        """Return windows [B, C, L] of embeddings [B, Z]."""
        h_BWL = torch.relu(self.inwards(z_BZ)).view(len(z_BZ), self.n_inner, -1)
        for index, block in enumerate(self.blocks):
            h_BWL = torch.relu(block(F.interpolate(h_BWL, size=self.lengths[index])))
        window_BCL: Tensor = self.outwards(h_BWL)
        return window_BCL


def tanh_layers(sizes: Sequence[int]) -> nn.Sequential:
    """Return linear layers between ``sizes`` with tanh between them."""
    layers: list[nn.Module] = []
    for n_in, n_out in pairwise(sizes):
        layers += [nn.Tanh()] if layers else []
        layers.append(nn.Linear(n_in, n_out))
    return nn.Sequential(*layers)


def fit_mixture(points_NZ: Tensor, shares_NK: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return weights [K], means [K, Z] and Cholesky factors of the covariances [K, Z, Z] (Zong 2018, eq. 5), float64.

    ``shares_NK`` is the share of each point in each component. A covariance that has no factor even so gives NaN.
    """
    points_NZ, shares_NK = points_NZ.double(), shares_NK.double()
    total_K = shares_NK.sum(0) + 1e-12
    means_KZ = shares_NK.t() @ points_NZ / total_K[:, None]
    centred_KNZ = points_NZ - means_KZ[:, None]
    weighted_KNZ = shares_NK.t()[:, :, None] * centred_KNZ
    covariance_KZZ = weighted_KNZ.transpose(1, 2) @ centred_KNZ / total_K[:, None, None]
    return total_K / total_K.sum(), means_KZ, _factors(covariance_KZZ)


def matched_gaussian(weights_K: Tensor, means_KZ: Tensor, factors_KZZ: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return the one Gaussian with the mixture's mean and covariance, as a mixture of one component."""
    mean_Z = weights_K @ means_KZ
    apart_KZ = means_KZ - mean_Z
    within_KZZ = factors_KZZ @ factors_KZZ.transpose(1, 2)
    between_KZZ = apart_KZ[:, :, None] * apart_KZ[:, None, :]
    covariance_ZZ = (weights_K[:, None, None] * (within_KZZ + between_KZZ)).sum(0)
    return torch.ones_like(weights_K[:1]), mean_Z[None], _factors(covariance_ZZ[None])


def energy(points_NZ: Tensor, weights_K: Tensor, means_KZ: Tensor, factors_KZZ: Tensor) -> Tensor:
    """Return [N]: minus the log-likelihood of each point (Zong 2018, eq. 6), float64. Scriptable."""
    centred_KZN = (points_NZ.double() - means_KZ[:, None]).transpose(1, 2)
    whitened_KZN = torch.linalg.solve_triangular(factors_KZZ, centred_KZN, upper=False)
    log_volume_K = factors_KZZ.diagonal(dim1=1, dim2=2).log().sum(1)
    constant_K = torch.log(weights_K) - log_volume_K - 0.5 * math.log(2 * math.pi) * means_KZ.shape[1]
    return -torch.logsumexp(constant_K[:, None] - 0.5 * whitened_KZN.square().sum(1), dim=0)


def _factors(covariance_KZZ: Tensor) -> Tensor:
    size_K = covariance_KZZ.diagonal(dim1=1, dim2=2).mean(1)
    ridge_K11 = (_RIDGE * (1 + size_K.detach()))[:, None, None]
    identity_ZZ = torch.eye(covariance_KZZ.shape[1], dtype=covariance_KZZ.dtype, device=covariance_KZZ.device)
    factors_KZZ, failed_K = torch.linalg.cholesky_ex(covariance_KZZ + ridge_K11 * identity_ZZ)
    checked_KZZ: Tensor = factors_KZZ.masked_fill((failed_K > 0)[:, None, None], torch.nan)
    return checked_KZZ
