"""Many models of one shape as one computation: E sets of weights side by side, and their views, embeddings and terms.

The same kernels as one model's: a group of ``convolve3`` is a mask network of a member, or a member's encoder.
Legend: E members, B windows, K transformations, C channels, L window length, N = (K + 1) B views, Z embedding
dimension, P weights of a member, I/O input/output width.
"""

from __future__ import annotations

__all__ = ["StackedModels"]

from collections.abc import Sequence

import torch
from torch import Tensor

from streamad_models.neutral_ad.kernels import convolve3, instance_norm_relu
from streamad_models.neutral_ad.loss import contrastive_terms
from streamad_models.neutral_ad.model import NeutralADModel
from streamad_models.neutral_ad.transformations import N_RESIDUAL_BLOCKS

_BLOCK = ("inwards", "middle", "outwards", "shortcut")


class StackedModels:
    """The weights of E models of the same shape and settings as ``weights_EP``, and their gradients beside them.

    ``terms`` maps a batch of each member to its terms, and ``add_gradients`` adds those of a loss of them.
    """

    def __init__(self, models: Sequence[NeutralADModel], device: torch.device) -> None:
        self.template = models[0]
        flat = [torch.cat([weight.detach().flatten() for weight in model.parameters()]) for model in models]
        self.weights_EP = torch.stack(flat).to(device)
        self.gradients_EP = torch.zeros_like(self.weights_EP)
        self.mean_ECL1 = torch.stack([model.mean_C for model in models])[:, :, None, None].to(device)
        self.scale_ECL1 = torch.stack([model.scale_C for model in models])[:, :, None, None].to(device)
        self.steps_L11 = self.template.steps_L11.to(device)
        self._parts = {name: part.requires_grad_() for name, part in self._split(self.weights_EP).items()}
        self._gradients = list(self._split(self.gradients_EP).values())

    def __len__(self) -> int:
        return len(self.weights_EP)

    def terms(self, windows_EBCL: Tensor, lengths_EB: Tensor) -> Tensor:
        """Return the terms [E, B, K] of windows [E, B, C, L] in engineering units, lengths int64 [E, B]."""
        x_ELBC = self._prepared(windows_EBCL, lengths_EB)
        n_members, length, n, channels = x_ELBC.shape
        n_views = self.template.n_terms + 1
        views_EVLBC = torch.cat([x_ELBC.unsqueeze(1), self._views(x_ELBC)], dim=1)
        views_ELNC = views_EVLBC.transpose(1, 2).reshape(n_members, length, n_views * n, channels)
        z_EVBZ = self._embeddings(views_ELNC).view(n_members, n_views, n, -1)
        z_NVZ = z_EVBZ.transpose(1, 2).reshape(n_members * n, n_views, -1)
        return contrastive_terms(z_NVZ, self.template.temperature).view(n_members, n, n_views - 1)

    def add_gradients(self, loss: Tensor) -> None:
        """Add the gradients of ``loss``, a sum over members, to ``gradients_EP``."""
        found = torch.autograd.grad(loss, list(self._parts.values()))
        torch._foreach_add_(self._gradients, list(found))

    def weights_of(self, member: int, weights_EP: Tensor) -> dict[str, Tensor]:
        """Return a member's part of ``weights_EP`` by the names of ``NeutralADModel.named_parameters``."""
        return {name: part[member] for name, part in self._split(weights_EP).items()}

    def _split(self, weights_EP: Tensor) -> dict[str, Tensor]:
        """Return views [E, ...] of ``weights_EP``, one for each weight of the model."""
        parts, start = {}, 0
        for name, weight in self.template.named_parameters():
            parts[name] = weights_EP[:, start : start + weight.numel()].view(len(weights_EP), *weight.shape)
            start += weight.numel()
        return parts

    def _prepared(self, windows_EBCL: Tensor, lengths_EB: Tensor) -> Tensor:
        x_ECLB = (windows_EBCL.permute(0, 2, 3, 1) - self.mean_ECL1) * self.scale_ECL1
        limit = self.template.largest_input
        x_ELBC = torch.clamp(x_ECLB, -limit, limit).permute(0, 2, 3, 1).contiguous()
        return x_ELBC.masked_fill(self.steps_L11 >= lengths_EB[:, None, :, None], 0.0)

    def _views(self, x_ELBC: Tensor) -> Tensor:
        """Return the views [E, K, L, B, C]."""
        transformations = self.template.transformations
        x_E1LBC = x_ELBC.unsqueeze(1)
        groups = x_E1LBC.expand(-1, transformations.n_transformations, -1, -1, -1).flatten(0, 1)
        h = instance_norm_relu(convolve3(groups, self._mask("inwards"), 1, True), None)
        for i in range(N_RESIDUAL_BLOCKS):
            inner = instance_norm_relu(convolve3(h, self._mask(f"blocks.{i}.first"), 1, False), None)
            h = instance_norm_relu(convolve3(inner, self._mask(f"blocks.{i}.second"), 1, False), h)
        m_GLBC = convolve3(h, self._mask("outwards"), 1, True)
        m_EKLBC = m_GLBC.view(len(self), -1, *x_ELBC.shape[1:])
        if transformations.multiplicative:
            return torch.sigmoid(m_EKLBC) * x_E1LBC
        return m_EKLBC + x_E1LBC if transformations.residual else m_EKLBC

    def _mask(self, name: str) -> Tensor:
        return self._parts[f"transformations.{name}"].flatten(0, 1)

    def _embeddings(self, x_ELNC: Tensor) -> Tensor:
        """Return the embeddings [E, N, Z] of views [E, L, N, C]."""
        h_ELNC = x_ELNC.bfloat16() if self.template.encoder.trains_in_bfloat16 else x_ELNC
        for i in range(len(self.template.encoder.blocks)):
            h_ELNC = self._block(h_ELNC, f"encoder.blocks.{i}", 1 if i == 0 else 2)
        h_ENF = h_ELNC.transpose(1, 2).flatten(2).to(x_ELNC.dtype)
        return torch.baddbmm(self._parts["encoder.bias"].unsqueeze(1), h_ENF, self._parts["encoder.head"])

    def _block(self, x_ELNI: Tensor, name: str, stride: int) -> Tensor:
        """Return [E, ceil(L / stride), N, O], as ``EncoderBlock`` does of one member."""
        parts = {part: self._parts[f"{name}.{part}"].to(x_ELNI.dtype) for part in _BLOCK}
        h = torch.relu(torch.bmm(x_ELNI.flatten(1, 2), parts["inwards"]))
        middle, shortcut = parts["middle"].squeeze(1), parts["shortcut"].squeeze(1)
        h = torch.relu(convolve3(h.view(x_ELNI.shape), middle, stride, False))
        out = convolve3(x_ELNI, shortcut, stride, False)
        summed = torch.baddbmm(out.flatten(1, 2), h.flatten(1, 2), parts["outwards"])
        return torch.relu(summed).view(out.shape)
