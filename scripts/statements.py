"""Prints how large each package is: files, statements (nodes of Python's syntax tree) and lines, and import edges.

Statements count the same however code is formatted and commented. An edge is a package that another one imports.
Run from anywhere: ``python scripts/statements.py``.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path
from typing import NamedTuple

from import_rule import PACKAGES, ROOT, entry_of, imported_names, modules

OTHERS = ("tests", "benchmarks", "examples", "scripts")


class Size(NamedTuple):
    """The size of some files."""

    n_files: int = 0
    n_statements: int = 0
    n_lines: int = 0

    def plus(self, path: Path) -> Size:
        """Return this size with that of the file ``path``."""
        text = path.read_text(encoding="utf-8")
        n = sum(isinstance(node, ast.stmt) for node in ast.walk(ast.parse(text)))
        return Size(self.n_files + 1, self.n_statements + n, self.n_lines + len(text.splitlines()))


def sizes(root: Path = ROOT) -> dict[str, Size]:
    """Return the size of each package of the import rule, of each distribution as a whole, and of what is around."""
    found: dict[str, Size] = defaultdict(Size)
    for name, path in modules(root).items():
        for key in {name.partition(".")[0] + " in all", entry_of(name)} - {""}:
            found[key] = found[key].plus(path)
    for folder in OTHERS:
        for path in (root / folder).rglob("*.py"):
            found[f"{folder}/"] = found[f"{folder}/"].plus(path)
    return dict(sorted(found.items()))


def edges(root: Path = ROOT) -> set[tuple[str, str]]:
    """Return which package of the import rule imports which."""
    found = set()
    for name, path in modules(root).items():
        for _, imported in imported_names(path.read_text(encoding="utf-8")):
            pair = entry_of(name), entry_of(imported)
            if imported.partition(".")[0] in PACKAGES and pair[1] and pair[0] != pair[1]:
                found.add(pair)
    return found


if __name__ == "__main__":
    print(f"{'package':32} {'files':>6} {'statements':>11} {'lines':>7}")
    for package, size in sizes().items():
        print(f"{package:32} {size.n_files:6} {size.n_statements:11,} {size.n_lines:7,}")
    print(f"{len(edges())} import edges between packages")
