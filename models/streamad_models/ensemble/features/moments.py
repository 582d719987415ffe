"""A few statistics of each channel over a whole window, and the window's length: what a control chart of batches shows.

Legend: B windows, C channels, L window length.
"""

import torch
from torch import Tensor, nn

from streamad_models.ensemble.model import LARGEST_READING

_A_CHANNEL = 6
_TINY = 1e-6  # keeps a root's slope bounded where a channel stands still; torch's export to ONNX drops 1e-8


class Moments(nn.Module):
    """Maps windows [B, C, L] with lengths [B] to features [B, 6 C + 1].

    Of each channel mean, standard deviation, smallest and largest reading, last less first reading, and the standard
    deviation of the changes from sample to sample; of the window its length as a share of L.
    """

    steps_L: Tensor  # noqa: N815 - a shape suffix

    def __init__(self, n_channels: int, length: int) -> None:
        super().__init__()
        self.n_features = _A_CHANNEL * n_channels + 1
        self.length = length
        self.beyond, self.tiny = 2.0 * LARGEST_READING, _TINY
        self.register_buffer("steps_L", torch.arange(length), persistent=False)

    def forward(self, x_BCL: Tensor, lengths_B: Tensor) -> Tensor:
        """Return the features [B, D]."""
        inside_B1L = (self.steps_L < lengths_B.unsqueeze(1)).to(torch.float32).unsqueeze(1)
        n_B11 = lengths_B.to(torch.float32)[:, None, None]
        mean_BC1 = (x_BCL * inside_B1L).sum(dim=2, keepdim=True) / n_B11
        apart_BCL = (x_BCL - mean_BC1) * inside_B1L
        spread_BC = torch.sqrt((apart_BCL * apart_BCL).sum(dim=2) / n_B11[:, :, 0] + self.tiny)
        beyond_B1L = (1.0 - inside_B1L) * self.beyond
        smallest_BC, largest_BC = (x_BCL + beyond_B1L).amin(dim=2), (x_BCL - beyond_B1L).amax(dim=2)
        last_B1L = (self.steps_L == lengths_B.unsqueeze(1) - 1).to(torch.float32).unsqueeze(1)
        way_BC = (x_BCL * last_B1L).sum(dim=2) - x_BCL[:, :, 0]
        change_BCl = (x_BCL[:, :, 1:] - x_BCL[:, :, :-1]) * inside_B1L[:, :, 1:]
        n_changes_B1 = torch.clamp(n_B11[:, :, 0] - 1.0, min=1.0)
        usual_BC1 = change_BCl.sum(dim=2, keepdim=True) / n_changes_B1.unsqueeze(2)
        uneven_BCl = (change_BCl - usual_BC1) * inside_B1L[:, :, 1:]
        changes_BC = torch.sqrt((uneven_BCl * uneven_BCl).sum(dim=2) / n_changes_B1 + self.tiny)
        duration_B1 = lengths_B.to(torch.float32).unsqueeze(1) / self.length
        parts = [mean_BC1[:, :, 0], spread_BC, smallest_BC, largest_BC, way_BC, changes_BC, duration_B1]
        return torch.cat(parts, dim=1)
