"""A fitted model in Python: scores, p-values, decisions, reasons and looks, and the way into a registry and back.

Shapes: N sequences, C channels, T points, L window length, K terms, J looks.
"""

from __future__ import annotations

import math
import shutil
import tempfile
import warnings
import weakref
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from streamad.errors import ArtifactError, InputError, some_of
from streamad.ingest.windowing import Unscorable, judged_window
from streamad.judge.early.course import whole_course
from streamad.judge.scoring import TOGETHER, ModelInService
from streamad.judge.verdicts import scored, unscorable
from streamad.learn.early.fitting import LookFitting
from streamad.learn.parts import registry_of, versions_of
from streamad.learn.registry.manifest import MANIFEST_FILE, UNCOMPARED, Manifest, PromotionDecision
from streamad.learn.registry.registry import folder_of, registry_at
from streamad.messages import Verdict
from streamad.notebook.arguments import place as a_place
from streamad.notebook.arguments import text, truth
from streamad.notebook.config import plant_of, plant_yaml, user_cache
from streamad.notebook.reasons import Reasons, reasons_of
from streamad.notebook.sequences import FrameColumns, Sequences, sequences_of
from streamad.settings.plant_yaml import Settings
from streamad.system.clock import SystemClock
from streamad.system.files import writing
from streamad.system.threads import judging_on_one_thread
from streamad.types import FinishedSequence, FloatArray, IntArray, Window, from_us

Scores = npt.NDArray[np.float64]


class UnscorableWarning(UserWarning):
    """Given for sequences without a score, whose figures are NaN."""


@dataclass(frozen=True, slots=True, eq=False)
class EarlyFigures:
    """What the looks at running sequences find in N sequences.

    ``ages`` [J] are the looks' ages in points. ``p_values`` [N, J] never rise from look to look of a sequence; NaN
    where a sequence has not reached a look, 1 if it reached it and too much was missing. ``warned_at`` [N] is the age
    of its warning in points, 0 if there was none.
    """

    ages: tuple[int, ...]
    p_values: Scores
    warned_at: IntArray

    def __repr__(self) -> str:
        warned = ", ".join(f"{place} at {age}" for place, age in enumerate(self.warned_at.tolist()) if age)
        return (
            f"{len(self.ages)} looks at {', '.join(map(str, self.ages))} points; {np.count_nonzero(self.warned_at)} of "
            f"{len(self.warned_at)} sequences are warned of{': ' if warned else ''}{warned}"
        )


@dataclass(frozen=True, slots=True, eq=False)
class _Judged:
    """One sequence's verdict, and its terms [K] and window if it has a score."""

    verdict: Verdict
    terms: FloatArray | None = None
    window: Window | None = None


