"""A run on a followed file with its page beside it, in processes of their own."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.runtime.cli import CliPlant

ROLES = ("verdicts", "alerts", "attributions", "windows", "events")
FOLLOWED = {"url": "live.jsonl", "options": {"follow": True, "follow_interval": "10ms"}}
SINKS = {role: f"out/{role}.jsonl" for role in ROLES}
LEARNING = {"store": "inliers", "feedback": "file:feedback.jsonl", "schedule": None}


def write_live_config(plant: CliPlant, **sections: Any) -> None:
    """Let the plant follow ``live.jsonl`` and write all that a page shows."""
    plant.write_config(**{"source": FOLLOWED, "sinks": SINKS, "web": {"port": 0}, **sections})


def recorded(plant: CliPlant) -> list[str]:
    """Return the plant's recorded sequences, a line each."""
    return (plant.folder / "recordings" / "day.jsonl").read_text().splitlines(keepends=True)


def append(plant: CliPlant, lines: list[str]) -> None:
    """Let the plant write ``lines`` to the file that is followed."""
    with (plant.folder / "live.jsonl").open("a") as file:
        file.writelines(lines)


def lines_of(plant: CliPlant, role: str) -> list[dict[str, Any]]:
    """Return the whole messages of a role so far."""
    path = plant.folder / "out" / f"{role}.jsonl"
    text = path.read_text() if path.exists() else ""
    return [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]


def outputs(plant: CliPlant) -> dict[str, list[dict[str, Any]]]:
    """Return the messages of all roles but for what differs from run to run.

    That is when they were made, and the last digits of what is computed, which depend on what is scored together.
    """
    left = ("created_at", "event_id")
    return {
        role: [{key: _rounded(value) for key, value in one.items() if key not in left} for one in lines_of(plant, role)]
        for role in ROLES
    }


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.4g}")
    if isinstance(value, list):
        return [_rounded(each) for each in value]
    return {key: _rounded(each) for key, each in value.items()} if isinstance(value, dict) else value


def link_of(process: subprocess.Popen[str], said: Callable[[str], bool] = lambda line: line.startswith("open ")) -> str:
    """Read the process's error output up to the page's link, and return it."""
    assert process.stderr is not None
    for line in process.stderr:
        if said(line):
            return line.split()[1]
    raise AssertionError("it ended without a link")


def pid_of_page(process: subprocess.Popen[str]) -> int:
    """Return the id of the page's process, a child of ``process``."""
    found = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    pages = [int(pid) for pid in found if b"\0web\0" in Path(f"/proc/{pid}/cmdline").read_bytes()]
    (pid,) = pages
    return pid


def is_alive(pid: int) -> bool:
    """Return whether a process runs: a zombie does not."""
    try:
        os.kill(pid, 0)
        return ") Z " not in Path(f"/proc/{pid}/stat").read_text()
    except (ProcessLookupError, FileNotFoundError):
        return False


needs_proc = pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="needs /proc")
