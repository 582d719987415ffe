"""streamad init of a topic: it reads what is there when it starts, and no longer; the records' keys name the stream."""

from __future__ import annotations

import asyncio
import json
import math
from pathlib import Path

from typer.testing import CliRunner

from streamad.cli import app
from streamad.settings.plant_yaml import load_settings
from tests.support.kafka.broker import Broker, Message, new_topic, produce
from tests.support.waiting import LIMIT_S

T0 = 1_772_352_930


def messages(n_batches: int = 6, length: int = 20) -> list[Message]:
    """Return the batches of two reactors at once, told apart by the records' keys alone."""
    found = []
    for batch in range(n_batches):
        for place in range(length):
            for reactor in ("R1", "R2"):
                readings = {"temp": 20 + math.sin(place / 3) + batch, "flow": place % 7 + 0.5}
                body = {"lot": f"{reactor}-{batch}", "ts": T0 + 1_000 * batch + 10 * place, **readings}
                found.append(Message(json.dumps(body).encode(), reactor.encode()))
    return found


async def test_a_topic_is_read_to_its_end_and_its_keys_name_the_streams(kafka: Broker, tmp_path: Path) -> None:
    topic = await new_topic(kafka, 3)
    await produce(kafka.bootstrap, topic, messages())
    config = tmp_path / "plant.yaml"
    command = ["init", f"kafka://{kafka.bootstrap}/{topic}", "--out", str(config), "--name", "plant"]
    async with asyncio.timeout(LIMIT_S):
        result = await asyncio.to_thread(CliRunner().invoke, app, command)
    assert result.exit_code == 0, result.output or result.exception
    assert "sample       240 records" in result.stdout
    assert "the records' keys name the stream (decode.fields.stream: key)" in result.stderr
    assert "sequences    12: 20 samples each" in result.stdout
    fields = load_settings(config).decode.fields
    assert fields is not None
    assert (fields.stream, fields.sequence) == ("key", "lot")


async def test_an_empty_topic_is_one_line(kafka: Broker, tmp_path: Path) -> None:
    topic = await new_topic(kafka, 2)
    command = ["init", f"kafka://{kafka.bootstrap}/{topic}", "--out", str(tmp_path / "plant.yaml")]
    async with asyncio.timeout(LIMIT_S):
        result = await asyncio.to_thread(CliRunner().invoke, app, command)
    assert result.exit_code != 0
    assert "it holds no record" in str(result.exception)
