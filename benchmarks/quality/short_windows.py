"""NeuTraL AD with few and short windows: forms of T_k, scalings and the early stop, on sets that choose and others.

Each cell is one fit on all normal training windows of a task of ``benchmarks.detector.sets``, or on so many of them
drawn by the seed, and its AUC on the test split. ``former`` is the default that was: multiplicative, standard scaling,
100 epochs. The variants "form/scaling" stop if the loss stands still; with "/all" behind them they never do.
``--spike`` puts one wrong sample, 50 standard deviations high, into each channel of the training windows. Cells are in
short_windows.jsonl; ``run`` measures the missing ones, ``table`` prints the means.
Run: ``python -m benchmarks.quality.short_windows run [--sets ...] [--variants ...] [--sizes 0 12] [--seeds 1]
[--protocols one_vs_rest] [--spike]`` and ``python -m benchmarks.quality.short_windows table``.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np

from benchmarks.detector.sets import PAPER, SETS, Case, cases, fewer
from streamad.errors import TrainingDataError
from streamad.judge.evaluation import auc
from streamad.system.files import write_atomically
from streamad.types import WindowSet
from streamad_models.neutral_ad import NeutralAD, NeutralADOptions

PATH: Final = Path(__file__).with_suffix(".jsonl")
CHOOSING: Final = ("racket_sports", "natops", "basic_motions", "ItalyPowerDemand", "GunPoint", "epilepsy")
"""The sets that the default was chosen on, the last two its span of 4 alone; all others report it."""

_FORMS: Final = ("multiplicative", "feed_forward", "residual")
_SCALINGS: Final = ("standard", "range", "quantiles", "none")
_SPIKE: Final = 50.0  # standard deviations of the channel
VARIANTS: Final[Mapping[str, dict[str, Any]]] = {
    "former": {"transformation": "multiplicative", "scaling": "standard", "patience": None},
    **{
        f"{form}/{scaling}{end}": {"transformation": form, "scaling": scaling, "patience": patience}
        for form in _FORMS
        for scaling in _SCALINGS
        for end, patience in (("", 10), ("/all", None))
    },
    "preset": {},
}


class Cell(msgspec.Struct, frozen=True, order=True):
    """One fit: ``n_training`` 0 stands for all windows; ``epochs`` were trained, in ``fit_s`` of CPU time."""

    dataset: str
    protocol: str
    label: int
    n_training: int
    variant: str
    seed: int
    auc: float = 0.0
    epochs: int = 0
    loss: float = 0.0
    fit_s: float = 0.0
    spike: bool = False

    @property
    def key(self) -> tuple[str, str, int, int, str, int, bool]:
        """Return what tells the cell from others."""
        return self.dataset, self.protocol, self.label, self.n_training, self.variant, self.seed, self.spike


def read_cells() -> list[Cell]:
    """Return the cells measured so far."""
    return [msgspec.json.decode(line, type=Cell) for line in PATH.read_bytes().splitlines()] if PATH.exists() else []


def add_cell(cell: Cell) -> None:
    """Store ``cell`` in the place of one with the same key."""
    cells = sorted([each for each in read_cells() if each.key != cell.key] + [cell])
    write_atomically(PATH, b"".join(msgspec.json.encode(each) + b"\n" for each in cells))


def measure(case: Case, variant: str, *, n_training: int, seed: int, spike: bool = False) -> Cell:
    """Return the cell of ``variant`` on ``case``. Raises TrainingDataError."""
    task = fewer(case.task, n_training, seed) if n_training else case.task
    training = spiked(task.train, seed) if spike else task.train
    chosen = {"preset": case.row.dataset} if variant == "preset" else VARIANTS[variant]
    began_s = time.process_time()
    fitted = NeutralAD(NeutralADOptions.model_validate(chosen)).fit(training, seed=seed, device="cpu")
    fit_s = time.process_time() - began_s
    scores = fitted.score(task.test.values, task.test.lengths).sum(axis=1, dtype=np.float64)
    return Cell(
        *case.row,
        case.label,
        n_training,
        variant,
        seed,
        auc=round(100 * auc(scores, task.is_anomaly), 2),
        epochs=fitted.summary.n_epochs,
        loss=round(fitted.summary.best_loss, 3),
        fit_s=round(fit_s, 1),
        spike=spike,
    )


def spiked(data: WindowSet, seed: int) -> WindowSet:
    """Return ``data`` with a sample of each channel, of a window drawn by ``seed``, 50 standard deviations higher."""
    values, rng = data.values.copy(), np.random.default_rng(seed)
    spread_C = values.std(axis=(0, 2))
    for channel, spread in enumerate(spread_C):
        window = rng.integers(len(values))
        values[window, channel, rng.integers(data.lengths[window])] += _SPIKE * spread
    return WindowSet(values, data.lengths, data.ids)


def run(arguments: argparse.Namespace) -> None:
    """Measure the cells that are missing."""
    for dataset in arguments.sets:
        for case in cases(dataset):
            if case.row.protocol not in arguments.protocols:
                continue
            for n_training in (size for size in arguments.sizes if size < len(case.task.train)):
                for variant in arguments.variants:
                    if variant == "preset" and dataset not in PAPER:
                        continue
                    for seed in range(arguments.seeds):
                        _measure_missing(case, variant, n_training, seed, arguments.spike)


def _measure_missing(case: Case, variant: str, n_training: int, seed: int, spike: bool) -> None:
    key = (*case.row, case.label, n_training, variant, seed, spike)
    if key in {cell.key for cell in read_cells()}:
        return
    try:
        cell = measure(case, variant, n_training=n_training, seed=seed, spike=spike)
    except TrainingDataError as error:
        print(f"{key}: {error}", file=sys.stderr)
        return
    add_cell(cell)
    print(*key, cell.auc, cell.epochs, flush=True)


def table(cells: Iterable[Cell]) -> str:
    """Return the means of AUC by row and variant, with the number of fits, epochs and CPU time."""
    groups: dict[tuple[str, str, int, bool], dict[str, list[Cell]]] = {}
    for cell in cells:
        groups.setdefault((cell.dataset, cell.protocol, cell.n_training, cell.spike), {}).setdefault(
            cell.variant, []
        ).append(cell)
    lines = []
    for (dataset, protocol, n_training, spike), variants in sorted(groups.items()):
        role = "chooses" if dataset in CHOOSING else "reports"
        lines.append(f"{dataset}, {protocol}, {n_training or 'all'} windows{', spiked' if spike else ''} ({role})")
        for variant, group in sorted(variants.items(), key=lambda item: list(VARIANTS).index(item[0])):
            mean, epochs, took_s = (
                statistics.fmean(getattr(cell, name) for cell in group) for name in ("auc", "epochs", "fit_s")
            )
            lines.append(f"  {variant:24} {mean:5.1f}  {len(group):2} fits  {epochs:5.1f} epochs  {took_s:5.1f} s")
    return "\n".join(lines)


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    commands = parser.add_subparsers(dest="command", required=True)
    runs = commands.add_parser("run")
    runs.add_argument("--sets", nargs="+", choices=SETS, default=CHOOSING)
    runs.add_argument("--variants", nargs="+", choices=VARIANTS, default=["former", "multiplicative/range"])
    runs.add_argument("--sizes", type=int, nargs="+", default=[0, 12])
    runs.add_argument("--seeds", type=int, default=1)
    runs.add_argument("--protocols", nargs="+", default=["one_vs_rest"])
    runs.add_argument("--spike", action="store_true")
    commands.add_parser("table")
    arguments = parser.parse_args()
    if arguments.command == "run":
        run(arguments)
    else:
        print(table(read_cells()))


if __name__ == "__main__":
    main()
