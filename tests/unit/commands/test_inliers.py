"""streamad inliers: what is stored is shown, comes out as it went in, and goes away only when that was meant."""

from __future__ import annotations

import asyncio
import json
import os
import pty
import re
import subprocess
import sys
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from typer.testing import CliRunner, Result

from streamad.cli import app
from streamad.commands.shared.plants import load_plant
from streamad.commands.shared.windows import Recordings, read_windows
from streamad.decisions.recording import current_user
from streamad.errors import StoreError, UsageError
from streamad.learn.store.records import Mark, StoredSequence
from streamad.messages import Request
from streamad.runtime.wiring import source_for
from streamad.system.locks import try_lock
from streamad.types import from_us
from tests.support.learning.stored import HOUR_US, START_US, add, identity, learn, plant_of, sequence, store_of
from tests.support.waiting import LIMIT_S


def run(config: Path, command: str, *arguments: str | Path) -> Result:
    words = ["inliers", command, *map(str, arguments), "--config", str(config)]
    return CliRunner().invoke(app, words, catch_exceptions=True)


def refusal(config: Path, command: str, *arguments: str | Path) -> str:
    """Return the text of the UsageError that a command ends with."""
    result = run(config, command, *arguments)
    assert isinstance(result.exception, UsageError), result.output
    return str(result.exception)


def json_of(result: Result) -> Any:
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """A plant with six accepted, three reserved and two set aside, one of which is marked."""
    path = plant_of(tmp_path)
    reserve = [sequence(6), sequence(7, decision="anomalous", p_value=0.01), sequence(8, model_version="0002")]
    learning = {"decision": "learning", "score": None, "p_value": None, "model_version": None}
    aside = [sequence(9, decision="anomalous", p_value=0.004), sequence(10, **learning)]
    add(path, {"accepted": [sequence(n) for n in range(6)], "reserve": reserve, "aside": aside})
    for id_, word in ((identity(9), "confirmed"), (identity(99), "veto")):
        store_of(path).mark(Mark(id=id_, judgement=word, at_us=START_US))  # type: ignore[arg-type]
    return path


# --- list ---


def test_counts_spans_versions_and_marks(config: Path) -> None:
    (model,) = json_of(run(config, "list", "--json"))["models"]
    shares = model["shares"]
    assert {share: found["count"] for share, found in shares.items()} == {"accepted": 6, "reserve": 3, "aside": 2}
    assert shares["accepted"]["first_time"] == from_us(START_US).isoformat().replace("+00:00", "Z")
    assert shares["accepted"]["at_most"] == 2000
    assert shares["reserve"]["versions"] == {"0001": 2, "0002": 1}
    assert shares["aside"]["versions"] == {"0001": 1, "none": 1}
    assert shares["reserve"]["decisions"] == {"anomalous": 1, "normal": 2}
    assert model["marks"] == {"confirmed": 1, "veto": 1}
    assert (model["marks_without_window"], model["problems"]) == (1, [])


def test_people_see_the_same(config: Path) -> None:
    said = run(config, "list").stdout
    for words in (r"accepted +6 +2000 ", r"reserve +3 +800 .* 0001 \(2\), 0002 \(1\) +1 anomalous, 2 normal"):
        assert re.search(words, said), said
    assert re.search(r"no model \(1\)", said)
    assert "marks: 1 confirmed, 1 veto; 1 of them without a stored window" in said
    each = run(config, "list", "--each").stdout
    assert re.search(rf"{identity(9)} +r1 +B-9 .* aside +anomalous +0.0040 +confirmed +\n", each)
    assert len(re.findall(r" [rR]\d +B-\d+ ", each)) == 11


def test_each_sequence_for_machines(config: Path) -> None:
    (model,) = json_of(run(config, "list", "--each", "--json"))["models"]
    by_id = {one["id"]: one for one in model["sequences"]}
    assert len(by_id) == 11
    assert by_id[identity(9)].items() >= {"stream": "r1", "sequence": "B-9", "share": "aside", "p_value": 0.004}.items()
    assert by_id[identity(9)]["mark"]["judgement"] == "confirmed"
    assert by_id[identity(0)]["mark"] is None


