"""streamad check: what would fail or judge nothing is said before, with what to do, and nothing is written."""

import fcntl
import json
import os
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner, Result

from streamad.cli import app, main
from streamad.errors import ConfigError, ObjectError
from tests.support.learning.stored import add, plant_of, sequence
from tests.support.objects import Bucket

BASE: dict[str, Any] = {
    "channels": [{"name": "temp_c"}, {"name": "pressure_bar"}],
    "source": {"url": "in/day.jsonl"},
    "window": {"length": 16},
    "sinks": {"alerts": "out/alerts.jsonl", "verdicts": "out/verdicts.jsonl"},
}


def message(sequence: int, index: int, n: int = 10, **more: Any) -> dict[str, Any]:
    values = {"temp_c": 80.0 + index, "pressure_bar": 3.0 - 0.1 * index}
    time = 1_772_000_000 + sequence * 100 + index
    end = {"end": True} if index == n - 1 else {}
    return {"stream": "r1", "sequence": f"B-{sequence}", "time": time, "values": values, **end, **more}


def good(n_sequences: int = 5, n: int = 10) -> list[dict[str, Any]]:
    return [message(sequence, index, n) for sequence in range(n_sequences) for index in range(n)]


def plant(folder: Path, messages: list[Any] | None = None, **sections: Mapping[str, Any] | Any) -> Path:
    (folder / "in").mkdir(exist_ok=True)
    lines = [json.dumps(message) for message in (good() if messages is None else messages)]
    (folder / "in/day.jsonl").write_text("".join(f"{line}\n" for line in lines))
    path = folder / "plant.yaml"
    path.write_text(yaml.safe_dump({**BASE, **sections}))
    return path


def check(config: Path, *arguments: str) -> Result:
    return CliRunner().invoke(app, ["check", "-c", str(config), "--fast", *arguments])


def findings(config: Path, *arguments: str) -> list[dict[str, str]]:
    result = check(config, "--json", *arguments)
    report = json.loads(result.stdout)
    found: list[dict[str, str]] = [finding for finding in report["checks"] if finding["outcome"] != "ok"]
    assert result.exit_code == (1 if report["failed"] else 0)
    assert report["failed"] == sum(finding["outcome"] == "failed" for finding in found)
    return found


def the_one(config: Path, *arguments: str) -> tuple[str, str, str]:
    """Return outcome, check and text of the only finding that is not ok."""
    (found,) = findings(config, *arguments)
    return found["outcome"], found["check"], f"{found['message']} -> {found['advice']}"


def test_a_good_plant_passes_and_nothing_is_written(tmp_path: Path) -> None:
    config = plant(tmp_path)
    before = sorted(tmp_path.rglob("*"))
    result = check(config)
    assert result.exit_code == 0
    assert result.stdout.splitlines()[-1] == "all checks passed"
    assert "5 sequences ended: 5 by marker" in result.stdout
    assert sorted(tmp_path.rglob("*")) == before


def test_a_followed_source_is_checked_by_what_it_holds_now(tmp_path: Path) -> None:
    config = plant(tmp_path, source={"url": "in/day.jsonl", "options": {"follow": True}})
    checks = json.loads(check(config, "--json").stdout)["checks"]
    assert ("source", "50 records, 50 samples of 1 stream") in [(each["check"], each["message"]) for each in checks]


def test_the_options_of_the_source_are_listed_only_on_request(tmp_path: Path) -> None:
    config = plant(tmp_path)
    assert "source.options" not in check(config).stdout
    (line,) = [line for line in check(config, "--options").stdout.splitlines() if "source.options" in line]
    assert "known to file: " in line
    assert "delimiter" in line


def test_feedback_is_checked_like_a_sink(tmp_path: Path) -> None:
    result = check(plant(tmp_path, marks="desk/feedback.jsonl"))
    assert result.exit_code == 0
    assert f"marks                {tmp_path / 'desk/feedback.jsonl'} (not there yet)" in result.stdout
    (tmp_path / "desk").mkdir()
    (tmp_path / "desk/feedback.jsonl").touch()
    assert "desk/feedback.jsonl (is followed)" in check(plant(tmp_path, marks="desk/feedback.jsonl")).stdout


def test_the_former_key_of_the_place_of_marks_works_and_the_new_line_is_said(tmp_path: Path) -> None:
    result = check(plant(tmp_path, learning={"feedback": "desk/feedback.jsonl"}))
    assert result.exit_code == 0
    assert f"marks                {tmp_path / 'desk/feedback.jsonl'} (not there yet)" in result.stdout
    assert "learning.feedback    is called marks now; it is read as before" in result.stdout
    assert "-> write marks: desk/feedback.jsonl at the top level, and leave this key out" in result.stdout


def test_a_default_place_of_marks_that_a_pattern_reads_is_a_warning_where_nothing_needs_it(tmp_path: Path) -> None:
    """A run without learning neither reads nor writes there."""
    read_back = {"source": {"url": "*.jsonl"}}
    (tmp_path / "day.jsonl").write_text("".join(json.dumps(message) + "\n" for message in good()))
    outcome, name, text = the_one(plant(tmp_path, **read_back))
    assert (outcome, name) == ("warning", "marks")
    assert "marks.jsonl would be read as recordings (source.url: *.jsonl)" in text
    found = findings(plant(tmp_path, marks="marks.jsonl", **read_back))
    assert [(one["outcome"], one["check"]) for one in found] == [("failed", "marks")]


