"""Versions in a folder: published by one rename, promoted by another under a lock (POSIX flock)."""

from __future__ import annotations

import errno
import os
import secrets
import shutil
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import msgspec

from streamad.errors import RegistryError
from streamad.learn.registry.manifest import MANIFEST_FILE, Manifest, encode_manifest, read_manifest
from streamad.learn.registry.places.place import CURRENT_FILE, Current
from streamad.learn.registry.staging import PREFIX, StagedVersion, staged_version, staging_folder
from streamad.learn.registry.verify import NAME, verify_files, why_no_version
from streamad.system.files import clear_leftovers, sync_folder, write_atomically, writing
from streamad.system.locks import locked
from streamad.system.opening import NotRegularError, open_regular
from streamad.system.rights import reason

_LOCK_TIMEOUT_S = 10.0
_CURRENT_MAX_BYTES = 256


class FolderPlace:
    """Versions under ``root``; safe for many processes on one POSIX file system.

    Layout: ``<root>/<name>/versions/0007/`` holds a version, ``<root>/<name>/CURRENT`` names the champion.
    """

    copies = None

    def __init__(self, root: Path) -> None:
        self.root = root

    def shown(self, *parts: str) -> str:
        """Return the path of what lies under the root."""
        return str(self.root.joinpath(*parts))

    def names(self) -> list[str]:
        """Return the names of all models."""
        return _folders(self.root)

    def entries(self, name: str) -> list[tuple[str, str | None]]:
        """Return the folders among a model's versions, and why each is none (None: it is one)."""
        home = self._versions(name)
        return [(each, why_no_version(home / each, name, each)) for each in _folders(home)]

    def has(self, name: str, version: str) -> bool:
        """Return whether the version has a folder."""
        return _is_folder(self.path_of(name, version))

    def current(self, name: str) -> Current:
        """Return what CURRENT holds; never what a link leads to."""
        path = self.root / name / CURRENT_FILE
        try:
            with os.fdopen(open_regular(path, follows_links=False), "rb") as file:
                return Current(file.read(_CURRENT_MAX_BYTES))
        except FileNotFoundError:
            return Current()
        except IsADirectoryError:
            return Current(odd="a folder is in its place", is_folder=True)
        except OSError as error:
            if error.errno == errno.ELOOP or isinstance(error, NotRegularError):
                is_folder = not path.is_symlink() and path.is_dir()
                return Current(odd=error.strerror or "not a regular file", is_folder=is_folder)
            raise RegistryError(f"cannot read {path}: {reason(error, path, 'read')}") from error

    def set_current(self, name: str, version: str, check: Callable[[Current], None]) -> None:
        """Replace CURRENT by a rename, under the lock, unless ``check`` refuses what it holds."""
        with self.locked(name):
            check(self.current(name))
            write_atomically(self.root / name / CURRENT_FILE, f"{version}\n".encode())

    def manifest(self, name: str, version: str) -> Manifest | None:
        """Return the manifest of a version, None if it has no folder. Raises ArtifactError."""
        folder = self.folder(name, version)
        return None if folder is None else read_manifest(folder, f"model {name} {version}")

    def rewrite(self, name: str, version: str, change: Callable[[Manifest], Manifest | None]) -> bool:
        """Replace the manifest under the lock; False if there is no such version. Raises ArtifactError."""
        with self.locked(name):
            if (manifest := self.manifest(name, version)) is None:
                return False
            if (changed := change(manifest)) is not None:
                # The temporary file lies outside the version: a killed writer leaves nothing in it.
                temporary = self.root / name / f".{MANIFEST_FILE}.{secrets.token_hex(8)}.tmp"
                path = self.path_of(name, version) / MANIFEST_FILE
                write_atomically(path, encode_manifest(changed), temporary=temporary)
            return True

    def new_version(self, name: str, highest: Callable[[], int]) -> AbstractContextManager[StagedVersion]:
        """Stage a version that becomes one by a rename, under the lock."""

        def publish(folder: Path, manifest: Manifest) -> str:
            with self.locked(name), writing(folder):
                return self._renamed(folder, manifest, highest())

        return staged_version(self.staging(name), name, publish)

    def staging(self, name: str) -> AbstractContextManager[Path]:
        """Make an empty folder beside the versions, removed at the end if it is still there. Raises OutputError."""
        versions = self._versions(name)
        with writing(versions):
            versions.mkdir(parents=True, exist_ok=True)
        return staging_folder(versions, lambda: self.locked(name))

    def _renamed(self, folder: Path, manifest: Manifest, highest: int) -> str:
        number = highest + 1
        while os.path.lexists(finished := folder.with_name(f"{number:04d}")):  # a rename would replace an empty folder
            number += 1
        manifest = msgspec.structs.replace(manifest, version=finished.name)
        write_atomically(folder / MANIFEST_FILE, encode_manifest(manifest))
        folder.rename(finished)
        sync_folder(finished.parent)
        return finished.name

    def folder(self, name: str, version: str) -> Path | None:
        """Return the folder of a version, None if there is none."""
        folder = self.path_of(name, version)
        return folder if _is_folder(folder) else None

    def verify(self, name: str, version: str, manifest: Manifest) -> None:
        """Check the version's files. Raises ArtifactError."""
        verify_files(self.path_of(name, version), manifest, f"model {name} {version}")

    def training_folder(self, name: str) -> Path:
        """Return the folder for the state of interrupted trainings, beside the versions."""
        return self.root / name / "training"

    @contextmanager
    def pruning(self, name: str) -> Iterator[None]:
        """Hold the lock for the block."""
        with self.locked(name):
            yield

    def is_link(self, name: str, version: str) -> bool:
        """Return whether a link lies in the version's place."""
        return self.path_of(name, version).is_symlink()

    def remove(self, name: str, version: str) -> bool:
        """Move the version aside by one rename, then delete it; always True."""
        folder = self.path_of(name, version)
        aside = folder.with_name(f"{PREFIX}{secrets.token_hex(8)}")  # the next writer removes what a kill leaves
        with writing(folder):
            folder.rename(aside)
            sync_folder(folder.parent)
        shutil.rmtree(aside, ignore_errors=True)
        return True

    def clear(self, name: str) -> None:
        """Do nothing: the next writer removes what killed ones left."""

    def check_writable(self) -> None:
        """Do nothing: ``streamad check`` looks at folders otherwise."""

    def path_of(self, name: str, version: str) -> Path:
        """Return where the version's folder is or would be."""
        return self._versions(name) / version

    def _versions(self, name: str) -> Path:
        return self.root / name / "versions"

    @contextmanager
    def locked(self, name: str) -> Iterator[None]:
        """Hold the lock of a model's versions for the block. Raises RegistryError if it is not free in time."""
        path = self.root / name / ".lock"
        busy = (
            f"{path} has been held by another process for {_LOCK_TIMEOUT_S:.0f} s: end it if it hangs, then try again"
        )
        with writing(path), locked(path, busy=busy, timeout_s=_LOCK_TIMEOUT_S):
            clear_leftovers(path.parent)
            yield


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
