"""Writes the measured tables into docs/model/detector.md, between its marks."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

from benchmarks.detector import calibration, faults
from benchmarks.detector.cells import Cell
from benchmarks.detector.choices import GRID, Choice, default
from benchmarks.detector.measure import CHOICES
from benchmarks.detector.sets import BUNDLED, PAPER, SETS, Row
from streamad.errors import UsageError

PAGE: Final = Path(__file__).resolve().parents[2] / "docs" / "model" / "detector.md"
_BEGIN, _END = "<!-- measured: begin -->", "<!-- measured: end -->"
_PEERS: Final = {
    "minirocket": "MiniRocket + 1-NN",
    "nearest": "raw 1-NN",
    "lof": "LOF",
    "rockad": "ROCKAD",
    "hydra": "Hydra + 1-NN",
    "minirocket_lof": "MiniRocket + LOF",
    "quant_forest": "QUANT + isolation forest",
    "pca": "PCA",
    "ecod": "ECOD",
    "lunar": "LUNAR",
    "neutral_ad": "NeuTraL AD",
}
_PROTOCOLS: Final = {"one_vs_rest": "1vR", "n_vs_rest": "nvR"}
_REFERENCE: Final = "minirocket"

Aucs = npt.NDArray[np.float64]


def updated(page: str, cells: Sequence[Cell]) -> str:
    """Return ``page`` with the tables of ``cells``. Raises UsageError if the page lacks the marks."""
    before, begin, rest = page.partition(_BEGIN)
    _, end, after = rest.partition(_END)
    if not begin or not end:
        raise UsageError(f"{PAGE.name} lacks {_BEGIN} and {_END}")
    return f"{before}{_BEGIN}\n\n{tables(cells)}\n{_END}{after}"


def tables(cells: Sequence[Cell]) -> str:
    """Return the measured part of the page."""
    whole = [cell for cell in cells if cell.n_training == 0]
    grid, peers = _of_grid(whole), _of_peers(whole)
    parts = [
        ("On each set", _rows_table(grid, peers) + "\n" + _paired(grid, peers)),
        ("One choice at a time, the others as in the default", _members_table(grid)),
        ("Few training windows", _sizes_table(cells)),
        ("Networks as members", _networks_table(peers)),
        ("Time", _times_table(whole)),
        (
            "False alarms at a configured 2 % if few sequences calibrate, 200 draws",
            calibration.table(calibration.stored()),
        ),
        ("By the kind of fault, simulated plants", faults.table(faults.stored())),
    ]
    return "\n".join(f"### {title}\n\n{part}" for title, part in parts if part.strip())


def _of_grid(cells: Iterable[Cell]) -> dict[Row, Aucs]:
    """Return row -> AUC of every choice, the mean over seeds and then over classes."""
    found: dict[Row, dict[int, list[Aucs]]] = defaultdict(lambda: defaultdict(list))
    for cell in cells:
        if cell.method == CHOICES:
            found[Row(cell.dataset, cell.protocol)][cell.label].append(np.array(cell.aucs))
    return _sorted(
        {row: np.mean([np.mean(runs, axis=0) for runs in labels.values()], axis=0) for row, labels in found.items()}
    )


def _of_peers(cells: Iterable[Cell]) -> dict[str, dict[Row, float]]:
    """Return method -> row -> AUC, the mean over seeds and then over classes."""
    found: dict[str, dict[Row, dict[int, list[float]]]] = defaultdict(lambda: defaultdict(lambda: defaultdict(list)))
    for cell in cells:
        if cell.method != CHOICES:
            found[cell.method][Row(cell.dataset, cell.protocol)][cell.label].append(cell.auc)
    return {
        method: {row: float(np.mean([np.mean(runs) for runs in labels.values()])) for row, labels in rows.items()}
        for method, rows in found.items()
    }


def _sorted(rows: dict[Row, Aucs]) -> dict[Row, Aucs]:
    return dict(sorted(rows.items(), key=lambda item: (SETS.index(item[0].dataset), item[0].protocol == "n_vs_rest")))


def left_out(grid: Mapping[Row, Aucs], dataset: str) -> int:
    """Return the choice that is best in the mean over the rows of all sets but ``dataset``."""
    others = [aucs for row, aucs in grid.items() if row.dataset != dataset]
    return int(np.argmax(np.mean(others, axis=0)))


def _rows_table(grid: Mapping[Row, Aucs], peers: Mapping[str, Mapping[Row, float]]) -> str:
    methods = [method for method in _PEERS if method in peers]
    lines = [
        "| set | | left out | default | " + " | ".join(_PEERS[method] for method in methods) + " | best choice |",
        "|---|---|---|---|" + "---|" * (len(methods) + 1),
    ]
    ours = GRID.index(default())
    for row, aucs in grid.items():
        figures = [aucs[left_out(grid, row.dataset)], aucs[ours]]
        figures += [peers[method].get(row, np.nan) for method in methods]
        lines.append(_line([row.dataset, _PROTOCOLS[row.protocol]], [*figures, aucs.max()]))
    for label, chosen in (("the paper's sets", PAPER), ("sets of aeon", BUNDLED), ("all", SETS)):
        for protocol, short in _PROTOCOLS.items():
            rows = [row for row in grid if row.dataset in chosen and row.protocol == protocol]
            if rows:
                figures = [np.mean([grid[row][left_out(grid, row.dataset)] for row in rows])]
                figures.append(np.mean([grid[row][ours] for row in rows]))
                figures += [np.mean([peers[method].get(row, np.nan) for row in rows]) for method in methods]
                lines.append(_line([f"mean of {label}", short], [*figures, np.mean([grid[row].max() for row in rows])]))
    return "\n".join(lines) + "\n"


def _mean(values: Iterable[float | np.floating]) -> float:
    figures = [float(value) for value in values]
    return float(np.mean(figures)) if figures else float("nan")


def _line(labels: Sequence[str], figures: Sequence[float | np.floating]) -> str:
    return "| " + " | ".join([*labels, *("-" if np.isnan(each) else f"{each:.1f}" for each in figures)]) + " |"


def _paired(grid: Mapping[Row, Aucs], peers: Mapping[str, Mapping[Row, float]]) -> str:
    """Return the paired difference to the reference peer, with an interval by resampling sets."""
    reference = peers.get(_REFERENCE, {})
    by_set: dict[str, list[float]] = defaultdict(list)
    for row, aucs in grid.items():
        if row in reference:
            by_set[row.dataset].append(float(aucs[left_out(grid, row.dataset)]) - reference[row])
    if not by_set:
        return ""
    means = np.array([np.mean(differences) for differences in by_set.values()])
    draws = np.random.default_rng(0).integers(0, len(means), (10_000, len(means)))
    low, high = np.quantile(means[draws].mean(axis=1), [0.05, 0.95])
    return (
        f"Left-out figure minus {_PEERS[_REFERENCE]}, paired, mean over {len(means)} sets: {means.mean():+.1f} points "
        f"(90 % bootstrap interval over sets {low:+.1f} to {high:+.1f}; lowest set {means.min():+.1f}, highest "
        f"{means.max():+.1f}).\n"
    )


def _members_table(grid: Mapping[Row, Aucs]) -> str:
    """Return the mean over rows by each single aspect of a choice, the others as in the default."""
    ours = default()
    aspects: list[tuple[str, Callable[[Choice], object]]] = [
        ("spaces", lambda each: each.spaces),
        ("measures", lambda each: each.measures),
        ("locality", lambda each: each.locality),
        ("joining", lambda each: each.joining),
        ("weighting", lambda each: each.weighting),
    ]
    lines = ["| aspect | choice | mean 1vR | mean nvR |", "|---|---|---|---|"]
    for name, value in aspects:
        for place, choice in enumerate(GRID):
            same = all(getattr(choice, other) == getattr(ours, other) for other, _ in aspects if other != name)
            if same:
                means = [
                    _mean(aucs[place] for row, aucs in grid.items() if row.protocol == protocol)
                    for protocol in _PROTOCOLS
                ]
                shown = f"**{value(choice)}**" if choice == ours else str(value(choice))
                lines.append(_line([name, shown], means))
    return "\n".join(lines) + "\n"


def _sizes_table(cells: Sequence[Cell]) -> str:
    ours = GRID.index(default())
    sizes = sorted({cell.n_training for cell in cells if cell.n_training and cell.method == CHOICES})
    if not sizes:
        return ""
    lines = [
        "| training windows | | default | " + " | ".join(_PEERS.values()) + " |",
        "|---|---|---|" + "---|" * len(_PEERS),
    ]
    for size in sizes:
        part = [cell for cell in cells if cell.n_training == size]
        grid, peers = _of_grid(part), _of_peers(part)
        for protocol, short in _PROTOCOLS.items():
            rows = [row for row in grid if row.protocol == protocol and row in peers.get(_REFERENCE, grid)]
            if rows:
                figures = [float(np.mean([grid[row][ours] for row in rows]))]
                figures += [float(np.mean([peers.get(m, {}).get(row, np.nan) for row in rows])) for m in _PEERS]
                lines.append(_line([str(size), short], figures))
    return "\n".join(lines) + "\n"


def _networks_table(peers: Mapping[str, Mapping[Row, float]]) -> str:
    """Return the default without and with a network, on the rows where both were measured."""
    quick, normal = peers.get("ensemble", {}), peers.get("ensemble_normal", {})
    rows = [row for row in quick if row in normal]
    if not rows:
        return ""
    lines = ["| set | | `quick` | `normal` |", "|---|---|---|---|"]
    lines += [_line([row.dataset, _PROTOCOLS[row.protocol]], [quick[row], normal[row]]) for row in rows]
    lines.append(_line(["mean", ""], [_mean(which[row] for row in rows) for which in (quick, normal)]))
    return "\n".join(lines) + "\n"


def _times_table(cells: Sequence[Cell]) -> str:
    """Return the CPU seconds of a fit and milliseconds of a window, medians over the one-vs-rest tasks."""
    lines = ["| method | fit, CPU s | a window, CPU ms |", "|---|---|---|"]
    names = {"ensemble": "default", "ensemble_normal": "default, effort normal", **_PEERS}
    for method, name in names.items():
        of_method = [cell for cell in cells if cell.method == method and cell.protocol == "one_vs_rest"]
        if of_method:
            times = [float(np.median([getattr(cell, what) for cell in of_method])) for what in ("fit_s", "score_ms")]
            lines.append(f"| {name} | {times[0]:.1f} | {times[1]:.1f} |")
    return "\n".join(lines) + "\n" if len(lines) > 2 else ""
