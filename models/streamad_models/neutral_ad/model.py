"""The whole model from engineering units to terms: scaling, transformations, encoder, contrastive terms.

The contrastive loss is deterministic, and it is the anomaly score, too (paper, equations 2 and 3).
Legend: B windows, K transformations, V = K + 1 views (the original first), C channels, L window length, N = V B views,
Z embedding dimension.
"""

import math
from abc import ABC, abstractmethod

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from streamad_models.neutral_ad.networks import Encoder, Transformations, depth_for_length
from streamad_models.neutral_ad.options import NeutralADOptions

FORMAT = 1
LARGEST_INPUT = 1e9  # keeps every product inside float32, so that finite windows always have finite terms


class ScaledModel(nn.Module):
    """The constants of a scriptable model: format, shape of its windows, number of terms, and scaling.

    ``mean_C`` and ``scale_C`` are the per-channel scaling: ``(x - mean) * scale`` before everything else.
    """

    mean_C: Tensor  # noqa: N815 - a shape suffix
    scale_C: Tensor  # noqa: N815

    def __init__(self, n_channels: int, length: int, n_terms: int) -> None:
        super().__init__()
        self.streamad_format = FORMAT
        self.largest_input = LARGEST_INPUT
        self.n_channels = n_channels
        self.window_length = length
        self.n_terms = n_terms
        self.register_buffer("mean_C", torch.zeros(n_channels))
        self.register_buffer("scale_C", torch.ones(n_channels))


class TrainableModel(ScaledModel, ABC):
    """A model that ``training`` can train, whatever its networks are made of."""

    @abstractmethod
    def view_bytes(self) -> int:
        """Return the bytes of the widest array of one window's views in training; 0 if no batch may be divided."""

    @abstractmethod
    def resolved_options(self) -> dict[str, int]:
        """Return the values of the options that may be "auto"."""


class NeutralADModel(TrainableModel):
    """Maps windows to terms; pure per window, deterministic, scriptable.

    The starting weights depend on ``seed`` alone; torch's global generator does not change. L is at least 2
    (``check_training_data``).
    """

    steps_L11: Tensor  # noqa: N815 - a shape suffix

    def __init__(self, n_channels: int, length: int, options: NeutralADOptions, seed: int) -> None:
        super().__init__(n_channels, length, options.n_transformations)
        generator = torch.Generator().manual_seed(seed)
        n_blocks = depth_for_length(length) if options.n_blocks == "auto" else options.n_blocks
        embedding_dim = 64 if options.embedding_dim == "auto" else options.embedding_dim
        self.temperature = options.temperature
        self.register_buffer("steps_L11", torch.arange(length)[:, None, None], persistent=False)
        self.transformations = Transformations(options.n_transformations, n_channels, options.transformation, generator)
        self.encoder = Encoder(
            n_channels,
            length,
            n_blocks=n_blocks,
            embedding_dim=embedding_dim,
            base_width=options.base_width,
            generator=generator,
            trains_in_bfloat16=options.precision == "bfloat16",
        )

    def forward(self, windows_BCL: Tensor, lengths_B: Tensor) -> Tensor:
        """Return terms [B, K] of windows float32 [B, C, L] in engineering units with true lengths int64 [B]."""
        return contrastive_terms(self.embeddings(windows_BCL, lengths_B), self.temperature)

    def embeddings(self, windows_BCL: Tensor, lengths_B: Tensor) -> Tensor:
        """Return the embeddings [B, K + 1, Z] of the views of windows in engineering units, the original first."""
        x_LBC = self.prepare(windows_BCL, lengths_B)
        length, n, channels = x_LBC.shape
        views_KLBC = self.transformations(x_LBC)
        views_LVBC = torch.cat([x_LBC.unsqueeze(0), views_KLBC]).transpose(0, 1)
        z_NZ: Tensor = self.encoder(views_LVBC.reshape(length, (self.n_terms + 1) * n, channels))
        return z_NZ.view(self.n_terms + 1, n, z_NZ.shape[1]).transpose(0, 1)

    def prepare(self, windows_BCL: Tensor, lengths_B: Tensor) -> Tensor:
        """Return the scaled windows time-major [L, B, C], zero from each window's length on."""
        x_LBC = (windows_BCL.permute(2, 0, 1) - self.mean_C) * self.scale_C
        x_LBC = torch.clamp(x_LBC, -self.largest_input, self.largest_input)
        return x_LBC.masked_fill(self.steps_L11 >= lengths_B[None, :, None], 0.0)

    def view_bytes(self) -> int:
        """Return the bytes of the widest array of one window's views in training."""
        return 4 * (self.n_terms + 1) * self.window_length * max(self.n_channels, self.encoder.base_width)

    def resolved_options(self) -> dict[str, int]:
        """Return the values of the options that may be "auto"."""
        return {"n_blocks": self.encoder.n_blocks, "embedding_dim": self.encoder.embedding_dim}


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
