"""``streamad validate``: what decides, what is refused, and that equality means what it says."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import signal
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
import yaml

from streamad.commands.validate import running
from streamad.commands.validate.command import NOT_PASSED
from streamad.commands.validate.comparing import Outputs, OutputSink
from streamad.commands.validate.running import BreakingCommitter
from streamad.offline.files import made_of
from tests.support.runtime.cli import NEAREST, CliPlant
from tests.support.runtime.judged_plant import copied, judged_plant

N_NORMAL, N_ODD = 60, 20


@pytest.fixture(scope="module")
def judged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = judged_plant(tmp_path_factory.mktemp("judged"))
    CliPlant(folder, None, None).write_recordings("test", normal=N_NORMAL, odd=N_ODD, seed=9)  # type: ignore[arg-type]
    return folder


@pytest.fixture
def plant(
    judged: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> CliPlant:
    return CliPlant(copied(judged, tmp_path / "plant"), capsys, monkeypatch)


def expecting(plant: CliPlant, *expect: dict[str, Any], **content: Any) -> None:
    data = {"name": "test", "recordings": "test", "labels": "labels.csv"}
    content = {"title": "the line", "data": [data], "restarts": None, "replays": None, **content}
    content["expect"] = [*expect] or [{"what": "false_alarms", "at_most": 0.6}, {"what": "detection", "at_least": 0.8}]
    (plant.folder / "acceptance.yaml").write_text(yaml.safe_dump(content))


def protocol(plant: CliPlant, folder: str = "acceptance") -> Any:
    return json.loads((plant.folder / folder / "protocol.json").read_text())


def line(plant: CliPlant, what: str) -> Any:
    (found,) = [each for each in protocol(plant)["lines"] if what in each["what"]]
    return found


class Elements(HTMLParser):
    """The elements of a page with their attributes."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))


def test_a_passed_protocol_names_all_it_rests_on_and_two_differ_in_their_time_alone(plant: CliPlant) -> None:
    expecting(plant, restarts=3, replays=2)
    before = plant.files()
    done = plant("validate")
    assert done.code == 0, done.err
    assert "PASSED: all 9 lines" in done.out
    assert {name: content for name, content in plant.files().items() if not name.startswith("acceptance/")} == before
    first = protocol(plant)
    day = plant.folder / "test" / "day.jsonl"
    digest = hashlib.sha256(day.read_bytes()).hexdigest()
    assert first["data"][0]["files"] == [{"name": "test/day.jsonl", "n_bytes": day.stat().st_size, "sha256": digest}]
    assert first["origin"]["config"]["sha256"] == hashlib.sha256(plant.config.read_bytes()).hexdigest()
    manifest = json.loads((plant.folder / "registry/default/versions/0001/manifest.json").read_text())
    files = {each["name"]: each["sha256"] for each in first["models"][0]["files"]}
    assert files == {name: one["sha256"] for name, one in manifest["files"].items()}
    assert {"python", "numpy", "torch", "streamad"} <= first["origin"]["versions"].keys()
    page = (plant.folder / "acceptance" / "protocol.html").read_text()
    content = (plant.folder / "acceptance" / "protocol.json").read_bytes()
    assert hashlib.sha256(content).hexdigest() in page
    assert "no claim of compliance" in page
    assert plant("validate", "--out", "again").code == 0
    assert protocol(plant, "again") | {"created_at": ""} == first | {"created_at": ""}


def test_the_digests_of_model_and_config_are_those_of_the_decision_log_and_of_scored_files(plant: CliPlant) -> None:
    plant.write_config(model=NEAREST, sinks={"decisions": "out/decisions.jsonl"})
    shutil.rmtree(plant.folder / "checkpoint")
    assert plant("run", "--quiet").code == 0
    config, model = map(json.loads, (plant.folder / "out" / "decisions.jsonl").read_text().splitlines())
    assert (config["kind"], model["kind"]) == ("config", "model")
    expecting(plant)
    assert plant("validate").code == 0
    found = protocol(plant)
    (judged_by,) = found["models"]
    assert (f"{judged_by['name']} {judged_by['version']}", judged_by["sha256"]) == (
        model["subject"],
        model["details"]["digest"],
    )
    origin = found["origin"]
    assert (origin["settings_sha256"], origin["config"]["sha256"]) == (config["subject"], config["details"]["file"])
    assert plant("score", "--out", "scored").code == 0
    (file,) = (plant.folder / "scored" / "verdicts").iterdir()
    made = made_of(file)
    assert made is not None
    assert made.models == {"default": model["details"]["digest"]}


