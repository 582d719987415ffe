"""The one rule of the house: streamad_connectors -> streamad <- streamad_models, checked in the source.

The two sides never import each other, and streamad imports neither, nor torch, nor a broker's client. Imports inside
functions, under TYPE_CHECKING and by name (``importlib.import_module("torch")``) count as well.
"""

from __future__ import annotations

__all__ = ["FORBIDDEN", "PACKAGES", "imported_modules", "violations"]

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = {
    "streamad": "streamad",
    "streamad_connectors": "connectors/streamad_connectors",
    "streamad_models": "models/streamad_models",
}
FORBIDDEN = {
    "streamad": frozenset({"torch", "aiokafka", "streamad_connectors", "streamad_models"}),
    "streamad_connectors": frozenset({"streamad_models"}),
    "streamad_models": frozenset({"streamad_connectors"}),
}
_IMPORTERS = {"import_module", "__import__"}


def _called_name(call: ast.Call) -> str:
    function = call.func
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


def _modules_in(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom) and node.level == 0:
        return [node.module or ""]
    if isinstance(node, ast.Call) and _called_name(node) in _IMPORTERS:
        arguments = [*node.args[:1], *(word.value for word in node.keywords if word.arg == "name")]
        return [part.value for part in arguments if isinstance(part, ast.Constant) and isinstance(part.value, str)]
    return []


def imported_modules(source: str) -> Iterator[tuple[int, str]]:
    """Yield line and module of every absolute import in ``source``."""
    for node in ast.walk(ast.parse(source)):
        for module in _modules_in(node):
            yield getattr(node, "lineno", 0), module


def violations(root: Path = ROOT) -> list[str]:
    """Return one line for each import under ``root`` that the rule forbids: file, line, and the module."""
    found = []
    for package, folder in PACKAGES.items():
        for path in sorted((root / folder).rglob("*.py")):
            for line, module in imported_modules(path.read_text(encoding="utf-8")):
                if module.partition(".")[0] in FORBIDDEN[package]:
                    found.append(f"{path.relative_to(root)}:{line}: {package} must not import {module}")
    return found


if __name__ == "__main__":
    broken = violations()
    print("\n".join(broken))
    sys.exit(1 if broken else 0)
