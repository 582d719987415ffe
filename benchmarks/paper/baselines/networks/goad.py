"""GOAD: a classifier of M random affine maps of a window, which recognises those of normal windows alone (Bergman and
Hoshen, "Classification-Based Anomaly Detection for General Data", ICLR 2020, arXiv:2005.02359).

Legend: B windows, C channels, L window length, D = C L values, M maps, R reduced dimension, Z feature width.
"""  # no postponed annotations: TorchScript reads the types of the buffers

from collections.abc import Sequence
from itertools import pairwise
from typing import Literal

import torch
import torch.nn.functional as F
from pydantic import Field, PositiveFloat, PositiveInt
from torch import Tensor, nn

from benchmarks.paper.baselines.networks.network import BaselineOptions, Network, in_chunks
from benchmarks.paper.baselines.networks.other_losses import prediction_terms
from benchmarks.paper.baselines.networks.selection import SelectingDetector

_CHUNK_VALUES = 1 << 24  # mapped values held at once when the centres are set


class GoadOptions(BaselineOptions):
    """Settings of GOAD; the network's defaults are those of the published code for small data sets.

    The training defaults are those of NeuTraL AD, as for the other baselines: the published single epoch in batches of
    64 is for tables with thousands of rows (``presets.GOAD_TABLES``); with 30 windows it would be one step. Adam's
    first beta is always 0.9; the published one is 0.5.
    """

    n_maps: Literal["auto"] | PositiveInt = Field(default="auto", description="auto = 12 for sequences, 256 for tables")
    reduced_dim: Literal["auto"] | PositiveInt = Field(
        default="auto", description="r of the maps; auto = the best of 4, 8, ..., 64 for sequences, 32 for tables"
    )
    feature_dim: PositiveInt = Field(default=8, description="width of the feature network and of its output")
    n_layers: PositiveInt = Field(default=1, description="of the feature network; published: 1, for KDD 5")
    margin: PositiveFloat = Field(default=1.0, description="of the triplet-centre loss")
    triplet_weight: PositiveFloat = Field(default=0.1, description="of that loss beside the cross-entropy")
    scaling: Literal["standard", "none"] = Field(default="standard", description="per channel, on training windows")


