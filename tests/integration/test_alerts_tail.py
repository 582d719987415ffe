"""``streamad alerts tail`` and the example of docs/guide/subscribe.md on files."""

from __future__ import annotations

import json
import re
import signal
import time
from pathlib import Path

import msgspec
import pytest

from tests.support.runtime.cli import CliPlant, started, until_line
from tests.support.waiting import LIMIT_S
from tests.support.web.messages import warning_of

DOC = (Path(__file__).parents[2] / "docs/guide/subscribe.md").read_text(encoding="utf-8")


@pytest.fixture
def judged(plant: CliPlant) -> CliPlant:
    """A plant that has run, with alerts in a file."""
    plant.write_config(sinks={"alerts": "out/alerts.jsonl"})
    assert plant("run --quiet").code == 0
    return plant


def alerts_of(plant: CliPlant) -> list[str]:
    return (plant.folder / "out/alerts.jsonl").read_text().splitlines()


def test_it_prints_the_alerts_of_the_config_as_run_does(plant: CliPlant) -> None:
    plant.write_config(sinks={"alerts": "out/alerts.jsonl"})
    printed = plant("run").err
    n = len(alerts_of(plant))
    assert n >= 2
    outcome = plant("alerts tail --from-start --limit", str(n))
    assert outcome.code == 0, outcome.err
    lines = outcome.out.splitlines()
    assert len(lines) == n
    assert all(line.startswith("ALERT ") for line in lines)
    without_why = [re.sub(r"  because of .*(?=  id )", "", line) for line in printed.splitlines()]
    assert set(lines) <= set(without_why)
    ids = [json.loads(line)["alert_id"][:8] for line in alerts_of(plant)]
    assert [line.rpartition("  id ")[2] for line in lines] == ids


def test_it_prints_why_the_alerts_were_raised_from_the_attributions_sink(plant: CliPlant) -> None:
    plant.write_config(sinks={"alerts": "out/alerts.jsonl", "attributions": "out/attributions.jsonl"})
    printed = plant("run").err
    stored = [json.loads(line) for line in (plant.folder / "out/attributions.jsonl").read_text().splitlines()]
    follow = "alerts tail --url file:out/attributions.jsonl --from-start --limit"
    lines = plant(follow, str(len(stored)), config=False).out.splitlines()
    assert len(lines) == len(stored) >= 2
    for line, message in zip(lines, stored, strict=True):
        assert line.startswith(f"WHY {message['stream']} {message['sequence']}  because of ")
        assert message["segments"]
        assert message["segments"][0]["text"] in line
        assert line.partition("  because of ")[2] in printed


def test_it_prints_the_warnings_of_their_sink(plant: CliPlant) -> None:
    warning = warning_of(1)
    (plant.folder / "warnings.jsonl").write_bytes(msgspec.json.encode(warning) + b"\n")
    outcome = plant("alerts tail --url file:warnings.jsonl --no-follow", config=False)
    said = "WARN reactor-1 B-1 at 54\u00a0% of the usual length (27\u00a0s)  p 0.0100  id "
    assert outcome.out == f"{said}{warning.warning_id[:8]}\n"


def test_it_prints_json_of_a_url_and_a_group_goes_on(judged: CliPlant) -> None:
    stored = [json.loads(line) for line in alerts_of(judged)]
    tail = "alerts tail --url file:out/alerts.jsonl --group desk --json --limit"
    first = judged(tail, "1", config=False)
    rest = judged(tail, str(len(stored) - 1), config=False)
    assert [json.loads(line) for line in (first.out + rest.out).splitlines()] == stored


@pytest.mark.parametrize("name", ["empty.jsonl", "missing.jsonl"])
def test_no_follow_ends_where_nothing_is_and_says_so_in_plain_text(judged: CliPlant, name: str) -> None:
    (judged.folder / "empty.jsonl").write_text("")
    outcome = judged(f"alerts tail --url {name} --no-follow --limit 1", config=False)
    note = "note: there is no such file yet\n" if name.startswith("missing") else ""
    assert (outcome.code, outcome.out, outcome.err) == (0, "", note)


def test_no_follow_prints_what_is_there_and_with_a_group_what_is_new(judged: CliPlant) -> None:
    stored = [json.loads(line) for line in alerts_of(judged)]
    assert [json.loads(line) for line in judged("alerts tail --no-follow --json").out.splitlines()] == stored
    first = judged("alerts tail --no-follow --json --group desk --limit 1").out
    rest = judged("alerts tail --no-follow --json --group desk").out
    assert [json.loads(line) for line in (first + rest).splitlines()] == stored
    assert judged("alerts tail --no-follow --json --group desk").out == ""


