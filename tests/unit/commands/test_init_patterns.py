"""streamad init: names of channels that begin with their stream's become a pattern; the config reads them."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Sequence
from pathlib import Path

import pytest
from typer.testing import CliRunner

from streamad.bridge.lines import line_of
from streamad.cli import app
from streamad.commands.shared.plants import load_plant
from streamad.runtime.recordings import read_sequences
from streamad.runtime.wiring import source_for
from streamad.settings.plant_yaml import Settings
from streamad.telemetry.metrics import Counters
from streamad.types import FeedRecord

T0 = 1_772_352_930


def init(folder: Path, names: Sequence[str], **more: str) -> tuple[Settings, str, dict[str, int]]:
    """Run init on readings of these names; return the settings, what it said, and the sequences of each stream."""
    rng = random.Random(3)
    lines = [
        json.dumps({"id": name, "t": T0 + 10 * i, "v": round(rng.gauss(20, 3), 2), "lot": f"B{i // 30}", **more})
        for i in range(120)
        for name in names
    ]
    sample, config = folder / "sample.jsonl", folder / "plant.yaml"
    sample.write_text("\n".join(lines))
    result = CliRunner().invoke(app, ["init", str(sample), "--out", str(config)])
    assert result.exit_code == 0, result.output or result.exception

    async def read() -> dict[str, int]:
        plant, counters, found = load_plant(config), Counters(), dict[str, int]()
        async for one in read_sequences(plant.settings, source_for(plant), plant.clock, counters):
            assert one.n_samples == 30
            found[one.stream] = found.get(one.stream, 0) + 1
        assert not counters.dead_letters
        return found

    return load_plant(config).settings, result.output, asyncio.run(read())


@pytest.mark.parametrize(
    ("parts", "streams"),
    [("Plant.{stream}.{channel}", ["R1", "R2"]), ("{stream}/{channel}", ["c", "d"]),
     ("Plant/Hall 2/{stream}/{channel}", ["R1"])],
)  # fmt: skip
def test_names_of_stream_and_channel_are_split(parts: str, streams: list[str], tmp_path: Path) -> None:
    names = [parts.format(stream=stream, channel=channel) for stream in streams for channel in ("temp", "flow", "rpm")]
    settings, output, found = init(tmp_path, names)
    fields = settings.decode.fields
    assert fields is not None
    assert fields.pattern is not None
    assert (fields.pattern.field, fields.pattern.parts, fields.value) == ("id", parts, "v")
    assert [channel.name for channel in settings.channels] == ["temp", "flow", "rpm"]
    assert found == dict.fromkeys(streams, 4)
    assert f"stream       id, as in {parts}" in output
    assert f"id names the stream, too: {', '.join(streams)} in {parts!r} (decode.fields.pattern)" in output


@pytest.mark.parametrize(
    ("names", "more"),
    [
        (["TIC-101.PV", "TIC-101.SP", "FIC-102.PV", "FIC-102.SP"], {}),
        (["TIC-101.PV", "FIC-102.PV", "JI-103.PV"], {}),
        (["Plant.R1.temp", "Plant.R1.flow"], {"unit": "R1"}),
        (["a.temp", "a.flow", "b.rpm", "c.level"], {}),
        (["temp", "flow"], {}),
    ],
)
def test_other_names_stay_whole(names: list[str], more: dict[str, str], tmp_path: Path) -> None:
    settings, _, _ = init(tmp_path, names, **more)
    assert settings.decode.fields is not None
    assert settings.decode.fields.pattern is None
    assert [channel.field or channel.name for channel in settings.channels] == names


def test_the_file_of_a_bridge_is_found_though_the_channels_come_in_bursts(tmp_path: Path) -> None:
    """Bare numbers, a topic for each channel, times of receipt: a second between samples, a millisecond within one."""
    rng, at_us, lines = random.Random(0), T0 * 1_000_000, []
    for _ in range(12):
        for i in range(rng.randrange(40, 60)):
            at_us += 1_000_000
            for stream in ("r1", "r2"):
                for place, channel in enumerate(("temp_c", "pressure_bar")):
                    value = f"{20 + i / 30 + rng.gauss(0, 0.1):.3f}".encode()
                    record = FeedRecord(value, b"", at_us + 1_000 * place, label=f"plant/{stream}/{channel}")
                    lines.append(line_of(record, with_topic=True))
        at_us += 120_000_000
    sample, config = tmp_path / "sample.jsonl", tmp_path / "plant.yaml"
    sample.write_bytes(b"\n".join(lines) + b"\n")
    result = CliRunner().invoke(app, ["init", str(sample), "--out", str(config)])
    assert result.exit_code == 0, result.output or result.exception
    settings = load_plant(config).settings
    fields, gap, grid = settings.decode.fields, settings.sequences.gap, settings.window.resample
    assert fields is not None
    assert fields.pattern is not None
    assert (fields.pattern.field, fields.pattern.parts) == ("mqtt_topic", "plant/{stream}/{channel}")
    assert (fields.time, fields.value) == ("mqtt_time", "value")
    assert [channel.name for channel in settings.channels] == ["temp_c", "pressure_bar"]
    assert gap is not None
    assert 2_000_000 < gap < 120_000_000
    assert grid is not None
    assert grid.period == 1_000_000
    assert "24: " in result.output


@pytest.mark.parametrize(("topic", "more"), [("werk/{}/messung", {}), ("{}/samples", {"nr": 4})])
def test_of_a_bridge_s_objects_the_topic_names_the_stream_and_the_sender_the_time(
    topic: str, more: dict[str, int], tmp_path: Path
) -> None:
    rng, lines = random.Random(0), []
    for i in range(120):
        for stream in ("L1", "L2"):
            sent = {"zeit": T0 + 10 * i, "charge": f"C-{i // 30}", "werte": {"t": rng.gauss(20, 3)}} | more
            value, received_us = json.dumps(sent).encode(), (T0 + 10 * i) * 1_000_000 + 7
            record = FeedRecord(value, b"", received_us, label=topic.format(stream))
            lines.append(line_of(record, with_topic=True))
    sample, config = tmp_path / "sample.jsonl", tmp_path / "plant.yaml"
    sample.write_bytes(b"\n".join(lines) + b"\n")
    result = CliRunner().invoke(app, ["init", str(sample), "--out", str(config)])
    assert result.exit_code == 0, result.output or result.exception
    fields = load_plant(config).settings.decode.fields
    assert fields is not None
    assert fields.pattern is not None
    assert (fields.pattern.field, fields.pattern.parts) == ("mqtt_topic", topic.format("{stream}"))
    assert (fields.time, fields.sequence, fields.values) == ("zeit", "charge", "werte")
    assert f"mqtt_topic names the stream: L1, L2 in {topic.format('{stream}')!r}" in result.output
    assert "sequences    8: 30 samples" in result.output


def test_streams_that_take_turns_with_equal_times_are_no_rows_of_one_time(tmp_path: Path) -> None:
    """Else the time of receipt, which differs in every row, would be taken."""
    rng, lines = random.Random(0), []
    for i in range(120):
        for stream in ("L1", "L2", "L3"):
            sent = {"zeit": T0 + 5 * i, "t": rng.gauss(20, 3)}
            received_us = (T0 + 5 * i) * 1_000_000 + rng.randrange(200_000)
            record = FeedRecord(json.dumps(sent).encode(), b"", received_us, label=f"plant/{stream}/samples")
            lines.append(line_of(record, with_topic=True))
    sample, config = tmp_path / "sample.jsonl", tmp_path / "plant.yaml"
    sample.write_bytes(b"\n".join(lines) + b"\n")
    result = CliRunner().invoke(app, ["init", str(sample), "--out", str(config)])
    assert result.exit_code == 0, result.output or result.exception
    fields = load_plant(config).settings.decode.fields
    assert fields is not None
    assert fields.time == "zeit"
    assert "guessed      the time is zeit; mqtt_time would do as well" in result.output


def test_a_single_topic_is_the_stream_so_that_a_second_device_does_not_join_the_first(tmp_path: Path) -> None:
    rng, sample, config = random.Random(0), tmp_path / "sample.jsonl", tmp_path / "plant.yaml"
    sent = [{"topic": "plant/L1", "time": T0 + i, "charge": f"C-{i // 30}", "t": rng.gauss(20, 3)} for i in range(120)]
    sample.write_text("".join(f"{json.dumps(each)}\n" for each in sent))
    result = CliRunner().invoke(app, ["init", str(sample), "--out", str(config)])
    assert result.exit_code == 0, result.output or result.exception
    fields = load_plant(config).settings.decode.fields
    assert fields is not None
    assert (fields.stream, fields.sequence) == ("topic", "charge")
    assert "topic names the stream: another topic would be another stream" in result.output
