"""docs/guide/recipes.md shows the files of ``examples/recipes``, and streamad reads what the tools wrote with them.

``tests/support/recipes`` holds what Telegraf, Node-RED and Kafka Connect wrote (``benchmarks/recipes.py``).
"""

from __future__ import annotations

import base64
import json
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from streamad.cli import app

ROOT = Path(__file__).resolve().parents[3]
PAGE = (ROOT / "docs" / "guide" / "recipes.md").read_text(encoding="utf-8")
RECIPES = ROOT / "examples" / "recipes"
RECORDED = ROOT / "tests" / "support" / "recipes"
READ_BY = {
    "opcua.jsonl": "opcua.yaml",
    "opcua.records.jsonl": "opcua.yaml",
    "connect.records.jsonl": "opcua.yaml",
    "sparkplug.records.jsonl": "sparkplug.yaml",
    "node-red.jsonl": "node-red.yaml",
}
# As each plugin's page of Telegraf 1.37 names them.
TELEGRAF = {
    "agent": "interval flush_interval omit_hostname metric_buffer_limit",
    "inputs.opcua": "endpoint timestamp tagexclude fieldexclude group",
    "inputs.opcua.group": "namespace identifier_type default_tags nodes",
    "inputs.opcua.group.nodes": "name identifier",
    "inputs.mqtt_consumer": "servers topics qos client_id persistent_session topic_tag data_format topic_parsing xpath "
    "xpath_protobuf_files xpath_protobuf_type xpath_native_types xpath_allow_empty_selection",
    "inputs.mqtt_consumer.topic_parsing": "topic tags",
    "inputs.mqtt_consumer.xpath": "metric_name metric_selection timestamp timestamp_format tags fields",
    "aggregators.merge": "period grace round_timestamp_to drop_original",
    "outputs.kafka": "brokers topic routing_tag idempotent_writes max_retry metadata_retry_max data_format "
    "json_timestamp_units",
    "outputs.file": "files data_format json_timestamp_units",
}
CONNECT = (
    "bootstrap.servers offset.storage.file.filename key.converter value.converter value.converter.schemas.enable "
    "config.providers config.providers.file.class name connector.class tasks.max file topic connection.url "
    "connection.user connection.password mode timestamp.column.name incrementing.column.name query topic.prefix "
    "transforms transforms.key.type transforms.key.fields transforms.unit.type transforms.unit.field"
)


def written() -> set[str]:
    """Return every message that a tool wrote, with or without the record of Kafka around it."""
    lines = [line for path in RECORDED.iterdir() for line in path.read_text("utf-8").splitlines()]
    values = [json.loads(line).get("value_base64", "") for line in lines]
    return {*lines, *(base64.b64decode(value).decode().strip() for value in values)}


def test_the_configs_of_the_page_are_the_files() -> None:
    shown = re.findall(r"^```yaml\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    assert shown == [(RECIPES / name).read_text("utf-8") for name in ("opcua.yaml", "sparkplug.yaml")]


def test_every_file_of_the_recipes_is_linked_and_every_shown_message_was_written_by_the_tool() -> None:
    files = {path.name for path in RECIPES.iterdir()} - {"opcua.yaml", "sparkplug.yaml"}  # shown
    assert files == set(re.findall(r"\]\(\.\./\.\./examples/recipes/([\w.-]+)\)", PAGE))
    messages = re.findall(r"^```json\n(.*?)\n```", PAGE, re.MULTILINE | re.DOTALL)
    assert len(messages) == 3
    assert set(messages) <= written()


@pytest.mark.parametrize(("recording", "config"), READ_BY.items())
def test_what_a_tool_wrote_is_read_as_twelve_batches(recording: str, config: str) -> None:
    assert {path.name for path in RECORDED.iterdir()} == set(READ_BY)
    arguments = ["check", "--json", "--fast", "-c", str(RECIPES / config), "--from", str(RECORDED / recording)]
    found = json.loads(CliRunner().invoke(app, arguments).stdout)
    said = {check["check"]: (check["outcome"], check["message"]) for check in found["checks"]}
    assert found["failed"] == 0
    assert said["sequences"] == ("ok", "12 sequences ended: 11 by change, 1 by end_of_input")
    assert said["channels"] == ("ok", "all 2 have values")
    assert said["source"][0] == "ok"


@pytest.mark.parametrize(
    ("recording", "stream", "sequence"), [("opcua", "tags.unit", "fields.batch"), ("node-red", "unit", "Batch")]
)
def test_init_finds_stream_and_batch_by_itself(recording: str, stream: str, sequence: str, tmp_path: Path) -> None:
    arguments = ["init", str(RECORDED / f"{recording}.jsonl"), "--out", str(tmp_path / "plant.yaml")]
    said = CliRunner().invoke(app, arguments).stdout.splitlines()
    assert [line for line in said if line.startswith(("stream ", "sequence "))] == [
        f"stream       {stream}",
        f"sequence     {sequence}",
    ]
    assert any(line.startswith("sequences    12: ") for line in said)


def tables(found: Any, path: str = "") -> list[tuple[str, set[str]]]:
    """Return the keys of every table that has a name in ``TELEGRAF``, at any depth."""
    if isinstance(found, list):
        return [table for each in found for table in tables(each, path)]
    if not isinstance(found, dict):
        return []
    inner = [table for key, value in found.items() for table in tables(value, f"{path}.{key}".lstrip("."))]
    return [(path, set(found)), *inner] if path in TELEGRAF else inner


@pytest.mark.parametrize("path", sorted(RECIPES.glob("*.conf")), ids=lambda path: path.name)
def test_telegraf_knows_every_option(path: Path) -> None:
    found = tables(tomllib.loads(path.read_text("utf-8")))
    assert found
    assert {name: sorted(keys - set(TELEGRAF[name].split())) for name, keys in found} == {name: [] for name, _ in found}


def test_the_flow_is_connected() -> None:
    nodes = {node["id"]: node for node in json.loads((RECIPES / "node-red.json").read_text("utf-8"))}
    (tab,) = (name for name, node in nodes.items() if node["type"] == "tab")
    placed = [node for node in nodes.values() if "wires" in node]
    assert [node["type"] for node in placed] == ["mqtt in", "function", "file"]
    for node in placed:
        assert node["z"] == tab
        assert {target for wires in node["wires"] for target in wires} <= set(nodes)
    assert nodes[placed[0]["broker"]]["type"] == "mqtt-broker"
    assert [node["wires"] for node in placed] == [[[placed[1]["id"]]], [[placed[2]["id"]]], [[]]]


@pytest.mark.parametrize("path", sorted(RECIPES.glob("*.properties")), ids=lambda path: path.name)
def test_connect_knows_every_property(path: Path) -> None:
    lines = [line for line in path.read_text("utf-8").splitlines() if line and not line.startswith("#")]
    found = dict(line.split("=", 1) for line in lines)
    assert len(found) == len(lines)
    assert set(found) <= set(CONNECT.split())
    transforms = {name for name in found.get("transforms", "").split(",") if name}
    assert transforms == {key.split(".")[1] for key in found if key.startswith("transforms.")}
