"""The import layers (scripts/import_rule.py, docs/internals/layers.md), in the source and at run time."""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.support.scripts import script

ROOT = Path(__file__).resolve().parents[3]


rule = script("import_rule")


def test_the_source_keeps_the_layers() -> None:
    assert rule.violations() == []


def test_every_package_that_is_shipped_is_under_the_rule() -> None:
    setuptools = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
    assert setuptools["package-dir"] == rule.PACKAGES
    entries = {module: rule.entry_of(module) for module in rule.modules()}
    assert [module for module, entry in entries.items() if not entry] == ["streamad.learn"]  # an empty package
    assert set(entries.values()) - {""} == set(rule.ALLOWED)


def test_an_entry_names_only_entries_above_it() -> None:
    above: set[str] = set()
    for entry, allowed in rule.ALLOWED.items():
        assert {rule.entry_of(name) for name in allowed} <= above, entry
        above.add(entry)


def test_runtime_and_learning_meet_in_the_commands_and_in_offline_work_alone() -> None:
    both = {
        entry
        for entry, allowed in rule.ALLOWED.items()
        if "streamad.runtime" in allowed and any(name.startswith("streamad.learn.") for name in allowed)
    }
    assert both == {"streamad.offline", "streamad.commands.shared", "streamad.commands"}


@pytest.mark.parametrize(
    ("module", "source", "name"),
    [
        ("streamad.ingest.sequence_ends", "import torch", "torch"),
        ("streamad.ingest.sequence_ends", "import numpy, torch.nn as nn", "torch.nn"),
        ("streamad.ingest.sequence_ends", "from torch.nn import functional", "torch.nn.functional"),
        ("streamad.cli", "def f():\n    import aiokafka", "aiokafka"),
        ("streamad.cli", "if TYPE_CHECKING:\n    from streamad_models import x", "streamad_models.x"),
        ("streamad.cli", "importlib.import_module('streamad_connectors.memory')", "streamad_connectors.memory"),
        ("streamad.cli", "import_module(name='torch')", "torch"),
        ("streamad.cli", "__import__('torch')", "torch"),
        ("streamad_connectors.kafka", "from streamad_models import fitted", "streamad_models.fitted"),
        ("streamad_connectors.kafka", "from streamad.settings import plant_yaml", "streamad.settings.plant_yaml"),
        ("streamad_connectors.kafka", "import streamad.learn.store", "streamad.learn.store"),
        (
            "streamad_models.fitted",
            "try:\n    import streamad_connectors\nexcept ImportError: pass",
            "streamad_connectors",
        ),
        ("streamad_models.fitted", "from streamad.plugins import load", "streamad.plugins.load"),
        ("streamad.runtime.pipeline", "from streamad.learn import parts", "streamad.learn.parts"),
        (
            "streamad.runtime.pipeline",
            "from streamad.learn.store.records import Mark",
            "streamad.learn.store.records.Mark",
        ),
        ("streamad.learn.process.service", "import streamad.runtime.pipeline", "streamad.runtime.pipeline"),
        ("streamad.ingest.sequence_ends", "from streamad.drift import detector", "streamad.drift.detector"),
        ("streamad.types", "from streamad.ports import Clock", "streamad.ports.Clock"),
        ("streamad.messages", "from streamad.types import Record", "streamad.types.Record"),
        (
            "streamad.learn.process.service",
            "from streamad.commands.shared import console",
            "streamad.commands.shared.console",
        ),
        ("streamad.commands.train", "from streamad.commands.score import score", "streamad.commands.score.score"),
        (
            "streamad.commands.check.source",
            "from streamad.commands.init import command",
            "streamad.commands.init.command",
        ),
        ("streamad.ingest.sequence_ends", "from streamad import subscribe", "streamad.subscribe"),
        ("streamad.new_module", "import streamad.errors", "streamad.errors"),
        ("streamad.new_module", "import streamad.other_new_module", "streamad.other_new_module"),
        ("streamad.ingest.decode", "from . import intake", ".intake"),
    ],
)
def test_an_import_that_is_not_allowed_is_found_with_its_line(
    tmp_path: Path, module: str, source: str, name: str
) -> None:
    path = _write(tmp_path, module, f"# first line\n{source}\n")
    (found,) = rule.violations(tmp_path)
    line = 2 + source.count("\n", 0, source.index("import"))
    assert found == f"{path.relative_to(tmp_path)}:{line}: {module} must not import {name}"


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("streamad.ingest.sequence_ends", "import torchlike\n'import torch'"),
        ("streamad.ingest.sequence_ends", "from streamad.ingest import decode\nfrom streamad.types import Record"),
        ("streamad.commands.init.command", "from streamad.commands.check import source"),
        ("streamad.commands.init.command", "from streamad.commands.init import config"),
        ("streamad.commands.train", "import streamad.runtime.wiring, streamad.learn.process.service"),
        ("streamad_models.fitted", "import torch\nfrom streamad.types import WindowSet"),
        ("streamad_connectors.kafka", "import aiokafka\nimport streamad.ports\nimport streamad.settings.fields"),
    ],
)
def test_an_import_that_is_allowed_is_not_reported(tmp_path: Path, module: str, source: str) -> None:
    _write(tmp_path, module, source)
    assert rule.violations(tmp_path) == []


def test_modules_that_import_in_a_circle_are_reported(tmp_path: Path) -> None:
    _write(tmp_path, "streamad.ingest.decode", "from streamad.ingest import sequence_ends as stream")
    _write(tmp_path, "streamad.ingest.sequence_ends", "def f():\n    from streamad.ingest.runs import Run")
    _write(tmp_path, "streamad.ingest.runs", "import streamad.ingest.decode")
    (found,) = rule.violations(tmp_path)
    assert found.startswith("modules import in a circle: streamad.ingest.")
    assert found.count("->") == 3


def _write(root: Path, module: str, source: str) -> Path:
    package, _, rest = module.partition(".")
    path: Path = (root / rule.PACKAGES[package] / rest.replace(".", "/")).with_suffix(".py")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(source)
    return path


IMPORT_EVERYTHING = """
import importlib, json, pkgutil, sys
import streamad
names = [m.name for m in pkgutil.walk_packages(streamad.__path__, "streamad.") if not m.name.endswith("__main__")]
for name in names:
    importlib.import_module(name)
heavy = {"torch", "river", "aiokafka", "streamad_models", "streamad_connectors"}
print(json.dumps([len(names), sorted(heavy & set(sys.modules))]))
"""


def test_importing_all_of_streamad_loads_neither_side_nor_torch_nor_river() -> None:
    done = subprocess.run(
        [sys.executable, "-c", IMPORT_EVERYTHING], capture_output=True, text=True, check=False, cwd=ROOT
    )
    assert done.returncode == 0, done.stderr
    n_modules, heavy = json.loads(done.stdout)
    assert n_modules >= len(list((ROOT / "streamad").glob("*.py"))) - 2
    assert heavy == []
