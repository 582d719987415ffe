"""``streamad.fit`` and ``streamad.load``: a model of arrays or frames, and the one of a plant."""

from __future__ import annotations

import re
import sys
import tempfile
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from streamad.errors import ConfigError, InputError, TrainingDataError, some_of
from streamad.ingest.windowing import Unscorable, judged_window
from streamad.judge.early.course import whole_course
from streamad.learn.early.training import EarlyTraining
from streamad.learn.parts import detector_for, registry_of
from streamad.learn.registry.backends import RefusedBackend
from streamad.learn.registry.registry import registry_at
from streamad.learn.registry.verify import verify_files
from streamad.learn.trainer.proof import proved_in_new_process
from streamad.learn.training.fits import FitStep
from streamad.learn.training.from_recordings import promotion_doubt, train_model
from streamad.learn.training.publishing import Prove
from streamad.notebook.arguments import mapping, place, rate, says, text, texts, whole
from streamad.notebook.config import argument_of, columns_of, plant_of, settings_of, settings_of_version, user_cache
from streamad.notebook.model import Model, files_of
from streamad.notebook.sequences import FrameColumns, Sequences, sequences_of
from streamad.plant import Plant
from streamad.settings.fields import NAME_PATTERN
from streamad.settings.plant_yaml import Settings, load_settings
from streamad.system.clock import SystemClock
from streamad.types import Window, WindowSet

_DEFAULT_LENGTH = 128


class LeftOutWarning(UserWarning):
    """Given for sequences that train nothing: without a window, or copies of others."""


def fit(
    X: Any,
    *,
    false_alarm_rate: float = 0.02,
    channels: Iterable[str] | None = None,
    units: Iterable[str] | Mapping[str, str] | None = None,
    ids: Iterable[object] | None = None,
    id: str = "id",
    time: str = "time",
    detector: str = "ensemble",
    options: Mapping[str, Any] | None = None,
    effort: Literal["quick", "normal", "thorough"] | None = None,
    window: Mapping[str, Any] | None = None,
    early: int | None = None,
    seed: int = 0,
    device: str = "auto",
    backend: str = "torchscript",
    name: str = "default",
    verbose: bool | None = None,
) -> Model:
    """Train and calibrate a detector on normal sequences, as ``streamad train`` does, and return the model.

    X is one of

    - an array [N, C, T]: N sequences of C channels and T points; NaN is a missing value, and points at the end without
      any value are padding;
    - a list of N arrays [C, T], each of its own length;
    - a data frame (pandas, polars, pyarrow) with a row for each point: the columns ``id``, ``time`` (datetimes, or
      seconds) and the channels.

    Normal sequences alert with ``false_alarm_rate``: from 150 sequences on a share is held out to set the threshold,
    below that it is set out of fold. ``channels`` are the names of the channels (of a frame: which columns), ``units``
    their units. ``ids`` names the sequences of arrays.

    ``detector``, ``options``, ``effort``, ``seed``, ``device`` and ``backend`` are those of ``model`` in
    ``plant.yaml``, ``window`` has the keys of its section ``window`` (default: the length of the longest sequence, at
    most 128 points; longer ones are resampled). ``early``: so many looks at running sequences, for ``Model.early``.
    ``name`` is the model's in a registry. ``verbose`` prints a line for each fit on stderr (None: in a terminal and in
    a notebook).

    Sequences that cannot be scored, and copies of others, are left out with a warning.

    Raises InputError if an argument is wrong, TrainingDataError if the sequences cannot give a model, DetectorError.

    >>> import numpy as np, streamad
    >>> X = np.random.default_rng(0).normal(size=(60, 2, 40)).cumsum(axis=2)
    >>> model = streamad.fit(X, false_alarm_rate=0.05, detector="nearest")
    >>> model.predict(X[:3]).shape
    (3,)
    """
    columns = _columns(id, time, channels)
    sequences = sequences_of(X, columns, ids=ids)
    if not len(sequences):
        raise InputError("X holds no sequence")  # and so no number of channels
    names = _names(sequences, columns.channels)
    target = rate(false_alarm_rate)
    looks = None
    if early is not None:
        n_looks = whole("early", early, "the number of looks at running sequences, 1 to 50", least=1, most=50)
        looks = {"false_alarm_rate": target, "looks": n_looks}
    settings = settings_of(
        names,
        _units(units, names),
        model={
            "name": name,
            "detector": detector,
            "options": mapping("options", options, "the detector's options by their names"),
            "effort": effort,
            "seed": whole("seed", seed, "a whole number from 0 on"),
            "device": device,
            "backend": backend,
            "references": [],  # streamad.compare compares kinds
        },
        window={"length": _length(sequences), **mapping("window", window, "keys such as {'length': 128}")},
        alerts={"false_alarm_rate": target, "early": looks},
        longest_us=max(int(each.times_us[-1] - each.times_us[0]) for each in sequences),
    )
    return fitted(sequences, settings, FrameColumns(id, time, names), says=says(verbose))


