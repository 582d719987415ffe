"""Warnings by the limits of process-improve's ``BatchMonitor`` for the sequences of ``early.py``.

All training sequences are its reference batches, aligned by its ``resample_to_reference`` to one of median length, and
its ``BatchPCA`` has three components, as in its documentation. A sequence is warned of at the first sample at which T2
or SPE exceeds its limit, of 1 - rate and of 99.9 %. Two things favour it: alignment needs the whole sequence, which a
running one is not, and of a faulty sequence only samples from the onset on count, so that an earlier false alarm hides
nothing.

Run, where ``pip install process-improve==2.2.0`` was done: ``python benchmarks/quality/early_monitor.py [SET ...]``.
Each result is stored in early_monitor.jsonl as it is computed; ``early.py --report`` prints them.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks.quality import early
from streamad.judge.early.course import Course

_N_COMPONENTS = 3


def measured(dataset: str, seed: int) -> dict[str, Any]:
    """Return the figures of a simulated plant or of one division of real batches."""
    from process_improve.batch import BatchMonitor, BatchPCA  # noqa: PLC0415 - optional

    training, tested, _ = early.simulated(seed) if dataset == early.SIMULATED else early.divided(dataset, seed)
    usual = float(np.median([len(course) for course in training]))
    reference = min(training, key=lambda course: abs(len(course) - usual))
    known = aligned(training, reference)
    model = BatchPCA(n_components=_N_COMPONENTS).fit(known)
    rate = early.RATES[dataset]
    figures: dict[str, Any] = {
        "set": dataset,
        "seed": seed,
        "n_normal": len(tested.normal),
        "n_faulty": len(tested.faulty),
        "ways": [],
    }
    frames = [aligned(courses, reference) for courses in (tested.normal, tested.faulty)]
    model.predict_online_trace = remembered(model.predict_online_trace)
    for level in (1 - rate, 0.999):
        monitor = BatchMonitor(model, conf_level=level).fit(known)
        normal, faulty = (
            [found_at(monitor.monitor(of[str(number)]), course) for number, course in enumerate(courses)]
            for of, courses in zip(frames, (tested.normal, tested.faulty), strict=True)
        )
        at = [
            next(iter(found[found >= onset].tolist()), None) for found, onset in zip(faulty, tested.onsets, strict=True)
        ]
        way = f"{100 * level:g}"
        figures["ways"].append(way)
        figures[way] = {
            "false": sum(bool(len(found)) for found in normal),
            **early.how_early(tested, usual, at),
        }
    return figures


def remembered(trace_of: Callable[..., Any]) -> Callable[..., Any]:
    """Return ``trace_of`` for frames that stay: both levels have the same traces, and other limits."""
    traces: dict[int, Any] = {}

    def remembering(batch: Any, **options: Any) -> Any:
        if id(batch) not in traces:
            traces[id(batch)] = trace_of(batch, **options)
        return traces[id(batch)]

    return remembering


def aligned(courses: Sequence[Course], reference: Course) -> dict[str, Any]:
    """Return ``courses`` as frames of the length of ``reference``, by number."""
    import pandas as pd  # noqa: PLC0415 - optional
    from process_improve.batch import resample_to_reference  # noqa: PLC0415

    frames = {str(number): pd.DataFrame(course.values.T.astype(float)) for number, course in enumerate(courses)}
    frames["reference"] = pd.DataFrame(reference.values.T.astype(float))
    found: dict[str, Any] = resample_to_reference(frames, list(range(len(reference.values))), "reference")
    del found["reference"]
    return found


def found_at(result: Any, course: Course) -> Any:
    """Return the points of ``course`` that had been seen at each alarm, rising."""
    share = np.flatnonzero(result.t2_alarm | result.spe_alarm) / (len(result.time) - 1)
    return np.ceil(share * (len(course) - 1)).astype(int) + 1


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sets", nargs="*", default=[*early.REAL, early.SIMULATED], metavar="SET", help="all by default")
    parser.add_argument("--seeds", type=int, default=5, help="simulated plants")
    parser.add_argument("--divisions", type=int, default=20, help="divisions of real batches")
    options = parser.parse_args()
    done = {(cell["set"], cell["seed"]) for cell in early.stored(early.OF_MONITOR)}
    for dataset in options.sets:
        for seed in range(options.seeds if dataset == early.SIMULATED else options.divisions):
            if (dataset, seed) not in done:
                with early.OF_MONITOR.open("a") as file:
                    file.write(json.dumps(measured(dataset, seed)) + "\n")
    print("\n".join(early.report(early.stored())))


if __name__ == "__main__":
    main()
