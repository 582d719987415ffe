"""The one rule: streamad_connectors -> streamad <- streamad_models, in the source and at run time."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
import tomllib
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[3]


def _script(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, ROOT / "scripts" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


rule = _script("import_rule")


def test_the_house_keeps_the_rule() -> None:
    assert rule.violations() == []


def test_every_package_that_is_shipped_is_under_the_rule() -> None:
    setuptools = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
    assert setuptools["package-dir"] == rule.PACKAGES
    assert set(rule.FORBIDDEN) == set(rule.PACKAGES) == {name.partition(".")[0] for name in setuptools["packages"]}


@pytest.mark.parametrize(
    ("package", "source", "module"),
    [
        ("streamad", "import torch", "torch"),
        ("streamad", "import numpy, torch.nn as nn", "torch.nn"),
        ("streamad", "from torch.nn import functional", "torch.nn"),
        ("streamad", "def f():\n    import aiokafka", "aiokafka"),
        ("streamad", "if TYPE_CHECKING:\n    from streamad_models import x", "streamad_models"),
        ("streamad", "importlib.import_module('streamad_connectors.files.source')", "streamad_connectors.files.source"),
        ("streamad", "import_module(name='torch')", "torch"),
        ("streamad", "__import__('torch')", "torch"),
        ("streamad_connectors", "from streamad_models.neutral_ad import NeutralAD", "streamad_models.neutral_ad"),
        ("streamad_models", "try:\n    import streamad_connectors\nexcept ImportError: pass", "streamad_connectors"),
    ],
)
def test_what_breaks_the_rule_is_found_with_its_line(tmp_path: Path, package: str, source: str, module: str) -> None:
    path = tmp_path / rule.PACKAGES[package] / "deep" / "room.py"
    path.parent.mkdir(parents=True)
    path.write_text(f"# first line\n{source}\n")
    (found,) = rule.violations(tmp_path)
    line = 2 + source.count("\n", 0, source.index("import"))
    assert found == f"{path.relative_to(tmp_path)}:{line}: {package} must not import {module}"


@pytest.mark.parametrize(
    ("package", "source"),
    [
        ("streamad", "import torchlike\nfrom . import torch\n'import torch'"),
        ("streamad", "from streamad.ingest import decode"),
        ("streamad_models", "import torch\nfrom streamad.types import WindowSet"),
        ("streamad_connectors", "import aiokafka\nimport streamad.ports"),
    ],
)
def test_what_keeps_the_rule_is_let_through(tmp_path: Path, package: str, source: str) -> None:
    path = tmp_path / rule.PACKAGES[package] / "room.py"
    path.parent.mkdir(parents=True)
    path.write_text(source)
    assert rule.violations(tmp_path) == []


IMPORT_EVERYTHING = """
import importlib, json, pkgutil, sys
import streamad
names = [m.name for m in pkgutil.walk_packages(streamad.__path__, "streamad.") if not m.name.endswith("__main__")]
for name in names:
    importlib.import_module(name)
heavy = {"torch", "aiokafka", "streamad_models", "streamad_connectors"}
print(json.dumps([len(names), sorted(heavy & set(sys.modules))]))
"""


def test_importing_all_of_streamad_loads_neither_side_nor_torch() -> None:
    done = subprocess.run(
        [sys.executable, "-c", IMPORT_EVERYTHING], capture_output=True, text=True, check=False, cwd=ROOT
    )
    assert done.returncode == 0, done.stderr
    n_modules, heavy = json.loads(done.stdout)
    assert n_modules >= len(list((ROOT / "streamad").glob("*.py"))) - 2
    assert heavy == []
