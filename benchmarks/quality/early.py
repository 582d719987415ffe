"""Warnings of running sequences: false ones for each normal sequence, faults found before their end, and how early.

Five simulated plants at 1 % (``simulated``), and divisions of real batches, with faults injected midway, at 5 %
(``batch_nylon``, ``batch_dryer``). Beside the largest z of all looks stands "each look by itself": a look warns at the
same rate by its own calibration, so that a sequence has as many chances as looks; and, where ``early_monitor.py`` has
run, the limits of process-improve's ``BatchMonitor``.

Which sequences calibrate decides much at 1 %, so the share is also averaged over 200 choices of them, where they are
held out.

Run: ``python benchmarks/quality/early.py [--seeds 5] [--divisions 20] [SET ...]``; about a minute a plant or division
on one thread. Each result is stored in early.jsonl as it is computed, and not computed again; ``--report`` prints them.
Legend: N sequences, C channels, G points, J looks.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import betabinom

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from benchmarks.paper.data.datasets import data_path  # noqa: E402 - after the path is known
from streamad.injected_faults import channel_scales  # noqa: E402
from streamad.judge.calibration import OUT_OF_FOLD_BELOW, Calibration, calibration_count  # noqa: E402
from streamad.judge.early.course import Course, whole_course  # noqa: E402
from streamad.judge.early.model import NO_LOOK, Scales  # noqa: E402
from streamad.learn.early.fitting import LookFitting, ages_of, usual_length  # noqa: E402
from streamad.learn.training.calibrating import folds_of  # noqa: E402
from streamad.settings.plant_yaml import WindowSettings  # noqa: E402
from streamad.simulation.faults import CHANNELS  # noqa: E402
from streamad.simulation.recordings import simulate  # noqa: E402
from streamad.types import ChannelSpec, FinishedSequence, Position, WindowSet  # noqa: E402

RESULTS = Path(__file__).with_suffix(".jsonl")
OF_MONITOR = Path(__file__).with_name("early_monitor.jsonl")
SIMULATED, REAL = "simulated", ("batch_nylon", "batch_dryer")
RATES = {SIMULATED: 0.01, "batch_nylon": 0.05, "batch_dryer": 0.05}
_N_LOOKS = 10
_WINDOW = WindowSettings(length=1024)
_TRAINING, _NORMAL, _FAULTY = 200, 300, 100
_FOLDS = 5
_DIVISIONS = 200
_SHARE = 0.6  # of real batches that train
_FAULTS: dict[str, tuple[float, ...]] = {"bias": (2.0, 4.0), "drift": (4.0, 8.0), "stuck": (1.0,), "noise": (2.0, 4.0)}


@dataclass(frozen=True, slots=True, eq=False)
class Tested:
    """Courses of normal and of faulty sequences; ``onsets`` are the faults' first points."""

    normal: list[Course]
    faulty: list[Course]
    onsets: list[int]


def simulated(seed: int) -> tuple[list[Course], Tested, tuple[ChannelSpec, ...]]:
    """Return the training courses of a simulated plant, those that are tested, and its channels."""
    batches = simulate(_TRAINING + _NORMAL, _FAULTY, seed=seed)
    training, normal, faulty, onsets = [], [], [], []
    for batch in batches:
        sequence = FinishedSequence(
            batch.stream, batch.sequence, "marker", batch.times_us, batch.values, Position(0, 0)
        )
        course = whole_course(sequence, _WINDOW)
        if batch.fault:
            faulty.append(course)
            onsets.append(int(np.searchsorted(batch.times_us, batch.onset_us or 0)))
        else:
            (training if len(training) < _TRAINING else normal).append(course)
    channels = tuple(ChannelSpec(name, unit) for name, unit in CHANNELS)
    return training, Tested(normal, faulty, onsets), channels