def fitted(
    sequences: Sequences, settings: Settings, columns: FrameColumns, *, says: bool, is_proved: bool = True
) -> Model:
    """Return the model that ``settings`` make of ``sequences``; ``is_proved``: a new process loads and scores it once.

    Raises InputError, TrainingDataError, DetectorError.
    """
    with tempfile.TemporaryDirectory(prefix="streamad-") as folder:
        plant = plant_of(settings, Path(folder))
        prove = proved_in_new_process if is_proved else _no_proof
        version = _trained(sequences, plant, prove=prove, says=says)
        files = files_of(registry_of(plant).folder(settings.model.name, version))
    return Model(settings, files, columns)


def load(
    source: str | Path,
    *,
    model: str | None = None,
    version: str | None = None,
    false_alarm_rate: float | None = None,
    id: str | None = None,
    time: str | None = None,
) -> Model:
    """Return a model of a plant: ``source`` is its ``plant.yaml``, or a registry, by its folder or s3://BUCKET/PREFIX.

    ``model`` names one of several (None: that of the config; of a registry, the only one), ``version`` one that is not
    in service. A registry does not know the false-alarm rate: with its folder, say ``false_alarm_rate``. ``id`` and
    ``time`` are the columns of data frames that the model will be given (None: those by which the config reads a file
    of rows, else "id" and "time").

    Raises InputError, ConfigError, RegistryError, and ArtifactError for a version that is damaged.
    """
    columns = _columns("id" if id is None else id, "time" if time is None else time, None)
    form = "the path of a plant.yaml, or a registry: the path of its folder, or a URL such as s3://bucket/prefix"
    path = place("source", source, form)
    for what, given in (("model", model), ("version", version)):
        if given is not None:
            text(what, given, f"a {what} as text")
    target = None if false_alarm_rate is None else rate(false_alarm_rate)
    if isinstance(path, Path) and not path.exists():
        raise InputError(f"{path} is not there: give the path of a plant.yaml, or of the folder that Model.save wrote")
    if isinstance(path, str) or path.is_dir():
        plant = _plant_of_registry(path, model, version, target)
    else:
        plant = Plant(load_settings(path), path.absolute().parent, SystemClock(), path)
        if target is not None:
            alerts = plant.settings.alerts.model_copy(update={"false_alarm_rate": target})
            plant = Plant(plant.settings.model_copy(update={"alerts": alerts}), plant.base_dir, plant.clock, path)
        if plant.settings.models is not None and model is None:
            known = ", ".join(registry_of(plant).names())
            raise InputError(f"the config has several models: name one with model= (there are: {known})")
        own = columns_of(plant.settings)
        columns = replace(columns, id=own.id if id is None else id, time=own.time if time is None else time)
    name = model or plant.settings.model.name
    registry = registry_of(plant)
    chosen = registry.in_service(name) if version is None else registry.named(name, version)
    return model_of_version(plant, name, chosen, columns)


def model_of_version(plant: Plant, name: str, version: str, columns: FrameColumns | None = None) -> Model:
    """Return the model of a version in the plant's registry. Raises RegistryError, ArtifactError for a damaged one."""
    registry = registry_of(plant)
    home = registry.folder(name, version)
    verify_files(home, registry.manifest(name, version), f"model {name} {version}")  # an error names this folder
    own = plant.settings.model.model_copy(update={"name": name})
    named = replace(columns or FrameColumns(), channels=tuple(each.name for each in plant.settings.channels))
    loaded = Model(plant.settings.model_copy(update={"model": own}), files_of(home), named)
    loaded.threshold  # noqa: B018 - verify the version now, not at the first score
    return loaded


def _plant_of_registry(kept: Path | str, model: str | None, version: str | None, rate: float | None) -> Plant:
    copies = user_cache()
    registry = registry_at(kept, copies)
    names = registry.names()
    if rate is None:
        raise InputError(
            f"{kept} is a registry, which knows no rate: streamad.load({str(kept)!r}, false_alarm_rate=0.02)"
        )
    if model is None and len(names) != 1:
        raise InputError(f"{kept} holds {len(names)} models: name one with model= (there are: {', '.join(names)})")
    name = model or names[0]
    chosen = registry.in_service(name) if version is None else registry.named(name, version)
    settings = settings_of_version(registry.manifest(name, chosen), rate)
    where = kept if isinstance(kept, str) else str(kept.absolute())
    own = settings.model.model_copy(update={"registry": where, "cache": copies})
    return Plant(settings.model_copy(update={"model": own}), Path.cwd(), SystemClock())