def test_a_file_that_is_not_there_yet_is_waited_for_with_a_note_in_plain_text(judged: CliPlant) -> None:
    with started("alerts", "tail", "--url", "later.jsonl", "--limit", "1", "--json", cwd=judged.folder) as process:
        until_line(process, "note: there is no such file yet: waiting for it")
        (judged.folder / "later.jsonl").write_text(alerts_of(judged)[0] + "\n")
        out, err = process.communicate(timeout=LIMIT_S)
    assert (process.returncode, json.loads(out), err) == (0, json.loads(alerts_of(judged)[0]), "")


def test_ctrl_c_ends_it_with_exit_code_0_and_new_alerts_are_printed(judged: CliPlant) -> None:
    path = judged.folder / "out/alerts.jsonl"
    lines = alerts_of(judged)
    with started("alerts", "tail", "--from-start", "--json", cwd=judged.folder) as process:
        assert process.stdout is not None
        assert [json.loads(process.stdout.readline()) for _ in lines] == [json.loads(line) for line in lines]
        later = {**json.loads(lines[0]), "sequence": "later"}
        with path.open("a") as file:
            file.write(json.dumps(later) + "\n")
        assert json.loads(process.stdout.readline())["sequence"] == "later"
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=LIMIT_S)
    assert (process.returncode, out, err) == (0, "", "following out/alerts.jsonl, Ctrl-C ends\n")


def test_unscorable_sequences_are_shown(plant: CliPlant) -> None:
    verdict = {
        "type": "verdict",
        "verdict_id": "v",
        "stream": "reactor-1",
        "sequence": "B-9",
        "decision": "unscorable",
        "reason": "gap",
        "start_time": "2026-01-01T00:00:00Z",
        "end_time": "2026-01-01T00:00:00Z",
        "n_samples": 1,
        "detail": "too short",
        "created_at": "2026-01-01T00:00:00Z",
        "schema_version": 2,
    }
    normal = {**verdict, "decision": "normal"}
    (plant.folder / "a.jsonl").write_text(f"{json.dumps(normal)}\n{json.dumps(verdict)}\n")
    outcome = plant("alerts tail --url a.jsonl --from-start --limit 1", config=False)
    assert outcome.out == "UNSCORABLE reactor-1 B-9  too short\n"


def test_a_place_that_cannot_be_followed_is_a_one_line_error(judged: CliPlant) -> None:
    judged("alerts tail --url stdout:", config=False).assert_one_line_error("no subscription 'stdout'", code=2)
    judged("alerts tail --url a.jsonl").assert_one_line_error("--config and --url", code=2)
    away = judged("alerts tail --url kafka://127.0.0.1:1/alerts?request_timeout=1s", config=False)
    following, error = away.err.splitlines()
    assert following == "following kafka://127.0.0.1:1/alerts, Ctrl-C ends"
    assert error.startswith("error: kafka 127.0.0.1:1: no broker can be reached")


@pytest.fixture
def _documented_program(tmp_path: Path) -> None:
    (program,) = re.findall(r"```python\n(import asyncio.*?)```", DOC, re.DOTALL)
    (tmp_path / "follow.py").write_text(program)


@pytest.mark.usefixtures("_documented_program")
def test_the_documented_program_misses_no_alert_though_it_is_killed(judged: CliPlant, tmp_path: Path) -> None:
    path, todo = judged.folder / "out/alerts.jsonl", tmp_path / "todo.txt"
    wanted = {json.loads(line)["sequence"] for line in alerts_of(judged)}

    def done() -> set[str]:
        return set(re.findall(r"after batch (\S+) \(p = ", todo.read_text())) if todo.exists() else set()

    def follow(until: set[str]) -> None:
        with started(f"file:{path}", program=["follow.py"], cwd=tmp_path) as process:
            while not until <= done():
                assert process.poll() is None, process.communicate()
                time.sleep(0.02)  # another process does the work

    follow(wanted)
    last = alerts_of(judged)[-1]
    with path.open("a") as file:
        file.write(json.dumps({**json.loads(last), "sequence": "later"}) + "\n")
    follow(wanted | {"later"})


@pytest.mark.usefixtures("_documented_program")
def test_the_documented_program_ends_by_ctrl_c_and_its_error_is_one_line(judged: CliPlant, tmp_path: Path) -> None:
    url = "kafka://127.0.0.1:1/alerts?request_timeout=1s"
    with started(url, program=["follow.py"], cwd=tmp_path) as process:
        _, err = process.communicate(timeout=LIMIT_S)
    assert process.returncode == 1
    assert re.fullmatch(r"error: kafka 127.0.0.1:1: no broker can be reached: .*\n", err), err
    path, todo = judged.folder / "out/alerts.jsonl", tmp_path / "todo.txt"
    with started(f"file:{path}", program=["follow.py"], cwd=tmp_path) as process:
        while not todo.exists() and process.poll() is None:
            time.sleep(0.02)  # another process does the work
        process.send_signal(signal.SIGINT)
        assert process.communicate(timeout=LIMIT_S) == ("", "")
    assert process.returncode == 0
