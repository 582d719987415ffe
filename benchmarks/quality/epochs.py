"""AUC of four choices of an epoch, and of a plain program of NeuTraL AD.

NeuTraL AD is the reference form (reference.py) with the starting weights of its torch.nn layers, trained by Adam with
the published settings; fixed transformations and DROCC are those of the study. After each epoch the model scores the
test split. For each task (a class against the rest, or all classes but one) and seed the output is the AUC of four
choices of an epoch: lowest (training loss: NeuTraL AD's in the study), last (the baselines' in the study), tenth (the
best on a tenth of the test split, with its labels, AUC on the rest, mean of 100 draws), and best (on the whole test
split: a bound, not a choice). ``--start`` sets other starting weights, which the paper does not name: he (He et al.
2015) in the encoder, xavier (Glorot and Bengio 2010) in all layers. Needs STREAMAD_DATA (docs/model/datasets.md).
Run: ``python -m benchmarks.quality.epochs [--method M] [--datasets epilepsy] [--protocol n_vs_rest] [--seeds 3]
[--start he] [--json]``.
"""

from __future__ import annotations

import argparse
import json
import statistics
from functools import partial
from typing import Any, TypeAlias, get_args

import numpy as np
import numpy.typing as npt
import torch

from benchmarks.models.reference import ReferenceModel
from benchmarks.paper.baselines.networks.network import Network, NetworkDetector
from benchmarks.paper.data.datasets import Task, class_task, read_sequences
from benchmarks.paper.methods import make
from benchmarks.paper.protocols import Block, normal_sets
from benchmarks.paper.results_table import Protocol
from benchmarks.speed.training import plain_epochs
from streamad.judge.evaluation import auc
from streamad.ports import TrainingStep
from streamad_models.neutral_ad import NeutralADOptions
from streamad_models.neutral_ad.model import NeutralADModel
from streamad_models.neutral_ad.options import PresetName

PROTOCOLS: tuple[Protocol, ...] = ("one_vs_rest", "n_vs_rest")
METHODS = ("neutral_ad", "fixed_transformations", "drocc")
STARTS = ("torch", "he", "xavier")
CHOICES = ("lowest", "last", "tenth", "best")
N_DRAWS = 100
Floats: TypeAlias = npt.NDArray[np.float64]


def plain_model(task: Task, options: NeutralADOptions, seed: int, start: str = "torch") -> ReferenceModel:
    """Return the plain form with the weights that torch's own layers start from, or those that ``start`` names."""
    model = ReferenceModel(NeutralADModel(task.train.values.shape[1], task.train.values.shape[2], options, seed))
    torch.manual_seed(seed)
    for layer in model.modules():
        if isinstance(layer, torch.nn.Conv1d):
            layer.reset_parameters()
    if start != "torch":
        _start_anew(model.encoder if start == "he" else model, start)
    return model


def _start_anew(part: torch.nn.Module, start: str) -> None:
    for layer in part.modules():
        if isinstance(layer, torch.nn.Conv1d):
            if start == "he":
                torch.nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
            else:
                torch.nn.init.xavier_uniform_(layer.weight)
            if layer.bias is not None:
                torch.nn.init.zeros_(layer.bias)


def scores_of(model: torch.nn.Module, task: Task) -> Floats:
    """Return the scores [N] of the test split."""
    model.eval()
    tested = [torch.split(torch.from_numpy(part), 64) for part in (task.test.values, task.test.lengths)]
    with torch.no_grad():
        parts = [model(*part).double().sum(dim=1) for part in zip(*tested, strict=True)]
    model.train()
    return torch.cat(parts).numpy()


def train_plain(task: Task, name: PresetName, epochs: int, seed: int, start: str = "torch") -> tuple[Floats, Floats]:
    """Return each epoch's mean training loss [E] and its model's scores [E, N] of the test split."""
    options = NeutralADOptions.from_preset(name, epochs=epochs)
    model = plain_model(task, options, seed, start)
    epochs_of = plain_epochs(model, task.train, options, torch.default_generator)
    losses, scores = zip(*((loss, scores_of(model, task)) for loss in epochs_of), strict=True)
    return np.array(losses), np.array(scores)


class _ScoredEpochs:
    """The losses and scores of each epoch of ``fit``; ``build`` is wrapped to get the network."""

    def __init__(self, detector: NetworkDetector[Any], task: Task) -> None:
        self.losses: list[float] = []
        self.scores: list[Floats] = []
        self._task, self._build = task, detector.build
        detector.build = self._built  # type: ignore[method-assign]

    def _built(self, *shape: Any) -> Network:
        self._network = self._build(*shape)
        return self._network

    def __call__(self, step: TrainingStep) -> None:
        self.losses.append(step.loss)
        self.scores.append(scores_of(self._network, self._task))


