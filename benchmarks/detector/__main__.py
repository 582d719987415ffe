"""Measures the default detector, its rules and its peers; builds the tables of docs/model/detector.md.

python -m benchmarks.detector run [--sets NAME ...] [--methods NAME ...] [--tasks N]
python -m benchmarks.detector calibration
python -m benchmarks.detector faults
python -m benchmarks.detector report

Method ``former`` is the default of commit f4a4ae99: run it alone, with the models folder of that commit in PYTHONPATH.
``run`` leaves out what is stored, so that it can be stopped and called again. The data: see ``benchmarks.paper``.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter

from benchmarks.detector import calibration, faults
from benchmarks.detector.cells import add_cell, read_cells
from benchmarks.detector.families import DATASETS, tasks
from benchmarks.detector.measure import CHOICES, METHODS, measure
from benchmarks.detector.sets import Row
from streamad.errors import StreamadError, TrainingDataError

SEED = 0


def run(arguments: argparse.Namespace) -> None:
    """Measure the cells that are missing."""
    for dataset in arguments.sets:
        seen: Counter[Row] = Counter()
        for case in tasks(dataset):
            seen[case.row] += 1
            if arguments.tasks is not None and seen[case.row] > arguments.tasks:
                continue
            known = {cell.key for cell in read_cells()}
            for method in arguments.methods:
                key = (*case.row, case.label, method, SEED)
                if key in known:
                    continue
                try:
                    cell = measure(case, method, seed=SEED)
                except TrainingDataError as error:
                    print(f"{key}: {error}", file=sys.stderr)
                    continue
                add_cell(cell)
                print(*key, cell.auc, cell.found, cell.false_alarms, cell.fit_s, flush=True)


def main() -> int:
    """Run the command; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.detector", description=__doc__.split("\n\n")[0])
    commands = parser.add_subparsers(dest="command", required=True)
    runs = commands.add_parser("run", help="measure what is missing")
    runs.add_argument("--sets", nargs="+", choices=DATASETS, default=DATASETS, metavar="NAME", help=", ".join(DATASETS))
    methods = (*METHODS, CHOICES)
    runs.add_argument(
        "--methods", nargs="+", choices=methods, default=["ensemble"], metavar="NAME", help=", ".join(methods)
    )
    runs.add_argument("--tasks", type=int, help="at most so many tasks of a row (default: all)")
    commands.add_parser("calibration", help="measure the rate of false alarms with few calibration scores: minutes")
    commands.add_parser("faults", help="measure the AUC by the kind of fault on simulated plants: minutes")
    commands.add_parser("report", help="write the tables of the page, print the others")
    arguments = parser.parse_args()
    try:
        if arguments.command == "run":
            run(arguments)
        elif arguments.command == "calibration":
            calibration.store(list(calibration.resampled()))
        elif arguments.command == "faults":
            faults.store(list(faults.measured()))
        else:
            _report()
    except StreamadError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


def _report() -> None:
    # `former` runs with models without the report's parts
    from benchmarks.detector.report import PAGE, further_tables, updated  # noqa: PLC0415

    PAGE.write_text(updated(PAGE.read_text(encoding="utf-8"), read_cells()), encoding="utf-8")
    print(further_tables(read_cells()))


if __name__ == "__main__":
    sys.exit(main())
