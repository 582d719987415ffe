"""Measures the ensemble, the choices that it was made by, and its peers; builds docs/model/detector.md.

python -m benchmarks.detector run [--sets NAME ...] [--methods NAME ...] [--seeds N] [--sizes N ...]
python -m benchmarks.detector calibration
python -m benchmarks.detector faults
python -m benchmarks.detector report

``run`` leaves out what is stored, so that it can be stopped and called again. The data: see ``benchmarks.paper``.
"""

from __future__ import annotations

import argparse
import sys

from benchmarks.detector import calibration, faults
from benchmarks.detector.cells import add_cell, read_cells
from benchmarks.detector.measure import CHOICES, METHODS, measure
from benchmarks.detector.report import PAGE, updated
from benchmarks.detector.sets import SETS, cases
from streamad.errors import StreamadError, TrainingDataError


def run(arguments: argparse.Namespace) -> None:
    """Measure the cells that are missing."""
    for dataset in arguments.sets:
        for case in cases(dataset):
            known = {cell.key for cell in read_cells()}
            for method in arguments.methods:
                for size in arguments.sizes:
                    for seed in range(arguments.seeds):
                        key = (dataset, case.row.protocol, case.label, method, size, seed)
                        if key in known or size >= len(case.task.train):
                            continue
                        try:
                            cell = measure(case, method, n_training=size, seed=seed)
                        except TrainingDataError as error:
                            print(f"{key}: {error}", file=sys.stderr)
                            continue
                        add_cell(cell)
                        print(*key, cell.auc or "", flush=True)


def main() -> int:
    """Run the command; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.detector", description=__doc__.split("\n\n")[0])
    commands = parser.add_subparsers(dest="command", required=True)
    runs = commands.add_parser("run", help="measure what is missing")
    runs.add_argument("--sets", nargs="+", choices=SETS, default=SETS, metavar="NAME", help=", ".join(SETS))
    methods = (CHOICES, *METHODS)
    runs.add_argument(
        "--methods", nargs="+", choices=methods, default=[CHOICES], metavar="NAME", help=", ".join(methods)
    )
    runs.add_argument("--seeds", type=int, default=1, help="seeds 0 to N - 1 (default: 1)")
    runs.add_argument("--sizes", type=int, nargs="+", default=[0], help="training windows; 0: all (default)")
    commands.add_parser("calibration", help="measure the rate of false alarms with few calibration scores: a minute")
    commands.add_parser("faults", help="measure the AUC by the kind of fault on simulated plants: minutes")
    commands.add_parser("report", help="write the measured tables into the page")
    arguments = parser.parse_args()
    try:
        if arguments.command == "run":
            run(arguments)
        elif arguments.command == "calibration":
            calibration.store(list(calibration.resampled()))
        elif arguments.command == "faults":
            faults.store(list(faults.measured()))
        else:
            PAGE.write_text(updated(PAGE.read_text(encoding="utf-8"), read_cells()), encoding="utf-8")
    except StreamadError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
