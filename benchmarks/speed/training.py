"""Time of one model's training: the plain form, the product's, and many models at the same time.

plain: the reference form (reference.py), Adam, a whole batch at once, one model after the other. product:
``NeutralAD.fit``, one model after the other. ensemble: ``fit_ensemble``, all at once. All three train the same models
from the same weights over the same batches, and must have the same first loss. They take turns; medians are compared.
The clock is CPU time of one thread, so that other load does not count; on CUDA it is wall time. Made-up windows of the
paper's sizes, published presets.
Run: ``python benchmarks/speed/training.py [--datasets natops racket_sports] [--models 6] [--device cuda] [--json]``.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, get_args

import numpy as np
import torch

from benchmarks.models.reference import ReferenceModel
from benchmarks.models.together import Member, fit_ensemble
from streamad.types import WindowSet
from streamad_models.neutral_ad import NeutralAD, NeutralADOptions
from streamad_models.neutral_ad.model import NeutralADModel
from streamad_models.neutral_ad.options import PresetName


class Size(NamedTuple):
    """Channels, window length, and training sequences of a class."""

    channels: int
    length: int
    sequences: int


SIZES: dict[str, Size] = {
    "spoken_arabic_digits": Size(13, 50, 650),
    "natops": Size(24, 51, 30),
    "character_trajectories": Size(3, 182, 71),
    "epilepsy": Size(3, 206, 34),
    "racket_sports": Size(6, 30, 38),
}
FORMS = ("plain", "product", "ensemble")
TOLERANCE = 1e-3


def windows(size: Size, seed: int) -> WindowSet:
    """Return waves of random frequency and phase with noise, float32 [N, C, L]."""
    rng = np.random.default_rng(seed)
    shape = (size.sequences, size.channels, 1)
    waves = np.sin(rng.uniform(0.1, 0.5, shape) * np.arange(size.length) + rng.uniform(0, 6, shape))
    values = (waves + rng.normal(0, 0.3, (*shape[:2], size.length))).astype(np.float32)
    return WindowSet(values, np.full(len(values), size.length), tuple(map(str, range(len(values)))))


def plain_epochs(
    model: ReferenceModel, data: WindowSet, options: NeutralADOptions, generator: torch.Generator
) -> Iterator[float]:
    """Train the plain form in place, on its own device, and yield each epoch's mean loss at its end."""
    device = next(model.parameters()).device
    x_BCL, lengths_B = torch.from_numpy(data.values).to(device), torch.from_numpy(data.lengths).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=options.learning_rate, weight_decay=options.weight_decay)
    size = options.batch_size_of(len(data))
    for _ in range(options.epochs):
        order = torch.randperm(len(data), generator=generator).to(device)
        steps = []
        for batch in torch.split(order, size):
            if len(batch) == size:
                optimizer.zero_grad()
                loss = model(x_BCL[batch], lengths_B[batch]).sum(dim=1).mean()
                loss.backward()
                optimizer.step()
                steps.append(loss.item())
        yield statistics.fmean(steps)


def train_plain(member: Member, options: NeutralADOptions, device: torch.device) -> float:
    """Train the plain form from the product's weights and return the first epoch's loss."""
    data, seed = member.data, member.seed
    model = ReferenceModel(NeutralADModel(data.values.shape[1], data.values.shape[2], options, seed).to(device))
    losses = list(plain_epochs(model.to(device), data, options, torch.Generator().manual_seed(seed)))
    return losses[0]


def forms_of(members: list[Member], options: NeutralADOptions, device: str) -> dict[str, Callable[[], list[float]]]:
    """Return the three trainings as functions that return first losses."""
    first: list[float] = []

    def product() -> list[float]:
        first.clear()
        for member in members:
            steps: list[float] = []
            NeutralAD(options).fit(
                member.data, seed=member.seed, device=device, progress=lambda step, to=steps: to.append(step.loss)
            )
            first.append(steps[0])
        return first

    def ensemble() -> list[float]:
        steps: list[float] = []
        fit_ensemble(members, options, device=device, progress=lambda step: steps.append(step.loss))
        return steps[:1]

    return {
        "plain": lambda: [train_plain(member, options, torch.device(device)) for member in members],
        "product": product,
        "ensemble": ensemble,
    }


def measure(name: PresetName, *, n_models: int, epochs: int, rounds: int, device: str) -> dict[str, Any]:
    """Return seconds per model and epoch of each form, and the gain over the plain form."""
    options = NeutralADOptions.from_preset(name, epochs=epochs)
    members = [Member(windows(SIZES[name], seed), seed) for seed in range(n_models)]
    forms = forms_of(members, options, device)
    clock = time.process_time if device == "cpu" else time.perf_counter
    taken: dict[str, list[float]] = {form: [] for form in FORMS}
    for turn in range(rounds + 1):  # the first warms up
        losses = {}
        for form in FORMS:
            began = clock()
            losses[form] = statistics.fmean(forms[form]())
            if device != "cpu":
                torch.cuda.synchronize()
            if turn:
                taken[form].append((clock() - began) / (n_models * epochs))
        assert max(losses.values()) - min(losses.values()) < TOLERANCE, f"the forms differ: {losses}"
    seconds = {form: statistics.median(taken[form]) for form in FORMS}
    ratios = {f"{form}_gain": round(seconds["plain"] / seconds[form], 2) for form in FORMS[1:]}
    return {"epoch_s": {form: round(value, 4) for form, value in seconds.items()}, **ratios}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--datasets", nargs="+", choices=get_args(PresetName), default=["natops", "racket_sports"])
    parser.add_argument("--models", type=int, default=6, help="models to train (default: 6)")
    parser.add_argument("--epochs", type=int, default=3, help="epochs of each (default: 3 of the published 100)")
    parser.add_argument("--rounds", type=int, default=3, help="turns that every form takes (default: 3)")
    parser.add_argument("--device", default="cpu", help="cpu, cuda or cuda:0 (default: cpu)")
    parser.add_argument("--json", action="store_true", help="print one JSON object last")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    given = {"n_models": arguments.models, "epochs": arguments.epochs, "rounds": arguments.rounds}
    found = {}
    print(f"{arguments.models} models on {arguments.device}: seconds per model and epoch")
    print(f"{'':24} {'plain':>9} {'product':>9} {'':>7} {'ensemble':>9}")
    for name in arguments.datasets:
        found[name] = measure(name, device=arguments.device, **given)
        epoch_s, gains = found[name]["epoch_s"], [found[name][f"{form}_gain"] for form in FORMS[1:]]
        row = f"{epoch_s['product']:>9.4f} {gains[0]:>6.2f}x {epoch_s['ensemble']:>9.4f} {gains[1]:>6.2f}x"
        print(f"{name:24} {epoch_s['plain']:>9.4f} {row}", flush=True)
    if arguments.json:
        print(json.dumps({**given, "device": arguments.device, "datasets": found}))


if __name__ == "__main__":
    main()
