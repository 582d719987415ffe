"""What a user installs: every package, the type markers, the entry points, and nothing of the tests."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Iterator
from email.parser import Parser
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
FOLDERS = {"streamad": "streamad", "streamad_connectors": "connectors", "streamad_models": "models"}


def _sources() -> set[str]:
    """Return the files that a wheel must hold, by their path in it."""
    found = set()
    for package, folder in FOLDERS.items():
        base = ROOT if folder == package else ROOT / folder
        for path in (base / package).rglob("*"):
            if path.suffix in {".py", ".yaml", ".css", ".html", ".js", ".mo", ".svg"} or path.name == "py.typed":
                found.add(path.relative_to(base).as_posix())
    return found


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Iterator[zipfile.ZipFile]:
    """The wheel, built from a copy, so that the checkout stays as it is."""
    folder = tmp_path_factory.mktemp("wheel")
    copy = folder / "copy"
    copy.mkdir()
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, copy)
    for name in ("streamad", "connectors", "models", "tests", "scripts"):
        shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    command = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "--no-index"]
    done = subprocess.run([*command, "-q", "-w", str(folder), str(copy)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (path,) = folder.glob("*.whl")
    with zipfile.ZipFile(path) as opened:
        yield opened


def test_the_wheel_holds_every_source_file_and_nothing_else(wheel: zipfile.ZipFile) -> None:
    packed = {name for name in wheel.namelist() if ".dist-info/" not in name}
    assert packed == _sources()
    assert {f"{package}/py.typed" for package in FOLDERS} <= packed


def test_the_distribution_has_the_name_the_licence_and_the_python_that_it_claims(wheel: zipfile.ZipFile) -> None:
    (name,) = [name for name in wheel.namelist() if name.endswith(".dist-info/METADATA")]
    metadata = Parser().parsestr(wheel.read(name).decode())
    assert metadata["Name"] == "streamad-monitor"
    assert metadata["License-Expression"] == "Apache-2.0"
    assert metadata["Requires-Python"] == ">=3.11"
    assert "Operating System :: POSIX" in metadata.get_all("Classifier", [])
    assert any(name.endswith("licenses/LICENSE") for name in wheel.namelist())


def test_every_entry_point_names_a_module_of_the_wheel(wheel: zipfile.ZipFile) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    groups = [project["scripts"], *project["entry-points"].values()]
    for target in (target for group in groups for target in group.values()):
        module = target.partition(":")[0].replace(".", "/")
        assert {f"{module}.py", f"{module}/__init__.py"} & set(wheel.namelist()), target
