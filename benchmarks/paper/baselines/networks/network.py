"""The base of the deep baselines: one torch module, trained by Adam, exported as TorchScript, served like any model.

Legend: N training windows, B windows, C channels, L window length, K terms (1 if a score has no parts), Z embedding.
"""  # no postponed annotations: TorchScript reads the types of the buffers

import math
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal, Self, TypeVar

import torch
from pydantic import BaseModel, ConfigDict, Field, PositiveFloat, PositiveInt, model_validator
from torch import Tensor, nn

from benchmarks.paper.baselines.data import MIN_SEQUENCES
from benchmarks.paper.neutral_ad_tabular.model import TabularEncoder
from streamad.errors import DetectorError
from streamad.ports import TrainingProgress, TrainingStep, TrainingSummary
from streamad.types import WindowSet
from streamad_models.detector import TorchScriptDetector
from streamad_models.fitted import FittedModule
from streamad_models.neutral_ad.data import check_windows
from streamad_models.neutral_ad.model import ScaledModel
from streamad_models.neutral_ad.networks import Encoder, depth_for_length
from streamad_models.neutral_ad.options import MAX_AUTO_BATCH
from streamad_models.neutral_ad.training import set_scaling, tensors_of
from streamad_models.torchscript import resolve_device

_LEAST_AUTO_BATCH = 2  # of one row, batch norm has no variance


class BaselineOptions(BaseModel):
    """Settings of every deep baseline's training; the defaults are those of NeuTraL AD."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    scaling: Literal["standard", "none"] = Field(default="none", description="per channel, on training windows")
    epochs: PositiveInt = 100
    learning_rate: PositiveFloat = 1e-3
    tenth_rate_from: PositiveInt | None = Field(default=None, description="epoch from which the rate is a tenth")
    weight_decay: float = Field(default=1e-5, ge=0)
    batch_size: Literal["auto"] | PositiveInt = Field(default="auto", description="auto = a quarter, within 2..256")

    def batch_size_of(self, n_windows: int) -> int:
        """Return the batch size for so many training windows; never more than there are."""
        if self.batch_size == "auto":
            return min(max(n_windows // 4, _LEAST_AUTO_BATCH), MAX_AUTO_BATCH)
        return min(self.batch_size, n_windows)


class NetworkOptions(BaselineOptions):
    """Settings of every baseline that embeds windows with NeuTraL AD's encoder, with the encoder's defaults."""

    embedding_dim: PositiveInt = Field(default=64, description="z, the width of the encoder's output")
    n_blocks: Literal["auto"] | Annotated[int, Field(ge=0, le=16)] = Field(
        default="auto", description="stride-2 blocks; auto = from the length"
    )
    base_width: PositiveInt = Field(default=32, description="width of the encoder's first blocks")
    tabular_width: PositiveInt = Field(default=64, description="hidden width of the encoder if L is 1")
    tabular_norm: bool = Field(default=False, description="batch norm without affine in that encoder")
    precision: Literal["float32", "bfloat16"] = Field(
        default="float32",
        description="of a sequence encoder's products in training; tables and scores are float32 always",
    )

    @model_validator(mode="after")
    def _batch_norm_needs_two_rows(self) -> Self:
        if self.tabular_norm and self.batch_size == 1:
            raise ValueError("batch_size 1: batch norm needs at least 2 rows a batch")
        return self


OptionsT = TypeVar("OptionsT", bound=BaselineOptions)


class Network(ScaledModel, ABC):
    """A scriptable model: ``forward`` maps windows to terms, purely per window; training minimises ``loss``.

    The export holds ``forward`` and the functions that it calls. Buffers hold the score's constants besides weights; a
    module that annotates one has no ``from __future__ import annotations``, which TorchScript cannot read.
    """

    def __init__(self, n_channels: int, length: int, n_terms: int = 1) -> None:
        super().__init__(n_channels, length, n_terms)

    def prepare(self, windows_BCL: Tensor, lengths_B: Tensor) -> Tensor:
        """Return the scaled windows [B, C, L], zero from each window's length on."""
        x_BCL = (windows_BCL - self.mean_C[:, None]) * self.scale_C[:, None]
        x_BCL = torch.clamp(x_BCL, -self.largest_input, self.largest_input)
        steps_L = torch.arange(self.window_length, device=x_BCL.device)
        return x_BCL.masked_fill(steps_L >= lengths_B[:, None, None], 0.0)

    @abstractmethod
    def forward(self, windows_BCL: Tensor, lengths_B: Tensor) -> Tensor:
        """Return terms [B, K] of windows float32 [B, C, L] in engineering units; higher is more anomalous."""

    def loss(self, windows_BCL: Tensor, lengths_B: Tensor, generator: torch.Generator) -> Tensor:
        """Return the training loss of a batch, by default the mean score; ``generator`` (on the CPU) draws it."""
        terms_BK: Tensor = self(windows_BCL, lengths_B)
        return terms_BK.sum(dim=1).mean()

    def before_training(self, windows_BCL: Tensor, lengths_B: Tensor) -> None:
        """Set the constants of the loss (a centre, say) from all training windows; gradients are off."""

    def begin_epoch(self, epoch: int) -> None:
        """Prepare for ``epoch`` (the first is 1), if the loss depends on it."""

    def after_training(self, windows_BCL: Tensor, lengths_B: Tensor) -> None:
        """Set the constants of the score (a covariance, say) from all training windows; gradients are off."""


