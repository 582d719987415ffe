"""Estimators of other libraries as detectors: exported as their training set, loaded by training again.

Their own file format is pickle, which can run code. Training is deterministic and takes seconds, so that the training
windows, the options and the seed define the same model and are safe to read. Another release of the library may train
another model: the registry finds that by a stored probe's scores.

Legend: B windows, N training windows, C channels, L window length.
"""

from __future__ import annotations

import importlib
import random
import time
import zipfile
import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeAlias, TypeVar, cast

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, ConfigDict, ValidationError

from benchmarks.paper.baselines.data import MIN_SEQUENCES
from streamad.errors import ArtifactError, DetectorError, TrainingDataError
from streamad.ports import TrainingProgress, TrainingSummary
from streamad.system.files import writing
from streamad.types import FloatArray, IntArray, WindowSet
from streamad_models.neutral_ad.data import check_windows

WINDOWS_FILE = "training.npz"
RECORD_FILE = "estimator.json"

_FOLDS = 5
_LARGEST = float(np.finfo(np.float32).max)
_DAMAGED = (  # what numpy and zipfile raise on a damaged, encrypted or unknown archive
    OSError,
    ValueError,
    KeyError,
    EOFError,
    RuntimeError,
    zipfile.BadZipFile,
    zlib.error,
)

Score: TypeAlias = Callable[[FloatArray, IntArray], npt.NDArray[np.float64]]
"""Maps windows float32 [B, C, L], B at least 1, and lengths int64 [B] to scores [B]; higher is more anomalous."""

OptionsT = TypeVar("OptionsT", bound=BaseModel)


class EstimatorOptions(BaseModel):
    """The settings of an estimator; a subclass adds them."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class EstimatorRecord(EstimatorOptions):
    """The inputs of a training besides the windows."""

    format: int = 1
    kind: str
    options: dict[str, Any]
    seed: int


class Refitted:
    """A trained estimator, before the export (``streamad.ports.FittedDetector``) and in service (``Scorer``)."""

    n_terms = 1

    def __init__(
        self,
        score: Score,
        training: WindowSet,
        record: EstimatorRecord,
        summary: TrainingSummary,
        train: Callable[[WindowSet], Score],
    ) -> None:
        self._score, self._training, self._record, self._train = score, training, record, train
        self.summary = summary
        self.window_shape = (training.values.shape[1], training.values.shape[2])

    def score(self, windows: FloatArray, lengths: IntArray) -> FloatArray:
        """Return the score as the one term, float32 [B, 1], of windows float32 [B, C, L], lengths int64 [B].

        Raises ArtifactError if the windows do not have the model's shape.
        """
        if windows.shape[1:] != self.window_shape or lengths.shape != windows.shape[:1]:
            raise ArtifactError("the model takes windows [B, {}, {}], not {}".format(*self.window_shape, windows.shape))
        if len(windows) == 0:
            return np.empty((0, 1), np.float32)
        scores = self._score(np.ascontiguousarray(windows, np.float32), lengths)
        return np.clip(scores, -_LARGEST, _LARGEST).astype(np.float32)[:, None]

    def training_scores(self) -> FloatArray:
        """Return the score of each training window [N, 1] by an estimator trained without its fold, of at most five.

        Two windows are too few to leave one out: they have their own score.
        """
        n = len(self._training)
        if n < MIN_SEQUENCES + 1:
            return self.score(self._training.values, self._training.lengths)
        scores, folds = np.empty((n, 1), np.float32), np.arange(n) % min(_FOLDS, n)
        for fold in range(int(folds.max()) + 1):
            held_out = self._training.take(np.flatnonzero(folds == fold))
            trained = self._train(self._training.take(np.flatnonzero(folds != fold)))
            scores[folds == fold, 0] = np.clip(trained(held_out.values, held_out.lengths), -_LARGEST, _LARGEST)
        return scores

    def export(self, folder: Path) -> tuple[str, ...]:
        """Write the training windows and the record; return the files' names. Raises OutputError."""
        with writing(folder / WINDOWS_FILE):
            np.savez(folder / WINDOWS_FILE, values=self._training.values, lengths=self._training.lengths)
        with writing(folder / RECORD_FILE):
            (folder / RECORD_FILE).write_text(self._record.model_dump_json(indent=1), encoding="utf-8")
        return WINDOWS_FILE, RECORD_FILE


