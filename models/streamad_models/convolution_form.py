"""The forms of models for runtimes that compile a graph: the same terms, NeuTraL AD as plain convolutions.

Such a runtime (OpenVINO) has compiled kernels for grouped convolutions over channel-major windows, and none for the
in-place sums of matrix products with which ``NeutralADModel`` computes them in torch.
Legend: B windows, K transformations, C channels, L window length, V = K + 1 views, N = V B, I/O input/output width,
T taps (3), G groups, Z embedding dimension.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from streamad_models.ensemble.minirocket import Dilation, SummedDilation
from streamad_models.neutral_ad.model import NeutralADModel, contrastive_terms
from streamad_models.neutral_ad.networks import Encoder, EncoderBlock, MaskBlocks, Transformations


def exported_form(model: nn.Module, backend: str) -> nn.Module:
    """Return ``model``, or a copy if it has parts that ``backend`` computes faster in another form."""
    forms: dict[type, Callable[[Any], nn.Module]] = {NeutralADModel: ConvolutionForm}
    if backend == "openvino":
        forms[Dilation] = SummedDilation
    if type(model) in forms:
        return forms[type(model)](model).eval()
    if not any(type(part) in forms for part in model.modules()):
        return model
    changed = copy.deepcopy(model)
    for part in list(changed.modules()):
        for name, child in part.named_children():
            if type(child) in forms:
                setattr(part, name, forms[type(child)](child).eval())
    return changed


class ConvolutionForm(nn.Module):
    """Maps windows as the ``NeutralADModel`` that it is made of; its terms differ by rounding alone."""

    mean_C1: Tensor  # noqa: N815 - a shape suffix
    scale_C1: Tensor  # noqa: N815
    steps_L: Tensor  # noqa: N815

    def __init__(self, model: NeutralADModel) -> None:
        super().__init__()
        self.n_channels, self.window_length, self.n_terms = model.n_channels, model.window_length, model.n_terms
        self.temperature, self.largest_input = model.temperature, model.largest_input
        self.register_buffer("mean_C1", model.mean_C.detach()[:, None])
        self.register_buffer("scale_C1", model.scale_C.detach()[:, None])
        self.register_buffer("steps_L", torch.arange(self.window_length))
        self.views = _Views(model.transformations)
        self.encoder = _Encoder(model.encoder)

    def forward(self, windows_BCL: Tensor, lengths_B: Tensor) -> Tensor:
        """Return terms [B, K] of windows float32 [B, C, L] in engineering units with true lengths int64 [B]."""
        return contrastive_terms(self.embeddings(windows_BCL, lengths_B), self.temperature)

    def embeddings(self, windows_BCL: Tensor, lengths_B: Tensor) -> Tensor:
        """Return the embeddings [B, V, Z] of the views of windows in engineering units, the original first."""
        x_BCL = (windows_BCL - self.mean_C1) * self.scale_C1
        x_BCL = torch.clamp(x_BCL, -self.largest_input, self.largest_input)
        x_BCL = x_BCL.masked_fill((self.steps_L >= lengths_B[:, None])[:, None], 0.0)
        x_B1CL = x_BCL.unsqueeze(1)
        views_BVCL = torch.cat([x_B1CL, self.views(x_BCL, x_B1CL)], dim=1)
        z_NZ: Tensor = self.encoder(views_BVCL.flatten(0, 1))
        return z_NZ.view(-1, self.n_terms + 1, z_NZ.shape[1])


class _Views(nn.Module):
    """The views of ``Transformations``: its mask networks are the groups of grouped convolutions."""

    inwards_OIT: Tensor  # noqa: N815
    outwards_OIT: Tensor  # noqa: N815

    def __init__(self, given: Transformations) -> None:
        super().__init__()
        self.residual, self.multiplicative = given.residual, given.multiplicative
        self.n_groups = given.n_transformations
        self.register_buffer("inwards_OIT", _taps_last(given.inwards))
        self.register_buffer("outwards_OIT", _taps_last(given.outwards))
        blocks = [block for block in given.blocks if isinstance(block, MaskBlocks)]
        self.blocks = nn.ModuleList(_MaskBlock(block, self.n_groups) for block in blocks)

    def forward(self, x_BCL: Tensor, x_B1CL: Tensor) -> Tensor:
        """Return the views [B, K, C, L] of windows [B, C, L], given again as [B, 1, C, L]."""
        h = torch.relu(_normalised(F.conv1d(_reflected(x_BCL), self.inwards_OIT)))  # all groups see the same window
        for block in self.blocks:
            h = block(h)
        masks = F.conv1d(_reflected(h), self.outwards_OIT, groups=self.n_groups)
        masks_BKCL = masks.view(-1, self.n_groups, x_BCL.shape[1], x_BCL.shape[2])
        if self.multiplicative:
            return torch.sigmoid(masks_BKCL) * x_B1CL
        return masks_BKCL + x_B1CL if self.residual else masks_BKCL


class _MaskBlock(nn.Module):
    first_OIT: Tensor  # noqa: N815
    second_OIT: Tensor  # noqa: N815

    def __init__(self, given: MaskBlocks, n_groups: int) -> None:
        super().__init__()
        self.n_groups = n_groups
        self.register_buffer("first_OIT", _taps_last(given.first))
        self.register_buffer("second_OIT", _taps_last(given.second))

    def forward(self, h: Tensor) -> Tensor:
        inner = torch.relu(_normalised(F.conv1d(h, self.first_OIT, padding=1, groups=self.n_groups)))
        return torch.relu(_normalised(F.conv1d(inner, self.second_OIT, padding=1, groups=self.n_groups)) + h)


class _Encoder(nn.Module):
    """The embeddings [N, Z] of views [N, C, L]."""

    head_ZIL: Tensor  # noqa: N815
    bias_Z: Tensor  # noqa: N815

    def __init__(self, given: Encoder) -> None:
        super().__init__()
        blocks = [block for block in given.blocks if isinstance(block, EncoderBlock)]
        self.blocks = nn.ModuleList(_Block(block) for block in blocks)
        head_LIZ = given.head.detach().view(-1, blocks[-1].n_out, given.embedding_dim)
        self.register_buffer("head_ZIL", head_LIZ.permute(2, 1, 0).contiguous())
        self.register_buffer("bias_Z", given.bias.detach())

    def forward(self, x_NCL: Tensor) -> Tensor:
        for block in self.blocks:
            x_NCL = block(x_NCL)
        return F.conv1d(x_NCL, self.head_ZIL, self.bias_Z).squeeze(2)


class _Block(nn.Module):
    inwards_II1: Tensor  # noqa: N815
    middle_IIT: Tensor  # noqa: N815
    outwards_OI1: Tensor  # noqa: N815
    shortcut_OIT: Tensor  # noqa: N815

    def __init__(self, given: EncoderBlock) -> None:
        super().__init__()
        self.stride = given.stride
        self.register_buffer("inwards_II1", given.inwards.detach().t().contiguous()[:, :, None])
        self.register_buffer("middle_IIT", _taps_last(given.middle))
        self.register_buffer("outwards_OI1", given.outwards.detach().t().contiguous()[:, :, None])
        self.register_buffer("shortcut_OIT", _taps_last(given.shortcut))

    def forward(self, x_NIL: Tensor) -> Tensor:
        h = torch.relu(F.conv1d(x_NIL, self.inwards_II1))
        h = torch.relu(F.conv1d(h, self.middle_IIT, stride=self.stride, padding=1))
        shortcut = F.conv1d(x_NIL, self.shortcut_OIT, stride=self.stride, padding=1)
        return torch.relu(F.conv1d(h, self.outwards_OI1) + shortcut)


def _taps_last(weight_GTIO: Tensor) -> Tensor:
    """Return weights [G, T, I, O] as [G O, I, T], those of a convolution of G groups."""
    return weight_GTIO.detach().permute(0, 3, 2, 1).flatten(0, 1).contiguous()


def _reflected(x_BCL: Tensor) -> Tensor:
    """Return x with a step before and one after: step -1 is step 1, step L is step L-2."""
    length = x_BCL.shape[2]
    return torch.cat([x_BCL[:, :, 1:2], x_BCL, x_BCL[:, :, length - 2 : length - 1]], dim=2)


def _normalised(h_BGL: Tensor) -> Tensor:
    """Return mean 0 and biased variance 1 over L, eps 1e-5, as ``kernels.instance_norm_relu`` has it."""
    mean_BG1 = h_BGL.mean(dim=2, keepdim=True)
    centred_BGL = h_BGL - mean_BG1
    variance_BG1 = (centred_BGL * centred_BGL).mean(dim=2, keepdim=True)
    varies_BG1 = torch.clamp(variance_BG1 * 1e11 / (mean_BG1 * mean_BG1 + 0.1) - 1.0, 0.0, 1.0)
    return centred_BGL * (torch.rsqrt(variance_BG1 + 1e-5) * varies_BG1)
