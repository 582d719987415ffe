"""A real Prometheus with the rules of deploy/prometheus, their times shortened, that scrapes a worker of a test."""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

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


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def shortened(rules: str, window: str) -> str:
    """Return the rules with their times made short: the windows ``window``, the waits 1 s, 10 sequences for 200."""
    rules = re.sub(r"\[\d+[mhd]\]", f"[{window}]", rules)
    rules = re.sub(r"for: \d+[mh]", "for: 1s", rules)
    return rules.replace(">= 200", ">= 10").replace(">= 20\n", ">= 10\n")


@contextmanager
def prometheus(
    folder: Path, target: int, *, interval: str = "250ms", window: str = "30s"
) -> Iterator[Callable[[], Alerts]]:
    """Run Prometheus, which scrapes the port ``target``; yield what returns the names of the alerts that fire.

    ``window`` stands for all windows of the rules.
    """
    port = free_port()
    folder.mkdir()
    (folder / "rules.yml").write_text(shortened(RULES.read_text(), window))
    (folder / "prometheus.yml").write_text(
        f"global: {{scrape_interval: {interval}, evaluation_interval: {interval}}}\nrule_files: [rules.yml]\n"
        "scrape_configs:\n"
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


def until_ready(port: int) -> None:
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
