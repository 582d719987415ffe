"""The deterministic contrastive loss, which is also the anomaly score (paper, equations 2 and 3).

Legend: B windows, K transformations, V = K + 1 views (the original first), Z embedding dimension.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor


def contrastive_terms(z_BVZ: Tensor, temperature: float) -> Tensor:
    """Return the terms [B, K] whose sum over K is the score: higher is more anomalous.

    Term k is ``-log(h(x_k, x) / (h(x_k, x) + sum over l != k of h(x_k, x_l)))`` with ``h = exp(cosine / temperature)``,
    divided by K log K, so that the identity edge case (all views equal) scores exactly 1. In log space throughout: no
    exponential of a similarity is ever formed, so small temperatures do not overflow.
    """
    n_views = z_BVZ.shape[1] - 1
    unit_BVZ = F.normalize(z_BVZ, dim=2)
    logits_BKV = torch.matmul(unit_BVZ[:, 1:], unit_BVZ.transpose(1, 2)) / temperature
    itself_KV = torch.eye(n_views, device=z_BVZ.device, dtype=torch.bool)
    itself_KV = torch.cat([torch.zeros_like(itself_KV[:, :1]), itself_KV], dim=1)
    rivals_BKV = logits_BKV.masked_fill(itself_KV, -float("inf"))
    terms_BK = torch.logsumexp(rivals_BKV, dim=2) - logits_BKV[:, :, 0]
    return terms_BK / (n_views * math.log(n_views))