class NetworkDetector(TorchScriptDetector[OptionsT]):
    """A detector (``streamad.ports.Detector``) around one ``Network``: a subclass names its class or builds it."""

    network: type[Any]

    def build(self, n_channels: int, length: int, generator: torch.Generator) -> Network:
        """Return the untrained network; its starting weights depend on ``generator`` alone.

        Raises TrainingDataError if windows are too short for it.
        """
        network: Network = self.network(n_channels, length, self.options, generator)
        return network

    def choose(self, data: WindowSet, seed: int, device: str) -> Self:
        """Return the detector that trains on ``data``: this one, unless an option is still to be chosen."""
        return self

    def fit(
        self,
        data: WindowSet,
        *,
        seed: int,
        device: str = "auto",
        progress: TrainingProgress | None = None,
        resume: Path | None = None,
    ) -> FittedModule:
        """Train on ``data``, deterministic per seed on a CPU; the caller's random state does not change.

        ``resume`` is not used: every training begins anew. Raises TrainingDataError, DetectorError.
        """
        check_windows(data, MIN_SEQUENCES)
        started_s = time.perf_counter()
        chosen = self.choose(data, seed, device)
        chosen_s = time.perf_counter() - started_s
        target, generator, options = resolve_device(device), torch.Generator().manual_seed(seed), chosen.options
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(seed)  # some layers of torch draw their weights from it
            network = chosen.build(data.values.shape[1], data.values.shape[2], generator)
        set_scaling(network, data, options.scaling)
        network.to(target)
        began_s = time.perf_counter() - chosen_s
        windows, lengths = tensors_of(data, target)
        network.train()
        with torch.no_grad():
            network.before_training(windows, lengths)
        loss = run_epochs(network, options, windows, lengths, generator=generator, progress=progress)
        network.eval()
        with torch.no_grad():
            network.after_training(windows, lengths)
        resolved = {"batch_size": options.batch_size_of(len(data)), "seed": seed, "torch": torch.__version__}
        summary = TrainingSummary(
            n_sequences=len(data),
            n_epochs=options.epochs,
            best_epoch=options.epochs,
            best_loss=loss,
            duration_s=time.perf_counter() - began_s,
            device=str(target),
            settings={**options.model_dump(mode="json"), **resolved},
        )
        return FittedModule(network, summary, data)


def run_epochs(
    network: Network,
    options: BaselineOptions,
    windows_NCL: Tensor,
    lengths_N: Tensor,
    *,
    generator: torch.Generator,
    progress: TrainingProgress | None = None,
) -> float:
    """Train ``network`` in place; return the last epoch's mean loss. Raises DetectorError if it diverges."""
    optimizer = torch.optim.Adam(
        network.parameters(), lr=options.learning_rate, weight_decay=options.weight_decay, fused=True
    )
    size, loss = options.batch_size_of(len(windows_NCL)), math.inf
    for epoch in range(1, options.epochs + 1):
        if epoch == options.tenth_rate_from:
            optimizer.param_groups[0]["lr"] = options.learning_rate / 10
        network.begin_epoch(epoch)
        order = torch.randperm(len(windows_NCL), generator=generator).to(windows_NCL.device)
        losses = []
        for batch in torch.split(order, size):
            if len(batch) < size:
                break
            optimizer.zero_grad(set_to_none=True)
            value = network.loss(windows_NCL[batch], lengths_N[batch], generator)
            value.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            losses.append(value.detach())
        loss = float(torch.stack(losses).mean())
        if not math.isfinite(loss):
            raise DetectorError(f"training diverged in epoch {epoch} (loss {loss}): lower learning_rate")
        if progress:
            progress(TrainingStep(epoch, options.epochs, loss))
    return loss


def in_chunks(windows_NCL: Tensor, lengths_N: Tensor, size: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Return the windows and their lengths, ``size`` at a time."""
    return zip(torch.split(windows_NCL, size), torch.split(lengths_N, size), strict=True)


def make_encoder(
    options: NetworkOptions, n_channels: int, length: int, generator: torch.Generator, *, n_outputs: int | None = None
) -> nn.Module:
    """Return NeuTraL AD's encoder for the windows: ``encoder(embed_shape(x_BCL))`` is [B, Z].

    For L = 1 (a table's rows as windows of one sample) it is the tabular one. ``n_outputs`` takes the place of Z.
    """
    n_outputs = options.embedding_dim if n_outputs is None else n_outputs
    if length == 1:
        return TabularEncoder(
            n_channels,
            width=options.tabular_width,
            embedding_dim=n_outputs,
            batch_norm=options.tabular_norm,
            generator=generator,
        )
    n_blocks = depth_for_length(length) if options.n_blocks == "auto" else options.n_blocks
    return Encoder(
        n_channels,
        length,
        n_blocks=n_blocks,
        embedding_dim=n_outputs,
        base_width=options.base_width,
        generator=generator,
        trains_in_bfloat16=options.precision == "bfloat16",
    )


def embed_shape(x_BCL: Tensor) -> Tensor:
    """Return windows [B, C, L] as the encoders take them: [L, B, C], or [B, C] if L is 1. Scriptable."""
    if x_BCL.shape[2] == 1:
        return x_BCL[:, :, 0]
    return x_BCL.permute(2, 0, 1)


def valid_steps(length: int, lengths_B: Tensor) -> Tensor:
    """Return bool [L, B]: the steps before each window's length. Scriptable."""
    steps_L = torch.arange(length, device=lengths_B.device)
    return steps_L[:, None] < lengths_B[None, :]


def mean_over_steps(values_LB: Tensor, lengths_B: Tensor) -> Tensor:
    """Return [B]: the mean of each window's valid steps. Scriptable."""
    valid_LB = valid_steps(values_LB.shape[0], lengths_B)
    total_B = values_LB.masked_fill(~valid_LB, 0.0).sum(0)
    return total_B / lengths_B.to(total_B.dtype)
