"""Crashes and races: real processes, killed at every step or racing each other."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.support.waiting import LIMIT_S

ROOT = Path(__file__).parents[4]


def run(mode: str, folder: Path) -> Any:
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, "-m", "tests.support.learning.processes", mode, str(folder)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_sigkill_at_every_step_leaves_the_old_or_the_new_model(tmp_path: Path) -> None:
    states = run("crash", tmp_path)
    killed = [state for state in states if state["killed"]]
    assert len(killed) > 40  # otherwise the hook no longer sees what training touches
    assert states[-1]["code"] == 0
    for state in states:
        assert state["current"] in ("0001", "0002"), state
        assert state["loadable"] in (["0001"], ["0001", "0002"]), state
        assert state["after"] == f"{len(state['loadable']) + 1:04d}", state
        assert state["left"] == [], state
    assert {state["current"] for state in killed} == {"0001", "0002"}
    assert any(state["current"] == "0001" and len(state["loadable"]) == 2 for state in killed)


def test_of_two_promotions_over_the_same_champion_exactly_one_wins(tmp_path: Path) -> None:
    for outcome in run("promote", tmp_path):
        assert sorted(outcome["codes"].values()) == [0, 1]
        assert outcome["codes"][outcome["current"]] == 0


def test_concurrent_writers_get_distinct_numbers(tmp_path: Path) -> None:
    outcome = run("publish", tmp_path)
    assert outcome["codes"] == [0, 0, 0, 0]
    assert outcome["versions"] == [f"{number:04d}" for number in range(1, 13)]


def test_a_full_disk_at_any_byte_leaves_no_version(tmp_path: Path) -> None:
    outcome = run("file_size", tmp_path)
    codes = [entry["code"] for entry in outcome["outcomes"]]
    assert set(codes) == {0, 2}
    assert codes.count(2) >= 5
    assert codes == sorted(codes, reverse=True)  # once it fits, it fits
    assert len(outcome["loadable"]) == 1 + codes.count(0)
