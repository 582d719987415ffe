"""The law of docs/internals/exactly-once.md: wherever it crashed, the outputs are those of a run without a crash."""

from __future__ import annotations

import asyncio
import json
import os
import random
import sys
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest

from streamad.judge.bank import ModelBank
from streamad.judge.scoring import MicroBatcher, ModelInService
from streamad.messages import ModelRef
from streamad.plugins import ConnectorContext
from streamad.runtime.checkpoint import LocalCommitter
from streamad.runtime.pipeline import Pipeline
from streamad.settings.plant_yaml import Settings
from streamad.system.files import sync_folder
from streamad.system.output_files import output_files
from streamad.testing import ListSource
from streamad.types import Record
from streamad_connectors.files.sink import JsonlSink, JsonlSinkOptions
from tests.support.runtime.disk import Disk
from tests.support.runtime.pipeline import (
    ROLES,
    TickingClock,
    explainer_of,
    messy_recordings,
    model_of,
    outputs,
    records_of,
    routed,
    settings_of,
)

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the dying disk finds paths in /proc")

MODES: dict[str, dict[str, Any]] = {
    "marker-change": {"end": ["marker", "change"], "allowed_lateness": "3s"},
    "gap-length": {"end": ["gap", "length"], "gap": "3s", "length": 6, "allowed_lateness": "2s"},
    "several-models": {"end": ["marker", "change"], "allowed_lateness": "2s"},
}
ROTATE = 300
"""Windows go to another file after so many bytes: a crash may hit the change, and a start may cut back to before it."""


class AtOnce:
    """In place of a thread: what it is given is done at once."""

    def __init__(self, **_: object) -> None:
        pass

    def submit(self, function: Callable[..., Any], *args: Any) -> Future[Any]:
        done: Future[Any] = Future()
        done.set_result(function(*args))
        return done

    def shutdown(self, **_: object) -> None:
        pass