def train_baseline(method: str, task: Task, name: PresetName, epochs: int, seed: int) -> tuple[Floats, Floats]:
    """Return the same of a baseline, as the study trains it but for the number of epochs."""
    detector = make(method, name, {"epochs": epochs})
    if not isinstance(detector, NetworkDetector):
        raise TypeError(f"{method} is not trained epoch by epoch")
    epochs_of = _ScoredEpochs(detector, task)
    detector.fit(task.train, seed=seed, device="cpu", progress=epochs_of)
    return np.array(epochs_of.losses), np.array(epochs_of.scores)


def aucs_of(losses: Floats, scores: Floats, is_anomaly: npt.NDArray[np.bool_], seed: int) -> dict[str, float]:
    """Return the AUC in percent of each choice of an epoch."""
    per_epoch = [auc(each, is_anomaly) for each in scores]
    tenths = []
    rng = np.random.default_rng(seed)
    for _ in range(N_DRAWS):
        held = np.zeros(len(is_anomaly), np.bool_)
        for label in (False, True):
            places = np.flatnonzero(is_anomaly == label)
            held[rng.choice(places, max(2, round(0.1 * len(places))), replace=False)] = True
        chosen = int(np.argmax([auc(each[held], is_anomaly[held]) for each in scores]))
        tenths.append(auc(scores[chosen][~held], is_anomaly[~held]))
    found = (per_epoch[int(np.argmin(losses))], per_epoch[-1], statistics.fmean(tenths), max(per_epoch))
    return {name: 100 * value for name, value in zip(CHOICES, found, strict=True)}


def measure(
    method: str, name: PresetName, protocol: Protocol, *, n_tasks: int | None, n_seeds: int, epochs: int, start: str
) -> dict[str, Any]:
    """Return each choice's AUC: the mean over the tasks, of every seed."""
    train = partial(train_plain, start=start) if method == "neutral_ad" else partial(train_baseline, method)
    recordings = read_sequences(name)
    tasks = list(normal_sets(Block(name, protocol, 0)).items())[:n_tasks]
    by_seed: dict[str, list[float]] = {choice: [] for choice in CHOICES}
    for seed in range(n_seeds):
        rows = []
        for normal, classes in tasks:
            task = class_task(recordings, classes)
            losses, scores = train(task, name, epochs, seed)
            rows.append(aucs_of(losses, scores, task.is_anomaly, seed))
            text = ", ".join(f"{choice} {value:.1f}" for choice, value in rows[-1].items())
            print(f"{method} {name} normal {normal} seed {seed}: {text} (lowest loss {losses.min():.3f})", flush=True)
        for choice in CHOICES:
            by_seed[choice].append(round(statistics.fmean(row[choice] for row in rows), 2))
    return {"protocol": protocol, "n_tasks": len(tasks), "epochs": epochs, "auc_by_seed": by_seed}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--method", choices=METHODS, default="neutral_ad", help="(default: neutral_ad, plain)")
    parser.add_argument("--datasets", nargs="+", choices=get_args(PresetName), default=["epilepsy"])
    parser.add_argument(
        "--protocol", choices=PROTOCOLS, default="one_vs_rest", help="a class normal, or all but one (default: a class)"
    )
    parser.add_argument("--classes", type=int, help="the first so many, each normal or left out in turn (default: all)")
    parser.add_argument("--seeds", type=int, default=1, help="seeds 0 to N - 1 (default: 1)")
    parser.add_argument("--epochs", type=int, default=100, help="epochs of a training (default: 100)")
    parser.add_argument("--start", choices=STARTS, default="torch", help="weights of neutral_ad (default: torch's own)")
    parser.add_argument("--json", action="store_true", help="print one JSON object last")
    arguments = parser.parse_args()
    if arguments.start != "torch" and arguments.method != "neutral_ad":
        parser.error(f"--start {arguments.start} is for neutral_ad alone")
    torch.set_num_threads(1)
    found = {}
    for name in arguments.datasets:
        found[name] = measure(
            arguments.method,
            name,
            arguments.protocol,
            n_tasks=arguments.classes,
            n_seeds=arguments.seeds,
            epochs=arguments.epochs,
            start=arguments.start,
        )
        print(f"{name}: {found[name]}", flush=True)
    if arguments.json:
        print(json.dumps(found))


if __name__ == "__main__":
    main()
