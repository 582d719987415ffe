"""Training: Adam on the contrastive loss; the model of the lowest training loss is kept (paper, appendix).

Legend: N training windows, B windows of a batch, C channels, L window length.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

import torch
from torch import Tensor

from streamad.errors import DetectorError, OutputError
from streamad.ports import TrainingProgress, TrainingStep, TrainingSummary
from streamad.system.files import replacing
from streamad.system.opening import open_regular
from streamad.types import WindowSet
from streamad_models.fitted import FittedModule
from streamad_models.neutral_ad.data import Scaling, fit_scaling, split_validation
from streamad_models.neutral_ad.model import TrainableModel
from streamad_models.neutral_ad.options import TrainingOptions
from streamad_models.torchscript import resolve_device

_KIND = "streamad neutral_ad training run, format 2"


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The whole state of a run after the epochs whose ``losses`` it has; tensors are copies."""

    fingerprint: str
    model: dict[str, Tensor]
    optimizer: dict[str, Any]
    generator: Tensor
    best_model: dict[str, Tensor]
    best_epoch: int
    best_loss: float
    losses: list[float]
    duration_s: float


def fingerprint(data: WindowSet, options: TrainingOptions, seed: int, device: torch.device) -> str:
    """Return the sha256 of all that decides a run's result: windows, lengths, settings, seed and kind of device."""
    digest = hashlib.sha256()
    settings = {"options": options.model_dump(mode="json"), "seed": seed, "device": device.type}
    digest.update(json.dumps([settings, list(data.values.shape)], sort_keys=True).encode())
    digest.update(data.values.tobytes())
    digest.update(data.lengths.tobytes())
    return digest.hexdigest()


def write_snapshot(path: Path, snapshot: Snapshot) -> None:
    """Replace ``path`` atomically. Raises OutputError."""
    content = {name: getattr(snapshot, name) for name in Snapshot.__slots__}
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path, is_state=True) as descriptor, os.fdopen(descriptor, "wb", closefd=False) as stream:
            torch.save({"kind": _KIND, "digest": _digest(content), **content}, stream)
    except (OSError, RuntimeError) as error:  # torch reports a full disk as RuntimeError
        raise OutputError(f"cannot write the resume file {path}: {error}; free space or name another file") from error


def read_snapshot(path: Path, wanted: str) -> Snapshot | None:
    """Return the run to continue, or None if there is no file or one of another run (which will be replaced).

    Raises DetectorError if the file is no resume file, so that no foreign file is overwritten, or was changed since.
    """
    if not path.exists():
        return None
    try:
        with os.fdopen(open_regular(path), "rb") as stream:  # a FIFO would block
            content = torch.load(stream, map_location="cpu", weights_only=True)
        is_ours = isinstance(content, dict) and content.pop("kind", None) == _KIND
        is_whole = is_ours and content.pop("digest", None) == _digest(content)
        is_ours = is_ours and set(content) == set(Snapshot.__slots__)
    except Exception as error:  # torch's parser lets errors of zip, pickle and codecs through
        raise DetectorError(f"{path} is not a readable resume file: delete it or name another") from error
    if not is_ours:
        raise DetectorError(f"{path} is not a resume file of this detector: delete it or name another")
    if not is_whole:
        raise DetectorError(f"{path} was changed since it was written: delete it or name another")
    return Snapshot(**content) if content["fingerprint"] == wanted else None


def _digest(content: dict[str, Any]) -> str:
    """Return the sha256 of a state: a changed one may load, and fail or train another model only later."""
    digest = hashlib.sha256()
    _add(digest, content)
    return digest.hexdigest()


def _add(digest: hashlib._Hash, value: object) -> None:
    """Add ``value`` with its kind and size, so that no two states have the same bytes."""
    if isinstance(value, Tensor):
        digest.update(f"{value.dtype}{list(value.shape)}".encode())
        digest.update(value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
    elif isinstance(value, dict):
        digest.update(f"dict{len(value)}".encode())
        for key, item in value.items():
            _add(digest, key)
            _add(digest, item)
    elif isinstance(value, (list, tuple)):
        digest.update(f"{type(value).__name__}{len(value)}".encode())
        for item in value:
            _add(digest, item)
    else:
        text = repr(value).encode()
        digest.update(f"{type(value).__name__}{len(text)}:".encode() + text)


Reason: TypeAlias = Literal["epochs", "patience", "time_limit"]

LEAST_FALL: Final = 0.01  # of the loss, which starts at 1 whatever the data
HIGHEST_STILL_LOSS: Final = 0.9  # above it the training has hardly begun: deep encoders wait long at 1


def stop_reason(options: TrainingOptions, losses: Sequence[float], duration_s: float) -> Reason | None:
    """Return why a training with these losses of its epochs ends now, None if it goes on.

    ``patience`` P: the lowest loss is less than 0.01 below that of P epochs before, and below 0.9. The time limit holds
    at an epoch's end, so that at least one epoch is trained.
    """
    if len(losses) >= options.epochs:
        return "epochs"
    if options.patience is not None and stands_still(losses, options.patience):
        return "patience"
    if options.time_limit_s is not None and losses and duration_s >= options.time_limit_s:
        return "time_limit"
    return None


def stands_still(losses: Sequence[float], patience: int) -> bool:
    """Return whether the last ``patience`` epochs lowered the lowest loss by less than 0.01.

    >>> [stands_still(losses, 2) for losses in ([0.5, 0.4, 0.3], [0.5, 0.495, 0.498], [1.0, 1.0, 1.0])]
    [False, True, False]
    """
    if len(losses) <= patience:
        return False
    before, now = min(losses[:-patience]), min(losses)
    return now < HIGHEST_STILL_LOSS and before - now < LEAST_FALL


def remarks_on_stop(reason: Reason | None, losses: Sequence[float], options: TrainingOptions) -> tuple[str, ...]:
    """Return the remark on a training that its time limit has ended; other ends need none."""
    if reason != "time_limit":
        return ()
    at = f"epoch {len(losses)} of at most {options.epochs} (loss {losses[-1]:.3f})"
    return (f"training stopped at its time limit of {options.time_limit_s:g} s, after {at}",)


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
