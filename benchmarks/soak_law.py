"""The curves of a soak, drawn and judged: what must be flat is flat within 5 % after the first half hour.

A curve's growth is its Theil-Sen slope (the median of the slopes between all pairs of its points) times the time that
it spans, divided by its median. What comes and goes in less than 29 % of the points does not move the median of slopes:
a training's memory, a rotated file, a cache that was filled late. What grows all the time, smoothly or in steps, does.
Least squares would take one spike at the end for a leak, and the last value less the first would take chance for one.
The half hour is what caches, the allocator and bounded stores need to fill.

Flat must be: memory and open files of the spared processes; those of the killed ones at the same age, life after life;
and on the disk what has a bound: registry, store, the page's view. Topics and logs keep what was written, and grow.
Run: ``python benchmarks/soak_law.py FOLDER [--out benchmarks/results]``: writes ``soak.json`` and ``soak.png``.
Exit code 1 if a curve that must be flat is not, or the run's end was wrong.
"""

from __future__ import annotations

import argparse
import gzip
import json
import sys
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

WARM_H = 0.5
MOST_GROWTH = 0.05
LEAST_POINTS = 12
AGE_S = (60.0, 90.0)
"""The age at which the lives of a killed process are compared: the first sample in this span."""
BOUNDED = ("registry", "inliers", "view.sqlite3", "marks.jsonl", "others")
FLAT_FIGURES = ("anonymous_mb", "rss_mb", "files", "threads")
_SEVERAL = 2


