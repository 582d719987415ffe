"""The registry of model versions: published whole or not at all, promoted by compare-and-swap.

Layout: ``<root>/<name>/versions/0007/`` holds a version, ``<root>/<name>/CURRENT`` names the champion.
"""

from __future__ import annotations

import errno
import os
import secrets
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path

import msgspec

from streamad.errors import ArtifactError, RegistryError
from streamad.judge.envelope import Envelope
from streamad.learn.registry.artifact import LoadedModel, load_artifact, read_calibration, read_envelope
from streamad.learn.registry.manifest import MANIFEST_FILE, Manifest, PromotionDecision, encode_manifest, read_manifest
from streamad.learn.registry.staging import StagedVersion, staged_version
from streamad.learn.registry.verify import NAME, TRAIN_COMMAND, check_manifest_name, verify_files, why_no_version
from streamad.messages import ModelRef
from streamad.ports import Detector
from streamad.settings.plant_yaml import Settings
from streamad.system.files import clear_leftovers, write_atomically, writing
from streamad.system.locks import locked
from streamad.system.opening import NotRegularError, open_regular
from streamad.system.rights import reason
from streamad.types import FloatArray

_LOCK_TIMEOUT_S = 10.0
_CURRENT_MAX_BYTES = 256
_DECISIONS_KEPT = 50  # in which a version was the champion: with one training a night, seven weeks of them


class NoModelError(RegistryError):
    """Raised when no version of a model is in service; says how to train one."""


class CurrentError(RegistryError):
    """Raised when CURRENT is damaged or a folder; says how ``models promote`` writes it anew."""


class OvertakenError(RegistryError):
    """Raised when a promotion comes too late: another version is in service than the one to be replaced."""


class _NoFileError(Exception):
    """Raised when a link, FIFO, socket or device is in a file's place: a rename replaces it, but no folder."""


def _plain(text: str, what: str) -> str:
    if not NAME.fullmatch(text):
        raise RegistryError(f"{what} {text[:80]!r} is not a plain name: use letters, digits, '.', '_' and '-' only")
    return text


