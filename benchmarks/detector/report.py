"""Writes the measured tables into docs/model/detector.md, between its marks."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
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
_PEERS: Final = {
    "minirocket": "MiniRocket + 1-NN",
    "nearest": "raw 1-NN",
    "lof": "LOF",
    "rockad": "ROCKAD",
    "hydra": "Hydra + 1-NN",
    "minirocket_lof": "MiniRocket + LOF",
    "quant_forest": "QUANT + forest",
    "pca": "PCA",
    "ecod": "ECOD",
    "lunar": "LUNAR",
    "neutral_ad": "NeuTraL AD",
}
_AIMS: Final = {
    "one_vs_rest": (99.3, 96.0, 99.5, 99.2, 92.0),
    "n_vs_rest": (94.0, 83.0, 95.0, 97.2, 88.0),
}
"""The best AUC known of any method, or a little above, for each of the paper's sets: what the default aims at."""
_PROTOCOLS: Final = {"one_vs_rest": "1vR", "n_vs_rest": "nvR"}
_REFERENCE: Final = "minirocket"
"""Of the tables of few windows: rows without it are left out."""

Aucs = npt.NDArray[np.float64]


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


def summary(cells: Sequence[Cell]) -> str:
    """Return the means over the sets beside the peers', and the aims."""
    whole = [cell for cell in cells if cell.n_training == 0]
    grid, peers = _of_grid(whole), _of_peers(whole)
    return _means_table(grid, peers) + _best_peer(grid, peers) + "\n" + _aims_table(grid)


