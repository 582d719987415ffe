"""Keeps files short enough to read in one go, and folders small enough to find a file in."""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = ("streamad", "connectors", "models", "scripts", "benchmarks", "examples")
PRODUCT = ("streamad", "connectors", "models")
LONG_LINES = 300
TOO_LONG_LINES = 500
MOST_MODULES = 12


def long_files(root: Path = ROOT) -> list[tuple[Path, int]]:
    """Return the Python files (tests aside) of more than LONG_LINES lines with their length, longest first."""
    lengths = []
    for folder in FOLDERS:
        for path in (root / folder).rglob("*.py"):
            n_lines = len(path.read_text(encoding="utf-8").splitlines())
            if n_lines > LONG_LINES:
                lengths.append((path.relative_to(root), n_lines))
    return sorted(lengths, key=lambda item: -item[1])


def full_folders(root: Path = ROOT) -> list[tuple[Path, int]]:
    """Return the product's folders of more than MOST_MODULES modules (``__init__.py`` aside) with their number."""
    counts: dict[Path, int] = {}
    for folder in PRODUCT:
        for path in (root / folder).rglob("*.py"):
            if path.name != "__init__.py":
                parent = path.parent.relative_to(root)
                counts[parent] = counts.get(parent, 0) + 1
    return sorted((folder, n_modules) for folder, n_modules in counts.items() if n_modules > MOST_MODULES)


if __name__ == "__main__":
    files, folders = long_files(), full_folders()
    for path, n_lines in files:
        level = "error" if n_lines > TOO_LONG_LINES else "warning"
        print(f"{level}: {path} has {n_lines} lines (aim below {LONG_LINES}, never above {TOO_LONG_LINES})")
    for folder, n_modules in folders:
        print(f"error: {folder} holds {n_modules} modules (never more than {MOST_MODULES}): divide it by topic")
    sys.exit(1 if folders or any(n_lines > TOO_LONG_LINES for _, n_lines in files) else 0)