@pytest.fixture(autouse=True)
def many_commits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reading waits for commits, and no thread decides how many sequences each of them holds."""
    monkeypatch.setattr("streamad.runtime.submitter._MOST_JUDGED_BYTES", 0)
    for module in ("bank", "scoring"):
        monkeypatch.setattr(f"streamad.judge.{module}.ThreadPoolExecutor", AtOnce)


def plant(mode: str) -> Settings:
    models = {"field": "recipe"} if mode == "several-models" else None
    run = {"commit_interval": "1ms", "batch_windows": 1}
    # With a learner every judged window is written, with its share.
    learning = {"process": "elsewhere"} if mode == "gap-length" else None
    return settings_of(sequences=MODES[mode], run=run, models=models, learning=learning)


def recordings(seed: int) -> dict[str, list[Record]]:
    return {
        "p0": records_of(routed(messy_recordings(seed, streams=["a", "b"], sequences=5), seed)),
        "p1": records_of(routed(messy_recordings(seed + 50, streams=["c"], sequences=4), seed)),
    }


def version_of(name: str) -> ModelInService:
    """The one version of the model ``name``."""
    known = model_of()
    return ModelInService(ModelRef(name, "0001"), known.scorer, known.calibration, known.reference)


async def life(settings: Settings, folder: Path, partitions: dict[str, list[Record]]) -> int:
    """Run once, from what the disk holds to the end of the input or a crash; returns the number of commits."""
    clock = TickingClock(0.001)
    context = ConnectorContext(settings.channel_specs, clock, folder)
    options = {role: JsonlSinkOptions(rotate=ROTATE if role == "windows" else None) for role in ROLES}
    sinks = {role: JsonlSink(f"out/{role}.jsonl", options[role], context) for role in ROLES}
    committer = LocalCommitter(folder / "checkpoint", sinks, {role: f"out/{role}.jsonl" for role in ROLES})
    batcher = (
        ModelBank(settings, clock, version_of) if settings.models else MicroBatcher(model_of(), clock, settings.run)
    )
    source = ListSource.of(partitions, batch_records=3)
    pipeline = Pipeline(
        settings,
        source,
        committer,
        batcher,
        clock,
        explainer=explainer_of(settings, clock),
        with_verdicts=True,
        with_windows=True,
    )
    try:
        await pipeline.run()
    finally:
        await batcher.close()
        await committer.close()
    return pipeline.counters.commits


@pytest.mark.parametrize(("synced", "left"), [((), {"old"}), (("folder",), {""}), (("content", "folder"), {"new"})])
def test_the_disk_loses_what_was_renamed_without_a_sync(
    tmp_path: Path, synced: tuple[str, ...], left: set[str]
) -> None:
    """The content of a new file and its name are two things to sync; a file that has only its name is empty."""
    (tmp_path / "state").write_text("old")
    with Disk(tmp_path, loses_power=True) as disk:
        with (tmp_path / "new").open("w") as file:
            file.write("new")
            file.flush()
            if "content" in synced:
                os.fsync(file.fileno())
        (tmp_path / "new").replace(tmp_path / "state")
        if "folder" in synced:
            sync_folder(tmp_path)
        disk.is_dead = True
    assert {path.read_text() for path in tmp_path.iterdir()} == left


@pytest.fixture
def crash_free(tmp_path: Path) -> Callable[[str, int], dict[str, list[str]]]:
    def run(mode: str, seed: int) -> dict[str, list[str]]:
        commits = asyncio.run(life(plant(mode), tmp_path / "crash-free", recordings(seed)))
        assert commits > 6
        return outputs(tmp_path / "crash-free")

    return run


@pytest.mark.parametrize(
    ("mode", "loses_power"), [("marker-change", True), ("gap-length", False), ("several-models", False)]
)
def test_a_crash_at_any_operation_changes_no_output(
    mode: str, loses_power: bool, tmp_path: Path, crash_free: Callable[[str, int], dict[str, list[str]]]
) -> None:
    expected = crash_free(mode, 2)
    assert all(expected[role] for role in ROLES if role != "events")
    assert len(output_files(tmp_path / "crash-free" / "out" / "windows.jsonl")) > 2
    names = {(json.loads(text).get("model") or {}).get("name") for text in expected["verdicts"]}
    assert names == ({None, "default", "default.A", "default.B"} if mode == "several-models" else {"test"})
    crashes = 0
    while True:
        folder = tmp_path / f"{crashes}"
        with Disk(folder, crashes + 1, loses_power=loses_power) as disk:
            asyncio.run(life(plant(mode), folder, recordings(2)))
        if not disk.is_dead:
            break
        crashes += 1
        with Disk(folder):
            asyncio.run(life(plant(mode), folder, recordings(2)))
        assert outputs(folder) == expected, f"after a crash at operation {crashes}"
    assert crashes > 60
    assert outputs(folder) == expected


@pytest.mark.parametrize("seed", range(12))
def test_many_crashes_in_a_row_change_no_output(
    seed: int, tmp_path: Path, crash_free: Callable[[str, int], dict[str, list[str]]]
) -> None:
    rng = random.Random(seed)
    mode = rng.choice(list(MODES))
    expected = crash_free(mode, seed)
    folder, crashes = tmp_path / "run", 0
    while True:
        with Disk(folder, rng.randrange(1, 50), loses_power=rng.random() < 0.5) as disk:
            asyncio.run(life(plant(mode), folder, recordings(seed)))
        if not disk.is_dead:
            break
        crashes += 1
        assert crashes < 200, "no progress"
    assert crashes >= 1
    assert outputs(folder) == expected


def test_the_next_run_writes_nothing_new_unless_a_recording_was_appended_to(tmp_path: Path) -> None:
    records = recordings(4)
    early = {partition: own[: len(own) // 2] for partition, own in records.items()}
    settings = plant("marker-change")
    asyncio.run(life(settings, tmp_path, early))
    first, before = outputs(tmp_path), {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()}
    asyncio.run(life(settings, tmp_path, early))
    assert {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()} == before
    asyncio.run(life(settings, tmp_path, records))
    second = outputs(tmp_path)
    for role in ROLES:
        assert set(first[role]) <= set(second[role])
        assert len(set(second[role])) == len(second[role])
    assert len(second["verdicts"]) > len(first["verdicts"])