class Registry:
    """The versions of every model under ``root``; safe for many processes on one POSIX file system."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def names(self) -> tuple[str, ...]:
        """Return the names of all models that have a folder. Raises RegistryError."""
        return tuple(_folders(self.root))

    def versions(self, name: str) -> tuple[str, ...]:
        """Return the versions of a model, oldest first, damaged ones too. Raises RegistryError.

        A folder without a manifest, or with that of another version (a copy, a link), is none.
        """
        return tuple(each for each, reason in self._entries(name) if reason is None)

    def other_folders(self, name: str) -> dict[str, str]:
        """Return why each folder among a model's versions that is none is none, by its name. Raises RegistryError."""
        return {each: reason for each, reason in self._entries(name) if reason is not None}

    def _entries(self, name: str) -> list[tuple[str, str | None]]:
        """Return each folder among the versions and why it is none (None: it is one), in the order of versions."""
        home = self._home(name) / "versions"
        found = sorted(_folders(home), key=lambda version: (not version.isdecimal(), len(version), version))
        return [(each, why_no_version(home / each, name, each)) for each in found]

    def current(self, name: str) -> str | None:
        """Return the version in service or None. Raises CurrentError if CURRENT is damaged, RegistryError."""
        path = self._home(name) / "CURRENT"
        try:
            content = _read_short(path)
        except _NoFileError as error:
            move = "move it away, then " if path.is_dir() and not path.is_symlink() else ""
            raise CurrentError(f"cannot read {path}: {error}: {move}{self._way_out(name)}") from error
        if content is None:
            return None
        version = content.decode("ascii", "backslashreplace").strip()
        if not NAME.fullmatch(version):
            raise CurrentError(f"{path} is damaged, it holds {version[:80]!r}: {self._way_out(name)}")
        if not _is_folder(self.folder(name, version)):
            raise CurrentError(f"{path} names version {version}, which does not exist: {self._way_out(name)}")
        return version

    def current_or_none(self, name: str) -> str | None:
        """Return the version in service; None if there is none or CURRENT is damaged. Raises RegistryError."""
        try:
            return self.current(name)
        except CurrentError:
            return None

    def _way_out(self, name: str) -> str:
        """Return what writes CURRENT anew."""
        if not (known := self.versions(name)):
            return f"there is no version, so remove it, then train one with: {TRAIN_COMMAND}"
        promote = f"streamad models promote VERSION --model {name} --config FILE"
        return f"put a version into service with: {promote} (there are: {_listed(known)})"

    def folder(self, name: str, version: str) -> Path:
        """Return the folder of a version; raises RegistryError for a name that would lead elsewhere."""
        return self._home(name) / "versions" / _plain(version, "version")

    def named(self, name: str, version: str) -> str:
        """Return the version that a person means by ``version``: 3 is 0003; else ``version``. Raises RegistryError."""
        known = [each for each, _ in self._entries(name)]
        if version in known or not (version.isascii() and version.isdecimal()):
            return version
        number = version.lstrip("0")  # as text: a person may have typed more digits than Python makes a number of
        return next((each for each in known if each.isdecimal() and each.lstrip("0") == number), version)

    def training_folder(self, name: str) -> Path:
        """Return the folder in which interrupted trainings of a model keep their state."""
        return self._home(name) / "training"

    def manifest(self, name: str, version: str) -> Manifest:
        """Return the manifest of a version.

        Raises RegistryError for none, ArtifactError for a damaged one and for that of another version.
        """
        folder = self._existing(name, version)
        manifest = read_manifest(folder, f"model {name} {version}")
        check_manifest_name(folder, manifest, name, version)
        return manifest

    def new_version(self, name: str) -> AbstractContextManager[StagedVersion]:
        """Stage a new version: fill ``staged.folder``, then ``staged.publish(manifest)`` returns its number.

        Without ``publish`` there is no version, not after a kill either. Raises OutputError, RegistryError.
        """
        versions = self._home(name) / "versions"
        with writing(versions):
            versions.mkdir(parents=True, exist_ok=True)
        return staged_version(versions, name, lambda: self.locked(name), lambda: self._next_version(name))

    def promote(self, name: str, version: str, *, expected: str | None, repairs: bool = False) -> None:
        """Put ``version`` into service if ``expected`` (None: nothing) still is; its files are verified first.

        A trainer passes the parent it started from, so that a late one cannot replace a newer champion. With
        ``repairs`` a damaged CURRENT counts as none, and is written anew, but no folder. Raises OvertakenError if
        another is in service, ArtifactError for a damaged version, CurrentError, RegistryError, OutputError.
        """
        folder, manifest = self._existing(name, version), self.manifest(name, version)
        verify_files(folder, manifest, f"model {name} {version}")
        with self.locked(name):
            current = self._home(name) / "CURRENT"
            repairs = repairs and (current.is_symlink() or not _is_folder(current))
            champion = self.current_or_none(name) if repairs else self.current(name)
            if champion != expected:
                raise OvertakenError(
                    f"model {name}: {version} not promoted, {champion or 'nothing'} is in service where "
                    f"{expected or 'nothing'} was expected: another was promoted meanwhile; compare the two first"
                )
            write_atomically(current, f"{version}\n".encode())

    def record_decision(self, name: str, version: str, decision: PromotionDecision) -> None:
        """Record why ``version`` was promoted or not, in its manifest and in that of the champion it challenged.

        No other part of a version ever changes. A champion that is gone or damaged is left out.
        Raises RegistryError, ArtifactError for a damaged version, OutputError.
        """
        with self.locked(name):
            self._rewrite(name, msgspec.structs.replace(self.manifest(name, version), decision=decision))
            if decision.champion is not None:
                with suppress(RegistryError, ArtifactError):
                    champion = self.manifest(name, decision.champion)
                    challenged = (*champion.challenged, decision)[-_DECISIONS_KEPT:]
                    self._rewrite(name, msgspec.structs.replace(champion, challenged=challenged))

    def decline(self, name: str, version: str) -> bool:
        """Record that a person does not want ``version``; False if it never waited for a review.

        Raises RegistryError, ArtifactError for a damaged version, OutputError.
        """
        with self.locked(name):
            manifest = self.manifest(name, version)
            decision = manifest.decision
            if decision is None or not (decision.waits_for_review or decision.declined):
                return False
            declined = msgspec.structs.replace(decision, waits_for_review=False, declined=True)
            self._rewrite(name, msgspec.structs.replace(manifest, decision=declined))
            return True

    def _rewrite(self, name: str, manifest: Manifest) -> None:
        # Outside the version: a killed writer leaves nothing in it.
        temporary = self._home(name) / f".{MANIFEST_FILE}.{secrets.token_hex(8)}.tmp"
        folder = self._existing(name, manifest.version)
        write_atomically(folder / MANIFEST_FILE, encode_manifest(manifest), temporary=temporary)

    def load(self, name: str, version: str | None = None, *, settings: Settings, detector: Detector) -> LoadedModel:
        """Verify and load a version (None: the one in service) for a plant with ``settings``.

        Raises NoModelError, RegistryError, and ArtifactError for an artifact that is damaged, foreign, does not fit the
        plant, or scores otherwise than when it was trained.
        """
        chosen = version if version is not None else self.in_service(name)
        folder = self._existing(name, chosen)
        return load_artifact(folder, ModelRef(name, chosen), settings, detector)

    def calibration_terms(self, name: str, version: str) -> FloatArray:
        """Return the calibration terms float32 [n, K] of a version. Raises RegistryError, ArtifactError."""
        return read_calibration(self._existing(name, version), f"model {name} {version}")

    def envelope(self, name: str, version: str) -> Envelope:
        """Return the envelope of a version, without loading its model. Raises RegistryError, ArtifactError."""
        return read_envelope(self._existing(name, version), f"model {name} {version}")

    def _home(self, name: str) -> Path:
        return self.root / _plain(name, "model name")

    def in_service(self, name: str) -> str:
        """Return the version in service. Raises NoModelError, RegistryError."""
        version = self.current(name)
        if version is None:
            raise NoModelError(
                f"no model {name!r} in {self.root}: let streamad run learn one by itself with learning: {{}} in the "
                f"config, or train one with: {TRAIN_COMMAND}"
            )
        return version

    def _existing(self, name: str, version: str) -> Path:
        folder = self.folder(name, version)
        if not _is_folder(folder):
            raise RegistryError(f"model {name} has no version {version} (there are: {_listed(self.versions(name))})")
        return folder

    def _next_version(self, name: str) -> str:
        """Return the next number after those of versions and of the one in service, that no folder has."""
        known = list(self.versions(name))
        with suppress(_NoFileError):
            known.append((_read_short(self._home(name) / "CURRENT") or b"").decode("ascii", "replace").strip())
        number = (
            max((int(version) for version in known if version.isdecimal() and NAME.fullmatch(version)), default=0) + 1
        )
        while os.path.lexists(self.folder(name, f"{number:04d}")):
            number += 1
        return f"{number:04d}"

    @contextmanager
    def locked(self, name: str) -> Iterator[None]:
        """Hold the lock of a model's versions for the block. Raises RegistryError if it is not free in time."""
        path = self._home(name) / ".lock"
        busy = (
            f"{path} has been held by another process for {_LOCK_TIMEOUT_S:.0f} s: end it if it hangs, then try again"
        )
        with writing(path), locked(path, busy=busy, timeout_s=_LOCK_TIMEOUT_S):
            clear_leftovers(path.parent)
            yield


def _listed(versions: tuple[str, ...]) -> str:
    return ", ".join(versions[-5:]) or "none"


def _is_folder(path: Path) -> bool:
    try:
        return path.is_dir()
    except OSError as error:  # such as a stale handle of a network share, which recovers by itself
        raise RegistryError(f"cannot read the registry at {path}: {reason(error, path, 'read')}") from error


def _folders(folder: Path) -> list[str]:
    try:
        return sorted(entry.name for entry in folder.iterdir() if NAME.fullmatch(entry.name) and entry.is_dir())
    except FileNotFoundError:
        return []
    except OSError as error:
        raise RegistryError(f"cannot read the registry at {folder}: {reason(error, folder, 'read')}") from error


def _read_short(path: Path) -> bytes | None:
    try:
        with os.fdopen(open_regular(path, follows_links=False), "rb") as file:
            return file.read(_CURRENT_MAX_BYTES)
    except FileNotFoundError:
        return None
    except IsADirectoryError as error:
        raise _NoFileError("a folder is in its place") from error
    except OSError as error:
        if error.errno == errno.ELOOP or isinstance(error, NotRegularError):
            raise _NoFileError(error.strerror) from error
        raise RegistryError(f"cannot read {path}: {reason(error, path, 'read')}") from error
