"""Training: Adam on the contrastive loss; the model of the lowest training loss is kept (paper, appendix).

Legend: N training windows, B windows of a batch, C channels, L window length.
"""

from __future__ import annotations

import math
import time
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from streamad.errors import DetectorError
from streamad.ports import TrainingProgress, TrainingStep, TrainingSummary
from streamad.types import WindowSet
from streamad_models.fitted import FittedModule
from streamad_models.neutral_ad.data import Scaling, fit_scaling, split_validation
from streamad_models.neutral_ad.model import TrainableModel
from streamad_models.neutral_ad.options import TrainingOptions
from streamad_models.neutral_ad.resume import Snapshot, fingerprint, read_snapshot, write_snapshot
from streamad_models.neutral_ad.stopping import Reason, remarks_on_stop, stop_reason
from streamad_models.torchscript import resolve_device

SAVE_EVERY_S = 5.0
_EVALUATION_BATCH = 64
_LOSS_OF_THE_START = 0.995
_PIECE_BYTES_CPU = 4_000_000  # measured: a batch of 150 windows of NATOPS takes 0.57 s in pieces of 32, 0.78 s whole
_PIECE_BYTES_CUDA = 256_000_000


class ModelTraining:
    """One training run: model, optimizer, order of the data, and the best epoch so far."""

    def __init__(
        self, model: TrainableModel, data: WindowSet, options: TrainingOptions, seed: int, device: torch.device
    ) -> None:
        training, watched = split_validation(data, options.validation, seed)
        self.options = options
        self.device = device
        self.model = model
        set_scaling(model, training, options.scaling)
        self.model.to(device)
        self.windows, self.lengths = tensors_of(training, device)
        self.watched = tensors_of(watched, device) if watched is not None else None
        self.generator = torch.Generator().manual_seed(seed)
        self.optimizer = torch.optim.Adam(
            self.model.parameters(), lr=options.learning_rate, weight_decay=options.weight_decay, fused=True
        )
        self.batch_size = options.batch_size_of(len(training))
        self.piece_size = piece_size(model, self.batch_size, device)
        self.losses: list[float] = []
        self.best_epoch = 0
        self.best_loss = math.inf
        self.best_model = self._copy_of_model()
        self.duration_s = 0.0

    @property
    def epoch(self) -> int:
        """Return the number of finished epochs."""
        return len(self.losses)

    @property
    def stopped_by(self) -> Reason | None:
        """Return why the training has ended; None if it goes on."""
        return stop_reason(self.options, self.losses, self.duration_s)

    def run_epoch(self) -> TrainingStep:
        """Train one epoch over shuffled batches, an incomplete last one dropped. Raises DetectorError on divergence."""
        started = time.perf_counter()
        self.model.train()
        self.optimizer.param_groups[0]["lr"] = self.options.learning_rate_of(self.epoch + 1)
        order = torch.randperm(len(self.windows), generator=self.generator).to(self.device)
        batches = [batch for batch in torch.split(order, self.batch_size) if len(batch) == self.batch_size]
        loss = float(torch.stack([self._step(batch) for batch in batches]).mean())
        self.losses.append(loss)
        if not math.isfinite(loss):
            raise DetectorError(f"training diverged in epoch {self.epoch} (loss {loss}): lower learning_rate")
        if loss < self.best_loss:
            self.best_epoch, self.best_loss, self.best_model = self.epoch, loss, self._copy_of_model()
        validation_loss = self._validation_loss()
        self.duration_s += time.perf_counter() - started
        return TrainingStep(self.epoch, self.options.epochs, loss, validation_loss, self.stopped_by is not None)

    def _step(self, batch: Tensor) -> Tensor:
        """Return the mean loss of ``batch`` and take one step; gradients add up piece by piece."""
        self.optimizer.zero_grad(set_to_none=True)
        losses = []
        for piece in torch.split(batch, self.piece_size):
            loss: Tensor = self.model(self.windows[piece], self.lengths[piece]).sum() / len(batch)
            loss.backward()  # type: ignore[no-untyped-call]
            losses.append(loss.detach())
        self.optimizer.step()
        return torch.stack(losses).sum()

    @torch.no_grad()
    def _validation_loss(self) -> float | None:
        if self.watched is None:
            return None
        self.model.eval()
        batches = zip(*(torch.split(part, _EVALUATION_BATCH) for part in self.watched), strict=True)
        return float(torch.cat([self.model(*batch).sum(dim=1) for batch in batches]).mean())

    def _copy_of_model(self) -> dict[str, Tensor]:
        return {name: value.detach().cpu().clone() for name, value in self.model.state_dict().items()}

    def snapshot(self, mark: str) -> Snapshot:
        """Return copies of the state that the rest of the run depends on."""
        optimizer = self.optimizer.state_dict()
        optimizer["state"] = {
            index: {name: value.cpu().clone() for name, value in state.items()}
            for index, state in optimizer["state"].items()
        }
        return Snapshot(
            fingerprint=mark,
            model=self._copy_of_model(),
            optimizer=optimizer,
            generator=self.generator.get_state(),
            best_model=self.best_model,
            best_epoch=self.best_epoch,
            best_loss=self.best_loss,
            losses=list(self.losses),
            duration_s=self.duration_s,
        )

    def restore(self, snapshot: Snapshot) -> None:
        """Continue where ``snapshot`` was taken."""
        self.model.load_state_dict(snapshot.model)
        self.optimizer.load_state_dict(snapshot.optimizer)
        self.generator.set_state(snapshot.generator)
        self.losses, self.duration_s = list(snapshot.losses), snapshot.duration_s
        self.best_model, self.best_epoch, self.best_loss = snapshot.best_model, snapshot.best_epoch, snapshot.best_loss


