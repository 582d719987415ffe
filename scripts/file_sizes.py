"""Keeps files small enough to read in one go: says which are long, fails on those that are too long."""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = ("streamad", "connectors", "models", "scripts", "benchmarks", "examples")
LONG_LINES = 300
TOO_LONG_LINES = 500


def long_files(root: Path = ROOT) -> list[tuple[Path, int]]:
    """Return the Python files (tests aside) of more than LONG_LINES lines with their length, longest first."""
    lengths = []
    for folder in FOLDERS:
        for path in (root / folder).rglob("*.py"):
            n_lines = len(path.read_text(encoding="utf-8").splitlines())
            if n_lines > LONG_LINES:
                lengths.append((path.relative_to(root), n_lines))
    return sorted(lengths, key=lambda item: -item[1])


if __name__ == "__main__":
    found = long_files()
    for path, n_lines in found:
        word = "error" if n_lines > TOO_LONG_LINES else "warning"
        print(f"{word}: {path} has {n_lines} lines (aim below {LONG_LINES}, never above {TOO_LONG_LINES})")
    sys.exit(1 if any(n_lines > TOO_LONG_LINES for _, n_lines in found) else 0)