def divided(name: str, seed: int) -> tuple[list[Course], Tested, tuple[ChannelSpec, ...]]:
    """Return a division of real batches: 60 % train, faults that begin midway go into the others."""
    with np.load(data_path(f"{name}.npz"), allow_pickle=False) as arrays:
        values, lengths = np.nan_to_num(arrays["x"]).astype(np.float32), arrays["len"].astype(np.int64)
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(values))
    n = round(_SHARE * len(values))
    training, later = np.sort(order[:n]), np.sort(order[n:])
    scales = channel_scales(WindowSet(values[training], lengths[training], tuple(map(str, training))))
    faulty, onsets = [], []
    for batch in later.tolist():
        for kind, strengths in _FAULTS.items():
            for strength in strengths:
                onset = int(lengths[batch] * rng.uniform(0.2, 0.7))
                course = values[batch, :, : lengths[batch]].copy()
                channel = int(rng.integers(len(course)))
                course[channel] = broken(course[channel], kind, strength * float(scales[channel]), onset, rng)
                if not np.array_equal(course, values[batch, :, : lengths[batch]]):
                    faulty.append(whole(course))
                    onsets.append(onset)
    of = {place: whole(values[place, :, : lengths[place]]) for place in range(len(values))}
    channels = tuple(ChannelSpec(f"channel {channel}") for channel in range(values.shape[1]))
    return [of[place] for place in training], Tested([of[place] for place in later], faulty, onsets), channels


def whole(values: Any) -> Course:
    """Return the course of readings [C, n] that are all there, as looks see it: up to the one before the last."""
    seen = np.ascontiguousarray(values[:, :-1])
    return Course(seen, np.ones(seen.shape, np.bool_))


def broken(course: Any, kind: str, size: float, onset: int, rng: np.random.Generator) -> Any:
    """Return one channel [G] with a fault of ``size`` from ``onset`` on."""
    late, n = np.arange(len(course)) >= onset, len(course) - onset
    sign = 1.0 if rng.random() < 0.5 else -1.0
    if kind == "stuck":
        return np.where(late, course[onset], course)
    if kind == "noise":
        return course + size * rng.standard_normal(len(course)) * late
    ramp = np.clip((np.arange(len(course)) - onset + 1) / n, 0.0, 1.0) if kind == "drift" else 1.0
    return course + sign * size * ramp * late


def calibrated(
    training: Sequence[Course], fitting: LookFitting, rate: float
) -> tuple[Callable[[Sequence[Course]], Scales], Scales]:
    """Return what gives the z [N, J] of courses, and those of the calibration sequences: held out, or out of fold."""
    ages = ages_of(usual_length(training), _N_LOOKS, _WINDOW)
    if len(training) >= OUT_OF_FOLD_BELOW:
        n = calibration_count(len(training), 0.5, rate)
        looks = fitting.fit(training[n:], ages)
        return (lambda courses: fitting.z(looks, courses)), fitting.z(looks, training[:n])
    parts = []
    for held_out in folds_of(len(training), _FOLDS):
        others = [course for place, course in enumerate(training) if place not in set(held_out.tolist())]
        of_fold = fitting.fit(others, ages)
        found = np.full((len(held_out), len(ages)), NO_LOOK)
        places = [ages.index(look.form.n_points) for look in of_fold]
        found[:, places] = fitting.z(of_fold, [training[place] for place in held_out])
        parts.append(found)
    looks = fitting.fit(training, ages)
    kept = [ages.index(look.form.n_points) for look in looks]
    return (lambda courses: fitting.z(looks, courses)), np.concatenate(parts)[:, kept]


def warned_at(z: Scales, calibration: Calibration, rate: float) -> list[int | None]:
    """Return the look at which each sequence is first warned of, by the largest z [N, J] so far."""
    largest = np.maximum.accumulate(z, axis=1)
    return [
        next((look for look, each in enumerate(row) if calibration.p_value(each)[0] <= rate), None)
        for row in largest.tolist()
    ]


