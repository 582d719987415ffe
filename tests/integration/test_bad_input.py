"""What bad input gets: a test for every cell of the table of outcomes, each through the command line."""

from __future__ import annotations

import hashlib
import json
import random
import resource
import shutil
import subprocess
import sys
from base64 import b64decode
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.support.runtime.cli import NEAREST, CliPlant
from tests.support.runtime.pipeline import START_US
from tests.support.waiting import LIMIT_S

MODEL = NEAREST

START_S = START_US / 1e6
TIMES = [START_S + i for i in range(10)]
ROWS = [[20.0 + 4 * i, 3.0] for i in range(10)]


def message(**changes: Any) -> bytes:
    content = {"stream": "r1", "sequence": "bad", "times": TIMES, "values": ROWS, "end": True, **changes}
    return json.dumps({key: value for key, value in content.items() if value is not None}).encode()


def verdict_of(plant: CliPlant, sequence: str = "bad") -> dict[str, Any]:
    """Return the one verdict of a sequence."""
    (verdict,) = [verdict for verdict in plant.lines("verdicts") if verdict["sequence"] == sequence]
    return verdict


def run_over(plant: CliPlant, *lines: bytes, **sections: Any) -> dict[str, Any]:
    """Put ``lines`` between two good sequences, run, and return the report; the good ones must get their verdicts."""
    rng = random.Random(7)
    before, after = (CliPlant.message("r2", name, start_s, rng).encode() for name, start_s in [("g1", 0), ("g2", 900)])
    (plant.folder / "recordings" / "day.jsonl").write_bytes(b"\n".join([before, *lines, after]) + b"\n")
    plant.write_config(**sections)
    outcome = plant("run --quiet --json")
    assert outcome.code == 0, outcome.err
    good = [verdict for verdict in plant.lines("verdicts") if verdict["stream"] == "r2"]
    assert [(verdict["sequence"], verdict["decision"] != "unscorable") for verdict in good] == [
        ("g1", True),
        ("g2", True),
    ]
    report: dict[str, Any] = outcome.last_json
    counters = report["counters"]
    assert counters["records"] == 2 + len(lines)
    assert counters["samples"] == counters["sequence_samples"] + counters["merged"] + counters["late_samples"]
    return report


# --- unreadable messages ---------------------------------------------------------------------------------------------


UNREADABLE = [
    (b"\x00\xff neither JSON nor msgpack", "malformed"),
    (b'{"stream": "r1", "sequence":', "malformed"),
    (b"[1, 2, 3]", "wrong_type"),
    (message(stream={}), "wrong_type"),
    (message(values="high"), "wrong_shape"),
    (message(sequence=None, stream=None), "missing_field"),
    (message(times=None, values={"temp": 1.0, "pressure": 3.0, "colour": 1.0}, time=START_S), "unknown_channel"),
    (message(values=[[1.0, 2.0, 3.0]] * 10), "wrong_shape"),
    (message(times=[1e18] * 10), "bad_time"),
    (message(times=["yesterday"] * 10), "bad_time"),
    (message(times=[START_S + 1e9 + i for i in range(10)]), "clock_skew"),
]


def test_unreadable_messages_are_dead_letters_with_their_bytes_origin_and_reason(plant: CliPlant) -> None:
    report = run_over(plant, *(value for value, _ in UNREADABLE))
    letters = plant.lines("dead_letters")
    assert [letter["kind"] for letter in letters] == [kind for _, kind in UNREADABLE]
    for letter, (value, _) in zip(letters, UNREADABLE, strict=True):
        assert b64decode(letter["value"]) == value
        assert letter["error"]
        assert letter["origin"]["partition"] == "recordings/day.jsonl"
        assert (letter["size_bytes"], letter["sha256"]) == (len(value), hashlib.sha256(value).hexdigest())
    offsets = [letter["origin"]["offset"] for letter in letters]
    assert offsets[0] > 0
    assert offsets == sorted(set(offsets))
    assert report["counters"]["dead_letters"] == Counter(kind for _, kind in UNREADABLE)
    assert all(verdict["stream"] == "r2" for verdict in plant.lines("verdicts"))


