"""All members as one scriptable model: scaling, feature spaces, distances, networks, and the terms of the score.

Legend: B windows, C channels, L window length, D features, K terms, V = K + 1 views of Z features of a network.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from streamad.types import WindowSet
from streamad_models.ensemble.neighbours import Neighbours
from streamad_models.neutral_ad.data import fit_scaling
from streamad_models.neutral_ad.model import NeutralADModel, ScaledModel, contrastive_terms

_LEAST_EXCESS = 1e-3  # of a term, which is about 1 / K untrained: where none exceeds, all have equal shares


class NetworkMember(nn.Module):
    """Maps windows in engineering units to logarithms [B, 2], and to the shares [B, K] of the transformations.

    ``contrast`` is NeuTraL AD's score, ``view_distance`` the local distance of its normalised views from those of the
    training windows. A transformation's share of the contrast is that of its excess over its median in training.
    """

    def __init__(self, network: NeutralADModel, neighbours: Neighbours, usual_terms: Tensor) -> None:
        super().__init__()
        self.network = network
        self.neighbours = neighbours
        self.n_terms = network.n_terms + 1
        self.least_excess = _LEAST_EXCESS
        self.register_buffer("usual_K", usual_terms)

    usual_K: Tensor  # noqa: N815 - a shape suffix

    def forward(self, windows_BCL: Tensor, lengths_B: Tensor) -> tuple[Tensor, Tensor]:
        """Return the logarithms [B, 2] and the shares [B, K], which sum to 1."""
        z_BVZ = self.network.embeddings(windows_BCL, lengths_B)
        terms_BK = contrastive_terms(z_BVZ, self.network.temperature)
        contrast_B1 = torch.log(torch.clamp(terms_BK.sum(dim=1, keepdim=True), min=1e-6))
        distance_B3 = self.neighbours(F.normalize(z_BVZ, dim=2).flatten(1))
        excess_BK = torch.clamp(terms_BK - self.usual_K, min=0.0) + self.least_excess
        logs_B2 = torch.cat([contrast_B1, distance_B3[:, :1]], dim=1)
        return logs_B2, excess_BK / excess_BK.sum(dim=1, keepdim=True)


Vector: TypeAlias = npt.NDArray[np.float64]
LARGEST_READING = 100.0  # scaled: beyond it a reading is as anomalous as can be, and hides no other one


class Space(nn.Module):
    """A feature space and the distances from the training windows in it: windows [B, C, L] to logarithms [B, 3]."""

    def __init__(self, features: nn.Module, neighbours: Neighbours) -> None:
        super().__init__()
        self.features = features
        self.neighbours = neighbours

    def forward(self, x_BCL: Tensor, lengths_B: Tensor) -> Tensor:
        """Return the logarithms [B, 3]."""
        logs_B3: Tensor = self.neighbours(self.features(x_BCL, lengths_B))
        return logs_B3


class WindowModel(ScaledModel):
    """A scriptable model that sees windows [B, C, L] scaled by channel, zero from their ends on."""

    steps_L: Tensor  # noqa: N815 - a shape suffix

    def __init__(self, n_channels: int, length: int, n_terms: int) -> None:
        super().__init__(n_channels, length, n_terms)
        self.largest_input = LARGEST_READING
        self.register_buffer("steps_L", torch.arange(length), persistent=False)

    def prepare(self, windows_BCL: Tensor, lengths_B: Tensor) -> Tensor:
        """Return the scaled windows [B, C, L], zero from each window's length on."""
        x_BCL = (windows_BCL - self.mean_C[:, None]) * self.scale_C[:, None]
        x_BCL = torch.clamp(x_BCL, -self.largest_input, self.largest_input)
        return x_BCL.masked_fill((self.steps_L >= lengths_B[:, None])[:, None], 0.0)

    def set_scaling(self, data: WindowSet) -> None:
        """Take the mean and the standard deviation of each channel from the valid samples without fills."""
        self.set_channel_scaling(*fit_scaling(without_fills(data), "standard"))

    def set_channel_scaling(self, origin: npt.NDArray[np.floating], factor: npt.NDArray[np.floating]) -> None:
        """Take the origin and the factor of each channel [C]."""
        self.mean_C.copy_(torch.from_numpy(origin))
        self.scale_C.copy_(torch.from_numpy(factor))