class RefitDetector(ABC, Generic[OptionsT]):
    """A detector (``streamad.ports.Detector``) around one estimator, which a subclass trains."""

    options_model: type[BaseModel]
    kind: ClassVar[str]

    def __init__(self, options: OptionsT | None = None) -> None:
        self.options = options or cast("OptionsT", self.options_model())

    @abstractmethod
    def train(self, data: WindowSet, seed: int) -> Score:
        """Return the trained estimator's score; all that is random comes from ``seed`` (below 2^32)."""

    def fit(
        self,
        data: WindowSet,
        *,
        seed: int,
        device: str = "auto",
        progress: TrainingProgress | None = None,
        resume: Path | None = None,
    ) -> Refitted:
        """Train on ``data``, deterministic per seed; the caller's random state does not change.

        Always on the CPU, without epochs to report or a state to resume. Raises TrainingDataError, and DetectorError if
        the library is not installed.
        """
        check_windows(data, MIN_SEQUENCES)
        own = WindowSet(np.array(data.values, np.float32), np.array(data.lengths, np.int64), data.ids)
        began_s = time.perf_counter()

        def train(windows: WindowSet) -> Score:
            with _random_state_kept():
                return self.train(windows, seed % 2**32)

        score = train(own)
        record = EstimatorRecord(kind=self.kind, options=self.options.model_dump(mode="json"), seed=seed)
        summary = TrainingSummary(
            n_sequences=len(own),
            n_epochs=0,
            best_epoch=0,
            best_loss=0.0,
            duration_s=time.perf_counter() - began_s,
            device="cpu",
            settings={**record.options, "seed": seed},
        )
        return Refitted(score, own, record, summary, train)

    def load(self, folder: Path, *, device: str = "auto") -> Refitted:
        """Train the exported model in ``folder`` again, with its options, not this detector's. Raises ArtifactError."""
        try:
            record = EstimatorRecord.model_validate_json((folder / RECORD_FILE).read_text(encoding="utf-8"))
            if (record.format, record.kind) != (1, self.kind):
                found, wanted = f"{record.kind}, format {record.format}", f"{self.kind}, format 1"
                raise ArtifactError(f"{folder} holds another model ({found}) than this release loads ({wanted})")
            options = self.options_model.model_validate(record.options)
            with (folder / WINDOWS_FILE).open("rb") as file, np.load(file, allow_pickle=False) as arrays:
                values, lengths = arrays["values"], arrays["lengths"]
            data = WindowSet(values, lengths, tuple(str(i) for i in range(len(values))))
            return type(self)(options).fit(data, seed=record.seed, device=device)  # type: ignore[arg-type]
        except (*_DAMAGED, ValidationError, TrainingDataError) as error:
            reason = "the record is not one" if isinstance(error, ValidationError) else str(error)
            raise ArtifactError(f"{folder} holds no whole {self.kind} model ({reason}): restore or train it") from error


def study_module(name: str) -> Any:
    """Return a module of a library that only the study needs. Raises DetectorError if it is not installed."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        library = name.partition(".")[0]
        raise DetectorError(f"{library} is missing ({error}): pip install '.[study]' in the checkout") from error


@contextmanager
def _random_state_kept() -> Iterator[None]:
    """Restore the global generators: aeon seeds numpy's, the import of scikit-learn draws from Python's."""
    state, numpy_state = random.getstate(), np.random.get_state()
    try:
        yield
    finally:
        random.setstate(state)
        np.random.set_state(numpy_state)
