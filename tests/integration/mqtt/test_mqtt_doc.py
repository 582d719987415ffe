"""The commands of docs/guide/mqtt.md, as they stand there, and its sections of a config."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import msgspec
import yaml

from streamad.ingest.decode import Decoder
from streamad.settings.plant_yaml import Settings
from streamad.types import Record
from streamad_connectors.mqtt.options import MqttInletOptions
from tests.support.environment import ROOT
from tests.support.ingest.decoded import block_in
from tests.support.mosquitto import Mosquitto
from tests.support.waiting import LIMIT_S

DOC = (ROOT / "docs/guide/mqtt.md").read_text("utf-8")
TYPED = [line.removeprefix("$ ") for line in re.findall(r"```console\n(.*?)```", DOC, re.DOTALL)[0].splitlines()]
SECTIONS = [yaml.safe_load(text) for text in re.findall(r"```yaml\n(.*?)```", DOC, re.DOTALL)]
ROW = re.compile(r"^- `([a-z_.]+)`(.*?) \(`(.+?)`\): .+\.$", re.MULTILINE)


QUICK = {"STREAMAD_MODEL__DETECTOR": "pca", "STREAMAD_MODEL__REFERENCES": "[]"}
"""A training of a second; what the lines say stays the same."""


def test_each_line_works_from_a_broker_to_alerts(tmp_path: Path) -> None:
    """It takes 15 s: six commands, each of which imports what it needs. Fewer batches train than in the docs."""
    broker = Mosquitto(tmp_path / "broker")
    scripts = tmp_path / "bin"
    scripts.mkdir()
    (scripts / "streamad").write_text(f'#!/bin/sh\nexec {sys.executable} -m streamad "$@"\n')
    (scripts / "streamad").chmod(0o755)
    paths = os.pathsep.join(path for path in sys.path if path)
    path = f"{scripts}:{os.environ.get('PATH', os.defpath)}"
    environment = {**os.environ, "PATH": path, "PYTHONPATH": paths, **QUICK}
    plant, log = tmp_path / "plant", tmp_path / "bridge.log"
    plant.mkdir()
    broker.start()
    # The port is another one: a broker of the machine may have the usual one.
    typed = [line.replace("localhost/", f"localhost:{broker.port}/").replace(" 200 ", " 80 ") for line in TYPED]
    assert typed[0].endswith(" &")
    with log.open("wb") as said:
        bridge = subprocess.Popen(
            ["bash", "-c", f"exec {typed[0].removesuffix(' &').replace('streamad ', 'streamad -v ', 1)}"],
            cwd=plant, env=environment, stdout=said, stderr=said,
        )  # fmt: skip
    try:
        _until(lambda: '"connected"' in log.read_text(), log)
        n_lines, told = 0, ""
        for line in typed[1:]:
            done = subprocess.run(
                ["bash", "-c", line], cwd=plant, env=environment, capture_output=True, text=True, timeout=LIMIT_S,
                check=False,
            )  # fmt: skip
            assert (done.returncode, "Traceback" in done.stderr) == (0, False), f"{line}\n{done.stdout}\n{done.stderr}"
            told = done.stdout + done.stderr
            if sent := re.search(r"(\d+) samples in \d+ messages", told):
                n_lines += int(sent[1])
                _until(lambda: (plant / "samples.jsonl").read_text().count("\n") == n_lines, log)  # noqa: B023 - at once
        assert len(re.findall(r"^ALERT fermenter-\d ", told, re.MULTILINE)) >= 5
    finally:
        bridge.terminate()
        bridge.wait(LIMIT_S)
        broker.kill()


def _until(is_so: Callable[[], bool], log: Path) -> None:
    end = time.monotonic() + LIMIT_S
    while not is_so():
        assert time.monotonic() < end, log.read_text()
        time.sleep(0.05)


def test_the_sections_are_valid_and_read_what_the_bridge_writes() -> None:
    whole, decode = SECTIONS
    channels = [{"name": "temp_c"}]
    plant = Settings(channels=channels, **whole)
    assert plant.bridge is not None
    MqttInletOptions.model_validate(plant.bridge.options)
    reading = Settings(channels=channels, source={"url": "kafka://kafka:9092/samples"}, **decode)
    decoder = Decoder(reading.decode, reading.channels)
    found = block_in(decoder, Record(0, b"21.5", 1_772_352_930_000_000, b"r1", label="plant/r1/temp_c"))
    assert found is not None
    assert (found.stream, found.values.item()) == ("r1", 21.5)


def test_the_table_names_every_option_with_its_default() -> None:
    rows = {name: default for name, _, default in ROW.findall(DOC.partition("## Options")[2])}
    defaults = msgspec.to_builtins(MqttInletOptions().model_dump(mode="json"))
    for name, default in rows.items():
        value = defaults
        for part in name.split("."):
            value = value[part]
        given = yaml.safe_load(default)
        fields = {"topics": given} if name == "topics" else {name: given}
        if "." not in name:
            assert getattr(MqttInletOptions.model_validate(fields), name) == getattr(MqttInletOptions(), name), name
        else:
            assert value == given, name
    named = set(rows) | {"security.key_file", "security.key_password"}
    security = {f"security.{name}" for name in defaults["security"]}
    assert named == (set(defaults) - {"security"}) | security
