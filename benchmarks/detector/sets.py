"""Recordings of movements and shapes: the paper's five sets, two more of the data folder, seven that come with aeon.

Classes are spread over those of a set, windows drawn once. Legend: N sequences, C channels, L window length.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np

from benchmarks.paper.data.datasets import (
    LENGTHS,
    Recordings,
    Split,
    Task,
    class_task,
    data_path,
    padded,
    read_sequences,
)
from streamad.types import WindowSet

PAPER: Final = ("spoken_arabic_digits", "natops", "character_trajectories", "epilepsy", "racket_sports")
SMALL: Final = ("basic_motions", "ering")
BUNDLED: Final = (
    "ACSF1",
    "ArrowHead",
    "GunPoint",
    "ItalyPowerDemand",
    "JapaneseVowels",
    "OSULeaf",
    "PickupGestureWiimoteZ",
)
SETS: Final = (*PAPER, *SMALL, *BUNDLED)
FEWEST_TRAINING: Final = 8
UNITS: Final[dict[str, tuple[str, ...]]] = {
    "natops": ("m",) * 24,
    "racket_sports": ("m/s2",) * 3 + ("rad/s",) * 3,
    "basic_motions": ("m/s2",) * 3 + ("rad/s",) * 3,
    "epilepsy": ("m/s2",) * 3,
    "ering": ("count",) * 4,
    "character_trajectories": ("velocity", "velocity", "force"),
}
"""The units of the sets' channels; what is measured where its unit is not published. Other sets have none."""


class Limits(NamedTuple):
    """At most so many classes a protocol, and training and test windows a task."""

    classes: int = 4
    training: int = 1500
    test: int = 1500


class Row(NamedTuple):
    """A data set under a protocol: a row of the tables."""

    dataset: str
    protocol: str


class Case(NamedTuple):
    """A task of a row: the class in question, and its windows."""

    row: Row
    label: int
    task: Task


def cases(dataset: str, limits: Limits = Limits()) -> Iterator[Case]:  # noqa: B008 - immutable
    """Yield the tasks of a set: each class normal in turn, then (from three classes on) each class left out."""
    recordings = _recordings(dataset)
    classes = np.unique(recordings.train.classes)
    chosen = classes[np.unique(np.linspace(0, len(classes) - 1, limits.classes).round().astype(int))]
    for protocol in ("one_vs_rest", "n_vs_rest") if len(classes) > 2 else ("one_vs_rest",):
        for label in chosen.tolist():
            normal = (label,) if protocol == "one_vs_rest" else tuple(c for c in classes.tolist() if c != label)
            task = _drawn(class_task(recordings, normal), limits)
            if len(task.train) >= FEWEST_TRAINING and 0 < task.is_anomaly.sum() < len(task.is_anomaly):
                yield Case(Row(dataset, protocol), label, task)


def fewer(task: Task, n: int, seed: int) -> Task:
    """Return ``task`` with ``n`` of its training windows, drawn by ``seed``."""
    kept = np.sort(np.random.default_rng(seed).permutation(len(task.train))[:n])
    return Task(task.train.take(kept), task.test, task.is_anomaly)


def _drawn(task: Task, limits: Limits) -> Task:
    rng = np.random.default_rng(0)
    train = _at_most(rng, len(task.train), limits.training)
    test = _at_most(rng, len(task.test), limits.test)
    return Task(task.train.take(train), task.test.take(test), task.is_anomaly[test])


def _at_most(rng: np.random.Generator, n: int, most: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return np.arange(n) if n <= most else np.sort(rng.choice(n, most, replace=False))


def _recordings(dataset: str) -> Recordings:
    found, units = _without_units(dataset), UNITS.get(dataset, ())
    return Recordings(*(Split(replace(each.windows, units=units), each.classes) for each in (found.train, found.test)))


@lru_cache(maxsize=1)  # the cases of a set follow one another
def _without_units(dataset: str) -> Recordings:
    if dataset in LENGTHS:
        return read_sequences(dataset)
    if dataset in SMALL:
        with np.load(data_path(f"{dataset}.npz"), allow_pickle=False) as arrays:
            parts = {name: arrays[name] for name in arrays.files}
        length = max(parts["train_x"].shape[2], parts["test_x"].shape[2])
        return Recordings(
            *(
                _split(parts[f"{part}_x"], parts[f"{part}_len"], parts[f"{part}_y"], length)
                for part in ("train", "test")
            )
        )
    return _bundled(dataset)


def _bundled(dataset: str) -> Recordings:
    """Return a set that comes with aeon's wheel; nothing is fetched."""
    import aeon  # noqa: PLC0415 - takes seconds, and only these sets need it
    from aeon.datasets import load_classification  # noqa: PLC0415

    folder = Path(os.fspath(aeon.__path__[0])) / "datasets" / "data"
    raw: dict[str, tuple[Any, Any]] = {
        part: load_classification(dataset, split=part, extract_path=str(folder)) for part in ("train", "test")
    }
    names = np.unique(np.concatenate([labels for _, labels in raw.values()]))
    courses = {part: [_without_padding(course) for course in values] for part, (values, _) in raw.items()}
    length = max(course.shape[1] for part in courses.values() for course in part)
    splits = []
    for part, (_, labels) in raw.items():
        values = np.zeros((len(labels), courses[part][0].shape[0], length), np.float32)
        for row, course in zip(values, courses[part], strict=True):
            row[:, : course.shape[1]] = course
        lengths = np.array([course.shape[1] for course in courses[part]])
        splits.append(_split(values, lengths, np.searchsorted(names, labels), length))
    return Recordings(*splits)


def _without_padding(course: Any) -> Any:
    return np.nan_to_num(course[:, ~np.isnan(course).all(axis=0)])


def _split(values: Any, lengths: Any, classes: Any, length: int) -> Split:
    windows = padded(np.nan_to_num(values), lengths, length)
    ids = tuple(str(index) for index in range(len(windows)))
    return Split(WindowSet(windows, lengths.astype(np.int64), ids), classes.astype(np.int64))
