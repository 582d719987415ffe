"""The command, against a real mosquitto: into a file and into a topic, through kills and absences."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
import yaml

from streamad.bridge.bridging import Bridge
from streamad.plugins import ConnectorContext, connect_feed
from streamad.system.clock import SystemClock
from streamad_connectors.mqtt import MqttInlet
from streamad_connectors.mqtt.options import MqttInletOptions
from tests.support.kafka.broker import Broker, new_topic, read_committed
from tests.support.mosquitto import Mosquitto, mosquitto
from tests.support.ports import free_port
from tests.support.runtime.cli import streamad
from tests.support.runtime.pipeline import until
from tests.support.waiting import LIMIT_S


class Command:
    """``streamad bridge`` in a folder of its own, with what it said."""

    def __init__(self, folder: Path, *arguments: str, **environment: str) -> None:
        self.log = folder / "bridge.log"
        paths = os.pathsep.join(path for path in sys.path if path)
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "streamad", "-v", "bridge", *arguments],
                cwd=folder,
                env={**os.environ, "PYTHONPATH": paths, **environment},
                stdout=log,
                stderr=log,
            )

    @property
    def said(self) -> str:
        return self.log.read_text()

    def until(self, is_so: Callable[[], bool]) -> None:
        end = time.monotonic() + LIMIT_S
        while not is_so():
            assert self.process.poll() is None or is_so(), self.said
            assert time.monotonic() < end, self.said
            time.sleep(0.02)

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(LIMIT_S)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(LIMIT_S)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Mosquitto]:
    with mosquitto(tmp_path / "broker", "max_inflight_messages 1000") as running:
        yield running


@pytest.fixture
def started(tmp_path: Path) -> Iterator[Callable[..., Command]]:
    with ExitStack() as stack:

        def start(*arguments: str, **environment: str) -> Command:
            command = Command(tmp_path, *arguments, **environment)
            stack.callback(command.kill)
            return command

        yield start


def lines(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []


def test_the_command_writes_a_file_serves_metrics_and_ends_in_order(
    broker: Mosquitto, started: Callable[..., Command], tmp_path: Path
) -> None:
    port = free_port()
    plant = {
        "channels": [{"name": "temp_c"}],
        "source": {"url": "samples.jsonl"},
        "bridge": {"url": f"mqtt://{broker.address}/plant/{{stream}}/{{channel}}", "listen": f"127.0.0.1:{port}"},
    }
    (tmp_path / "plant.yaml").write_text(yaml.safe_dump(plant))
    command = started()
    command.until(lambda: '"connected"' in command.said)
    broker.publish("plant/r1/temp_c", ["21.5", "22.5", "RUN"])
    path = tmp_path / "samples.jsonl"
    command.until(lambda: len(lines(path)) == 3)
    assert [json.loads(line)["value"] for line in lines(path)] == [21.5, 22.5, "RUN"]
    assert json.loads(lines(path)[0])["mqtt_topic"] == "plant/r1/temp_c"
    base = f"http://127.0.0.1:{port}"
    command.until(lambda: "streamad_bridge_safe_messages_total 3.0" in _get(f"{base}/metrics"))
    metrics = _get(f"{base}/metrics")
    assert "streamad_bridge_in_flight_messages 0.0" in metrics
    assert "streamad_bridge_connected 1.0" in metrics
    assert (_get(f"{base}/livez"), _get(f"{base}/readyz")) == ("alive\n", "ready\n")
    assert command.stop() == 0
    assert "3 messages written and acknowledged" in command.said


def _get(url: str) -> str:
    with urllib.request.urlopen(url, timeout=LIMIT_S) as answer:
        return str(answer.read().decode())


def test_a_kill_loses_nothing_and_what_came_meanwhile_is_there(
    broker: Mosquitto, started: Callable[..., Command], tmp_path: Path
) -> None:
    arguments = (f"mqtt://{broker.address}/plant/+/samples", "--to", "samples.jsonl")
    path = tmp_path / "samples.jsonl"
    first = started(*arguments)
    first.until(lambda: '"connected"' in first.said)
    texts = [f'{{"n":{n}}}' for n in range(4_000)]
    broker.publish("plant/r1/samples", texts[:2_000])
    first.until(lambda: bool(lines(path)))
    first.kill()
    broker.publish("plant/r1/samples", texts[2_000:])
    second = started(*arguments)
    second.until(lambda: {*texts} <= {*lines(path)})
    assert list(dict.fromkeys(lines(path))) == texts
    assert second.stop() == 0


@pytest.mark.parametrize(
    ("arguments", "said", "code"),
    [
        (["mqtt://127.0.0.1:1/a", "--to", "a.jsonl"], r"error: mqtt 127.0.0.1:1: cannot be reached", 1),
        (["mqtt://127.0.0.1/a#", "--to", "a.jsonl"], r"# stands for all levels", 2),
        (["mqtt://ada:sesame@127.0.0.1/a", "--to", "a.jsonl"], r"the URL holds a password", 2),
        (["mqtt://127.0.0.1/a", "--to", "a.csv"], r"name a file that ends in \.jsonl", 2),
        (["mqtt://127.0.0.1/a"], r"say where messages go", 2),
        (["mqt://127.0.0.1/a", "--to", "a.jsonl"], r"no inlet 'mqt'; did you mean 'mqtts?'", 2),
        (["localhost/plant/+/a", "--to", "a.jsonl"], r"begin it with mqtt:// or, for TLS, mqtts://", 2),
        (["mqtt://127.0.0.1:1/a", "--to", "kafka://127.0.0.1:1/t"], r"error: .*kafka", 1),
        ([], r"plant.yaml", 2),
    ],
)
def test_a_wrong_input_is_one_line(tmp_path: Path, arguments: list[str], said: str, code: int) -> None:
    found = streamad("bridge", *arguments, cwd=tmp_path)
    assert found.code == code, found.err
    assert re.search(said, found.err), found.err
    assert "Traceback" not in found.err
    assert "sesame" not in found.err


async def test_a_topic_gets_the_bytes_with_topic_key_and_time_and_a_broker_s_kill_loses_none(
    broker: Mosquitto, unstable_kafka: Broker
) -> None:
    topic = await new_topic(unstable_kafka, 2)
    context = ConnectorContext((), SystemClock(), Path())
    options = MqttInletOptions(receive_maximum=50)
    inlet = MqttInlet(f"{broker.address}/plant/{{stream}}/{{channel}}", options, context)
    feed = connect_feed(f"kafka://{unstable_kafka.bootstrap}/{topic}", {"label_header": "mqtt_topic"}, context)
    bridge = Bridge(inlet, feed, as_lines=False)
    running = asyncio.create_task(bridge.run())
    await until(lambda: inlet.counts.connections == 1)
    before_ms = time.time() * 1e3
    for stream in ("r1", "r2"):
        await asyncio.to_thread(broker.publish, f"plant/{stream}/temp", [f"{n}.5" for n in range(100)])
    await until(lambda: bridge.counts.safe == 200 or running.done())
    unstable_kafka.kill()
    await asyncio.to_thread(broker.publish, "plant/r1/temp", [f"{n}.5" for n in range(100, 400)])
    await until(lambda: inlet.counts.in_flight >= 50 or running.done())
    assert inlet.counts.in_flight <= 2 * 50
    assert bridge.counts.safe < 400
    await asyncio.to_thread(unstable_kafka.start)
    await until(lambda: bridge.counts.safe == 500 or running.done())
    bridge.stop()
    await running
    records = await read_committed(unstable_kafka.bootstrap, topic)
    of_r1 = [record for record in records if record.key == b"r1"]
    assert [record.value for record in of_r1] == [f"{n}.5".encode() for n in range(400)]
    assert {record.headers for record in of_r1} == {(("mqtt_topic", b"plant/r1/temp"),)}
    assert len({record.partition for record in of_r1}) == 1
    assert all(before_ms - 1e3 <= record.timestamp <= time.time() * 1e3 + 1e3 for record in records)
