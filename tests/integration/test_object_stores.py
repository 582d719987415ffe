"""Recordings in an object store through the command line: the same as those in a folder."""

from __future__ import annotations

import json
import shutil
import signal
import tempfile
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet
import pytest

from tests.support.object_sources import files_in
from tests.support.runtime.cli import NEAREST, CliPlant, started
from tests.support.s3_stub import StubS3
from tests.support.waiting import LIMIT_S

MODEL = NEAREST
URL = "s3://plant/2026/recordings"


@pytest.fixture
def stub(plant: CliPlant, monkeypatch: pytest.MonkeyPatch) -> Iterator[StubS3]:
    """A store with the plant's recordings, in three parts."""
    lines = (plant.folder / "recordings" / "day.jsonl").read_bytes().splitlines(keepends=True)
    for number in range(3):
        (plant.folder / "recordings" / f"day-{number}.jsonl").write_bytes(b"".join(lines[number::3]))
    (plant.folder / "recordings" / "day.jsonl").unlink()
    objects = {f"2026/recordings/{name}": body for name, body in files_in(plant.folder / "recordings").items()}
    objects |= {f"2026/normal/{name}": body for name, body in files_in(plant.folder / "normal").items()}
    with StubS3(objects).serving() as server:
        for name, value in server.environment.items():
            monkeypatch.setenv(name, value)
        yield server


def without_times(found: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{key: value for key, value in each.items() if key != "created_at"} for each in found]


def scores(output: str) -> list[dict[str, Any]]:
    return without_times(map(json.loads, output.splitlines()))


def verdicts(plant: CliPlant) -> list[dict[str, Any]]:
    return without_times(plant.lines("verdicts"))


def test_score_check_train_and_init_read_objects(plant: CliPlant, stub: StubS3) -> None:
    local, objects = plant("score --json recordings"), plant(f"score --json {URL}")
    assert objects.code == local.code == 0, objects.err
    assert scores(objects.out) == scores(local.out)
    assert len(scores(local.out)) == 16
    plant.write_config(source={"url": URL}, model={**MODEL, "recordings": "s3://plant/2026/normal"})
    check = plant("check")
    assert "16 records, 168 samples of 2 streams" in check.out, check.out
    trained = plant("train")
    assert "now in service" in trained.out, trained.err
    made = plant(f"init {URL} --out made.yaml", config=False)
    assert made.code == 0, made.err
    assert f"url: {URL}" in (plant.folder / "made.yaml").read_text()


def test_score_by_parts_judges_only_what_is_new(plant: CliPlant, stub: StubS3) -> None:
    expected = scores(plant("score --json recordings").out)
    assert plant(f"score {URL} --out verdicts --jobs 2 --quiet").code == 0
    found = pyarrow.parquet.read_table(plant.folder / "verdicts" / "verdicts")
    assert sorted(found["verdict_id"].to_pylist()) == sorted(each["verdict_id"] for each in expected)
    lines = stub.objects["2026/recordings/day-1.jsonl"].splitlines(keepends=True)
    stub.objects["2026/recordings/day-1.jsonl"] = b"".join(lines[1:])
    stub.requests.clear()
    assert plant(f"score {URL} --out verdicts --quiet").code == 0
    gets = [path for method, path in stub.requests if method == "GET" and path.endswith(".jsonl")]
    assert gets == ["/plant/2026/recordings/day-1.jsonl"]
    assert pyarrow.parquet.read_table(plant.folder / "verdicts" / "verdicts").num_rows == len(expected) - 1


def test_a_run_goes_on_where_the_last_one_ended(plant: CliPlant, stub: StubS3) -> None:
    plant("run --quiet")
    local = verdicts(plant)
    for folder in ("out", "checkpoint"):
        shutil.rmtree(plant.folder / folder)
    held = stub.objects.pop("2026/recordings/day-2.jsonl")
    plant.write_config(source={"url": URL})
    assert plant("run --quiet").code == 0
    first = verdicts(plant)
    assert first == local[: len(first)]
    stub.objects["2026/recordings/day-2.jsonl"] = held
    assert plant("run --quiet").code == 0
    assert verdicts(plant) == local
    stub.objects["2026/recordings/day-0.jsonl"] = held
    plant("run --quiet").assert_one_line_error(f"{URL}/day-0.jsonl: no longer holds the records that were judged")
    assert verdicts(plant) == local


def test_a_run_that_is_killed_while_it_copies(
    plant: CliPlant, stub: StubS3, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant("run --quiet")
    local = verdicts(plant)
    for folder in ("out", "checkpoint"):
        shutil.rmtree(plant.folder / folder)
    (tmp_path / "tmp").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    monkeypatch.setattr(tempfile, "tempdir", None)
    plant.write_config(source={"url": URL})
    answered = threading.Event()
    stub.before_get = lambda key: setattr(stub, "before_rest", answered if key.endswith("day-1.jsonl") else None)
    with started("run", "--quiet", "--config", plant.config, cwd=plant.folder) as process:
        assert stub.is_half_sent.wait(LIMIT_S)
        process.send_signal(signal.SIGKILL)
        process.wait()
    answered.set()
    assert any(name.endswith(".jsonl") for name in files_in(tmp_path / "tmp"))
    stub.before_get = stub.before_rest = None
    assert plant("run --quiet").code == 0
    assert verdicts(plant) == local
    assert not any(name.endswith(".jsonl") for name in files_in(tmp_path / "tmp"))


@pytest.mark.parametrize(
    ("refusal", "says"),
    [((403, "AccessDenied"), "the store refuses access (AccessDenied)"), ((404, "NoSuchBucket"), "no such bucket")],
)
def test_a_store_that_refuses_is_one_line(plant: CliPlant, stub: StubS3, refusal: tuple[int, str], says: str) -> None:
    stub.refusal = refusal
    for command in (f"score {URL}", f"replay --quiet {URL}"):
        plant(command).assert_one_line_error(f"{URL}: ", says)
    plant.write_config(source={"url": URL})
    plant("run --quiet").assert_one_line_error(f"{URL}: ", says)
    check = plant("check")
    assert says in check.out
    assert "verysecret" not in check.out + check.err