def test_what_was_said_and_by_whom(config: Path) -> None:
    words = [
        ("false_alarm", "Kim", False),
        ("withdrawn", "Jo", True),
        ("veto", "[red]Al", False),
        ("veto", "\x1b[2J\nX", False),
    ]
    for n, (judgement, by, is_verified) in enumerate(words):
        mark = Mark(id=identity(n), judgement=judgement, by=by, by_verified=is_verified, at_us=1)  # type: ignore[arg-type]
        store_of(config).mark(mark)
    said = run(config, "list", "--each").stdout
    assert "false alarm by Kim (claimed)" in said
    assert "withdrawn by Jo" in said
    assert "withdrawn by Jo (claimed)" not in said
    assert "veto by [red]Al (claimed)" in said
    assert "veto by \ufffd[2J\ufffdX (claimed)" in said  # nothing that a terminal obeys
    (model,) = json_of(run(config, "list", "--each", "--json"))["models"]
    assert [one["mark"]["by_verified"] for one in model["sequences"][:3]] == [False, True, False]


def test_what_is_kept_for_its_mark_alone_is_counted_apart(tmp_path: Path) -> None:
    config = plant_of(tmp_path, learning={"max_training": 150})
    add(config, {"aside": [sequence(0)]})
    store_of(config).mark(Mark(id=identity(0), judgement="confirmed", at_us=START_US))
    add(config, {"aside": [sequence(n) for n in range(1, 100)]})
    (model,) = json_of(run(config, "list", "--each", "--json"))["models"]
    assert (model["shares"]["aside"]["count"], model["shares"]["aside"]["only_marked"]) == (75, 1)
    assert [one["id"] for one in model["sequences"] if one["only_marked"]] == [identity(0)]
    assert re.search(r"aside +75 \+ 1 marked +75 ", run(config, "list").stdout)


def test_sequences_of_another_window_are_left_alone_and_told(config: Path) -> None:
    other = plant_of(config.parent, window={"length": 9})
    (model,) = json_of(run(other, "list", "--json"))["models"]
    assert {found["count"] for found in model["shares"].values()} == {0}
    (problem,) = model["problems"]
    assert "11 sequences of default left alone, they have other channels or windows" in problem
    assert "not used" in run(other, "list").stderr
    (model,) = json_of(run(plant_of(config.parent), "list", "--json"))["models"]
    assert (model["shares"]["accepted"]["count"], model["problems"]) == (6, [])


@pytest.mark.parametrize("n_bytes", [0, 300])
def test_a_damaged_store_is_one_line(config: Path, n_bytes: int) -> None:
    path = config.parent / "inliers/inliers.sqlite3"
    content = path.read_bytes()
    path.write_bytes(content[:n_bytes] + b"\xff" * 5_000)
    result = run(config, "list")
    assert isinstance(result.exception, StoreError), result.output
    assert str(path) in str(result.exception)
    assert "\n" not in str(result.exception)


def test_nothing_is_stored_yet_and_looking_makes_nothing(tmp_path: Path) -> None:
    config = plant_of(tmp_path)
    assert "nothing is stored yet" in run(config, "list").stdout
    assert json_of(run(config, "list", "--json")) == {"models": []}
    assert [path.name for path in tmp_path.iterdir()] == ["plant.yaml"]


def test_without_learning_every_command_is_refused(tmp_path: Path) -> None:
    config = plant_of(tmp_path, learning=None)
    for command in (["list"], ["export", "--out", "a.npz"], ["veto", identity(1)], ["purge", "--all"]):
        assert "no section learning" in refusal(config, *command)


# --- several models ---


@pytest.fixture
def routed(tmp_path: Path) -> Path:
    path = plant_of(tmp_path, models={"field": "recipe.name", "values": ["A"]})
    add(path, {"accepted": [sequence(1)]}, "default.A")
    add(path, {"accepted": [sequence(2), sequence(3)]}, "default.B")
    add(path, {"accepted": [sequence(4)]}, "elsewhere")  # another plant's, in the same place
    return path


def test_all_models_of_the_plant_or_one_by_name_or_value(routed: Path) -> None:
    models = json_of(run(routed, "list", "--json"))["models"]
    assert {one["model"]: one["shares"]["accepted"]["count"] for one in models} == {"default.A": 1, "default.B": 2}
    for name in ("default.B", "B"):
        (model,) = json_of(run(routed, "list", "--model", name, "--json"))["models"]
        assert model["model"] == "default.B"
    assert "default.A, default.B)" in refusal(routed, "list", "--model", "elsewhere")


