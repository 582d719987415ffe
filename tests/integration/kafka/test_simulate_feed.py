"""``streamad simulate --to kafka://...`` against a real broker: what a plant's own producers would have sent."""

from __future__ import annotations

import asyncio
import csv
import json
import re
import signal
from pathlib import Path

import pytest
import yaml
from aiokafka import ConsumerRecord
from typer.testing import CliRunner, Result

from streamad.cli import app
from streamad.errors import OutputError, UsageError
from tests.support.kafka.broker import Broker, new_topic, read_committed
from tests.support.runtime.cli import started, until_line
from tests.support.waiting import LIMIT_S

ROOT = Path(__file__).parents[3]
TOUR = (ROOT / "docs/guide/kafka.md").read_text(encoding="utf-8").partition("## A first run")[2].partition("\n## ")[0]
N_PARTITIONS, N_STREAMS = (int(re.search(rf"{option} (\d+)", TOUR)[1]) for option in ("--partitions", "--streams"))  # type: ignore[index]


# The command runs its own event loop, in the main thread for its signals: these tests have none.
def simulate(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["simulate", *arguments])


@pytest.fixture
def topic(kafka: Broker) -> str:
    return asyncio.run(new_topic(kafka, N_PARTITIONS))


def records_of(broker: Broker, topic: str) -> list[ConsumerRecord[bytes | None, bytes | None]]:
    return asyncio.run(read_committed(broker.bootstrap, topic))


def test_streams_are_keys_their_samples_stay_in_order_and_the_truth_is_beside(
    kafka: Broker, topic: str, tmp_path: Path
) -> None:
    labels = tmp_path / "labels.csv"
    result = simulate(
        *("--to", f"kafka://{kafka.bootstrap}/{topic}", "--speed", "max", "--batches", "8"),
        *("--streams", str(N_STREAMS)),
        *("--fault-share", "0.5", "--chunk", "10", "--labels", str(labels), "--json"),
    )
    assert result.exit_code == 0, result.output
    told = json.loads(result.stdout)
    records = records_of(kafka, topic)
    assert len(records) == told["messages"]
    with labels.open(newline="") as file:
        truth = {row["sequence"]: row for row in csv.DictReader(file)}
    partitions: dict[bytes, set[int]] = {}
    ends: dict[str, float] = {}
    last: dict[bytes, float] = {}
    for record in records:
        assert record.key is not None
        assert record.value is not None
        message = json.loads(record.value)
        assert message["stream"].encode() == record.key
        assert 0 <= record.timestamp - message["times"][-1] * 1000 < 1.001
        assert message["times"][0] > last.get(record.key, 0.0)
        last[record.key] = message["times"][-1]
        partitions.setdefault(record.key, set()).add(record.partition)
        if message.get("end"):
            ends[message["sequence"]] = message["times"][-1]
    assert set(ends) == set(truth)
    assert len(truth) == told["batches"] == 8
    assert sum(row["label"] == "1" for row in truth.values()) == told["faulty"] == 4
    assert len(partitions) == N_STREAMS
    assert all(len(of_key) == 1 for of_key in partitions.values())
    assert {p for of_key in partitions.values() for p in of_key} == set(range(N_PARTITIONS)), "no worker is idle"


def test_the_tour_and_the_compose_file_have_the_same_partitions_and_streams() -> None:
    """Of four partitions, the keys of four fermenters use two: a second worker could get the two others."""
    services = yaml.safe_load((ROOT / "deploy/compose.yaml").read_text(encoding="utf-8"))["services"]
    create, feed = services["topics"]["command"], services["feed"]["command"]
    assert int(create[create.index("--partitions") + 1]) == N_PARTITIONS
    assert int(feed[feed.index("--streams") + 1]) == N_STREAMS
    assert f"streamad run --workers {services['monitor']['deploy']['replicas']}" in TOUR


