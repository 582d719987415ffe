"""streamad record, and ranges of time, on recordings of raw records: what needs no broker."""

from __future__ import annotations

import json
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from streamad.types import Record
from streamad_connectors import memory
from streamad_connectors.files.formats.records import encode_header, encode_record
from tests.support.files import file_size_limit
from tests.support.runtime.cli import CliPlant, Outcome, started
from tests.support.runtime.pipeline import START_US
from tests.support.waiting import LIMIT_S

N = 16
STEP_S = 30  # between the beginnings of two sequences


def write_topic(plant: CliPlant, of: str = "recordings", *, from_start: bool = True) -> Path:
    """Write the plant's messages as a recording of a topic, each with the time of its sequence's start."""
    messages = (plant.folder / of / "day.jsonl").read_bytes().splitlines()
    folder = plant.folder / "topic"
    folder.mkdir()
    records = [
        Record(100 + 3 * i, message, START_US + i * STEP_S * 1_000_000, b"key") for i, message in enumerate(messages)
    ]
    path = folder / "t-0.records.jsonl"
    header = encode_header("t-0", from_start=from_start, streamad="0")
    path.write_bytes(header + b"".join(map(encode_record, records)))
    return path


def time_of(i: int) -> str:
    return f"2026-01-01T00:{i * STEP_S // 60:02}:{i * STEP_S % 60:02}Z"


def verdicts(plant: CliPlant, *arguments: str | Path) -> list[dict[str, Any]]:
    """The verdicts of a replay, less when they were made."""
    folder = plant.folder / f"out-{len(list(plant.folder.iterdir()))}"
    outcome = plant("replay", *arguments, "--quiet", "--out", folder)
    assert outcome.code == 0, outcome.err
    found = [json.loads(text) for text in (folder / "verdicts.jsonl").read_text().splitlines()]
    # A score depends on its batch in the last digits of a float32.
    found = [{**verdict, "created_at": None, "score": approximately(verdict["score"])} for verdict in found]
    return sorted(found, key=lambda verdict: str(verdict["sequence"]))


def approximately(score: float | None) -> Any:
    return None if score is None else pytest.approx(score, rel=1e-4)


def recorded(outcome: Outcome) -> dict[str, Any]:
    assert outcome.code == 0, outcome.err
    result = outcome.last_json
    assert isinstance(result, dict)
    return result


def test_a_recording_of_a_recording_is_the_same(plant: CliPlant) -> None:
    path = write_topic(plant)
    result = recorded(plant("record", "--from", "topic", "--out", "copy", "--json"))
    assert (result["records"], result["interrupted"]) == (N, False)
    assert (result["first_time"], result["last_time"]) == ("2026-01-01T00:00:00Z", time_of(N - 1))
    (copy,) = (plant.folder / "copy").iterdir()
    assert copy.name == "topic%2Ft-0.records.jsonl.records.jsonl"
    assert copy.read_bytes().splitlines()[1:] == path.read_bytes().splitlines()[1:]
    assert verdicts(plant, "copy") == verdicts(plant, "topic") != []


@pytest.mark.parametrize("from_url", [("topic",), ("--from", "topic")])
def test_a_range_is_replayed_and_a_cut_beginning_is_partial(plant: CliPlant, from_url: tuple[str, ...]) -> None:
    write_topic(plant)
    whole = verdicts(plant, *from_url)
    cut = verdicts(plant, *from_url, "--since", time_of(4), "--until", time_of(12))
    assert len(whole) == N
    assert [verdict["sequence"] for verdict in cut] == sorted(f"recordings-{i}" for i in range(4, 12))
    partial = {verdict["sequence"] for verdict in cut if "partial" in str(verdict.get("detail"))}
    assert partial == {"recordings-4", "recordings-5"}  # the first one of each of the two streams
    rest = [verdict for verdict in cut if verdict["sequence"] not in partial]
    assert rest == [verdict for verdict in whole if verdict["sequence"] in {found["sequence"] for found in rest}]


def test_recording_a_range_and_replaying_it_is_replaying_the_range(plant: CliPlant) -> None:
    write_topic(plant)
    span = ("--since", time_of(4), "--until", time_of(12))
    result = recorded(plant("record", "--from", "topic", "--out", "copy", *span, "--json"))
    (partition,) = result["partitions"].values()
    assert partition == {"records": 8, "begin_offset": 0, "next_offset": 134, "from_start": False}
    assert verdicts(plant, "copy") == verdicts(plant, "topic", *span)


