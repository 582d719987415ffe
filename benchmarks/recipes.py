"""Runs the recipes of docs/guide/recipes.md with the tools themselves and keeps what these wrote.

A simulated plant of twelve short batches speaks OPC UA, Sparkplug B or plain MQTT; Telegraf, Node-RED or Kafka Connect
runs with the files of ``examples/recipes``, where only addresses are replaced; what it wrote goes to
``tests/support/recipes``, where ``tests/unit/docs/test_recipes.py`` reads it back.

Needs on this machine, none of it part of streamad: the Python packages ``asyncua`` (LGPL) and ``paho-mqtt``, mosquitto,
and what the recipe's function names: a Telegraf (or ``go build -tags custom,inputs.opcua,...`` of its ``cmd/telegraf``
with the plug-ins of the files), ``npm install node-red@4``, Maven's connect-runtime and connect-file. The broker is
that of ``scripts/kafka``.

Run: ``python benchmarks/recipes.py opcua --telegraf BINARY``, likewise ``sparkplug`` (also
``--proto``, the folder of Eclipse Tahu's file), ``node-red --node-red MODULES`` and ``connect --connect JARS``.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import importlib
import json
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parents[1]
RECIPES: Final = ROOT / "examples" / "recipes"
KEPT: Final = ROOT / "tests" / "support" / "recipes"
BATCHES: Final = 12
SAMPLES: Final = 8
LIMIT_S: Final = 240
Reading = tuple[str, float, float]


def course() -> Iterator[Reading]:
    """Yield batch, temperature and pressure, a sample each; the batch is empty between two batches."""
    for batch in range(BATCHES):
        for _ in range(3):
            yield "", 20.0, 1.0
        for sample in range(SAMPLES):
            yield f"B-{batch + 1:02}", 20.0 + 3 * sample + batch / 10, 1.0 + sample // 2 / 10 + batch / 100


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def wait_for(what: str, found: Callable[[], object]) -> None:
    end = time.monotonic() + LIMIT_S
    while not found():
        if time.monotonic() > end:
            sys.exit(f"error: {what} did not come within {LIMIT_S} s")
        time.sleep(0.2)


def answers(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
        return True
    return False


def copied(folder: Path, *names: str, **replaced: str) -> None:
    """Copy files of ``examples/recipes``, with other addresses."""
    for name in names:
        text = (RECIPES / name).read_text("utf-8")
        for old, new in replaced.items():
            text = text.replace(old.replace("_", ":"), new)
        (folder / name).write_text(text, "utf-8")


@contextlib.contextmanager
def started(*command: str | Path, cwd: Path) -> Iterator[subprocess.Popen[bytes]]:
    log = cwd / f"{Path(command[0]).name}.log"
    with log.open("ab") as output, subprocess.Popen(command, cwd=cwd, stdout=output, stderr=output) as process:
        try:
            yield process
        finally:
            process.terminate()


def lines_of(path: Path) -> int:
    return path.read_bytes().count(b"\n") if path.exists() else 0


# --- the plant ---


async def opcua_plant(port: int, step_s: float) -> None:
    asyncua: Any = importlib.import_module("asyncua")
    server = asyncua.Server()
    await server.init()
    server.set_endpoint(f"opc.tcp://127.0.0.1:{port}/")
    server.set_security_policy([asyncua.ua.SecurityPolicyType.NoSecurity])
    space = await server.register_namespace("plant")
    reactor = await server.nodes.objects.add_object(space, "R1")
    first: tuple[tuple[str, str | float], ...] = (("Batch", ""), ("TIC-101", 20.0), ("PIC-200", 1.0))
    nodes = [await reactor.add_variable(asyncua.ua.NodeId(f"R1.{n}", space), n, value) for n, value in first]
    async with server:
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        for reading in course():
            for node, value in zip(nodes, reading, strict=True):
                await node.write_value(value)
            await asyncio.sleep(step_s)
        await nodes[0].write_value("")
        await asyncio.Event().wait()  # until it is ended: its own stop waits for its clients


def varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])


def of_length(field: int, content: bytes) -> bytes:
    return varint(field << 3 | 2) + varint(len(content)) + content


def sparkplug_metric(name: str, time_ms: int, value: str | float) -> bytes:
    """Return a metric of Sparkplug B: name, timestamp, datatype (String or Double) and value."""
    head = of_length(1, name.encode()) + varint(3 << 3) + varint(time_ms)
    if isinstance(value, str):
        return head + varint(4 << 3) + varint(12) + of_length(15, value.encode())
    return head + varint(4 << 3) + varint(10) + varint(13 << 3 | 1) + struct.pack("<d", value)


def sparkplug_messages() -> Iterator[tuple[str, bytes]]:
    """Yield topic and payload: a birth with all metrics, then the metrics that changed, a second apart."""
    time_ms = 1_796_000_000_000
    last: dict[str, str | float] = {}
    for number, reading in enumerate(course()):
        now: dict[str, str | float] = dict(zip(("Batch", "TIC-101", "PIC-200"), reading, strict=True))
        metrics = [sparkplug_metric(name, time_ms, value) for name, value in now.items() if last.get(name) != value]
        body = varint(1 << 3) + varint(time_ms) + b"".join(of_length(2, metric) for metric in metrics)
        kind = "DDATA" if number else "DBIRTH"
        yield f"spBv1.0/plant/{kind}/edge/reactor-1", body + varint(3 << 3) + varint(number % 256)
        time_ms, last = time_ms + 1000, now


def plain_messages() -> Iterator[tuple[str, bytes]]:
    for batch, temperature, pressure in course():
        for tag, value in (("Batch", batch), ("TIC-101", str(temperature)), ("PIC-200", str(pressure))):
            yield f"plant/reactor-1/{tag}", value.encode()


@contextlib.contextmanager
def mosquitto(folder: Path) -> Iterator[int]:
    port = free_port()
    (folder / "mosquitto.conf").write_text(f"listener {port} 127.0.0.1\nallow_anonymous true\n")
    with started("/usr/sbin/mosquitto", "-c", "mosquitto.conf", cwd=folder):
        wait_for("mosquitto", lambda: answers(port))
        yield port


def published(port: int, messages: Iterator[tuple[str, bytes]], step_s: float) -> None:
    mqtt: Any = importlib.import_module("paho.mqtt.client")
    client = mqtt.Client(mqtt.CallbackAPIVersion.VERSION2, protocol=mqtt.MQTTv5)
    client.connect("127.0.0.1", port)
    client.loop_start()
    for topic, payload in messages:
        client.publish(topic, payload, qos=1).wait_for_publish(LIMIT_S)
        time.sleep(step_s)
    client.disconnect()
    client.loop_stop()


# --- the recipes ---


@contextlib.contextmanager
def kafka(folder: Path, config: str) -> Iterator[str]:
    """Start a broker with the topics of the plant, and keep the input's records at the end."""
    port, controller = free_port(), free_port()
    command = (str(ROOT / "scripts/kafka"), "start", "--port", str(port), "--controller-port", str(controller))
    subprocess.run([*command, "--data", folder / "kafka"], check=True)
    copied(folder, config, localhost_9092=f"localhost:{port}")
    try:
        subprocess.run(["streamad", "topics", "create", "-c", config, "--partitions", "1"], cwd=folder, check=True)
        yield f"localhost:{port}"
        subprocess.run(["streamad", "record", "-c", config, "--out", "kept"], cwd=folder, check=True)
    finally:
        subprocess.run([str(ROOT / "scripts/kafka"), "stop", "--data", folder / "kafka"], check=True)


