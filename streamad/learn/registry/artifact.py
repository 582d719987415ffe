"""Load a model version and verify that it fits the plant and scores its probe as it did after training.

Shapes: n calibration sequences, K transformations, M reference and P probe windows, C channels, L window length.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from zipfile import ZipFile

import numpy as np

from streamad.errors import ArtifactError, ConfigError, PluginError, StreamadError
from streamad.judge.attribution import Reference, printable
from streamad.judge.early.model import EarlyModel
from streamad.judge.envelope import LEVELS, Envelope
from streamad.judge.scoring import TrainingIds
from streamad.learn.registry.arrays import AnyArray, largest_deviation, probe_tolerance, read_npy, read_npz, readable
from streamad.learn.registry.backends import (
    AUTO,
    TORCHSCRIPT,
    TRIAL_WINDOWS,
    Order,
    RefusedBackend,
    by_speed,
    candidates,
    serve,
)
from streamad.learn.registry.early import EarlyLoading
from streamad.learn.registry.manifest import (
    CALIBRATION_FILE,
    ENVELOPE_FILE,
    PROBE_FILE,
    REFERENCE_FILE,
    TRAINING_IDS_FILE,
    Manifest,
    package_versions,
    read_manifest,
)
from streamad.learn.registry.verify import (
    check_channels,
    check_detector,
    check_manifest_name,
    check_window,
    early_files,
    verify_file,
    verify_files,
)
from streamad.messages import ModelRef
from streamad.plugins import make_detector, missing_package, plugin_failure
from streamad.ports import BackendDetector, Detector, Scorer
from streamad.safe_text import text_of
from streamad.settings.plant_yaml import Settings
from streamad.types import FloatArray, IntArray

_ENVELOPE_ARRAYS = ("clock", "clock_n", "phase", "phase_n")
_ZIP_BYTES = 4096  # of an archive beside its arrays, at most
PROBE_REMEDY = "train anew on this machine: training publishes only a version that a new process here can use"


@dataclass(frozen=True, slots=True, eq=False)
class LoadedModel:
    """A verified model.

    ``calibration_terms`` float32 [n, K] of held-out inliers; ``reference`` holds typical training windows, for
    attribution; ``training_ids`` of all sequences that trained or calibrated it; ``envelope`` of its training windows;
    ``backend`` is what scores, ``refused`` says in a line each which other backends must not, ``choice`` how ``auto``
    chose, if it measured. ``early`` has the looks at running sequences, if the config wants them and the version has
    some.
    """

    scorer: Scorer
    ref: ModelRef
    manifest: Manifest
    calibration_terms: FloatArray
    reference: Reference
    training_ids: TrainingIds
    envelope: Envelope
    backend: str = TORCHSCRIPT
    refused: tuple[str, ...] = ()
    early: EarlyModel | None = None
    choice: str = ""


def write_arrays(
    folder: Path,
    *,
    calibration_terms: FloatArray,
    probe: tuple[FloatArray, IntArray, FloatArray],
    reference: Reference,
    training_ids: TrainingIds,
    envelope: Envelope,
) -> None:
    """Write calibration [n, K], probe (windows [P, C, L], lengths [P], terms [P, K]), reference windows, ids, envelope.

    The same arrays give the same bytes. Raises OSError.
    """
    np.save(folder / CALIBRATION_FILE, np.asarray(calibration_terms, dtype=np.float32), allow_pickle=False)
    np.savez(folder / PROBE_FILE, allow_pickle=False, windows=probe[0], lengths=probe[1], terms=probe[2])
    names = np.array(reference.names, dtype=np.str_)
    np.savez(
        folder / REFERENCE_FILE, allow_pickle=False, windows=reference.values, lengths=reference.lengths, names=names
    )
    np.save(folder / TRAINING_IDS_FILE, training_ids.hashes, allow_pickle=False)
    levels = {name: getattr(envelope, name) for name in _ENVELOPE_ARRAYS}
    np.savez(folder / ENVELOPE_FILE, allow_pickle=False, **levels)


def load_artifact(
    folder: Path, ref: ModelRef, settings: Settings, detector: Detector, *, measured: bool = False
) -> LoadedModel:
    """Verify and load the version in ``folder``; raises ArtifactError if it must not go into service.

    With ``measured`` the backend ``auto`` is the fastest one here, else the first of the kind's order. If the config
    does not name the kind of detector, a version is loaded as the kind that made it: the default may have been another
    then.
    """
    label = f"model {ref.name} {ref.version}"
    manifest, detector = _verified_manifest(folder, ref, settings, detector, label)
    shape = (len(settings.channels), settings.window.length)
    order = candidates(settings.model.backend, settings.model.device, detector, manifest)
    scorer_of, looks = cache(_loader(folder, manifest, detector, settings.model.device, label)), {}

    def load(backend: str) -> Scorer:
        scorer = scorer_of(backend)
        looks[backend] = _looks(folder, manifest, settings, backend, label)
        return scorer

    found = Order(order)
    if measured and settings.model.backend == AUTO:
        trial = _trial_windows(folder, shape, settings.run.batch_windows, label)
        found = by_speed(order, scorer_of, *trial, label)
    served = serve(found, load, label)
    terms = _check_terms(read_npy(folder / CALIBRATION_FILE), served.scorer.n_terms, label)
    reference = _reference(folder, shape, label)
    ids, envelope = _training_ids(folder, label), _envelope(folder, shape, label)
    backend, refused, early = served.backend, served.refusals(ref), looks[served.backend]
    return LoadedModel(
        served.scorer, ref, manifest, terms, reference, ids, envelope, backend, refused, early, served.choice
    )


def refused_backends(folder: Path, ref: ModelRef, settings: Settings, detector: Detector) -> tuple[RefusedBackend, ...]:
    """Load the version in ``folder`` by each backend that it was exported for, and return those that must not serve.

    TorchScript is loaded on the device of ``settings``, the others on the CPU. Raises ArtifactError if the version must
    not go into service whatever the backend.
    """
    label = f"model {ref.name} {ref.version}"
    manifest, detector = _verified_manifest(folder, ref, settings, detector, label)
    refused = []
    for backend in (TORCHSCRIPT, *manifest.backends):
        device = settings.model.device if backend == TORCHSCRIPT else "cpu"
        try:
            _loader(folder, manifest, detector, device, label)(backend)
            _looks(folder, manifest, settings, backend, label)
        except ArtifactError as error:
            refused.append(RefusedBackend(backend, str(error).removeprefix(f"{label}: ")))
    if TORCHSCRIPT not in [each.backend for each in refused]:
        load_artifact(folder, ref, settings, detector)
    return tuple(refused)


def _verified_manifest(
    folder: Path, ref: ModelRef, settings: Settings, detector: Detector, label: str
) -> tuple[Manifest, Detector]:
    """Return the manifest of the verified version in ``folder``, and the kind of detector that loads it."""
    manifest = read_manifest(folder, label)
    check_manifest_name(folder, manifest, ref.name, ref.version)
    if "detector" in settings.model.model_fields_set:
        check_detector(manifest, settings.model.detector, label)
    elif manifest.detector.kind != settings.model.detector:
        detector = _detector_of(manifest, label)
    check_channels(manifest.channels, settings.channel_specs, label)
    check_window(manifest.window, settings.window, label)
    verify_files(folder, manifest, label)
    return manifest, detector


def read_calibration(folder: Path, label: str) -> FloatArray:
    """Read the calibration terms float32 [n, K] of the version in ``folder`` alone. Raises ArtifactError."""
    verify_file(folder, read_manifest(folder, label), CALIBRATION_FILE, label)
    terms = read_npy(folder / CALIBRATION_FILE)
    return _check_terms(terms, terms.shape[-1] if terms.ndim else 0, label)


def read_envelope(folder: Path, label: str) -> Envelope:
    """Read the envelope of the version in ``folder`` alone. Raises ArtifactError."""
    manifest = read_manifest(folder, label)
    verify_file(folder, manifest, ENVELOPE_FILE, label)
    return _envelope(folder, (len(manifest.channels), manifest.window.length), label)


def _detector_of(manifest: Manifest, label: str) -> Detector:
    try:
        return make_detector(manifest.detector.kind, manifest.detector.options)
    except (ConfigError, PluginError) as error:
        reason = " ".join(str(error).split())
        remedy = missing_package(error) or "install the plug-in that has it, or train anew"
        raise ArtifactError(f"{label}: its kind of detector cannot be made ({reason}): {remedy}") from error


def _looks(folder: Path, manifest: Manifest, settings: Settings, backend: str, label: str) -> EarlyModel | None:
    """Return the looks of the version by ``backend``, which must serve both; None without any, or if none are wanted.

    Raises ArtifactError.
    """
    if settings.alerts.early is None or manifest.early is None:
        return None
    for name in early_files(manifest, backend):
        verify_file(folder, manifest, name, label)
    loading = EarlyLoading(folder, manifest.early, len(manifest.channels), backend, settings.model.device, label)
    return loading.load(settings.alerts.early.false_alarm_rate)


def _loader(folder: Path, manifest: Manifest, detector: Detector, device: str, label: str) -> Callable[[str], Scorer]:
    """Return what loads a backend's scorer; it raises ArtifactError unless that gives the terms of the probe."""

    def load(backend: str) -> Scorer:
        if backend == TORCHSCRIPT:
            return _verified(partial(detector.load, folder, device=device), folder, manifest, device, label)
        if not isinstance(detector, BackendDetector):
            raise ArtifactError(f"{label}: detectors of its kind have no other backend than {TORCHSCRIPT}")
        if not (names := manifest.backends.get(backend, ())):
            remedy = f"train anew with model.backend: {backend} where {backend} is installed"
            raise ArtifactError(f"{label}: was not exported for {backend}: {remedy}")
        for name in names:
            verify_file(folder, manifest, name, label)
        return _verified(partial(detector.load_by, backend, folder, device=device), folder, manifest, "cpu", label)

    return load


