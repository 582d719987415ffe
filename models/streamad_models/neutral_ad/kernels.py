"""The model's two operations: a k3 convolution and an instance norm, G groups at once.

Arrays are time-major, so that a shift in time is a contiguous slice and each tap of a convolution one batched matrix
product that accumulates into the output: no padding, no im2col copy, one layout for batch 1 and batch 256.

Legend: G groups (mask networks; 1 for the encoder), L time, N windows or views, I/O input/output width, T taps (3).
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable


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