def test_exported_lines_carry_the_field_that_chooses_the_model(routed: Path) -> None:
    to = routed.parent / "all.jsonl"
    assert run(routed, "export", "--out", to).exit_code == 0
    lines = [json.loads(line) for line in to.read_text().splitlines()]
    assert [(line["sequence"], line["recipe"]) for line in lines] == [
        ("B-1", {"name": "A"}),
        ("B-2", {"name": "B"}),
        ("B-3", {"name": "B"}),
    ]


# --- export ---


def read_back(config: Path, url: str) -> Recordings:
    plant = load_plant(config)
    return asyncio.run(read_windows(plant, source_for(plant, url)))


def expect_same(found: Recordings, wanted: list[StoredSequence]) -> None:
    assert not found.unscorable
    assert found.counters.late_samples == 0
    assert len(found.windows) == len(wanted)
    by_name = {one.sequence: one.window for one in wanted}
    for read, window in zip(found.sequences, found.windows, strict=True):
        assert window.length == by_name[read.sequence].length
        np.testing.assert_array_equal(window.values, by_name[read.sequence].values)


@pytest.mark.parametrize("ending", ["npz", "jsonl"])
@pytest.mark.parametrize("window", [{}, {"longer": "truncate"}, {"resample": {"period": "250ms"}}])
def test_what_is_exported_is_read_as_the_same_windows(tmp_path: Path, ending: str, window: dict[str, Any]) -> None:
    config = plant_of(tmp_path, window={"length": 8, **window})
    stored = [sequence(n, time_us=START_US + n * 1_000) for n in range(20)]  # closer together than they are long
    add(config, {"accepted": stored[:12], "reserve": stored[12:]})
    to = tmp_path / f"all.{ending}"
    said = run(config, "export", "--out", to).stdout
    assert said.startswith(f"wrote {to}: 20 sequences (12 accepted, 8 reserve), ended ")
    option = "?period=0.25s" if ending == "npz" and "resample" in window else ""
    assert (f"read it as '{to}{option}'" in said) == bool(option)
    expect_same(read_back(config, f"{to}{option}"), stored)


def test_only_what_was_asked_for(config: Path, tmp_path: Path) -> None:
    to = tmp_path / "out" / "part.jsonl"
    since, until = (from_us(START_US + n * HOUR_US).isoformat() for n in (2, 5))
    report = json_of(
        run(config, "export", "--out", to, "--share", "accepted", "--since", since, "--until", until, "--json")
    )
    assert report == {"file": str(to), "sequences": 3, "shares": {"accepted": 3}}
    lines = [json.loads(line) for line in to.read_text().splitlines()]
    assert [(line["stream"], line["sequence"]) for line in lines] == [("r0", "B-2"), ("r1", "B-3"), ("r0", "B-4")]
    ends = [datetime.fromisoformat(line["times"][-1]) for line in lines]
    assert ends == [from_us(START_US + n * HOUR_US) for n in (2, 3, 4)]


def test_an_archive_holds_the_decision_and_the_feedback_on_each(config: Path, tmp_path: Path) -> None:
    to = tmp_path / "all.npz"
    assert run(config, "export", "--out", to).exit_code == 0
    with np.load(to, allow_pickle=False) as archive:
        labels = archive["classes"][archive["y"]]
        found = dict(zip(archive["id"].tolist(), labels.tolist(), strict=True))
        assert np.isnan(archive["p_value"]).sum() == 1
    assert found[identity(9)] == "confirmed"  # the operator's word goes before the decision
    assert (found[identity(0)], found[identity(7)], found[identity(10)]) == ("normal", "anomalous", "learning")
    assert len(read_back(config, f"{to}?classes=normal").windows) == 8


def test_repeated_names_are_made_distinct_in_an_archive(tmp_path: Path) -> None:
    config = plant_of(tmp_path)
    add(config, {"accepted": [sequence(1, sequence="B"), sequence(2, sequence="B")]})
    assert run(config, "export", "--out", tmp_path / "a.npz").exit_code == 0
    assert {one.sequence for one in read_back(config, f"{tmp_path}/a.npz").sequences} == {"r1/B", "r0/B"}
    add(config, {"accepted": [sequence(3, sequence="B")]})
    assert run(config, "export", "--out", tmp_path / "b.npz").exit_code == 0
    assert {one.sequence for one in read_back(config, f"{tmp_path}/b.npz").sequences} == {
        identity(n) for n in (1, 2, 3)
    }


