"""A topic whose producer sends no keys: check and init say so before a run finds its streams split."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner, Result

from streamad.cli import app
from tests.support.kafka.broker import Broker, Message, new_topic, produce
from tests.support.runtime.pipeline import CHANNELS, line
from tests.support.waiting import LIMIT_S

ADVICE = "let the producer send the stream as message key, such as producer.send(TOPIC, key=STREAM, value=MESSAGE)"


def messages(*, spread: bool, keys: bool) -> list[Message]:
    """Twelve sequences of streams a and b: ``spread`` over partitions 0 and 1, or each stream in its own."""
    found = []
    for i in range(12):
        for at, stream in enumerate(("a", "b")):
            partition = (at + i) % 2 if spread else at
            value = line(stream, f"{stream}-{i}", [10.0 * i, 10.0 * i + 1, 10.0 * i + 2], 1 + 0.01 * i, end=True)
            found.append(Message(value, stream.encode() if keys else None, partition))
    return found


async def invoked(*arguments: str) -> Result:
    async with asyncio.timeout(LIMIT_S):
        return await asyncio.to_thread(CliRunner().invoke, app, arguments)


async def source_findings(kafka: Broker, folder: Path, sent: list[Message]) -> list[tuple[str, str, str]]:
    topic = await new_topic(kafka, 3)
    await produce(kafka.bootstrap, topic, sent)
    content: dict[str, Any] = {
        "name": topic,
        "channels": [{"name": name} for name in CHANNELS],
        "source": {"url": f"kafka://{kafka.bootstrap}/{topic}"},
        "sequences": {"end": ["marker"]},
        "window": {"length": 16},
        "sinks": {"alerts": f"kafka:///{topic}.alerts"},
    }
    config = folder / "plant.yaml"
    config.write_text(yaml.safe_dump(content))
    assert (await invoked("topics", "create", "-c", str(config))).exit_code == 0
    result = await invoked("check", "-c", str(config), "--fast", "--json")
    checks = json.loads(result.stdout)["checks"]
    return [(one["outcome"], one["message"], one["advice"]) for one in checks if one["check"] == "source"]


@pytest.mark.parametrize("keys", [False, True])
async def test_check_compares_the_streams_of_the_partitions(kafka: Broker, tmp_path: Path, keys: bool) -> None:
    found = await source_findings(kafka, tmp_path, messages(spread=True, keys=keys))
    (told,) = [each for each in found if each[0] == "failed"]
    _, message, advice = told
    assert message.startswith("2 of 2 streams lie in several partitions, such as ")
    assert message.endswith("; 24 of 24 messages have no key" if not keys else "their sequences are unscorable")
    assert advice == (ADVICE if not keys else f"the key is not the stream (or partitions were added): {ADVICE}")


async def test_check_says_that_there_are_no_keys_before_a_stream_is_split(kafka: Broker, tmp_path: Path) -> None:
    found = await source_findings(kafka, tmp_path, messages(spread=False, keys=False))
    text = "24 of 24 messages have no key: a stream's messages may come to lie in several partitions"
    assert ("warning", text, ADVICE) in found


async def test_check_says_nothing_of_streams_with_their_keys(kafka: Broker, tmp_path: Path) -> None:
    found = await source_findings(kafka, tmp_path, messages(spread=False, keys=True))
    assert [outcome for outcome, _, _ in found] == ["ok"]


@pytest.mark.parametrize("keys", [False, True])
async def test_init_says_that_there_are_no_keys(kafka: Broker, tmp_path: Path, keys: bool) -> None:
    topic = await new_topic(kafka, 3)
    await produce(kafka.bootstrap, topic, messages(spread=True, keys=keys))
    command = ["init", f"kafka://{kafka.bootstrap}/{topic}", "--out", str(tmp_path / "plant.yaml"), "--name", "plant"]
    result = await invoked(*command)
    assert result.exit_code == 0, result.output or result.exception
    said = " ".join(result.stderr.split())
    assert ("the messages have no key" in said) is not keys
