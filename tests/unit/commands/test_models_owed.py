"""Versions that alerts still need for their attribution stay, whoever removes old ones."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
import yaml
from pydantic import BaseModel
from typer.testing import CliRunner, Result

from streamad import plugins
from streamad.cli import app
from streamad.errors import RegistryError
from streamad.judge.explainer import debt_of
from streamad.messages import ModelRef
from streamad.partition_progress import Debt, LooksTaken, ProgressUpdate, StreamProgress
from streamad.runtime.checkpoint import LocalCommitter
from streamad.types import Window
from tests.support.kafka.child import PLUGINS
from tests.support.learning.stored import LEARNING, SHARES, add, another, plant_of, registry_at, sequence, train
from tests.support.runtime.debts import alert_of

MODEL = {"detector": "mean_square", "folds": 2, "device": "cpu", "references": []}


@pytest.fixture(autouse=True)
def _plugins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(PLUGINS)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(PLUGINS), os.environ.get("PYTHONPATH", "")]))


def write_config(folder: Path, **sections: Any) -> Path:
    return plant_of(folder, **{"learning": LEARNING, "model": MODEL, "alerts": {"false_alarm_rate": 0.2}, **sections})


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """A plant with the versions 0001 to 0004, the last one in service, 0003 its parent."""
    path = write_config(tmp_path)
    add(path, {share: [sequence(n) for n in numbers] for share, numbers in SHARES.items()})  # type: ignore[misc]
    assert train(path) == "0001"
    for _ in range(3):
        another(path)
    return path


def debt(number: int, version: str, name: str = "default") -> Debt:
    alert = msgspec.structs.replace(alert_of(number), model=ModelRef(name, version))
    return debt_of(alert, np.ones(2, np.float32), Window(np.ones((2, 3), np.float32), 3))


def owe(config: Path, *debts: Debt, looks: Sequence[LooksTaken] = ()) -> None:
    """Commit ``debts``, and ``looks`` at a sequence that runs each, as a run does."""

    async def commit() -> None:
        committer = LocalCommitter(config.parent / "checkpoint", {}, {})
        await committer.restore("p")
        owed = {each.alert.alert_id: each for each in debts}
        running = {str(number): each for number, each in enumerate(looks)}
        streams = {"s": StreamProgress(done_below=0, looks=running)}
        update = ProgressUpdate(partition="p", next_offset=1, low_watermark=1, debts=owed, streams=streams)
        await committer.commit(update, [])
        await committer.close()

    asyncio.run(commit())


def prune(config: Path, *arguments: str) -> Result:
    return CliRunner().invoke(app, ["models", "prune", "--keep", "1", "--config", str(config), *arguments])


def removed_by(result: Result) -> Sequence[str]:
    assert result.exit_code == 0, (result.output, result.exception)
    found: Sequence[str] = json.loads(result.stdout.splitlines()[-1])["removed"]
    return found


def test_a_version_that_an_alert_of_a_checkpoint_still_needs_is_not_removed(config: Path) -> None:
    owe(config, debt(0, "0002"), debt(1, "0001", name="other"))
    assert removed_by(prune(config, "--dry-run", "--json")) == ["0001"]
    assert removed_by(prune(config, "--json")) == ["0001"]
    assert registry_at(config).versions("default") == ("0002", "0003", "0004")
    (config.parent / "checkpoint").rename(config.parent / "done")
    assert removed_by(prune(config, "--json")) == ["0002"]


def test_a_version_that_looks_at_a_running_sequence_is_not_removed(config: Path) -> None:
    owe(config, looks=[LooksTaken(model=ModelRef("default", "0001"), n=2, largest=1.5)])
    assert removed_by(prune(config, "--json")) == ["0002"]


@pytest.mark.parametrize("file", ["start.json", "other.json"])
def test_with_a_damaged_checkpoint_nothing_is_removed(config: Path, file: str) -> None:
    owe(config, debt(0, "0002"))
    (config.parent / "checkpoint" / file).write_bytes(b"{")
    result = prune(config)
    assert isinstance(result.exception, RegistryError)
    text = str(result.exception)
    assert text.startswith("nothing was removed, because the versions that alerts still need")
    assert file in text
    assert "\n" not in text
    assert len(registry_at(config).versions("default")) == 4


def test_without_a_broker_nothing_is_removed(config: Path) -> None:
    source = {"url": "kafka://127.0.0.1:1/in", "options": {"request_timeout": "1s"}}
    write_config(config.parent, source=source)
    result = prune(config)
    assert isinstance(result.exception, RegistryError)
    text = str(result.exception)
    assert text.startswith("nothing was removed, because the versions that alerts still need")
    assert "127.0.0.1:1" in text
    assert "\n" not in text
    assert len(registry_at(config).versions("default")) == 4


class NoOptions(BaseModel):
    """The source takes none."""


class SilentSource:
    """A source with progress of its own that cannot say what is owed."""

    options_model = NoOptions

    def __init__(self, *_: object) -> None:
        self.is_closed = False

    def committer(self, sinks: object) -> None:
        raise AssertionError

    def topics(self, sinks: object) -> None:
        raise AssertionError

    async def close(self) -> None:
        self.is_closed = True


class FailingSource(SilentSource):
    async def owed_models(self) -> None:
        raise RuntimeError("no such\ntable")


@pytest.mark.parametrize(
    ("kind", "words"), [(SilentSource, "cannot say which attributions are open"), (FailingSource, "RuntimeError")]
)
def test_with_a_foreign_source_that_cannot_say_it_nothing_is_removed(
    config: Path, kind: type[SilentSource], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("streamad.learn.registry.owed.load", lambda group, name: kind)
    monkeypatch.setattr(plugins, "load", lambda group, name: kind)
    result = prune(config)
    assert isinstance(result.exception, RegistryError)
    assert words in str(result.exception)
    assert "\n" not in str(result.exception)
    assert len(registry_at(config).versions("default")) == 4


def retrain(config: Path) -> str:
    result = CliRunner().invoke(app, ["models", "retrain", "--json", "--config", str(config)])
    assert result.exit_code == 0, (result.output, result.exception)
    version = json.loads(result.stdout.splitlines()[-1])["version"]
    return str(version)


def test_after_a_training_model_keep_spares_it_too(config: Path) -> None:
    owe(config, debt(0, "0001"))
    write_config(config.parent, model={**MODEL, "keep": 1})
    retrain(config)
    left = registry_at(config).versions("default")
    assert "0001" in left
    assert "0002" not in left


def test_after_a_training_without_knowing_model_keep_removes_nothing(config: Path) -> None:
    owe(config, debt(0, "0001"))
    (config.parent / "checkpoint/start.json").write_bytes(b"{")
    write_config(config.parent, model={**MODEL, "keep": 1})
    version = retrain(config)
    assert registry_at(config).versions("default") == ("0001", "0002", "0003", "0004", version)


def test_an_unset_checkpoint_owes_nothing(config: Path) -> None:
    owe(config, debt(0, "0001"))
    content = yaml.safe_load(config.read_text())
    config.write_text(yaml.safe_dump({**content, "run": {"checkpoint": None}}))
    assert removed_by(prune(config, "--json")) == ["0001", "0002"]
