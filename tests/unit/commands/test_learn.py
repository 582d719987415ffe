"""streamad learn: one learner at a time, what it takes from a store of shards, and what is said of it."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from streamad.cli import app
from streamad.errors import UsageError
from streamad.messages import SHARES
from streamad.system.locks import is_locked, try_lock
from tests.support.learning.stored import LEARNING, identity, plant_of, store_of
from tests.support.waiting import LIMIT_S

SHARDS = Path(__file__).parents[2] / "support" / "learning" / "workers_store"
SAID: dict[str, Any] = json.loads(SHARDS.with_suffix(".json").read_text(encoding="utf-8"))
KEPT = {"max_training": 50, "max_age": "3650d", "first_training": 40}


def learn(config: Path, *arguments: str | Path) -> Result:
    return CliRunner().invoke(app, ["learn", "--present", *map(str, arguments), "--config", str(config)])


def plant_of_shards(folder: Path, **sections: Any) -> Path:
    """Return the config of the plant whose workers wrote the shards."""
    given: dict[str, Any] = {
        "channels": [{"name": "temp_c", "unit": "degC"}, {"name": "flow"}],
        "window": {"length": 6},
        "learning": {**LEARNING, **KEPT},
    }
    return plant_of(folder, **{**given, **sections})


def feedback(config: Path, alert_id: str) -> None:
    done = CliRunner().invoke(app, ["feedback", "--alert", alert_id, "--veto", "--config", str(config)])
    assert done.exit_code == 0, done.output


# --- learning ---


def test_without_learning_it_is_refused(tmp_path: Path) -> None:
    result = learn(plant_of(tmp_path, learning=None))
    assert isinstance(result.exception, UsageError)
    assert "no section learning" in str(result.exception)


@pytest.mark.parametrize("process", ["here", "elsewhere"])
def test_it_learns_what_is_there_whoever_starts_it_and_ends(tmp_path: Path, process: str) -> None:
    config = plant_of(tmp_path, learning={"process": process})
    feedback(config, identity(1))
    result = learn(config)
    assert result.exit_code == 0, result.output
    assert result.stdout == "default: 0 accepted, 0 reserved, 0 aside; 0 trainings, 0 promoted\n"
    assert set(store_of(config).marks()) == {identity(1)}
    names = {path.name for path in (tmp_path / "inliers").iterdir() if not path.name.startswith("inliers.sqlite3-")}
    assert names == {"inliers.sqlite3", "learner.json", "learner.lock"}
    assert not is_locked(tmp_path / "inliers/learner.lock")


def test_a_second_learner_waits_for_the_end_of_the_first_and_says_so_once(tmp_path: Path) -> None:
    config = plant_of(tmp_path)
    (tmp_path / "inliers").mkdir()
    lock = try_lock(tmp_path / "inliers/learner.lock")
    assert lock is not None
    feedback(config, identity(1))
    command = [sys.executable, "-m", "streamad", "learn", "--present", "--config", str(config)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        guard = threading.Timer(LIMIT_S, process.kill)
        guard.start()
        assert "another learner works on this store: waiting for its end" in process.stderr.readline()
        assert not (tmp_path / "inliers/inliers.sqlite3").exists()
        os.close(lock)
        out, err = process.communicate()
        guard.cancel()
    assert (process.returncode, err) == (0, "")
    assert out.startswith("default: ")
    assert set(store_of(config).marks()) == {identity(1)}


def test_ctrl_c_ends_the_wait_for_another_learner(tmp_path: Path) -> None:
    config = plant_of(tmp_path)
    (tmp_path / "inliers").mkdir()
    lock = try_lock(tmp_path / "inliers/learner.lock")
    assert lock is not None
    command = [sys.executable, "-m", "streamad", "learn", "--config", str(config)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        guard = threading.Timer(LIMIT_S, process.kill)
        guard.start()
        assert "waiting for its end" in process.stderr.readline()
        process.send_signal(signal.SIGINT)
        _, err = process.communicate()
        guard.cancel()
    assert process.returncode == 0, err
    assert "Traceback" not in err
    assert not (tmp_path / "inliers/inliers.sqlite3").exists()
    os.close(lock)


# --- a store of shards ---


def test_a_store_of_shards_is_imported_once(tmp_path: Path) -> None:
    config = plant_of_shards(tmp_path)
    for _ in range(2):
        result = learn(config, "--import", SHARDS)
        assert result.exit_code == 0, result.output
        assert "not imported" not in result.stderr
        store = store_of(config)
        for share in SHARES:
            assert [one.id for one in store.read(share)] == [one["id"] for one in SAID["sequences"][share]]
        assert set(store.marks()) == {mark["id"] for mark in SAID["marks"]}


def test_a_folder_is_named_from_the_config_and_a_damaged_file_is_a_note(tmp_path: Path) -> None:
    config = plant_of_shards(tmp_path)
    shutil.copytree(SHARDS, tmp_path / "old")
    damaged = max((tmp_path / "old/default/reserve").iterdir())
    damaged.write_bytes(damaged.read_bytes()[:-9])
    result = learn(config, "--import", "old")
    assert result.exit_code == 0, result.output
    (line,) = [line for line in result.stderr.splitlines() if line.startswith("note: not imported: ")]
    assert damaged.name in line
    assert store_of(config).read("accepted")


def test_a_model_that_is_none_of_the_plant_is_not_imported(tmp_path: Path) -> None:
    config = plant_of_shards(tmp_path)
    shutil.copytree(SHARDS / "default", tmp_path / "old/foreign")
    result = learn(config, "--import", "old")
    assert "note: not imported: foreign is no model of this plant" in result.stderr
    assert sum(store_of(config).counts().values()) == 0


def test_shards_in_the_folder_of_the_store_are_named_with_the_command_that_takes_them(tmp_path: Path) -> None:
    config = plant_of_shards(tmp_path)
    shutil.copytree(SHARDS, tmp_path / "inliers")
    said = " ".join(learn(config).stderr.split())
    assert "holds shards of default, which are not used: `streamad learn --import inliers` takes them" in said
    learn(config, "--import", "inliers")
    assert sum(map(len, map(store_of(config).read, SHARES))) == sum(map(len, SAID["sequences"].values()))
    assert "shards" not in learn(config).stderr
