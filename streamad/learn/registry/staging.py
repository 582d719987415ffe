"""Staging of a new version: written whole in a folder of its own, then published at one moment.

A killed writer leaves a staging folder that nobody reads and whose lock is free, so the next writer removes it.
"""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path

import msgspec

from streamad.learn.registry.manifest import MANIFEST_FILE, Manifest, encode_manifest
from streamad.learn.registry.verify import describe_files
from streamad.system.files import sync_file, write_atomically, writing
from streamad.system.locks import try_lock

PREFIX = ".staging-"
STAGED = "staged"
"""The version in the manifest of a version that has no number yet."""
Lock = Callable[[], AbstractContextManager[None]]
Publish = Callable[[Path, Manifest], str]
"""Makes a whole folder, with its manifest but for the number, a version, and returns the number."""


class StagedVersion:
    """A folder to fill with a version's files; ``publish`` makes them a version."""

    def __init__(self, folder: Path, name: str, publish: Publish) -> None:
        self.folder = folder
        self._name = name
        self._publish = publish

    def seal(self, draft: Manifest) -> None:
        """Write the manifest as that of version ``STAGED``, so that the folder can be loaded before it is published.

        ``publish`` replaces it. Raises OutputError.
        """
        with writing(self.folder):
            manifest = msgspec.structs.replace(
                draft, name=self._name, version=STAGED, files=describe_files(self.folder)
            )
            write_atomically(self.folder / MANIFEST_FILE, encode_manifest(manifest))

    def publish(self, draft: Manifest) -> str:
        """Make the folder's files a version and return its number; ``draft`` gets name, version and checksums.

        All content is synced before. Raises OutputError; then there is no version.
        """
        with writing(self.folder):
            files = describe_files(self.folder)
            for name in files:
                sync_file(self.folder / name)
        return self._publish(
            self.folder, msgspec.structs.replace(draft, name=self._name, files=files, claim=msgspec.UNSET)
        )


@contextmanager
def staged_version(staging: AbstractContextManager[Path], name: str, publish: Publish) -> Iterator[StagedVersion]:
    """Yield the folder that ``staging`` makes as a version to fill, which ``publish`` makes one."""
    with staging as folder:
        yield StagedVersion(folder, name, publish)


@contextmanager
def staging_folder(versions: Path, lock: Lock) -> Iterator[Path]:
    """Make an empty staging folder under ``versions``, removed if it is not published. Raises OutputError."""
    folder = versions / f"{PREFIX}{secrets.token_hex(8)}"
    with lock(), writing(folder):
        clear_leftovers(versions)
        folder.mkdir()
        alive = try_lock(_lock_of(folder))
    try:
        with writing(folder):
            yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        with suppress(OSError):
            _lock_of(folder).unlink()
        if alive is not None:
            os.close(alive)


def _lock_of(folder: Path) -> Path:
    return folder.with_name(f"{folder.name}.lock")


def clear_leftovers(versions: Path) -> None:
    """Remove the folders of killed writers; call it with the registry's lock held, when no writer is busy."""
    for entry in versions.glob(f"{PREFIX}*"):
        folder = entry.with_suffix("")
        alive = try_lock(_lock_of(folder))
        if alive is None:
            continue
        shutil.rmtree(folder, ignore_errors=True)
        _lock_of(folder).unlink(missing_ok=True)
        os.close(alive)
