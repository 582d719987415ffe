"""MiniRocket's features in torch: shares of positive values of fixed dilated convolutions.

Dempster, Schmidt and Webb, "MiniRocket", KDD 2021 (arXiv:2012.08791). Legend: B windows, C channels, L window length,
K kernels (84), F kernels of one padding (42), T taps (9), Q biases a kernel and dilation, D features.
"""

from itertools import combinations

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from torch import Tensor, nn

N_TAPS = 9
N_KERNELS = 84
_MAX_DILATIONS = 32
_MAX_CHANNELS = 9  # of one kernel
_WIDTH = 0.01  # of the standard deviation of a kernel's values: between "not above" and "above" a bias
_LEAST_WIDTH = 2.0**-12  # 2,048 units in the last place of a sum of absolute products
_POOLED_WINDOWS = 8  # whose values give a kernel's biases; the paper takes those of one window


class MiniRocket(nn.Module):
    """Maps windows [B, C, L], zero from their ends on, to features [B, D] within 0..1.

    Each kernel has two taps' worth of weight -1 and three of weight 2, so that it sums to 0 and sees no constant level.
    Half of the kernels of a dilation see the window zero-padded, half only the places that need no padding.
    """

    def __init__(self, dilations: list["Dilation"]) -> None:
        super().__init__()
        self.dilations = nn.ModuleList(dilations)
        self.n_features = sum(N_KERNELS * each.bias_padded_FQ.shape[1] for each in dilations)

    def forward(self, x_BCL: Tensor, lengths_B: Tensor) -> Tensor:
        """Return the features [B, D]; the true lengths are not used."""
        features: list[Tensor] = []
        for dilation in self.dilations:
            features.append(dilation(x_BCL))
        return torch.cat(features, dim=1)


