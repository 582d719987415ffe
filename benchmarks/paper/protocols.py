"""The tasks of the study: the normal classes of each, and the table or figure that it belongs to.

one_vs_rest: each class in turn is normal. n_vs_rest: all classes but one. sweep: n consecutive classes, the last
followed by the first, for every n between these two. tabular: one task a seed. tabular_drawn: the seed draws the half
of the inliers that trains. ablation: K and parametrisation, on NATOPS one against the rest and on Arrhythmia.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from benchmarks.paper.results_table import Protocol

CLASSES: Final[dict[str, tuple[int, ...]]] = {
    "spoken_arabic_digits": tuple(range(10)),
    "natops": tuple(range(6)),
    "character_trajectories": tuple(range(1, 21)),
    "epilepsy": tuple(range(4)),
    "racket_sports": tuple(range(4)),
}
LARGE_TABLES: Final = ("kdd", "kdd_rev")
TABULAR: Final = ("arrhythmia", "thyroid", *LARGE_TABLES)
ABLATION_KS: Final = tuple(range(2, 16))
PARAMETRISATIONS: Final = ("feed_forward", "residual", "multiplicative")


@dataclass(frozen=True, slots=True)
class Block:
    """A data set under a protocol; blocks of the lowest ``value`` run first."""

    dataset: str
    protocol: Protocol
    value: int

    @property
    def is_drawn(self) -> bool:
        """Return whether the seed draws the training rows."""
        return self.protocol == "tabular_drawn" or self.dataset in LARGE_TABLES


_SMALL = ("racket_sports", "epilepsy", "natops")
_LARGE = ("character_trajectories", "spoken_arabic_digits")

TABLES: Final[dict[int, tuple[Block, ...]]] = {
    1: (*(Block(name, "one_vs_rest", 0) for name in _SMALL), *(Block(name, "one_vs_rest", 1) for name in _LARGE)),
    2: (*(Block(name, "n_vs_rest", 2) for name in _SMALL), *(Block(name, "n_vs_rest", 5) for name in _LARGE)),
    3: (
        *(Block(name, "tabular", 0) for name in ("arrhythmia", "thyroid")),
        *(Block(name, "tabular", 1) for name in LARGE_TABLES),
    ),
}
FIGURES: Final[dict[str, tuple[Block, ...]]] = {
    "sweep": (Block("natops", "sweep", 3), Block("spoken_arabic_digits", "sweep", 4)),
    "ablation": (Block("natops", "ablation", 3), Block("arrhythmia", "ablation", 3)),
    "halves": (Block("arrhythmia", "tabular_drawn", 3), Block("thyroid", "tabular_drawn", 3)),
}


def blocks_of(tables: Sequence[int], figures: Sequence[str]) -> list[Block]:
    """Return the blocks of the tables and figures named, of all if none is named, most valuable first."""
    if not tables and not figures:
        tables, figures = tuple(TABLES), tuple(FIGURES)
    chosen = [block for table in tables for block in TABLES[table]]
    chosen += [block for figure in figures for block in FIGURES[figure]]
    return sorted(dict.fromkeys(chosen), key=lambda block: block.value)


def variants_of(block: Block) -> dict[str, dict[str, Any]]:
    """Return name -> settings that differ from the method's own; all but the ablation have the one variant "".

    >>> variants_of(FIGURES["ablation"][0])["residual-k04"]
    {'transformation': 'residual', 'n_transformations': 4}
    """
    if block.protocol != "ablation":
        return {"": {}}
    return {
        f"{name}-k{k:02d}": {"transformation": name, "n_transformations": k}
        for name in PARAMETRISATIONS
        for k in ABLATION_KS
    }


def normal_sets(block: Block) -> dict[str, tuple[int, ...]]:
    """Return name -> classes taken for normal, for each task of ``block``; a table has the one task "inliers"."""
    if block.dataset in TABULAR:
        return {"inliers": ()}
    classes = CLASSES[block.dataset]
    if block.protocol == "n_vs_rest":
        return {f"not-{left_out}": tuple(c for c in classes if c != left_out) for left_out in classes}
    if block.protocol == "sweep":
        return _consecutive(classes)
    return {str(normal): (normal,) for normal in classes}


def _consecutive(classes: tuple[int, ...]) -> dict[str, tuple[int, ...]]:
    twice, n_classes = classes * 2, len(classes)
    runs = [twice[start : start + n] for n in range(2, n_classes - 1) for start in range(n_classes)]
    return {f"{run[0]}to{run[-1]}": run for run in runs}
