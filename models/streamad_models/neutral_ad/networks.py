"""The networks of NeuTraL AD: the K learnable transformations T_k, and the encoder f_phi of the window and its views.

A transformation is one grouped computation of K mask networks (paper, section 3.1). All networks consist of two
operations: a k3 convolution and an instance norm, G groups at once. Arrays are time-major, so that a shift in time is a
contiguous slice and each tap of a convolution one batched matrix product that accumulates into the output: no padding,
no im2col copy, one layout for batch 1 and batch 256.
Legend: B windows, K transformations, G groups (mask networks; 1 for the encoder), C channels, L time, N windows or
views, I/O input/output width, Z embedding, T taps (3).
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from streamad_models.neutral_ad.options import Parametrisation


def convolve3(x_GLNI: Tensor, weight_GTIO: Tensor, stride: int, reflect: bool) -> Tensor:
    """Return the k3 convolution over L, padded by one step of zeros, or with ``reflect`` by the reflected edge.

    x [G, L, N, I] and weight [G, 3, I, O] give [G, ceil(L / stride), N, O]; stride is 1 or 2, reflection needs stride 1
    and L >= 2. Equals ``conv1d(padding=1)`` of each group.
    """
    if torch.jit.is_scripting():  # type: ignore[attr-defined]
        return _convolve3(x_GLNI, weight_GTIO, stride, reflect)
    else:  # an explicit branch: TorchScript compiles only the one it takes
        out: Tensor = _Convolve3.apply(x_GLNI, weight_GTIO, stride, reflect)
        return out


def instance_norm_relu(h_GLNC: Tensor, skip_GLNC: Tensor | None) -> Tensor:
    """Return ``relu(norm(h) + skip)``: mean 0 and biased variance 1 over L, eps 1e-5."""
    if torch.jit.is_scripting():  # type: ignore[attr-defined]
        n_GLNC, _ = _normalise(h_GLNC)
        return n_GLNC.relu_() if skip_GLNC is None else n_GLNC.add_(skip_GLNC).relu_()
    else:
        out: Tensor = _InstanceNormRelu.apply(h_GLNC, skip_GLNC)
        return out


def _normalise(h_GLNC: Tensor) -> tuple[Tensor, Tensor]:
    """Return the normalised h and 1 / sqrt(variance + eps) [G, 1, N, C]; eps 1e-5 is torch.nn.InstanceNorm1d's.

    A course that varies by no more than its mean is rounded by gives 0: seven norms in turn would make full-sized
    numbers of the rounding. All other courses are scaled by the very number that the norm has without this.
    """
    mean_G1NC = h_GLNC.mean(dim=1, keepdim=True)
    n_GLNC = h_GLNC - mean_G1NC
    variance_G1NC = (n_GLNC * n_GLNC).mean(dim=1, keepdim=True)
    varies_G1NC = (variance_G1NC * 1e11 / (mean_G1NC * mean_G1NC + 0.1) - 1.0).clamp_(0.0, 1.0)
    scale_G1NC = variance_G1NC.add_(1e-5).rsqrt_().mul_(varies_G1NC)
    return n_GLNC.mul_(scale_G1NC), scale_G1NC


def _convolve3(x_GLNI: Tensor, weight_GTIO: Tensor, stride: int, reflect: bool) -> Tensor:
    groups, length, n, width = x_GLNI.shape
    out_length = (length + stride - 1) // stride
    out_GLNO = x_GLNI.new_empty(groups, out_length, n, weight_GTIO.shape[3])
    out = out_GLNO.view(groups, out_length * n, weight_GTIO.shape[3])
    before, centre, after = weight_GTIO[:, 0], weight_GTIO[:, 1], weight_GTIO[:, 2]
    if stride == 2:
        half = length // 2
        even = x_GLNI[:, 0::2].reshape(groups, out_length * n, width)
        odd = x_GLNI[:, 1::2].reshape(groups, half * n, width)
        out.baddbmm_(even, centre, beta=0.0)
        out[:, n:].baddbmm_(odd[:, : (out_length - 1) * n], before)
        out[:, : half * n].baddbmm_(odd, after)
        return out_GLNO
    rest = (length - 1) * n
    flat = x_GLNI.reshape(groups, length * n, width)
    out.baddbmm_(flat, centre, beta=0.0)
    out[:, n:].baddbmm_(flat[:, :rest], before)
    out[:, :rest].baddbmm_(flat[:, n:], after)
    if reflect:  # step -1 is step 1, step L is step L-2
        out[:, :n].baddbmm_(flat[:, n : 2 * n], before)
        out[:, rest:].baddbmm_(flat[:, rest - n : rest], after)
    return out_GLNO


class _Convolve3(torch.autograd.Function):
    """``_convolve3`` with its own backward: autograd cannot follow the in-place accumulation."""

    @staticmethod
    def forward(ctx: Any, x_GLNI: Tensor, weight_GTIO: Tensor, stride: int, reflect: bool) -> Tensor:
        ctx.save_for_backward(x_GLNI, weight_GTIO)
        ctx.stride, ctx.reflect = stride, reflect
        return _convolve3(x_GLNI, weight_GTIO, stride, reflect)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_GLNO: Tensor) -> tuple[Tensor | None, Tensor, None, None]:
        x_GLNI, weight_GTIO = ctx.saved_tensors
        grad = grad_GLNO.reshape(len(x_GLNI), -1, grad_GLNO.shape[3])
        gradients = _backward_stride2 if ctx.stride == 2 else _backward_stride1
        return *gradients(x_GLNI, weight_GTIO, grad, ctx.reflect, ctx.needs_input_grad[0]), None, None


def _backward_stride1(
    x_GLNI: Tensor, weight_GTIO: Tensor, grad: Tensor, reflect: bool, wants_x: bool
) -> tuple[Tensor | None, Tensor]:
    groups, length, n, width = x_GLNI.shape
    rest = (length - 1) * n
    flat = x_GLNI.reshape(groups, length * n, width).transpose(1, 2)
    weight_grad = torch.empty_like(weight_GTIO)
    weight_grad[:, 0] = torch.bmm(flat[:, :, :rest], grad[:, n:])
    weight_grad[:, 1] = torch.bmm(flat, grad)
    weight_grad[:, 2] = torch.bmm(flat[:, :, n:], grad[:, :rest])
    if reflect:
        weight_grad[:, 0].baddbmm_(flat[:, :, n : 2 * n], grad[:, :n])
        weight_grad[:, 2].baddbmm_(flat[:, :, rest - n : rest], grad[:, rest:])
    if not wants_x:
        return None, weight_grad
    before, centre, after = (weight_GTIO[:, tap].transpose(1, 2) for tap in range(3))
    x_grad = torch.bmm(grad, centre)
    x_grad[:, :rest].baddbmm_(grad[:, n:], before)
    x_grad[:, n:].baddbmm_(grad[:, :rest], after)
    if reflect:
        x_grad[:, n : 2 * n].baddbmm_(grad[:, :n], before)
        x_grad[:, rest - n : rest].baddbmm_(grad[:, rest:], after)
    return x_grad.view(x_GLNI.shape), weight_grad


def _backward_stride2(
    x_GLNI: Tensor, weight_GTIO: Tensor, grad: Tensor, reflect: bool, wants_x: bool
) -> tuple[Tensor | None, Tensor]:
    groups, length, n, width = x_GLNI.shape
    half = length // 2
    rows, shifted = half * n, (length - half - 1) * n
    even = x_GLNI[:, 0::2].reshape(groups, (length - half) * n, width).transpose(1, 2)
    odd = x_GLNI[:, 1::2].reshape(groups, rows, width).transpose(1, 2)
    weight_grad = torch.empty_like(weight_GTIO)
    weight_grad[:, 0] = torch.bmm(odd[:, :, :shifted], grad[:, n:])
    weight_grad[:, 1] = torch.bmm(even, grad)
    weight_grad[:, 2] = torch.bmm(odd, grad[:, :rows])
    if not wants_x:
        return None, weight_grad
    before, centre, after = (weight_GTIO[:, tap].transpose(1, 2) for tap in range(3))
    odd_grad = torch.bmm(grad[:, :rows], after)
    odd_grad[:, :shifted].baddbmm_(grad[:, n:], before)
    x_grad = torch.empty_like(x_GLNI)
    x_grad[:, 0::2] = torch.bmm(grad, centre).view(groups, length - half, n, width)
    x_grad[:, 1::2] = odd_grad.view(groups, half, n, width)
    return x_grad, weight_grad


class _InstanceNormRelu(torch.autograd.Function):
    """``relu(norm(h) + skip)`` whose backward needs three passes over the data instead of a dozen."""

    @staticmethod
    def forward(ctx: Any, h_GLNC: Tensor, skip_GLNC: Tensor | None) -> Tensor:
        n_GLNC, scale_G1NC = _normalise(h_GLNC)
        out_GLNC = n_GLNC.relu() if skip_GLNC is None else (n_GLNC + skip_GLNC).relu_()
        ctx.save_for_backward(n_GLNC, scale_G1NC, out_GLNC)
        return out_GLNC

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_GLNC: Tensor) -> tuple[Tensor, Tensor | None]:
        n_GLNC, scale_G1NC, out_GLNC = ctx.saved_tensors
        grad = torch.ops.aten.threshold_backward(grad_GLNC, out_GLNC, 0)
        correlation_G1NC = (grad * n_GLNC).mean(dim=1, keepdim=True)
        h_grad = grad - grad.mean(dim=1, keepdim=True)
        h_grad.addcmul_(n_GLNC, correlation_G1NC, value=-1.0).mul_(scale_G1NC)
        return h_grad, grad if ctx.needs_input_grad[1] else None


N_RESIDUAL_BLOCKS = 3


class Transformations(nn.Module):
    """T_1..T_K: feed-forward ``M_k(x)``, residual ``M_k(x) + x``, or multiplicative ``sigmoid(M_k(x)) * x``.

    Each mask network M_k (hidden width C, no bias): reflection-padded conv k3, instance norm, ReLU; three residual
    blocks (conv k3, norm, ReLU, conv k3, norm, plus the input, ReLU); reflection-padded conv k3. The networks share
    no weights. There are at least two (``NeutralADOptions``): the contrastive loss needs a rival.
    """

    def __init__(
        self, n_transformations: int, n_channels: int, parametrisation: Parametrisation, generator: torch.Generator
    ) -> None:
        super().__init__()
        self.residual = parametrisation == "residual"
        self.multiplicative = parametrisation == "multiplicative"
        self.n_transformations = n_transformations
        sizes = (n_transformations, n_channels, n_channels)
        self.inwards = conv3_weight(*sizes, generator)
        self.blocks = nn.ModuleList(MaskBlocks(*sizes, generator) for _ in range(N_RESIDUAL_BLOCKS))
        self.outwards = conv3_weight(*sizes, generator)

    def forward(self, x_LBC: Tensor) -> Tensor:
        """Return the views [K, L, B, C] of windows [L, B, C]."""
        x_1LBC = x_LBC.unsqueeze(0)
        m_KLBC = self._masks(x_1LBC)
        if self.multiplicative:
            return torch.sigmoid(m_KLBC) * x_1LBC
        if self.residual:
            return m_KLBC + x_1LBC
        return m_KLBC

    def _masks(self, x_1LBC: Tensor) -> Tensor:
        x_KLBC = x_1LBC.expand(self.n_transformations, -1, -1, -1)
        h_KLBC = instance_norm_relu(convolve3(x_KLBC, self.inwards, 1, True), None)
        for block in self.blocks:
            h_KLBC = block(h_KLBC)
        return convolve3(h_KLBC, self.outwards, 1, True)


class MaskBlocks(nn.Module):
    """One residual block of each of the K mask networks."""

    def __init__(self, n_transformations: int, n_in: int, n_out: int, generator: torch.Generator) -> None:
        super().__init__()
        self.first = conv3_weight(n_transformations, n_in, n_out, generator)
        self.second = conv3_weight(n_transformations, n_in, n_out, generator)

    def forward(self, h_KLBC: Tensor) -> Tensor:
        """Return [K, L, B, C] of inputs of that shape."""
        inner_KLBC = instance_norm_relu(convolve3(h_KLBC, self.first, 1, False), None)
        return instance_norm_relu(convolve3(inner_KLBC, self.second, 1, False), h_KLBC)


def conv3_weight(groups: int, n_in: int, n_out: int, generator: torch.Generator) -> nn.Parameter:
    """Return [G, 3, I, O] weights, uniform within 1/sqrt(3 I), as torch.nn.Conv1d starts."""
    bound = (3 * n_in) ** -0.5
    return nn.Parameter(torch.empty(groups, 3, n_in, n_out).uniform_(-bound, bound, generator=generator))


BASE_WIDTH = 32
MAX_WIDTH = 1024  # the widest of the paper's five settings (6 blocks); keeps long windows trainable
REMAINING_LENGTH = 4


def depth_for_length(length: int) -> int:
    """Return the number of stride-2 blocks that leave at most 4 steps.

    Reproduces all five published settings: 50 and 51 give 4, 182 and 206 give 6, 30 gives 3.

    >>> [depth_for_length(length) for length in (30, 50, 51, 182, 206)]
    [3, 4, 4, 6, 6]
    """
    n_blocks = 0
    while length > REMAINING_LENGTH:
        length = (length + 1) // 2
        n_blocks += 1
    return n_blocks


def lengths_after(length: int, n_blocks: int) -> int:
    """Return the steps left of ``length`` after ``n_blocks`` blocks of stride 2 (k3, padded by 1)."""
    for _ in range(n_blocks):
        length = (length + 1) // 2
    return length


def block_widths(n_blocks: int, base: int = BASE_WIDTH) -> list[int]:
    """Return the output widths: the stride-1 block's, then h * 2^i for i = 0..n-1, none above 1024.

    >>> block_widths(4)
    [32, 32, 64, 128, 256]
    """
    return [base, *(min(base * 2**i, max(base, MAX_WIDTH)) for i in range(n_blocks))]


class EncoderBlock(nn.Module):
    """``relu(conv1(relu(conv3_s(relu(conv1(x))))) + conv3_s(x))``, no bias."""

    def __init__(self, n_in: int, n_out: int, stride: int, generator: torch.Generator) -> None:
        super().__init__()
        self.stride = stride
        self.n_in = n_in
        self.n_out = n_out
        self.inwards = _linear_weight(n_in, n_in, generator)
        self.middle = conv3_weight(1, n_in, n_in, generator)
        self.outwards = _linear_weight(n_in, n_out, generator)
        self.shortcut = conv3_weight(1, n_in, n_out, generator)

    def forward(self, x_1LNI: Tensor) -> Tensor:
        """Return [1, ceil(L / stride), N, O] of [1, L, N, I], computed in the type of ``x``."""
        kind = x_1LNI.dtype
        h = torch.relu_(torch.matmul(x_1LNI, self.inwards.to(kind)))
        h = torch.relu_(convolve3(h, self.middle.to(kind), self.stride, False))
        out = convolve3(x_1LNI, self.shortcut.to(kind), self.stride, False)
        out.view(-1, self.n_out).addmm_(h.view(-1, self.n_in), self.outwards.to(kind))
        return torch.relu_(out)


class Encoder(nn.Module):
    """One block of stride 1, ``n_blocks`` of stride 2, then one conv over the remaining steps, with bias.

    ``trains_in_bfloat16``: the blocks compute in bfloat16 while the model trains; weights are float32 always.
    """

    def __init__(
        self,
        n_channels: int,
        length: int,
        *,
        n_blocks: int,
        embedding_dim: int,
        base_width: int,
        generator: torch.Generator,
        trains_in_bfloat16: bool = False,
    ) -> None:
        super().__init__()
        self.trains_in_bfloat16 = trains_in_bfloat16
        widths = [n_channels, *block_widths(n_blocks, base_width)]
        self.blocks = nn.ModuleList(
            EncoderBlock(n_in, n_out, 1 if i == 0 else 2, generator) for i, (n_in, n_out) in enumerate(pairwise(widths))
        )
        self.n_blocks = n_blocks
        self.embedding_dim = embedding_dim
        self.base_width = base_width
        fan_in = lengths_after(length, n_blocks) * widths[-1]
        self.head = _linear_weight(fan_in, embedding_dim, generator)
        self.bias = nn.Parameter(_uniform((embedding_dim,), fan_in, generator))

    def forward(self, x_LNC: Tensor) -> Tensor:
        """Return the embeddings [N, Z] of [L, N, C]."""
        h_1LNC = x_LNC.unsqueeze(0)
        if self.training and self.trains_in_bfloat16:
            h_1LNC = h_1LNC.to(torch.bfloat16)
        for block in self.blocks:
            h_1LNC = block(h_1LNC)
        h_NF = h_1LNC.squeeze(0).transpose(0, 1).reshape(x_LNC.shape[1], -1).to(x_LNC.dtype)
        return torch.addmm(self.bias, h_NF, self.head)


def _linear_weight(n_in: int, n_out: int, generator: torch.Generator) -> nn.Parameter:
    return nn.Parameter(_uniform((n_in, n_out), n_in, generator))


def _uniform(shape: tuple[int, ...], fan_in: int, generator: torch.Generator) -> Tensor:
    bound = fan_in**-0.5
    return torch.empty(shape).uniform_(-bound, bound, generator=generator)