def test_bad_values_cost_no_sequence_and_are_counted(plant: CliPlant) -> None:
    rows: list[list[Any]] = [list(row) for row in ROWS]
    rows[2][0], rows[5][1], rows[6][0] = "Bad", 1e39, "I/O Timeout"
    value = message(values=rows)
    report = run_over(plant, value)
    assert verdict_of(plant)["decision"] != "unscorable"
    assert report["counters"]["bad_values"] == {"temp": {"wrong_type": 2}, "pressure": {"infinite": 1}}
    (letter,) = plant.lines("dead_letters")
    assert (letter["kind"], b64decode(letter["value"])) == ("bad_value", value)
    assert letter["error"] == (
        "temp: must be a number or null, got 'Bad'; pressure: 1e+39 is infinite or beyond 32-bit floats; "
        "all else was read"
    )


def test_a_channel_of_bad_values_is_unscorable_and_an_event(plant: CliPlant) -> None:
    n = 60
    values = [["Bad", 3.0]] * n
    sinks = {"events": "out/events.jsonl"}
    report = run_over(plant, message(times=[START_S + i for i in range(n)], values=values), sinks=sinks)
    verdict = verdict_of(plant)
    assert (verdict["decision"], "temp" in verdict["detail"]) == ("unscorable", True)
    assert report["counters"]["bad_values"] == {"temp": {"wrong_type": n}}
    (event,) = [event for event in plant.lines("events") if event["kind"] == "bad_values"]
    assert event["message"] == (
        "51 of 51 values of temp cannot be used (wrong_type: must be a number or null, got 'Bad')"
    )
    assert event["partition"] == "recordings/day.jsonl"


def test_a_message_of_10_mb_is_a_cut_dead_letter_that_states_size_and_sha256(plant: CliPlant) -> None:
    value = message(values=[[1.0, 2.0]] * 900_000)
    assert len(value) > 10_000_000
    report = run_over(plant, value)
    (letter,) = plant.lines("dead_letters")
    assert (letter["kind"], letter["truncated"]) == ("too_large", True)
    assert b64decode(letter["value"]) == value[:65_536]
    assert (letter["size_bytes"], letter["sha256"]) == (len(value), hashlib.sha256(value).hexdigest())
    assert report["counters"]["dead_letters"] == {"too_large": 1}


def test_times_a_life_apart_under_a_grid_of_a_millisecond_are_unscorable_and_take_no_memory(
    untrained_plant: CliPlant,
) -> None:
    sections: dict[str, Any] = {"window": {"resample": {"period": "1ms"}}, "sequences": {"max_duration": "20000d"}}
    untrained_plant.write_config(**sections)
    assert untrained_plant("train --json").code == 0
    before_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    run_over(untrained_plant, message(times=[0, 1e9], values=[[1.0, 2.0], [3.0, 4.0]]), **sections)
    verdict = verdict_of(untrained_plant)
    assert verdict["decision"] == "unscorable"
    assert "time span too long for the grid" in verdict["detail"]
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_kib < 100_000


# --- samples out of place --------------------------------------------------------------------------------------------


def test_samples_for_a_closed_sequence_go_to_the_late_sink_and_make_no_second_verdict(plant: CliPlant) -> None:
    report = run_over(plant, message(), message(times=[START_S + 20], values=[[1.0, None]]))
    (late,) = plant.lines("late")
    assert (late["sequence"], late["cause"], late["values"]) == ("bad", "closed", [[1.0, None]])
    assert report["counters"]["late_samples"] == 1
    assert verdict_of(plant)


def test_repeated_messages_make_no_second_verdict(plant: CliPlant) -> None:
    report = run_over(plant, *[message()] * 3)
    assert report["counters"]["late_samples"] == 20
    assert verdict_of(plant)


def test_repeated_samples_of_an_open_sequence_are_merged_and_counted(plant: CliPlant) -> None:
    half = message(times=TIMES[:5], values=ROWS[:5], end=False)
    report = run_over(
        plant, half, half, message(times=TIMES[5:], values=ROWS[5:]), sequences={"allowed_lateness": "1m"}
    )
    counters = report["counters"]
    assert (counters["merged"], counters["displaced"]) == (5, 0)
    assert verdict_of(plant)["n_samples"] == 10


