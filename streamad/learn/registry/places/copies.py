"""Copies of an object store's versions on this machine, which its processes share: a registry in a folder."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from streamad.errors import ArtifactError, ObjectError, OutputError, RegistryError
from streamad.learn.registry.manifest import MANIFEST_FILE, Manifest
from streamad.learn.registry.places.folder import FolderPlace
from streamad.learn.registry.places.place import CURRENT_FILE
from streamad.learn.registry.places.requests import Objects
from streamad.learn.registry.verify import check_file_names, difference_of, spare_files
from streamad.system.files import sync_file, sync_folder, write_atomically, writing


class Copies(FolderPlace):
    """Versions under ``root``, each verified before it gets its place there by one rename.

    CURRENT is the version that the store named when it was last read, if a copy of it is here.
    """

    def __init__(self, root: Path, objects: Objects) -> None:
        super().__init__(root)
        self._objects = objects
        self._seen: dict[str, bytes] = {}
        self._noted: dict[str, bytes] = {}

    def note_current(self, name: str, version: bytes) -> None:
        """Keep which version is in service, if its copy is here; a failure costs a later start only."""
        self._seen[name] = version
        if self._noted.get(name) == version:
            return
        with suppress(OutputError, RegistryError, ValueError):
            if self.folder(name, version.decode("ascii")) is not None:
                write_atomically(self.root / name / CURRENT_FILE, version + b"\n")
                self._noted[name] = version

    def made(self, name: str, version: str, content: bytes, manifest: Manifest) -> Path:
        """Return the copy of the version with the manifest ``content``, made if there is none that is whole.

        Raises ArtifactError if an object is not what the manifest says, ObjectError, OutputError.
        """
        label = f"model {name} {version}"
        check_file_names(manifest, label, "train anew")
        folder = self.path_of(name, version)
        if not _is_whole(folder, manifest):
            folder = self._fetched(name, version, content, manifest)
            self._drop_others(name)
        else:
            path = folder / MANIFEST_FILE
            if not path.is_file() or path.read_bytes() != content:
                write_atomically(path, content)
        if self._seen.get(name) == version.encode():
            self.note_current(name, version.encode())
        return folder

    def _fetched(self, name: str, version: str, content: bytes, manifest: Manifest) -> Path:
        """Copy the version; a file that only a backend beside TorchScript needs may be missing or damaged."""
        spare = spare_files(manifest)
        with self.staging(name) as staged:
            for file, record in manifest.files.items():
                key, path = f"{name}/files/{manifest.claim}/{record.sha256}", staged / file
                path.parent.mkdir(parents=True, exist_ok=True)
                is_there = self._objects.fetch(key, path, record.size_bytes)
                why = difference_of(path, record) if is_there else "missing"
                if why is not None and file not in spare:
                    where = f"{self._objects.root}/{key}"
                    raise ArtifactError(f"model {name} {version}: {file} is damaged ({why}; {where}): train anew")
                if why is not None:
                    path.unlink(missing_ok=True)
                else:
                    sync_file(path)
            write_atomically(staged / MANIFEST_FILE, content)
            return self._adopted(name, version, staged, manifest)

    def _adopted(self, name: str, version: str, staged: Path, manifest: Manifest) -> Path:
        """Give the whole copy ``staged`` its place, unless another process has made one: it may read it by now."""
        finished = self.path_of(name, version)
        with self.locked(name), writing(finished):
            if not _is_whole(finished, manifest):
                if finished.exists():
                    self.remove(name, version)
                staged.rename(finished)
                sync_folder(finished.parent)
        return finished

    def _drop_others(self, name: str) -> None:
        """Remove the copies of versions that the store has no more; a failure leaves them to the next time."""
        with suppress(ObjectError, OutputError, RegistryError):
            there = {each.key.split("/")[2] for each in self._objects.under(f"{name}/versions")}
            for version, _ in self.entries(name):
                if version not in there:
                    self.remove(name, version)


def _is_whole(folder: Path, manifest: Manifest) -> bool:
    try:
        return all(difference_of(folder / file, record) is None for file, record in manifest.files.items())
    except OSError:
        return False
