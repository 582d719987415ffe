"""A distribution that owns the same module is named, with the remedy, in whichever order both came in."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

import streamad
import streamad.notebook
from streamad.cli import app
from streamad.system.import_name import REMEDY, name_clash

ROOT = Path(streamad.__file__).resolve().parents[1]
PACKAGES = {"streamad": ROOT, "streamad_connectors": ROOT / "connectors", "streamad_models": ROOT / "models"}
THEIRS = '__version__ = "0.3.1"\n__all__ = ["__version__", "base", "model", "util"]\n'
LIMIT_S = 60


def install_theirs(folder: Path) -> None:
    """Write what pip leaves of PyPI's ``streamad`` besides its modules."""
    metadata = folder / "streamad-0.3.1.dist-info" / "METADATA"
    metadata.parent.mkdir(parents=True)
    metadata.write_text("Metadata-Version: 2.1\nName: streamad\nVersion: 0.3.1\n")


def started(site: Path, init: str | None) -> subprocess.CompletedProcess[str]:
    """Run a command of ours from a folder with our modules and ``init`` as its ``streamad/__init__.py``."""
    for name, home in PACKAGES.items():
        (site / name).mkdir(parents=True)
        for path in (home / name).iterdir():
            if path.name != "__pycache__":  # Python would write theirs into ours
                (site / name / path.name).symlink_to(path)
    (site / "streamad" / "__init__.py").unlink()
    if init is not None:
        (site / "streamad" / "__init__.py").write_text(init)
    ours = next(path for place in sys.path for path in Path(place).glob("streamad_monitor-*.dist-info"))
    (site / ours.name).symlink_to(ours)
    return subprocess.run(
        [sys.executable, "-m", "streamad", "schema", "alert"],
        cwd=site,
        env={**os.environ, "PYTHONPATH": str(site)},
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )


@pytest.fixture
def theirs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Theirs came first: our files are whole."""
    install_theirs(tmp_path / "site")
    monkeypatch.syspath_prepend(str(tmp_path / "site"))


def test_an_installation_without_the_other_says_nothing() -> None:
    assert name_clash() is None
    assert CliRunner().invoke(app, ["schema", "alert"]).stderr == ""


@pytest.mark.usefixtures("theirs")
def test_theirs_before_ours_is_named_by_commands_check_and_python(tmp_path: Path) -> None:
    said = "streamad 0.3.1 is another project with a module of the same name, and will take a file of ours along"
    assert name_clash() == said
    outcome = CliRunner().invoke(app, ["schema", "alert"])
    assert (outcome.exit_code, outcome.stderr) == (0, f"warning: {said}: {REMEDY}\n")
    json.loads(outcome.stdout)
    with pytest.warns(UserWarning, match="another project"):
        importlib.reload(streamad.notebook)
    config = tmp_path / "plant.yaml"
    config.write_text("channels: [{name: x}]\nsource: {url: day.jsonl}\n")
    found = json.loads(CliRunner().invoke(app, ["check", "--json", "--fast", "-c", str(config)]).stdout)["checks"]
    assert {"check": "installation", "outcome": "warning", "message": said, "advice": REMEDY} in found


def test_theirs_after_ours_is_named_although_their_file_replaced_ours(tmp_path: Path) -> None:
    install_theirs(tmp_path)
    done = started(tmp_path, THEIRS)
    assert done.returncode == 0, done.stderr
    assert done.stderr.startswith("warning: streamad 0.3.1 is another project with a module of the same name, and has")
    assert done.stderr.endswith(f"replaced a file of ours: {REMEDY}\n")


def test_what_their_uninstallation_took_along_is_named(tmp_path: Path) -> None:
    done = started(tmp_path, None)
    assert done.returncode == 0, done.stderr
    assert done.stderr.startswith("warning: streamad/__init__.py is not that of streamad-monitor")
    assert REMEDY in done.stderr