def opcua(folder: Path, given: argparse.Namespace) -> None:
    """Telegraf (``--telegraf``, a binary) reads OPC UA, and writes to a file and to Kafka."""
    port = free_port()
    names = ("telegraf-opcua.conf", "telegraf-file.conf", "telegraf-kafka.conf")
    with kafka(folder, "opcua.yaml") as broker:
        copied(folder, *names, localhost_4840=f"localhost:{port}", localhost_9092=broker)
        with started(sys.executable, __file__, "serve-opcua", "--port", str(port), cwd=folder):
            wait_for("the OPC UA server", lambda: answers(port))
            with started(given.telegraf, *(part for name in names for part in ("--config", name)), cwd=folder):
                wait_for("all readings", lambda: lines_of(folder / "reactors.jsonl") >= (BATCHES + 1) * (SAMPLES + 3))
                time.sleep(4)  # a flush of both outputs
    shutil.copy(folder / "reactors.jsonl", KEPT / "opcua.jsonl")
    shutil.copy(folder / "kept" / "reactors-0.records.jsonl", KEPT / "opcua.records.jsonl")


@contextlib.contextmanager
def subscribed(folder: Path, given: argparse.Namespace, names: tuple[str, ...]) -> Iterator[subprocess.Popen[bytes]]:
    """Start Telegraf and wait until it has subscribed."""
    log = folder / f"{given.telegraf.name}.log"
    before = log.stat().st_size if log.exists() else 0
    with started(given.telegraf, *(part for name in names for part in ("--config", name)), cwd=folder) as process:
        wait_for("Telegraf's subscription", lambda: b"Connected" in log.read_bytes()[before:])
        yield process