@dataclass(slots=True)
class Curve:
    """Values over hours; ``must_be_flat``: the law is about it."""

    must_be_flat: bool = False
    hours: list[float] = field(default_factory=list)
    values: list[float] = field(default_factory=list)

    def add(self, hours: float, value: float | None) -> None:
        """Append a point; None is none."""
        if value is not None:
            self.hours.append(hours)
            self.values.append(value)

    def judged(self, warm_h: float) -> dict[str, Any]:
        """Return what the law says: ``flat`` is None for too few points."""
        after = [(at, value) for at, value in zip(self.hours, self.values, strict=True) if at >= warm_h]
        if len(after) < LEAST_POINTS:
            return {"points": len(after), "must_be_flat": self.must_be_flat, "flat": None}
        hours, values = (np.asarray(each) for each in zip(*after, strict=True))
        slope, median = theil_sen(hours, values), float(np.median(values))
        growth = slope * float(hours[-1] - hours[0]) / median if median else float(slope > 0)
        quarter = max(1, len(values) // 4)
        return {
            "points": len(after),
            "first_quarter": round(float(np.median(values[:quarter])), 4),
            "last_quarter": round(float(np.median(values[-quarter:])), 4),
            "largest": round(float(values.max()), 4),
            "growth": round(growth, 4),
            "must_be_flat": self.must_be_flat,
            "flat": bool(growth <= MOST_GROWTH),
        }


def theil_sen(hours: np.ndarray[Any, Any], values: np.ndarray[Any, Any]) -> float:
    """Return the median of the slopes between all pairs of points at different times (Theil 1950, Sen 1968)."""
    first, second = np.triu_indices(len(hours), 1)
    apart = hours[second] - hours[first]
    slopes = (values[second] - values[first])[apart > 0] / apart[apart > 0]
    return float(np.median(slopes)) if len(slopes) else 0.0


def lines_of(path: Path) -> list[dict[str, Any]]:
    """Return the lines of a soak's samples, packed or not; one that was cut off is none."""
    text = gzip.decompress(path.read_bytes()).decode() if path.suffix == ".gz" else path.read_text()
    found = []
    for line in text.splitlines():
        try:
            found.append(json.loads(line))
        except ValueError:
            continue
    return found


def curves_of(lines: Iterable[Mapping[str, Any]]) -> dict[str, Curve]:
    """Return all curves by name, ``part: figure``."""
    curves: defaultdict[str, Curve] = defaultdict(Curve)
    seen: set[tuple[str, float]] = set()
    for line in lines:
        if line["kind"] != "sample":
            continue
        hours = line["hours"]
        _add_memory(curves, line)
        _add_lives(curves, line, seen)
        for figure in ("rss_mb", "files"):
            curves[f"kafka: {figure}"].add(hours, line["kafka"].get("kafka", {}).get(figure))
        for name, value in line["disk_mb"].items():
            curves[f"disk: {name}"].must_be_flat = name.removeprefix("spared-") in BOUNDED
            curves[f"disk: {name}"].add(hours, value)
        for kind, latency in line["latency_s"].items():
            for figure in ("p50", "p99"):
                curves[f"latency of {kind}: {figure}"].add(hours, latency[figure])
        for name, lag in line["lag"].items():
            curves[f"lag: {name}"].add(hours, lag)
        for part, figures in line["pages"].items():
            curves[f"pages of {part}: p50"].add(hours, figures.get("p50"))
        for name in ("verdicts_overdue", "verdicts_repeated", "sequences_ended", "verdicts"):
            curves[f"count: {name}"].add(hours, line["counts"][name])
        curves["load"].add(hours, line["load"])
    return dict(curves)


def _add_memory(curves: defaultdict[str, Curve], line: Mapping[str, Any]) -> None:
    together: defaultdict[str, float] = defaultdict(float)
    for part, figures in line["processes"].items():
        for figure in FLAT_FIGURES:
            curve = curves[f"{part}: {figure}"]
            curve.must_be_flat = part.startswith("spared") and not part.endswith(" children")
            curve.add(line["hours"], figures[figure])
        together["pss_mb"] += figures["pss_mb"]
        together["files"] += figures["files"]
    for figure, value in together.items():
        curves[f"all together: {figure}"].must_be_flat = True
        curves[f"all together: {figure}"].add(line["hours"], value)


def _add_lives(curves: defaultdict[str, Curve], line: Mapping[str, Any], seen: set[tuple[str, float]]) -> None:
    """Add each life of a killed part once, at its first sample of the age at which lives are compared."""
    for part, age_s in line["age_s"].items():
        began_h = round(line["hours"] - age_s / 3600, 3)
        if part.startswith("spared") or not AGE_S[0] <= age_s < AGE_S[1] or (part, began_h) in seen:
            continue
        seen.update((part, round(began_h + shift, 3)) for shift in (-0.001, 0, 0.001))
        if part in line["processes"]:
            for figure in ("anonymous_mb", "rss_mb", "files"):
                name = f"{part}, a minute old: {figure}"
                curves[name].must_be_flat = True
                curves[name].add(line["hours"], line["processes"][part][figure])


def summary_of(lines: Sequence[Mapping[str, Any]], warm_h: float = WARM_H) -> dict[str, Any]:
    """Return the figures of a soak: each curve judged, latencies, kills, and what its end said."""
    curves = curves_of(lines)
    judged = {name: curve.judged(warm_h) for name, curve in sorted(curves.items())}
    wrong = [name for name, each in judged.items() if each["must_be_flat"] and each["flat"] is False]
    kills: defaultdict[str, int] = defaultdict(int)
    for line in lines:
        if line["kind"] == "kill":
            kills[line["part"]] += 1
    latencies = {
        name: {
            "median": float(np.median(curve.values)),
            "highest": max(curve.values),
        }
        for name, curve in curves.items()
        if name.startswith("latency")
    }
    ends = [line for line in lines if line["kind"] == "end"]
    return {
        "hours": round(lines[-1]["hours"], 3),
        "runs": sum(line["kind"] == "begin" for line in lines),
        "options": next(line["options"] for line in lines if line["kind"] == "begin"),
        "load": {"median": float(np.median(curves["load"].values)), "highest": max(curves["load"].values)},
        "kills": dict(kills),
        "not_flat": wrong,
        "too_few_points": [name for name, each in judged.items() if each["must_be_flat"] and each["flat"] is None],
        "latency_s": latencies,
        "end": {key: value for key, value in ends[-1].items() if key not in ("kind", "hours")} if ends else None,
        "curves": judged,
    }


# --- drawing ---------------------------------------------------------------------------------------------------------


def draw(lines: Sequence[Mapping[str, Any]], path: Path, warm_h: float = WARM_H) -> None:
    """Draw the curves to ``path``; kills are marks on the time axis."""
    import matplotlib as mpl  # noqa: PLC0415 - only the figure needs it

    mpl.use("Agg")
    import matplotlib.pyplot as plt  # noqa: PLC0415

    curves = curves_of(lines)
    spared = [name.partition(":")[0] for name in curves if name.endswith(": anonymous_mb") and "spared" in name]
    killed = sorted(name.partition(",")[0] for name in curves if name.endswith("a minute old: anonymous_mb"))
    spared = [name for name in spared if not name.endswith("children")]
    own = [name for name in curves if name.startswith("disk: ") and name[6:].removeprefix("spared-") in BOUNDED]
    topics = [name for name in curves if name.startswith(("disk: topic", "disk: kafka", "disk: logs"))]
    largest = sorted(topics, key=lambda name: -curves[name].values[-1])[:7]
    panels: list[tuple[str, dict[str, str], str]] = [
        ("anonymous memory of the spared, MB", {name: f"{name}: anonymous_mb" for name in spared}, "-"),
        ("resident memory of the spared, MB", {name: f"{name}: rss_mb" for name in spared}, "-"),
        ("anonymous memory of the killed when a minute old, MB",
         {name: f"{name}, a minute old: anonymous_mb" for name in killed}, "o"),
        ("open files of the spared", {name: f"{name}: files" for name in spared}, "-"),
        ("threads of the spared", {name: f"{name}: threads" for name in spared}, "-"),
        ("open files of the killed when a minute old", {name: f"{name}, a minute old: files" for name in killed}, "o"),
        ("all together: memory (PSS), MB", {"all": "all together: pss_mb", "Kafka (RSS)": "kafka: rss_mb"}, "-"),
        ("disk with a bound, MB", {name[6:]: name for name in own}, "-"),
        ("disk that grows: topics and logs, MB", {name[6:]: name for name in largest}, "-"),
        ("seconds since the last sample, since the alert for notices",
         {name.removeprefix("latency of "): name for name in curves if name.startswith("latency")}, "log"),
        ("lag with marks of transactions",
         {name[5:]: name for name in curves if name.startswith("lag") and "web" not in name}, "log"),
        ("load average; page's median answer, s",
         {"load": "load"} | {name: name for name in curves if name.startswith("pages")}, "log"),
    ]  # fmt: skip
    figure, axes = plt.subplots(4, 3, figsize=(18, 17))
    kills_h = [(line["hours"], line["part"] == "kafka") for line in lines if line["kind"] == "kill"]
    for axis, (title, named, form) in zip(axes.flat, panels, strict=True):
        for label, name in named.items():
            curve = curves.get(name)
            if curve is not None and curve.hours:
                axis.plot(
                    curve.hours, curve.values, "o-" if form == "o" else "-", label=label, markersize=3, linewidth=1
                )
        for hours, is_kafka in kills_h:
            axis.axvline(hours, 0, 1 if is_kafka else 0.03, color="red" if is_kafka else "black", linewidth=0.5)
        axis.axvspan(0, warm_h, color="0.93")
        axis.set_title(title, fontsize=10)
        if form == "log":
            axis.set_yscale("symlog", linthresh=0.1)
        elif len(named) >= _SEVERAL:
            axis.set_ylim(bottom=0)
        axis.legend(fontsize=7, loc="best")
    for axis in axes[-1]:
        axis.set_xlabel("hours (black: kills of a process, red: of Kafka)")
    figure.tight_layout()
    figure.savefig(path, dpi=80)
    plt.close(figure)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="of the soak, or its packed samples")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results"), help="default: benchmarks/results")
    parser.add_argument("--warm-h", type=float, default=WARM_H, help="hours that do not count (default: 0.5)")
    options = parser.parse_args()
    lines = lines_of(options.folder / "samples.jsonl" if options.folder.is_dir() else options.folder)
    if not any(line["kind"] == "sample" for line in lines):
        sys.exit("error: no sample yet")
    options.out.mkdir(parents=True, exist_ok=True)
    summary = summary_of(lines, options.warm_h)
    (options.out / "soak.json").write_text(json.dumps(summary, indent=1) + "\n")
    draw(lines, options.out / "soak.png", options.warm_h)
    for name, each in summary["curves"].items():
        if each["must_be_flat"]:
            says = {True: "flat", False: "NOT FLAT", None: "too few points"}[each["flat"]]
            growth = f"{each['growth']:+8.1%}" if "growth" in each else " " * 8
            print(f"{name:<55}{growth}  {says}")
    end = summary["end"]
    is_wrong = bool(summary["not_flat"]) or (end is not None and not end["right"])
    print("it still runs, or was broken off" if end is None else f"at the end: {end['wrong']}")
    sys.exit(1 if is_wrong else 0)


if __name__ == "__main__":
    main()
