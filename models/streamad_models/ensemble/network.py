"""A trained network as a member: NeuTraL AD's score, and how far its views lie from those of training windows.

Legend: B windows, C channels, L window length, K transformations, V = K + 1 views of Z features.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from streamad_models.ensemble.neighbours import Neighbours
from streamad_models.neutral_ad.loss import contrastive_terms
from streamad_models.neutral_ad.model import NeutralADModel

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