def test_the_expectations_decide_on_the_exit_code(plant: CliPlant) -> None:
    passed: list[dict[str, Any]] = [
        {"what": "false_alarms", "at_most": 0.6},
        {"what": "detection", "at_least": 0.8, "fault": "1", "data": ["test"]},
        {"what": "detection", "at_least": 0.99, "decide_by": "estimate"},
    ]
    expecting(plant, *passed)
    assert plant("validate").code == 0
    outcomes = {
        "failed": {"what": "false_alarms", "at_most": 0.01},
        "not_shown": {"what": "detection", "at_least": 0.99},
    }
    for outcome, expectation in outcomes.items():
        expecting(plant, *passed, expectation)
        done = plant("validate", "--force")
        assert done.code == NOT_PASSED, done.err
        rates = [each for each in protocol(plant)["lines"] if each["part"] == "rates"]
        assert [each["outcome"] for each in rates] == ["passed", "passed", "passed", outcome]
        assert rates[3]["rate"]["n"] == (N_NORMAL if outcome == "failed" else N_ODD)
    assert "about 368 such sequences would" in rates[3]["says"]


def test_recordings_that_trained_the_model_are_no_test(plant: CliPlant) -> None:
    data = {"name": "training", "recordings": "normal", "label": "normal"}
    expecting(plant, {"what": "false_alarms", "at_most": 0.9}, data=[data])
    assert plant("validate").code == NOT_PASSED
    found = line(plant, "trained or calibrated")
    assert (found["outcome"], found["found"]) == ("failed", "24 of 24 by id, 1 of 1 file by content")
    # Ids that recur may be declared, the same content may not.
    expecting(plant, {"what": "false_alarms", "at_most": 0.9}, data=[data | {"ids_recur": True}])
    assert plant("validate", "--force").code == NOT_PASSED
    text = (plant.folder / "normal" / "day.jsonl").read_text()
    (plant.folder / "other").mkdir()
    (plant.folder / "other" / "day.jsonl").write_text(text + "\n")
    expecting(plant, {"what": "false_alarms", "at_most": 0.9}, data=[data | {"recordings": "other", "ids_recur": True}])
    assert plant("validate", "--force").code == 0
    assert "24 ids are those of training sequences" in line(plant, "trained or calibrated")["says"]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"expect": [{"what": "detection", "at_least": 0.5, "fault": "stuck"}]}, ("no data set of it has", "'stuck'")),
        ({"expect": [{"what": "detection", "at_least": 0.5, "fault": "0"}]}, ("no data set of it has", "'0'")),
        ({"expect": [{"what": "warned", "at_least": 0.5}]}, ("set alerts.early",)),
        ({"data": [{"name": "a", "recordings": "kafka://h/t"}]}, ("data set a: kafka://h/t: broker",)),
        (
            {"data": [{"name": "a", "recordings": "test", "label": "normal"}]},
            ("no label of its data means faulty; there are normal",),
        ),
        (
            {"data": [{"name": "a", "recordings": "test"}]},
            ("no labels: give a labels (their file) or label (one for all)",),
        ),
        (
            {
                "data": [
                    {"name": "a", "recordings": "test", "labels": "labels.csv"},
                    {"name": "b", "recordings": "test/day.jsonl", "labels": "labels.csv"},
                ]
            },
            ("a and b both have the content of test/day.jsonl",),
        ),
        ({"data": [{"name": "a", "recordings": "kafka://h:9092/t"}]}, ("data set a", "is no file")),
    ],
)
def test_what_cannot_be_shown_is_refused_before_anything_runs(
    plant: CliPlant, change: dict[str, Any], words: tuple[str, ...]
) -> None:
    expecting(plant, *change.get("expect", ()), **{key: value for key, value in change.items() if key != "expect"})
    plant("validate").assert_one_line_error(*words, code=2)
    assert not (plant.folder / "acceptance").exists()


def test_a_copy_of_a_sequence_does_not_count_twice(plant: CliPlant) -> None:
    """Copies would make every interval narrower. One run for each: 4 s of a core."""
    day, copy = plant.folder / "test" / "day.jsonl", plant.folder / "more" / "copy.jsonl"
    copy.parent.mkdir()
    data = [{"name": name, "recordings": name, "labels": "labels.csv"} for name in ("test", "more")]
    copy.write_bytes(b"".join(day.read_bytes().splitlines(keepends=True)[-20:]))
    expecting(plant, data=data)
    done = plant("validate")
    assert done.code == 2
    assert "in the data sets test and more, with the same values" in done.err
    copy.rename(day.with_name("copy.jsonl"))
    expecting(plant)
    done = plant("validate")
    assert done.code == 2
    assert "is twice in the data set test" in done.err
    day.with_name("copy.jsonl").write_bytes(day.read_bytes())
    plant("validate").assert_one_line_error("test/copy.jsonl and test/day.jsonl have the same content", code=2)
    assert not (plant.folder / "acceptance").exists()


