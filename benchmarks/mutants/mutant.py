"""A mutant: one realistic mistake in one file, and the tests that must notice it."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path


class StaleError(Exception):
    """Raised when a text of a mutant is not exactly once in its file: the mutant must be written anew."""


@dataclass(frozen=True, slots=True)
class Mutant:
    """``changes`` of ``file``, each a text that is there once and its replacement; ``breaks`` says what goes wrong.

    ``tests`` are arguments of pytest: the smallest choice of files or tests that should notice it.
    """

    name: str
    file: str
    changes: tuple[tuple[str, str], ...]
    breaks: str
    tests: tuple[str, ...]

    def of(self, source: str) -> str:
        """Return ``source``, the content of the file, with the mistake. Raises StaleError."""
        for text, replacement in self.changes:
            if (n := source.count(text)) != 1:
                raise StaleError(f"{self.name}: {self.file} has this text {n} times, not once: {text!r}")
            source = source.replace(text, replacement)
        return source

    def digest(self, root: Path) -> str:
        """Return a hash of the mutant, its file and its tests: a result counts while it stays the same."""
        content = blake2b(repr((self.changes, self.tests)).encode(), digest_size=8)
        for name in (self.file, *sorted({test.partition("::")[0] for test in self.tests})):
            content.update((root / name).read_bytes())
        return content.hexdigest()


def mutant(name: str, file: str, text: str, replacement: str, breaks: str, *tests: str) -> Mutant:
    """Return a mutant with one change."""
    return Mutant(name, file, ((text, replacement),), breaks, tests)