def tables(cells: Sequence[Cell]) -> str:
    """Return the measured part of the page."""
    whole = [cell for cell in cells if cell.n_training == 0]
    grid, peers = _of_grid(whole), _of_peers(whole)
    parts = [
        ("On each set", _rows_table(grid, peers, _seeds(whole)) + _peers_seeds(whole)),
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


def _seeds(cells: Iterable[Cell]) -> dict[Row, str]:
    """Return row -> number of seeds of the grid's cells; a range if classes differ."""
    found: dict[Row, dict[int, int]] = defaultdict(lambda: defaultdict(int))
    for cell in cells:
        if cell.method == CHOICES:
            found[Row(cell.dataset, cell.protocol)][cell.label] += 1
    return {row: _range(counts.values()) for row, counts in found.items()}


def _peers_seeds(cells: Iterable[Cell]) -> str:
    """Return a sentence with the number of seeds of each peer's tasks."""
    found: dict[str, dict[tuple[Row, int], int]] = defaultdict(lambda: defaultdict(int))
    for cell in cells:
        if cell.method in _PEERS:
            found[cell.method][Row(cell.dataset, cell.protocol), cell.label] += 1
    said = ", ".join(f"{name} {_range(found[each].values())}" for each, name in _PEERS.items() if each in found)
    return f"\nSeeds of the peers' tasks: {said}.\n" if said else ""


def _range(counts: Collection[int]) -> str:
    low, high = min(counts), max(counts)
    return str(low) if low == high else f"{low} to {high}"


def _sorted(rows: dict[Row, Aucs]) -> dict[Row, Aucs]:
    return dict(sorted(rows.items(), key=lambda item: (SETS.index(item[0].dataset), item[0].protocol == "n_vs_rest")))


def left_out(grid: Mapping[Row, Aucs], dataset: str) -> int:
    """Return the choice that is best in the mean over the rows of all sets but ``dataset``."""
    others = [aucs for row, aucs in grid.items() if row.dataset != dataset]
    return int(np.argmax(np.mean(others, axis=0)))


def _rows_table(grid: Mapping[Row, Aucs], peers: Mapping[str, Mapping[Row, float]], seeds: Mapping[Row, str]) -> str:
    methods = [method for method in _PEERS if method in peers]
    lines = [
        "| set | | seeds | left out | default | " + " | ".join(_PEERS[each] for each in methods) + " | best choice |",
        "|---|---|---|---|---|" + "---|" * (len(methods) + 1),
    ]
    ours = GRID.index(default())
    for row, aucs in grid.items():
        figures = [aucs[left_out(grid, row.dataset)], aucs[ours]]
        figures += [peers[method].get(row, np.nan) for method in methods]
        lines.append(_line([row.dataset, _PROTOCOLS[row.protocol], seeds[row]], [*figures, aucs.max()]))
    for label, chosen in (("the paper's sets", PAPER), ("sets of aeon", BUNDLED), ("all", SETS)):
        for protocol, short in _PROTOCOLS.items():
            rows = [row for row in grid if row.dataset in chosen and row.protocol == protocol]
            if rows:
                figures = [np.mean([grid[row][left_out(grid, row.dataset)] for row in rows])]
                figures.append(np.mean([grid[row][ours] for row in rows]))
                figures += [np.mean([peers[method].get(row, np.nan) for row in rows]) for method in methods]
                figures.append(np.mean([grid[row].max() for row in rows]))
                lines.append(_line([f"mean of {label}", short, ""], figures))
    return "\n".join(lines) + "\n"


def _mean(values: Iterable[float | np.floating]) -> float:
    figures = [float(value) for value in values]
    return float(np.mean(figures)) if figures else float("nan")


def _line(labels: Sequence[str], figures: Sequence[float | np.floating]) -> str:
    return "| " + " | ".join([*labels, *("-" if np.isnan(each) else f"{each:.1f}" for each in figures)]) + " |"


def _means_table(grid: Mapping[Row, Aucs], peers: Mapping[str, Mapping[Row, float]]) -> str:
    """Return the mean of the default and of each peer over its rows, and the paired difference by sets."""
    ours, place = {row: float(aucs[left_out(grid, row.dataset)]) for row, aucs in grid.items()}, GRID.index(default())
    lines = [
        "| | one class normal | all but one normal | left out minus it (90 % interval) | lowest set | highest set |",
        "|---|---|---|---|---|---|",
        _line(["default, left out"], _means(ours, grid)) + " | | |",
        _line(["default"], _means({row: float(aucs[place]) for row, aucs in grid.items()}, grid)) + " | | |",
    ]
    for method in (each for each in _PEERS if each in peers):
        by_set: dict[str, list[float]] = defaultdict(list)
        for row in grid.keys() & peers[method].keys():
            by_set[row.dataset].append(ours[row] - peers[method][row])
        if len(by_set) > 1:
            means: dict[str, float] = {name: _mean(by_set[name]) for name in SETS if name in by_set}
            lines.append(_line([_PEERS[method]], _means(peers[method], grid)) + f" {_paired(means)} |")
    return "\n".join(lines) + "\n"


def _best_peer(grid: Mapping[Row, Aucs], peers: Mapping[str, Mapping[Row, float]]) -> str:
    """Return a sentence on the rows on which some peer, known only afterwards, is better."""
    behind = {}
    for row, aucs in grid.items():
        found = [peers[each][row] for each in _PEERS if each in peers and row in peers[each]]
        if found:
            behind[row] = max(found) - float(aucs[left_out(grid, row.dataset)])
    worse = sorted((row for row in behind if behind[row] >= 0.05), key=lambda row: -behind[row])
    if not worse:
        return ""
    named = ", ".join(f"{row.dataset} {_PROTOCOLS[row.protocol]} {behind[row]:.1f}" for row in worse)
    return (
        f"\nThe best of these on a row, another one each time and known only afterwards, is better on "
        f"{len(worse)} of {len(behind)} rows: {named}.\n"
    )


def _means(of_rows: Mapping[Row, float], rows: Iterable[Row]) -> list[float]:
    """Return the mean over the ``rows`` of each protocol, NaN unless all were measured."""
    return [_mean(of_rows.get(row, np.nan) for row in rows if row.protocol == each) for each in _PROTOCOLS]


def _paired(by_set: Mapping[str, float]) -> str:
    """Return mean, interval by resampling sets, and the extremes, as cells."""
    means = np.array(list(by_set.values()))
    draws = np.random.default_rng(0).integers(0, len(means), (10_000, len(means)))
    low, high = np.quantile(means[draws].mean(axis=1), [0.05, 0.95])
    least, most = (pick(by_set, key=lambda name: by_set[name]) for pick in (min, max))
    return (
        f"{means.mean():+.1f} ({low:+.1f} to {high:+.1f}) | {by_set[least]:+.1f} {least} | {by_set[most]:+.1f} {most}"
    )


def _aims_table(grid: Mapping[Row, Aucs]) -> str:
    lines = ["| | | aim | left out | reached within 0.5 |", "|---|---|---|---|---|"]
    for protocol, aims in _AIMS.items():
        for dataset, aim in zip(PAPER, aims, strict=True):
            if (row := Row(dataset, protocol)) in grid:
                found = float(grid[row][left_out(grid, dataset)])
                reached = "yes" if found >= aim - 0.5 else f"no, {aim - found:.2f} below"
                lines.append(f"| {dataset} | {_PROTOCOLS[protocol]} | {aim:.1f} | {found:.1f} | {reached} |")
    return "\n".join(lines) + "\n" if len(lines) > 2 else ""


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
    of_size = [cell for cell in cells if cell.n_training in sizes]
    methods = [method for method in _PEERS if any(cell.method == method for cell in of_size)]
    lines = [
        "| training windows | | default | " + " | ".join(_PEERS[method] for method in methods) + " |",
        "|---|---|---|" + "---|" * len(methods),
    ]
    for size in sizes:
        part = [cell for cell in cells if cell.n_training == size]
        grid, peers = _of_grid(part), _of_peers(part)
        for protocol, short in _PROTOCOLS.items():
            rows = [row for row in grid if row.protocol == protocol and row in peers.get(_REFERENCE, grid)]
            if rows:
                figures = [float(np.mean([grid[row][ours] for row in rows]))]
                figures += [float(np.mean([peers.get(m, {}).get(row, np.nan) for row in rows])) for m in methods]
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