def each_by_itself(z: Scales, by_look: Sequence[Calibration], rate: float) -> list[int | None]:
    """Return the look at which each sequence is first warned of if every look has the rate for itself."""
    return [
        next((look for look, each in enumerate(row) if by_look[look].p_value(each)[0] <= rate), None)
        for row in z.tolist()
    ]


def measured(dataset: str, seed: int) -> dict[str, Any]:
    """Return the figures of a simulated plant or of one division of real batches."""
    begun = time.perf_counter()
    rate = RATES[dataset]
    training, tested, channels = simulated(seed) if dataset == SIMULATED else divided(dataset, seed)
    rng = np.random.default_rng(seed)
    training = [training[place] for place in rng.permutation(len(training))]
    fitting = LookFitting(_WINDOW, channels, seed=seed)
    z_of, calibrating = calibrated(training, fitting, rate)
    ages = ages_of(usual_length(training), _N_LOOKS, _WINDOW)
    by_maximum = Calibration.from_terms(calibrating.max(axis=1).astype(np.float32)[:, None], rate)
    by_look = [Calibration.from_terms(column.astype(np.float32)[:, None], rate) for column in calibrating.T]
    normal, faulty = z_of(tested.normal), z_of(tested.faulty)
    usual = float(np.median([len(course) for course in training]))
    figures: dict[str, Any] = {
        "set": dataset,
        "seed": seed,
        "rate": rate,
        "n_calibration": len(calibrating),
        "tail": by_maximum.tail,
        "n_normal": len(normal),
        "n_faulty": len(faulty),
        "over_divisions": over_divisions(calibrating.max(axis=1), normal.max(axis=1), rate, rng)
        if len(training) >= OUT_OF_FOLD_BELOW
        else None,
        "calibration_maxima_at": np.bincount(calibrating.argmax(axis=1), minlength=len(ages)).tolist(),
    }
    ways = {
        "largest": (warned_at(normal, by_maximum, rate), warned_at(faulty, by_maximum, rate)),
        "each": (each_by_itself(normal, by_look, rate), each_by_itself(faulty, by_look, rate)),
    }
    for name, (of_normal, of_faulty) in ways.items():
        figures[name] = {
            "false": sum(look is not None for look in of_normal),
            "false_at": np.bincount([look for look in of_normal if look is not None], minlength=len(ages)).tolist(),
            **how_early(tested, usual, [None if look is None else ages[look] for look in of_faulty]),
        }
    return {**figures, "seconds": round(time.perf_counter() - begun, 1)}


def over_divisions(calibrating: Scales, tested: Scales, rate: float, rng: np.random.Generator) -> float:
    """Return the mean share that is ever warned of, where chance chooses anew which normal sequences calibrate.

    ``calibrating`` [n] and ``tested`` [m] are largest z by the same looks, which have seen none of them.
    """
    pool, shares = np.concatenate([calibrating, tested]), []
    for _ in range(_DIVISIONS):
        maxima, others = np.split(rng.permutation(pool), [len(calibrating)])
        by = Calibration.from_terms(maxima.astype(np.float32)[:, None], rate)
        shares.append(np.mean([by.p_value(each)[0] <= rate for each in others.tolist()]))
    return float(np.mean(shares).round(5))


def how_early(tested: Tested, usual: float, warned_at_points: Sequence[int | None]) -> dict[str, Any]:
    """Return how many faults were warned of between their onset and the end, and the medians of lead and delay."""
    lead, delay = [], []
    for course, onset, at in zip(tested.faulty, tested.onsets, warned_at_points, strict=True):
        if at is not None and onset <= at < len(course):
            lead.append((len(course) - at) / usual)
            delay.append((at - onset) / (usual / _N_LOOKS))
    return {
        "found": len(lead),
        "lead": round(float(np.median(lead)), 3) if lead else None,
        "delay": round(float(np.median(delay)), 2) if delay else None,
    }