def test_halves_are_scored_as_partial_and_never_trained_on(plant: CliPlant) -> None:
    write_topic(plant, "normal", from_start=False)
    scored = plant("score", "--from", "topic", "--since", time_of(2), "--json")
    assert scored.code == 0, scored.err
    lines = [json.loads(text) for text in scored.out.splitlines()]
    assert [line["sequence"] for line in lines if line["decision"] == "unscorable"] == ["normal-2", "normal-3"]
    trained = plant("train", "--from", "topic", "--until", time_of(22), "--no-promote")
    assert trained.code == 0, trained.err
    assert "left out r1 normal-0: partial" in trained.err
    assert "left out r2 normal-1: partial" in trained.err
    assert "trained on 20 sequences" in trained.out


def test_a_recording_is_summarised_as_text(plant: CliPlant) -> None:
    write_topic(plant)
    outcome = plant("record", "--from", "topic", "--out", "copy")
    assert outcome.code == 0, outcome.err
    (text,) = outcome.out.strip().splitlines()
    assert text.startswith("recorded 16 records (0.0 MB) of 1 partition in copy, 2026-01-01 00:00:00 to ")
    nothing = plant("record", "--from", "topic", "--out", "none", "--since", "2030-01-01")
    assert nothing.code == 0
    assert "recorded 0 records" in nothing.out
    assert "no record in this range" in nothing.out
    assert plant("replay", "none", "--json").last_json["sequences"] == 0


def test_a_folder_with_recordings_is_refused(plant: CliPlant) -> None:
    write_topic(plant)
    refused = plant("record", "--from", "topic", "--out", "topic")
    refused.assert_one_line_error("topic already holds t-0.records.jsonl", "--out", code=2)
    (plant.folder / "cut").mkdir()
    (plant.folder / "cut" / "t-0.records.jsonl.part").touch()
    plant("record", "--from", "topic", "--out", "cut").assert_one_line_error("already holds", ".part", code=2)


def test_wrong_arguments_are_usage_errors(plant: CliPlant) -> None:
    write_topic(plant)
    for command in ("replay", "train", "score"):
        plant(command, "topic", "--from", "topic").assert_one_line_error("both name the input", code=2)
        plant(command, "topic", "--since", "noon").assert_one_line_error("--since noon: is no time", code=2)
        plant(command, "recordings", "--since", "2h").assert_one_line_error("day.jsonl: has no record times", code=2)
    plant("record", "--out", "x", "--since", "1h", "--until", "2h").assert_one_line_error("does not lie before", code=2)
    assert not (plant.folder / "x").exists()


def test_a_source_without_ranges_is_refused(plant: CliPlant) -> None:
    memory.put_records("no-ranges", [b"{}"])
    try:
        refused = plant("replay", "--from", "memory:no-ranges", "--until", "1h")
        refused.assert_one_line_error("memory:no-ranges has no record times to cut by", code=2)
    finally:
        memory.clear("no-ranges")


def test_a_full_disk_is_one_line_and_nothing_looks_finished(plant: CliPlant) -> None:
    write_topic(plant)
    with file_size_limit(4000):
        outcome = plant("record", "--from", "topic", "--out", "copy")
    outcome.assert_one_line_error("cannot write", ".records.jsonl.part", "raise the file size limit")
    assert [path.suffix for path in (plant.folder / "copy").iterdir()] == [".part"]


def test_ctrl_c_ends_following_with_a_finished_recording(plant: CliPlant) -> None:
    path = write_topic(plant)
    whole = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(whole[:5]))
    part = plant.folder / "copy" / "topic%2Ft-0.records.jsonl.records.jsonl.part"
    with started("record", "--from", "topic", "--out", "copy", "--follow", "--json", cwd=plant.folder) as process:
        _wait_for_lines(part, 5)
        with path.open("ab") as file:
            file.write(b"".join(whole[5:9]))
        _wait_for_lines(part, 9)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=LIMIT_S)
    assert process.returncode == 0, err
    assert json.loads(out)["records"] == 8
    assert "stopping: finishing the files" in err
    assert part.with_suffix("").read_bytes().splitlines()[1:] == [text.rstrip() for text in whole[1:9]]


def _wait_for_lines(path: Path, n: int) -> None:
    deadline = time.monotonic() + LIMIT_S
    while not (path.exists() and path.read_bytes().count(b"\n") >= n):
        assert time.monotonic() < deadline
        time.sleep(0.05)