def _verified(load: Callable[[], Scorer], folder: Path, manifest: Manifest, device: str, label: str) -> Scorer:
    shape = (len(manifest.channels), manifest.window.length)
    scorer = _load_scorer(load, label)
    if scorer.window_shape != shape:
        raise ArtifactError(f"{label}: scores windows of {scorer.window_shape}, its manifest says {shape}: train anew")
    _check_probe(folder, scorer, manifest, device, label)
    return scorer


def _load_scorer(load: Callable[[], Scorer], label: str) -> Scorer:
    try:
        return load()
    except (StreamadError, KeyboardInterrupt):
        raise
    except BaseException as error:  # a detector is foreign code and may fail in any way on a damaged file
        raise _refusal(f"{label}: cannot be loaded", error) from error


def _refusal(what: str, error: BaseException) -> ArtifactError:
    """Return the refusal of a version because its detector raised ``error``."""
    reason = text_of(error).strip().split("\n")[0]
    why = plugin_failure(error) or f"{type(error).__name__}: {reason}"
    remedy = missing_package(error)
    if remedy is None:
        return ArtifactError(f"{what} ({why}): train anew")
    return ArtifactError(f"{what} ({why.removesuffix(f': {remedy}')}): {remedy}")


def _check_windows(values: AnyArray, lengths: AnyArray, shape: tuple[int, int], label: str) -> None:
    right = values.dtype == np.float32 and values.shape == (len(values), *shape) and lengths.shape == (len(values),)
    if not right or lengths.dtype != np.int64 or ((lengths < 1) | (lengths > shape[1])).any():
        raise ArtifactError(f"{label} does not hold windows of {shape[0]} channels x {shape[1]} samples: train anew")
    if not np.isfinite(values).all():
        raise ArtifactError(f"{label} holds windows with NaN or infinity: train anew")