@pytest.mark.parametrize("has_sink", [True, False])
def test_samples_out_of_order_beyond_the_bound_go_to_the_late_sink_or_are_counted(
    plant: CliPlant, has_sink: bool
) -> None:
    early = message(times=[TIMES[0]], values=ROWS[:1], end=False)
    first = message(times=TIMES[1:4], values=ROWS[1:4], end=None)
    rest = message(times=TIMES[4:], values=ROWS[4:], end=None)
    without = {} if has_sink else {"sinks": {"late": None}}
    report = run_over(plant, first, rest, early, sequences={"allowed_lateness": "3s"}, **without)
    assert report["counters"]["late_samples"] == 1
    assert (plant.folder / "out" / "late.jsonl").exists() == has_sink
    assert not has_sink or [record["cause"] for record in plant.lines("late")] == ["late"]


# --- sequences that do not behave ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("limits", "reason", "most"),
    [
        ({"max_duration": "30s"}, "max_duration", 31),
        ({"max_samples": 25}, "max_samples", 25),
        ({"max_buffered_bytes": "4KB"}, "memory", 2_000),  # looked at after a batch, which is at most 1 MiB
    ],
)
def test_a_sequence_without_end_is_ended_by_the_limit_that_its_reason_names(
    plant: CliPlant, limits: dict[str, Any], reason: str, most: int
) -> None:
    endless = [message(times=[START_S + 10 * i + j for j in range(10)], end=None) for i in range(200)]
    run_over(plant, *endless, sequences={"max_duration": "1d", **limits})
    verdicts = [verdict for verdict in plant.lines("verdicts") if verdict["sequence"] == "bad"]
    # Once its id is no longer remembered it may recur; what is open at the end ends with the input.
    assert {verdict["reason"] for verdict in verdicts[:-1]} <= {reason}
    assert verdicts[0]["reason"] == reason
    assert all(verdict["n_samples"] <= most for verdict in verdicts)


@pytest.mark.parametrize(
    ("value", "detail"),
    [
        (message(times=TIMES[:1], values=ROWS[:1]), "too few samples"),
        (message(values=[[row[0], row[1] if i % 3 == 0 else None] for i, row in enumerate(ROWS)]), "pressure"),
        (message(values=[[row[0], None] for row in ROWS]), "pressure"),
    ],
)
def test_a_sequence_too_short_or_too_gappy_is_unscorable_with_the_reason(
    plant: CliPlant, value: bytes, detail: str
) -> None:
    run_over(plant, value)
    verdict = verdict_of(plant)
    assert verdict["decision"] == "unscorable"
    assert detail in verdict["detail"]
    assert "score" not in verdict or verdict["score"] is None


def test_a_message_with_unknown_channels_is_a_dead_letter_and_no_part_of_it_is_judged(plant: CliPlant) -> None:
    other = [message(times=None, time=START_S + i, values={"temp": 20.0, "volume": 3.0}) for i in range(10)]
    report = run_over(plant, *other)
    assert report["counters"]["dead_letters"] == {"unknown_channel": 10}
    assert {letter["kind"] for letter in plant.lines("dead_letters")} == {"unknown_channel"}
    assert all("volume" in letter["error"] for letter in plant.lines("dead_letters"))
    assert report["sequences"] == 2


def test_a_sequence_that_lacks_a_channel_is_unscorable_and_names_it(plant: CliPlant) -> None:
    lacking = [
        message(times=None, time=START_S + i, values={"temp": 20.0 + 4 * i}, end=i == 9 or None) for i in range(10)
    ]
    report = run_over(plant, *lacking)
    assert report["counters"]["dead_letters"] == {}
    verdict = verdict_of(plant)
    assert (verdict["decision"], verdict["n_samples"]) == ("unscorable", 10)
    assert "pressure" in verdict["detail"]


def test_a_table_of_other_channels_is_dead_letters_never_verdicts(plant: CliPlant) -> None:
    (plant.folder / "other.csv").write_text("stream,sequence,time,volume\nr1,a,2026-01-01T00:00:00Z,3\n")
    outcome = plant("replay --quiet --json --out said", plant.folder / "other.csv")
    assert outcome.code == 1
    assert "none of 1 records is usable (1 missing_field: unreadable)" in outcome.err
    assert outcome.last_json["counters"]["dead_letters"] == {"missing_field": 1}
    assert outcome.last_json["sequences"] == 0
    (letter,) = [json.loads(text) for text in (plant.folder / "said" / "dead_letters.jsonl").read_text().splitlines()]
    assert "values" in letter["error"]


