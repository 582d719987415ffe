"""What ``streamad run`` is told on the command line wins over the config, wherever the config says it."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from streamad.cli import app
from streamad.commands.replay import replay
from streamad.commands.run.command import run, with_metrics_of, with_options, worker_line
from streamad.commands.score import score
from streamad.commands.shared.figures.report import RunReport
from streamad.commands.web.command import with_address
from streamad.decisions.in_service import config_of, settings_digest
from streamad.errors import StreamadError, UsageError
from streamad.judge.shift import AllowedRate, ManyAlerts
from streamad.learn.registry.registry import NoModelError
from streamad.plant import Plant
from streamad.plugins import split_url
from streamad.settings.plant_yaml import Settings
from streamad.system.clock import SystemClock
from streamad.telemetry.metrics import Counters
from tests.support.runtime.pipeline import model_of


def plant(url: str, **options: object) -> Plant:
    content = {"name": "p", "channels": [{"name": "a"}], "source": {"url": url, "options": options}}
    return Plant(Settings(**content), Path(), SystemClock())  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("query", "left"),
    [
        ("", {}),
        ("?instance=a", {}),
        ("?instance=a&start=latest", {"start": "latest"}),
        ("?start=latest&accept_gap=false&instance=a", {"start": "latest"}),
    ],
)
def test_options_win_over_those_in_the_url(query: str, left: dict[str, str]) -> None:
    changed = with_options(plant(f"kafka://b:9092/t{query}", instance="c"), {"instance": "w1", "accept_gap": True})
    assert split_url(changed.settings.source.url)[2] == left
    assert changed.settings.source.options == {"instance": "w1", "accept_gap": True}


def test_the_config_in_service_is_the_same_in_each_process_of_a_plant() -> None:
    whole = plant("kafka://b:9092/t?instance=a&start=latest", accept_gap=False)
    workers = [with_options(whole, given) for given in ({}, {"instance": "w1"}, {"instance": "w2", "accept_gap": True})]
    assert {config_of(each).digest for each in workers} == {config_of(whole).digest}
    assert config_of(plant("kafka://b:9092/t?instance=a", accept_gap=False)) != config_of(whole)
    assert settings_digest(with_address(whole, None, 9000)) == settings_digest(whole)
    assert settings_digest(with_address(whole, "localhost", None)) != settings_digest(whole)


def test_a_config_from_a_pipe_has_no_digest_of_the_nothing_that_is_left_in_it() -> None:
    reads, writes = os.pipe()
    os.close(writes)
    with os.fdopen(reads), pytest.raises(OSError, match="not a regular file"):
        config_of(replace(plant("a.csv"), config=Path(f"/dev/fd/{reads}")))


def test_an_address_without_options_stays_as_it_is() -> None:
    assert with_options(plant("batch-?.csv"), {}).settings.source.url == "batch-?.csv"


def listening(listen: str | None) -> Plant:
    content = {"channels": [{"name": "a"}], "source": {"url": "a.csv"}, "metrics": {"listen": listen}}
    return Plant(Settings(**content), Path(), SystemClock())  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("listen", "number", "found"),
    [
        ("127.0.0.1:9464", 0, "127.0.0.1:9464"),  # a run without --workers
        ("127.0.0.1:9464", 1, "127.0.0.1:9465"),
        ("[::1]:9464", 12, "[::1]:9476"),
        ("127.0.0.1:0", 3, "127.0.0.1:0"),
        (None, 3, None),
    ],
)
def test_each_worker_has_a_port_of_its_own_for_its_metrics(listen: str | None, number: int, found: str | None) -> None:
    assert with_metrics_of(listening(listen), number).settings.metrics.listen == found


def test_a_worker_says_at_its_end_what_it_could_not_use() -> None:
    counters = Counters().as_dict() | {"alerts": 1, "unscorable": {"late": 2}, "records": 99}
    counters |= {"samples": 95, "late_samples": 3, "displaced": 5, "tombstones": 1}
    report = RunReport(counters | {"dead_letters": {"malformed": 4}}, 1.0, "default", [], [])
    said = worker_line("w-1", report)
    assert said.startswith("worker w-1: 0 sequences judged; 1 alert; unscorable (2 late); ")
    losses = (
        "dead letters: 4 (4 malformed); late samples: 3; displaced: 5 of 99 samples are lost; values of equal times"
    )
    assert losses in said
    assert said.endswith("as evenly spaced (decode.time: row); tombstones: 1 record left out")


def test_a_worker_says_at_its_end_that_far_too_many_alerted() -> None:
    model = model_of()
    allowed, since = AllowedRate(0.02, model.calibration), datetime(2026, 3, 1, tzinfo=UTC)
    many = {"press.a": ManyAlerts(model.ref, allowed, 95, 100, since, None)}
    said = worker_line(
        "w-1", RunReport(Counters().as_dict() | {"alerts": 95}, 1.0, "default", [], [], many_alerts=many)
    )
    assert said.endswith("; far too many alerts of press.a: 95 of 100 judged sequences, see the event many_alerts")


def test_without_a_model_no_worker_is_started(tmp_path: Path) -> None:
    content = {"name": "p", "channels": [{"name": "a"}], "source": {"url": "kafka://127.0.0.1:1/t"}}
    (tmp_path / "plant.yaml").write_text(yaml.safe_dump(content))
    ended = CliRunner().invoke(app, ["run", "--workers", "2", "--config", str(tmp_path / "plant.yaml")])
    assert isinstance(ended.exception, NoModelError)


def test_a_worker_without_a_port_is_an_error() -> None:
    with pytest.raises(UsageError, match="leaves no port for worker 2"):
        with_metrics_of(listening("127.0.0.1:65534"), 2)


@pytest.mark.parametrize("command", [run, replay, score])
@pytest.mark.parametrize(("given", "found"), [(None, "1"), ("3", "3")])
def test_judging_takes_one_thread_unless_the_environment_names_more(
    given: str | None, found: str, command: Callable[..., None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "7")  # so that it is restored after the test
    monkeypatch.delenv("OMP_NUM_THREADS") if given is None else monkeypatch.setenv("OMP_NUM_THREADS", given)
    with pytest.raises(StreamadError, match="cannot read it"):
        command(**{"ctx": None} if command is run else {}, config=tmp_path / "plant.yaml")
    assert os.environ["OMP_NUM_THREADS"] == found
