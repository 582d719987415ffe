"""``streamad explain`` and ``report`` of a plant whose outputs are topics."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from tests.support.kafka.broker import Broker, Message, new_topic, produce, unique_name
from tests.support.runtime.cli import CliPlant
from tests.support.runtime.judged_plant import ROLES, copied, judged_plant


@pytest.fixture(scope="module")
def judged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return judged_plant(tmp_path_factory.mktemp("judged"))


@pytest.fixture
def plant(
    judged: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> CliPlant:
    return CliPlant(copied(judged, tmp_path / "plant"), capsys, monkeypatch)


def move_outputs(plant: CliPlant, broker: Broker, **urls: str) -> None:
    """Move the messages of the sinks' files into topics, and let the config name these."""

    async def filled(role: str) -> str:
        topic = await new_topic(broker)
        lines = (plant.folder / "out" / f"{role}.jsonl").read_bytes().splitlines()
        await produce(broker.bootstrap, topic, [Message(line, b"s") for line in lines])
        return f"kafka://{broker.bootstrap}/{topic}"

    async def all_filled() -> dict[str, str]:
        return {role: await filled(role) for role in ROLES if role not in urls}

    sinks = asyncio.run(all_filled()) | urls
    plant.write_config(model={"detector": "nearest", "options": {}, "references": []}, sinks=sinks)
    for role in ROLES:
        (plant.folder / "out" / f"{role}.jsonl").unlink()


def test_alerts_of_topics_are_explained_and_reported(plant: CliPlant, kafka: Broker) -> None:
    alerts = plant.lines("alerts")
    odd = max(alerts, key=lambda alert: alert["score"])
    wanted = plant("explain", odd["alert_id"][:8], "--json").last_json
    move_outputs(plant, kafka)
    told = plant("explain", odd["alert_id"][:8], "--json", "--plot", "why.png")
    assert told.code == 0, told.err
    assert told.last_json | {"plot": None} == wanted
    assert (plant.folder / "why.png").exists()
    report = plant("report", "--json", "--pictures", "3")
    assert report.code == 0, report.err
    assert (report.last_json["alerts"], report.last_json["pictures"]) == (len(alerts), 3)
    assert report.last_json["notes"] == []


def test_an_unknown_id_names_the_topics(plant: CliPlant, kafka: Broker) -> None:
    move_outputs(plant, kafka)
    told = plant("explain", "0123456789")
    told.assert_one_line_error("kafka://", "--recording FILE")


def test_a_topic_that_is_not_there_is_one_line(plant: CliPlant, kafka: Broker) -> None:
    missing = unique_name("missing")
    odd = json.loads((plant.folder / "out" / "alerts.jsonl").read_text().splitlines()[0])
    move_outputs(plant, kafka, windows=f"kafka://{kafka.bootstrap}/{missing}")
    plant("explain", odd["alert_id"]).assert_one_line_error(missing)


def test_a_broker_that_is_away_is_one_line(plant: CliPlant) -> None:
    urls = dict.fromkeys(ROLES, "kafka://127.0.0.1:1/away?request_timeout=1s")
    plant.write_config(model={"detector": "nearest", "options": {}, "references": []}, sinks=urls)
    plant("explain", "0123456789").assert_one_line_error("no broker can be reached")
    plant("report").assert_one_line_error("no broker can be reached")
