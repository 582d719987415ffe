"""``scripts/demo --web``: a simulated plant runs, is judged and is shown until Ctrl-C, which leaves no process."""

from __future__ import annotations

import csv
import http.cookiejar
import json
import os
import re
import signal
import subprocess
import threading
import time
import urllib.request
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from streamad.judge.verdicts import span_text
from tests.support.environment import make_demo_environment
from tests.support.scripts import SCRIPTS
from tests.support.waiting import LIMIT_S
from tests.support.web.run import is_alive, link_of, needs_proc


@pytest.fixture
def venv(tmp_path: Path) -> Path:
    """The environment that the demo makes."""
    make_demo_environment(tmp_path / "venv")
    return tmp_path / "venv"


@pytest.fixture
def demo(tmp_path: Path, venv: Path) -> Iterator[subprocess.Popen[str]]:
    """The demo, which writes to ``shown`` and is ended after the test if it still runs."""
    process = subprocess.Popen(
        ["bash", SCRIPTS / "demo", "--web", "--out", tmp_path / "shown"],
        env={**os.environ, "VIRTUAL_ENV": str(venv), "STREAMAD_WEB__PORT": "0", "COLUMNS": "200"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    limit = threading.Timer(LIMIT_S, process.terminate)
    limit.start()
    yield process
    limit.cancel()
    process.terminate()
    process.communicate()


def descendants(pid: int) -> list[int]:
    """Return the ids of the processes that ``pid`` started, and of those that they started."""
    children = [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return [*children, *(found for child in children for found in descendants(child))]


def first_warned_of(path: Path, process: subprocess.Popen[str]) -> dict[str, Any]:
    """Return the first verdict in ``path`` of a batch with a warning and an alert, as soon as it is there."""
    while process.poll() is None:
        text = path.read_text() if path.exists() else ""
        for line in text.splitlines(keepends=True):
            if line.endswith("\n") and (verdict := json.loads(line))["decision"] == "anomalous" and verdict["warning"]:
                return dict(verdict)
        time.sleep(0.05)
    raise AssertionError("it ended without a warning of a batch that it alerted on")


def at(time: str) -> datetime:
    return datetime.fromisoformat(time)


def until_shown(link: str, page: str, text: str, process: subprocess.Popen[str]) -> None:
    """Open ``link``, whose token becomes a cookie, and with that a page until it has ``text``."""
    cookies = http.cookiejar.CookieJar()
    browser = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(cookies))
    browser.open(link, timeout=LIMIT_S).close()
    assert len(cookies) == 1
    while process.poll() is None:
        with browser.open(link.partition("?")[0] + page, timeout=LIMIT_S) as answer:
            if text in answer.read().decode():
                return
        time.sleep(0.05)
    raise AssertionError("it ended before the page showed it")


@needs_proc
def test_the_demo_shows_a_running_plant_until_ctrl_c(tmp_path: Path, demo: subprocess.Popen[str]) -> None:
    link = link_of(demo)
    verdict = first_warned_of(tmp_path / "shown" / "out" / "verdicts.jsonl", demo)
    warnings = map(json.loads, (tmp_path / "shown" / "out" / "warnings.jsonl").read_text().splitlines())
    (warning,) = [each for each in warnings if each["warning_id"] == verdict["warning"]["warning_id"]]
    assert at(warning["start_time"]) < at(warning["time"]) < at(verdict["end_time"]) < datetime.now(UTC)
    assert at(verdict["end_time"]) - at(verdict["start_time"]) > timedelta(hours=15)
    lead = span_text((at(verdict["end_time"]) - at(warning["time"])).total_seconds())
    assert "\u00a0h" in lead
    with (tmp_path / "shown" / "live" / "labels.csv").open(newline="") as file:
        assert verdict["sequence"] in [row["sequence"] for row in csv.DictReader(file)]
    until_shown(link, "warnings", f"{lead} later", demo)
    processes = descendants(demo.pid)
    assert len(processes) >= 2, "the run and its page"
    demo.send_signal(signal.SIGINT)
    said, errors = demo.communicate(timeout=LIMIT_S)
    assert demo.returncode == 0, errors
    assert "to end all: Ctrl-C" in said
    (line,) = [line for line in errors.splitlines() if line.startswith("WARN ") and warning["warning_id"][:8] in line]
    assert re.match(rf"WARN {verdict['stream']} {verdict['sequence']} at \d+\s% of the usual length \(\d+\sh", line)
    assert "whole batches were fed" in said
    assert f"to open the page again: cd {tmp_path / 'shown'} && streamad web" in said
    assert [pid for pid in processes if is_alive(pid)] == []


@needs_proc
def test_sigterm_ends_the_demo_during_its_training(demo: subprocess.Popen[str]) -> None:
    assert demo.stdout is not None
    assert any(line.startswith("2/3") for line in demo.stdout)
    processes = descendants(demo.pid)
    demo.send_signal(signal.SIGTERM)
    demo.communicate(timeout=LIMIT_S)
    assert demo.returncode == 130
    assert [pid for pid in processes if is_alive(pid)] == []
