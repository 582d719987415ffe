"""The cells of a table from stored results: a seed's mean over its normal classes, then mean and deviation over seeds.

A seed counts only with all normal classes of the data set; an incomplete one is named, never averaged.
"""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from benchmarks.paper.protocols import FIGURES, Block, normal_sets
from benchmarks.paper.protocols import TABLES as BLOCKS
from benchmarks.paper.report.names import in_order
from benchmarks.paper.report.printed import METHODS, TABULAR_METHODS, Printed, printed
from benchmarks.paper.results_table import Protocol, Result

PERCENT: Final = 100.0

PEERS: Final = ("minirocket", "rockad", "nearest")


@dataclass(frozen=True, slots=True)
class Table:
    """One of the paper's tables: the metric, the data sets under their protocol, the methods in rows."""

    number: int
    metric: str
    blocks: tuple[Block, ...]
    methods: tuple[str, ...]

    @property
    def datasets(self) -> tuple[str, ...]:
        """Return the data sets in the paper's order."""
        return tuple(block.dataset for block in self.blocks)


_ORDER: Final = (
    *("spoken_arabic_digits", "natops", "character_trajectories", "epilepsy", "racket_sports"),
    *("arrhythmia", "thyroid", "kdd", "kdd_rev"),
)


def _table(number: int, metric: str, methods: tuple[str, ...]) -> Table:
    return Table(number, metric, tuple(sorted(BLOCKS[number], key=lambda b: _ORDER.index(b.dataset))), methods)


TABLES: Final = (
    _table(1, "auc", (*METHODS, *PEERS)),
    _table(2, "auc", (*METHODS, *PEERS)),
    _table(3, "f1", (*TABULAR_METHODS, "nearest")),
)
HALVES: Final = Table(0, "f1", FIGURES["halves"], TABULAR_METHODS)
"""Two of table 3's data sets with a half of the inliers drawn by each seed: no table of the paper."""


@dataclass(frozen=True, slots=True)
class Summary:
    """Mean and sample deviation over complete seeds in percent, and the gaps of the other seeds.

    ``mean`` is None without a complete seed, ``std`` without two.
    """

    mean: float | None
    std: float | None
    seeds: int
    incomplete: tuple[str, ...]

    def as_json(self) -> dict[str, Any]:
        """Return the figures for the report's JSON, rounded to two digits."""
        return {"ours": _rounded(self.mean), "std": _rounded(self.std), "seeds": self.seeds}


@dataclass(frozen=True, slots=True)
class Entry:
    """One cell of a table, in percent; ``seconds`` is the mean time to train and score a model."""

    table: int
    dataset: str
    protocol: str
    method: str
    metric: str
    summary: Summary
    paper: Printed | None
    seconds: float | None

    @property
    def ours(self) -> float | None:
        """Return our mean over seeds."""
        return self.summary.mean

    @property
    def difference(self) -> float | None:
        """Return ours minus the paper's, None if one of them is missing."""
        return None if self.ours is None or self.paper is None else self.ours - self.paper.mean

    def as_json(self) -> dict[str, Any]:
        """Return the cell for the report's JSON."""
        names = ("table", "dataset", "protocol", "method", "metric")
        return {
            **{name: getattr(self, name) for name in names},
            **self.summary.as_json(),
            "paper": self.paper and self.paper.mean,
            "paper_std": self.paper and self.paper.std,
            "difference": _rounded(self.difference),
            "seconds": _rounded(self.seconds),
            "incomplete": list(self.summary.incomplete),
        }


def entries(results: Iterable[Result], tables: Sequence[Table] = TABLES) -> list[Entry]:
    """Return every cell of ``tables``, table by table and data set by data set; empty ones if nothing was run.

    Methods outside of a table that were run follow its own.
    """
    groups: dict[tuple[str, Protocol, str], list[Result]] = defaultdict(list)
    for result in results:
        if not result.variant:
            groups[result.dataset, result.protocol, result.method].append(result)
    found = []
    for table in tables:
        of_table = {(block.dataset, block.protocol) for block in table.blocks}
        others = {method for dataset, protocol, method in groups if (dataset, protocol) in of_table}
        methods = [*table.methods, *in_order(others.difference(table.methods))]
        for block in table.blocks:
            for method in methods:
                found.append(_entry(table, block, method, groups.get((block.dataset, block.protocol, method), [])))
    return found


def _entry(table: Table, block: Block, method: str, results: Sequence[Result]) -> Entry:
    return Entry(
        table=table.number,
        dataset=block.dataset,
        protocol=block.protocol,
        method=method,
        metric=table.metric,
        summary=summarise(results, table.metric, normal_sets(block)),
        paper=printed(table.number, block.dataset, method),
        seconds=statistics.fmean(one.seconds for one in results) if results else None,
    )


def summarise(results: Iterable[Result], metric: str, tasks: Iterable[str]) -> Summary:
    """Return the summary of one method's ``results`` over ``tasks`` (names of their normal classes)."""
    wanted = set(tasks)
    by_seed: dict[int, dict[str, float]] = defaultdict(dict)
    for one in results:
        if one.normal_name in wanted:
            by_seed[one.seed][one.normal_name] = PERCENT * float(getattr(one, metric))
    complete = [list(of_seed.values()) for of_seed in by_seed.values() if len(of_seed) == len(wanted)]
    means = [statistics.fmean(values) for values in complete]
    return Summary(
        mean=statistics.fmean(means) if means else None,
        std=statistics.stdev(means) if len(means) > 1 else None,
        seeds=len(means),
        incomplete=tuple(
            f"seed {seed}: {len(of_seed)} of {len(wanted)} tasks"
            for seed, of_seed in sorted(by_seed.items())
            if len(of_seed) < len(wanted)
        ),
    )


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 2)