def without_fills(data: WindowSet) -> WindowSet:
    """Return ``data`` with each channel's samples limited to ten widths of its middle 98 % beyond that middle.

    One fill value or overflow (1e36, say) must not decide the scale of all others.
    """
    valid_NL = np.arange(data.values.shape[2])[None, :] < data.lengths[:, None]
    values = data.values.copy()
    for channel in range(values.shape[1]):
        low, high = np.quantile(values[:, channel][valid_NL].astype(np.float64), [0.01, 0.99])
        if high > low:
            reach = 10.0 * (high - low)
            values[:, channel] = np.clip(values[:, channel], low - reach, high + reach)
    return replace(data, values=values)


class EnsembleModel(WindowModel):
    """Maps windows to the members' terms; pure per window, deterministic, scriptable.

    ``spaces`` give logarithms in their order, three each, of which ``members`` (their places) count; ``learned``
    networks add two each. A logarithm becomes z = (logarithm - median) / spread, both of the training windows, each
    without itself. Its term is ``weight * joined(z)``; that of a network's contrast is divided among its
    transformations.
    """

    members_K: Tensor  # noqa: N815 - a shape suffix
    median_K: Tensor  # noqa: N815
    spread_K: Tensor  # noqa: N815
    weight_K: Tensor  # noqa: N815

    def __init__(
        self, n_channels: int, length: int, members: Sequence[int], learned: Sequence[NetworkMember] = ()
    ) -> None:
        super().__init__(n_channels, length, len(members) + sum(each.n_terms for each in learned))
        n_logs = len(members) + 2 * len(learned)
        self.n_neighbours = len(members)
        self.spaces = nn.ModuleList()
        self.learned = nn.ModuleList(learned)
        self.register_buffer("members_K", torch.tensor(members, dtype=torch.int64))
        self.register_buffer("median_K", torch.zeros(n_logs))
        self.register_buffer("spread_K", torch.ones(n_logs))
        self.register_buffer("weight_K", torch.ones(n_logs))

    def forward(self, windows_BCL: Tensor, lengths_B: Tensor) -> Tensor:
        """Return terms [B, K] of windows float32 [B, C, L] in engineering units with true lengths int64 [B]."""
        x_BCL = self.prepare(windows_BCL, lengths_B)
        logs: list[Tensor] = []
        for space in self.spaces:
            logs.append(space(x_BCL, lengths_B))
        parts = [torch.cat(logs, dim=1).index_select(1, self.members_K)]
        shares: list[Tensor] = []
        for network in self.learned:
            logs_B2, shares_BT = network(windows_BCL, lengths_B)
            parts.append(logs_B2)
            shares.append(shares_BT)
        return self.terms(torch.cat(parts, dim=1), shares)

    def set_common_scale(self, median: Vector, spread: Vector, weights: Vector) -> None:
        """Take the median and the spread of each logarithm, and its weight."""
        self.median_K.copy_(torch.from_numpy(median))
        self.spread_K.copy_(torch.from_numpy(spread))
        self.weight_K.copy_(torch.from_numpy(weights))

    def terms(self, logs_BK: Tensor, shares: list[Tensor]) -> Tensor:
        """Return the terms of the logarithms; ``shares`` [B, T] of each network divide its contrast."""
        joined_BK = self.weight_K * joined((logs_BK - self.median_K) / self.spread_K)
        terms = [joined_BK[:, : self.n_neighbours]]
        for place, shares_BT in enumerate(shares):
            at = self.n_neighbours + 2 * place
            terms.append(joined_BK[:, at : at + 1] * shares_BT)
            terms.append(joined_BK[:, at + 1 : at + 2])
        return torch.cat(terms, dim=1)


def joined(z_BK: Tensor) -> Tensor:
    """Return softplus(z), and 3 + 3 log(softplus(z) / 3) above 3.

    No member's low value makes up for another's high one, and one large member suffices. A member that finds new normal
    windows far out, too (another speaker, another material), does not decide alone.
    """
    above_BK = F.softplus(z_BK)
    return torch.where(above_BK > 3.0, 3.0 + 3.0 * torch.log(above_BK / 3.0), above_BK)
