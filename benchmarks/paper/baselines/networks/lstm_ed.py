"""An LSTM encoder-decoder (EncDec-AD; Malhotra et al., "LSTM-based Encoder-Decoder for Multi-sensor Anomaly Detection",
2016, arXiv:1607.00148).

Legend: B windows, C channels, L window length, H hidden width.
"""  # no postponed annotations: TorchScript reads the types of the buffers

import torch
from pydantic import Field, PositiveInt
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence

from benchmarks.paper.baselines.networks.network import (
    BaselineOptions,
    Network,
    NetworkDetector,
    in_chunks,
    mean_over_steps,
    valid_steps,
)
from streamad_models.neutral_ad.data import MIN_LENGTH, check_length

_CHUNK = 1024  # windows at a time


class LstmEncoderDecoderOptions(BaselineOptions):
    """Settings of the encoder-decoder."""

    hidden_dim: PositiveInt = Field(default=64, description="width of the encoder's and the decoder's state")


class LstmNetwork(Network):
    """Reads a sequence, then writes it in reverse order from the last state, as published.

    In training the decoder reads the true values (teacher forcing), when scoring the values that it wrote.
    """

    mean_error_C: Tensor  # noqa: N815 - shape suffixes
    whitening_CC: Tensor  # noqa: N815

    def __init__(self, n_channels: int, length: int, hidden_dim: int) -> None:
        super().__init__(n_channels, length)
        self.encoder = nn.LSTM(n_channels, hidden_dim)
        self.decoder = nn.LSTM(n_channels, hidden_dim)
        self.head = nn.Linear(hidden_dim, n_channels)
        self.register_buffer("mean_error_C", torch.zeros(n_channels))
        self.register_buffer("whitening_CC", torch.eye(n_channels))

    def forward(self, windows_BCL: Tensor, lengths_B: Tensor) -> Tensor:
        """Return terms [B, 1]: the mean squared Mahalanobis distance of the errors, of windows [B, C, L]."""
        distance_LBC = (self._errors(windows_BCL, lengths_B) - self.mean_error_C) @ self.whitening_CC
        return mean_over_steps(distance_LBC.square().sum(2), lengths_B)[:, None]

    def loss(self, windows_BCL: Tensor, lengths_B: Tensor, generator: torch.Generator) -> Tensor:
        """Return the decoder's mean squared error under teacher forcing."""
        target_LBC = self.target(windows_BCL, lengths_B)
        hidden_1BH, cell_1BH = self.state(windows_BCL, lengths_B)
        later_LBH, _ = self.decoder(target_LBC[:-1], (hidden_1BH, cell_1BH))
        written_LBC = self.head(torch.cat([hidden_1BH, later_LBH]))
        return mean_over_steps((target_LBC - written_LBC).square().sum(2), lengths_B).mean()

    def after_training(self, windows_BCL: Tensor, lengths_B: Tensor) -> None:
        """Set mean and covariance of the errors |x - x'|: the published score is their Mahalanobis distance."""
        errors = []
        for part_BCL, part_B in in_chunks(windows_BCL, lengths_B, _CHUNK):
            errors.append(self._errors(part_BCL, part_B)[valid_steps(self.window_length, part_B)])
        error_NC = torch.cat(errors).double()
        self.mean_error_C.copy_(error_NC.mean(0))
        self.whitening_CC.copy_(whitening(error_NC))

    def _errors(self, windows_BCL: Tensor, lengths_B: Tensor) -> Tensor:
        """Return |x - x'| [L, B, C], last valid step first."""
        return torch.abs(self.target(windows_BCL, lengths_B) - self.written(windows_BCL, lengths_B))

    def state(self, windows_BCL: Tensor, lengths_B: Tensor) -> tuple[Tensor, Tensor]:
        """Return the encoder's state [1, B, H] and cell [1, B, H] after each window's last valid step."""
        x_LBC = self.prepare(windows_BCL, lengths_B).permute(2, 0, 1)
        packed = pack_padded_sequence(x_LBC, lengths_B.cpu(), enforce_sorted=False)
        _, (hidden_1BH, cell_1BH) = self.encoder(packed)
        return hidden_1BH, cell_1BH

    def target(self, windows_BCL: Tensor, lengths_B: Tensor) -> Tensor:
        """Return the values that the decoder should write: the scaled windows [L, B, C], last valid step first."""
        x_LBC = self.prepare(windows_BCL, lengths_B).permute(2, 0, 1)
        steps_LB = lengths_B[None, :] - 1 - torch.arange(self.window_length, device=lengths_B.device)[:, None]
        index_LBC = torch.clamp(steps_LB, min=0)[:, :, None].expand(-1, -1, self.n_channels)
        return torch.gather(x_LBC, 0, index_LBC)

    def written(self, windows_BCL: Tensor, lengths_B: Tensor) -> Tensor:
        """Return the decoder's output [L, B, C] if it reads its own values."""
        hidden_1BH, cell_1BH = self.state(windows_BCL, lengths_B)
        written = [self.head(hidden_1BH)]
        for _ in range(self.window_length - 1):
            later_1BH, (hidden_1BH, cell_1BH) = self.decoder(written[-1], (hidden_1BH, cell_1BH))
            written.append(self.head(later_1BH))
        return torch.cat(written)


def whitening(error_NC: Tensor) -> Tensor:
    """Return W [C, C] with W W^T the inverse of the errors' covariance; a ridge keeps constant channels finite."""
    centred_NC = error_NC - error_NC.mean(0)
    covariance_CC = centred_NC.T @ centred_NC / len(error_NC)
    ridge = 1e-6 * covariance_CC.diagonal().mean() + 1e-12
    covariance_CC.diagonal().add_(ridge)
    factor_CC = torch.linalg.cholesky(covariance_CC)
    inverse_CC: Tensor = torch.linalg.inv(factor_CC)
    return inverse_CC.T


class LstmEncoderDecoder(NetworkDetector[LstmEncoderDecoderOptions]):
    """Scores a sequence by how badly it is written back; sequences only.

    As published, the sequence is written in reverse order, and an error vector |x - x'| counts by its Mahalanobis
    distance from the errors of normal sequences. Here those are the training windows, since small sets cannot spare a
    validation set; a sequence's score is the mean over its valid steps, so that its length does not count.
    """

    options_model = LstmEncoderDecoderOptions

    def build(self, n_channels: int, length: int, generator: torch.Generator) -> LstmNetwork:
        """Return the untrained network. Raises TrainingDataError for windows of one step."""
        check_length(length, MIN_LENGTH, "the LSTM encoder-decoder")
        return LstmNetwork(n_channels, length, self.options.hidden_dim)
