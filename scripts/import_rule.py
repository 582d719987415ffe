"""Which package may import which, checked in the source; docs/internals/layers.md draws the same layers.

``ALLOWED`` names for each package, or single module, those of ours that it may import; lowest first, so that an entry
names only entries above it. Whatever is not named is forbidden, and so are cycles between modules. Imports inside
functions, under TYPE_CHECKING and by name (``importlib.import_module("torch")``) count as well.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = {
    "streamad": "streamad",
    "streamad_connectors": "connectors/streamad_connectors",
    "streamad_models": "models/streamad_models",
}
# Third parties' libraries that the application must not need.
FOREIGN = {"streamad": frozenset({"torch", "aiokafka"})}

_VOCABULARY = (
    "streamad.language",
    "streamad.safe_text",
    "streamad.errors",
    "streamad.messages",
    "streamad.types",
    "streamad.tables",
    "streamad.partition_progress",
)
_MACHINE = (
    *_VOCABULARY,
    "streamad.ports",
    "streamad.plugins",
    "streamad.system",
    "streamad.telemetry",
    "streamad.objects",
)
_PLANT = (*_MACHINE, "streamad.settings", "streamad.plant", "streamad.ranges")
_JUDGE = (*_PLANT, "streamad.judge", "streamad.decisions")
_VERSIONS = (*_JUDGE, "streamad.learn.store", "streamad.learn.registry")

ALLOWED: dict[str, tuple[str, ...]] = {
    "streamad.language": (),
    "streamad.safe_text": (),
    "streamad.errors": ("streamad.safe_text",),
    "streamad.messages": (),
    "streamad.types": ("streamad.messages",),
    "streamad.tables": ("streamad.messages", "streamad.types"),
    "streamad.partition_progress": ("streamad.messages", "streamad.types"),
    "streamad.ports": _VOCABULARY,
    "streamad.injected_faults": ("streamad.types",),
    "streamad.plugins": (*_VOCABULARY, "streamad.ports"),
    "streamad.system": (*_VOCABULARY, "streamad.ports"),
    "streamad.objects": ("streamad.errors",),
    "streamad.telemetry": (*_VOCABULARY, "streamad.ports", "streamad.system"),
    "streamad.bridge.inlet": ("streamad.types",),
    "streamad.bridge": (*_MACHINE, "streamad.bridge.inlet"),
    "streamad.testing": ("streamad.errors", "streamad.messages", "streamad.types", "streamad.ports", "streamad.system"),
    "streamad.simulation": ("streamad.errors", "streamad.types", "streamad.system"),
    "streamad.settings": _MACHINE,
    "streamad.plant": (*_MACHINE, "streamad.settings"),
    "streamad.ranges": (*_MACHINE, "streamad.settings"),
    "streamad.decisions": _PLANT,
    "streamad.ingest": _PLANT,
    "streamad.schemas": (*_PLANT, "streamad.ingest"),
    "streamad.drift": _PLANT,
    "streamad.learn.store": _PLANT,
    "streamad.judge": (*_PLANT, "streamad.ingest"),
    "streamad.pictures": _JUDGE,
    "streamad.runtime": (*_JUDGE, "streamad.ingest", "streamad.schemas"),
    "streamad.learn.registry": (*_JUDGE, "streamad.learn.store"),
    "streamad.learn.parts": _VERSIONS,
    "streamad.learn.early": (*_VERSIONS, "streamad.injected_faults"),
    "streamad.learn.training": (*_VERSIONS, "streamad.injected_faults", "streamad.learn.early"),
    "streamad.learn.promotion": (
        *_VERSIONS,
        "streamad.injected_faults",
        "streamad.learn.early",
        "streamad.learn.training",
    ),
    "streamad.learn.trainer": (
        *_VERSIONS,
        "streamad.drift",
        "streamad.learn.early",
        "streamad.learn.parts",
        "streamad.learn.training",
        "streamad.learn.promotion",
    ),
    "streamad.outputs": (
        *_VERSIONS,
        "streamad.pictures",
        "streamad.injected_faults",
        "streamad.ingest",
        "streamad.learn.parts",
        "streamad.learn.trainer",
    ),
    "streamad.notebook": (
        *_VERSIONS,
        "streamad.pictures",
        "streamad.ingest",
        "streamad.learn.parts",
        "streamad.learn.early",
        "streamad.learn.training",
        "streamad.learn.trainer",
    ),
    "streamad.sklearn": ("streamad.errors", "streamad.notebook"),
    "streamad.mlflow": ("streamad.errors", "streamad.notebook"),
    "streamad.spark": ("streamad.errors", "streamad.messages", "streamad.notebook"),
    "streamad": ("streamad.outputs", "streamad.notebook"),
    "streamad.learn.process": (
        *_VERSIONS,
        "streamad.drift",
        "streamad.learn.parts",
        "streamad.learn.trainer",
        "streamad.outputs",
    ),
    "streamad.learn.serving": (
        *_VERSIONS,
        "streamad.learn.parts",
        "streamad.learn.process",
    ),
    "streamad.offline": (
        *_VERSIONS,
        "streamad.ingest",
        "streamad.runtime",
        "streamad.schemas",
        "streamad.learn.parts",
        "streamad.learn.early",
        "streamad.learn.training",
        "streamad.learn.trainer",
        "streamad.learn.serving",
    ),
    "streamad.commands.shared": (
        *_VERSIONS,
        "streamad.offline",
        "streamad.outputs",
        "streamad.pictures",
        "streamad.injected_faults",
        "streamad.ingest",
        "streamad.runtime",
        "streamad.schemas",
        "streamad.learn.parts",
        "streamad.learn.trainer",
        "streamad.learn.process",
        "streamad.learn.serving",
    ),
    "streamad.web": (
        *_VERSIONS,
        "streamad.pictures",
        "streamad.learn.parts",
        "streamad.learn.training",
        "streamad.learn.promotion",
        "streamad.outputs",
    ),
    "streamad.validation": (*_JUDGE, "streamad.web"),
    "streamad.notify": (
        *_VERSIONS,
        "streamad.pictures",
        "streamad.outputs",
    ),
    "streamad.commands": (
        *_VERSIONS,
        "streamad.bridge.inlet",
        "streamad.bridge",
        "streamad.offline",
        "streamad.outputs",
        "streamad.notebook",
        "streamad.mlflow",
        "streamad.web",
        "streamad.notify",
        "streamad.validation",
        "streamad.pictures",
        "streamad.injected_faults",
        "streamad.simulation",
        "streamad.ingest",
        "streamad.runtime",
        "streamad.schemas",
        "streamad.learn.parts",
        "streamad.learn.early",
        "streamad.learn.training",
        "streamad.learn.promotion",
        "streamad.learn.trainer",
        "streamad.learn.process",
        "streamad.learn.serving",
        "streamad.commands.shared",
    ),
    "streamad.cli": (
        "streamad.safe_text",
        "streamad.errors",
        "streamad.system",
        "streamad.telemetry",
        "streamad.commands.shared",
        "streamad.commands",
    ),
    "streamad.__main__": ("streamad.cli",),
    "streamad_connectors": (
        *_MACHINE,
        "streamad.bridge.inlet",
        "streamad.ranges",
        "streamad.settings.fields",
        "streamad.settings.numerals",
        "streamad.settings.places",
    ),
    "streamad_models": (
        "streamad.errors",
        "streamad.types",
        "streamad.ports",
        "streamad.injected_faults",
        "streamad.system",
    ),
}
# Commands do not import each other; ``init`` ends with the check of what it wrote.
COMMANDS = "streamad.commands"
COMMANDS_ALLOWED = {"init": frozenset({"check"})}

_IMPORTERS = {"import_module", "__import__"}


def _called_name(call: ast.Call) -> str:
    function = call.func
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


def _modules_in(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom):
        base = "." * node.level + (f"{node.module}." if node.module else "")
        return [f"{base}{alias.name}" for alias in node.names]
    if isinstance(node, ast.Call) and _called_name(node) in _IMPORTERS:
        arguments = [*node.args[:1], *(word.value for word in node.keywords if word.arg == "name")]
        return [part.value for part in arguments if isinstance(part, ast.Constant) and isinstance(part.value, str)]
    return []


def imported_names(source: str) -> Iterator[tuple[int, str]]:
    """Yield line and dotted name of every absolute import in ``source``; ``from a import b`` is the name ``a.b``."""
    for node in ast.walk(ast.parse(source)):
        for name in _modules_in(node):
            yield getattr(node, "lineno", 0), name


def _is_within(name: str, package: str) -> bool:
    return name == package or name.startswith(f"{package}.")


def entry_of(name: str) -> str:
    """Return the entry of ``ALLOWED`` that ``name`` belongs to: the longest one, "streamad" for nothing but itself."""
    found = [entry for entry in ALLOWED if _is_within(name, entry) and (entry != "streamad" or name == "streamad")]
    return max(found, key=len, default="")


def _command_of(name: str) -> str:
    return name.removeprefix(f"{COMMANDS}.").partition(".")[0]


def is_allowed(module: str, name: str) -> bool:
    """Say whether ``module`` may import ``name``, both dotted."""
    package, top = module.partition(".")[0], name.partition(".")[0]
    if not top:
        return False  # a relative import: this table could not see where it leads
    if top not in PACKAGES:
        return top not in FOREIGN.get(package, ())
    own, entry = entry_of(module), entry_of(name)
    if own == entry == COMMANDS:
        command, other = _command_of(module), _command_of(name)
        return command == other or other in COMMANDS_ALLOWED.get(command, ())
    return (own == entry != "") or any(
        _is_within(name, allowed) for allowed in ALLOWED.get(own, ()) if entry_of(allowed) == entry
    )


def modules(root: Path = ROOT) -> dict[str, Path]:
    """Return the file of every module of ours by its dotted name."""
    found = {}
    for package, folder in PACKAGES.items():
        for path in sorted((root / folder).rglob("*.py")):
            parts = path.relative_to(root / folder).with_suffix("").parts
            found[".".join((package, *parts)).removesuffix(".__init__")] = path
    return found


def violations(root: Path = ROOT) -> list[str]:
    """Return one line for each import under ``root`` that is not allowed, and one if modules import in a circle."""
    found = []
    files = modules(root)
    graph: dict[str, set[str]] = {}
    for module, path in files.items():
        graph[module] = set()
        for line, name in imported_names(path.read_text(encoding="utf-8")):
            target = name if name in files else name.rpartition(".")[0]
            if not is_allowed(module, name):
                found.append(f"{path.relative_to(root)}:{line}: {module} must not import {name}")
            if target in files and target != module:
                graph[module].add(target)
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        found.append(f"modules import in a circle: {' -> '.join(reversed(error.args[1]))}")
    return found


if __name__ == "__main__":
    broken = violations()
    print("\n".join(broken))
    sys.exit(1 if broken else 0)