class Dilation(nn.Module):
    """All kernels at one dilation; the weights are -1 and 2 at a kernel's channels, else 0, divided by its width.

    Every second kernel sees the window padded: the even ones at a dilation of even ``index``.
    """

    def __init__(self, index: int, dilation: int, weight_KCT: Tensor, bias_KQ: Tensor, length: int) -> None:
        super().__init__()
        self.dilation = dilation
        self.inside_padding = 0 if length > (N_TAPS - 1) * dilation else dilation * (N_TAPS // 2)
        is_padded_K = (index + torch.arange(N_KERNELS)) % 2 == 0
        self.register_buffer("weight_padded_FCT", weight_KCT[is_padded_K])
        self.register_buffer("weight_inside_FCT", weight_KCT[~is_padded_K])
        self.register_buffer("bias_padded_FQ", bias_KQ[is_padded_K])
        self.register_buffer("bias_inside_FQ", bias_KQ[~is_padded_K])

    weight_padded_FCT: Tensor  # noqa: N815 - a shape suffix
    weight_inside_FCT: Tensor  # noqa: N815
    bias_padded_FQ: Tensor  # noqa: N815
    bias_inside_FQ: Tensor  # noqa: N815

    def forward(self, x_BCL: Tensor) -> Tensor:
        """Return the features [B, 2 F Q]."""
        padded_BFL = F.conv1d(x_BCL, self.weight_padded_FCT, dilation=self.dilation, padding=4 * self.dilation)
        inside_BFL = F.conv1d(x_BCL, self.weight_inside_FCT, dilation=self.dilation, padding=self.inside_padding)
        shares_BFQ = _share_above(padded_BFL, self.bias_padded_FQ)
        inside_BFQ = _share_above(inside_BFL, self.bias_inside_FQ)
        return torch.cat([shares_BFQ.flatten(1), inside_BFQ.flatten(1)], dim=1)


def _share_above(values_BFL: Tensor, bias_FQ: Tensor) -> Tensor:
    """Return the share [B, F, Q] of the values [B, F, L] above each bias; a value counts in part up to 1 above it."""
    above_BFQL = (values_BFL.unsqueeze(2) - bias_FQ.unsqueeze(2)).clamp_(0.0, 1.0)
    counts_BFQ1 = torch.matmul(above_BFQL, values_BFL.new_ones([values_BFL.shape[2], 1]))
    return counts_BFQ1.squeeze(3) / values_BFL.shape[2]


class SummedDilation(nn.Module):
    """Maps windows as the ``Dilation`` that it is made of; its features differ by rounding alone.

    A kernel has the same taps at each of its channels, so their sum is convolved: a sixth of the multiplications at 24
    channels. Counts run over places with all kernels side by side. OpenVINO takes half as long so, TorchScript and ONNX
    Runtime longer.
    """

    used_KC1: Tensor  # noqa: N815 - a shape suffix
    taps_K1T: Tensor  # noqa: N815
    bias_padded_FQ: Tensor  # noqa: N815
    bias_inside_FQ: Tensor  # noqa: N815

    def __init__(self, given: Dilation) -> None:
        super().__init__()
        weight_KCT = torch.cat([given.weight_padded_FCT, given.weight_inside_FCT])
        is_used_KC = weight_KCT.abs().sum(dim=2) > 0
        first_K = is_used_KC.to(torch.float32).argmax(dim=1)
        self.dilation, self.outside = given.dilation, N_TAPS // 2 * given.dilation - given.inside_padding
        self.register_buffer("used_KC1", is_used_KC.to(weight_KCT.dtype).unsqueeze(2))
        self.register_buffer("taps_K1T", weight_KCT[torch.arange(len(first_K)), first_K].unsqueeze(1).clone())
        self.register_buffer("bias_padded_FQ", given.bias_padded_FQ)
        self.register_buffer("bias_inside_FQ", given.bias_inside_FQ)

    def forward(self, x_BCL: Tensor) -> Tensor:
        """Return the features [B, 2 F Q]."""
        sums_BKL = F.conv1d(x_BCL, self.used_KC1)
        padding = N_TAPS // 2 * self.dilation
        values_BKL = F.conv1d(sums_BKL, self.taps_K1T, dilation=self.dilation, padding=padding, groups=N_KERNELS)
        half = self.bias_padded_FQ.shape[0]
        inside_BFL = values_BKL[:, half:, self.outside : x_BCL.shape[2] - self.outside]
        shares_BFQ = _share_by_place(values_BKL[:, :half], self.bias_padded_FQ)
        inside_BFQ = _share_by_place(inside_BFL, self.bias_inside_FQ)
        return torch.cat([shares_BFQ.flatten(1), inside_BFQ.flatten(1)], dim=1)


def _share_by_place(values_BFL: Tensor, bias_FQ: Tensor) -> Tensor:
    """Return what ``_share_above`` returns."""
    above_BLFQ = torch.clamp(values_BFL.transpose(1, 2).unsqueeze(3) - bias_FQ, 0.0, 1.0)
    return above_BLFQ.sum(dim=1) / values_BFL.shape[2]


def fit_minirocket(x_NCL: Tensor, n_features: int, rng: np.random.Generator) -> MiniRocket:
    """Return the features with dilations for the windows' length and biases from their values.

    ``n_features`` is rounded down to a multiple of the 84 kernels. A kernel's biases are quantiles of its values in
    up to eight windows drawn by ``rng``; its channels are drawn, too: up to nine, small numbers more often.

    A value counts as above a bias in part, up to a width above it, where the paper has a step: the order of a sum must
    not decide a feature. The ramp begins half a width above the quantile: a stretch that channels are held over gives
    0 up to rounding, and so quantiles of 0, and counts as not above.
    """
    n_channels, length = x_NCL.shape[1], x_NCL.shape[2]
    dilations, counts = _dilations(length, max(n_features // N_KERNELS, 1))
    golden, first = (np.sqrt(5) + 1) / 2, 1
    made = []
    for index, (dilation, count) in enumerate(zip(dilations, counts, strict=True)):
        weight_KCT = _weights(n_channels, rng)
        quantiles_KQ = (np.arange(first, first + N_KERNELS * count).reshape(N_KERNELS, count) * golden) % 1
        first += N_KERNELS * count
        bias_KQ, width_K = _biases(x_NCL, weight_KCT, dilation, quantiles_KQ, rng)
        made.append(Dilation(index, dilation, weight_KCT / width_K[:, None, None], bias_KQ, length))
    return MiniRocket(made)


def _dilations(length: int, n_biases: int) -> tuple[list[int], list[int]]:
    """Return the dilations, spread exponentially up to the window's length, and each one's number of biases."""
    n_most = min(n_biases, _MAX_DILATIONS)
    largest = np.log2(max((length - 1) / (N_TAPS - 1), 1.0))
    spread = np.logspace(0, largest, n_most, base=2).astype(np.int64)
    dilations, shares = np.unique(spread, return_counts=True)
    counts = (shares * (n_biases / n_most)).astype(np.int64)
    for place in range(n_biases - int(counts.sum())):
        counts[place % len(counts)] += 1
    return dilations.tolist(), counts.tolist()


def _weights(n_channels: int, rng: np.random.Generator) -> Tensor:
    weight_KCT = torch.zeros(N_KERNELS, n_channels, N_TAPS)
    for kernel, taps in enumerate(combinations(range(N_TAPS), 3)):
        n_used = int(2 ** rng.uniform(0, np.log2(min(n_channels, _MAX_CHANNELS) + 1)))
        for channel in rng.choice(n_channels, n_used, replace=False).tolist():
            weight_KCT[kernel, channel] = -1.0
            weight_KCT[kernel, channel, list(taps)] = 2.0
    return weight_KCT


def _biases(
    x_NCL: Tensor, weight_KCT: Tensor, dilation: int, quantiles_KQ: npt.NDArray[np.float64], rng: np.random.Generator
) -> tuple[Tensor, Tensor]:
    """Return where the ramps begin [K, Q], in widths, and the widths [K]."""
    drawn = torch.from_numpy(rng.choice(len(x_NCL), min(_POOLED_WINDOWS, len(x_NCL)), replace=False))
    values_PKL = F.conv1d(x_NCL[drawn], weight_KCT, dilation=dilation, padding=N_TAPS // 2 * dilation)
    values_KV = values_PKL.transpose(0, 1).flatten(1).numpy().astype(np.float64)
    quantiles = np.stack([np.quantile(values, each) for values, each in zip(values_KV, quantiles_KQ, strict=True)])
    largest_C = x_NCL[drawn].abs().amax(dim=(0, 2))
    sums_K = (weight_KCT.abs().sum(dim=2) @ largest_C).numpy().astype(np.float64)
    width_K = np.maximum(np.maximum(_WIDTH * values_KV.std(axis=1), _LEAST_WIDTH * sums_K), 1e-6)
    bias_KQ = quantiles / width_K[:, None] + 0.5
    return torch.from_numpy(bias_KQ.astype(np.float32)), torch.from_numpy(width_K.astype(np.float32))