def _reference(folder: Path, shape: tuple[int, int], label: str) -> Reference:
    values, lengths, names = read_npz(folder / REFERENCE_FILE, ("windows", "lengths", "names"))
    _check_windows(values, lengths, shape, f"{label}: {REFERENCE_FILE}")
    if names.dtype.kind != "U" or names.shape != lengths.shape:
        raise ArtifactError(f"{label}: {REFERENCE_FILE} does not hold a name for each window: train anew")
    return Reference(values, lengths, tuple(map(printable, names.tolist())))


def _training_ids(folder: Path, label: str) -> TrainingIds:
    hashes = read_npy(folder / TRAINING_IDS_FILE)
    if hashes.dtype != np.uint64 or hashes.ndim != 1 or (np.diff(hashes.astype(np.float64)) < 0).any():
        raise ArtifactError(f"{label}: {TRAINING_IDS_FILE} does not hold ascending hashes: train anew")
    return TrainingIds(hashes)


def _envelope(folder: Path, shape: tuple[int, int], label: str) -> Envelope:
    """Read the envelope of windows of ``shape``; no more memory is taken than such a one needs."""
    path, bad = folder / ENVELOPE_FILE, f"{label}: {ENVELOPE_FILE} does not hold the levels of {shape[0]} channels x "
    n_points = shape[0] * shape[1]
    most = 2 * (len(LEVELS) * n_points * 4 + shape[1] * 8) + _ZIP_BYTES
    with readable(path), ZipFile(path) as archive:
        size = sum(each.file_size for each in archive.infolist())
    if size > most:
        raise ArtifactError(f"{bad}{shape[1]} samples ({size} bytes, at most {most} are needed): train anew")
    clock, clock_n, phase, phase_n = read_npz(path, _ENVELOPE_ARRAYS)
    right = clock.dtype == phase.dtype == np.float32 and clock_n.dtype == phase_n.dtype == np.int64
    if not right or clock.shape != (len(LEVELS), *shape):
        raise ArtifactError(f"{bad}{shape[1]} samples: train anew")
    try:
        return Envelope(clock, clock_n, phase, phase_n)
    except ArtifactError as error:
        raise ArtifactError(f"{label}: {error}") from error


