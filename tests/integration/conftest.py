"""A plant with a trained model, ready for every test: trained once, copied."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

from streamad.cli import app
from tests.support.runtime.cli import CliPlant


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with recordings, labels and a model in service."""
    folder = tmp_path_factory.mktemp("trained")
    with pytest.MonkeyPatch.context() as monkeypatch:
        plant = CliPlant(folder, None, monkeypatch)  # type: ignore[arg-type]  # only writes files here
        plant.write_recordings("normal", normal=24, odd=0, seed=5)
        plant.write_recordings("recordings", normal=12, odd=4)
        monkeypatch.chdir(folder)
        outcome = CliRunner().invoke(app, ["train", "--config", str(plant.write_config())])
    assert outcome.exit_code == 0, outcome.output
    assert "now in service" in outcome.output
    return folder


@pytest.fixture
def untrained_plant(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> CliPlant:
    plant = CliPlant(tmp_path / "plant", capsys, monkeypatch)
    plant.write_recordings("normal", normal=24, odd=0, seed=5)
    plant.write_recordings("recordings", normal=12, odd=4)
    plant.write_config()
    return plant


@pytest.fixture
def plant(
    trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> CliPlant:
    shutil.copytree(trained, tmp_path / "plant")
    return CliPlant(tmp_path / "plant", capsys, monkeypatch)
