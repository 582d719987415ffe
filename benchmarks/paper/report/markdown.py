"""The parts of docs/model/paper.md that are built from stored cells, as Markdown."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import msgspec

from benchmarks.paper.progress import Estimate
from benchmarks.paper.report.names import DATASET_NAMES, METHOD_NAMES
from benchmarks.paper.report.printed import REMARKS, Place
from benchmarks.paper.report.summary import HALVES, TABLES, Entry, Summary, Table
from benchmarks.paper.results_table import Result
from benchmarks.paper.todo import missing

NOT_RUN: Final = "(not run)"
_SECONDS_PER_HOUR: Final = 3600.0


def named(entries: Iterable[Entry]) -> dict[str, str]:
    """Return the figures of cells by name, for the template's sentences: ``${natops_1_neutral_ad}``, in percent.

    A name is the data set, the table (0: drawn halves) and the method; ``_pm`` after it adds the deviation over seeds,
    ``_s`` gives the seconds of a model instead.
    """
    figures = {
        f"{dataset}_{table.number}_{method}{end}": NOT_RUN
        for table in (*TABLES, HALVES)
        for dataset in table.datasets
        for method in METHOD_NAMES
        for end in ("", "_pm", "_s")
    }
    for entry in entries:
        if entry.ours is not None:
            name = f"{entry.dataset}_{entry.table}_{entry.method}"
            figures |= {name: number(entry.ours, None), f"{name}_pm": number(entry.ours, entry.summary.std)}
            figures[f"{name}_s"] = NOT_RUN if entry.seconds is None else _seconds(entry.seconds)
    return figures


def table_section(table: Table, entries: Iterable[Entry]) -> str:
    """Return one of the paper's tables, the numbers of seeds, remarks and incomplete seeds."""
    mine = [entry for entry in entries if entry.table == table.number]
    parts = [_overview(table, mine), *_seeds(mine), *dict.fromkeys(_remarks(mine))]
    if incomplete := list(_incomplete(mine)):
        parts.append("Not every task of these was run, so they have no figure above: " + "; ".join(incomplete) + ".")
    return "\n\n".join(parts)


def _seeds(entries: Iterable[Entry]) -> Iterator[str]:
    """Yield how many seeds the figures with a deviation have: the usual number, and the cells with another one."""
    several = [entry for entry in entries if entry.summary.seeds > 1]
    if not several:
        return
    usual = statistics.mode(entry.summary.seeds for entry in several)
    others = [
        f"{_label(entry.method)} on {DATASET_NAMES[entry.dataset]} has {entry.summary.seeds}"
        for entry in several
        if entry.summary.seeds != usual
    ]
    yield f"Figures with ± have {usual} seeds{''.join(f', {other}' for other in others)}; the others have one."


def _overview(table: Table, entries: Sequence[Entry]) -> str:
    by_place = {(entry.method, entry.dataset): entry for entry in entries}
    best = {dataset: max(_printed_alike(e) for e in entries if e.dataset == dataset) for dataset in table.datasets}
    rows = []
    for method in dict.fromkeys(entry.method for entry in entries):
        cells = []
        for dataset in table.datasets:
            entry = by_place[method, dataset]
            text = _overview_cell(entry)
            cells.append(f"**{text}**" if text and _printed_alike(entry) == best[dataset] else text)
        rows.append([_label(method), *cells])
    return markdown_table(["", *(DATASET_NAMES[dataset] for dataset in table.datasets)], rows)


def _printed_alike(entry: Entry) -> float:
    """Return the figure as printed, so that figures that print alike compare equal."""
    return round(entry.ours or 0.0, 1)


def _overview_cell(entry: Entry) -> str:
    if entry.ours is None:
        return ""
    ours = _ours(entry.summary)
    return ours if entry.difference is None else f"{ours} ({_signed(entry.difference)})"


def _remarks(entries: Iterable[Entry]) -> Iterator[str]:
    for entry in entries:
        place = Place(entry.table, entry.dataset, entry.method)
        if place in REMARKS and entry.ours is not None:
            yield REMARKS[place]


def _incomplete(entries: Iterable[Entry]) -> Iterator[str]:
    for entry in entries:
        if entry.summary.incomplete:
            yield f"{_label(entry.method)} on {DATASET_NAMES[entry.dataset]} ({', '.join(entry.summary.incomplete)})"


def time_section(results: Sequence[Result]) -> str:
    """Return the hours of the stored cells by machine, and the versions they ran with."""
    hours: dict[str, float] = defaultdict(float)
    for one in results:
        hours[_where(one)] += one.seconds / _SECONDS_PER_HOUR
    places = ", ".join(f"{of_place:.2f} on {place}" for place, of_place in sorted(hours.items()))
    return f"The {len(results):,} stored models took, in hours: {places}. {_versions(results)}".strip()


def left_section(results: Sequence[Result]) -> str:
    """Return how many cells of seed 0 are not measured, where, and the hours of CPU time of the whole study.

    The hours are known only for methods that were measured on the same data set.
    """
    estimate = Estimate(msgspec.structs.replace(one, fit_s=one.seconds, score_s=0.0) for one in results)
    whole_s, all_known = sum(one.seconds for one in results if one.seed == 0), True
    n_missing, parts = 0, defaultdict[str, list[str]](list)
    for part, dataset, cells in missing(results):
        times_s = [estimate.of(cell, guess=False) for cell in cells]
        known_s = [each for each in times_s if each is not None]
        whole_s, all_known = whole_s + sum(known_s), all_known and len(known_s) == len(times_s)
        n_missing += len(cells)
        parts[part].append(f"{DATASET_NAMES[dataset]} {len(cells)}")
    time = f"{whole_s / _SECONDS_PER_HOUR:.0f} hours of one core{'' if all_known else ', plus the times not known'}"
    if not n_missing:
        return f"No model of seed 0 is missing; the study with one seed takes {time}."
    places = "; ".join(f"{part}: {', '.join(of_part)}" for part, of_part in parts.items())
    return (
        f"{n_missing:,} models of seed 0 are missing ({places}). "
        f"The whole study with one seed takes {time}, stored and missing models together."
    )


def _versions(results: Iterable[Result]) -> str:
    found: dict[str, set[str]] = defaultdict(set)
    for one in results:
        for package, version in one.versions.items():
            found[package].add(version)
    known = [f"{package} {', '.join(sorted(versions))}" for package, versions in sorted(found.items())]
    return f"Measured with {'; '.join(known)}." if known else ""


def _where(one: Result) -> str:
    if one.device.startswith("cuda"):
        return one.machine
    return f"{one.machine}, {one.threads} thread{'s' if one.threads > 1 else ''}"


def _label(name: str) -> str:
    return METHOD_NAMES.get(name, name)


def _ours(summary: Summary) -> str:
    return number(summary.mean, summary.std)


def number(mean: float | None, std: float | None) -> str:
    """Return a figure in percent as printed, with its deviation if there is one."""
    if mean is None:
        return ""
    return f"{mean:.1f}" if std is None else f"{mean:.1f}±{std:.1f}"


def _signed(difference: float) -> str:
    return f"{round(difference, 1) + 0.0:+.1f}"  # no minus before a zero


def _seconds(seconds: float) -> str:
    return f"{seconds:.0f}" if seconds >= 10 else f"{seconds:.2g}"


def markdown_table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table in Markdown; cells stay as written."""
    lines = ["| " + " | ".join(line) + " |" for line in (head, *rows)]
    return "\n".join([lines[0], "|" + "---|" * len(head), *lines[1:]])