# --- the model artifact ----------------------------------------------------------------------------------------------


def version_folder(plant: CliPlant) -> Path:
    return plant.folder / "registry" / "default" / "versions" / "0001"


def damage(plant: CliPlant, how: str) -> None:
    """Do to the model in service what ``how`` says."""
    folder = version_folder(plant)
    if how == "flipped":
        (model,) = [path for path in folder.iterdir() if path.suffix in (".ts", ".pt")]
        content = bytearray(model.read_bytes())
        content[len(content) // 2] ^= 1
        model.chmod(0o644)
        model.write_bytes(content)
    elif how == "missing":
        next(path for path in folder.iterdir() if path.suffix in (".ts", ".pt")).unlink()
    elif how == "manifest":
        (folder / "manifest.json").chmod(0o644)
        (folder / "manifest.json").write_text("{")
    elif how == "vanished":
        shutil.rmtree(folder)
    elif how == "channels":
        plant.write_config(channels=[{"name": "temp", "unit": "degC"}, {"name": "volume", "unit": "m3"}])
    elif how == "unit":
        plant.write_config(channels=[{"name": "temp", "unit": "K"}, {"name": "pressure", "unit": "bar"}])
    elif how == "window":
        plant.write_config(window={"length": 20})
    elif how == "foreign":
        manifest = json.loads((folder / "manifest.json").read_text())
        manifest["detector"]["kind"] = "another"
        (folder / "manifest.json").chmod(0o644)
        (folder / "manifest.json").write_text(json.dumps(manifest))
    elif how == "current":
        (plant.folder / "registry" / "default" / "CURRENT").write_text("../../../etc/passwd")


ARTIFACTS = ["flipped", "missing", "manifest", "vanished", "channels", "unit", "window", "foreign", "current"]


@pytest.mark.parametrize("how", ARTIFACTS)
@pytest.mark.parametrize("command", ["run --quiet", "replay --quiet --out said", "score"])
def test_an_artifact_that_cannot_be_trusted_judges_nothing(plant: CliPlant, command: str, how: str) -> None:
    damage(plant, how)
    before = plant.files()
    plant(command).assert_one_line_error()
    assert plant.files() == before


# --- outputs ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("role", ["alerts", "verdicts", "dead_letters"])
@pytest.mark.parametrize("place", ["labels.csv/out.jsonl", "recordings", "/proc/none/out.jsonl"])
def test_an_output_that_cannot_be_written_is_reported_before_anything_is_judged(
    plant: CliPlant, role: str, place: str
) -> None:
    plant.write_config(sinks={role: place})
    before = (plant.folder / "labels.csv").read_bytes()
    plant("run --quiet").assert_one_line_error("cannot write")
    assert (plant.folder / "labels.csv").read_bytes() == before
    assert all(path.stat().st_size == 0 for path in plant.folder.glob("out/*.jsonl"))


@pytest.mark.parametrize(
    ("command", "checkpoint"),
    [
        ("replay --quiet --out labels.csv/said", "checkpoint"),
        ("run --quiet", "labels.csv"),
        ("run --quiet", "labels.csv/checkpoint"),
    ],
)
def test_a_folder_that_cannot_be_made_is_reported(plant: CliPlant, command: str, checkpoint: str) -> None:
    plant.write_config(run={"checkpoint": checkpoint})
    plant(command).assert_one_line_error("cannot write")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
@pytest.mark.parametrize("role", ["alerts", "verdicts"])
def test_a_full_disk_is_reported_in_one_line_and_nothing_is_lost(plant: CliPlant, role: str) -> None:
    plant.write_config(sinks={role: "/dev/full"})
    plant("run --quiet").assert_one_line_error("free disk space")
    plant.write_config()
    assert plant("run --quiet").code == 0
    found = [message["sequence"] for message in plant.lines(role)]
    plant.write_config(run={"checkpoint": "other"}, sinks={role: f"undisturbed/{role}.jsonl"})
    assert plant("run --quiet").code == 0
    lines = (plant.folder / f"undisturbed/{role}.jsonl").read_text().splitlines()
    assert found == [json.loads(line)["sequence"] for line in lines] != []


@pytest.mark.skipif(sys.platform != "linux", reason="file size limits as a stand-in for a full disk")
def test_a_disk_that_fills_up_in_the_middle_of_a_run_leaves_whole_lines_and_the_next_run_goes_on(
    plant: CliPlant,
) -> None:
    with (plant.folder / "recordings" / "day.jsonl").open("a") as file:
        rng = random.Random(3)
        file.writelines(CliPlant.message("r3", f"more-{i}", i * 30.0, rng) + "\n" for i in range(300))
    plant.write_config(run={"commit_interval": "10ms", "batch_windows": 8})
    command = f"ulimit -f 60; trap '' XFSZ; exec {sys.executable} -m streamad run --quiet"
    done = subprocess.run(
        ["bash", "-c", command],
        cwd=plant.folder,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert done.returncode == 1
    (error,) = done.stderr.splitlines()
    assert "cannot write" in error
    text = (plant.folder / "out" / "verdicts.jsonl").read_text()
    assert not text or text.endswith("\n")  # on a busy machine the first commit may be too long
    assert all(json.loads(line) for line in text.splitlines())
    plant("run --quiet")
    ids = [verdict["verdict_id"] for verdict in plant.lines("verdicts")]
    assert len(ids) == len(set(ids)) == 316


@pytest.mark.parametrize(
    ("content", "word"),
    [
        ("", "cannot be read"),
        ('{"number": 1', "cannot be read"),
        ('{"number": 1, "outputs": {}, "schema_version": 99}', "version"),
    ],
)
def test_a_damaged_checkpoint_is_reported_and_outputs_are_unchanged(plant: CliPlant, content: str, word: str) -> None:
    assert plant("run --quiet").code == 0
    next((plant.folder / "checkpoint").glob("*.json")).write_text(content)
    before = plant.files()
    plant("run --quiet").assert_one_line_error("checkpoint", word)
    assert plant.files() == before


@pytest.mark.parametrize(
    ("name", "word"), [("out/verdicts.jsonl", "checkpoint"), ("recordings/day.jsonl", "replaced or cut")]
)
def test_a_file_cut_by_hand_is_reported_and_not_written_to(plant: CliPlant, name: str, word: str) -> None:
    assert plant("run --quiet").code == 0
    (plant.folder / name).write_text("")
    plant("run --quiet").assert_one_line_error(Path(name).name, word)
    assert (plant.folder / name).read_text() == ""


# --- config ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", ["run", "replay", "train", "score", "check", "models list"])
def test_all_problems_of_a_config_are_reported_at_once_with_exit_code_2(plant: CliPlant, command: str) -> None:
    plant.write_config(
        windw={"length": 3},
        window={"length": 1, "longer": "never"},
        sequences={"end": ["gap"]},
        alerts={"false_alarm_rate": 2},
    )
    before = plant.files()
    outcome = plant(command)
    assert outcome.code == 2
    for where in ("windw", "window.length", "window.longer", "sequences", "alerts.false_alarm_rate"):
        assert where in outcome.err
    assert "did you mean 'window'" in outcome.err
    assert "(line " in outcome.err
    assert "Traceback" not in outcome.err
    assert plant.files() == before


@pytest.mark.parametrize("command", ["run", "replay", "train", "score"])
def test_all_problems_that_plugins_find_in_a_config_are_reported_at_once(plant: CliPlant, command: str) -> None:
    plant.write_config(
        channels=[{"name": "temp", "field": "x"}, {"name": "pressure", "field": "x"}],
        source={"url": "kafak://broker", "options": {}},
        model={"detector": "neutral_ad", "options": {"epoch": 3}},
        sinks={"alerts": "stdout:here", "late": "late.jsonl?mode=append"},
    )
    outcome = plant(command)
    assert outcome.code == 2
    assert "5 problems" in outcome.err
    for where in ("channels", "source.url", "model.options", "sinks.alerts", "sinks.late"):
        assert where in outcome.err
    assert "did you mean 'epochs'" in outcome.err
    assert "Traceback" not in outcome.err


def test_a_config_that_is_no_yaml_is_reported(plant: CliPlant) -> None:
    plant.config.write_text("channels: [")
    outcome = plant("run")
    assert outcome.code == 2
    assert "plant.yaml" in outcome.err
    assert "Traceback" not in outcome.err
