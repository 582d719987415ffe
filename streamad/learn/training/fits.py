"""The fits of one training run; each resumes after an interruption, from its files in a work folder."""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from io import BytesIO
from pathlib import Path
from typing import Literal, TypeAlias

import msgspec
import numpy as np

from streamad.errors import RegistryError
from streamad.learn.registry.manifest import package_versions
from streamad.learn.training.checks import check_not_constant
from streamad.ports import Detector, FittedDetector, Scorer, TrainingStep
from streamad.settings.plant_yaml import Settings
from streamad.system.files import write_atomically, writing
from streamad.system.locks import try_lock
from streamad.system.opening import STATE_FOLDER, read_state
from streamad.types import FloatArray, IntArray, WindowSet

_ROWS = 256
_DIGEST_BYTES = 16
_KEPT = 2
_BATCH_VALUES = 4_000_000  # bounds a batch of wide or long windows to 16 MB


def score_windows(model: Scorer | FittedDetector, data: WindowSet) -> FloatArray:
    """Return the terms float32 [N, K] of ``data``, N > 0."""
    rows = max(1, min(_ROWS, _BATCH_VALUES // data.values[0].size))
    starts = range(0, len(data), rows)
    return np.concatenate(
        [model.score(data.values[start : start + rows], data.lengths[start : start + rows]) for start in starts]
    )


def joined(*parts: WindowSet) -> WindowSet:
    """Return the windows of all ``parts``, at least one, in this order, with the channels and units of the first."""
    return replace(
        parts[0],
        values=np.concatenate([part.values for part in parts]),
        lengths=np.concatenate([part.lengths for part in parts]),
        ids=tuple(name for part in parts for name in part.ids),
    )


def with_channels(data: WindowSet, settings: Settings) -> WindowSet:
    """Return ``data`` with the names and units of the plant's channels, as a detector is trained on it."""
    names = tuple(channel.name for channel in settings.channel_specs)
    units = tuple(channel.unit for channel in settings.channel_specs)
    return replace(data, units=units if any(units) else (), channels=names)


Phase: TypeAlias = Literal["first", "calibration", "final", "proof", "comparison"]


@dataclass(frozen=True, slots=True)
class FitStep:
    """One finished epoch of one fit: ``fit`` counts from 1 to ``n_fits``, the last is the model.

    Phase ``first``: the fit whose scores decide which sequences are dropped; ``calibration``: scores out of fold;
    ``final``: the model. ``proof`` follows the last fit: the new version is loaded in a process of its own, a step
    without epochs. ``comparison`` comes last: its steps are batches of windows, without a loss.
    """

    phase: Phase
    fit: int
    n_fits: int
    step: TrainingStep


FitProgress: TypeAlias = Callable[[FitStep], None]


def fingerprint(data: WindowSet, settings: Settings, *others: object) -> str:
    """Return a hash of all inputs of a training run, ``others`` included; an interrupted run resumes only if equal."""
    form = (
        settings.channel_specs,
        settings.window.model_dump(mode="json"),
        settings.model.model_dump(mode="json", exclude={"registry", "name", "device", "backend", "references"}),
        settings.alerts.false_alarm_rate,
        settings.model.device,
        package_versions(),
        data.ids,
        data.values.shape,
        *others,
    )
    digest = hashlib.sha256(msgspec.json.encode(form, order="sorted"))
    digest.update(np.ascontiguousarray(data.values).tobytes())
    digest.update(np.ascontiguousarray(data.lengths).tobytes())
    return digest.hexdigest()[:32]


@contextmanager
def work_folder(trainings: Path, key: str) -> Iterator[Path]:
    """Yield ``trainings/key``; after success it is removed, as are the folders of other interrupted runs.

    At the start all but the two newest of those go: a learner that is killed again and again, with other sequences
    stored each time, would otherwise leave one each time. Raises RegistryError while another process runs the same
    training, OutputError.
    """
    with writing(trainings):
        folder = trainings / key
        trainings.mkdir(STATE_FOLDER, parents=True, exist_ok=True)
        lock = try_lock(trainings / f"{key}.lock")
    if lock is None:
        raise RegistryError(f"the same training already runs in another process ({folder}): wait for it or end it")
    try:
        # After the lock: another training removes at its end the folders that are not locked.
        with writing(folder):
            folder.mkdir(STATE_FOLDER, exist_ok=True)
        os.utime(lock)
        _clear(trainings, _KEPT)
        yield folder
        shutil.rmtree(folder, ignore_errors=True)
    finally:
        os.close(lock)
    _clear(trainings)


def _clear(trainings: Path, n_kept: int = 0) -> None:
    """Remove the folders that no process works in, but for the ``n_kept`` work was begun in last."""
    began_ns: dict[Path, int] = {}
    for path in trainings.glob("*.lock"):
        with suppress(FileNotFoundError):  # removed at this moment
            began_ns[path] = path.stat().st_mtime_ns
    for path in sorted(began_ns, key=lambda path: (began_ns[path], path.name), reverse=True):
        lock = try_lock(path)
        if lock is None:
            continue
        if n_kept > 0:
            n_kept -= 1
        else:
            shutil.rmtree(path.with_suffix(""), ignore_errors=True)
            path.unlink(missing_ok=True)
        os.close(lock)


_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EROFS)
"""The errors of a write that do not name its file."""


def _digest(content: bytes) -> bytes:
    return hashlib.blake2b(content, digest_size=_DIGEST_BYTES).digest()


def _stored_terms(path: Path) -> FloatArray | None:
    """Return the terms that ``Fits`` stored in ``path``; None if they are not there, or were changed since."""
    try:
        stored = read_state(path)
    except OSError:
        return None
    digest, content = stored[:_DIGEST_BYTES], stored[_DIGEST_BYTES:]
    if digest != _digest(content):
        return None
    terms: FloatArray = np.load(BytesIO(content), allow_pickle=False)
    return terms


@dataclass(frozen=True, slots=True)
class Fits:
    """Runs the fits of one training in ``folder`` and reports to ``progress``."""

    detector: Detector
    settings: Settings
    folder: Path
    n_fits: int
    progress: FitProgress | None = None

    def final(self, data: WindowSet) -> FittedDetector:
        """Train the model that is exported."""
        return self._fit(data, "final", self.n_fits)

    def first(self, data: WindowSet) -> FloatArray:
        """Return the training terms [N, K] of a first fit on all of ``data``; stored once computed."""
        return self._kept("first", lambda: self._fit(data, "first", 1).training_scores())

    def out_of_fold(
        self,
        data: WindowSet,
        held_out: IntArray,
        fit: int,
        others: WindowSet | None = None,
        trial: WindowSet | None = None,
    ) -> FloatArray:
        """Return the terms [n, K] of the windows ``held_out`` by a model trained on all others; stored once computed.

        The terms of ``others``, which are not in ``data``, follow; then those of ``trial``, in batches of their own,
        so that they change no bit of the terms before.
        """
        keep, scored = np.setdiff1d(np.arange(len(data)), held_out), data.take(held_out)
        if others is not None:
            scored = joined(scored, others)
        parts = (scored,) if trial is None else (scored, trial)

        def terms() -> FloatArray:
            model = self._fit(data.take(keep), "calibration", fit)
            return np.concatenate([score_windows(model, part) for part in parts])

        return self._kept(f"fold-{fit}" + ("" if trial is None else "-trial"), terms)

    def show_proof(self) -> None:
        """Report that all fits are done and that the new version is proved."""
        if self.progress is not None:
            self.progress(FitStep("proof", self.n_fits, self.n_fits, TrainingStep(0, 0, 0.0)))

    def _kept(self, name: str, terms_of: Callable[[], FloatArray]) -> FloatArray:
        """Return the terms in a file of the work folder; if it is not there or damaged, compute and store them."""
        path = self.folder / f"{name}.terms"
        if (stored := _stored_terms(path)) is not None:
            return stored
        terms = terms_of()
        content = BytesIO()
        np.save(content, terms, allow_pickle=False)
        write_atomically(path, _digest(content.getvalue()) + content.getvalue(), is_state=True)
        return terms

    def _fit(self, data: WindowSet, phase: Phase, fit: int) -> FittedDetector:
        check_not_constant(data, self.settings.channel_specs)
        resume = self.folder / f"{phase}-{fit}.resume"
        progress = self.progress

        def emit(step: TrainingStep) -> None:
            if progress is not None:
                progress(FitStep(phase, fit, self.n_fits, step))

        model = self.settings.model  # one seed for every fit: fold models then start from the final model's weights
        try:
            training = with_channels(data, self.settings)
            return self.detector.fit(training, seed=model.seed, device=model.device, progress=emit, resume=resume)
        except OSError as error:
            if not _is_of_writing(error, resume):
                raise
            with writing(resume):
                raise


def _is_of_writing(error: OSError, path: Path) -> bool:
    """Return whether a detector failed to write ``path``: foreign code may fail for other reasons as well."""
    if not isinstance(error.filename, str | bytes):
        return error.errno in _FULL
    return Path(os.fsdecode(error.filename)).parent == path.parent
