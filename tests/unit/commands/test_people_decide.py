"""Two people put a version into service with ``models approve``; a locked plant refuses whatever would do it alone."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from typer.testing import CliRunner

from streamad.cli import app
from streamad.commands.shared.plants import load_plant
from streamad.decisions.recording import Actor, of_command
from streamad.errors import RegistryError, StreamadError, UsageError
from streamad.learn.parts import versions_of
from streamad.learn.registry.approvals import NotApprovedError
from streamad.outputs.versions.approving import Seen, approve
from tests.support.kafka.child import PLUGINS
from tests.support.learning.stored import LEARNING, SHARES, add, another, plant_of, registry_at, sequence, train

MODEL = {"detector": "mean_square", "folds": 2, "device": "cpu", "references": []}


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A plant in which the version 0001 waits for two people."""
    monkeypatch.syspath_prepend(PLUGINS)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(PLUGINS), os.environ.get("PYTHONPATH", "")]))
    path = plant_of(tmp_path, learning={**LEARNING, "promote": "person"}, model=MODEL)
    add(path, {share: [sequence(n) for n in numbers] for share, numbers in SHARES.items()})  # type: ignore[misc]
    assert train(path) == "0001"
    return path


def said(config: Path, *arguments: str) -> str:
    result = CliRunner().invoke(app, [*arguments, "--config", str(config)])
    assert result.exit_code == 0, (result.output, result.exception)
    return " ".join(result.stdout.split())


def refusal(config: Path, *arguments: str, kind: type[StreamadError] = UsageError) -> str:
    result = CliRunner().invoke(app, [*arguments, "--config", str(config)])
    assert isinstance(result.exception, kind), (result.output, result.exception)
    text = str(result.exception)
    assert "\n" not in text
    return text


def approves(by: str, version: str = "1") -> tuple[str, ...]:
    return ("models", "approve", version, "--by", by, "--note", "fewer false alarms")


def test_two_people_put_a_version_into_service(config: Path) -> None:
    assert "waits for review" in said(config, "models", "list")
    missing = "0001 is not put into service: two people have to approve it (learning.promote, model.locked), and nobody"
    assert missing in refusal(config, "models", "promote", "1", kind=NotApprovedError)
    wanted = "model default 0001 is approved by Anna Berg; a second person puts it into service with the same command"
    assert said(config, *approves("Anna Berg")) == wanted
    again = "anna.berg has approved model default 0001 already: a second person has to"
    assert refusal(config, *approves("anna.berg")) == again
    assert "waits for 2nd approval" in said(config, "models", "list")
    status = said(config, "models", "status")
    assert "by Anna Berg (name as given): fewer false alarms" in status
    assert "by schedule" in status
    found = json.loads(said(config, *approves("Bernd"), "--json"))
    assert (found["promoted"], [each["by"] for each in found["approvals"]]) == (True, ["Anna Berg", "Bernd"])
    assert registry_at(config).current("default") == "0001"
    shown = said(config, "models", "show")
    assert shown.count("(name as given): fewer false alarms") == 2
    assert "no further approval is needed" in refusal(config, *approves("Cleo"))


def test_a_version_that_is_rolled_back_needs_two_new_approvals(config: Path) -> None:
    for version in ("1", "2"):
        if version == "2":
            add(config, {"accepted": [sequence(500 + n) for n in range(3)]})
            assert train(config) == "0002"
        said(config, *approves("Anna", version))
        said(config, *approves("Bernd", version))
    assert "0001 is now in service" in said(config, "models", "rollback")
    refusal(config, "models", "promote", "2", kind=NotApprovedError)
    assert "a second person" in said(config, *approves("Anna", "2"))
    assert "declined" in said(config, "models", "decline", "2")
    assert "a second person" in said(config, *approves("Bernd", "2"))


def test_a_killed_approval_is_finished_by_promote(config: Path) -> None:
    plant, registry = load_plant(config), registry_at(config)
    approve(plant, "default", "0001", by=Actor("page", "Anna", "authenticated"), why="good")
    lock = config.parent / "registry" / "default" / "CURRENT"
    lock.mkdir()
    with pytest.raises(RegistryError, match="a folder is in its place"):
        approve(plant, "default", "0001", by=Actor("page", "Bernd", "authenticated"), why="good")
    lock.rmdir()
    assert registry.current("default") is None
    assert all(each.authenticated for each in registry.manifest("default", "0001").approvals)
    assert "0001 is now in service" in said(config, "models", "promote", "1")


def test_what_nobody_may_approve(config: Path) -> None:
    plant = load_plant(config)
    with pytest.raises(UsageError, match="token is a program: a person has to approve a version"):
        approve(plant, "default", "0001", by=Actor("page", "token", "program"), why="good")
    with pytest.raises(UsageError, match="0001 has changed since it was looked at"):
        approve(plant, "default", "0001", by=of_command("Anna"), why="good", seen=Seen("0" * 64, None))
    for nobody in ("", " ", "...", "\u200b"):
        assert "names nobody" in refusal(config, *approves(nobody))
    config.write_text(config.read_text().replace("promote: person", "promote: auto"))
    assert "so nothing needs approvals: streamad models promote" in refusal(config, *approves("Anna"))


def test_a_locked_plant_refuses_whatever_would_change_a_model_by_itself(config: Path) -> None:
    registry_at(config).needs_approvals = False
    plant_of(config.parent, learning=LEARNING, model=MODEL)
    assert another(config) == "0002"
    plant_of(config.parent, learning=None, model={**MODEL, "locked": True})
    with pytest.raises(NotApprovedError, match="0002 is not put into service"):
        versions_of(load_plant(config)).load()  # as run does at its start
    for by in ("Anna", "Bernd"):
        last = said(config, *approves(by, "2"))
    assert last == "model default 0002, which is in service, is approved by Anna and Bernd"
    assert versions_of(load_plant(config)).load().ref.version == "0002"
    for command in (("models", "retrain"), ("models", "relearn", "--since", "2h"), ("learn", "--present")):
        assert "learning" in refusal(config, *command)
    for command in (("models", "promote", "1"), ("models", "rollback", "--to", "1")):
        refusal(config, *command, kind=NotApprovedError)
    assert registry_at(config).current("default") == "0002"
