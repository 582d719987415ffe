"""The demo over several seeds: share of faulty batches found and of false alarms at a configured rate of 0.02.

Each seed is another plant, another training and another 400 batches to judge, through the same commands as
``scripts/demo``. Run: ``python benchmarks/quality/demo_seeds.py [--seeds 5] [--json]``; about two minutes a seed.
Fewer batches (``--train 24 --normal 6 --faulty 4``) and epochs (``STREAMAD_MODEL__OPTIONS='{"epochs": 2}'``) only show
that it works.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]


def run_seed(seed: int, sizes: Sequence[str]) -> dict[str, float]:
    """Simulate, train and run in a folder of their own; returns the demo's summary and the seconds of each command.

    ``sizes`` are options of ``streamad simulate``.
    """
    streamad = [sys.executable, "-m", "streamad"]
    commands = {
        "simulate": [*streamad, "simulate", "--out", ".", "--seed", str(seed), *sizes],
        "train": [*streamad, "train"],
        "run": [*streamad, "run", "--quiet"],
    }
    environment = {**os.environ, "STREAMAD_MODEL__SEED": str(seed)}
    with tempfile.TemporaryDirectory() as folder:
        started = time.time()
        seconds = {}
        for name, command in commands.items():
            begun = time.perf_counter()
            subprocess.run(command, cwd=folder, env=environment, check=True, stdout=sys.stderr)
            seconds[f"{name}_s"] = round(time.perf_counter() - begun, 1)
        last = [sys.executable, str(ROOT / "scripts" / "demo_summary.py"), "--started", str(started)]
        output = subprocess.run(last, cwd=folder, check=True, capture_output=True, text=True).stdout
    figures: dict[str, float] = json.loads(output.splitlines()[-1].removeprefix("summary: "))
    return {"seed": seed, **figures, **seconds}


def summed_up(runs: Sequence[Mapping[str, float]]) -> dict[str, Any]:
    """Return the medians over ``runs`` and the runs themselves."""
    names = ("detection_rate", "false_alarm_rate", "wall_s")
    return {**{f"median_{name}": statistics.median(run[name] for run in runs) for name in names}, "runs": runs}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=5, help="number of seeds, from 0 on")
    parser.add_argument("--train", type=int, default=200, help="normal batches to learn from")
    parser.add_argument("--normal", type=int, default=300, help="normal batches to judge")
    parser.add_argument("--faulty", type=int, default=100, help="faulty batches to judge")
    parser.add_argument("--json", action="store_true", help="print one JSON object last")
    options = parser.parse_args()
    sizes = [f"--{name}={getattr(options, name)}" for name in ("train", "normal", "faulty")]
    runs = []
    for seed in range(options.seeds):
        runs.append(run_seed(seed, sizes))
        print(json.dumps(runs[-1]), file=sys.stderr, flush=True)
    figures = summed_up(runs)
    if options.json:
        print(json.dumps(figures))
        return
    print(f"{'seed':>4} {'found':>8} {'false alarms':>13} {'wall s':>8}")
    for run in runs:
        print(f"{run['seed']:>4} {run['detection_rate']:>8.1%} {run['false_alarm_rate']:>13.1%} {run['wall_s']:>8.1f}")
    found, false, wall = (figures[f"median_{name}"] for name in ("detection_rate", "false_alarm_rate", "wall_s"))
    print(f"{'med.':>4} {found:>8.1%} {false:>13.1%} {wall:>8.1f}")


if __name__ == "__main__":
    main()
