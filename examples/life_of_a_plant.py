"""The life of a plant with three monitors: streamad, one with a fixed model, and one that learns naively.

The plant is the simulated fermenter of docs/model/simulation.md. It starts, runs, a sensor drifts, the recipe changes
for good, every tenth batch is faulty and unlabelled, and at last operators answer alerts. The monitors get the same
messages, have the same detector and start without a model. Printed for the last third of each phase: how many faulty
batches each monitor found, and how many normal ones it called faulty.

  streamad  the product: inlier store, drift, retraining, comparison, promotion, swap, operators' feedback
  frozen    the same with retraining off: its first model throughout
  naive     retrains on everything that did not alert, and calibrates on it

Run: python examples/life_of_a_plant.py [--seed 0] [--plot FILE] [--json] [--quick]
docs/learning/life.md has the results.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before torch is loaded: two monitors share two cores

from life.figures import PhaseFigures, best_detection, by_phase
from life.monitors import KINDS, Kind
from life.plant import Batch, Phase, simulated
from life.report import draw, table
from life.watching import Course, watched

from streamad.settings.learning import PromotionSettings
from streamad.settings.plant_yaml import Settings, load_settings
from streamad.simulation.batch import Recipe

CONFIG = Path(__file__).parent / "life" / "plant.yaml"
GENTLER = Recipe(glucose_g_l=10.0, feed_start_l_h=1.2, feed_growth_h=0.16)  # than 8 g/L, 1.0 L/h and 0.19 per hour
READS_HIGH = 0.4  # % of CO2, where normal batches reach 7 and the mean is 2.3

PHASES = (
    Phase("cold start", 1080),
    Phase("normal running", 1080),
    Phase("sensor drift", 1080, co2_offset=(0.0, READS_HIGH)),
    Phase("recipe change", 1080, recipe=GENTLER, co2_offset=(READS_HIGH, READS_HIGH)),
    Phase("contaminated", 1800, recipe=GENTLER, co2_offset=(READS_HIGH, READS_HIGH), faults=0.1, test_faults=0.1),
    Phase("operator feedback", 1080, recipe=GENTLER, co2_offset=(READS_HIGH, READS_HIGH), answered=0.5),
)

NEVER = {"after_inliers": None, "relearn": "off"}
QUICK_LEARNING = {
    "first_training": 20,
    "min_training": 10,
    "reserve": 0.3,
    "after_inliers": 40,
    "promotion": PromotionSettings(min_comparison=5),
}
QUICK_MODEL = {"detector": "nearest", "options": {}, "references": ()}
QUICK_BATCHES = 40  # times fewer


def settings_of(kind: Kind, *, quick: bool) -> Settings:
    """Return the config of a monitor."""
    settings = load_settings(CONFIG)
    assert settings.learning is not None
    changes = (QUICK_LEARNING if quick else {}) | (NEVER if kind == "frozen" else {})
    model = QUICK_MODEL if quick else {}
    sections = {
        "learning": settings.learning.model_copy(update=changes),
        "model": settings.model.model_copy(update=model),
    }
    return settings.model_copy(update=sections)


def live(phases: Sequence[Phase], batches: Sequence[Batch], *, seed: int, quick: bool) -> dict[Kind, Course]:
    """Run the monitors on the same plant, each in its own process."""
    with ProcessPoolExecutor(len(KINDS)) as pool:
        watching = {
            kind: pool.submit(watched, settings_of(kind, quick=quick), phases, batches, kind=kind, seed=seed)
            for kind in KINDS
        }
        return {kind: future.result() for kind, future in watching.items()}


def print_simulated(done: int, total: int) -> None:
    """Print the progress of the simulation, ten times."""
    if done * 10 // total > (done - 1) * 10 // total:
        print(f"{done} of {total} batches simulated", file=sys.stderr, flush=True)


def summed_up(
    figures: Sequence[PhaseFigures], courses: Mapping[Kind, Course], *, rate: float, seed: int, wall_s: float
) -> dict[str, Any]:
    """Return the object that ``--json`` prints."""
    best = best_detection(figures)
    return {
        "false_alarm_rate": rate,
        "phases": [phase.as_dict() | {"holds": phase.holds(rate, best)} for phase in figures],
        "models": {kind: len(course.new_models()) for kind, course in courses.items()},
        "seed": seed,
        "wall_s": round(wall_s, 1),
    }


def parsed() -> argparse.Namespace:
    """Return the options."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=0, help="of the plant and of the operators (default: 0)")
    parser.add_argument("--plot", type=Path, metavar="FILE", help="write a plot to a .png or .svg")
    parser.add_argument("--json", action="store_true", help="print one JSON object last")
    parser.add_argument("--quick", action="store_true", help="a short life with a poor detector, for tests")
    return parser.parse_args()


def main() -> None:
    """Simulate the plant, run the monitors, print the figures."""
    asked, began_s = parsed(), time.monotonic()
    rate = load_settings(CONFIG).alerts.false_alarm_rate
    shorter = QUICK_BATCHES if asked.quick else 1
    phases = tuple(replace(phase, batches=phase.batches // shorter) for phase in PHASES)
    batches = simulated(phases, asked.seed, print_simulated)
    courses = live(phases, batches, seed=asked.seed, quick=asked.quick)
    figures, wall_s = by_phase(phases, batches, courses), time.monotonic() - began_s
    print(table(figures, rate))
    print(f"configured false-alarm rate {rate:.0%}; {len(batches)} batches in {wall_s:.0f} s")
    if asked.plot is not None:
        draw(asked.plot, phases, batches, courses, rate)
    if asked.json:
        print(json.dumps(summed_up(figures, courses, rate=rate, seed=asked.seed, wall_s=wall_s)))


if __name__ == "__main__":
    main()