def sparkplug(folder: Path, given: argparse.Namespace) -> None:
    """Telegraf reads Sparkplug B from mosquitto, and writes to Kafka; ``--proto``: the folder of sparkplug_b.proto.

    With ``--disturb telegraf`` Telegraf is killed amid it and started again later, with ``kafka`` the broker is stopped
    and started: the outcome is compared with the kept one.
    """
    shutil.copy(given.proto / "sparkplug_b.proto", folder)
    names = ("telegraf-sparkplug.conf", "telegraf-file.conf", "telegraf-kafka.conf")
    messages = list(sparkplug_messages())
    with kafka(folder, "sparkplug.yaml") as broker, mosquitto(folder) as port, contextlib.ExitStack() as running:
        copied(folder, *names, localhost_1883=f"localhost:{port}", localhost_9092=broker)
        telegraf = running.enter_context(subscribed(folder, given, names))
        published(port, iter(messages[:60]), 0.02)
        script = (str(ROOT / "scripts/kafka"), "--data", folder / "kafka")
        if given.disturb == "telegraf":
            telegraf.kill()
            telegraf.wait()
        elif given.disturb == "kafka":
            subprocess.run([script[0], "stop", *script[1:]], check=True)
        published(port, iter(messages[60:90]), 0.02)
        if given.disturb == "telegraf":
            running.enter_context(subscribed(folder, given, names))
        elif given.disturb == "kafka":
            ports = ("--port", broker.rpartition(":")[2], "--controller-port", str(free_port()))
            subprocess.run([script[0], "start", *script[1:], *ports], check=True)
        published(port, iter(messages[90:]), 0.02)
        wait_for("the last batch", lambda: f'"B-{BATCHES}"' in (folder / "reactors.jsonl").read_text("utf-8"))
        time.sleep(20 if given.disturb else 4)  # a flush of both outputs, also after a pause between tries
    kept = KEPT / "sparkplug.records.jsonl"
    found = [json.loads(line)["value_base64"] for line in written_lines(folder / "kept" / "reactors-0.records.jsonl")]
    if given.disturb:
        wanted = [json.loads(line)["value_base64"] for line in written_lines(kept)]
        lost, repeated = len({*wanted} - {*found}), len(found) - len({*found})
        sys.stdout.write(f"lost {lost} of {len(wanted)}, repeated {repeated}, same order: {found == wanted}\n")
    else:
        shutil.copy(folder / "kept" / "reactors-0.records.jsonl", kept)


def written_lines(path: Path) -> list[str]:
    """Return the records of a file that ``streamad record`` wrote."""
    return path.read_text("utf-8").splitlines()[1:]


def node_red(folder: Path, given: argparse.Namespace) -> None:
    """Node-RED (``--node-red``, the folder node_modules that has it) reads MQTT and writes to a file."""
    with mosquitto(folder) as port:
        copied(folder, "node-red.json", **{'"1883"': f'"{port}"'})
        program = given.node_red / "node-red" / "red.js"
        options = ("--userDir", folder / "user", "-p", str(free_port()))
        with started("node", program, *options, "node-red.json", cwd=folder):
            wait_for("Node-RED", lambda: b"Connected to broker" in (folder / "node.log").read_bytes())
            published(port, plain_messages(), 0.02)
            wait_for("the last reading", lambda: lines_of(folder / "reactors.jsonl") >= 3 * BATCHES * (SAMPLES + 3))
    shutil.copy(folder / "reactors.jsonl", KEPT / "node-red.jsonl")


def connect(folder: Path, given: argparse.Namespace) -> None:
    """Kafka Connect (``--connect``, a folder with connect-runtime's and connect-file's jars) copies Telegraf's file."""
    shutil.copy(KEPT / "opcua.jsonl", folder / "reactors.jsonl")
    names = ("connect-worker.properties", "connect-file.properties")
    with kafka(folder, "opcua.yaml") as broker:
        copied(folder, *names, localhost_9092=broker)
        worker = ("org.apache.kafka.connect.cli.ConnectStandalone", *names)
        with started("java", "-Xmx256m", "-cp", f"{given.connect}/*", *worker, cwd=folder):
            wait_for("the stored offset", (folder / "connect.offsets").exists)
    shutil.copy(folder / "kept" / "reactors-0.records.jsonl", KEPT / "connect.records.jsonl")


ALL: Final = {"opcua": opcua, "sparkplug": sparkplug, "node-red": node_red, "connect": connect}


def main() -> None:
    """Run one recipe."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recipe", choices=[*ALL, "serve-opcua"])
    for name in ("telegraf", "proto", "node-red", "connect"):
        parser.add_argument(f"--{name}", type=Path, help="see above")
    parser.add_argument("--disturb", choices=["telegraf", "kafka"], help="sparkplug: kill Telegraf, or restart Kafka")
    parser.add_argument("--port", type=int, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.recipe == "serve-opcua":
        asyncio.run(opcua_plant(given.port, 1.0))
        return
    KEPT.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        try:
            ALL[given.recipe](Path(folder), given)
        except BaseException:
            for log in Path(folder).glob("*.log"):
                sys.stderr.write(f"--- {log.name}\n{log.read_text(errors='replace')[-3000:]}\n")
            raise


if __name__ == "__main__":
    main()