def test_labels_that_fit_no_sequence_are_an_error(plant: CliPlant) -> None:
    (plant.folder / "labels.csv").write_text("sequence,label\nB-1,0\nB-2,1\n")
    expecting(plant)
    done = plant("validate")
    assert (done.code, done.out) == (1, "")
    assert "data set test: none of the 80 judged sequences has a label" in done.err


def test_recordings_of_nothing_say_why(plant: CliPlant) -> None:
    (plant.folder / "test" / "day.jsonl").write_text("nothing\n")
    expecting(plant)
    done = plant("validate")
    assert (done.code, done.out) == (1, "")
    assert "error: data set test: none of 1 records is usable (1 malformed: unreadable): see streamad check" in done.err


def test_a_table_that_is_read_by_column_has_records(plant: CliPlant) -> None:
    day = plant.folder / "test" / "day.jsonl"
    rows = ["stream,sequence,time,temp,pressure"]
    for message in map(json.loads, day.read_text().splitlines()):
        for time, values in zip(message["times"], message["values"], strict=True):
            rows.append(",".join(map(str, (message["stream"], message["sequence"], time, *values))))
    day.unlink()
    (plant.folder / "test" / "day.csv").write_text("\n".join([*rows, ""]))
    (plant.folder / "test" / "empty.csv").write_text(f"{rows[0]}\n")
    names = {name: name for name in ("stream", "sequence", "time")}
    plant.write_config(model=NEAREST, decode={"fields": {**names, "values": None}}, sequences={"end": ["change"]})
    expecting(plant)
    assert plant("validate").code == NOT_PASSED
    found = line(plant, "no record was read")
    assert (found["found"], found["says"]) == ("1 of 2", "test/empty.csv")


def test_what_is_unusable_in_the_data_fails_and_is_said(plant: CliPlant) -> None:
    with (plant.folder / "test" / "day.jsonl").open("a") as file:
        file.write("not JSON\n")
    (plant.folder / "test" / "empty.jsonl").write_text("")
    (plant.folder / "test" / "readme.txt").write_text("hello")
    labels = (plant.folder / "labels.csv").read_text().splitlines()
    (plant.folder / "labels.csv").write_text("\n".join([*labels[:-1], "B-7,1"]) + "\n")
    expecting(plant)
    assert plant("validate").code == NOT_PASSED
    outcomes = {each["what"]: each["outcome"] for each in protocol(plant)["lines"] if each["part"] == "data"}
    assert outcomes == {
        "files of which no record was read": "failed",
        "samples and records that are lost": "failed",
        "sequences without a score": "passed",
        "sequences without a label": "failed",
        "sequences that trained or calibrated the model": "passed",
    }
    assert line(plant, "no record")["says"] == "test/empty.jsonl"
    notes = " ".join(protocol(plant)["notes"])
    assert "1 file of the folder are no recordings and were not read: readme.txt" in notes
    assert "1 label of sequences that are not in the recordings: B-7" in notes
    expecting(plant, limits={"lost_samples": 0.1, "unlabelled": 0.1})
    (plant.folder / "test" / "empty.jsonl").unlink()
    assert plant("validate", "--force").code == 0


def test_a_sequence_without_a_score_proves_no_low_rate_of_false_alarms(plant: CliPlant) -> None:
    path = plant.folder / "test" / "day.jsonl"
    messages = [json.loads(text) for text in path.read_text().splitlines()]
    labels = dict(text.split(",") for text in (plant.folder / "labels.csv").read_text().split()[1:])
    for kind in ("0", "1"):
        one = next(each for each in messages if labels[each["sequence"]] == kind)
        one["values"] = [[None, row[1]] for row in one["values"]]
    path.write_text("".join(json.dumps(each) + "\n" for each in messages))
    expecting(plant, limits={"unscorable": 0.1})
    assert plant("validate").code in (0, NOT_PASSED)
    rates = [each["rate"] for each in protocol(plant)["lines"] if each["part"] == "rates"]
    assert [each["n"] for each in rates] == [N_NORMAL - 1, N_ODD]
    assert rates[1]["k"] == N_ODD - 1
    assert line(plant, "without a score")["found"] == "2 of 80"


