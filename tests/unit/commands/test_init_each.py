"""``streamad init`` finds lists of readings and samples below a header, as gateways send them."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from streamad.cli import app
from streamad.commands.shared.plants import load_plant

T0 = 1_772_352_000
Message = dict[str, Any]


def telegraf(n: int, batch: str) -> Message:
    """Each element is a sample, with its tags beside its fields."""
    tags = {"host": "edge1", "unit": "R1", "batch_id": batch}
    fields = {"temp": 20 + math.sin(n), "flow": 5.0 + n % 7}
    return {"metrics": [{"fields": fields, "name": "modbus", "tags": tags, "timestamp": T0 + 10 * n}]}


def gateway(n: int, batch: str) -> Message:
    """Each element is a reading; the time of sending stands beside the list."""
    times = {"q": True, "t": (T0 + 10 * n) * 1000}
    values = [{"id": "L1.temp", "v": 20 + math.sin(n), **times}, {"id": "L1.flow", "v": 5.0 + n % 7, **times}]
    return {"timestamp": (T0 + 10 * n) * 1000 + 120, "batch": batch, "values": values}


def two_machines(n: int, batch: str) -> Message:
    """The id of a reading holds the machine and the tag."""
    at = {"t": T0 + 10 * n}
    values = [{"id": f"Plant.{m}.temp", "v": 20 + math.sin(n), **at} for m in ("R1", "R2")]
    values += [{"id": f"Plant.{m}.flow", "v": 5.0 + n % 7, **at} for m in ("R1", "R2")]
    return {"batch": f"{batch[-1]}", "values": values}


def pubsub(n: int, batch: str) -> Message:
    """OPC UA PubSub: each element holds an object of channels."""
    payload = {"temp": {"Value": 20 + math.sin(n)}, "flow": {"Value": 5.0 + n % 7}}
    sent = f"2026-03-01T{8 + n // 360:02d}:{n // 6 % 60:02d}:{n % 6 * 10:02d}Z"
    inner = {"DataSetWriterId": 7, "Timestamp": sent, "Payload": payload}
    return {"MessageId": f"m{n}", "MessageType": "ua-data", "Batch": batch, "Messages": [inner]}


def of_one_tag(n: int, batch: str) -> Message:
    """The tag stands beside the list of its readings."""
    tag, at = ("temp", "flow")[n % 2], T0 + 20 * (n // 2)
    values = [{"timestamp": {"timeInSeconds": at + 10 * i}, "value": {"doubleValue": n % 7 + i}} for i in range(2)]
    return {"type": "PropertyValueUpdate", "payload": {"batch": batch, "propertyId": tag, "values": values}}


def movement(n: int, batch: str) -> Message:
    """Samples without a time of their own, with one time and a rate beside the list."""
    samples = [{"x": math.sin(n * 8 + i), "y": math.cos(n * 8 + i)} for i in range(8)]
    return {
        "rep": batch,
        "rateHz": 100,
        "utcTime": T0 * 1000 + 80 * n,
        "acc": {"Clock": 5_000 + 80 * n, "list": samples},
    }


@pytest.mark.parametrize(
    ("form", "channels", "fields"),
    [
        (telegraf, ["temp", "flow"], {"each": "metrics", "values": "fields", "sequence": "tags.batch_id"}),
        (gateway, ["temp", "flow"], {"each": "values", "value": "v", "time": "t"}),
        (two_machines, ["temp", "flow"], {"each": "values", "value": "v", "time": "t"}),
        (pubsub, ["temp", "flow"], {"each": "Messages", "time": "Timestamp", "sequence": "Batch"}),
        (
            of_one_tag,
            ["temp", "flow"],
            {"each": "payload.values", "channel": "payload.propertyId", "value": "value.doubleValue"},
        ),
        (movement, ["x", "y"], {"each": "acc.list", "start": "utcTime", "sequence": "rep"}),
    ],
)
def test_lists_are_found_with_the_fields_inside(
    form: Callable[[int, str], Message], channels: list[str], fields: Message, tmp_path: Path
) -> None:
    messages = [form(n, f"B-{n // 40}") for n in range(240)]
    (tmp_path / "list.jsonl").write_text("".join(json.dumps(message) + "\n" for message in messages))
    result = CliRunner().invoke(app, ["init", str(tmp_path / "list.jsonl"), "--out", str(tmp_path / "plant.yaml")])
    assert result.exit_code == 0, result.output
    settings = load_plant(tmp_path / "plant.yaml").settings
    assert [channel.name for channel in settings.channels] == channels
    found = settings.decode.fields
    assert found is not None
    assert {key: getattr(found, key) for key in fields} == fields
    assert f"list         {fields['each']}: each element is a " in result.stdout
    assert f"Each element of {fields['each']} counts as a message" in (tmp_path / "plant.yaml").read_text()
    assert f"sequences    {12 if form is two_machines else 6}: " in result.stdout


def test_fields_around_the_list_are_no_channels(tmp_path: Path) -> None:
    messages = [{**gateway(n, f"B-{n // 40}"), "ambient": 20 + n % 3} for n in range(120)]
    (tmp_path / "list.jsonl").write_text("".join(json.dumps(message) + "\n" for message in messages))
    result = CliRunner().invoke(app, ["init", str(tmp_path / "list.jsonl"), "--out", str(tmp_path / "plant.yaml")])
    assert result.exit_code == 0, result.output
    assert (
        "# Left out: ambient (around the list values: the same in all its elements)."
        in (tmp_path / "plant.yaml").read_text()
    )