def test_the_brokers_are_those_of_a_config_or_of_the_plant_in_the_working_directory(
    kafka: Broker, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    place = ("--to", f"kafka:///{topic}", "--speed", "max", "--batches", "1", "--chunk", "200")
    lost = simulate(*place)
    assert isinstance(lost.exception, UsageError)
    assert "write kafka://HOST:PORT/..., or name the plant's config: --config plant.yaml" in str(lost.exception)
    config = f"channels: [{{name: temp_c}}]\nsource: {{url: 'kafka://{kafka.bootstrap}/other'}}\n"
    for number, (name, option) in enumerate([("named.yaml", ("--config", "named.yaml")), ("plant.yaml", ())], 1):
        Path(name).write_text(config, encoding="utf-8")
        result = simulate(*place, *option)
        assert result.exit_code == 0, result.output
        assert len(records_of(kafka, topic)) == number


def test_a_signal_ends_an_endless_feed_and_what_it_counted_is_there(kafka: Broker, topic: str) -> None:
    with started("simulate", "--to", f"kafka://{kafka.bootstrap}/{topic}", "--speed", "100000") as process:
        until_line(process, "-B-0202")
        process.send_signal(signal.SIGTERM)
        told, _ = process.communicate(timeout=LIMIT_S)
    assert process.returncode == 0
    records = records_of(kafka, topic)
    assert f"{len(records)} samples in {len(records)} messages" in told
    assert told.startswith("interrupted after")


def test_times_ahead_of_the_broker_s_are_refused_and_reported(kafka: Broker, topic: str) -> None:
    arguments = ("--start", "0s", "--speed", "max", "--batches", "1", "--streams", "1")
    result = simulate("--to", f"kafka://{kafka.bootstrap}/{topic}", *arguments)
    assert isinstance(result.exception, OutputError), result.output
    assert "\n" not in str(result.exception)
    assert "Timestamp" in str(result.exception)
    assert "--start" in str(result.exception)


def test_a_topic_that_is_not_there_is_named(kafka: Broker) -> None:
    result = simulate("--to", f"kafka://{kafka.bootstrap}/nowhere", "--batches", "1", "--speed", "max")
    assert isinstance(result.exception, OutputError)
    assert "nowhere" in str(result.exception)


@pytest.mark.parametrize("url", ["kafka://localhost:9092", "kafka:///fermenters"])
def test_a_place_that_lacks_a_part_is_a_wrong_usage(url: str) -> None:
    result = simulate("--to", url, "--batches", "1", "--speed", "max")
    assert result.exception is not None
    assert getattr(result.exception, "exit_code", 0) == 2


def test_a_broker_that_stays_away_ends_the_feed_with_what_it_has(unstable_kafka: Broker) -> None:
    topic = asyncio.run(new_topic(unstable_kafka))
    place = f"kafka://{unstable_kafka.bootstrap}/{topic}?request_timeout=1s&give_up_after=2s"
    with started("simulate", "--to", place, "--speed", "36000", "--batches", "40") as process:
        until_line(process, "-B-0201")
        unstable_kafka.kill()
        last = process.communicate(timeout=LIMIT_S)[1].splitlines()[-1]
    assert process.returncode == 1
    assert "no broker can be reached" in last
    assert re.search(r"; fed [1-9][0-9]* of 40 whole batches, [1-9][0-9]+ messages$", last), last


def test_ctrl_c_ends_a_feed_that_waits_for_its_broker(unstable_kafka: Broker) -> None:
    topic = asyncio.run(new_topic(unstable_kafka))
    with started("simulate", "--to", f"kafka://{unstable_kafka.bootstrap}/{topic}", "--speed", "36000") as process:
        until_line(process, "-B-0201")
        unstable_kafka.kill()
        until_line(process, "waiting for the brokers")
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=LIMIT_S)
    assert process.returncode == 1
    assert re.search(r"no broker can be reached.*; fed [1-9][0-9]* whole batches, ", said), said
