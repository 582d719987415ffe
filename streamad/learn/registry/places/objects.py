"""Versions in an object store: published and promoted by conditional writes, loaded from copies on this machine."""

from __future__ import annotations

import hashlib
import re
import secrets
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final, TypeAlias

import msgspec

from streamad.errors import ArtifactError, DoubtfulError, OutputError, RegistryError, StreamadError
from streamad.learn.registry.manifest import MANIFEST_FILE, Manifest, decode_manifest, encode_manifest
from streamad.learn.registry.places.conditional import (
    PROBES,
    check_conditions,
    reading_objects,
    writing_objects,
    written,
)
from streamad.learn.registry.places.copies import Copies
from streamad.learn.registry.places.place import CURRENT_FILE, Current, RegistryAwayError
from streamad.learn.registry.places.requests import Found, Listed, Objects
from streamad.learn.registry.staging import StagedVersion, staged_version
from streamad.learn.registry.verify import NAME, check_manifest_name, spare_files, why_no_manifest
from streamad.system.untrusted_json import decode_json

_CONTENDED = 100
_NONCES_KEPT = 8
_CURRENT_MAX_BYTES = 1024
_NONCE = re.compile(r"[0-9a-f]{16}")
_CLAIM = re.compile(r"[0-9a-f]{32}")
_GRACE: Final = timedelta(days=1)
"""Files that no manifest names are left alone for so long: they may belong to a version being published."""
_REMOVED = "removed"
_AT_ONCE = 8
_Head: TypeAlias = tuple[str, str | None]
"""Key and ETag of a manifest."""
_kept: set[str] = set()  # URLs whose stores take conditional writes, as this process has tried


class _Claiming(msgspec.Struct):
    claim: str = ""


