"""``streamad score --out``: the verdicts of ``score --json``, file by file, by whichever workers, also after a kill."""

from __future__ import annotations

import fcntl
import importlib
import json
import random
import signal
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from tests.support.runtime.cli import CliPlant, Outcome, started
from tests.support.waiting import LIMIT_S

PLUGINS = Path(__file__).parents[1] / "support" / "plugins"
N_FILES, A_FILE = 4, 5
_LOOK_S = 0.01


@pytest.fixture
def plant(
    tmp_path_factory: pytest.TempPathFactory, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> CliPlant:
    """A plant without torch: four files of recordings, and a model whose scorer can wait or kill its process."""
    monkeypatch.syspath_prepend(PLUGINS)
    plant = CliPlant(tmp_path_factory.mktemp("plant"), capsys, monkeypatch)
    configure(plant)
    plant.write_recordings("normal", normal=24, odd=0, seed=5)
    for number in range(N_FILES):
        write_file(plant, number)
    assert plant("train").code == 0
    return plant


def configure(plant: CliPlant, **sections: Any) -> None:
    model = {"detector": "mean_square", "options": {}, "references": [], **sections.pop("model", {})}
    plant.write_config(model=model, **sections)


def write_file(plant: CliPlant, number: int, *, seed: int = 0, n: int = A_FILE) -> Path:
    rng = random.Random(number + 100 * seed)
    path = plant.folder / "recordings" / f"day {number}.jsonl"
    path.parent.mkdir(exist_ok=True)
    start_s = 1_000.0 * number
    path.write_text(
        "".join(
            CliPlant.message("r1", f"B-{number}-{i}", start_s + 30.0 * i, rng, odd=i % 3 == 0) + "\n" for i in range(n)
        )
    )
    return path


def printed(plant: CliPlant) -> dict[str, dict[str, Any]]:
    """What ``score --json`` prints, by id, less the time of the judgement."""
    verdicts = [json.loads(line) for line in plant("score --json").out.splitlines()]
    assert len(verdicts) == N_FILES * A_FILE
    return {each["verdict_id"]: _same_form(each) for each in verdicts}


def written(folder: Path) -> dict[str, dict[str, Any]]:
    rows = [row for path in sorted((folder / "verdicts").glob("*.parquet")) for row in pq.read_table(path).to_pylist()]
    found = {row["verdict_id"]: _same_form(row) for row in rows}
    assert len(found) == len(rows), "a sequence is judged twice"
    return found


def _same_form(verdict: Mapping[str, Any]) -> dict[str, Any]:
    form = {name: value for name, value in verdict.items() if name not in ("created_at", "type")}
    for name in ("start_time", "end_time"):
        if not isinstance(form[name], str):
            form[name] = form[name].isoformat().replace("+00:00", "Z")
    return form | {"batch": dict(form["batch"]), "model": form["model"] and dict(form["model"])}


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (folder / "verdicts").iterdir()}


def counts(outcome: Outcome) -> tuple[int, int, int]:
    """Return how many files were judged, kept, and failed."""
    said = outcome.last_json
    return said["judged"], said["kept"], len(said["failed"])


def test_two_processes_of_which_one_is_killed_give_the_verdicts_that_are_printed_bit_for_bit(plant: CliPlant) -> None:
    wanted = printed(plant)
    assert plant("score --out alone").code == 0
    assert written(plant.folder / "alone") == wanted
    deaths = plant.folder / "deaths"
    deaths.write_text("1")
    configure(plant, model={"options": {"deaths": str(deaths)}})
    outcome = plant("score --json --jobs 2 --out two")
    assert (outcome.code, counts(outcome)) == (0, (N_FILES, 0, 0)), outcome.err
    assert deaths.read_text() == "0"
    assert written(plant.folder / "two") == wanted
    assert counts(plant("score --json --out two")) == (0, N_FILES, 0)


