"""Deep SVDD: windows embedded close to one centre; the distance from it is the score.

Legend: B windows, C channels, L window length, Z embedding dimension, D attributes of a table's row.
"""  # no postponed annotations: TorchScript reads the types of the buffers

import torch
from pydantic import Field, PositiveFloat, PositiveInt
from torch import Tensor, nn

from benchmarks.paper.baselines.networks.network import (
    Network,
    NetworkDetector,
    NetworkOptions,
    embed_shape,
    in_chunks,
    make_encoder,
    run_epochs,
)
from benchmarks.paper.neutral_ad_tabular.model import TabularEncoder
from streamad_models.neutral_ad.networks import Encoder

_LEAST_SHARE = 0.1  # of the embeddings' root mean square: no entry of the centre is closer to zero
_CHUNK = 256


class DeepSvddOptions(NetworkOptions):
    """Training as published for one-class Deep SVDD: 150 epochs, the rate a tenth after 50, weight decay 0.5e-6.

    As published, a table's encoder is trained as an autoencoder first, with the same settings, and its columns should
    be standardised (``scaling``, unless they are). The paper names no decoder of sequences, so that their encoder has
    no such training.
    """

    epochs: PositiveInt = 150
    learning_rate: PositiveFloat = 1e-4
    tenth_rate_from: PositiveInt | None = 51
    weight_decay: float = Field(default=0.5e-6, ge=0)
    pretraining: bool = Field(default=True, description="of the encoder as an autoencoder, on tables")


class DeepSvddNetwork(Network):
    """The encoder without bias, and the centre: terms [B, 1] are squared distances of embeddings from it."""

    centre_Z: Tensor  # noqa: N815

    def __init__(self, n_channels: int, length: int, options: DeepSvddOptions, generator: torch.Generator) -> None:
        super().__init__(n_channels, length)
        self.options = options
        self.encoder = make_encoder(options, n_channels, length, generator)
        _without_bias(self.encoder)
        self.pretraining_seed = int(torch.randint(2**31, (1,), generator=generator))
        self.register_buffer("centre_Z", torch.zeros(options.embedding_dim))

    def forward(self, windows_BCL: Tensor, lengths_B: Tensor) -> Tensor:
        """Return the squared distance of each window's embedding from the centre, [B, 1]."""
        z_BZ: Tensor = self.encoder(embed_shape(self.prepare(windows_BCL, lengths_B)))
        return (z_BZ - self.centre_Z).square().sum(dim=1, keepdim=True)

    def before_training(self, windows_BCL: Tensor, lengths_B: Tensor) -> None:
        """Set the centre to the untrained encoder's mean embedding, with its entries moved away from zero.

        Weights of zero could reach an entry of zero. The published distance is 0.1, for networks whose batch norm makes
        embeddings of order one; this encoder has none and gives hundredths, hence a share of their root mean square.
        """
        if self.window_length == 1 and self.options.pretraining:
            self._train_as_autoencoder(windows_BCL, lengths_B)
        was_training = self.encoder.training
        self.encoder.eval()
        parts = in_chunks(windows_BCL, lengths_B, _CHUNK)
        z_NZ = torch.cat([self.encoder(embed_shape(self.prepare(*part))) for part in parts])
        centre_Z, least = z_NZ.mean(dim=0), _LEAST_SHARE * z_NZ.square().mean().sqrt()
        pushed_Z = torch.where(centre_Z < 0, -least, least)
        self.centre_Z.copy_(torch.where(centre_Z.abs() < least, pushed_Z, centre_Z))
        self.encoder.train(was_training)

    def _train_as_autoencoder(self, rows_BD1: Tensor, lengths_B: Tensor) -> None:
        generator = torch.Generator().manual_seed(self.pretraining_seed)
        autoencoder = RowAutoencoder(self, self.options, generator).to(rows_BD1.device)
        with torch.enable_grad():
            run_epochs(autoencoder, self.options, rows_BD1, lengths_B, generator=generator)


class RowAutoencoder(Network):
    """A network's encoder of rows and a mirrored decoder: terms [B, 1] are squared errors of reconstruction."""

    def __init__(self, network: DeepSvddNetwork, options: DeepSvddOptions, generator: torch.Generator) -> None:
        super().__init__(network.n_channels, 1)
        self.mean_C.copy_(network.mean_C)
        self.scale_C.copy_(network.scale_C)
        self.encoder = network.encoder
        self.decoder = TabularEncoder(
            options.embedding_dim,
            width=options.tabular_width,
            embedding_dim=network.n_channels,
            batch_norm=options.tabular_norm,
            generator=generator,
        )

    def forward(self, windows_BCL: Tensor, lengths_B: Tensor) -> Tensor:
        """Return each row's squared error [B, 1]."""
        x_BD = embed_shape(self.prepare(windows_BCL, lengths_B))
        back_BD: Tensor = self.decoder(self.encoder(x_BD))
        return (back_BD - x_BD).square().sum(dim=1, keepdim=True)


class DeepSvdd(NetworkDetector[DeepSvddOptions]):
    """One-class Deep SVDD (Ruff et al., Deep One-Class Classification, ICML 2018) on NeuTraL AD's encoder.

    The encoder has no bias, since one could make every embedding the centre. Higher scores are more anomalous.
    """

    options_model = DeepSvddOptions
    network = DeepSvddNetwork


def _without_bias(encoder: nn.Module) -> None:
    """Hold the bias of the sequence encoder's last layer at zero; the tabular one has none."""
    if isinstance(encoder, Encoder):
        with torch.no_grad():
            encoder.bias.zero_()
        encoder.bias.requires_grad_(False)