def piece_size(model: TrainableModel, batch_size: int, device: torch.device) -> int:
    """Return how many windows of a batch are computed at once.

    The widest array of their views then fits a core's cache, or a small share of a GPU's memory.
    """
    window_bytes = model.view_bytes()
    if not window_bytes:
        return batch_size
    limit = _PIECE_BYTES_CPU if device.type == "cpu" else _PIECE_BYTES_CUDA
    return max(limit // window_bytes, 1)


def fit_model(
    model: TrainableModel,
    data: WindowSet,
    options: TrainingOptions,
    *,
    seed: int,
    device: str,
    progress: TrainingProgress | None,
    resume: Path | None,
) -> FittedModule:
    """Train the untrained ``model`` on checked ``data``; the model of the lowest training loss is kept.

    With ``resume``, the state after the last finished epoch is saved every few seconds, at the end, and at any
    interruption (also KeyboardInterrupt). A run that finds its own state continues it.
    """
    target = resolve_device(device)
    run = ModelTraining(model, data, options, seed, target)
    _finish(run, fingerprint(data, options, seed, target) if resume else "", progress, resume)
    summary = TrainingSummary(
        n_sequences=len(run.windows),
        n_epochs=run.epoch,
        best_epoch=run.best_epoch,
        best_loss=run.best_loss,
        duration_s=run.duration_s,
        device=str(target),
        settings=summary_settings(model, options, run.batch_size, seed) | {"stopped_by": run.stopped_by},
        remarks=(*remarks_on(run.best_loss), *remarks_on_stop(run.stopped_by, run.losses, options)),
    )
    return FittedModule(run.model, summary, data)


def remarks_on(loss: float) -> tuple[str, ...]:
    """Return the remarks on a training with this lowest loss; at 1 all views are embedded alike."""
    if loss < _LOSS_OF_THE_START:
        return ()
    text = f"training did not leave its start (loss {loss:.3f}; 1: all views are embedded alike); the model hardly"
    return (f"{text} separates any windows: train for more epochs, or set the option transformation to residual",)


def summary_settings(model: TrainableModel, options: TrainingOptions, batch_size: int, seed: int) -> dict[str, object]:
    """Return the settings with every "auto" resolved."""
    chosen = {**model.resolved_options(), "batch_size": batch_size, "seed": seed, "torch": torch.__version__}
    return {**options.model_dump(mode="json"), **chosen}


def _finish(run: ModelTraining, mark: str, progress: TrainingProgress | None, resume: Path | None) -> None:
    """Train to the end and load the best model; ``mark`` is the fingerprint of the run in ``resume``."""
    if resume and (earlier := read_snapshot(resume, mark)):
        run.restore(earlier)
    elif resume:
        write_snapshot(resume, run.snapshot(mark))  # a path that cannot be written fails before the first epoch
    latest: Snapshot | None = None
    saved_at = time.monotonic()
    try:
        while run.stopped_by is None:
            step = run.run_epoch()
            if resume:
                latest = run.snapshot(mark)
            if resume and latest and time.monotonic() - saved_at >= SAVE_EVERY_S:
                write_snapshot(resume, latest)
                latest, saved_at = None, time.monotonic()
            if progress:
                progress(step)
    finally:
        if resume and latest:
            write_snapshot(resume, latest)
    run.model.load_state_dict(run.best_model)
    run.model.eval()


def set_scaling(model: Any, data: WindowSet, kind: Scaling) -> None:
    """Set the buffers ``mean_C`` and ``scale_C`` of ``model`` as ``fit_scaling`` finds them in ``data``."""
    origin, factor = fit_scaling(data, kind)
    model.mean_C.copy_(torch.from_numpy(origin))
    model.scale_C.copy_(torch.from_numpy(factor))


def tensors_of(data: WindowSet, device: torch.device) -> tuple[Tensor, Tensor]:
    """Return the windows [N, C, L] and lengths [N] on ``device``."""
    return torch.from_numpy(data.values).to(device), torch.from_numpy(data.lengths).to(device)
