"""The jobs that the options of ``run`` choose, and their order."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from benchmarks.paper.methods import GROUPS, METHODS, fits, missing_module, shortened, trains_many
from benchmarks.paper.protocols import CLASSES, TABULAR, Block, blocks_of, normal_sets, variants_of
from benchmarks.paper.results_table import Cell
from benchmarks.paper.workers import Job
from streamad.errors import DetectorError, UsageError

QUICK_METHODS: Final = ("lof", "minirocket", "neutral_ad")
_ABLATED: Final = "neutral_ad"


@dataclass(frozen=True, slots=True)
class Choice:
    """The chosen part of the study; an empty tuple stands for all. ``methods`` may name groups."""

    tables: tuple[int, ...] = ()
    figures: tuple[str, ...] = ()
    methods: tuple[str, ...] = ()
    datasets: tuple[str, ...] = ()
    normal: tuple[str, ...] = ()
    n_seeds: int = 1


def jobs_of(choice: Choice) -> list[Job]:
    """Return the jobs of ``choice``, the most valuable first, then seed by seed. Raises UsageError if none fits.

    A deterministic method has seed 0 alone, unless the seed draws the training rows.
    """
    datasets = choice.datasets or (*CLASSES, *TABULAR)
    blocks = [block for block in blocks_of(choice.tables, choice.figures) if block.dataset in datasets]
    wanted = {name for word in choice.methods or METHODS for name in GROUPS.get(word, (word,))}
    methods = [name for name in METHODS if name in wanted]
    found = [
        (block.value, seed, job)
        for block in blocks
        for method in methods
        for seed in _seeds(block, method, choice.n_seeds)
        for job in _jobs(block, method, seed, choice.normal)
    ]
    if not found:
        raise UsageError(_why_none(choice, blocks, methods))
    return [job for _, _, job in sorted(found, key=lambda item: item[:2])]


def together(jobs: Iterable[Job], n_models: int) -> list[Job]:
    """Return ``jobs`` with up to ``n_models`` joined into one if the method can train them together.

    Joined cells differ in seed and normal classes alone; a joined job has the place of its first.
    """
    found: list[list[Job]] = []
    of_kind: dict[tuple[str, ...], list[Job]] = {}
    for job in jobs:
        cell = job.cells[0]
        kind = (cell.dataset, cell.protocol, cell.method, cell.variant)
        fellows = of_kind.get(kind, [])
        if trains_many(cell.method, cell.dataset) and 0 < len(fellows) < n_models:
            fellows.append(job)
        else:
            of_kind[kind] = [job]
            found.append(of_kind[kind])
    return [Job(tuple(cell for job in group for cell in job.cells), group[0].settings) for group in found]


def check_modules(cells: Iterable[Cell]) -> None:
    """Raise DetectorError if a method of ``cells`` has no module."""
    pairs = dict.fromkeys((cell.method, cell.dataset in TABULAR, cell.dataset) for cell in cells)
    missing = {method: module for method, _, dataset in pairs if (module := missing_module(method, dataset))}
    if missing:
        names = ", ".join(f"{method} ({module})" for method, module in missing.items())
        raise DetectorError(f"no module for {names}: leave them out by --methods")


def _seeds(block: Block, method: str, n_seeds: int) -> range:
    return range(1 if METHODS[method].is_deterministic and not block.is_drawn else n_seeds)


def _jobs(block: Block, method: str, seed: int, normal: tuple[str, ...]) -> Iterator[Job]:
    if not fits(method, block.dataset) or (block.protocol == "ablation" and method != _ABLATED):
        return
    for name, classes in normal_sets(block).items():
        if not normal or name in normal:
            for variant, settings in variants_of(block).items():
                cell = Cell(block.dataset, block.protocol, method, seed, classes, name, variant)
                yield Job((cell,), shortened(cell) | settings)


def _why_none(choice: Choice, blocks: list[Block], methods: list[str]) -> str:
    if not blocks:
        return f"{', '.join(choice.datasets)}: not in these tables and figures: choose others by --table or --figure"
    names = list(dict.fromkeys(name for block in blocks for name in normal_sets(block)))
    if choice.normal and not set(choice.normal) & set(names):
        return f"--normal {' '.join(choice.normal)}: there are {', '.join(names)}"
    return f"{', '.join(methods)}: not for these data sets: choose others by --methods or --datasets"