class Model:
    """A fitted and calibrated model; ``streamad.fit`` and ``streamad.load`` make it.

    X is what ``streamad.fit`` takes: an array [N, C, T], a list of arrays [C, T], or a data frame. Scores are high for
    anomalies. A sequence that cannot be scored has NaN and a warning; ``predict`` refuses it. Pickle keeps the whole
    model, and its first use raises ArtifactError if a byte differs; like any pickle, load it from trusted places only.
    """

    def __init__(self, settings: Settings, files: Mapping[str, bytes], columns: FrameColumns | None = None) -> None:
        self._settings = settings
        self._files = dict(files)
        self._columns = columns or FrameColumns(channels=tuple(each.name for each in settings.channels))

    # --- what it is ------------------------------------------------------------------------------------------------

    @property
    def channels(self) -> tuple[str, ...]:
        """Names of the channels [C], in the order of every array."""
        return tuple(channel.name for channel in self._settings.channels)

    @property
    def units(self) -> tuple[str, ...]:
        """Units of the channels [C]; "" for none."""
        return tuple(channel.unit for channel in self._settings.channels)

    @property
    def columns(self) -> FrameColumns:
        """Names of the columns that a data frame must have."""
        return self._columns

    @property
    def false_alarm_rate(self) -> float:
        """The rate at which normal sequences alert: a sequence alerts if its p-value is at most this."""
        return self._settings.alerts.false_alarm_rate

    @property
    def threshold(self) -> float:
        """The lowest score that alerts; infinity if none can."""
        return self._service.calibration.alert_score(self.false_alarm_rate)

    @property
    def manifest(self) -> Manifest:
        """What the training recorded: its data, calibration, expected detection and packages."""
        return self._opened.manifest

    @property
    def settings(self) -> Settings:
        """The settings, as ``plant.yaml`` has them."""
        return self._settings

    def __repr__(self) -> str:
        metrics = self.manifest.metrics
        how = "out of fold" if metrics.method == "out_of_fold" else "held out"
        return (
            f"<streamad.Model {self._settings.model.detector}: {len(self.channels)} channels, trained on "
            f"{metrics.n_training} sequences, {metrics.n_calibration} {how} set the threshold "
            f"{self.threshold:.4g} for a false-alarm rate of {self.false_alarm_rate:g}>"
        )

    # --- what it says ----------------------------------------------------------------------------------------------

    def decision_function(self, X: Any) -> Scores:
        """Return the scores float64 [N], high for anomalies; NaN, with a warning, for those that have none.

        Raises InputError for a wrong X.
        """
        return self._figures(X, lambda verdict: verdict.score)

    def p_values(self, X: Any) -> Scores:
        """Return the conformal p-values float64 [N]: for a normal sequence at most p with a chance of about p.

        NaN, with a warning, for sequences without a score. Below 1/(n + 1), n calibration sequences, the tail is
        extrapolated (docs/guide/judging.md). Raises InputError for a wrong X.
        """
        return self._figures(X, lambda verdict: verdict.p_value)

    def predict(self, X: Any) -> IntArray:
        """Return 1 for each sequence that alerts and 0 for the others, int64 [N].

        Raises InputError for a wrong X, or if a sequence has no score: an integer cannot say so.
        """
        verdicts = self.verdicts(X)
        if without := [each for each in verdicts if each.score is None]:
            raise InputError(
                f"{len(without)} of {len(verdicts)} sequences have no score, the first, {without[0].sequence!r}: "
                f"{without[0].detail}; leave them out, or take p_values, which are NaN there"
            )
        return np.array([each.decision == "anomalous" for each in verdicts], dtype=np.int64)

    def verdicts(self, X: Any) -> list[Verdict]:
        """Return the N verdicts on the sequences, as ``streamad score`` prints it. Raises InputError for a wrong X."""
        return [each.verdict for each in self._judged(X)]

    def explain(self, X: Any) -> Reasons:
        """Return why one sequence has its score: an array [C, T], or one sequence in any form of X.

        Raises InputError for several, for one without a score, and for a wrong X.
        """
        if isinstance(X, np.ndarray) and X.ndim == 2:
            X = X[None]
        sequences = sequences_for(self, X)
        if len(sequences) != 1:
            raise InputError(f"explain takes one sequence, not {len(sequences)}: X[0], or the rows of one id")
        (judged,) = self._judged(sequences)
        if judged.terms is None or judged.window is None:
            raise InputError(f"the sequence has no score: {judged.verdict.detail}")
        with judging_on_one_thread():
            return reasons_of(self._service, judged.verdict, judged.terms, judged.window, self._settings)

    def early(self, X: Any) -> EarlyFigures:
        """Return what looks at the running sequences would have found (``fit(early=...)``).

        Raises InputError if the model has no looks, and for a wrong X.
        """
        model, settings = self._service.early, self._settings
        if model is None or settings.alerts.early is None:
            raise InputError("the model has no looks at running sequences: streamad.fit(X, early=10) makes ten")
        courses = [whole_course(each, settings.window) for each in sequences_for(self, X)]
        fitting = LookFitting(settings.window, settings.channel_specs, seed=settings.model.seed)
        with judging_on_one_thread():
            z = fitting.z(model.looks, courses)
        ages = tuple(look.form.n_points for look in model.looks)
        largest = np.maximum.accumulate(z, axis=1)
        p_values = np.array([[model.p_value(float(each))[0] for each in row] for row in largest]).reshape(z.shape)
        reached = np.array([[len(course) >= age for age in ages] for course in courses], dtype=np.bool_).reshape(
            z.shape
        )
        warns = reached & (p_values <= settings.alerts.early.false_alarm_rate)
        first = np.where(warns.any(axis=1), np.array(ages, dtype=np.int64)[warns.argmax(axis=1)], 0)
        return EarlyFigures(ages, np.where(reached, p_values, np.nan), first.astype(np.int64))

    # --- where it goes ---------------------------------------------------------------------------------------------

    def save(self, registry: str | Path, *, name: str | None = None, promote: bool = True) -> str:
        """Publish the model as the next version of ``name`` in a registry (folder or s3://...) and return its number.

        It is the version that was fitted, byte for byte; ``streamad run`` serves it with a config of the same channels
        and windows (``plant_yaml``). ``promote`` puts it into service. Raises RegistryError, OutputError.
        """
        into = registry_at(a_place("registry", registry), user_cache())
        name = self._settings.model.name if name is None else text("name", name, "the model's name as text")
        promotes = truth("promote", promote)
        before = into.current(name)
        with into.new_version(name) as staged:
            for file, content in self._files.items():
                if file != MANIFEST_FILE:
                    target = staged.folder / file
                    target.parent.mkdir(parents=True, exist_ok=True)
                    target.write_bytes(content)
            manifest = msgspec.structs.replace(self.manifest, parent=before, decision=None, challenged=())
            version = staged.publish(manifest)
        if promotes:
            into.promote(name, version, expected=before)
            now = from_us(SystemClock().now_us())
            into.record_decision(name, version, PromotionDecision(promoted=True, reason=UNCOMPARED, decided_at=now))
        return version

    def plant_yaml(self, source: str, *, registry: str | Path = "registry", **sections: Any) -> str:
        """Return a ``plant.yaml`` that serves this model from ``registry`` on messages or files of ``source`` (a URL).

        Relative paths mean the folder of the config. Rows of CSV and Parquet files are read by the columns of the
        model's data frames. ``sections`` are keys of the config, which go over those: ``decode={"time": "relative"}``,
        ``sequences={"end": ["gap"], "gap": "1h"}``, ``sinks={"alerts": "alerts.jsonl"}``; ``streamad init`` finds out
        from a sample how messages are read and when sequences end. Raises InputError.
        """
        kept = str(a_place("registry", registry))
        url = text("source", source, "a path or URL, such as kafka://broker/topic")
        return plant_yaml(self._settings, url, kept, self._columns, sections)

    # --- inside ----------------------------------------------------------------------------------------------------

    @cached_property
    def _opened(self) -> _Opened:
        return _Opened(self._settings, self._files)

    @property
    def _service(self) -> ModelInService:
        return self._opened.service

    def _judged(self, X: Any) -> list[_Judged]:
        settings, model = self._settings, self._service
        now_us = SystemClock().now_us()
        sequences = sequences_for(self, X).items
        windows = [judged_window(each, settings, settings.channel_specs) for each in sequences]
        found: dict[int, _Judged] = {}
        for place, (sequence, window) in enumerate(zip(sequences, windows, strict=True)):
            if isinstance(window, Unscorable):
                found[place] = _Judged(unscorable(sequence, window, now_us, model.ref))
        scorable = [place for place in range(len(sequences)) if place not in found]
        with judging_on_one_thread():
            for begin in range(0, len(scorable), TOGETHER):
                batch = scorable[begin : begin + TOGETHER]
                of = [window for place in batch if isinstance(window := windows[place], Window)]
                lengths = np.array([window.length for window in of], dtype=np.int64)
                terms = model.scorer.score(np.stack([window.values for window in of]), lengths)
                for place, window, row in zip(batch, of, terms, strict=True):
                    found[place] = _Judged(self._verdict(sequences[place], window, row, now_us), row, window)
        return [found[place] for place in range(len(sequences))]

    def _verdict(self, sequence: FinishedSequence, window: Window, terms: FloatArray, now_us: int) -> Verdict:
        model = self._service
        return scored(
            sequence,
            window,
            terms,
            calibration=model.calibration,
            settings=self._settings.alerts,
            model=model.ref,
            now_us=now_us,
        )

    def _figures(self, X: Any, figure: Callable[[Verdict], float | None]) -> Scores:
        verdicts = self.verdicts(X)
        if without := [each for each in verdicts if each.score is None]:
            what = f"{len(without)} of {len(verdicts)} sequences have no score"
            warnings.warn(f"{what}, the first, {without[0].sequence!r}: {without[0].detail}", UnscorableWarning, 3)
        return np.array([math.nan if (value := figure(each)) is None else value for each in verdicts])

    def __getstate__(self) -> dict[str, Any]:
        return {"_settings": self._settings, "_files": self._files, "_columns": self._columns}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)


