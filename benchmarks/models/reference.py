"""The reference form of the model: K separate mask networks and an encoder of standard layers, one conv at a time.

Tests compare the product's form with it, and benchmarks measure the product's gain over it. Nothing in service uses it.
Legend: B windows, K transformations, C channels, L window length, N views, V = K + 1 views per window, Z embedding.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from streamad_models.neutral_ad.model import NeutralADModel, contrastive_terms
from streamad_models.neutral_ad.networks import N_RESIDUAL_BLOCKS, Encoder, EncoderBlock, Transformations


class MaskNetwork(nn.Module):
    """One M_k of standard layers: [B, C, L] -> [B, C, L]."""

    def __init__(self, n_channels: int) -> None:
        super().__init__()
        last = 1 + 2 * N_RESIDUAL_BLOCKS
        self.convolutions = nn.ModuleList(
            nn.Conv1d(
                n_channels, n_channels, 3, padding=1, padding_mode="reflect" if i in (0, last) else "zeros", bias=False
            )
            for i in range(last + 1)
        )
        self.norm = nn.InstanceNorm1d(n_channels)

    def forward(self, x_BCL: Tensor) -> Tensor:
        """Return the mask of ``x``, same shape."""
        first, *inner, last = self.convolutions
        h = F.relu(self.norm(first(x_BCL)))
        for one, two in zip(inner[0::2], inner[1::2], strict=True):
            h = F.relu(self.norm(two(F.relu(self.norm(one(h))))) + h)
        mask: Tensor = last(h)
        return mask


class SeparateMasks(nn.Module):
    """T_1..T_K as K networks called one after the other: [B, C, L] -> [B, K, C, L]."""

    def __init__(self, grouped: Transformations) -> None:
        super().__init__()
        self.residual, self.multiplicative = grouped.residual, grouped.multiplicative
        n_channels = grouped.inwards.shape[2]
        self.networks = nn.ModuleList(MaskNetwork(n_channels) for _ in range(grouped.n_transformations))
        copy_weights(grouped, self)

    def forward(self, x_BCL: Tensor) -> Tensor:
        """Return the K views of each window."""
        masks_BKCL = torch.stack([network(x_BCL) for network in self.networks], dim=1)
        if self.multiplicative:
            return torch.sigmoid(masks_BKCL) * x_BCL[:, None]
        return masks_BKCL + x_BCL[:, None] if self.residual else masks_BKCL


@torch.no_grad()
def copy_weights(grouped: Transformations, separate: SeparateMasks) -> None:
    """Copy the grouped weights [K, 3, I, O] into the K networks' Conv1d weights [O, I, 3]."""
    for k, network in enumerate(separate.networks):
        assert isinstance(network, MaskNetwork)
        for weight_KTIO, convolution in zip(mask_weights(grouped), network.convolutions, strict=True):
            _set(convolution, weight_KTIO[k].permute(2, 1, 0))


def mask_weights(grouped: Transformations) -> list[Tensor]:
    """Return the grouped conv weights [K, 3, C, C] in the order in which they act."""
    inner = [weight for block in grouped.blocks for weight in block.parameters()]
    return [grouped.inwards, *inner, grouped.outwards]


class ReferenceBlock(nn.Module):
    """One residual encoder block of standard layers."""

    def __init__(self, block: EncoderBlock) -> None:
        super().__init__()
        self.inwards = nn.Conv1d(block.n_in, block.n_in, 1, bias=False)
        self.middle = nn.Conv1d(block.n_in, block.n_in, 3, stride=block.stride, padding=1, bias=False)
        self.outwards = nn.Conv1d(block.n_in, block.n_out, 1, bias=False)
        self.shortcut = nn.Conv1d(block.n_in, block.n_out, 3, stride=block.stride, padding=1, bias=False)
        _set(self.inwards, block.inwards.t()[:, :, None])
        _set(self.middle, block.middle[0].permute(2, 1, 0))
        _set(self.outwards, block.outwards.t()[:, :, None])
        _set(self.shortcut, block.shortcut[0].permute(2, 1, 0))

    def forward(self, x_NIL: Tensor) -> Tensor:
        """Return [N, O, ceil(L / stride)]."""
        h = self.outwards(F.relu(self.middle(F.relu(self.inwards(x_NIL)))))
        return F.relu(h + self.shortcut(x_NIL))


class ReferenceEncoder(nn.Module):
    """The encoder of standard layers: [N, C, L] -> [N, Z]."""

    def __init__(self, encoder: Encoder) -> None:
        super().__init__()
        blocks = [block for block in encoder.blocks if isinstance(block, EncoderBlock)]
        self.blocks = nn.Sequential(*(ReferenceBlock(block) for block in blocks))
        width, (fan_in, embedding_dim) = blocks[-1].n_out, encoder.head.shape
        self.head = nn.Conv1d(width, embedding_dim, fan_in // width)
        _set(self.head, encoder.head.view(-1, width, embedding_dim).permute(2, 1, 0))
        with torch.no_grad():
            self.head.get_parameter("bias").copy_(encoder.bias)

    def forward(self, x_NCL: Tensor) -> Tensor:
        """Return the embeddings."""
        z_NZ1: Tensor = self.head(self.blocks(x_NCL))
        return z_NZ1[:, :, 0]


class ReferenceModel(nn.Module):
    """The same function as the given model, from its weights: windows [B, C, L], lengths [B] -> terms [B, K]."""

    def __init__(self, model: NeutralADModel) -> None:
        super().__init__()
        self.mean_C1, self.scale_C1 = model.mean_C[:, None], model.scale_C[:, None]
        self.temperature = model.temperature
        self.masks = SeparateMasks(model.transformations)
        self.encoder = ReferenceEncoder(model.encoder)

    def forward(self, windows_BCL: Tensor, lengths_B: Tensor) -> Tensor:
        """Return the terms."""
        outside = torch.arange(windows_BCL.shape[2], device=windows_BCL.device) >= lengths_B[:, None, None]
        x_BCL = ((windows_BCL - self.mean_C1) * self.scale_C1).masked_fill(outside, 0.0)
        views_BVCL = torch.cat([x_BCL[:, None], self.masks(x_BCL)], dim=1)
        z_NZ = self.encoder(views_BVCL.flatten(0, 1))
        return contrastive_terms(z_NZ.view(*views_BVCL.shape[:2], -1), self.temperature)


def _set(layer: nn.Module, weight: Tensor) -> None:
    with torch.no_grad():
        layer.get_parameter("weight").copy_(weight)
