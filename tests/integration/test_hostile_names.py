"""Ids, notes and manifests of others are printed as they are: no markup, no emoji, no control, no line of their own."""

from __future__ import annotations

import json
import re

import pytest

from tests.support.runtime.cli import CliPlant

NAME = "[/]B[bold red]:smile:\u202e\u2066"  # the decoder refuses other controls
SEEN_NAME = r"[/]B[bold red]:smile:\u202e\u2066"
HOSTILE = "[/]B[bold red]:smile:\x1b[2J\u202e7"
SEEN = r"[/]B[bold red]:smile:\x1b[2J\u202e7"
NOTE = "kim [/b] :warning: \x1b[31m\u2066"


def rename(plant: CliPlant, folder: str, name: str) -> None:
    """Give every sequence of the recordings an id with ``name``."""
    path = plant.folder / folder / "day.jsonl"
    messages = [json.loads(text) for text in path.read_text().splitlines()]
    named = [{**each, "sequence": f"{name}{i}", "stream": f"{name}r"} for i, each in enumerate(messages)]
    path.write_text("".join(f"{json.dumps(each)}\n" for each in named))


def shown(text: str) -> str:
    """Return what was printed without the colours of streamad itself."""
    assert "\x1b[2J" not in text
    assert not re.search("[\u202a-\u202e\u2066-\u2069]", text)
    return text


@pytest.fixture
def hostile(plant: CliPlant) -> CliPlant:
    plant.write_config(
        learning={"store": "store", "schedule": None, "on_drift": False}, sinks={"events": "out/events.jsonl"}
    )
    rename(plant, "recordings", NAME)
    return plant


def test_names_of_sequences_in_every_command_that_prints_them(hostile: CliPlant) -> None:
    plant = hostile
    for command in ("score", "replay", "run", "inliers list --each", "alerts tail --from-start --limit 1"):
        outcome = plant(command)
        assert outcome.code == 0, outcome.err
        assert SEEN_NAME in shown(outcome.out + outcome.err), command
    for command in ("score --json", "inliers list --each --json", "alerts tail --from-start --limit 1 --json"):
        outcome = plant(command)
        assert json.loads(shown(outcome.out).splitlines()[0])
    alert = plant.lines("alerts")[0]
    marked = plant("feedback --false-alarm --alert", alert["alert_id"], "--note", NOTE, "--by", NOTE)
    assert marked.code == 0, marked.err
    assert SEEN_NAME in shown(marked.out + marked.err)
    assert plant("learn --present").code == 0
    assert "kim [/b] :warning:" in shown(plant("inliers list --each").out)


def test_a_foreign_file_of_alerts_cannot_add_a_line(hostile: CliPlant) -> None:
    """The decoder would not let a line end into an id; a file that somebody else wrote may hold one."""
    plant = hostile
    assert plant("run --quiet").code == 0
    alert = plant.lines("alerts")[0] | {"sequence": f"B-1\nALERT r1 {HOSTILE}", "alert_id": "[/]\x1b[2J"}
    unscorable = plant.lines("verdicts")[0] | {"decision": "unscorable", "detail": f"bad\n{HOSTILE}"}
    (plant.folder / "out/alerts.jsonl").write_text(f"{json.dumps(alert)}\n{json.dumps(unscorable)}\n")
    outcome = plant("alerts tail --from-start --limit 2")
    assert len(shown(outcome.out).splitlines()) == 2
    assert SEEN in outcome.out


def test_a_manifest_of_others(plant: CliPlant) -> None:
    path = plant.folder / "registry/default/versions/0001/manifest.json"
    manifest = json.loads(path.read_text())
    manifest["parent"] = HOSTILE
    manifest["packages"] = {HOSTILE: HOSTILE}
    manifest["training"]["remarks"] = [HOSTILE]
    manifest["detector"]["options"] = {HOSTILE: HOSTILE}
    path.write_text(json.dumps(manifest))
    for command in ("models show", "models list", "models list --json", "models show --json"):
        outcome = plant(command)
        assert outcome.code == 0, outcome.err
        assert "[bold red]:smile:" in shown(outcome.out)
