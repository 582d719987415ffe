"""The study's sequences as windows, prepared as in the paper; both splits are the archive's own.

Spoken Arabic digits: sequences of 20 to 50 frames, zero padded to 50. Character trajectories: zero padded to 182. The
other three have one length. Nothing is scaled. Legend: N sequences, C channels, L window length.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

from streamad.errors import SourceError
from streamad.types import BoolArray, IntArray, WindowSet

LENGTHS: Final = {
    "spoken_arabic_digits": 50,
    "natops": 51,
    "character_trajectories": 182,
    "epilepsy": 206,
    "racket_sports": 30,
}
KEPT_LENGTHS: Final = {"spoken_arabic_digits": (20, 50)}


@dataclass(frozen=True, slots=True, eq=False)
class Split:
    """Windows and the class number of each: ``classes`` int64 [N]."""

    windows: WindowSet
    classes: IntArray


@dataclass(frozen=True, slots=True, eq=False)
class Recordings:
    """The two splits of a data set."""

    train: Split
    test: Split


@dataclass(frozen=True, slots=True, eq=False)
class Task:
    """Training and test windows; the test labels, ``is_anomaly`` bool [N], are never given to the detector."""

    train: WindowSet
    test: WindowSet
    is_anomaly: BoolArray


def data_folder() -> Path:
    """Return the folder that STREAMAD_DATA names, else ``../shared/data`` beside the checkout."""
    named = os.environ.get("STREAMAD_DATA")
    return Path(named) if named else Path(__file__).resolve().parents[4] / "shared" / "data"


def data_path(file_name: str) -> Path:
    """Return the path of a data file. Raises SourceError if it is absent."""
    path = data_folder() / file_name
    if not path.is_file():
        raise SourceError(f"no {path}: set STREAMAD_DATA to the folder that `python -m benchmarks.paper data` fills")
    return path


def read_sequences(name: str) -> Recordings:
    """Return a data set of sequences. Raises SourceError if its file is absent or not as described."""
    return _read(data_path(f"{name}.npz"))


@lru_cache(maxsize=1)  # the cells of a data set follow one another
def _read(path: Path) -> Recordings:
    try:
        with np.load(path, allow_pickle=False) as archive:
            return Recordings(*(_split(archive, which, path.stem) for which in ("train", "test")))
    except (KeyError, ValueError) as error:
        raise SourceError(f"{path} is no data set of sequences: {error}; build it anew") from error


def class_task(recordings: Recordings, normal: tuple[int, ...]) -> Task:
    """Return the task in which the classes ``normal`` are normal and all others anomalies of the test split."""
    train, test = recordings.train, recordings.test
    of_normal = np.flatnonzero(np.isin(train.classes, normal))
    return Task(train.windows.take(of_normal), test.windows, ~np.isin(test.classes, normal))


def _split(archive: np.lib.npyio.NpzFile, which: str, name: str) -> Split:
    lengths = archive[f"{which}_len"].astype(np.int64)
    shortest, longest = KEPT_LENGTHS.get(name, (1, LENGTHS[name]))
    kept = np.flatnonzero((lengths >= shortest) & (lengths <= longest))
    if not len(kept) or (name not in KEPT_LENGTHS and len(kept) < len(lengths)):
        raise SourceError(f"{name}: sequences of the {which} split are longer than {longest}; build the file anew")
    values = padded(archive[f"{which}_x"][kept], lengths[kept], LENGTHS[name])
    if not np.isfinite(values).all():
        raise SourceError(f"{name}: the {which} split has NaN inside its sequences; build the file anew")
    ids = tuple(f"{which}-{index:04d}" for index in kept)
    return Split(WindowSet(values, lengths[kept], ids), archive[f"{which}_y"][kept].astype(np.int64))


def padded(values: npt.NDArray[np.float32], lengths: IntArray, length: int) -> npt.NDArray[np.float32]:
    """Return ``values`` [N, C, any] as [N, C, ``length``], zero from each sequence's end on."""
    there = values[:, :, :length]
    result = np.zeros((*values.shape[:2], length), np.float32)
    inside = np.arange(there.shape[2]) < lengths[:, None, None]
    result[:, :, : there.shape[2]] = np.where(inside, there, 0.0)
    return result
