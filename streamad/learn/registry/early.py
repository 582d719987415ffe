"""The early part of a version: its looks at running sequences, in a folder beside the model, and how they are loaded.

``early/N/`` holds look N as a version holds its model, with a probe of its own; ``early/maxima.npy`` calibrates them.
Their checksums are in the manifest with those of all files, and are verified before anything is loaded.

Shapes: P probe windows, C channels, n points of a look, K terms.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from streamad.errors import ArtifactError, ConfigError, PluginError, StreamadError
from streamad.judge.early.model import EarlyModel, Look, Scales, early_model
from streamad.learn.registry.arrays import largest_deviation, probe_tolerance, read_npy, read_npz
from streamad.learn.registry.backends import TORCHSCRIPT
from streamad.learn.registry.manifest import PROBE_FILE, EarlyRecord
from streamad.learn.registry.verify import EARLY_FOLDER
from streamad.plugins import failure_of, make_detector
from streamad.ports import BackendDetector, Detector, Scorer
from streamad.types import FloatArray

MAXIMA_FILE: Final = "maxima.npy"


def folder_of(version: Path, number: int) -> Path:
    """Return the folder of the look ``number``, from 0, in the folder of a version."""
    return version / EARLY_FOLDER / str(number)


def write_probe(folder: Path, look: Look, values: FloatArray) -> None:
    """Write windows [P, C, n] of the channels that ``look`` scores, with its terms, into its ``folder``."""
    windows, lengths = look.scored(values)
    np.savez(folder / PROBE_FILE, allow_pickle=False, windows=windows, terms=look.scorer.score(windows, lengths))


def write_maxima(version: Path, maxima: Scales) -> None:
    """Write the largest z [n] of each calibration sequence."""
    np.save(version / EARLY_FOLDER / MAXIMA_FILE, maxima.astype(np.float32), allow_pickle=False)


@dataclass(frozen=True, slots=True)
class EarlyLoading:
    """How the looks of a version are loaded: from its folder, served by ``backend``, named ``label`` in errors."""

    version: Path
    record: EarlyRecord
    n_channels: int
    backend: str
    device: str
    label: str

    def load(self, rate: float) -> EarlyModel:
        """Load the looks of the verified version; their p-values are for ``rate``.

        Each look must score its probe as it did after training. Raises ArtifactError.
        """
        detector = self.record.detector
        try:
            kind = make_detector(detector.kind, detector.options)
        except (ConfigError, PluginError) as error:
            raise ArtifactError(f"{self.label}: its looks cannot be made ({error}): train anew") from error
        looks = []
        for number, form in enumerate(self.record.looks):
            looks.append(Look(form, self._scorer(kind, number)))
            self._check(looks[-1], number)
        maxima = read_npy(self.version / EARLY_FOLDER / MAXIMA_FILE)
        if maxima.dtype != np.float32 or maxima.ndim != 1 or not len(maxima) or not np.isfinite(maxima).all():
            what = f"{EARLY_FOLDER}/{MAXIMA_FILE} does not hold a number per sequence"
            raise ArtifactError(f"{self.label}: {what}: train anew")
        usual, longest = self.record.usual, self.record.longest
        return early_model(looks, maxima.astype(np.float64), rate, usual=usual, longest=longest)

    def _scorer(self, kind: Detector, number: int) -> Scorer:
        folder, what = folder_of(self.version, number), self._named(number)
        try:
            if self.backend == TORCHSCRIPT:
                return kind.load(folder, device=self.device)
            if self.backend in self.record.backends and isinstance(kind, BackendDetector):
                return kind.load_by(self.backend, folder, device="cpu")
        except StreamadError as error:
            raise ArtifactError(f"{what} cannot be loaded: {error}") from error
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # a detector is foreign code and may fail in any way on a damaged file
            raise ArtifactError(f"{what} cannot be loaded ({failure_of(error)}): train anew") from error
        remedy = f"train anew with model.backend: {self.backend}"
        raise ArtifactError(f"{what} was not exported for {self.backend}: {remedy}")

    def _check(self, look: Look, number: int) -> None:
        """Raise ArtifactError unless ``look`` gives the terms of its probe."""
        form, scorer, what = look.form, look.scorer, self._named(number)
        assert isinstance(scorer, Scorer)
        shape = (self.n_channels - len(form.still), form.n_points)
        windows, terms = read_npz(folder_of(self.version, number) / PROBE_FILE, ("windows", "terms"))
        fits = windows.dtype == np.float32 and windows.ndim == 3 and windows.shape[1:] == scorer.window_shape == shape
        if not fits or not len(windows):
            raise ArtifactError(f"{what} does not take windows of {shape[0]} channels x {shape[1]} points: train anew")
        lengths = np.full(len(windows), form.n_points, dtype=np.int64)
        tolerance = probe_tolerance(self.device if self.backend == TORCHSCRIPT else "cpu")
        deviation = largest_deviation(scorer, windows, lengths, terms)
        if not deviation <= tolerance:
            raise ArtifactError(
                f"{what} scores its probe otherwise than when it was trained (deviation {deviation:.2g}, allowed "
                f"{tolerance:g}): train anew"
            )

    def _named(self, number: int) -> str:
        return f"{self.label}: look {number + 1} at running sequences"