def _names(sequences: Sequences, channels: tuple[str, ...] | None) -> tuple[str, ...]:
    n = sequences.items[0].values.shape[1]
    if not n:
        raise InputError("X has no channel")
    given = channels if channels is not None else tuple(f"channel_{number}" for number in range(n))
    names = sequences.channels or given
    if len(names) != n:
        raise InputError(f"channels names {len(names)}, and X has {n}")
    if wrong := [repr(name) for name in names if re.fullmatch(NAME_PATTERN, name) is None]:
        raise InputError(
            f"{some_of(wrong)}: name channels with at most 64 letters a to z, digits, _, - and dots (not first); "
            "rename them, and give units with units="
        )
    return names


def _columns(id: str, time: str, channels: Iterable[str] | None) -> FrameColumns:
    """Return the columns of a data frame. Raises InputError."""
    text("id", id, "the name of the column of the sequences' ids")
    text("time", time, "the name of the column of times")
    if id == time:
        raise InputError(f"id and time both name the column {id!r}")
    named = None if channels is None else tuple(texts("channels", channels, "a list of the channels' names"))
    return FrameColumns(id, time, named)


def _units(units: Iterable[str] | Mapping[str, str] | None, names: tuple[str, ...]) -> list[str]:
    if units is None:
        return [""] * len(names)
    form = "a list of a unit for each channel, or units by the channels' names"
    if not isinstance(units, Mapping):
        given = texts("units", units, form)
        if len(given) != len(names):
            raise InputError(f"units has {len(given)} entries for {len(names)} channels: give {form}")
        return given
    by_name = mapping("units", units, form)
    if unknown := sorted(set(by_name) - set(names)):
        raise InputError(f"units names {unknown[0]!r}, which is no channel (there are: {some_of(names)})")
    return texts("units", [by_name.get(name, "") for name in names], form)


def _length(sequences: Sequences) -> int:
    return max(2, min(_DEFAULT_LENGTH, max(len(each.times_us) for each in sequences)))


def _trained(sequences: Sequences, plant: Plant, *, prove: Prove, says: bool) -> str:
    """Train a version in the plant's registry and return its number. Raises TrainingDataError, DetectorError."""
    settings = plant.settings
    kept, windows, left_out = [], [], []
    for sequence in sequences:
        window = judged_window(sequence, settings, settings.channel_specs)
        if isinstance(window, Window):
            kept.append(sequence)
            windows.append(window)
        else:
            left_out.append((sequence.sequence, window))
    _warn_left_out(left_out, len(sequences))
    if not kept:
        why = f": {left_out[0][1].detail}" if left_out else ""
        raise TrainingDataError(f"none of the {len(sequences)} sequences of X can be used{why}")
    ids = tuple(f"{each.stream}/{each.sequence}" for each in kept)
    lengths = np.array([window.length for window in windows], dtype=np.int64)
    every = WindowSet(np.stack([window.values for window in windows]), lengths, ids)
    data = every.distinct()
    if n_copies := len(every) - len(data):
        warnings.warn(f"{n_copies} of {len(every)} sequences are left out: copies of others", LeftOutWarning, 4)
    early = None
    if settings.alerts.early is not None:
        courses = (whole_course(each, settings.window) for each in kept)
        early = EarlyTraining(dict(zip(ids, courses, strict=True)), settings)
    try:
        detector = detector_for(plant)
    except ConfigError as error:
        raise InputError(
            "; ".join(f"{argument_of(each.path.split('.'))}: {each.message}" for each in error.problems)
        ) from error
    registry = registry_of(plant)
    try:
        version = train_model(
            data,
            detector,
            settings=settings,
            registry=registry,
            clock=plant.clock,
            prove=prove,
            early=early,
            progress=_said if says else None,
            promote=False,
        )
    except TrainingDataError as error:
        raise TrainingDataError(f"X: {error}") from error
    if (doubt := promotion_doubt(registry.manifest(settings.model.name, version).metrics)) is not None:
        warnings.warn(doubt, UserWarning, 4)
    return version


def _no_proof(*_: object) -> tuple[RefusedBackend, ...]:
    return ()


def _warn_left_out(left_out: Sequence[tuple[str, Unscorable]], n: int) -> None:
    if left_out:
        name, why = left_out[0]
        text = f"{len(left_out)} of {n} sequences are left out, the first, {name!r}: {why.detail}"
        warnings.warn(text, LeftOutWarning, 5)


def _said(step: FitStep) -> None:
    epoch = step.step
    if step.phase == "proof":
        print("proof: a new process loads the model as streamad run does", file=sys.stderr)
    elif epoch.is_last or epoch.epoch == epoch.n_epochs:
        phase = "training" if step.phase == "final" else f"calibrating {step.fit}/{step.n_fits - 1}"
        print(f"{phase}: {epoch.epoch} epochs, loss {epoch.loss:.4f}", file=sys.stderr)