def test_a_place_for_the_learners_events_that_cannot_be_written_is_a_finding(tmp_path: Path) -> None:
    learning, sinks = {"process": "elsewhere", "store": "inliers"}, {"events": "out/events.jsonl"}
    assert check(plant(tmp_path, learning=learning, sinks=sinks)).exit_code == 0
    (tmp_path / "inliers.events.jsonl").mkdir()
    found = the_one(plant(tmp_path, learning=learning, sinks=sinks))
    path = tmp_path / "inliers.events.jsonl"
    assert found == ("failed", "learning.store.events", f"{path} is a folder -> name a file in it")


@pytest.mark.parametrize(
    ("place", "problem"),
    [
        ("fifo", "is not a regular file (a FIFO, socket or device) -> name a regular file"),
        ("/dev/null", "is not a regular file (a FIFO, socket or device) -> name a regular file"),
        ("/proc/nope/x", "/proc"),
        ("a" * 5_000, "File name too long -> choose another path"),
    ],
)
def test_a_place_of_feedback_that_cannot_be_used_is_a_finding(tmp_path: Path, place: str, problem: str) -> None:
    """All of them were ok to check, and refused by all else."""
    os.mkfifo(tmp_path / "fifo")
    outcome, name, text = the_one(plant(tmp_path, marks=place))
    assert (outcome, name) == FEEDBACK
    assert problem in text


def test_a_wrong_config_is_all_its_problems(tmp_path: Path) -> None:
    result = check(plant(tmp_path, window={"lenght": 16}, alerts={"false_alarm_rate": 2}))
    assert isinstance(result.exception, ConfigError)
    assert len(result.exception.problems) == 2


def swapped() -> list[dict[str, Any]]:
    messages = good()
    messages[3], messages[5] = messages[5], messages[3]
    return messages


def stepped_back(seconds: float) -> list[dict[str, Any]]:
    """Return the messages with one sample that lies so far behind the one before it."""
    messages = good()
    messages[8]["time"] = messages[7]["time"] - seconds
    return messages


def changed(**changes: Any) -> list[dict[str, Any]]:
    return [{**message, **changes} for message in good()]


def flat() -> list[dict[str, Any]]:
    return [{"stream": "r1", "sequence": "a", "time": 1_772_000_000 + i, "TI-1": 1.0} for i in range(9)]


def test_marks_at_their_former_place_are_named_with_the_line_that_reads_them(tmp_path: Path) -> None:
    (tmp_path / "inliers.marks.jsonl").write_text("")
    found = findings(plant(tmp_path, learning={}))
    assert ("warning", "marks") in {(each["outcome"], each["check"]) for each in found}
    named = findings(plant(tmp_path, learning={}, marks="inliers.marks.jsonl"))
    assert ("warning", "marks") not in {(each["outcome"], each["check"]) for each in named}


def stored_in(folder: str) -> dict[str, Any]:
    """Return sections of a plant with a store in ``folder``, and the files that lie beside it by default elsewhere."""
    sinks = {"alerts": "out/alerts.jsonl", "windows": "out/windows.jsonl"}
    return {"learning": {"store": folder}, "marks": "out/marks.jsonl", "sinks": sinks}


SOURCE, SEQUENCES, ALERTS = ("failed", "source"), ("warning", "sequences"), ("failed", "sinks.alerts")
STORE, FEEDBACK = ("failed", "learning.store"), ("failed", "marks")
ANY_LOSS = {"sequences": {"max_late": 1}}
BY_CHANGE = {"sequences": {"end": ["change"]}, "window": {"length": 64}}
ONE_FILE = {"alerts": "out/all.jsonl", "verdicts": "file:out/../out/all.jsonl"}
OF_OTHERS = {"alerts": "out/alerts.jsonl", "decisions": "out/d.jsonl", "verdicts": "out/d-others.jsonl"}


@pytest.mark.parametrize(
    ("messages", "sections", "found", "words"),
    [
        (None, {"source": {"url": "in/nothing.jsonl"}}, SOURCE, "no such file"),
        (None, {"source": {"url": "file:in/day.jsonl", "options": {"delimeter": ";"}}}, SOURCE, "delimiter"),
        (None, {"source": {"url": "kafak:x"}}, SOURCE, "kafak"),
        ([], {}, SOURCE, "check source.url"),
        (changed(values={"temp": 1.0}), {}, SOURCE, "unknown_channel"),
        (flat(), {"decode": {"fields": {"values": None}}}, SOURCE, "field"),
        (None, {"model": {"recordings": "empty.jsonl"}}, ("failed", "model.recordings"), "check model.recordings"),
        (changed(sequence=None), BY_CHANGE, SEQUENCES, "no message names a sequence"),
        (swapped(), ANY_LOSS, SEQUENCES, "2 of 50 samples came too late"),
        (swapped(), ANY_LOSS, SEQUENCES, "2 s behind"),
        (stepped_back(200_000), ANY_LOSS, SEQUENCES, "some lie 2 days, 7:33:20 (h:mm:ss) behind"),
        (None, {"sinks": ONE_FILE}, ("failed", "sinks.verdicts"), "sinks.alerts"),
        (None, {"source": {"url": "in/day.jsonl"}, "sinks": {"alerts": "in/day.jsonl"}}, ALERTS, "recordings"),
        (None, {"sinks": OF_OTHERS}, ("failed", "sinks.decisions (of others)"), "also the file of sinks.verdicts"),
        (None, {"sinks": {"alerts": "in"}}, ALERTS, "a folder"),
        (None, {"sinks": {"alerts": "plant.yaml/alerts.jsonl"}}, ALERTS, "a file"),
        (None, {"run": {"checkpoint": None}}, ("warning", "checkpoint"), ""),
        (None, {"learning": {"store": "empty.jsonl"}}, STORE, "is a file"),
        (None, stored_in("empty.jsonl/inliers"), STORE, "needs a folder there"),
        (None, {"marks": "out/alerts.jsonl"}, FEEDBACK, "is also the file of sinks.alerts"),
        (None, {"marks": "in"}, FEEDBACK, "is a folder"),
        (None, {"marks": "x/../plant.yaml"}, FEEDBACK, "is the config itself"),
        (None, {"sinks": {"alerts": "plant.yaml"}}, ALERTS, "is the config itself"),
        (None, {"sinks": {"alerts": "hard.yaml"}}, ALERTS, "is the config itself"),
        (None, {"sinks": {"alerts": "registry/alerts.jsonl"}}, ALERTS, "lies in the folder of model.registry"),
        (None, {"run": {"checkpoint": "plant.yaml"}}, ("failed", "run.checkpoint"), "is the config itself"),
        (None, {"run": {"checkpoint": "link"}}, ("failed", "run.checkpoint"), "also the folder of model.registry"),
        (None, {"model": {"registry": "."}}, ("failed", "model.registry"), "holds the config"),
        (None, stored_in("registry/default"), STORE, "lies in the folder of model.registry"),
        (None, {"learning": {"store": "checkpoint"}}, STORE, "also the folder of run.checkpoint"),
        (None, {"marks": "checkpoint/desk.jsonl"}, FEEDBACK, "in the folder of run.checkpoint"),
        (None, {"marks": "stdout:"}, FEEDBACK, "no subscription 'stdout'"),
    ],
)
def test_what_is_wrong_with_a_plant_is_one_finding(
    tmp_path: Path, messages: list[Any] | None, sections: dict[str, Any], found: tuple[str, str], words: str
) -> None:
    (tmp_path / "empty.jsonl").touch()
    (tmp_path / "plant.yaml").touch()
    (tmp_path / "hard.yaml").hardlink_to(tmp_path / "plant.yaml")
    (tmp_path / "link").symlink_to(tmp_path / "registry")
    outcome, name, text = the_one(plant(tmp_path, messages, **sections))
    assert (outcome, name) == found
    assert words in text


