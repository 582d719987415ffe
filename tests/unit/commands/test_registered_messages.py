"""Commands with a Schema Registry: what framed messages give is what the same messages give as JSON."""

from __future__ import annotations

import io
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fastavro
import pytest
import yaml

from streamad.types import Record
from streamad_connectors.files.formats.records import encode_header, encode_record
from tests.support.runtime.cli import NEAREST, CliPlant
from tests.support.runtime.pipeline import START_US
from tests.support.schemas.registry import StubRegistry, stub_registry

CHUNK = {
    "type": "record",
    "name": "Chunk",
    "fields": [
        {"name": "stream", "type": "string"},
        {"name": "sequence", "type": "string"},
        {"name": "times", "type": {"type": "array", "items": "double"}},
        {"name": "values", "type": {"type": "array", "items": {"type": "array", "items": "double"}}},
        {"name": "end", "type": "boolean"},
    ],
}
ROW = {
    "type": "record",
    "name": "Row",
    "fields": [
        {"name": "line", "type": "string"},
        {"name": "batch", "type": "string"},
        {"name": "ts", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "temp_c", "type": ["null", "double"]},
        {"name": "pressure_bar", "type": "double"},
    ],
}


@pytest.fixture
def stub() -> Iterator[StubRegistry]:
    with stub_registry() as registry:
        registry.add(7, json.dumps(CHUNK), "AVRO")
        registry.add(8, json.dumps(ROW), "AVRO")
        yield registry


def framed(schema: int, definition: dict[str, Any], message: Any) -> bytes:
    content = io.BytesIO()
    fastavro.schemaless_writer(content, fastavro.parse_schema(dict(definition)), message)
    return b"\0" + schema.to_bytes(4, "big") + content.getvalue()


def recorded(path: Path, values: list[bytes]) -> Path:
    """Write a recording of a topic, as ``streamad record`` does; every other framed one has its schema in a header."""
    lines = []
    for offset, value in enumerate(values):
        in_header = offset % 2 and value[:1] == b"\0"
        schema, content = (value[:5].hex(), value[5:]) if in_header else (None, value)
        lines.append(encode_record(Record(offset, content, START_US + offset * 30_000_000, schema=schema)))
    path.write_bytes(encode_header("t-0", from_start=True, streamad="0") + b"".join(lines))
    return path


def rewritten(path: Path) -> None:
    """Replace a file of messages in JSON by a recording of the same ones in Avro."""
    messages = [json.loads(line) for line in path.read_text().splitlines()]
    path.unlink()
    recorded(path.with_name("day.records.jsonl"), [framed(7, CHUNK, message) for message in messages])


def verdicts(plant: CliPlant, name: str = "verdicts") -> list[dict[str, Any]]:
    """Return the verdicts without what depends on offsets and the wall clock."""
    found = plant.lines(name)
    return [{key: each[key] for key in each if key not in {"verdict_id", "created_at", "model"}} for each in found]


def test_every_command_reads_framed_messages_as_json(
    stub: StubRegistry, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Trains once, which alone takes some seconds: a version is published only after another process has loaded it."""
    found = []
    for name in ("avro", "json"):
        (tmp_path / name).mkdir()
        plant = CliPlant(tmp_path / name, capsys, monkeypatch, NEAREST)
        plant.write_config(**({} if name == "json" else {"decode": {"registry": {"url": stub.url}}}))
        for folder, seed, odd in (("normal", 2, 0), ("recordings", 1, 4)):
            path = plant.write_recordings(folder, seed=seed, normal=40 if folder == "normal" else 12, odd=odd)
            if name == "avro":
                rewritten(path)
        if name == "avro":
            assert plant("train").code == 0
        else:
            shutil.copytree(tmp_path / "avro/registry", plant.folder / "registry")
        assert plant("run --quiet").code == 0
        counters = plant("replay --json --speed 1000000").last_json["counters"]
        scored = [json.loads(text) for text in plant("score --json", "recordings").out.splitlines()]
        recording = next((plant.folder / "recordings").iterdir())
        why = plant("explain --json --recording", recording, plant.lines("alerts")[0]["alert_id"])
        assert why.code == 0, why.err
        found.append((verdicts(plant), counters["verdicts"], counters["records"], [each["score"] for each in scored]))
    assert found[0] == found[1]
    assert len(found[0][0]) == len(found[0][3]) == counters["records"] == 16


def test_check_says_what_the_registry_answers(
    stub: StubRegistry, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    plant = CliPlant(tmp_path, capsys, monkeypatch, NEAREST)
    rewritten(plant.write_recordings())
    plant.write_config(decode={"registry": {"url": stub.url}})
    assert f"{stub.url} answers" in plant("check --fast").out
    stub.fault = "500"
    said = plant("check --fast")
    assert said.code == 1
    assert "answered 500" in said.out
    stub.fault = "401"
    assert "look at the login" in plant("check --fast").out
    plant.write_config(decode={"registry": {"url": stub.url}}, model={"recordings": "recordings"})
    refused = plant("train")
    assert refused.code == 2
    assert f"decode.registry: {stub.url} answered 401 Unauthorized" in refused.err


def test_without_a_registry_the_dead_letter_and_check_name_the_setting(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    plant = CliPlant(tmp_path, capsys, monkeypatch, NEAREST)
    rewritten(plant.write_recordings())
    plant.write_config()
    said = plant("check --fast")
    assert said.code == 1
    assert "schema id 7; Avro or Protobuf): set decode.registry" in said.out


def test_init_asks_for_the_registry_and_writes_what_it_has_found(
    stub: StubRegistry, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    plant = CliPlant(tmp_path, capsys, monkeypatch)
    rows = [
        {
            "line": "press-1",
            "batch": f"B-{offset // 20}",
            "ts": START_US // 1000 + 1000 * offset,
            "temp_c": None if offset % 9 == 4 else 20.0 + offset % 7,
            "pressure_bar": 3.0 + offset % 3,
        }
        for offset in range(200)
    ]
    recorded(tmp_path / "topic.records.jsonl", [framed(8, ROW, row) for row in rows])
    plant("init", "topic.records.jsonl", config=False).assert_one_line_error(
        "schema id 8", "--registry https://HOST:8081"
    )
    said = plant("init --registry", stub.url, "topic.records.jsonl", config=False)
    assert said.code == 0, said.err
    decode = yaml.safe_load(plant.config.read_text())["decode"]
    assert decode["registry"] == {"url": stub.url}
    assert decode["fields"]["stream"] == "line"
    assert decode["fields"]["sequence"] == "batch"
    assert decode["fields"]["time"] == "ts"
    assert plant("check --fast").code == 0


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ("ftp://host", "write the registry's address"),
        ("{url: https://host, password: hunter2}", "a secret must not stand in the config"),
        ("{url", "is no mapping"),
    ],
)
def test_init_refuses_what_is_no_registry(
    given: str, text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    plant = CliPlant(tmp_path, capsys, monkeypatch)
    recorded(tmp_path / "topic.records.jsonl", [b"\0\0\0\0\7{}"])
    said = plant("init --registry", given, "topic.records.jsonl", config=False)
    said.assert_one_line_error("--registry", text, code=2)
    assert "hunter2" not in said.err
