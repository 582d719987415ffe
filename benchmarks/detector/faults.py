"""How well the default and the simple kinds tell faulty batches from normal ones: AUC by the kind of fault.

``simulated``: the faults of ``streamad simulate``. ``injected``: the twelve kinds of the library, at three strengths.
Each seed is another plant; a detector is fitted to normal batches, and later ones of the same plant are judged.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import Final

import msgspec
import numpy as np
import numpy.typing as npt

from streamad.errors import UsageError
from streamad.ingest.windowing import to_window
from streamad.injected_faults import channel_scales, injected_windows
from streamad.judge.evaluation import auc
from streamad.plugins import make_detector
from streamad.ports import FittedDetector
from streamad.settings.learning import ModelSettings
from streamad.settings.plant_yaml import WindowSettings
from streamad.simulation.recordings import Recording, simulate
from streamad.system.files import write_atomically
from streamad.types import FinishedSequence, Position, Window, WindowSet

PATH: Final = Path(__file__).resolve().parent / "faults.jsonl"
KINDS: Final = (ModelSettings().detector, *ModelSettings().references)
SEEDS: Final = (0, 1, 2)
N_TRAINING: Final = 100
N_NORMAL: Final = 200
N_FAULTY: Final = 320  # of each of the sixteen kinds, 20
N_INJECTED: Final = 20  # normal batches that each fault of the library is injected into


class Found(msgspec.Struct, frozen=True):
    """The AUC x 100 of a kind of detector on the faults of one name; ``source`` is simulated or injected."""

    source: str
    fault: str
    detector: str
    seed: int
    auc: float


def measured(
    seeds: Sequence[int] = SEEDS,
    *,
    n_training: int = N_TRAINING,
    n_normal: int = N_NORMAL,
    n_faulty: int = N_FAULTY,
) -> Iterator[Found]:
    """Yield the figures of each kind of detector on each plant."""
    for seed in seeds:
        training = windows_of(simulate(n_training, 0, seed=seed))
        later = simulate(n_normal, n_faulty, seed=seed, first_index=n_training)
        normal = windows_of([each for each in later if not each.fault])
        faulty = [*_simulated(later), *_injected(normal, seed)]
        for kind in KINDS:
            fitted = make_detector(kind, {}).fit(training, seed=seed, device="cpu")
            usual = _scores(fitted, normal)
            for source, fault, windows in faulty:
                odd = _scores(fitted, windows)
                is_odd = np.repeat([False, True], [len(usual), len(odd)])
                yield Found(source, fault, kind, seed, round(100 * auc(np.r_[usual, odd], is_odd), 2))


def _simulated(later: Sequence[Recording]) -> Iterator[tuple[str, str, WindowSet]]:
    faulty = sorted((each for each in later if each.fault), key=lambda each: each.fault)
    for fault, recordings in groupby(faulty, key=lambda each: each.fault):
        yield "simulated", fault, windows_of(list(recordings))


def _injected(normal: WindowSet, seed: int) -> Iterator[tuple[str, str, WindowSet]]:
    bases = normal.take(np.arange(min(len(normal), N_INJECTED)))
    found = injected_windows(bases, channel_scales(normal), seed=seed)
    for name, group in groupby(found, key=lambda each: each[0].name):
        parts = [windows for _, _, windows in group]
        values, lengths = (np.concatenate([getattr(part, of) for part in parts]) for of in ("values", "lengths"))
        yield "injected", name, WindowSet(values, lengths, tuple(map(str, range(len(values)))))


def windows_of(recordings: Sequence[Recording]) -> WindowSet:
    """Return the windows as the simulated plant's config makes them. Raises UsageError for a batch without one."""
    windows = []
    for each in recordings:
        window = to_window(_finished(each), WindowSettings())
        if not isinstance(window, Window):
            raise UsageError(f"{each.sequence} gives no window: {window.detail}")
        windows.append(window)
    lengths = np.array([window.length for window in windows], np.int64)
    return WindowSet(
        np.stack([window.values for window in windows]), lengths, tuple(each.sequence for each in recordings)
    )


def _finished(each: Recording) -> FinishedSequence:
    return FinishedSequence(each.stream, each.sequence, "marker", each.times_us, each.values, Position(0, 0))


def _scores(fitted: FittedDetector, windows: WindowSet) -> npt.NDArray[np.float64]:
    scores: npt.NDArray[np.float64] = fitted.score(windows.values, windows.lengths).sum(axis=1, dtype=np.float64)
    return scores


def store(figures: Sequence[Found]) -> None:
    """Write the figures, one JSON line each."""
    write_atomically(PATH, b"".join(msgspec.json.encode(each) + b"\n" for each in figures))


def stored() -> list[Found]:
    """Return the figures that are stored."""
    return [msgspec.json.decode(line, type=Found) for line in PATH.read_bytes().splitlines()]


def table(figures: Sequence[Found]) -> str:
    """Return the means over the plants and faults of a source, and the fault that the first detector ranks worst."""
    kinds = list(dict.fromkeys(each.detector for each in figures))
    lines = ["| faults | " + " | ".join(f"`{kind}`" for kind in kinds) + " |", "|---|" + "---|" * len(kinds)]
    worst = []
    for source in dict.fromkeys(each.source for each in figures):
        part = [each for each in figures if each.source == source]
        lines.append(f"| {source} | {' | '.join(f'{_mean(part, kind):.1f}' for kind in kinds)} |")
        least, fault = min((_mean(part, kinds[0], fault), fault) for fault in {each.fault for each in part})
        worst.append(f"`{fault}` {least:.1f}")
    return "\n".join([*lines, "", f"The worst for `{kinds[0]}`: {', '.join(worst)}."]) + "\n"


def _mean(figures: Sequence[Found], kind: str, fault: str | None = None) -> float:
    return float(np.mean([each.auc for each in figures if each.detector == kind and fault in (None, each.fault)]))
