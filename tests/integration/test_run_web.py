"""``streamad run --web``: the page beside a run can neither hurt nor outlive it."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import os
import shutil
import signal
import socket
import subprocess
import threading
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.runtime.cli import NEAREST, CliPlant, started, until_line
from tests.support.waiting import LIMIT_S
from tests.support.web.run import (
    append,
    is_alive,
    lines_of,
    link_of,
    needs_proc,
    outputs,
    pid_of_page,
    recorded,
    write_live_config,
)
from tests.support.web.site import served

MODEL = NEAREST


async def until(is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(LIMIT_S):
        while not is_so():  # noqa: ASYNC110 - other processes set no event
            await asyncio.sleep(0.02)


def health(link: str) -> Any:
    with urllib.request.urlopen(link.partition("?")[0] + "health", timeout=LIMIT_S) as answer:
        return json.load(answer)


def end(process: subprocess.Popen[str]) -> str:
    """End the run as Ctrl-C does; return the rest of what it said."""
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=LIMIT_S)
    assert process.returncode == 0, said
    return said


@pytest.fixture
def undisturbed(plant: CliPlant) -> dict[str, list[dict[str, Any]]]:
    """What a run without a page writes of the recorded sequences."""
    write_live_config(plant, source={"url": "live.jsonl"})
    append(plant, recorded(plant))
    assert plant("run --quiet").code == 0
    found = outputs(plant)
    assert len(found["verdicts"]) == 16
    assert found["alerts"]
    for left in ("out", "checkpoint"):
        shutil.rmtree(plant.folder / left)
    (plant.folder / "live.jsonl").unlink()
    return found


@needs_proc
@pytest.mark.parametrize("trouble", [signal.SIGKILL, signal.SIGSTOP])
async def test_a_page_that_is_killed_or_hangs_leaves_the_run_as_it_is(
    plant: CliPlant, undisturbed: dict[str, list[dict[str, Any]]], trouble: signal.Signals
) -> None:
    write_live_config(plant)
    lines = recorded(plant)
    append(plant, lines[:8])
    with started("run", "--web", "--quiet", cwd=plant.folder) as process:
        link = link_of(process)
        assert (await asyncio.to_thread(health, link))["status"] == "ok"
        await until(lambda: len(lines_of(plant, "verdicts")) == 8)
        page = pid_of_page(process)
        os.kill(page, trouble)
        append(plant, lines[8:])
        await until(lambda: len(lines_of(plant, "verdicts")) == len(lines))
        said = await asyncio.to_thread(end, process)
    assert outputs(plant) == undisturbed
    assert not is_alive(page)
    assert ("the page was killed by signal 9; the run goes on" in said) == (trouble == signal.SIGKILL)


@needs_proc
def test_after_a_finite_run_the_page_stays_until_ctrl_c(plant: CliPlant) -> None:
    plant.write_config(web={"port": 0})
    with started("run", "--web", "--quiet", cwd=plant.folder) as process:
        link = link_of(process)
        until_line(process, "the run has ended; the page stays until Ctrl-C")
        page = pid_of_page(process)
        assert health(link)["status"] == "ok"
        end(process)
    assert not is_alive(page)


@needs_proc
async def test_a_killed_run_takes_its_page_with_it(plant: CliPlant) -> None:
    write_live_config(plant)
    with started("run", "--web", "--quiet", cwd=plant.folder) as process:
        link_of(process)
        page = pid_of_page(process)
        process.kill()
        await until(lambda: not is_alive(page))


@needs_proc
def test_a_run_that_fails_takes_its_page_with_it(plant: CliPlant) -> None:
    write_live_config(plant, source={"url": "nowhere/*.jsonl"})
    with started("run", "--web", "--quiet", cwd=plant.folder) as process:
        _, said = process.communicate(timeout=LIMIT_S)
        assert process.returncode == 1
    assert [line for line in said.splitlines() if line.startswith("error: ")]


def test_a_page_that_a_file_of_tests_shares_outlasts_the_limit_of_one_test(
    plant: CliPlant, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant.write_config(web={"port": 0})
    limits: list[threading.Timer] = []

    def noted(limit: threading.Timer) -> None:
        limits.append(limit)

    monkeypatch.setattr(threading.Timer, "start", noted)
    with served(plant.folder) as link:
        for limit in limits:
            assert limit.finished.is_set(), "it would kill the page under the tests"
        assert health(link)["status"] == "ok"
    assert limits


def test_a_port_in_use_is_said_and_the_run_goes_on(plant: CliPlant, taken: int) -> None:
    plant.write_config()
    with started("run", "--web", "--port", str(taken), "--quiet", "--json", cwd=plant.folder) as process:
        written, said = process.communicate(timeout=LIMIT_S)
        assert process.returncode == 0
    assert json.loads(written)["sequences"] == 16
    assert f"the page cannot listen at 127.0.0.1:{taken}" in said
    assert "the page ended with exit code 1; the run goes on" in said
    assert "stays" not in said


@pytest.fixture
def taken() -> Iterator[int]:
    """A port that another program has."""
    with socket.create_server(("127.0.0.1", 0)) as other:
        yield other.getsockname()[1]


@pytest.mark.parametrize("command", ["run --web", "web"])
def test_without_the_extra_there_is_one_clear_error_before_anything_starts(
    plant: CliPlant, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    plant.write_config()
    find_spec = importlib.util.find_spec
    monkeypatch.setattr(
        "streamad.commands.shared.plants.find_spec", lambda name: None if name == "uvicorn" else find_spec(name)
    )
    before = plant.files()
    plant(command).assert_one_line_error("the page needs uvicorn: pip install 'streamad-monitor[web]'", code=2)
    assert plant.files() == before


def test_the_port_belongs_to_the_page(untrained_plant: CliPlant) -> None:
    untrained_plant("run --port 0").assert_one_line_error("--port is the page's: use it with --web", code=2)


def test_with_workers_a_file_source_is_refused_before_a_page_starts(plant: CliPlant) -> None:
    write_live_config(plant)
    plant("run --web --workers 2").assert_one_line_error("cannot be shared among processes", code=2)
    assert not Path(plant.folder / "view.sqlite3").exists()