def stored(file: Path = RESULTS) -> list[dict[str, Any]]:
    """Return the results so far."""
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def interval(cells: Sequence[dict[str, Any]], rate: float) -> tuple[int, int]:
    """Return the 95 % beta-binomial interval of all normal sequences that are ever warned of at the exact rate.

    Of n calibration sequences and rank k, the chance of a warning is Beta(k, n + 1 - k). The plants' numbers add up:
    their quantiles are found by draws.
    """
    rng, total = np.random.default_rng(0), np.zeros(20_000)
    for cell in cells:
        n = cell["n_calibration"]
        rank = max(int(np.floor(rate * (n + 1) + 1e-9)), 1)
        total += betabinom.rvs(cell["n_normal"], rank, n + 1 - rank, size=len(total), random_state=rng)
    low, high = np.quantile(total, [0.025, 0.975])
    return int(low), int(high)


def line_of(words: str, cells: Sequence[dict[str, Any]], way: str) -> str:
    """Return the line of one way to warn, over all ``cells`` of a set."""
    false, found = (sum(cell[way][name] for cell in cells) for name in ("false", "found"))
    n_normal, n_faulty = (sum(cell[name] for cell in cells) for name in ("n_normal", "n_faulty"))
    lead, delay = (
        np.median([cell[way][name] for cell in cells if cell[way][name] is not None]) for name in ("lead", "delay")
    )
    return (
        f"  {words:<23} false {false / n_normal:6.1%}  found before the end {found / n_faulty:4.0%}  lead "
        f"{lead:.0%} of the usual length  delay {delay:.1f} looks"
    )


def report(cells: Sequence[dict[str, Any]]) -> Iterator[str]:
    """Yield the lines of the tables."""
    for dataset in (SIMULATED, *REAL):
        of_set = [cell for cell in cells if cell["set"] == dataset]
        if not of_set:
            continue
        rate = RATES[dataset]
        n_normal, n_faulty = (sum(cell[name] for cell in of_set) for name in ("n_normal", "n_faulty"))
        low, high = interval(of_set, rate)
        yield f"{dataset} at {rate:.0%}: {len(of_set)} runs, {n_normal} normal, {n_faulty} faulty sequences"
        yield f"  95 % of exact calibrations warn of {low / n_normal:.1%} to {high / n_normal:.1%} of the normal ones"
        if all(cell.get("over_divisions") is not None for cell in of_set):
            mean = np.mean([cell["over_divisions"] for cell in of_set])
            yield f"  the largest z warns of {mean:.2%} of them, over {_DIVISIONS} choices of those that calibrate"
        yield line_of("largest z of all looks", of_set, "largest")
        yield line_of("each look by itself", of_set, "each")
        of_monitor = [cell for cell in stored(OF_MONITOR) if cell["set"] == dataset]
        for way in of_monitor[0]["ways"] if of_monitor else ():
            yield f"{line_of(f'BatchMonitor at {way} %', of_monitor, way)} ({len(of_monitor)} runs)"
        if dataset == SIMULATED:
            each = ", ".join(f"{cell['largest']['false'] / cell['n_normal']:.1%}" for cell in of_set)
            yield f"  false warnings by plant: {each}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sets", nargs="*", default=[SIMULATED, *REAL], metavar="SET", help="all by default")
    parser.add_argument("--seeds", type=int, default=5, help="simulated plants")
    parser.add_argument("--divisions", type=int, default=20, help="divisions of real batches")
    parser.add_argument("--report", action="store_true", help="print what is stored, compute nothing")
    options = parser.parse_args()
    done = {(cell["set"], cell["seed"]) for cell in stored()}
    for dataset in () if options.report else options.sets:
        for seed in range(options.seeds if dataset == SIMULATED else options.divisions):
            if (dataset, seed) not in done:
                cell = json.dumps(measured(dataset, seed))
                print(cell, file=sys.stderr, flush=True)
                with RESULTS.open("a") as file:
                    file.write(cell + "\n")
    print("\n".join(report(stored())))


if __name__ == "__main__":
    main()
