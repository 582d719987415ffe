"""Writes files in the public archives' formats from arrays of the study's data files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

HEADER = """\
# made up
@problemName {name}
@timeStamps false
@missing false
@univariate false
@dimensions {dimensions}
@equalLength {equal}
@classLabel true {labels}
@data
"""


def write_ts(
    path: Path,
    x: npt.NDArray[np.float32],
    lengths: npt.NDArray[np.int32],
    labels: Sequence[str],
    header_labels: Sequence[str],
) -> Path:
    """Write sequences ``x`` [N, C, L] with one label each; every digit of a float32 is kept."""
    equal = str(len(set(lengths.tolist())) == 1).lower()
    text = HEADER.format(name=path.stem, dimensions=x.shape[1], equal=equal, labels=" ".join(header_labels))
    for values, length, label in zip(x, lengths, labels, strict=True):
        dimensions = [",".join(repr(float(cell)) for cell in row[:length]) for row in values]
        text += ":".join([*dimensions, label]) + "\n"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def write_waves(folder: Path, train_classes: npt.ArrayLike, test_classes: npt.ArrayLike, n_channels: int) -> None:
    """Write RacketSports' data file with noisy waves, whose speed says their class."""
    rng, arrays = np.random.default_rng(0), {}
    for split, classes in (("train", np.asarray(train_classes)), ("test", np.asarray(test_classes))):
        n = len(classes)
        speed, phase = (0.3 + 0.35 * classes)[:, None, None], rng.uniform(0, 0.5, (n, 1, 1))
        x = np.sin(np.arange(30) * speed + phase) + rng.normal(0, 0.1, (n, n_channels, 30))
        lengths = np.full(n, 30, np.int32)
        arrays |= {f"{split}_x": x.astype(np.float32), f"{split}_len": lengths, f"{split}_y": classes}
    np.savez(folder / "racket_sports.npz", **arrays)


def write_digits(path: Path, x: npt.NDArray[np.float32], lengths: npt.NDArray[np.int32]) -> Path:
    """Write sequences as UCI's text: a blank line before each, a line a frame."""
    blocks = []
    for values, length in zip(x, lengths, strict=True):
        lines = [" ".join(repr(float(cell)) for cell in frame) + " " for frame in values[:, :length].T]
        blocks.append(" " * 13 + "\n" + "\n".join(lines) + "\n")
    path.write_text("".join(blocks))
    return path
