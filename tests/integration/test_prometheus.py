"""The rules of deploy/prometheus on a real Prometheus that scrapes a real worker: each fires on its fault."""

from __future__ import annotations

import json
import re
import signal
import subprocess
from pathlib import Path

import pytest
import yaml

from streamad.settings.fields import parse_duration_us
from streamad.settings.plant_yaml import RunSettings
from tests.support.ports import free_port
from tests.support.prometheus import RULES, message, prometheus, tool, until_ready, wait_for
from tests.support.runtime.cli import CliPlant, started
from tests.support.waiting import LIMIT_S
from tests.support.web.run import FOLLOWED, append


@pytest.mark.parametrize(
    "words",
    [
        ("check", "rules", "streamad.rules.yml"),
        ("check", "config", "prometheus.yml"),
        ("check", "config", "prometheus.compose.yml"),
        ("test", "rules", "streamad.test.yml"),
    ],
)
def test_promtool_accepts(words: tuple[str, ...]) -> None:
    done = subprocess.run(
        [tool("promtool"), *words], cwd=RULES.parent, capture_output=True, text=True, timeout=LIMIT_S, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_rule_says_what_it_is_and_what_to_do_and_is_tested() -> None:
    text = RULES.read_text()
    names = re.findall(r"- alert: (\w+)", text)
    assert len(names) == len(set(names)) == text.count("summary:") == text.count("action:") == 12
    tested = RULES.with_name("streamad.test.yml").read_text()
    assert [name for name in names if f'alertname="{name}"' not in tested] == []


def test_a_scorer_that_hangs_is_told_before_the_worker_ends_itself() -> None:
    (rule,) = [
        rule
        for group in yaml.safe_load(RULES.read_text())["groups"]
        for rule in group["rules"]
        if rule["alert"] == "StreamadNotCommitting"
    ]
    windows = [parse_duration_us(found) for found in re.findall(r"\[(\w+)\]", rule["expr"])]
    assert max(windows) + parse_duration_us(rule["for"]) < RunSettings().stall_timeout


def test_the_docs_and_the_examples_name_the_job_of_the_rules() -> None:
    (job,) = set(re.findall(r'job="(\w+)"', RULES.read_text()))
    for name in ("prometheus.yml", "prometheus.compose.yml"):
        (scraped,) = yaml.safe_load(RULES.with_name(name).read_text())["scrape_configs"]
        assert scraped["job_name"] == job
    page = RULES.parents[2] / "docs" / "guide" / "operating.md"
    assert f"Call the scrape job `{job}`" in page.read_text("utf-8")


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
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    cells = [
        (x, y)
        for panel in json.loads(path.read_text())["panels"]
        for x in range(panel["gridPos"]["x"], panel["gridPos"]["x"] + panel["gridPos"]["w"])
        for y in range(panel["gridPos"]["y"], panel["gridPos"]["y"] + panel["gridPos"]["h"])
    ]
    assert len(cells) == len(set(cells))
    assert max(x for x, _ in cells) == 23


def test_each_fault_brings_its_rule_to_fire(untrained_plant: CliPlant, tmp_path: Path) -> None:
    plant = untrained_plant
    port = free_port()
    plant.write_recordings("normal", normal=40, odd=0, seed=5)
    plant.write_config(
        source=FOLLOWED,
        model={"detector": "nearest", "options": {}, "references": []},
        alerts={"false_alarm_rate": 0.1},
        metrics={"listen": f"127.0.0.1:{port}"},
        sequences={"end": ["marker"]},
    )
    assert plant("train").code == 0
    with prometheus(tmp_path / "prometheus", port) as alerts:
        wait_for(alerts, "StreamadDown")
        with started("run", "--quiet", cwd=plant.folder) as process:
            until_ready(port, alerts)
            append(plant, ["{\n"])
            append(plant, [message(f"s-{number}", 1) for number in range(20)])
            append(plant, [message(f"s-{number}", 12, 900.0) for number in range(20, 40)])
            wait_for(alerts, "StreamadDeadLetters", "StreamadManyUnscorable", "StreamadManyAlerts")
            process.send_signal(signal.SIGKILL)
            process.wait()
            wait_for(alerts, "StreamadDown")
        for _ in range(3):  # the rule allows two
            with started("run", "--quiet", cwd=plant.folder) as process:
                until_ready(port, alerts)
                process.send_signal(signal.SIGKILL)
                process.wait()
        wait_for(alerts, "StreamadRestarts")
