"""The port of the places where versions lie; one registry, with one set of laws, stands above all of them."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from streamad.errors import RegistryError
from streamad.learn.registry.manifest import Manifest
from streamad.learn.registry.staging import StagedVersion

CURRENT_FILE = "CURRENT"


class RegistryAwayError(RegistryError):
    """Raised when the object store of a registry does not answer; it may later."""


@dataclass(frozen=True, slots=True)
class Current:
    """The beginning of what lies in the place of CURRENT, None if nothing does.

    ``odd`` says why it cannot be read as a file; ``is_folder``: nothing but a person puts a file there.
    """

    content: bytes | None = None
    odd: str | None = None
    is_folder: bool = False


class Place(Protocol):
    """A place of versions; names and versions are plain (``Registry`` has checked them).

    Whatever reads may raise RegistryError, and RegistryAwayError if a later try may succeed; whatever writes also
    OutputError. A writer that is killed at any moment leaves the old state or the new one.
    """

    @property
    def copies(self) -> Path | None:
        """Return the folder of local copies, itself a registry's; None if the place is a folder."""

    def shown(self, *parts: str) -> str:
        """Return path or URL of what lies in the place, for messages."""

    def names(self) -> list[str]:
        """Return the names of all models."""

    def entries(self, name: str) -> list[tuple[str, str | None]]:
        """Return what lies among the versions of a model, in any order, and why it is no version (None: it is one)."""

    def has(self, name: str, version: str) -> bool:
        """Return whether something lies in the place of the version."""

    def current(self, name: str) -> Current:
        """Return what CURRENT holds."""

    def set_current(self, name: str, version: str, check: Callable[[Current], None]) -> None:
        """Write CURRENT unless ``check`` refuses, by an error, what it holds at that moment."""

    def manifest(self, name: str, version: str) -> Manifest | None:
        """Return the manifest of a version, None if there is none. Raises ArtifactError for a damaged one."""

    def rewrite(self, name: str, version: str, change: Callable[[Manifest], Manifest | None]) -> bool:
        """Replace the manifest by ``change(manifest)`` at one moment; None leaves it. False if there is no version.

        ``change`` may be called again, with what another has written meanwhile. Raises ArtifactError.
        """

    def new_version(self, name: str, highest: Callable[[], int]) -> AbstractContextManager[StagedVersion]:
        """Stage a version that gets the first free number above ``highest()``, asked for when it is published."""

    def folder(self, name: str, version: str) -> Path | None:
        """Return the folder of a version, or of its local copy; None if there is no such version.

        Raises ArtifactError if a copy would not be what was published.
        """

    def verify(self, name: str, version: str, manifest: Manifest) -> None:
        """Check that the version's files are what was published. Raises ArtifactError."""

    def training_folder(self, name: str) -> Path:
        """Return the local folder for the state of interrupted trainings."""

    def pruning(self, name: str) -> AbstractContextManager[None]:
        """Keep other writers of the model out for the block, where a place needs that."""

    def is_link(self, name: str, version: str) -> bool:
        """Return whether the version lies elsewhere, and a link in its place."""

    def remove(self, name: str, version: str) -> bool:
        """Remove a version, which nobody ever sees half; False if it was put into service meanwhile, and stays."""

    def clear(self, name: str) -> None:
        """Remove what killed writers left, if it is certain that they were killed."""

    def check_writable(self) -> None:
        """Try that the place can be written, and that it keeps its laws. Raises RegistryError, OutputError."""