@pytest.mark.parametrize("place", ["registry/default/versions/0001/reference.npz", "{store}/x.npz", "alerts.jsonl"])
def test_an_export_overwrites_nothing_of_the_plant(tmp_path: Path, place: str) -> None:
    config = plant_of(tmp_path, sinks={"alerts": "alerts.jsonl"})
    add(config, {"accepted": [sequence(1)]})
    settings = load_plant(config).settings
    assert settings.learning is not None
    target = tmp_path / place.format(store=settings.learning.store)
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(b"theirs")
    assert "name another place with --out" in refusal(config, "export", "--force", "--out", target)
    assert target.read_bytes() == b"theirs"


def test_what_cannot_be_exported(config: Path, tmp_path: Path) -> None:
    (tmp_path / "there.npz").touch()
    assert "exists: name another" in refusal(config, "export", "--out", tmp_path / "there.npz")
    assert run(config, "export", "--out", tmp_path / "there.npz", "--force").exit_code == 0
    assert ".npz or .jsonl" in refusal(config, "export", "--out", tmp_path / "a.csv")
    assert "no such share" in refusal(config, "export", "--out", tmp_path / "a.npz", "--share", "normal")
    assert "no stored sequence" in refusal(config, "export", "--out", tmp_path / "a.npz", "--since", "2099-01-01")
    other = plant_of(tmp_path, decode={"fields": {"stream": "unit"}})
    assert "export to .npz" in refusal(other, "export", "--out", tmp_path / "a.jsonl")
    assert not list(tmp_path.glob("a.*"))


# --- veto ---


@pytest.mark.parametrize(("stream", "name", "empty"), [("", "B-2", "--stream"), ("r0", "", "--sequence")])
@pytest.mark.parametrize("more", [[], [identity(1)]])
def test_an_empty_name_is_no_sequence(stream: str, name: str, empty: str, more: list[str], config: Path) -> None:
    text = refusal(config, "veto", "--stream", stream, "--sequence", name, *more)
    assert text == f"{empty} is empty: give the name that streamad inliers list --each shows"
    assert set(store_of(config).marks()) == {identity(9), identity(99)}


def test_a_veto_is_a_mark_of_the_store_once_the_learner_has_read_it(config: Path) -> None:
    assert "ids begin with" in refusal(config, "veto", identity(1), identity(2)[:31])  # of which one?
    assert identity(1) not in store_of(config).marks()
    result = run(config, "veto", identity(1), identity(999), "--note", "calibrating", "--by", "Jo")
    assert f"veto: {identity(999)}" in result.stdout
    assert "veto: r1 B-1, ended " in result.stdout
    assert "no window to learn from" in result.stderr
    assert identity(1) not in store_of(config).marks(), "the learner alone writes the store"
    written = [json.loads(line) for line in (config.parent / "marks.jsonl").read_text().splitlines()]
    assert [(one["alert_id"], one["judgement"]) for one in written] == [(identity(1), "veto"), (identity(999), "veto")]
    assert learn(config) == []
    mark = store_of(config).marks()[identity(1)]
    assert (mark.judgement, mark.note, mark.by) == ("veto", "calibrating", "Jo")


def test_a_veto_by_name(config: Path) -> None:
    assert json_of(run(config, "veto", "--stream", "r1", "--sequence", "B-3", "--json"))["kept"] == 1
    learn(config)
    assert store_of(config).marks()[identity(3)].judgement == "veto"
    assert "no known sequence 'B-3' of stream 'r0'" in refusal(config, "veto", "--stream", "r0", "--sequence", "B-3")
    assert "go together" in refusal(config, "veto", "--sequence", "B-3")
    assert "name the sequences" in refusal(config, "veto")


# --- purge ---


def test_a_purge_deletes_what_meets_every_condition(config: Path) -> None:
    before = from_us(START_US + 3 * HOUR_US).isoformat()
    report = json_of(run(config, "purge", "--before", before, "--share", "accepted", "--yes", "--json"))
    assert report == {"sequences": 3, "deleted": True}
    assert store_of(config).counts() == {"accepted": 3, "reserve": 3, "aside": 2}
    assert "deleted 2 sequences" in run(config, "purge", "--id", identity(6), "--id", identity(9), "-y").stdout
    assert store_of(config).counts() == {"accepted": 3, "reserve": 2, "aside": 1}
    assert not store_of(config).offer(sequence(6), "reserve")  # and it does not come back
    said = " ".join(run(config, "purge", "--id", identity(6)).stdout.split())
    assert "deleted 0 sequences: none of 6 stored ones meets the conditions, the latest of them ended 2026-" in said
    assert "what the learner has not stored yet is not deleted" in said
    assert "deleted 6 sequences" in run(config, "purge", "--all", "--yes").stdout