class ObjectPlace:
    """Versions under a URL, safe for many processes on many machines; ``copies`` is a local folder.

    Layout: ``NAME/versions/0007/manifest.json`` makes a version: a conditional creation claims the number when all
    files lie in ``NAME/files/CLAIM/``, each under its sha256. ``NAME/CURRENT`` names the champion; it is replaced only
    as the version of the object that was read, and keeps the marks of its last writers: a writer whose answer was lost
    finds its own there.
    """

    def __init__(self, objects: Objects, copies: Path) -> None:
        self._objects = objects
        self._copies = Copies(copies / hashlib.sha256(objects.root.encode()).hexdigest()[:16], objects)
        self._heads: dict[str, dict[_Head, bytes]] = {}

    @property
    def copies(self) -> Path:
        """Return the folder of the copies, itself a registry's."""
        return self._copies.root

    def shown(self, *parts: str) -> str:
        """Return the URL of what lies under the root."""
        return "/".join((self._objects.root, *parts))

    def names(self) -> list[str]:
        """Return the names of all models."""
        with reading_objects():
            return sorted(name for name in self._objects.folders() if NAME.fullmatch(name))

    def entries(self, name: str) -> list[tuple[str, str | None]]:
        """Return the versions, and why what has a manifest elsewhere is none (None: it is one)."""
        found = []
        for (key, _), content in self._contents(name).items():
            version = key.split("/")[2]
            if NAME.fullmatch(version):
                where = self.shown(name, "versions", version)
                found.append((version, why_no_manifest(content, where, name, version)))
        return found

    def _contents(self, name: str) -> dict[_Head, bytes]:
        """Return all manifests; what is known by its ETag is not read again."""
        with reading_objects():
            listed = self._objects.under(f"{name}/versions")
        keys = [(each.key, each.e_tag) for each in listed if each.key.split("/")[3:] == [MANIFEST_FILE]]
        before = self._heads.get(name, {})
        known = {key: before[key] for key in keys if key[1] is not None and key in before}
        unknown = [key for key in keys if key not in known]
        with ThreadPoolExecutor(_AT_ONCE) as pool:  # it starts no thread before it is given a key
            for key, found in zip(unknown, pool.map(lambda key: self._get(key[0]), unknown), strict=True):
                if found is not None:
                    known[key] = found.content
        self._heads[name] = known
        return known

    def has(self, name: str, version: str) -> bool:
        """Return whether the version has a manifest."""
        with reading_objects():
            return self._objects.has(_manifest_key(name, version))

    def current(self, name: str) -> Current:
        """Return what CURRENT holds, without the marks of its writers."""
        current = _current_in(self._get(f"{name}/{CURRENT_FILE}"))
        if current.content is not None:
            self._copies.note_current(name, current.content)
        return current

    def set_current(self, name: str, version: str, check: Callable[[Current], None]) -> None:
        """Replace CURRENT, as the version of the object that ``check`` has accepted."""
        self._need_conditions()
        before = self._replaced(name, version, check)
        try:
            if self.has(name, version):
                return
        except RegistryAwayError as error:
            raise DoubtfulError(f"model {name}: {version} may be in service: {error}") from error
        if before.content is not None:  # pruning was quicker: it looks at CURRENT after it has removed a version

            def is_ours(found: Current) -> None:
                if found.content != version.encode():
                    raise OutputError(f"{self.shown(name, CURRENT_FILE)} has changed meanwhile")

            with suppress(OutputError):
                self._replaced(name, before.content.decode("ascii", "replace"), is_ours)
        raise RegistryError(f"model {name}: {version} was removed while it was put into service: name another version")

    def _replaced(self, name: str, version: str, check: Callable[[Current], None]) -> Current:
        """Write CURRENT once ``check`` has accepted what it holds; return that."""
        key, own = f"{name}/{CURRENT_FILE}", secrets.token_hex(8)
        for _ in range(_CONTENDED):
            found = self._get(key)
            check(current := _current_in(found))
            nonces = (own, *_nonces_in(found))[:_NONCES_KEPT]
            content = "\n".join((version, *nonces, "")).encode()
            if written(
                self._objects, key, content, found, lambda there: own in there.decode("ascii", "replace").split()
            ):
                return current
        raise OutputError(f"cannot write {self.shown(key)}: others write it all the time: try again")

    def manifest(self, name: str, version: str) -> Manifest | None:
        """Return the manifest of a version, None if there is none. Raises ArtifactError for a damaged one."""
        found = self._get(_manifest_key(name, version))
        return None if found is None else self._decoded(found.content, name, version)

    def _decoded(self, content: bytes, name: str, version: str) -> Manifest:
        where, label = self.shown(name, "versions", version), f"model {name} {version}"
        manifest = decode_manifest(content, label, where)
        check_manifest_name(where, manifest, name, version)
        if not isinstance(manifest.claim, str) or not _CLAIM.fullmatch(manifest.claim):
            text = f"{label}: {MANIFEST_FILE} was not published here: move {where} out of the registry, or train anew"
            raise ArtifactError(text)
        return manifest

    def rewrite(self, name: str, version: str, change: Callable[[Manifest], Manifest | None]) -> bool:
        """Replace the manifest, as the version of the object that was read; False if there is no such version."""
        key = _manifest_key(name, version)
        for _ in range(_CONTENDED):
            if (found := self._get(key)) is None:
                return False
            changed = change(self._decoded(found.content, name, version))
            if changed is None or (content := encode_manifest(changed)) == found.content:
                return True
            if written(self._objects, key, content, found, lambda there, content=content: there == content):  # type: ignore[misc]
                return True
        raise OutputError(f"cannot write {self.shown(key)}: others write it all the time: try again")

    def new_version(self, name: str, highest: Callable[[], int]) -> AbstractContextManager[StagedVersion]:
        """Stage a version, on this machine, that becomes one by the creation of its manifest."""
        self._need_conditions()

        def publish(folder: Path, manifest: Manifest) -> str:
            claim = secrets.token_hex(16)
            self._upload(name, folder, manifest, claim)
            number = highest() + 1
            while not self._claimed(name, f"{number:04d}", msgspec.structs.replace(manifest, claim=claim)):
                number += 1
            return f"{number:04d}"

        return staged_version(self._copies.staging(name), name, publish)

    def _upload(self, name: str, folder: Path, manifest: Manifest, claim: str) -> None:
        """Write the files of the version under their sha256; without them nothing is left, but by a kill."""
        paths = {_file_key(name, claim, record.sha256): folder / file for file, record in manifest.files.items()}
        try:
            with writing_objects():
                for key, path in paths.items():
                    self._objects.put(key, path)
        except BaseException:
            with suppress(StreamadError):
                self._objects.delete(paths)
            raise

    def _claimed(self, name: str, version: str, manifest: Manifest) -> bool:
        """Create the manifest of the version; False if another has that number."""
        manifest = msgspec.structs.replace(manifest, version=version)
        content, key = encode_manifest(manifest), _manifest_key(name, version)
        if not written(self._objects, key, content, None, lambda there: there == content):
            return False
        assert isinstance(manifest.claim, str)
        wanted = {_file_key(name, manifest.claim, record.sha256) for record in manifest.files.values()}
        with reading_objects():
            there = {each.key for each in self._objects.under(f"{name}/files/{manifest.claim}")}
        if there == wanted:
            return True
        with writing_objects():  # it slept for a day, and a pruner took its files for those of a killed one
            self._objects.delete([key, *wanted])
        raise OutputError(f"model {name}: the publication took longer than {_GRACE.days} day: train again")

    def folder(self, name: str, version: str) -> Path | None:
        """Return the folder of the verified copy; while the store is away, of one that was made before."""
        try:
            found = self._get(_manifest_key(name, version))
        except RegistryAwayError:
            if (copy := self._copies.folder(name, version)) is not None:
                return copy
            raise
        if found is None:
            return None
        manifest = self._decoded(found.content, name, version)
        with reading_objects():
            return self._copies.made(name, version, found.content, manifest)

    def verify(self, name: str, version: str, manifest: Manifest) -> None:
        """Check the sizes in the store, then a copy. Raises ArtifactError."""
        assert isinstance(manifest.claim, str)
        with reading_objects():
            sizes = {each.key: each.size_bytes for each in self._objects.under(f"{name}/files/{manifest.claim}")}
        for file in manifest.files.keys() - spare_files(manifest):
            record = manifest.files[file]
            size = sizes.get(_file_key(name, manifest.claim, record.sha256))
            if size != record.size_bytes:
                why = "missing" if size is None else f"{size} bytes, the manifest says {record.size_bytes}"
                raise ArtifactError(f"model {name} {version}: {file} is damaged ({why}): train anew")
        self.folder(name, version)

    def training_folder(self, name: str) -> Path:
        """Return the folder for the state of interrupted trainings, beside the copies."""
        return self._copies.training_folder(name)

    def pruning(self, name: str) -> AbstractContextManager[None]:
        """Keep nobody out: every write has its condition."""
        return nullcontext()

    def is_link(self, name: str, version: str) -> bool:
        """Return False: an object store has no links."""
        return False

    def remove(self, name: str, version: str) -> bool:
        """Delete the manifest, and then, unless CURRENT names the version now, its files."""
        key = _manifest_key(name, version)
        if (found := self._get(key)) is None:
            return True
        manifest = self._decoded(found.content, name, version)
        with writing_objects():
            self._objects.delete([key])
        if _current_in(self._get(f"{name}/{CURRENT_FILE}")).content == version.encode():
            written(self._objects, key, found.content, None, lambda there: there == found.content)
            return False
        assert isinstance(manifest.claim, str)
        with writing_objects():
            self._objects.delete([each.key for each in self._objects.under(f"{name}/files/{manifest.claim}")])
        return True

    def clear(self, name: str) -> None:
        """Remove the files of publications that were killed, a day after they were written, by the store's clock.

        A mark stops the publisher of such files, if it only slept: each of the two first writes, the pruner its mark,
        the publisher its manifest, and then looks whether the other has.
        """
        with reading_objects():
            claims: dict[str, list[Listed]] = {}
            for each in self._objects.under(f"{name}/files"):
                claims.setdefault(each.key.split("/")[2], []).append(each)
        named = self._claims(name)
        if named is None or not (left := claims.keys() - named):
            return
        since = self._time() - _GRACE
        old = {claim for claim in left if max(each.written for each in claims[claim]) < since}
        for claim in old:
            written(self._objects, _file_key(name, claim, _REMOVED), b"", None, lambda _: True)
        named = self._claims(name)
        for claim in () if named is None else sorted(old - named):
            with writing_objects():
                self._objects.delete([each.key for each in claims[claim]])
                self._objects.delete([_file_key(name, claim, _REMOVED)])

    def _claims(self, name: str) -> set[str] | None:
        """Return the claims of all manifests, misplaced ones too; None if one cannot be read: it may name any files."""
        self._heads.pop(name, None)
        try:
            return {decode_json(each, _Claiming).claim for each in self._contents(name).values()}
        except msgspec.DecodeError:
            return None

    def _time(self) -> datetime:
        """Return the time by the clock of the store."""
        prefix = f"{PROBES}/{secrets.token_hex(8)}"
        written(self._objects, f"{prefix}/now", b"", None, lambda _: True)
        with writing_objects():
            listed = self._objects.under(prefix)
            self._objects.delete([f"{prefix}/now"])
        return min((each.written for each in listed), default=datetime(1971, 1, 1, tzinfo=UTC))

    def check_writable(self) -> None:
        """Try conditional writes with an object of its own. Raises OutputError, or RegistryError without them."""
        check_conditions(self._objects)

    def _need_conditions(self) -> None:
        if self._objects.root not in _kept:
            self.check_writable()
            _kept.add(self._objects.root)

    def _get(self, key: str) -> Found | None:
        with reading_objects():
            return self._objects.get(key)


def _manifest_key(name: str, version: str) -> str:
    return f"{name}/versions/{version}/{MANIFEST_FILE}"


def _file_key(name: str, claim: str, sha256: str) -> str:
    return f"{name}/files/{claim}/{sha256}"


def _lines(found: Found) -> list[str]:
    return found.content[:_CURRENT_MAX_BYTES].decode("ascii", "backslashreplace").splitlines()


def _nonces_in(found: Found | None) -> Iterable[str]:
    return () if found is None else filter(_NONCE.fullmatch, _lines(found)[1:])


def _current_in(found: Found | None) -> Current:
    """Return what CURRENT says beside the marks of its writers; all of it, if that is no single line."""
    if found is None:
        return Current()
    version, *marks = _lines(found) or [""]
    return Current(version.encode() if all(map(_NONCE.fullmatch, marks)) else found.content[:_CURRENT_MAX_BYTES])
