"""The three families of recordings, each a third of every mean: faults, movements and shapes.

At most two classes a protocol, 400 training and 500 test windows a task: all methods in an hour on one core.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from typing import Final

from benchmarks.detector.faulty_sets import FAULTY, SPLITS, faulty_cases
from benchmarks.detector.sets import Case, Limits, cases

FAMILIES: Final[dict[str, tuple[str, ...]]] = {
    "faults": FAULTY,
    "movements": (
        "spoken_arabic_digits",
        "natops",
        "character_trajectories",
        "epilepsy",
        "racket_sports",
        "basic_motions",
        "ering",
        "JapaneseVowels",
        "PickupGestureWiimoteZ",
        "GunPoint",
    ),
    "shapes": ("ACSF1", "ArrowHead", "ItalyPowerDemand", "OSULeaf"),
}
DATASETS: Final = tuple(name for names in FAMILIES.values() for name in names)
LIMITS: Final = Limits(classes=2, training=400, test=500)
_FEWEST: Final = 10  # windows that `streamad train` accepts


def family_of(dataset: str) -> str:
    """Return the family of a set."""
    return next(family for family, names in FAMILIES.items() if dataset in names)


def tasks(dataset: str) -> Iterator[Case]:
    """Yield the tasks of a set that `streamad train` accepts: of the robots', too, those of two classes a protocol."""
    if dataset not in FAULTY:
        yield from (case for case in cases(dataset, LIMITS) if len(case.task.train) >= _FEWEST)
        return
    for _, group in groupby(faulty_cases(dataset), key=lambda case: case.row):
        of_row = [case for case in group if len(case.task.train) >= _FEWEST]
        most = LIMITS.classes * (1 if of_row[0].row.protocol == "faults" else len(SPLITS))
        yield from (case for place, case in enumerate(of_row) if min(place, len(of_row) - 1 - place) < most / 2)