def asked(config: Path) -> list[Request]:
    """Return the requests in the place of feedback, in their order."""
    place = config.parent / "marks.jsonl"
    lines = place.read_bytes().splitlines() if place.exists() else []
    return [msgspec.json.decode(line, type=Request) for line in lines]


def test_while_a_learner_works_here_it_is_asked_to_purge(config: Path) -> None:
    lock = try_lock(config.parent / "inliers/learner.lock")
    assert lock is not None
    before = from_us(START_US + 3 * HOUR_US)
    words = ["--before", before.isoformat(), "--share", "accepted", "--model", "default", "--yes"]
    assert "asked: the learner deletes them" in run(config, "purge", *words).stdout
    report = json_of(run(config, "purge", "--id", identity(9), "--yes", "--json"))
    assert report == {"sequences": 1, "deleted": False}
    os.close(lock)
    assert store_of(config).counts() == {"accepted": 6, "reserve": 3, "aside": 2}
    first, second = asked(config)
    assert (first.action, first.model, first.before, first.share) == ("purge", "default", before, "accepted")
    assert (first.by, second.model, second.ids) == (current_user(), None, [identity(9)])
    by = f"by {current_user()} (claimed)"
    assert learn(config) == [
        ("inliers_purged", f"3 stored sequences deleted, as asked {by}"),
        ("inliers_purged", f"1 stored sequences deleted, as asked {by}"),
    ]
    assert store_of(config).counts() == {"accepted": 3, "reserve": 3, "aside": 1}


def test_a_learner_elsewhere_is_asked_to_purge_and_nothing_is_deleted_here(config: Path) -> None:
    plant_of(config.parent, learning={"process": "elsewhere"})
    assert json_of(run(config, "purge", "--all", "--yes", "--json")) == {"sequences": 11, "deleted": False}
    assert sum(store_of(config).counts().values()) == 11
    assert [request.action for request in asked(config)] == ["purge"]
    report = json_of(run(config, "purge", "--id", identity(77), "--json"))
    assert report == {"sequences": 0, "deleted": True}, "nothing here meets the condition"
    assert len(asked(config)) == 1


def test_a_store_that_is_not_on_this_machine_is_purged_on_its_own(tmp_path: Path) -> None:
    config = plant_of(tmp_path, learning={"process": "elsewhere"})
    assert "the stored sequences would be deleted" in refusal(config, "purge", "--all")
    assert "asked: the learner deletes them" in run(config, "purge", "--all", "--yes").stdout
    assert [request.action for request in asked(config)] == ["purge"]
    assert not (tmp_path / "inliers").exists()


def test_a_purge_deletes_nothing_that_is_stored_later(tmp_path: Path) -> None:
    """Before anything was stored it waited for the first model, and deleted its first sequences."""
    config = plant_of(tmp_path)
    assert json_of(run(config, "purge", "--all", "--yes", "--json")) == {"sequences": 0, "deleted": True}
    add(config, {"accepted": [sequence(1)]})
    (request,) = asked(config)
    with (tmp_path / "marks.jsonl").open("ab") as file:
        file.write(msgspec.json.encode(request) + b"\n")  # sent twice: it is one request, and was answered
    learn(config)
    assert store_of(config).counts()["accepted"] == 1


def test_a_purge_asks_or_requires_the_option(config: Path) -> None:
    assert "needs --yes" in refusal(config, "purge", "--all")
    assert "11 stored sequences of default would be deleted" in refusal(config, "purge", "--all")
    assert "name the sequences: --before" in refusal(config, "purge")
    assert "contradict" in refusal(config, "purge", "--all", "--share", "aside")
    assert "is no time" in refusal(config, "purge", "--before", "soon")
    assert sum(store_of(config).counts().values()) == 11


@pytest.mark.parametrize(("answer", "n_left"), [("n", 11), ("y", 9)])
def test_at_a_terminal_the_answer_decides(config: Path, answer: str, n_left: int) -> None:
    terminal, side = pty.openpty()
    os.write(terminal, f"{answer}\n".encode())
    words = [sys.executable, "-m", "streamad", "inliers", "purge", "--share", "aside", "--config", str(config)]
    done = subprocess.run(words, stdin=side, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    os.close(terminal)
    os.close(side)
    assert "delete 2 stored sequences of default?" in done.stderr
    assert done.returncode == (0 if answer == "y" else 1), done.stderr
    assert sum(store_of(config).counts().values()) == n_left