def test_a_worker_that_looks_whether_to_die_waits_while_another_one_takes_a_death(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(PLUGINS)
    detector = importlib.import_module("streamad_test_detector")
    (tmp_path / "shape.json").write_text("[1, 2]")
    deaths = tmp_path / "deaths"
    scorer = detector.MeanSquare(detector.MeanSquareOptions(deaths=deaths)).load(tmp_path, device="cpu")
    with ThreadPoolExecutor(1) as pool, deaths.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        scored = pool.submit(scorer.score, np.ones((2, 1, 2), np.float32), np.full(2, 2))
        assert wait({scored}, timeout=0.2).not_done, "it read a file that is being written"
        file.write("0")
        file.close()
        assert scored.result(LIMIT_S).tolist() == [[1.0], [1.0]]


def test_a_unit_whose_process_dies_twice_is_named_and_the_others_are_done(plant: CliPlant) -> None:
    deaths = plant.folder / "deaths"
    deaths.write_text("2")
    configure(plant, model={"options": {"deaths": str(deaths)}})
    for name in ("day 1.jsonl", "day 2.jsonl", "day 3.jsonl"):
        (plant.folder / "recordings" / name).unlink()
    outcome = plant("score --jobs 2 --out two")
    assert outcome.code == 1
    assert "not judged: recordings/day 0.jsonl: its process died 2 times (signal 9)" in outcome.err
    assert outcome.err.splitlines()[-1].startswith("error: 1 of 1 file")
    assert not list((plant.folder / "two" / "verdicts").glob("*.parquet"))
    assert plant("score --out two").code == 0


def test_only_what_differs_is_judged_again(plant: CliPlant) -> None:
    out = plant.folder / "out"
    assert plant("score --out out").code == 0
    before = contents(out)
    write_file(plant, 2, seed=1)
    said = plant("score --out out").out
    assert "1 file judged, 3 kept from before; 20 sequences" in said
    after = contents(out)
    assert [name for name in before if before[name] != after[name]] == [name for name in before if "day_2" in name]
    assert written(out) == printed(plant)
    configure(plant, sinks={"verdicts": "elsewhere.jsonl"}, run={"batch_wait": "5ms"})
    assert counts(plant("score --json --out out")) == (0, N_FILES, 0), "sinks and limits change no verdict"
    configure(plant, alerts={"false_alarm_rate": 0.1})
    assert counts(plant("score --json --out out")) == (N_FILES, 0, 0)
    assert plant("train").code == 0
    assert counts(plant("score --json --out out")) == (N_FILES, 0, 0), "another model is in service"
    assert counts(plant("score --json --out out --version 1")) == (N_FILES, 0, 0)


@pytest.mark.parametrize("damage", [lambda content: content[: len(content) // 2], lambda _: b""])
def test_a_damaged_result_is_made_again(plant: CliPlant, damage: Any) -> None:
    out = plant.folder / "out"
    assert plant("score --out out").code == 0
    whole = written(out)
    path = min((out / "verdicts").iterdir())
    path.write_bytes(damage(path.read_bytes()))
    assert counts(plant("score --json --out out")) == (1, N_FILES - 1, 0)
    assert written(out) == whole


def test_a_file_that_cannot_be_read_is_named_in_one_line_and_the_others_are_done(plant: CliPlant) -> None:
    broken = plant.folder / "recordings" / "day 9.npz"
    broken.write_bytes(b"PK no zip")
    outcome = plant("score --out out")
    assert outcome.code == 1
    (named,) = [line for line in outcome.err.splitlines() if line.startswith("not judged: ")]
    assert "recordings/day 9.npz" in named
    assert outcome.err.splitlines()[-1] == "error: 1 of 5 files not judged: the same command tries again"
    assert len(written(plant.folder / "out")) == N_FILES * A_FILE
    broken.unlink()
    assert counts(plant("score --json --out out")) == (0, N_FILES, 0)


def test_a_killed_run_leaves_whole_files_alone_and_its_processes_end(plant: CliPlant) -> None:
    hold, out = plant.folder / "hold", plant.folder / "out"
    hold.touch()
    configure(plant, model={"options": {"hold": str(hold)}})
    arguments = ("score", "--out", "out", "--jobs", "2", "--config", plant.config)
    with started(*arguments, cwd=plant.folder, PYTHONPATH=_with_plugins()) as process:
        until(lambda: len(list(out.glob("verdicts/.*.tmp"))) == 2)
        workers = children_of(process.pid)
        process.send_signal(signal.SIGKILL)
        process.wait()
        until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in workers))
    assert not list(out.glob("verdicts/*.parquet"))
    hold.unlink()
    assert counts(plant("score --json --out out")) == (N_FILES, 0, 0)
    assert written(out) == printed(plant)


def test_verdicts_on_recordings_that_are_gone_or_read_otherwise_stay_and_are_told(plant: CliPlant) -> None:
    assert "other file" not in plant("score --out out").err
    (plant.folder / "recordings" / "day 3.jsonl").unlink()
    outcome = plant("score --out out")
    assert "warning: 1 other file there, of recordings that this command does not read" in outcome.err
    assert len(written(plant.folder / "out")) == N_FILES * A_FILE
    configure(plant, source={"options": {"files": "joined"}})
    assert plant("score --json --out out").last_json["others"] == N_FILES


def test_joined_files_are_one_unit(plant: CliPlant) -> None:
    configure(plant, source={"options": {"files": "joined"}})
    outcome = plant("score --json --out out")
    assert counts(outcome) == (1, 0, 0)
    assert written(plant.folder / "out") == printed(plant)
    write_file(plant, N_FILES)
    assert counts(plant("score --json --out out")) == (1, 0, 0)


@pytest.mark.parametrize(
    ("command", "says"),
    [
        ("score --jobs 2", "--jobs goes with --out"),
        ("score --on ray", "--on goes with --out"),
        ("score --out out --jobs 0", "--jobs"),
        ("score out/verdicts --out out", "would be read as recordings"),
        ("score --out out --on dask", "--on dask: "),
    ],
)
def test_options_that_do_not_fit_are_an_error_of_usage(plant: CliPlant, command: str, says: str) -> None:
    plant(command).assert_one_line_error(says, code=2)


def _with_plugins() -> str:
    import os  # noqa: PLC0415

    return os.pathsep.join([str(PLUGINS), os.environ.get("PYTHONPATH", "")])


def until(came: Any) -> None:
    """Return once ``came()`` is true."""
    give_up_s = time.monotonic() + LIMIT_S
    while not came():
        assert time.monotonic() < give_up_s, "it does not come"
        time.sleep(_LOOK_S)


def children_of(pid: int) -> list[int]:
    """Return the processes that ``pid`` has started."""
    return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


# --- replay ----------------------------------------------------------------------------------------------------------


def test_replay_writes_each_role_as_parquet_with_what_it_writes_as_lines(plant: CliPlant) -> None:
    with (plant.folder / "recordings" / "day 1.jsonl").open("a") as file:
        file.write("no JSON\n")
    assert plant("replay --quiet --out lines").code == 0
    out = plant.folder / "tables"
    outcome = plant("replay --json --format parquet --out tables")
    assert (outcome.code, counts(outcome)) == (0, (N_FILES, 0, 0)), outcome.err
    n_alerts = outcome.last_json["decisions"]["anomalous"]
    found = {}
    for role, name in (("verdicts", "verdict_id"), ("alerts", "alert_id"), ("attributions", "alert_id")):
        lines = [json.loads(line) for line in (plant.folder / "lines" / f"{role}.jsonl").read_text().splitlines()]
        rows = pq.read_table(out / role).to_pylist()
        assert sorted(row[name] for row in rows) == sorted(line[name] for line in lines), role
        assert {row[name]: row["score"] for row in rows} == pytest.approx({line[name]: line["score"] for line in lines})
        found[role] = len(rows)
    assert found == {"verdicts": N_FILES * A_FILE, "alerts": n_alerts, "attributions": n_alerts}
    assert n_alerts > 0
    (letter,) = pq.read_table(out / "dead_letters").to_pylist()
    assert (letter["value"], letter["origin"]["partition"]) == (b"no JSON", "recordings/day 1.jsonl")
    n_windows = (plant.folder / "lines" / "windows.jsonl").read_text().count("\n")
    assert pq.read_table(out / "windows").num_rows == n_windows
    assert counts(plant("replay --json --format parquet --out tables --jobs 2")) == (0, N_FILES, 0)
    min((out / "alerts").iterdir()).write_bytes(b"damaged")
    write_file(plant, 2, seed=1)
    assert counts(plant("replay --json --format parquet --out tables --jobs 2")) == (2, N_FILES - 2, 0)
    assert counts(plant("score --json --out tables")) == (N_FILES, 0, 0), "score writes no alerts"


@pytest.mark.parametrize(
    ("command", "says"),
    [
        ("replay --jobs 2 --out out", "--format parquet goes with --out"),
        ("replay --format parquet", "--format parquet goes with --out"),
        ("replay --format parquet --out out --speed 10", "leave out --labels, --plot and --speed"),
    ],
)
def test_options_of_replay_that_do_not_fit_are_an_error_of_usage(plant: CliPlant, command: str, says: str) -> None:
    plant(command).assert_one_line_error(says, code=2)
