"""A plant whose registry lies in an object store, by its commands: it learns, serves, is looked at, and is cut off."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from streamad.cli import app
from streamad.errors import StreamadError
from tests.support.learning.scenario import LEARNING, Scenario
from tests.support.learning.store import NAME
from tests.support.objects import CREDENTIALS, Bucket


def run(scenario: Scenario, *arguments: str) -> Result:
    return CliRunner().invoke(app, [*arguments, "--config", str(scenario.folder / "plant.yaml")])


def said(scenario: Scenario, *arguments: str) -> Any:
    result = run(scenario, *arguments, "--json")
    assert result.exit_code == 0, (result.output, result.exception)
    return json.loads(result.stdout.splitlines()[-1])


def refused(scenario: Scenario, *arguments: str) -> str:
    result = run(scenario, *arguments)
    assert isinstance(result.exception, StreamadError), (result.output, result.exception)
    assert "\n" not in str(result.exception)
    return str(result.exception)


def test_a_plant_with_its_registry_in_a_store(bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its learner and its worker are processes of their own; then the store is away."""
    plant = Scenario(
        tmp_path / "plant", "elsewhere", {**LEARNING, "after_inliers": 20}, registry=f"{bucket.url}/hall-3"
    )
    plant.record(70, {})
    plant.streamad("run", "--quiet")
    plant.streamad("learn", "--present")
    registry = plant.plant.registry
    assert registry.current(NAME) == "0001"
    versions = ("0001", plant.plant.train(1, promote=False))

    # what people do with versions
    assert [each["version"] for each in said(plant, "models", "list")["versions"]] == list(versions)
    assert said(plant, "models", "show", "1")["version"] == "0001"
    current = registry.current(NAME)
    other = next(each for each in versions if each != current)
    assert run(plant, "models", "promote", other).exit_code == 0
    assert registry.current(NAME) == other
    assert run(plant, "models", "rollback", "--to", str(current)).exit_code == 0
    assert registry.current(NAME) == current
    assert run(plant, "models", "compare", *versions[:2]).exit_code == 0
    (status,) = said(plant, "models", "status")["models"]
    assert status["model"] == NAME
    assert said(plant, "models", "prune", "--keep", "1", "--dry-run")["dry_run"]
    checks = json.loads(run(plant, "check", "--fast", "--json").stdout)["checks"]
    found = {each["check"]: (each["outcome"], each["message"]) for each in checks}
    assert found["model.registry"] == ("ok", f"{bucket.url}/hall-3 (takes conditional writes)")

    # the store is away
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{port}")
    n_before = len(plant.said("verdicts"))
    plant.record(10, {})
    assert run(plant, "run", "--quiet").exit_code == 0
    late = plant.said("verdicts")[n_before:]
    assert {each["model"]["version"] for each in late} == {current}
    kinds = [each["kind"] for each in plant.said("events")]
    assert "registry_away" in kinds
    assert "the store cannot be reached" in refused(plant, "models", "list")
    assert "the store cannot be reached" in refused(plant, "models", "promote", other)
    everything = "".join(path.read_text() for path in (plant.folder / "out").iterdir())
    assert not any(CREDENTIALS[name] in everything for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"))