def test_a_fault_that_nobody_asks_for_is_said(plant: CliPlant) -> None:
    expecting(plant, {"what": "false_alarms", "at_most": 0.6})
    assert plant("validate").code == 0
    assert any("no expectation is about the fault '1'" in text for text in protocol(plant)["notes"])


def test_an_earlier_protocol_is_kept_unless_forced(plant: CliPlant) -> None:
    expecting(plant)
    assert plant("validate").code == 0
    before = plant.files()
    plant("validate").assert_one_line_error("already holds protocol.json", code=2)
    assert plant.files() == before
    assert plant("validate", "--force").code == 0
    for folder in ("test", "registry/default/versions/0001", "labels.csv"):
        assert plant("validate", "--out", folder).code == 2


def test_a_page_that_cannot_be_written_leaves_no_figures(plant: CliPlant) -> None:
    expecting(plant)
    (plant.folder / "acceptance" / "protocol.html").mkdir(parents=True)
    done = plant("validate", "--force")
    assert done.code == 1
    assert done.err.splitlines()[-1].startswith("error: cannot write acceptance/protocol.html")
    assert [path.name for path in (plant.folder / "acceptance").iterdir()] == ["protocol.html"]


def test_a_file_that_never_ends_is_refused(plant: CliPlant) -> None:
    (plant.folder / "labels.csv").unlink()
    os.mkfifo(plant.folder / "labels.csv")
    expecting(plant)
    plant("validate").assert_one_line_error("data set test", "labels.csv")
    os.mkfifo(plant.folder / "fifo.yaml")
    assert plant("validate", "fifo.yaml").code == 2


def test_names_from_outside_stay_text(plant: CliPlant) -> None:
    evil = "<script>alert(1)</script>"
    text = (plant.folder / "labels.csv").read_text().replace(",1\n", f',"{evil}"\n').replace(",1\r\n", f',"{evil}"\n')
    (plant.folder / "labels.csv").write_text(text)
    data = {"name": "test", "recordings": "test", "labels": "labels.csv", "normal": ["0"]}
    expecting(
        plant,
        {"what": "detection", "at_least": 0.5, "fault": evil},
        title="\"'><img src=http://x.test/>\u202e",
        data=[data],
    )
    done = plant("validate")
    assert done.code == 0, done.err
    page = (plant.folder / "acceptance" / "protocol.html").read_text()
    elements = Elements(page).found
    assert not {"script", "img", "link", "iframe"} & {tag for tag, _ in elements}
    assert not any(name.startswith("on") or name == "src" for _, of in elements for name in of)
    assert "\u202e" not in page
    assert "&lt;script&gt;" in page
    assert "url(" not in page


def test_init_writes_expectations_that_a_first_protocol_can_pass(plant: CliPlant) -> None:
    done = plant("validate --init", "--recordings", "test", "--labels", "labels.csv")
    assert done.code == 0, done.err
    text = (plant.folder / "acceptance.yaml").read_text()
    assert "20 sequences can show 83 % at best" in text.replace("\u00a0", " ")
    assert [each["what"] for each in yaml.safe_load(text)["expect"]] == ["false_alarms", "detection"]
    plant("validate --init", "--recordings", "test").assert_one_line_error("is there already", code=2)
    done = plant("validate")
    assert done.code == 0, done.out + done.err


def test_a_change_meanwhile_is_an_error(plant: CliPlant, monkeypatch: pytest.MonkeyPatch) -> None:
    replay = running.Runs.replay

    async def changing(runs: running.Runs, given: Any, words: str) -> Any:
        found = await replay(runs, given, words)
        with (plant.folder / "labels.csv").open("a") as file:
            file.write("B-9,0\n")
        return found

    monkeypatch.setattr(running.Runs, "replay", changing)
    expecting(plant)
    done = plant("validate")
    assert (done.code, done.out) == (1, "")
    assert "its files have changed meanwhile" in done.err
    assert not (plant.folder / "acceptance").exists()


def test_ctrl_c_leaves_a_line_and_no_protocol(plant: CliPlant, monkeypatch: pytest.MonkeyPatch) -> None:
    def stopped(*_: object) -> None:
        signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(running, "_tell", stopped)
    expecting(plant)
    done = plant("validate")
    assert done.code == 130
    assert done.err.splitlines()[-1] == "interrupted: no protocol was written"
    assert not (plant.folder / "acceptance").exists()


