"""The losses that the paper holds against the deterministic contrastive loss, as functions of embeddings.

Legend: B windows, K transformations, Z embedding dimension, R windows of a reference batch.
"""

from __future__ import annotations

__all__ = ["prediction_terms", "simclr_reference_terms", "simclr_terms"]

import torch
import torch.nn.functional as F
from torch import Tensor


def prediction_terms(logits_BKK: Tensor) -> Tensor:
    """Return the terms [B, K] of L_P (paper, equation 5) whose sum over K is a window's loss.

    Row k of ``logits_BKK`` is what the classifier says of the view ``T_k(x)``; term k is ``-log softmax_k`` of it,
    computed as ``softplus(logsumexp_{l != k} logit_l - logit_k)``. So a classifier that is sure gives 1e-20 and not 0:
    the logarithm of a float32 softmax has nothing between 0 and 6e-8, and all windows it is sure of would score alike.
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
    """Return terms [B, K] of L_C where each window alone joins the same reference batch (its R windows' K views).

    Their sum is a window's ``L_C(x_k, x_l) + L_C(x_l, x_k)``, averaged over all pairs k != l: what ``simclr_terms``
    gives for the window in a minibatch of it and the reference. Term k holds what ``x_k`` adds as the first view.
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
