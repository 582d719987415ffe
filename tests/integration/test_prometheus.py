"""The rules of deploy/prometheus on a real Prometheus that scrapes a real worker: each fires on its fault."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.support.runtime.cli import CliPlant, started
from tests.support.web.run import FOLLOWED, append

RULES = Path(__file__).resolve().parents[2] / "deploy" / "prometheus" / "streamad.rules.yml"
LIMIT_S = 120.0
Alerts = set[str]


def tool(name: str) -> str:
    """Return the path of a program of Prometheus; without it skip the test, but fail it in CI."""
    found = shutil.which(name)
    if found:
        return found
    if os.environ.get("CI") == "true":
        pytest.fail(f"CI must test the rules: install {name} (Debian's package prometheus)", pytrace=False)
    pytest.skip(f"needs {name}")


@pytest.mark.parametrize("words", [("check", "rules", "streamad.rules.yml"), ("check", "config", "prometheus.yml"),
                                   ("test", "rules", "streamad.test.yml")])  # fmt: skip
def test_promtool_accepts(words: tuple[str, ...]) -> None:
    done = subprocess.run(
        [tool("promtool"), *words], cwd=RULES.parent, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_rule_says_what_it_is_and_what_to_do_and_is_tested() -> None:
    text = RULES.read_text()
    names = re.findall(r"- alert: (\w+)", text)
    assert len(names) == len(set(names)) == text.count("summary:") == text.count("action:") == 11
    tested = RULES.with_name("streamad.test.yml").read_text()
    assert [name for name in names if f'alertname="{name}"' not in tested] == []


def exprs_of(path: Path) -> list[str]:
    """Return the queries of a dashboard, its variables filled in."""
    panels = json.loads(path.read_text())["panels"]
    found = [target["expr"] for panel in panels for target in panel["targets"]]
    return [each.replace("$job", "streamad").replace("$model", "default") for each in found]


@pytest.mark.parametrize("path", sorted((RULES.parents[1] / "grafana").glob("*.json")), ids=lambda path: path.name)
def test_the_queries_of_a_dashboard_are_valid_and_its_panels_do_not_overlap(path: Path, tmp_path: Path) -> None:
    rules = [{"record": f"a:{number}", "expr": expr} for number, expr in enumerate(exprs_of(path))]
    (tmp_path / "rules.yml").write_text(json.dumps({"groups": [{"name": "a", "rules": rules}]}))
    command = [tool("promtool"), "check", "rules", str(tmp_path / "rules.yml")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    cells = [
        (x, y)
        for panel in json.loads(path.read_text())["panels"]
        for x in range(panel["gridPos"]["x"], panel["gridPos"]["x"] + panel["gridPos"]["w"])
        for y in range(panel["gridPos"]["y"], panel["gridPos"]["y"] + panel["gridPos"]["h"])
    ]
    assert len(cells) == len(set(cells))
    assert max(x for x, _ in cells) == 23


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def shortened(rules: str) -> str:
    """Return the rules with their times made short: the windows 30 s, the waits 1 s, 20 sequences for 200."""
    rules = re.sub(r"\[\d+[mhd]\]", "[30s]", rules)
    rules = re.sub(r"for: \d+[mh]", "for: 1s", rules)
    return rules.replace(">= 200", ">= 10").replace(">= 20\n", ">= 10\n")


@contextmanager
def prometheus(folder: Path, target: int) -> Iterator[Callable[[], Alerts]]:
    """Run Prometheus, which scrapes the port ``target``; yield what returns the names of the alerts that fire."""
    port = free_port()
    folder.mkdir()
    (folder / "rules.yml").write_text(shortened(RULES.read_text()))
    (folder / "prometheus.yml").write_text(
        "global: {scrape_interval: 250ms, evaluation_interval: 250ms}\nrule_files: [rules.yml]\nscrape_configs:\n"
        f"  - {{job_name: streamad, static_configs: [{{targets: ['127.0.0.1:{target}']}}]}}\n"
    )
    options = ["--config.file=prometheus.yml", "--storage.tsdb.path=data", f"--web.listen-address=127.0.0.1:{port}"]
    with (folder / "log").open("w") as log:
        process = subprocess.Popen([tool("prometheus"), *options], cwd=folder, stdout=log, stderr=log)
    try:

        def alerts() -> Alerts:
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{port}/api/v1/alerts", timeout=10) as answer:
                    found = json.load(answer)["data"]["alerts"]
            except OSError:  # it has not begun
                return set()
            return {one["labels"]["alertname"] for one in found if one["state"] == "firing"}

        yield alerts
    finally:
        process.kill()
        process.wait()


def wait_for(alerts: Callable[[], Alerts], *names: str) -> None:
    """Wait until all ``names`` fire, at once or one after the other."""
    end, missing = time.monotonic() + LIMIT_S, set(names)
    while missing := missing - alerts():
        assert time.monotonic() < end, f"{missing} did not fire; {alerts()} do"
        time.sleep(0.1)


def message(name: str, n: int, shift: float = 0.0, *, end: bool = True) -> str:
    rows = [[20.0 + shift * (-1) ** i, 12.0 - shift * (-1) ** i] for i in range(n)]
    at = 1_767_225_600.0 + 100 * int(name.partition("-")[2] or 0)
    content: dict[str, Any] = {"stream": "r1", "sequence": name, "times": [at + i for i in range(n)], "values": rows}
    return json.dumps(content | ({"end": True} if end else {})) + "\n"


def test_each_fault_brings_its_rule_to_fire(plant: CliPlant, tmp_path: Path) -> None:
    port = free_port()
    plant.write_recordings("normal", normal=40, odd=0, seed=5)
    plant.write_config(
        source=FOLLOWED,
        model={"detector": "ensemble", "options": {}},
        alerts={"false_alarm_rate": 0.1},
        metrics={"listen": f"127.0.0.1:{port}"},
        sequences={"end": ["marker"]},
    )
    assert plant("train").code == 0
    with prometheus(tmp_path / "prometheus", port) as alerts:
        wait_for(alerts, "StreamadDown")
        with started("run", "--quiet", cwd=plant.folder) as process:
            _until_ready(port)
            append(plant, ["{\n"])
            append(plant, [message(f"s-{number}", 1) for number in range(20)])
            append(plant, [message(f"s-{number}", 12, 900.0) for number in range(20, 40)])
            wait_for(alerts, "StreamadDeadLetters", "StreamadManyUnscorable", "StreamadManyAlerts")
            process.send_signal(signal.SIGKILL)
            process.wait()
            wait_for(alerts, "StreamadDown")
        for _ in range(4):
            with started("run", "--quiet", cwd=plant.folder) as process:
                _until_ready(port)
                process.send_signal(signal.SIGKILL)
                process.wait()
        wait_for(alerts, "StreamadRestarts")


def _until_ready(port: int) -> None:
    """Wait until the worker is ready and was scraped, which the scrape's counter in the process shows."""
    end = time.monotonic() + LIMIT_S
    while True:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=10) as answer:
                assert answer.read() == b"ready\n"
                time.sleep(1.0)  # four scrapes
                return
        except OSError:
            assert time.monotonic() < end, "the worker is not ready"
            time.sleep(0.05)