def test_a_replay_that_says_something_else_is_found(plant: CliPlant, monkeypatch: pytest.MonkeyPatch) -> None:
    write, n_verdicts = OutputSink.write, 0

    async def wrong(self: OutputSink, records: Any) -> None:
        nonlocal n_verdicts
        kept = []
        for each in records:
            n_verdicts += each.role == "verdicts"
            if each.role != "verdicts" or n_verdicts != N_NORMAL + N_ODD + 1:  # the first of the second replay
                kept.append(each)
        await write(self, kept)

    monkeypatch.setattr(OutputSink, "write", wrong)
    expecting(plant, replays=2)
    assert plant("validate").code == NOT_PASSED
    found = line(plant, "2 replays say the same")
    assert (found["outcome"], found["found"].partition(":")[0]) == ("failed", "different")


@pytest.mark.parametrize("fault", ["lost", "twice", "other"])
def test_a_run_that_says_something_else_after_its_restart_is_found(
    plant: CliPlant, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    commit, n_commits = BreakingCommitter.commit, 0

    async def wrong(self: BreakingCommitter, update: Any, outputs: Any) -> None:
        nonlocal n_commits
        has_verdicts = sum(each.role == "verdicts" for each in outputs) > 1
        n_commits += has_verdicts
        if has_verdicts and n_commits == 1:
            kept = {"lost": outputs[1:], "twice": [outputs[0], *outputs], "other": outputs[1:] + outputs[:1]}[fault]
            return await commit(self, update, kept)
        return await commit(self, update, outputs)

    monkeypatch.setattr(BreakingCommitter, "commit", wrong)
    monkeypatch.setattr(running._Breaks, "due", lambda *_: None)  # noqa: SLF001 - what is lost stays lost
    expecting(plant, restarts=1)
    assert plant("validate").code == NOT_PASSED
    assert line(plant, "is broken off 1 time")["found"].startswith("different: ")


def test_the_run_is_broken_off_as_often_as_asked(plant: CliPlant, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []
    monkeypatch.setattr(running, "_tell", lambda _, words: told.append(words))
    n_broken = 0
    due = running._Breaks.due  # noqa: SLF001

    def counted(self: Any, n: int) -> Any:
        nonlocal n_broken
        found = due(self, n)
        n_broken += found is not None
        return found

    monkeypatch.setattr(running._Breaks, "due", counted)  # noqa: SLF001
    expecting(plant, restarts=4)
    assert plant("validate").code == 0
    assert n_broken == 4
    assert told[-1] == "broken off and started anew: start 5 of 5"


def _verdict(**changes: Any) -> dict[str, Any]:
    verdict = {"type": "verdict", "stream": "r1", "sequence": "a", "decision": "normal", "score": 2.0, "p_value": 0.5}
    return verdict | {"created_at": "2026-11-30T00:00:00Z"} | changes


@pytest.mark.parametrize(
    ("change", "is_equal"),
    [
        ({"created_at": "2027-01-01T00:00:00Z"}, True),
        ({"score": 2.0 + 1e-6}, True),
        ({"score": 2.0 + 1e-6, "p_value": 0.6}, True),
        ({"score": 2.001}, False),
        ({"score": None}, False),
        ({"p_value": 0.6}, False),
        ({"decision": "anomalous"}, False),
        ({"sequence": "b"}, False),
        ({"stream": "r2"}, False),
        ({"n_late": 1}, False),
    ],
)
def test_what_counts_as_the_same_verdict(change: dict[str, Any], is_equal: bool) -> None:
    one, another = Outputs(), Outputs()
    one.add("verdicts", _verdict())
    another.add("verdicts", _verdict(**change))
    assert (one.difference(another) == "") == is_equal
    assert (another.difference(one) == "") == is_equal


def test_verdicts_in_another_order_differ_and_alerts_do_not() -> None:
    one, another = Outputs(), Outputs()
    for names, outputs in ((("a", "b"), one), (("b", "a"), another)):
        for name in names:
            outputs.add("alerts", _verdict(sequence=name))
    assert one.difference(another) == ""
    for names, outputs in ((("a", "b"), one), (("b", "a"), another)):
        for name in names:
            outputs.add("verdicts", _verdict(sequence=name))
    assert one.difference(another) == "verdicts of sequence 'a' of 'r1' differ"


def test_a_plant_without_a_model_says_what_to_do(plant: CliPlant) -> None:
    shutil.rmtree(plant.folder / "registry")
    expecting(plant)
    done = plant("validate")
    assert (done.code, done.out) == (1, "")
    assert "streamad train" in done.err
