"""``python -m benchmarks.paper data``: builds the study's data files from the public archives' own files.

Unpack the archives' files (listed in docs/model/datasets.md) anywhere under one folder.
"""

from __future__ import annotations

import argparse
import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeAlias

import numpy as np

from benchmarks.paper.data.archive_series import Arrays, arabic_digits, series_arrays
from benchmarks.paper.data.archive_tables import arrhythmia_text, kdd_content, matlab_arrays
from benchmarks.paper.data.datasets import data_folder
from streamad.errors import SourceError, UsageError
from streamad.system.files import write_atomically, writing

Shapes: TypeAlias = Mapping[str, tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class Way:
    """One way to build a data file: ``content`` of the paths of the archive's ``files``, in this order."""

    target: str
    files: tuple[str, ...]
    content: Callable[..., bytes]


def npz_content(build: Callable[..., Arrays], shapes: Shapes, *paths: Path) -> bytes:
    """Return the arrays of ``build(*paths)`` as an NPZ file. Raises SourceError unless they have ``shapes``."""
    arrays: dict[str, Any] = build(*paths)
    for name, expected in shapes.items():
        if arrays[name].shape != expected:
            raise SourceError(
                f"{paths[0]}: gives {name} of {arrays[name].shape}, not {expected} as in the paper's study; "
                "is it the archive's whole file, in the release of docs/model/datasets.md?"
            )
    stream = io.BytesIO()
    np.savez_compressed(stream, **arrays)
    return stream.getvalue()


def _series(
    name: str, archive: str, shapes: Sequence[tuple[int, ...]], *, with_names: bool = True, first_class: int = 0
) -> Way:
    build = partial(series_arrays, with_names=with_names, first_class=first_class)
    content = partial(npz_content, build, dict(zip(("train_x", "test_x"), shapes, strict=True)))
    return Way(f"{name}.npz", (f"{archive}_TRAIN.ts", f"{archive}_TEST.ts"), content)


def _table(name: str, file: str, build: Callable[..., Arrays], shape: tuple[int, ...]) -> Way:
    return Way(f"{name}.npz", (file,), partial(npz_content, build, {"x": shape}))


_DIGITS: Final = {"train_x": (6600, 13, 93), "test_x": (2200, 13, 83)}
_DIGIT_FILES: Final = ("Train_Arabic_Digit.txt", "Test_Arabic_Digit.txt")
_SPOKEN: Final = "spoken_arabic_digits"
_WRITTEN: Final = "character_trajectories"

DATASETS: Final[dict[str, tuple[Way, ...]]] = {
    _SPOKEN: (
        _series(_SPOKEN, "SpokenArabicDigits", tuple(_DIGITS.values()), with_names=False),
        Way(f"{_SPOKEN}.npz", _DIGIT_FILES, partial(npz_content, arabic_digits, _DIGITS)),
    ),
    "natops": (_series("natops", "NATOPS", ((180, 24, 51), (180, 24, 51))),),
    _WRITTEN: (
        _series(_WRITTEN, "CharacterTrajectories", ((1422, 3, 180), (1436, 3, 182)), with_names=False, first_class=1),
    ),
    "epilepsy": (_series("epilepsy", "Epilepsy", ((137, 3, 206), (138, 3, 206))),),
    "racket_sports": (_series("racket_sports", "RacketSports", ((151, 6, 30), (152, 6, 30))),),
    "basic_motions": (_series("basic_motions", "BasicMotions", ((40, 6, 100), (40, 6, 100))),),
    "ering": (_series("ering", "ERing", ((30, 4, 65), (270, 4, 65))),),
    "arrhythmia": (
        _table("arrhythmia", "arrhythmia.mat", matlab_arrays, (452, 274)),
        _table("arrhythmia", "arrhythmia.data", arrhythmia_text, (452, 274)),
    ),
    "thyroid": (_table("thyroid", "thyroid.mat", matlab_arrays, (3772, 6)),),
    "kdd": (Way("kddcup.data_10_percent.gz", ("kddcup.data_10_percent.gz",), kdd_content),),
}


def register(subparsers: Any) -> None:
    """Add ``data`` to the subcommands."""
    parser = subparsers.add_parser("data", help="build the data sets from the archives' files", description=__doc__)
    parser.add_argument("--from", dest="source", type=Path, required=True, metavar="DIR", help="the archives' files")
    parser.add_argument("--to", type=Path, metavar="DIR", help="folder of the data files (default: STREAMAD_DATA)")
    parser.add_argument("--datasets", nargs="+", metavar="NAME", choices=list(DATASETS), help="only these")
    parser.set_defaults(command=run)


def run(arguments: argparse.Namespace) -> int:
    """Build the data sets whose files are there; the exit code is 1 if a file is missing or wrong."""
    if not arguments.source.is_dir():
        raise UsageError(f"--from {arguments.source}: no such folder")
    target = arguments.to or data_folder()
    with writing(target):
        target.mkdir(parents=True, exist_ok=True)
    built = [_build(name, DATASETS[name], arguments.source, target) for name in arguments.datasets or DATASETS]
    return 0 if all(built) else 1


def _build(name: str, ways: Sequence[Way], folder: Path, target: Path) -> bool:
    try:
        for way in ways:
            if paths := find_files(folder, way.files):
                write_atomically(target / way.target, way.content(*paths))
                print(f"{name}: {target / way.target}")
                return True
    except SourceError as error:
        print(f"{name}: not built: {error}")
        return False
    needed = ", or ".join(" and ".join(way.files) for way in ways)
    print(f"{name}: not built: {folder} holds no {needed} (unpack archives first)")
    return False


def find_files(folder: Path, files: Sequence[str]) -> list[Path]:
    """Return the paths of ``files`` under ``folder``, in this order; empty unless all are there.

    Raises SourceError if one is there twice.
    """
    found = []
    for name in files:
        places = sorted(path for path in folder.rglob(name) if path.is_file())
        if len(places) > 1:
            raise SourceError(f"{name} is there twice: {places[0]} and {places[1]}; leave the right one")
        found += places
    return found if len(found) == len(files) else []
