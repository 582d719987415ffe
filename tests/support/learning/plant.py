"""A small plant and a real detector without torch: terms are mean squared distances to the mean, per channel."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import BaseModel

from streamad.errors import ArtifactError
from streamad.learn.registry.artifact import LoadedModel
from streamad.learn.registry.backends import RefusedBackend
from streamad.learn.registry.registry import Registry
from streamad.learn.training.fits import FitProgress
from streamad.learn.training.from_recordings import train_model
from streamad.learn.training.publishing import Prove
from streamad.messages import ModelRef
from streamad.ports import Detector, TrainingProgress, TrainingStep, TrainingSummary
from streamad.settings.plant_yaml import Settings
from streamad.types import FloatArray, IntArray, WindowSet

C, L = 3, 12
N_EPOCHS = 3
NOW_US = 1_772_352_930_250_000


class FixedClock:
    def now_us(self) -> int:
        return NOW_US

    def monotonic_us(self) -> int:
        return 0

    async def sleep(self, seconds: float) -> None:
        raise AssertionError("nothing here may sleep")


class MeanModel:
    """Scorer and fitted detector in one; ``offset`` makes a build of it that scores otherwise.

    ``mean`` is [C, L], or [M, C, L] for M kinds of batches: the nearest counts.
    """

    training: WindowSet

    def __init__(
        self,
        mean: FloatArray,
        scale: FloatArray,
        n_sequences: int,
        offset: float = 0.0,
        remarks: tuple[str, ...] = (),
    ) -> None:
        self.mean, self.scale, self.offset = mean, scale, offset
        settings = {"scale": scale.max()}
        self.summary = TrainingSummary(n_sequences, N_EPOCHS, N_EPOCHS, 0.5, 0.1, "cpu", settings, remarks)

    @property
    def window_shape(self) -> tuple[int, int]:
        return C, L

    @property
    def n_terms(self) -> int:
        return C

    def score(self, windows: FloatArray, lengths: IntArray) -> FloatArray:
        valid = np.arange(L) < lengths[:, None]
        means = self.mean.reshape(-1, C, L)
        squares = [np.where(valid[:, None, :], ((windows - mean) / self.scale) ** 2, 0).sum(axis=2) for mean in means]
        nearest = np.argmin([each.sum(axis=1) for each in squares], axis=0)
        terms = np.stack(squares)[nearest, np.arange(len(windows))]
        return (terms / lengths[:, None] + self.offset).astype(np.float32)

    def training_scores(self) -> FloatArray:
        return self.score(self.training.values, self.training.lengths)

    def export(self, folder: Path) -> tuple[str, ...]:
        with (folder / "model.npz").open("wb") as file:
            np.savez(file, mean=self.mean, scale=self.scale)
        return ("model.npz",)


class MeanOptions(BaseModel):
    pass


class MeanDetector:
    """Keeps the ids and units of every fit in ``fits`` and ``units``, the epochs it really ran in ``epochs``.

    It resumes from a JSON file. Each model that it fits has its ``remarks``.
    """

    options_model: type[BaseModel] = MeanOptions

    def __init__(self, offset: float = 0.0) -> None:
        self.fits: list[tuple[str, ...]] = []
        self.units: list[tuple[str, ...]] = []
        self.epochs: list[int] = []
        self.offset = offset
        self.remarks: tuple[str, ...] = ()

    def fit(
        self,
        data: WindowSet,
        *,
        seed: int,
        device: str,
        progress: TrainingProgress | None = None,
        resume: Path | None = None,
    ) -> MeanModel:
        self.fits.append(data.ids)
        self.units.append(data.units)
        done = json.loads(resume.read_text())["epoch"] if resume and resume.exists() else 0
        for epoch in range(done + 1, N_EPOCHS + 1):
            self.epochs.append(epoch)
            if resume:
                resume.write_text(json.dumps({"epoch": epoch}))
            if progress:
                progress(TrainingStep(epoch, N_EPOCHS, 1 / epoch))
        mean = data.values.mean(axis=0, dtype=np.float64).astype(np.float32)
        scale = data.values.std(axis=(0, 2), dtype=np.float64).astype(np.float32)[:, None]
        fitted = MeanModel(mean, scale, len(data), remarks=self.remarks)
        fitted.training = data
        return fitted

    def load(self, folder: Path, *, device: str) -> MeanModel:
        try:
            with np.load(folder / "model.npz", allow_pickle=False) as arrays:
                return MeanModel(arrays["mean"], arrays["scale"], 0, self.offset)
        except (OSError, ValueError, KeyError) as error:
            raise ArtifactError(f"model.npz cannot be read: {error}") from error


def settings_of(**changes: Any) -> Settings:
    """Settings of the plant; ``changes`` replace whole sections."""
    content: dict[str, Any] = {
        "channels": [{"name": "temp", "unit": "degC"}, {"name": "pressure", "unit": "bar"}, {"name": "flow"}],
        "source": {"url": "data.npz"},
        "window": {"length": L},
        "model": {"detector": "mean", "device": "cpu", "references": []},
    }
    return Settings(**{**content, **changes})


def windows_of(n: int, seed: int = 0) -> WindowSet:
    """``n`` batches around a common course, of lengths 8 to L."""
    rng = np.random.default_rng(seed)
    lengths = rng.integers(8, L + 1, n)
    course = np.sin(np.linspace(0, 3, L)) * np.array([[1.0], [5.0], [20.0]])
    values = (course + rng.normal(0, 0.3, (n, C, L))).astype(np.float32)
    values[np.broadcast_to(np.arange(L) >= lengths[:, None, None], values.shape)] = 0
    return WindowSet(values, lengths.astype(np.int64), tuple(f"B-{i:04d}" for i in range(n)))


def taken_as_proved(settings: Settings, model: ModelRef, folder: Path) -> tuple[RefusedBackend, ...]:
    """A ``Prove`` for detectors that no other process can find: no backend is refused."""
    return ()


def registry_in(root: Path | Registry) -> Registry:
    return root if isinstance(root, Registry) else Registry(root)


def train(
    root: Path | Registry,
    n: int = 30,
    *,
    data: WindowSet | None = None,
    detector: Detector | None = None,
    settings: Settings | None = None,
    prove: Prove = taken_as_proved,
    progress: FitProgress | None = None,
    promote: bool = True,
) -> str:
    return train_model(
        data if data is not None else windows_of(n),
        detector or MeanDetector(),
        settings=settings or settings_of(),
        registry=registry_in(root),
        clock=FixedClock(),
        prove=prove,
        progress=progress,
        promote=promote,
    )


def load(
    root: Path | Registry,
    version: str | None = None,
    *,
    settings: Settings | None = None,
    detector: MeanDetector | None = None,
) -> LoadedModel:
    plant, made = settings or settings_of(), detector or MeanDetector()
    return registry_in(root).load("default", version, settings=plant, detector=made)
