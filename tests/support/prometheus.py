"""A real Prometheus with the rules of deploy/prometheus, their waits shortened, that scrapes a worker of a test."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from tests.support.ports import free_port
from tests.support.waiting import LIMIT_S

RULES = Path(__file__).resolve().parents[2] / "deploy" / "prometheus" / "streamad.rules.yml"
Alerts = set[str]
_SCRAPED = "timestamp(process_start_time_seconds)"


def tool(name: str) -> str:
    """Return the path of a program of Prometheus; without it skip the test, but fail it in CI."""
    found = shutil.which(name)
    if found:
        return found
    if os.environ.get("CI") == "true":
        pytest.fail(f"CI must test the rules: install {name} (Debian's package prometheus)", pytrace=False)
    pytest.skip(f"needs {name}")


def shortened(rules: str) -> str:
    """Return the rules with waits of 1 s, and 10 sequences for 200 and for 20.

    Their windows stay, so that it does not matter how long a fault takes on a busy machine.
    """
    rules = re.sub(r"for: \d+[mh]", "for: 1s", rules)
    return rules.replace(">= 200", ">= 10").replace(">= 20\n", ">= 10\n")


class Prometheus:
    """A Prometheus that runs; a call returns the names of the alerts that fire."""

    def __init__(self, port: int) -> None:
        self._port = port

    def __call__(self) -> Alerts:
        """Return the names of the alerts that fire; none if it has not begun."""
        return {one["labels"]["alertname"] for one in self._get("alerts", "alerts") if one["state"] == "firing"}

    def values(self, query: str) -> list[float]:
        """Return the present values of ``query``; none if it has not begun."""
        return [float(one["value"][1]) for one in self._get(f"query?query={quote(query)}", "result")]

    def _get(self, path: str, key: str) -> list[dict[str, Any]]:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self._port}/api/v1/{path}", timeout=LIMIT_S) as answer:
                found: list[dict[str, Any]] = json.load(answer)["data"][key]
        except OSError:
            return []
        return found


@contextmanager
def prometheus(folder: Path, target: int, *, interval: str = "250ms") -> Iterator[Prometheus]:
    """Run Prometheus, which scrapes the port ``target``."""
    port = free_port()
    folder.mkdir()
    (folder / "rules.yml").write_text(shortened(RULES.read_text()))
    (folder / "prometheus.yml").write_text(
        f"global: {{scrape_interval: {interval}, evaluation_interval: {interval}}}\nrule_files: [rules.yml]\n"
        "scrape_configs:\n"
        f"  - {{job_name: streamad, static_configs: [{{targets: ['127.0.0.1:{target}']}}]}}\n"
    )
    options = ["--config.file=prometheus.yml", "--storage.tsdb.path=data", f"--web.listen-address=127.0.0.1:{port}"]
    with (folder / "log").open("w") as log:
        process = subprocess.Popen([tool("prometheus"), *options], cwd=folder, stdout=log, stderr=log)
    try:
        yield Prometheus(port)
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


def until_ready(port: int, prometheus: Prometheus | None = None) -> None:
    """Wait until the worker is ready, and ``prometheus`` has scraped it since: what it counts then is an increase."""
    end = time.monotonic() + LIMIT_S
    while not is_ready(port):
        assert time.monotonic() < end, "the worker is not ready"
        time.sleep(0.05)
    ready_s = time.time()
    while prometheus is not None and not any(at_s > ready_s for at_s in prometheus.values(_SCRAPED)):
        assert time.monotonic() < end, "the worker is not scraped"
        time.sleep(0.05)


def is_ready(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=LIMIT_S) as answer:
            return bool(answer.read() == b"ready\n")
    except OSError:
        return False
