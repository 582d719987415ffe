"""NeuTraL AD for rows of a table: bias-free linear mask networks and encoder (paper, section 4.4).

A row is a window of one sample. Legend: B rows, K transformations, D attributes, H hidden width, V = K + 1 views,
Z embedding dimension.
"""  # no postponed annotations: TorchScript reads the types of the buffers

from itertools import pairwise

import torch
from torch import Tensor, nn

from benchmarks.paper.neutral_ad_tabular.options import NeutralADTabularOptions
from streamad_models.neutral_ad.model import TrainableModel, contrastive_terms
from streamad_models.neutral_ad.options import Parametrisation

N_LAYERS = 5


class TabularTransformations(nn.Module):
    """T_1..T_K: feed-forward ``M_k(x)``, residual ``M_k(x) + x``, or multiplicative ``sigmoid(M_k(x)) * x``.

    Each mask network M_k is Linear, ReLU, Linear, no bias; all K are two matrix products.
    """

    def __init__(
        self,
        n_transformations: int,
        n_attributes: int,
        parametrisation: Parametrisation,
        *,
        width: int,
        generator: torch.Generator,
    ) -> None:
        super().__init__()
        self.residual = parametrisation == "residual"
        self.multiplicative = parametrisation == "multiplicative"
        self.inwards = _linear_weights(n_transformations, n_attributes, width, generator)
        self.outwards = _linear_weights(n_transformations, width, n_attributes, generator)

    def forward(self, x_BD: Tensor) -> Tensor:
        """Return the views [K, B, D] of rows [B, D]."""
        h_KBH = torch.relu(torch.matmul(x_BD, self.inwards))
        m_KBD = torch.bmm(h_KBH, self.outwards)
        if self.multiplicative:
            return torch.sigmoid(m_KBD) * x_BD
        if self.residual:
            return m_KBD + x_BD
        return m_KBD


class TabularEncoder(nn.Module):
    """Five bias-free linear layers with ReLU between; with ``batch_norm``, one without affine before each ReLU."""

    def __init__(
        self, n_attributes: int, *, width: int, embedding_dim: int, batch_norm: bool, generator: torch.Generator
    ) -> None:
        super().__init__()
        sizes = [n_attributes, *[width] * (N_LAYERS - 1), embedding_dim]
        layers: list[nn.Module] = []
        for index, (n_in, n_out) in enumerate(pairwise(sizes)):
            layers.append(linear(n_in, n_out, generator))
            if index < N_LAYERS - 1:
                layers += [nn.BatchNorm1d(n_out, affine=False)] if batch_norm else []
                layers.append(nn.ReLU())
        self.layers = nn.Sequential(*layers)
        self.width = width
        self.embedding_dim = embedding_dim

    def forward(self, x_BD: Tensor) -> Tensor:
        """Return the embeddings [B, Z] of rows [B, D]."""
        z_BZ: Tensor = self.layers(x_BD)
        return z_BZ


class TabularModel(TrainableModel):
    """Maps rows to terms; deterministic, scriptable, and in evaluation mode pure per row.

    The scaling is per attribute. The starting weights depend on ``seed`` alone; torch's global generator does not
    change.
    """

    def __init__(self, n_attributes: int, options: NeutralADTabularOptions, seed: int) -> None:
        super().__init__(n_attributes, 1, options.n_transformations)
        generator = torch.Generator().manual_seed(seed)
        widths = options.widths_of(n_attributes)
        self.temperature = options.temperature
        self.transformations = TabularTransformations(
            self.n_terms, n_attributes, options.transformation, width=widths["mask_width"], generator=generator
        )
        self.encoder = TabularEncoder(
            n_attributes,
            width=widths["encoder_width"],
            embedding_dim=widths["embedding_dim"],
            batch_norm=options.batch_norm,
            generator=generator,
        )

    def forward(self, windows_BCL: Tensor, lengths_B: Tensor) -> Tensor:
        """Return terms [B, K] of rows float32 [B, D, 1] in engineering units; lengths (all 1) are not read."""
        x_BD = self.prepare(windows_BCL)
        n, n_attributes = x_BD.shape
        views_VBD = torch.cat([x_BD.unsqueeze(0), self.transformations(x_BD)])
        z_NZ = self.encoder(views_VBD.view((self.n_terms + 1) * n, n_attributes))
        z_BVZ = z_NZ.view(self.n_terms + 1, n, z_NZ.shape[1]).transpose(0, 1)
        return contrastive_terms(z_BVZ, self.temperature)

    def prepare(self, windows_BCL: Tensor) -> Tensor:
        """Return the scaled rows [B, D] of windows [B, D, 1]."""
        x_BD = (windows_BCL[:, :, 0] - self.mean_C) * self.scale_C
        return torch.clamp(x_BD, -self.largest_input, self.largest_input)

    def view_bytes(self) -> int:
        """Return 0: rows are small, and batch norm needs the whole batch."""
        return 0

    def resolved_options(self) -> dict[str, int]:
        """Return the values of the options that may be "auto"."""
        mask_width, encoder = self.transformations.inwards.shape[2], self.encoder
        return {"mask_width": mask_width, "encoder_width": encoder.width, "embedding_dim": encoder.embedding_dim}


def linear(n_in: int, n_out: int, generator: torch.Generator) -> nn.Linear:
    """Return a bias-free layer, uniform within 1/sqrt(I): what torch.nn.Linear starts from, but from ``generator``."""
    layer = nn.Linear(n_in, n_out, bias=False, device="meta").to_empty(device="cpu")  # draws from no generator
    with torch.no_grad():
        layer.weight.uniform_(-(n_in**-0.5), n_in**-0.5, generator=generator)
    return layer


def _linear_weights(groups: int, n_in: int, n_out: int, generator: torch.Generator) -> nn.Parameter:
    """Return [G, I, O] weights as ``linear`` starts them."""
    return nn.Parameter(torch.empty(groups, n_in, n_out).uniform_(-(n_in**-0.5), n_in**-0.5, generator=generator))
