"""Training of many models at the same time: one (class, seed) each, all of one shape, on one device.

Each member trains as ``NeutralAD.fit`` trains it alone: same starting weights, batches, steps and choice of epoch, up
to the rounding of float32. One small model leaves a GPU idle; together they fill it.
Legend: E members, B windows of the largest batch, S steps of an epoch, P weights of a member, G = E K mask networks,
K transformations, V = K + 1 views, N = V B views, C channels, L window length, I/O input/output width, Z embedding.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from streamad.errors import DetectorError
from streamad.ports import TrainingProgress, TrainingStep, TrainingSummary
from streamad.types import WindowSet
from streamad_models.fitted import FittedModule
from streamad_models.neutral_ad.data import check_training_data, split_validation
from streamad_models.neutral_ad.model import NeutralADModel, contrastive_terms
from streamad_models.neutral_ad.networks import N_RESIDUAL_BLOCKS, convolve3, instance_norm_relu
from streamad_models.neutral_ad.options import NeutralADOptions
from streamad_models.neutral_ad.training import (
    Reason,
    piece_size,
    remarks_on,
    remarks_on_stop,
    set_scaling,
    stop_reason,
    summary_settings,
)
from streamad_models.torchscript import resolve_device

_BLOCK = ("inwards", "middle", "outwards", "shortcut")


@dataclass(frozen=True, slots=True, eq=False)
class Member:
    """What one model trains on, and its seed; members may share a WindowSet."""

    data: WindowSet
    seed: int


def fit_ensemble(
    members: Sequence[Member],
    options: NeutralADOptions,
    *,
    device: str = "auto",
    progress: TrainingProgress | None = None,
) -> list[FittedModule]:
    """Return the members' trained models, in their order; ``duration_s`` of each is its share of the whole time.

    Batches are padded to the largest one's size, and members with fewer batches wait for the others: members should be
    alike in size. Validation shares are left out of training, and their loss is not computed. A member whose loss
    stands still keeps its model while the others train on; the time limit is that of the whole computation.

    Raises TrainingDataError if a member's data cannot give a model, DetectorError if windows differ in shape, a loss
    diverges, or the device is unknown.
    """
    for member in members:
        check_training_data(member.data)
    shapes = {member.data.values.shape[1:] for member in members}
    if len(shapes) != 1:
        raise DetectorError(f"members' windows have shapes {sorted(shapes)}: train those of one shape together")
    run = EnsembleRun(members, options, resolve_device(device))
    while None in run.stopped_by:
        step = run.run_epoch()
        if progress:
            progress(step)
    return [run.fitted(index) for index in range(len(members))]


class EnsembleRun:
    """The members' models, their batches, and the best epoch of each so far."""

    def __init__(self, members: Sequence[Member], options: NeutralADOptions, device: torch.device) -> None:
        self.options, self.device, self.members = options, device, members
        self.training = [split_validation(member.data, options.validation, member.seed)[0] for member in members]
        self.models = [self._untrained(*pair) for pair in zip(members, self.training, strict=True)]
        self.stacked = StackedModels(self.models, device)
        self.adam = EnsembleAdam(self.stacked.weights_EP, options)
        self.generators = [torch.Generator().manual_seed(member.seed) for member in members]
        self.sizes = [options.batch_size_of(len(data)) for data in self.training]
        whole = piece_size(self.models[0], max(self.sizes), device)
        self.piece_size = max(whole // len(members), 1)
        self.windows, self.lengths, self.starts = _pooled(self.training, device)
        self.losses: list[list[float]] = [[] for _ in members]
        self.stopped_by: list[Reason | None] = [None] * len(members)
        self.epoch, self.duration_s = 0, 0.0
        self.best_EP = self.stacked.weights_EP.detach().clone()
        self.best_loss_E = torch.full((len(members),), torch.inf, device=device)
        self.best_epoch_E = torch.zeros(len(members), dtype=torch.int64, device=device)

    def run_epoch(self) -> TrainingStep:
        """Train every member one epoch over its own shuffled batches; the step's loss is the members' mean."""
        started = time.perf_counter()
        indexes_SEB, shares_SEB = (part.to(self.device) for part in self._batches())
        losses_SE = torch.stack([self._step(*batch) for batch in zip(indexes_SEB, shares_SEB, strict=True)])
        n_batches_E = (shares_SEB.sum(dim=2) > 0).sum(dim=0)
        loss_E = losses_SE.sum(dim=0) / n_batches_E
        self.epoch += 1
        if not torch.isfinite(loss_E).all():
            index = int(torch.argmin(torch.isfinite(loss_E).int()))
            raise DetectorError(f"training of member {index} diverged in epoch {self.epoch}: lower learning_rate")
        goes_on_E = torch.tensor([reason is None for reason in self.stopped_by], device=self.device)
        better_E = goes_on_E & (loss_E < self.best_loss_E)
        self.best_loss_E = torch.where(better_E, loss_E, self.best_loss_E)
        self.best_epoch_E.masked_fill_(better_E, self.epoch)
        self.best_EP = torch.where(better_E[:, None], self.stacked.weights_EP, self.best_EP)
        self.duration_s += time.perf_counter() - started
        self._note(loss_E.tolist())
        return TrainingStep(self.epoch, self.options.epochs, float(loss_E.mean()), is_last=None not in self.stopped_by)

    def fitted(self, index: int) -> FittedModule:
        """Return a member's model of its best epoch."""
        model, data = self.models[index], self.training[index]
        model.load_state_dict(self.stacked.weights_of(index, self.best_EP.cpu()), strict=False)
        summary = TrainingSummary(
            n_sequences=len(data),
            n_epochs=len(self.losses[index]),
            best_epoch=int(self.best_epoch_E[index]),
            best_loss=float(self.best_loss_E[index]),
            duration_s=self.duration_s / len(self.members),
            device=str(self.device),
            settings=summary_settings(model, self.options, self.sizes[index], self.members[index].seed)
            | {"stopped_by": self.stopped_by[index]},
            remarks=(
                *remarks_on(float(self.best_loss_E[index])),
                *remarks_on_stop(self.stopped_by[index], self.losses[index], self.options),
            ),
        )
        return FittedModule(model.to(self.device).eval(), summary, self.members[index].data)

    def _note(self, losses: list[float]) -> None:
        """Note the members' losses of an epoch, and which of them end with it."""
        for index, loss in enumerate(losses):
            if self.stopped_by[index] is None:
                self.losses[index].append(loss)
                self.stopped_by[index] = stop_reason(self.options, self.losses[index], self.duration_s)

    def _untrained(self, member: Member, training: WindowSet) -> NeutralADModel:
        model = NeutralADModel(training.values.shape[1], training.values.shape[2], self.options, member.seed)
        set_scaling(model, training, self.options.scaling)
        return model

    def _batches(self) -> tuple[Tensor, Tensor]:
        """Return each step's windows as indexes [S, E, B], and each one's share in its member's loss, 0 of padding."""
        n_steps = max(len(data) // size for data, size in zip(self.training, self.sizes, strict=True))
        indexes_SEB = torch.zeros(n_steps, len(self.members), max(self.sizes), dtype=torch.int64)
        shares_SEB = torch.zeros(indexes_SEB.shape)
        for e, (data, size) in enumerate(zip(self.training, self.sizes, strict=True)):
            order = torch.randperm(len(data), generator=self.generators[e])
            whole = order[: len(data) // size * size].view(-1, size)
            indexes_SEB[:, e] = self.starts[e]
            indexes_SEB[: len(whole), e, :size] = self.starts[e] + whole
            shares_SEB[: len(whole), e, :size] = 1 / size
        return indexes_SEB, shares_SEB

    def _step(self, indexes_EB: Tensor, shares_EB: Tensor) -> Tensor:
        """Return the members' mean losses [E] of their batches after one step of those that have one."""
        self.stacked.gradients_EP.zero_()
        loss_E = torch.zeros(len(self.members), device=self.device)
        pieces = (torch.split(part, self.piece_size, dim=1) for part in (indexes_EB, shares_EB))
        for indexes, shares in zip(*pieces, strict=True):
            score_EB = self.stacked.terms(self.windows[indexes], self.lengths[indexes]).sum(dim=2)
            piece_E = (score_EB * shares).sum(dim=1)
            self.stacked.add_gradients(piece_E.sum())
            loss_E += piece_E.detach()
        active_E1 = (shares_EB.sum(dim=1, keepdim=True) > 0).float()
        self.adam.step(self.stacked.gradients_EP, active_E1)
        return loss_E


def _pooled(parts: Sequence[WindowSet], device: torch.device) -> tuple[Tensor, Tensor, list[int]]:
    """Return all windows and lengths in one place, each WindowSet once, and where each member's begin."""
    places: dict[int, int] = {}
    distinct: list[WindowSet] = []
    starts, end = [], 0
    for part in parts:
        if id(part) not in places:
            places[id(part)], end = end, end + len(part)
            distinct.append(part)
        starts.append(places[id(part)])
    windows = torch.cat([torch.from_numpy(part.values) for part in distinct]).to(device)
    return windows, torch.cat([torch.from_numpy(part.lengths) for part in distinct]).to(device), starts


class EnsembleAdam:
    """Adam as torch.optim has it, on weights [E, P], each member with its own count of steps."""

    def __init__(self, weights_EP: Tensor, options: NeutralADOptions) -> None:
        self.weights_EP, self.options = weights_EP, options
        self.first_EP, self.second_EP = torch.zeros_like(weights_EP), torch.zeros_like(weights_EP)
        self.count_E1 = torch.zeros(len(weights_EP), 1, device=weights_EP.device)

    @torch.no_grad()
    def step(self, gradients_EP: Tensor, active_E1: Tensor) -> None:
        """Take one step with the members for which ``active_E1`` is 1; the others, 0, stay as they are."""
        beta1, beta2, epsilon = 0.9, 0.999, 1e-8
        gradients_EP = gradients_EP.add(self.weights_EP, alpha=self.options.weight_decay)
        self.count_E1 += active_E1
        self.first_EP.lerp_(gradients_EP, (1 - beta1) * active_E1)
        self.second_EP.lerp_(gradients_EP.square_(), (1 - beta2) * active_E1)
        spread_EP = (self.second_EP / (1 - beta2**self.count_E1)).sqrt_().add_(epsilon)
        rate_E1 = self.options.learning_rate * active_E1 / (1 - beta1**self.count_E1)
        self.weights_EP.addcdiv_(self.first_EP * -rate_E1, spread_EP)


class StackedModels:
    """The weights of E models of the same shape and settings as ``weights_EP``, and their gradients beside them.

    ``terms`` maps a batch of each member to its terms, and ``add_gradients`` adds those of a loss of them.
    """

    def __init__(self, models: Sequence[NeutralADModel], device: torch.device) -> None:
        self.template = models[0]
        flat = [torch.cat([weight.detach().flatten() for weight in model.parameters()]) for model in models]
        self.weights_EP = torch.stack(flat).to(device)
        self.gradients_EP = torch.zeros_like(self.weights_EP)
        self.mean_ECL1 = torch.stack([model.mean_C for model in models])[:, :, None, None].to(device)
        self.scale_ECL1 = torch.stack([model.scale_C for model in models])[:, :, None, None].to(device)
        self.steps_L11 = self.template.steps_L11.to(device)
        self._parts = {name: part.requires_grad_() for name, part in self._split(self.weights_EP).items()}
        self._gradients = list(self._split(self.gradients_EP).values())

    def __len__(self) -> int:
        return len(self.weights_EP)

    def terms(self, windows_EBCL: Tensor, lengths_EB: Tensor) -> Tensor:
        """Return the terms [E, B, K] of windows [E, B, C, L] in engineering units, lengths int64 [E, B]."""
        x_ELBC = self._prepared(windows_EBCL, lengths_EB)
        n_members, length, n, channels = x_ELBC.shape
        n_views = self.template.n_terms + 1
        views_EVLBC = torch.cat([x_ELBC.unsqueeze(1), self._views(x_ELBC)], dim=1)
        views_ELNC = views_EVLBC.transpose(1, 2).reshape(n_members, length, n_views * n, channels)
        z_EVBZ = self._embeddings(views_ELNC).view(n_members, n_views, n, -1)
        z_NVZ = z_EVBZ.transpose(1, 2).reshape(n_members * n, n_views, -1)
        return contrastive_terms(z_NVZ, self.template.temperature).view(n_members, n, n_views - 1)

    def add_gradients(self, loss: Tensor) -> None:
        """Add the gradients of ``loss``, a sum over members, to ``gradients_EP``."""
        found = torch.autograd.grad(loss, list(self._parts.values()))
        torch._foreach_add_(self._gradients, list(found))

    def weights_of(self, member: int, weights_EP: Tensor) -> dict[str, Tensor]:
        """Return a member's part of ``weights_EP`` by the names of ``NeutralADModel.named_parameters``."""
        return {name: part[member] for name, part in self._split(weights_EP).items()}

    def _split(self, weights_EP: Tensor) -> dict[str, Tensor]:
        """Return views [E, ...] of ``weights_EP``, one for each weight of the model."""
        parts, start = {}, 0
        for name, weight in self.template.named_parameters():
            parts[name] = weights_EP[:, start : start + weight.numel()].view(len(weights_EP), *weight.shape)
            start += weight.numel()
        return parts

    def _prepared(self, windows_EBCL: Tensor, lengths_EB: Tensor) -> Tensor:
        x_ECLB = (windows_EBCL.permute(0, 2, 3, 1) - self.mean_ECL1) * self.scale_ECL1
        limit = self.template.largest_input
        x_ELBC = torch.clamp(x_ECLB, -limit, limit).permute(0, 2, 3, 1).contiguous()
        return x_ELBC.masked_fill(self.steps_L11 >= lengths_EB[:, None, :, None], 0.0)

    def _views(self, x_ELBC: Tensor) -> Tensor:
        """Return the views [E, K, L, B, C]."""
        transformations = self.template.transformations
        x_E1LBC = x_ELBC.unsqueeze(1)
        groups = x_E1LBC.expand(-1, transformations.n_transformations, -1, -1, -1).flatten(0, 1)
        h = instance_norm_relu(convolve3(groups, self._mask("inwards"), 1, True), None)
        for i in range(N_RESIDUAL_BLOCKS):
            inner = instance_norm_relu(convolve3(h, self._mask(f"blocks.{i}.first"), 1, False), None)
            h = instance_norm_relu(convolve3(inner, self._mask(f"blocks.{i}.second"), 1, False), h)
        m_GLBC = convolve3(h, self._mask("outwards"), 1, True)
        m_EKLBC = m_GLBC.view(len(self), -1, *x_ELBC.shape[1:])
        if transformations.multiplicative:
            return torch.sigmoid(m_EKLBC) * x_E1LBC
        return m_EKLBC + x_E1LBC if transformations.residual else m_EKLBC

    def _mask(self, name: str) -> Tensor:
        return self._parts[f"transformations.{name}"].flatten(0, 1)

    def _embeddings(self, x_ELNC: Tensor) -> Tensor:
        """Return the embeddings [E, N, Z] of views [E, L, N, C]."""
        h_ELNC = x_ELNC.bfloat16() if self.template.encoder.trains_in_bfloat16 else x_ELNC
        for i in range(len(self.template.encoder.blocks)):
            h_ELNC = self._block(h_ELNC, f"encoder.blocks.{i}", 1 if i == 0 else 2)
        h_ENF = h_ELNC.transpose(1, 2).flatten(2).to(x_ELNC.dtype)
        return torch.baddbmm(self._parts["encoder.bias"].unsqueeze(1), h_ENF, self._parts["encoder.head"])

    def _block(self, x_ELNI: Tensor, name: str, stride: int) -> Tensor:
        """Return [E, ceil(L / stride), N, O], as ``EncoderBlock`` does of one member."""
        parts = {part: self._parts[f"{name}.{part}"].to(x_ELNI.dtype) for part in _BLOCK}
        h = torch.relu(torch.bmm(x_ELNI.flatten(1, 2), parts["inwards"]))
        middle, shortcut = parts["middle"].squeeze(1), parts["shortcut"].squeeze(1)
        h = torch.relu(convolve3(h.view(x_ELNI.shape), middle, stride, False))
        out = convolve3(x_ELNI, shortcut, stride, False)
        summed = torch.baddbmm(out.flatten(1, 2), h.flatten(1, 2), parts["outwards"])
        return torch.relu(summed).view(out.shape)