def _check_terms(terms: AnyArray, n_terms: int, label: str) -> FloatArray:
    right = terms.dtype == np.float32 and terms.ndim == 2 and terms.shape[1] == n_terms and len(terms) > 0
    if not right or not np.isfinite(terms).all():
        raise ArtifactError(
            f"{label}: {CALIBRATION_FILE} does not hold {n_terms} finite terms per sequence: train anew"
        )
    return terms


def _trial_windows(folder: Path, shape: tuple[int, int], batch_windows: int, label: str) -> tuple[FloatArray, IntArray]:
    """Return the probe's windows and lengths, over again up to a batch: what backends are timed by."""
    windows, lengths = read_npz(folder / PROBE_FILE, ("windows", "lengths"))
    _check_windows(windows, lengths, shape, f"{label}: {PROBE_FILE}")
    n = min(batch_windows, TRIAL_WINDOWS)
    return np.resize(windows, (n, *shape)), np.resize(lengths, n)  # also of none, with which no backend may serve


def _check_probe(folder: Path, scorer: Scorer, manifest: Manifest, device: str, label: str) -> None:
    shape = (len(manifest.channels), manifest.window.length)
    windows, lengths, stored = read_npz(folder / PROBE_FILE, ("windows", "lengths", "terms"))
    _check_windows(windows, lengths, shape, f"{label}: {PROBE_FILE}")
    try:
        deviation = largest_deviation(scorer, windows, lengths, stored)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # foreign code, as above
        raise _refusal(f"{label}: cannot score its probe", error) from error
    tolerance = probe_tolerance(device)
    if len(windows) == 0 or not deviation <= tolerance:
        raise ArtifactError(
            f"{label}: scores its probe otherwise than when it was trained (deviation {deviation:.2g}, allowed "
            f"{tolerance:g}{_other_packages(manifest)}): {PROBE_REMEDY}"
        )


def _other_packages(manifest: Manifest) -> str:
    """Return which packages, that determine a model's scores, had other versions in training."""
    here = package_versions()
    other = [
        f"{name} {version} then, {here[name]} now"
        for name, version in manifest.packages.items()
        if here.get(name, version) != version
    ]
    return "".join(f"; {each}" for each in other)
