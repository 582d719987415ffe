"""Verify that an artifact is the published one and fits the plant, before anything of it is executed."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec

from streamad.errors import ArtifactError, some_of
from streamad.learn.registry.manifest import (
    CORE_FILES,
    MANIFEST_FILE,
    MANIFEST_VERSION,
    FileRecord,
    Manifest,
    ManifestHead,
)
from streamad.learn.store.records import WindowForm
from streamad.safe_text import visible
from streamad.settings.fields import NAME_PATTERN
from streamad.settings.plant_yaml import WindowSettings
from streamad.system.files import sha256_of
from streamad.system.opening import read_regular
from streamad.system.rights import is_refusal, missing_right
from streamad.system.untrusted_json import decode_json
from streamad.types import ChannelSpec

NAME = re.compile(NAME_PATTERN)
EARLY_FOLDER = "early"
"""The one folder in a version: the looks at running sequences, a folder each."""
TRAIN_COMMAND = "streamad train --config FILE (the config of this command)"
_SHOWN = 80
_RETRAIN = f"train a model for this plant: {TRAIN_COMMAND}"


def _entries(folder: Path) -> set[str]:
    """Return the names in ``folder`` that are not hidden: editors, NFS and desktops leave hidden files.

    ``EARLY_FOLDER`` stands for what is in it, as "early/0/model.ts".
    """
    names = {entry.name for entry in folder.iterdir() if not entry.name.startswith(".")}
    if EARLY_FOLDER in names and (folder / EARLY_FOLDER).is_dir():
        inner = (path.relative_to(folder) for path in (folder / EARLY_FOLDER).rglob("*") if not path.is_dir())
        names = (names - {EARLY_FOLDER}) | {path.as_posix() for path in inner if not path.name.startswith(".")}
    return names


def _is_plain(name: str) -> bool:
    """Return whether ``name`` is that of a file of a version, perhaps in ``EARLY_FOLDER``."""
    *folders, file = name.split("/")
    is_early = folders[:1] == [EARLY_FOLDER] and len(folders) <= 2
    return all(NAME.fullmatch(part) for part in (*folders, file)) and (not folders or is_early)


def describe_files(folder: Path) -> dict[str, FileRecord]:
    """Return checksum and size of each file in ``folder``. Raises ArtifactError for a folder or an odd name in it."""
    records = {}
    for name in sorted(_entries(folder) - {MANIFEST_FILE}):
        path = folder / name
        if not _is_plain(name) or not path.is_file():
            raise ArtifactError(f"the detector exported {name!r}: an artifact holds plain files with plain names only")
        records[name] = FileRecord(sha256_of(path), path.stat().st_size)
    return records


def check_manifest_name(where: Path | str, manifest: Manifest, name: str, version: str) -> None:
    """Check that what lies ``where`` is the version that its manifest names. Raises ArtifactError."""
    if (manifest.name, manifest.version) != (name, version):
        raise ArtifactError(_copied(where, manifest, name, version))


def _copied(where: Path | str, found: Manifest | ManifestHead, name: str, version: str) -> str:
    own_name, own_version = (visible(str(part)[:_SHOWN]) for part in (found.name, found.version))
    return (
        f"model {name} {version}: its manifest is that of {own_name} {own_version}, so the folder was "
        f"copied or renamed: move {where} out of the registry, or back to its place "
        f"({own_name}/versions/{own_version}) if nothing is there"
    )


def why_no_version(folder: Path, name: str, version: str) -> str | None:
    """Return why ``folder`` is no version: it has no manifest of streamad's, or another version's; None if it is one.

    A version whose manifest is damaged, of another schema, or may not be read stays one.
    """
    try:
        content = read_regular(folder / MANIFEST_FILE)
    except FileNotFoundError:
        away = f"move {folder} out of the registry"
        return f"model {name} {version}: the folder has no {MANIFEST_FILE}: restore it from a backup, or {away}"
    except OSError:
        return None
    return why_no_manifest(content, folder, name, version)


def why_no_manifest(content: bytes, where: Path | str, name: str, version: str) -> str | None:
    """Return why ``content`` is not the manifest of the version ``where`` it lies, as ``why_no_version`` does."""
    try:
        found = decode_json(content, ManifestHead)
    except msgspec.DecodeError:
        return None
    if not found.is_ours:
        return f"model {name} {version}: {MANIFEST_FILE} is not a streamad manifest: move {where} out of the registry"
    if found.schema_version != MANIFEST_VERSION or (found.name, found.version) == (name, version):
        return None
    return _copied(where, found, name, version)


def early_files(manifest: Manifest, backend: str) -> list[str]:
    """Return the files of the looks for a ``backend`` beside TorchScript."""
    if (early := manifest.early) is None:
        return []
    files = early.backends.get(backend, ())
    return [f"{EARLY_FOLDER}/{number}/{name}" for number in range(len(early.looks)) for name in files]


def spare_files(manifest: Manifest) -> set[str]:
    """Return the files that only a backend beside TorchScript needs."""
    spare = {name for files in manifest.backends.values() for name in files} - CORE_FILES
    return spare | {name for backend in manifest.backends for name in early_files(manifest, backend)}


def check_file_names(manifest: Manifest, label: str, repair: str) -> None:
    """Check that the manifest names only files that a version may have. Raises ArtifactError with ``repair``."""
    if odd := sorted(name for name in manifest.files if not _is_plain(name) or name == MANIFEST_FILE):
        raise ArtifactError(f"{label}: the manifest names the file {odd[0]!r}, which no artifact holds: {repair}")


def verify_files(folder: Path, manifest: Manifest, label: str) -> None:
    """Check that ``folder`` holds exactly the manifest's files with their sizes and checksums; raises ArtifactError.

    Those of a backend beside TorchScript may be missing or damaged: they refuse that backend, not the version.
    """
    names = set(manifest.files)
    needed = names - spare_files(manifest)
    repair = f"restore {folder} from a backup or train anew"
    check_file_names(manifest, label, repair)
    try:
        there = _entries(folder) - {MANIFEST_FILE}
        if missing := sorted(needed - there):
            raise ArtifactError(f"{label}: missing {some_of(missing)}: {repair}")
        if unexpected := sorted(there - names):
            raise ArtifactError(f"{label}: unexpected {some_of(unexpected)}: move what does not belong out of {folder}")
        for name, record in manifest.files.items():
            if name in needed and (difference := difference_of(folder / name, record)):
                raise ArtifactError(f"{label}: {name} is damaged ({difference}): {repair}")
    except OSError as error:
        path = error.filename or folder
        remedy = missing_right(path, "read") if is_refusal(error) else repair
        raise ArtifactError(f"{label}: {path} cannot be read ({error.strerror}): {remedy}") from error


def verify_file(folder: Path, manifest: Manifest, name: str, label: str) -> None:
    """Check size and checksum of the one file ``name`` of an artifact. Raises ArtifactError."""
    record = manifest.files.get(name)
    try:
        difference = "the manifest does not name it" if record is None else difference_of(folder / name, record)
    except OSError as error:
        difference = error.strerror or str(error)
    if difference:
        raise ArtifactError(f"{label}: {name} is damaged ({difference}): restore {folder} from a backup or train anew")


def difference_of(path: Path, record: FileRecord) -> str | None:
    """Return how the file differs from what ``record`` says of it, None if it does not. Raises OSError."""
    if not path.is_file():
        return "not a file" if path.exists() else "missing"
    size = path.stat().st_size
    if size != record.size_bytes:
        return f"{size} bytes, the manifest says {record.size_bytes}"
    return "its sha256 differs from the manifest's" if sha256_of(path) != record.sha256 else None


def _unit(unit: str) -> str:
    return f"[{unit}]" if unit else "without a unit"


def check_channels(trained: tuple[ChannelSpec, ...], plant: tuple[ChannelSpec, ...], label: str) -> None:
    """Check names, order, units and fill of the channels; raises ArtifactError naming the first that differs."""
    model_names, plant_names = [c.name for c in trained], [c.name for c in plant]
    known, wanted = set(model_names), set(plant_names)
    if lacking := [name for name in model_names if name not in wanted]:
        raise ArtifactError(
            f"{label}: trained with channel {lacking[0]!r}, which the config lacks: add it or {_RETRAIN}"
        )
    if unknown := [name for name in plant_names if name not in known]:
        raise ArtifactError(f"{label}: never saw channel {unknown[0]!r} of the config: remove it or {_RETRAIN}")
    for place, (ours, theirs) in enumerate(zip(trained, plant, strict=True), start=1):
        if ours.name != theirs.name:
            raise ArtifactError(
                f"{label}: channel {place} is {ours.name!r} in the model, {theirs.name!r} in the config: "
                f"order the config's channels as {some_of(model_names)} or {_RETRAIN}"
            )
        if ours.unit != theirs.unit:
            raise ArtifactError(
                f"{label}: channel {ours.name!r} is {_unit(ours.unit)} in the model, {_unit(theirs.unit)} in "
                f"the config: correct the config or {_RETRAIN}"
            )
        if ours.fill != theirs.fill:
            was, now = ("linear" if each is msgspec.UNSET else each for each in (ours.fill, theirs.fill))
            raise ArtifactError(
                f"{label}: channel {ours.name!r} had fill: {was} in training, has fill: {now} in the config: "
                f"set it back or {_RETRAIN}"
            )


def check_window(trained: WindowForm, window: WindowSettings, label: str) -> None:
    """Check that windows are made as in training; raises ArtifactError naming the first setting that differs."""
    plant = WindowForm.of(window)
    for field, shown in (
        ("length", "window.length"),
        ("resample_period_us", "window.resample.period (µs)"),
        ("longer", "window.longer"),
        ("max_missing", "window.max_missing"),
        ("min_samples", "window.min_samples"),
    ):
        ours, theirs = getattr(trained, field), getattr(plant, field)
        if ours != theirs:
            raise ArtifactError(
                f"{label}: {shown} was {_shown(ours)} in training, is {_shown(theirs)} in the config: "
                f"set it back or {_RETRAIN}"
            )


def _shown(value: object) -> str:
    return "unset" if value is None else str(value)


def check_detector(manifest: Manifest, kind: str, label: str) -> None:
    """Check the kind of detector; raises ArtifactError."""
    if manifest.detector.kind != kind:
        raise ArtifactError(
            f"{label}: made by detector {manifest.detector.kind!r}, the config says model.detector: {kind}: "
            f"set model.detector: {manifest.detector.kind} to use it, put a version of {kind} into service (streamad "
            f"models list, streamad models promote), or {_RETRAIN}"
        )
