"""Tests of a worker's decisions: which config and which versions judge, once, in the commit that begins with them."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import msgspec
import pytest

from streamad.decisions.chain import Decided, Head, entry_in, linked
from streamad.decisions.recording import TRAINER
from streamad.decisions.worker import InService, Journal, Journals
from streamad.learn.registry.approvals import digest_of
from streamad.learn.registry.registry import Registry
from streamad.messages import DecisionEntry, ModelRef
from streamad.partition_progress import Logged
from streamad.plant import Plant
from streamad.testing import ManualClock
from streamad.types import from_us
from tests.support.runtime.cli import NEAREST, CliPlant
from tests.support.runtime.pipeline import START_US, settings_of

AT = from_us(START_US)
CONFIG = InService("c" * 64, "f" * 64, "0.1.0")
FIRST, SECOND = (ModelRef("m", "0001"), "1" * 64), (ModelRef("m", "0002"), "2" * 64)


def made(journal: Journal, *models: tuple[ModelRef, str]) -> list[DecisionEntry]:
    entries = [record.message for record in journal.entries(models, AT)]
    assert all(isinstance(each, DecisionEntry) for each in entries)
    return entries  # type: ignore[return-value]


def test_an_entry_comes_with_the_first_verdict_by_another_config_or_version_alone() -> None:
    journal = Journal("w", CONFIG, Logged())
    assert made(journal) == []
    config, model = made(journal, FIRST, FIRST)
    assert (config.kind, config.subject, config.details) == (
        "config",
        CONFIG.digest,
        {"file": CONFIG.file, "release": "0.1.0"},
    )
    assert (model.kind, model.subject, model.details, model.number) == ("model", "m 0001", {"digest": FIRST[1]}, 2)
    assert made(journal, FIRST) == []
    assert [each.subject for each in made(journal, FIRST, SECOND, FIRST)] == ["m 0002", "m 0001"]
    anew = Journal("w", CONFIG._replace(digest="d" * 64), journal.logged)
    assert [(each.kind, each.details["before"]) for each in made(anew, FIRST)] == [("config", CONFIG.digest)]
    assert [each.kind for each in made(Journal("w", CONFIG._replace(release="0.2.0"), journal.logged), FIRST)] == [
        "config"
    ]


def test_a_commit_that_is_tried_again_has_the_same_entries() -> None:
    before = Journal("w", CONFIG, Logged())
    made(before, FIRST)
    first, again = (made(Journal("w", CONFIG, before.logged), SECOND) for _ in range(2))
    assert first == again


async def test_what_the_entries_of_a_place_say_is_what_was_logged(tmp_path: Path) -> None:
    journal = Journal("reactor/worker", CONFIG, Logged())
    entries = [*made(journal, FIRST, SECOND), *made(Journal("other", CONFIG, Logged()), FIRST)]
    made_up = linked(Decided("model", "m 0009", "streamad", "program"), journal.writer, Head(2**53 - 1), AT)
    stored = [b"{}", *map(msgspec.json.encode, [*entries, made_up])]
    (tmp_path / "decisions.jsonl").write_bytes(b"".join(each + b"\n" for each in stored))
    settings = settings_of(name="reactor", sinks={"decisions": "decisions.jsonl"})
    journals = Journals(Plant(settings, tmp_path, ManualClock(START_US)), CONFIG, of_partitions=False)
    assert (await journals.of("p", None)).logged == journal.logged
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(journal.logged), type=Logged) == journal.logged


@pytest.fixture
def plant(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> CliPlant:
    """A plant with one version in service and a decision log."""
    plant = CliPlant(tmp_path, capsys, monkeypatch, NEAREST)
    plant.write_recordings("normal", normal=24, odd=0, seed=5)
    plant.write_config(sinks={"decisions": "out/decisions.jsonl"})
    assert plant("train").code == 0
    return plant


def judged(plant: CliPlant, name: str, **sections: object) -> list[DecisionEntry]:
    """Judge one more file and return all entries of the worker, which are whole."""
    plant.write_recordings("new", normal=2, odd=0)
    for path in (plant.folder / "new").iterdir():
        path.rename(plant.folder / "recordings" / f"{name}-{path.name}")
    plant.write_config(sinks={"decisions": "out/decisions.jsonl"}, **sections)
    done = plant("run", "--quiet")
    assert done.code == 0, done.err
    verified = plant("audit", "verify", "--json").last_json
    assert verified["whole"], verified
    return [entry_in(line) for line in (plant.folder / "out/decisions.jsonl").read_bytes().splitlines()]


def test_runs_record_what_judges_once_and_their_chain_goes_on_where_the_last_commit_ended(plant: CliPlant) -> None:
    (plant.folder / "recordings").mkdir()
    config, model = judged(plant, "a")
    registry = Registry(plant.folder / "registry")
    assert config.details["file"] == hashlib.sha256(plant.config.read_bytes()).hexdigest()
    assert (model.subject, model.details["digest"]) == ("default 0001", digest_of(registry.manifest("default", "0001")))
    assert {config.identity, model.identity} == {"program"}
    log = plant.folder / "out/decisions.jsonl"
    committed = log.read_bytes()
    log.write_bytes(committed + committed.splitlines(keepends=True)[-1])  # what a kill before the commit may leave
    assert judged(plant, "b") == [config, model]
    assert log.read_bytes() == committed
    changed = judged(plant, "c", alerts={"false_alarm_rate": 0.2})
    assert [each.kind for each in changed[2:]] == ["config"]
    registry.promote("default", plant("train", "--no-promote", "--json").last_json["version"], expected="0001")
    last = judged(plant, "d", alerts={"false_alarm_rate": 0.2})
    assert [(each.number, each.kind, each.subject) for each in last[3:]] == [(4, "model", "default 0002")]
    (by_train,) = [json.loads(line) for line in (plant.folder / "out/decisions-others.jsonl").read_bytes().splitlines()]
    assert (by_train["kind"], by_train["subject"], by_train["identity"]) == ("promote", "default 0001", "claimed")
    assert TRAINER.who not in by_train["who"]