def sequences_for(model: Model, X: Any) -> Sequences:
    """Return the sequences of ``X``, which have the model's channels. Raises InputError."""
    sequences, own = sequences_of(X, model.columns), model.channels
    for each in sequences.items[:1]:
        if each.values.shape[1] != len(own):
            raise InputError(f"X has {each.values.shape[1]} channels, the model {len(own)}: {some_of(own)}")
    return sequences


class _Opened:
    """The version loaded as ``streamad run`` loads it: verified, and its probe scored."""

    def __init__(self, settings: Settings, files: Mapping[str, bytes]) -> None:
        # A backend may read its files later: the folder lives as long as the model.
        root = Path(tempfile.mkdtemp(prefix="streamad-"))
        weakref.finalize(self, shutil.rmtree, root, ignore_errors=True)
        name = settings.model.name
        plant = plant_of(
            settings.model_copy(update={"model": settings.model.model_copy(update={"registry": root})}), root
        )
        version = _written(root, name, files)
        self.manifest = registry_of(plant).manifest(name, version)
        with judging_on_one_thread():
            self.service = versions_of(plant, name).load(version)


class _Named(msgspec.Struct):
    version: str


def write_version(registry: Path, model: Model) -> None:
    """Write the model's version, as it is, into the folder of a new registry. Raises OutputError."""
    _written(registry, model.settings.model.name, model._files)  # noqa: SLF001 - its own module


def _written(root: Path, name: str, files: Mapping[str, bytes]) -> str:
    try:
        version = msgspec.json.decode(files[MANIFEST_FILE], type=_Named).version
    except (KeyError, msgspec.DecodeError) as error:
        raise ArtifactError(f"the model's {MANIFEST_FILE} is damaged or missing: {error}") from error
    if wrong := [file for file in files if PurePosixPath(file).is_absolute() or ".." in PurePosixPath(file).parts]:
        raise ArtifactError(f"the model's files have a name that leads elsewhere: {wrong[0]!r}")
    home = folder_of(root, name, version)
    with writing(root):
        for file, content in files.items():
            target = home / file
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(content)
    return version


def files_of(folder: Path) -> dict[str, bytes]:
    """Return the files of the version in ``folder`` by their relative paths. Raises OSError."""
    paths = sorted(path for path in folder.rglob("*") if path.is_file() and not path.name.startswith("."))
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in paths}
