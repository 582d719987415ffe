"""Writes the measured tables into docs/model/detector.md, between its marks."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from benchmarks.detector import calibration, faults
from benchmarks.detector.cells import Cell
from benchmarks.detector.choices import DEFAULT, GRID, Choice, goodness
from benchmarks.detector.families import DATASETS, FAMILIES, family_of
from benchmarks.detector.measure import CHOICES, FORMER
from benchmarks.detector.sets import Row
from streamad.errors import UsageError

PAGE: Final = Path(__file__).resolve().parents[2] / "docs" / "model" / "detector.md"
OURS: Final = "ensemble"
BASELINES: Final = {
    "nearest": "1-NN",
    "unfolded": "unfolded 1-NN",
    "largest_z": "largest z",
    "minirocket": "MiniRocket + 1-NN",
    "pca": "PCA residual",
}
NAMES: Final = {
    OURS: "default",
    FORMER: "former",
    "ensemble_normal": "`normal`",
    "neutral_ad": "`neutral_ad`",
    **BASELINES,
}
_PROTOCOLS: Final = {"one_vs_rest": "1vR", "n_vs_rest": "nvR", "faults": "faults"}
_MEAN: Final = "mean of the families"

Pairs = npt.NDArray[np.float64]


class Figures(NamedTuple):
    """Figures of a method, all x 100: AUC, share found, share of false alarms."""

    auc: float
    found: float
    false_alarms: float = np.nan

    def __str__(self) -> str:
        return f"{self.auc:.1f} / {self.found:.0f}"

    @property
    def goodness(self) -> float:
        """Return what methods are compared by."""
        return float(goodness(self.auc, self.found))


Table = dict[str, dict[Row, Figures]]


def updated(page: str, cells: Sequence[Cell]) -> str:
    """Return ``page`` with the tables of ``cells``. Raises UsageError if the page lacks the marks."""
    for name, text in (("summary", summary(cells)), ("measured", tables(cells))):
        marks = f"<!-- {name}: begin -->", f"<!-- {name}: end -->"
        before, begin, rest = page.partition(marks[0])
        _, end, after = rest.partition(marks[1])
        if not begin or not end:
            raise UsageError(f"{PAGE.name} lacks {' and '.join(marks)}")
        page = f"{before}{begin}\n\n{text}\n{end}{after}"
    return page


def tables(cells: Sequence[Cell]) -> str:
    """Return the measured part of the page."""
    few = "False alarms at a configured 2 % if few sequences calibrate, 200 draws"
    worse = _worse(figures_of(cells))
    return _parts([("Sets on which a baseline finds more", worse), (few, calibration.table(calibration.stored()))])


def further_tables(cells: Sequence[Cell]) -> str:
    """Return what is measured but not on the page."""
    grid = grid_of(cells)
    return _parts(
        [
            ("The rule chosen on two families, measured on the third", left_out_table(grid)),
            ("One choice at a time, the others as in the default", _choices(grid)),
            ("By the kind of fault, simulated plants", faults.table(faults.stored())),
        ]
    )


def _parts(parts: Sequence[tuple[str, str]]) -> str:
    return "\n".join(f"### {title}\n\n{part}" for title, part in parts if part)


def figures_of(cells: Iterable[Cell]) -> Table:
    """Return method -> row -> figures, means over tasks: over those of the default, or the row is left out."""
    found: dict[str, dict[Row, dict[int, Cell]]] = defaultdict(lambda: defaultdict(dict))
    for cell in cells:
        if cell.found is not None:
            found[cell.method][Row(cell.dataset, cell.protocol)][cell.label] = cell
    rows = sorted(found[OURS], key=lambda row: (DATASETS.index(row.dataset), list(_PROTOCOLS).index(row.protocol)))
    table: Table = {}
    for method in NAMES:
        table[method] = {}
        for row in rows:
            labels, cells_of = found[OURS][row].keys(), found[method][row]
            if labels <= cells_of.keys():
                each = [(cells_of[i].auc, cells_of[i].found, cells_of[i].false_alarms) for i in labels]
                table[method][row] = Figures(*np.array(each, np.float64).mean(axis=0).tolist())
    return table


def grid_of(cells: Iterable[Cell]) -> dict[Row, Pairs]:
    """Return row -> AUC and share found at the rank threshold [2, choices], means over tasks."""
    found: dict[Row, list[Pairs]] = defaultdict(list)
    for cell in cells:
        if cell.method == CHOICES:
            found[Row(cell.dataset, cell.protocol)].append(np.array([cell.aucs, cell.shares]))
    return {row: np.mean(runs, axis=0) for row, runs in found.items()}


def _rows_in(rows: Iterable[Row], family: str) -> list[Row]:
    return [row for row in rows if family_of(row.dataset) == family]


def _mean(figures: Sequence[Figures]) -> Figures:
    return Figures(*np.mean(np.array(figures), axis=0).tolist())


def family_means(table: Table, method: str) -> dict[str, Figures]:
    """Return the means of ``method`` over the rows of each family, and of the families, where all are measured."""
    means = {}
    for family in FAMILIES:
        wanted = _rows_in(table[OURS], family)
        if wanted and all(row in table[method] for row in wanted):
            means[family] = _mean([table[method][row] for row in wanted])
    if len(means) == len(FAMILIES):
        means[_MEAN] = _mean(list(means.values()))
    return means


def summary(cells: Sequence[Cell]) -> str:
    """Return means over the families, false alarms and time to train: ours, the baselines best on a family or a row."""
    table = figures_of(cells)
    head = ["AUC / found at 2 %", *FAMILIES, _MEAN, f"false alarms, %: {', '.join(FAMILIES)}", "training, CPU s"]
    lines = [_line(head), "|" + "---|" * len(head)]
    for method, name in NAMES.items():
        means, times = family_means(table, method), [cell.fit_s for cell in cells if cell.method == method]
        if means and (method not in BASELINES or method in _best_of_families(table)):
            lines.append(_line([name, *_means_cells(means), f"{np.median(times):.1f}"]))
    each = {row: table[best][row] for row in table[OURS] if (best := _best_baseline(table, row)) is not None}
    if means := family_means({**table, "best": each}, "best"):
        lines.append(_line(["best baseline on each row, known afterwards", *_means_cells(means), "-"]))
    return "\n".join(lines) + "\n"


def _best_of_families(table: Table) -> set[str]:
    """Return the baselines that are the best in the mean of a family."""
    means = {method: family_means(table, method) for method in BASELINES}
    found = set()
    for family in FAMILIES:
        if there := {method: of_method[family].goodness for method, of_method in means.items() if family in of_method}:
            found.add(max(there, key=there.__getitem__))
    return found


def _means_cells(means: Mapping[str, Figures]) -> list[str]:
    rates = ", ".join(f"{means[each].false_alarms:.1f}" if each in means else "-" for each in FAMILIES)
    return [*(str(means.get(each, "-")) for each in (*FAMILIES, _MEAN)), rates]


def _best_baseline(table: Table, row: Row) -> str | None:
    measured = [method for method in BASELINES if row in table[method]]
    return max(measured, key=lambda method: table[method][row].goodness) if measured else None


def _worse(table: Table) -> str:
    """Return the rows on which the best baseline finds more than the default, in one sentence."""
    found = []
    for row, ours in table[OURS].items():
        best = _best_baseline(table, row)
        if best is not None and (theirs := table[best][row].found) > ours.found:
            found.append(f"{row.dataset} {_PROTOCOLS[row.protocol]} {ours.found:.0f}, {NAMES[best]} {theirs:.0f}")
    return f"Anomalies found at 2 %, in percent: {'; '.join(found)}.\n" if found else ""


def _line(parts: Sequence[object]) -> str:
    return "| " + " | ".join(map(str, parts)) + " |"


def left_out(grid: Mapping[Row, Pairs], family: str) -> int:
    """Return the choice that is best in the mean over the other families: AUC + 0.3 x share found."""
    others = [_of_family(grid, other) for other in FAMILIES if other != family and _rows_in(grid, other)]
    return int(np.argmax(goodness(*np.mean(others, axis=0))))


def _of_family(grid: Mapping[Row, Pairs], family: str) -> Pairs:
    """Return AUC and share found of each choice, the mean over the rows of ``family``."""
    mean: Pairs = np.mean([grid[row] for row in _rows_in(grid, family)], axis=0)
    return mean


def left_out_table(grid: Mapping[Row, Pairs]) -> str:
    """Return for each family what the choice of the other two gives; nothing unless all are measured."""
    if not all(_rows_in(grid, family) for family in FAMILIES):
        return ""
    names = ["chosen on the others", "default", "best choice, known afterwards"]
    lines = ["| left out | " + " | ".join(names) + " |", "|---|" + "---|" * len(names)]
    shown = []
    for family in FAMILIES:
        pairs = _of_family(grid, family)
        places = (left_out(grid, family), GRID.index(DEFAULT), int(np.argmax(goodness(*pairs))))
        shown.append([Figures(*pairs[:, place].tolist()) for place in places])
        lines.append(_line([family, *shown[-1]]))
    lines.append(_line(["**mean**", *(_mean(each) for each in zip(*shown, strict=True))]))
    return "\n".join(lines) + "\n"


def _choices(grid: Mapping[Row, Pairs]) -> str:
    """Return the means with each single aspect of the rules changed, the others as in the default."""
    families = [family for family in FAMILIES if _rows_in(grid, family)]
    if not families:
        return ""
    aspects: list[tuple[str, Callable[[Choice], object]]] = [
        ("scaling", lambda each: each.scaling),
        ("weights", lambda each: each.weights),
        ("largest power", lambda each: each.power),
        ("damping", lambda each: each.damping),
        ("network", lambda each: each.network),
    ]
    of_family = {family: _of_family(grid, family) for family in families}

    def mean(place: int) -> Figures:
        return _mean([Figures(*pairs[:, place].tolist()) for pairs in of_family.values()])

    others = [
        f"{name} {value(choice)} {mean(place)}"
        for name, value in aspects
        for place, choice in enumerate(GRID)
        if choice != DEFAULT and all(get(choice) == get(DEFAULT) for other, get in aspects if other != name)
    ]
    return f"The default has {mean(GRID.index(DEFAULT))}; {', '.join(others)}.\n"
