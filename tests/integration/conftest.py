"""A plant with a trained model, ready for every test: trained once, copied."""

from __future__ import annotations

import shutil
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from streamad.cli import app
from tests.support.runtime.cli import NEAREST, CliPlant
from tests.support.shared import made_once


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with recordings, labels and a model in service."""
    return made_once(tmp_path_factory, "trained", _train)


@pytest.fixture(scope="session")
def trained_nearest(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same with a model that loads and scores in milliseconds: ``NEAREST`` in its config."""
    return made_once(tmp_path_factory, "trained_nearest", partial(_train, model=NEAREST))


def _train(folder: Path, **sections: Any) -> None:
    with pytest.MonkeyPatch.context() as monkeypatch:
        plant = CliPlant(folder, None, monkeypatch)  # type: ignore[arg-type]  # only writes files here
        plant.write_recordings("normal", normal=24, odd=0, seed=5)
        plant.write_recordings("recordings", normal=12, odd=4)
        monkeypatch.chdir(folder)
        outcome = CliRunner().invoke(app, ["train", "--config", str(plant.write_config(**sections))])
    assert outcome.exit_code == 0, outcome.output
    assert "now in service" in outcome.output


@pytest.fixture
def untrained_plant(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> CliPlant:
    plant = CliPlant(tmp_path / "plant", capsys, monkeypatch)
    plant.write_recordings("normal", normal=24, odd=0, seed=5)
    plant.write_recordings("recordings", normal=12, odd=4)
    plant.write_config()
    return plant


@pytest.fixture
def plant(
    request: pytest.FixtureRequest,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> CliPlant:
    """The trained plant, a copy; a file of tests chooses the quick model by ``MODEL = NEAREST``."""
    model = getattr(request.module, "MODEL", None)
    shutil.copytree(request.getfixturevalue("trained" if model is None else "trained_nearest"), tmp_path / "plant")
    return CliPlant(tmp_path / "plant", capsys, monkeypatch, model)