class GoadNetwork(Network):
    """T_m(x) = W_m x of the flattened window, W_m standard normal and fixed; one feature network for all maps.

    As in the published code: it has no shift b_m of the paper's formula, and its features are those after the
    classifier's first activation (it works in place). Its centres are the mean features during the last epoch; here
    they are taken after it.
    """

    maps_DMR: Tensor  # noqa: N815 - shape suffixes
    centres_MZ: Tensor  # noqa: N815

    def __init__(
        self, n_channels: int, length: int, *, n_maps: int, options: GoadOptions, generator: torch.Generator
    ) -> None:
        super().__init__(n_channels, length, n_terms=n_maps)
        self.margin = options.margin
        self.triplet_weight = options.triplet_weight
        reduced_dim = int(options.reduced_dim)  # "auto" was resolved before
        sizes = [reduced_dim, *[options.feature_dim] * options.n_layers]
        layers: list[nn.Module] = []
        for n_in, n_out in pairwise(sizes):
            layers += [_linear(n_in, n_out, generator, bias=False), nn.LeakyReLU(0.2)]
        self.features = nn.Sequential(*layers)
        self.head = _linear(options.feature_dim, n_maps, generator, bias=True)
        maps_DMR = torch.randn(n_channels * length, n_maps, reduced_dim, generator=generator)
        self.register_buffer("maps_DMR", maps_DMR)
        self.register_buffer("centres_MZ", torch.zeros(n_maps, options.feature_dim))

    def forward(self, windows_BCL: Tensor, lengths_B: Tensor) -> Tensor:
        """Return terms [B, M]: -log P(m | T_m(x)) of windows [B, C, L]."""
        distance_BMM = squared_distances(self.embed(windows_BCL, lengths_B), self.centres_MZ)
        return prediction_terms(-distance_BMM)

    def embed(self, windows_BCL: Tensor, lengths_B: Tensor) -> Tensor:
        """Return the features [B, M, Z] of the M maps of each window."""
        x_BD = self.prepare(windows_BCL, lengths_B).flatten(1)
        n_dims, n_maps, reduced = self.maps_DMR.shape
        mapped_BMR = (x_BD @ self.maps_DMR.view(n_dims, n_maps * reduced)).view(-1, n_maps, reduced)
        features_BMZ: Tensor = self.features(mapped_BMR)
        return features_BMZ

    def loss(self, windows_BCL: Tensor, lengths_B: Tensor, generator: torch.Generator) -> Tensor:
        """Return the cross-entropy of the map plus the weighted triplet-centre loss, as the published code."""
        features_BMZ = self.embed(windows_BCL, lengths_B)
        logits_BMM = self.head(features_BMZ)
        names_BM = torch.arange(self.n_terms, device=logits_BMM.device).expand(len(logits_BMM), -1)
        named = F.cross_entropy(logits_BMM.flatten(0, 1), names_BM.flatten())
        return named + self.triplet_weight * triplet_centre_loss(features_BMZ, self.margin)

    def after_training(self, windows_BCL: Tensor, lengths_B: Tensor) -> None:
        """Set the centres: each map's mean feature over the training set."""
        chunk = max(1, _CHUNK_VALUES // self.maps_DMR[0].numel())
        total_MZ = torch.zeros_like(self.centres_MZ, dtype=torch.float64)
        for part in in_chunks(windows_BCL, lengths_B, chunk):
            total_MZ += self.embed(*part).double().sum(0)
        self.centres_MZ.copy_(total_MZ / len(windows_BCL))


def squared_distances(features_BMZ: Tensor, centres_MZ: Tensor) -> Tensor:
    """Return [B, M, M]: the squared distance of each map's feature from each map's centre. Scriptable."""
    own_BM1 = features_BMZ.square().sum(2, keepdim=True)
    cross_BMM = features_BMZ @ centres_MZ.t()
    return own_BM1 - 2 * cross_BMM + centres_MZ.square().sum(1)


def triplet_centre_loss(features_BMZ: Tensor, margin: float) -> Tensor:
    """Return the mean of max(0, d(own centre) + margin - d(nearest other centre)); centres are the batch's means."""
    distance_BMM = squared_distances(features_BMZ, features_BMZ.mean(0))
    own_BM = distance_BMM.diagonal(dim1=1, dim2=2)
    same_MM = torch.eye(distance_BMM.shape[1], dtype=torch.bool, device=distance_BMM.device)
    nearest_BM = distance_BMM.masked_fill(same_MM, torch.inf).amin(2)
    return torch.relu(own_BM + margin - nearest_BM).mean()


class Goad(SelectingDetector[GoadOptions]):
    """Scores a window by how badly the maps applied to it are recognised.

    The affine maps take the flattened window (values after its length are zero), so that r can reduce its dimension as
    in the published code for tables; their output fits no encoder of sequences, so that the published fully connected
    feature network follows. The paper picks r by test AUC; here it is the one with which the nearest centre recognises
    most maps of held-out training windows.
    """

    options_model = GoadOptions
    selected = "reduced_dim"

    def build(self, n_channels: int, length: int, generator: torch.Generator) -> GoadNetwork:
        """Return the untrained network and its maps."""
        auto = 256 if length == 1 else 12
        n_maps = auto if self.options.n_maps == "auto" else self.options.n_maps
        return GoadNetwork(n_channels, length, n_maps=n_maps, options=self.options, generator=generator)

    def candidates(self, length: int) -> Sequence[int]:
        """Return the reduced dimensions of the paper's search, for a table the published one."""
        return (32,) if length == 1 else (4, 8, 16, 32, 64)

    def judge(self, network: Network, windows_BCL: Tensor, lengths_B: Tensor) -> float:
        """Return the share of held-out windows and maps whose nearest centre is the map's own."""
        assert isinstance(network, GoadNetwork)
        distance_BMM = squared_distances(network.embed(windows_BCL, lengths_B), network.centres_MZ)
        maps_M = torch.arange(network.n_terms, device=distance_BMM.device)
        return float((distance_BMM.argmin(2) == maps_M).float().mean())


def _linear(n_in: int, n_out: int, generator: torch.Generator, *, bias: bool) -> nn.Linear:
    """Return a layer with Xavier-normal weights of gain sqrt(2), as published; its bias starts at zero."""
    layer = nn.Linear(n_in, n_out, bias=bias)
    with torch.no_grad():
        layer.weight.normal_(0.0, 2.0 / (n_in + n_out) ** 0.5, generator=generator)
        if bias:
            layer.bias.zero_()
    return layer