def test_some_unreadable_records_are_a_warning_by_kind_with_the_first(tmp_path: Path) -> None:
    odd = [*good(), "text", {"stream": "r1", "time": "yesterday", "values": {"temp_c": 1}}, {"stream": "r1"}]
    found = findings(plant(tmp_path, odd))
    assert [finding["outcome"] for finding in found] == ["warning"] * 3
    assert {finding["message"].split(": ")[1].split(";")[0] for finding in found} == {
        "wrong_type",
        "bad_time",
        "missing_field",
    }
    assert "1 of 53 records" in found[0]["message"]
    assert "in/day.jsonl at" in found[0]["message"]


def test_bad_values_are_a_warning_of_their_own(tmp_path: Path) -> None:
    messages = good()
    messages[3]["values"] = {"temp_c": "Bad", "pressure_bar": True}
    (found,) = findings(plant(tmp_path, messages))
    assert (found["outcome"], found["check"]) == ("warning", "source")
    assert "1 of temp_c (wrong_type), 1 of pressure_bar (wrong_type): missing" in found["message"]
    assert "in/day.jsonl at" in found["message"]
    assert "got 'Bad'" in found["message"]
    assert "decode.missing" in found["advice"]


def test_a_channel_without_values_is_named(tmp_path: Path) -> None:
    half = [{**message, "values": {"temp_c": message["values"]["temp_c"]}} for message in good()]
    found = findings(plant(tmp_path, half))
    assert [(finding["outcome"], finding["check"]) for finding in found] == [
        ("warning", "channels"),
        ("failed", "window"),
    ]
    assert "pressure_bar" in found[0]["message"]
    assert "temp_c" not in found[0]["message"]


def test_sequences_that_end_only_by_limits_are_a_warning(tmp_path: Path) -> None:
    without = [{key: value for key, value in message.items() if key != "end"} for message in good()]
    outcome, name, text = the_one(plant(tmp_path, without, sequences={"end": ["marker"]}))
    assert (outcome, name) == ("warning", "sequences")
    assert "no sequence ended by marker: only by end_of_input" in text
    assert "no message has end: true" in text
    found = findings(plant(tmp_path, without, sequences={"end": ["marker"], "max_samples": 9}))
    assert "only by max_samples" in found[0]["message"]
    assert found[0]["advice"].startswith("raise sequences.max_samples if they are cut; else: no message has")


ONE_CHANNEL = {"fields": {"channel": "tag", "value": "v"}}


