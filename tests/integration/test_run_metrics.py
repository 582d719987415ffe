"""``streamad run`` with ``metrics.listen``: what docs/guide/operating.md shows, a port in use, scrapes amid a stop."""

from __future__ import annotations

import http.client
import re
import signal
import socket
import threading
import time
import urllib.request
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
import yaml

from tests.support.ports import free_port
from tests.support.runtime.cli import NEAREST, CliPlant, started, streamad
from tests.support.waiting import LIMIT_S
from tests.support.web.run import append, recorded, write_live_config

MODEL = NEAREST

PAGE = Path(__file__).resolve().parents[2] / "docs" / "guide" / "operating.md"


def asked(url: str, is_right: Callable[[str], bool] = bool) -> str:
    """Return what ``url`` answers once it ``is_right``."""
    end = time.monotonic() + LIMIT_S
    while True:
        with suppress(OSError), urllib.request.urlopen(url, timeout=LIMIT_S) as answer:
            text: str = answer.read().decode()
            if is_right(text):
                return text
        assert time.monotonic() < end, f"{url} does not answer as it should"
        time.sleep(0.05)


def test_the_first_run_of_the_page_works_as_written(plant: CliPlant) -> None:
    text = PAGE.read_text(encoding="utf-8")
    (config,) = re.findall(r"```yaml\n# plant.yaml\n(.*?)```", text, re.DOTALL)
    urls = dict(re.findall(r"curl (http://127.0.0.1:9464/\w+) +# (.*)", text))
    assert len(urls) == 2
    port = free_port()
    given = yaml.safe_load(config.replace("9464", str(port)))
    write_live_config(plant, **given)
    append(plant, recorded(plant))
    with started("run", cwd=plant.folder) as process:
        ready, metrics = (url.replace("9464", str(port)) for url in urls)
        assert asked(ready).strip() == urls[ready.replace(str(port), "9464")]
        assert asked(metrics, lambda text: 'verdicts_total{decision="anomalous"' in text and "_total 16.0" in text)
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=LIMIT_S)
    assert process.returncode == 0, said


def test_a_learner_that_no_run_has_started_serves_its_own(plant: CliPlant) -> None:
    port = free_port()
    learning = {"process": "elsewhere", "first_training": 500}
    write_live_config(plant, learning=learning, metrics={"listen": f"127.0.0.1:{port}"}, run={"checkpoint": None})
    windows = plant.folder / "out" / "windows.jsonl"
    windows.parent.mkdir(exist_ok=True)
    windows.write_text('{"type": "window"}\n')
    with started("learn", cwd=plant.folder) as process:
        url = f"http://127.0.0.1:{port}"
        assert asked(f"{url}/readyz")
        metrics = asked(f"{url}/metrics", lambda text: 'streamad_events_total{kind="window_skipped"} 1.0' in text)
        assert 'streamad_inliers_total{model="default",share="accepted"} 0.0' in metrics
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=LIMIT_S)
    assert process.returncode == 0, said


def test_a_port_in_use_ends_the_run_in_one_line(plant: CliPlant) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        write_live_config(plant, metrics={"listen": f"127.0.0.1:{port}"})
        outcome = streamad("run", cwd=plant.folder)
    outcome.assert_one_line_error(f"metrics.listen: 127.0.0.1:{port} cannot be listened at", code=outcome.code)
    assert outcome.code != 0


def test_scrapes_amid_the_stop_hold_nothing_up(plant: CliPlant) -> None:
    port = free_port()
    write_live_config(plant, metrics={"listen": f"127.0.0.1:{port}"})
    append(plant, recorded(plant))
    with started("run", "--quiet", cwd=plant.folder) as process:
        asked(f"http://127.0.0.1:{port}/readyz")
        stopping = threading.Event()

        def scrape() -> None:
            while not stopping.is_set():
                try:
                    urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=LIMIT_S).read()
                except (OSError, http.client.HTTPException):
                    time.sleep(0.01)

        threads = [threading.Thread(target=scrape) for _ in range(4)]
        for each in threads:
            each.start()
        with socket.create_connection(("127.0.0.1", port)):  # asks nothing
            process.send_signal(signal.SIGTERM)
            _, said = process.communicate(timeout=LIMIT_S)
        stopping.set()
        for each in threads:
            each.join()
    assert process.returncode == 0, said


@pytest.mark.parametrize(
    ("listen", "said"),
    [(9464, "no address with a port"), ("9464", "no address with a port"), ("::1:9464", "in brackets")],
)
def test_a_wrong_address_is_named(plant: CliPlant, listen: str | int, said: str) -> None:
    write_live_config(plant, metrics={"listen": listen})
    outcome = plant("check")
    assert outcome.code != 0
    assert "metrics.listen" in outcome.out + outcome.err
    assert said in " ".join((outcome.out + outcome.err).split())


def test_replay_and_train_open_no_port(plant: CliPlant) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        plant.write_config(metrics={"listen": f"127.0.0.1:{taken.getsockname()[1]}"})
        assert plant("replay recordings --quiet").code == 0