def test_a_file_that_is_sorted_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is read whole before its first record comes, so the limit for silent sources does not hold."""
    monkeypatch.setattr("streamad.commands.check.sample.MAX_WAIT_S", 0.0)
    config = plant(tmp_path, good()[::-1])
    assert "no record came within ten seconds" in findings(config)[0]["message"]
    for source in ({"url": "in/day.jsonl", "options": {"sort": True}}, {"url": "in/day.jsonl?sort=true"}):
        assert not [one for one in findings(plant(tmp_path, good()[::-1], source=source)) if one["check"] == "source"]


def per_channel() -> list[dict[str, Any]]:
    return [
        {"stream": "r1", "sequence": f"B-{i // 10}", "time": 1_772_000_000 + i, "tag": tag, "v": i, "end": i % 10 == 9}
        for i in range(50)
        for tag in ("temp_c", "pressure_bar")
    ]


def test_samples_of_sequences_that_had_ended_are_not_for_a_larger_lateness(tmp_path: Path) -> None:
    interleaved = [message(0, index) for index in range(5)]
    interleaved += [{**message(n % 2, 5 + n), "time": 1_772_000_010 + n, "end": False} for n in range(10)]
    config = plant(tmp_path, interleaved, sequences={"end": ["change"]})
    (found,) = [f for f in findings(config) if "came too late" in f["message"]]
    assert "their sequence had ended" in found["advice"]
    assert "allowed_lateness" not in found["advice"]


def passes(config: Path) -> list[str]:
    return [each["message"] for each in json.loads(check(config, "--json").stdout)["checks"] if each["outcome"] == "ok"]


@pytest.mark.parametrize(("n", "is_much"), [(0, None), (2, False), (3, True)])
def test_values_that_others_of_their_time_replace_are_counted_and_above_5_percent_a_warning(
    tmp_path: Path, n: int, is_much: bool | None
) -> None:
    messages = [{**each, "end": False} for each in good()]
    doubled = [{**each, "values": {"temp_c": 1.0}} for each in messages[9 : 10 * n : 10]]
    doubled += messages[1:2]  # an equal copy
    messages = sorted([*messages, *doubled], key=lambda each: each["time"])
    config = plant(tmp_path, messages, sequences={"end": ["change"], "max_merged": 1})
    said = f"{n} of {51 + n} samples are displaced by another value of their channel and time"
    if is_much:
        (found,) = [each for each in findings(config) if "displaced" in each["message"]]
        assert found["message"] == f"{said}, and are lost"
        assert "decode.fields.time" in found["advice"]
        assert "sequences.end: [restart]" in found["advice"]
    else:
        assert findings(config) == []
        assert [each for each in passes(config) if "displaced" in each] == [said] * (is_much is False)


def test_ids_that_come_again_after_their_end_name_the_memory_of_ids(tmp_path: Path) -> None:
    again = [
        {**message(number % 3, index), "time": 1_772_000_000 + 100 * number + index}
        for number in range(5)
        for index in range(10)
    ]
    (found,) = findings(plant(tmp_path, again))
    assert found["message"] == (
        "20 of 50 samples came too late, and are lost: 2 ids come again after the end, such as B-0 of r1"
    )
    memory = "sequences.closed_memory: 145s"
    assert memory in found["advice"]
    assert findings(plant(tmp_path, again, sequences={"closed_memory": "145s"})) == []


def relative(sequence: str | None, n: int) -> list[dict[str, Any]]:
    """Return a sequence whose readings are those of no other length: equal ones would be samples that come again."""
    each = {"sequence": sequence, "end": None}
    return [
        {**message(0, index, n), **each, "time": index, "values": {"temp_c": index + n, "pressure_bar": n}}
        for index in range(n)
    ]


@pytest.mark.parametrize(
    ("again", "line"),
    [
        (None, "relative times begin anew 3 times: write sequences.end: [restart]"),
        ("A", "write sequences.closed_memory: 0s"),
    ],
)
def test_relative_times_that_begin_anew_name_the_line_that_reads_them(
    tmp_path: Path, again: str | None, line: str
) -> None:
    ids = ["A", "B", "A", "B"] if again else [None] * 4
    messages = [each for number, name in enumerate(ids) for each in relative(name, 10 + number)]
    of = {"decode": {"time": "relative"}}
    end = ["change"] if again else ["marker"]
    found = findings(plant(tmp_path, messages, **of, sequences={"end": end, "max_late": 1}))
    assert [line in each["advice"] for each in found if "too late" in each["message"]] == [True]
    mended = {"end": ["change"], "closed_memory": "0s"} if again else {"end": ["restart"]}
    config = plant(tmp_path, messages, **of, sequences=mended)
    assert findings(config) == []
    assert any("4 sequences ended: 3 by" in each for each in passes(config))


def test_an_id_that_comes_again_in_the_same_file_lies_in_one_file(tmp_path: Path) -> None:
    again = [{**each, "time": each["time"] + 1_000} for each in good(1)[:9]]
    assert findings(plant(tmp_path, [*good(), *again], sequences={"closed_memory": "10s"})) == []


@pytest.mark.parametrize(("sequence", "n"), [(None, 20), ("pause", 20), (None, 2)])
def test_fragments_beside_long_sequences_are_suspect(tmp_path: Path, sequence: str | None, n: int) -> None:
    messages = [
        each for number in (3, 5, *range(6, 24))[:n] for each in [message(number, index, 50) for index in range(50)]
    ]
    for number in (3, 5):
        name = None if sequence is None else f"{sequence}-{number}"
        pause = [{**message(number, 60 + index), "sequence": name} for index in range(number - 1)]
        messages += [{**each, "end": False} for each in pause]
    messages.sort(key=lambda each: each["time"])
    (found,) = findings(plant(tmp_path, messages, window={"length": 64}))
    assert found["message"].startswith(
        f"2 of {n + 2} sequences have 2 to 4 samples, the usual one has 50: they may be fragm"
    )
    assert ("write sequences.without_id: skip" in found["advice"]) == (sequence is None)


def test_empty_objects_and_records_of_other_things_are_counted(tmp_path: Path) -> None:
    fields = {"values": None, "end": "end"}
    flat = [{**each, **each["values"]} for each in good()]
    config = plant(tmp_path, [*flat, {}, {}], decode={"fields": fields})
    assert any(
        "52 records, 50 samples of 1 stream, 2 records without a channel of the plant" in each
        for each in passes(config)
    )


def test_one_channel_per_message_without_lateness_is_a_warning(tmp_path: Path) -> None:
    messages = [{**message, "end": False} for message in per_channel()]
    config = plant(tmp_path, messages, decode=ONE_CHANNEL, sequences={"end": ["change"]})
    outcome, name, text = the_one(config)
    assert (outcome, name) == ("warning", "sequences")
    assert "one channel per message" in text
    enough = {"end": ["change"], "allowed_lateness": 2}
    assert findings(plant(tmp_path, messages, decode=ONE_CHANNEL, sequences=enough)) == []


@pytest.mark.parametrize(("gap", "n_findings"), [("9s", 1), ("9001ms", 0)])
def test_a_gap_not_longer_than_a_chunk_is_a_warning(tmp_path: Path, gap: str, n_findings: int) -> None:
    chunks = [
        {
            "stream": "r1",
            "times": [1_772_000_000 + 60 * i + j for j in range(10)],
            "values": [[1.0 * j, 2.0 * j] for j in range(10)],
        }
        for i in range(6)
    ]
    found = findings(plant(tmp_path, chunks, sequences={"end": ["gap"], "gap": gap}))
    assert len(found) == n_findings
    assert all("9 s" in finding["message"] for finding in found)


@pytest.mark.parametrize(
    ("window", "outcome", "word"),
    [
        ({"length": 8}, "warning", "squeezed"),
        ({"length": 8, "longer": "truncate"}, "warning", "cut"),
        ({"length": 8, "longer": "reject"}, "failed", "too long"),
        ({"length": 128}, "warning", "far more"),
        ({"length": 16, "min_samples": 11}, "failed", "too few samples"),
        ({"length": 16, "resample": {"period": "100ms"}}, "warning", "squeezed"),
    ],
)
def test_a_window_that_does_not_fit(tmp_path: Path, window: dict[str, Any], outcome: str, word: str) -> None:
    found = findings(plant(tmp_path, window=window))
    assert (found[0]["outcome"], found[0]["check"]) == (outcome, "window")
    assert word in found[0]["message"]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_without_the_right_to_write_fails(tmp_path: Path) -> None:
    config = plant(tmp_path, sinks={"alerts": "shut/alerts.jsonl"})
    (tmp_path / "shut").mkdir(mode=0o500)
    assert the_one(config)[:2] == ("failed", "sinks.alerts")


def test_a_checkpoint_in_use_fails(tmp_path: Path) -> None:
    config = plant(tmp_path)
    (tmp_path / "checkpoint").mkdir()
    with (tmp_path / "checkpoint/lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        outcome, name, text = the_one(config)
    assert (outcome, name) == ("failed", "checkpoint")
    assert "in use" in text
    assert findings(config) == []


def test_a_damaged_checkpoint_fails(tmp_path: Path) -> None:
    config = plant(tmp_path)
    (tmp_path / "checkpoint").mkdir()
    (tmp_path / "checkpoint/start.json").write_text("{")
    assert the_one(config)[:2] == ("failed", "checkpoint")


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("trained")
    config = plant(folder, good(12), model={"options": {"n_minirocket": 84, "n_groups": 2, "time_limit_s": 1e-6}})
    varied = [{**m, "values": {k: v + i % 7 + i / 100 for k, v in m["values"].items()}} for i, m in enumerate(good(12))]
    (folder / "in/day.jsonl").write_text("".join(json.dumps(m) + "\n" for m in varied))
    result = CliRunner().invoke(app, ["train", "-c", str(config)])
    assert result.exit_code == 0, result.output
    return config


def test_no_model_is_a_warning_with_the_command_that_trains_one(tmp_path: Path) -> None:
    config = plant(tmp_path)
    report = json.loads(CliRunner().invoke(app, ["check", "-c", str(config), "--json"]).stdout)
    last = report["checks"][-1]
    assert (last["check"], last["outcome"]) == ("model", "warning")
    assert last["advice"] == f"streamad train --config {config}"


def test_a_rate_below_what_the_calibration_certifies_is_extrapolated(trained: Path) -> None:
    report = json.loads(CliRunner().invoke(app, ["check", "-c", str(trained), "--json"]).stdout)
    assert [finding["outcome"] for finding in report["checks"][-2:]] == ["ok", "warning"]
    message = report["checks"][-1]["message"]
    estimate = "12 calibration sequences scored out of fold estimate false-alarm rates from 0.077 on and certify none"
    assert f"{estimate}; 0.02 is extrapolated" in message
    assert report["checks"][-1]["advice"] == (
        "train on 150 recordings or more (49 of 150 are held out), or raise alerts.false_alarm_rate to "
        "0.077, an estimate as well"
    )


def test_a_rate_within_the_ranks_of_an_out_of_fold_calibration_is_an_estimate(trained: Path) -> None:
    settings = yaml.safe_load(trained.read_text())
    settings["alerts"] = {"false_alarm_rate": 0.1}
    other = trained.parent / "tenth.yaml"
    other.write_text(yaml.safe_dump(settings))
    report = json.loads(CliRunner().invoke(app, ["check", "-c", str(other), "--json"]).stdout)
    assert report["checks"][-1]["outcome"] == "ok"
    assert report["checks"][-1]["message"].endswith("12 sequences scored out of fold calibrate it for 0.1, an estimate")


@pytest.mark.parametrize(("backend", "is_said"), [("auto", True), ("torchscript", False)])
def test_auto_that_has_torchscript_alone_says_how_to_get_a_quicker_one(
    trained: Path, backend: str, is_said: bool
) -> None:
    settings = yaml.safe_load(trained.read_text())
    settings["model"] |= {"backend": backend, "device": "cpu"}
    other = trained.parent / "backend.yaml"
    other.write_text(yaml.safe_dump(settings))
    report = json.loads(CliRunner().invoke(app, ["check", "-c", str(other), "--json"]).stdout)
    said = [finding["message"] for finding in report["checks"] if finding["check"] == "model.backend"]
    assert len(said) == is_said
    assert all("pip install 'streamad-monitor[openvino]', then train anew" in message for message in said)


def test_outputs_of_another_checkpoint_are_named_before_anything_is_cut_off(trained: Path) -> None:
    assert CliRunner().invoke(app, ["run", "-c", str(trained), "-q"]).exit_code == 0
    content = yaml.safe_load(trained.read_text())
    other = trained.with_name("other.yaml")
    other.write_text(yaml.safe_dump({**content, "run": {"checkpoint": "other"}}))
    found = findings(other)
    assert [(each["outcome"], each["check"]) for each in found] == [("warning", "sinks.verdicts")]
    assert f"the checkpoint {trained.parent / 'checkpoint'} writes there, too" in found[0]["message"]
    assert found[0]["advice"] == "give each plant, and each run.checkpoint, files of its own"
    assert CliRunner().invoke(app, ["run", "-c", str(other), "-q"]).exit_code == 0
    outcome, name, text = the_one(trained)
    assert (outcome, name) == ("failed", "sinks.verdicts")
    assert "would cut it off; nothing was changed" in text
    for written in (trained.parent / "out").iterdir():
        written.unlink()
    shutil.rmtree(trained.parent / "checkpoint")


def test_a_file_that_somebody_put_among_those_of_an_output_is_named(trained: Path) -> None:
    assert CliRunner().invoke(app, ["run", "-c", str(trained), "-q"]).exit_code == 0
    foreign = trained.parent / "out/verdicts.jsonl.00000000000000000123"
    foreign.touch()
    outcome, name, text = the_one(trained)
    assert (outcome, name) == ("failed", "sinks.verdicts")
    assert f"{foreign} begins amid verdicts.jsonl, so it is no file of this output" in text
    foreign.rename(foreign.with_name("verdicts.jsonl.00000000000009000000"))
    outcome, name, text = the_one(trained)
    assert (outcome, name) == ("failed", "checkpoint")
    assert "verdicts.jsonl.00000000000009000000 begins" in text
    for written in (trained.parent / "out").iterdir():
        written.unlink()
    shutil.rmtree(trained.parent / "checkpoint")


def test_outputs_deleted_without_their_checkpoint_fail(trained: Path) -> None:
    result = CliRunner().invoke(app, ["run", "-c", str(trained), "-q"])
    assert result.exit_code == 0, result.output
    assert findings(trained) == []
    (trained.parent / "out/verdicts.jsonl").unlink()
    outcome, name, text = the_one(trained)
    assert (outcome, name) == ("failed", "checkpoint")
    assert "verdicts.jsonl has 0 bytes" in text
    assert "to begin anew" in text


def test_a_damaged_model_fails(trained: Path) -> None:
    (trained.parent / "registry/default/versions/0001/model.ts").write_bytes(b"other")
    result = CliRunner().invoke(app, ["check", "-c", str(trained), "--json"])
    assert result.exit_code == 1
    last = json.loads(result.stdout)["checks"][-1]
    assert (last["check"], last["outcome"]) == ("model", "failed")


def test_wrong_detector_options_fail(tmp_path: Path) -> None:
    config = plant(tmp_path, model={"detector": "ensemble", "options": {"n_group": 3}})
    result = CliRunner().invoke(app, ["check", "-c", str(config), "--json"])
    last = json.loads(result.stdout)["checks"][-1]
    assert (last["check"], last["outcome"]) == ("model.options", "failed")
    assert "n_groups" in last["message"]
    assert "model.detector" not in last["message"]


def test_an_unknown_reference_is_refused_before_anything_trains(tmp_path: Path) -> None:
    config = plant(tmp_path, model={"references": ["pca", "pcaa", "nearest"]})
    report = json.loads(CliRunner().invoke(app, ["check", "-c", str(config), "--json"]).stdout)["checks"]
    (told,) = [each["message"] for each in report if each["outcome"] == "failed"]
    assert "model.references.1" in told
    assert "no detector 'pcaa'; did you mean 'pca'? (installed: " in told
    assert "minirocket" in told
    result = CliRunner().invoke(app, ["train", "-c", str(config)])
    assert isinstance(result.exception, ConfigError)
    assert str(result.exception) == f"{config}: 1 problem\n  {told}"


def test_options_of_another_kind_than_the_default_are_told_to_name_it(tmp_path: Path) -> None:
    config = plant(tmp_path, model={"options": {"epochs": 3}})
    result = CliRunner().invoke(app, ["check", "-c", str(config), "--json"])
    message = json.loads(result.stdout)["checks"][-1]["message"]
    assert "unknown key 'epochs' of the default detector, ensemble: name the kind" in message


def test_a_wrong_option_has_its_line_and_nothing_that_hangs_on_it_is_called_right(tmp_path: Path) -> None:
    config = plant(tmp_path, source={"url": "kafka://127.0.0.1:1/press", "options": {"grup": "g"}})
    line = next(n for n, text in enumerate(config.read_text().splitlines(), 1) if "grup" in text)
    report = json.loads(check(config, "--json").stdout)["checks"]
    (told,) = [each["message"] for each in report if each["outcome"] == "failed"]
    assert told == f"source.options.grup (line {line}): unknown key 'grup'; did you mean 'group'?"
    assert "checkpoint" not in {each["check"] for each in report}
    result = CliRunner().invoke(app, ["replay", "-c", str(config)])
    assert str(result.exception) == f"{config}: 1 problem\n  {told}"


def test_an_option_from_the_environment_names_its_variable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STREAMAD_SOURCE__OPTIONS", '{"delimeter": ";"}')
    result = CliRunner().invoke(app, ["replay", "-c", str(plant(tmp_path))])
    assert "environment variable STREAMAD_SOURCE__OPTIONS, delimeter: unknown key" in str(result.exception)


def test_a_wrong_url_on_the_command_line_is_reported(tmp_path: Path) -> None:
    for command in (["record", "--out", str(tmp_path / "new")], ["replay"]):
        arguments = [*command, "-c", str(plant(tmp_path)), "--from", "kafka://127.0.0.1:1"]
        result = CliRunner().invoke(app, arguments)
        assert isinstance(result.exception, ConfigError)
        assert [problem.path for problem in result.exception.problems] == ["--from"]


def test_a_hint_names_the_config_that_the_command_was_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    config = plant(tmp_path).rename(tmp_path / "plant of mine.yaml")
    monkeypatch.setattr("sys.argv", ["streamad", "replay", "-c", str(config)])
    with pytest.raises(SystemExit):
        main()
    assert f"streamad train --config '{config}'" in capsys.readouterr().err


def test_the_content_of_a_store_is_printed_and_what_cannot_be_used_is_a_finding(tmp_path: Path) -> None:
    config = plant_of(tmp_path, learning={"store": "inliers"})
    plant(tmp_path)
    plant_of(tmp_path, learning={"store": "inliers"}, source={"url": "in/day.jsonl"})
    store = f"{'learning.store':<20} inliers"
    assert f"{store} (nothing stored yet)" in check(config).stdout
    assert not (tmp_path / "inliers").exists()
    add(config, {"accepted": [sequence(n) for n in range(3)], "reserve": [sequence(3)]})
    assert f"{store} (sequences: default 4)" in check(config).stdout
    other = plant_of(tmp_path, learning={"store": "inliers"}, source={"url": "in/day.jsonl"}, window={"length": 9})
    (found,) = (each for each in findings(other) if each["check"] == "learning.store")
    assert found["outcome"] == "warning"
    assert "4 sequences of default left alone, they have other channels or windows" in found["message"]
    (tmp_path / "inliers/inliers.sqlite3").write_bytes(b"nonsense" * 999)
    (found,) = (each for each in findings(config) if each["check"] == "learning.store")
    assert found["outcome"] == "failed"
    assert "inliers.sqlite3 cannot be used: file is not a database" in found["message"]


def about(config: Path, *checks: str) -> list[tuple[str, str]]:
    """Return outcome and message of each finding about ``checks``, also of those that are ok."""
    report = json.loads(check(config, "--json").stdout)
    return [(one["outcome"], one["message"]) for one in report["checks"] if one["check"] in checks]


@pytest.mark.parametrize(
    ("url", "outcome", "words"),
    [
        ("out/status", "ok", "status (a file for each worker)"),
        ("there", "failed", "there is a file"),
        ("there/status", "failed", "needs a folder there"),
        ("nowhere://x", "failed", "nowhere"),
        ("registry", "failed", "model.registry"),
        ("registry/status", "failed", "model.registry"),
        ("in", "failed", "source.url"),
        ("checkpoint", "failed", "run.checkpoint"),
        ("inliers", "failed", "learning.store"),
        (".", "failed", "plant.yaml"),
    ],
)
def test_the_place_of_the_status_is_checked(tmp_path: Path, url: str, outcome: str, words: str) -> None:
    sinks = {"verdicts": "out/verdicts.jsonl", "status": url}
    config = plant(tmp_path, sinks=sinks, learning={"store": "inliers"}, run={"checkpoint": "checkpoint"})
    (tmp_path / "there").touch()
    (found,) = about(config, "sinks.status")
    assert found[0] == outcome
    assert words in found[1]


@pytest.mark.parametrize("url", ["out", "out/verdicts.jsonl"])
def test_an_output_at_or_in_the_folder_of_the_status_is_refused(tmp_path: Path, url: str) -> None:
    config = plant(tmp_path, sinks={"verdicts": "out/verdicts.jsonl", "status": url})
    failed = [message for outcome, message in about(config, "sinks.status", "sinks.verdicts") if outcome == "failed"]
    assert len(failed) == 1
    assert "sinks.status" in failed[0]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_of_the_status_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    config = plant(tmp_path, sinks={"status": "closed/status"})
    (tmp_path / "closed").mkdir(mode=0o500)
    assert [outcome for outcome, _ in about(config, "sinks.status")] == ["failed"]


@pytest.mark.parametrize(
    ("fields", "key", "near"),
    [
        ({"sequence": "batch_ID"}, "decode.fields.sequence", "batch_id"),
        ({"time": "timestmp"}, "decode.fields.time", "timestamp"),
        ({"values": None}, "channels[0].field", "data.temp_c"),
    ],
)
def test_a_misspelled_field_gets_the_one_that_is_meant(
    tmp_path: Path, fields: dict[str, Any], key: str, near: str
) -> None:
    messages = [
        {"line": one["stream"], "batch_id": one["sequence"], "timestamp": one["time"], "data": one["values"]}
        for one in good()
    ]
    right = {"stream": "line", "sequence": "batch_id", "time": "timestamp", "end": None, "values": "data"}
    channels = [{"name": "temp_c"}, {"name": "pressure_bar"}]
    if "values" in fields:
        channels = [{"name": "temp_c", "field": "data.tempc"}, {"name": "pressure_bar", "field": "data.pressure_bar"}]
    config = plant(
        tmp_path, messages, decode={"fields": right | fields}, channels=channels, sequences={"end": ["change"]}
    )
    advice = {each["check"]: each["advice"] for each in findings(config)}
    assert advice[key] == f"if it is meant, write {near}"
    whole = plant(tmp_path, messages, decode={"fields": right}, sequences={"end": ["change"]})
    assert "if it is meant" not in check(whole).stdout


def test_a_misspelled_field_in_text_gets_the_one_that_is_meant(tmp_path: Path) -> None:
    messages = [
        {**one, "values": json.dumps({"temp_c": 1.0, "pressure_bar": one["values"]["temp_c"]})} for one in good()
    ]
    channels = [{"name": "temp_c", "field": "values.tempc"}, {"name": "pressure_bar", "field": "values.pressure_bar"}]
    fields = {"stream": "stream", "sequence": "sequence", "time": "time", "values": None, "nested": "values"}
    config = plant(tmp_path, messages, decode={"fields": fields}, channels=channels)
    advice = {each["check"]: each["advice"] for each in findings(config)}
    assert advice["channels[0].field"] == "if it is meant, write values.temp_c"


def test_two_plants_that_keep_their_marks_in_one_place_are_named(tmp_path: Path) -> None:
    config = plant(tmp_path, name="north", learning={})
    (tmp_path / "south.yaml").write_text(yaml.safe_dump({**BASE, "name": "south"}))
    (tmp_path / "other.yaml").write_text("a: [")
    (found,) = [each for each in findings(config) if each["check"] == "marks"]
    assert (found["message"], found["advice"]) == (
        "south.yaml keeps its marks in the same place",
        "write marks: north.marks.jsonl here",
    )
    (tmp_path / "south.yaml").write_text(yaml.safe_dump({**BASE, "name": "south", "marks": "south.marks.jsonl"}))
    assert "marks" not in [each["check"] for each in findings(config)]


def test_a_registry_in_a_store_is_tried_and_nothing_is_left(
    tmp_path: Path, bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = plant(tmp_path, model={"registry": f"{bucket.url}/models", "cache": "copies"})
    checks = json.loads(check(config, "--json").stdout)["checks"]
    assert ("model.registry", f"{bucket.url}/models (takes conditional writes)") in [
        (each["check"], each["message"]) for each in checks
    ]
    assert not (tmp_path / "copies").exists()
    plant(tmp_path, model={"registry": "s3://not-there/models"})
    outcome, key, text = next(
        (each["outcome"], each["check"], each["message"])
        for each in findings(config)
        if each["check"] == "model.registry"
    )
    assert (outcome, key) == ("failed", "model.registry")
    assert "there is no such bucket" in text
    plant(tmp_path, model={"registry": f"{bucket.url}/models"})
    monkeypatch.setattr("streamad.learn.registry.places.requests.BucketObjects.create", refuse)
    (found,) = findings(config)
    assert (found["outcome"], found["check"]) == ("warning", "model.registry")
    assert "workers need no more" in found["advice"]


def refuse(*_: object) -> None:
    raise ObjectError("refused", "s3://bucket/models/x: the store refuses access")


@pytest.mark.parametrize(
    ("bridge", "said"),
    [
        ({"url": "mqtt://broker/plant/+/samples"}, r"ok +bridge +plant/\+/samples of broker:1883"),
        ({"url": "mqtt://broker/plant/#/samples"}, r"failed +bridge .*# stands for all levels"),
        (
            {"url": "mqtt://broker/a", "options": {"recieve_maximum": 3}},
            r"failed +bridge .*did you mean 'receive_maximum'",
        ),
        ({"url": "kafka://broker:9092/a"}, r"failed +bridge +no inlet 'kafka'"),
        ({"url": "mqtt://broker/a", "to": "out/alerts.jsonl"}, r"failed +bridge +bridge.to .*the file of sinks.alerts"),
        ({"url": "mqtt://broker/a", "to": "in/day.jsonl"}, r"ok +bridge "),
    ],
)
def test_what_the_bridge_reads_is_checked(tmp_path: Path, bridge: dict[str, Any], said: str) -> None:
    assert re.search(said, check(plant(tmp_path, good(), bridge=bridge)).output)


@pytest.mark.parametrize(
    ("web", "key", "said"),
    [
        ({"view": "plant.yaml"}, "web.view", "is the config itself: name another file, such as out/view.sqlite3"),
        ({"view": "in/day.jsonl"}, "web.view", "would be read as recordings"),
        ({"view": "link"}, "web.view", "is a link: name in web.view what it leads to"),
        ({"view": "text"}, "web.view", "is no page's view: name another file in web.view, or move it away"),
        ({"auth": {"token": {"file": "gone"}}}, "web.auth.token.file", "/gone: (umask 077; head -c 24 /dev/urandom"),
        ({"auth": {"token": {"file": "text"}}}, "web.auth.token.file", "less than 20 characters"),
        ({"hosts": ["*"]}, "web.hosts", "'*' is no name that a browser sends"),
        ({"hosts": ["https://hall/"]}, "web.hosts", "'https://hall/' is no name"),
        (
            {"auth": {"proxy": {"trusted": ["0.0.0.0/0", "10.0.0.5/32"]}}},
            "web.auth.proxy.trusted",
            "each of the 4,294,967,296 addresses of 0.0.0.0/0 can act as anybody",
        ),
        ({"auth": {"proxy": {"trusted": ["::/0"]}}}, "web.auth.proxy.trusted", "addresses of ::/0 can act as anybody"),
    ],
)
def test_a_page_that_would_not_start_or_let_in_others_is_found(
    tmp_path: Path, web: dict[str, Any], key: str, said: str
) -> None:
    (tmp_path / "text").write_text("hunter2\n")
    (tmp_path / "link").symlink_to(tmp_path / "text")
    config, before = plant(tmp_path, good(), web=web), sorted(tmp_path.rglob("*"))
    (found,) = [each for each in findings(config) if each["check"].startswith("web")]
    assert said in f"{found['check']}: {found['message']}"
    assert found["check"] == key
    assert sorted(tmp_path.rglob("*")) == before
