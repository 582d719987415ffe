"""Begin and end of commands: Ctrl-C before the work, input without records, the version that a training replaces."""

from __future__ import annotations

import json
from collections import Counter
from types import SimpleNamespace
from typing import Any

import pytest

from streamad.__main__ import main as entry_point
from streamad.commands.shared.windows import Recordings, read_windows
from streamad.language import percent
from tests.support.runtime.cli import CliPlant


@pytest.mark.parametrize("command", ["train", "run", "replay", "score", "check", "models list", "feedback --veto"])
def test_ctrl_c_before_a_command_has_begun_is_one_line(
    plant: CliPlant, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    def interrupted(*_: object) -> object:
        raise KeyboardInterrupt

    monkeypatch.setattr("streamad.commands.shared.plants.load_settings", interrupted)
    outcome = plant(command, *(["--alert", "x" * 32] if "veto" in command else []))
    assert (outcome.code, outcome.out, outcome.err) == (130, "", "interrupted\n")


def test_ctrl_c_during_the_imports_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("streamad.cli.main", interrupted)
    with pytest.raises(SystemExit, match="130"):
        entry_point()
    assert capsys.readouterr().err == "interrupted\n"


def test_a_training_that_replaces_a_version_says_which_with_the_figures_of_both_and_how_to_undo_it(
    plant: CliPlant,
) -> None:
    plant.write_recordings("fewer", normal=17, odd=0)
    plant.write_config(model={"references": []})
    assert "; 0002: 24 trained, 24 scored out of fold): streamad" in plant("train").out
    plant.write_config(model={"references": ["pca"]})
    assert plant("train").code == 0
    outcome = plant("train fewer")
    records = [json.loads(plant(f"models show {n} --json").out)["references"] for n in (3, 4)]
    old, new = (
        f"{n} trained, {n} scored out of fold, {percent(of['found']['share'])} of injected faults found at "
        f"{of['found']['rate']:g}, AUC {of['auc']:.3f}"
        for n, of in zip((24, 17), records, strict=True)
    )
    assert f"replaces 0003 ({old}; 0004: {new}): streamad models rollback undoes it\n" in outcome.out
    assert plant("train --json").last_json["replaces"] == "0004"
    assert plant("models rollback").code == 0
    assert "replaces" not in plant("train --no-promote").out


def test_score_prints_the_counts_only_with_quiet(plant: CliPlant) -> None:
    counts = Counter(json.loads(line)["decision"] for line in plant("score --json").out.splitlines())
    each = ", ".join(f"{n} {decision}" for decision, n in sorted(counts.items()))
    for command in ("score --quiet", "score -q"):
        assert plant(command).out == f"16 sequences ({each})\n"
    plant("score --quiet --json").assert_one_line_error("--quiet", code=2)


def test_the_first_training_replaces_nothing(untrained_plant: CliPlant) -> None:
    outcome = untrained_plant("train")
    assert outcome.code == 0, outcome.err
    assert "replaces" not in outcome.out


def test_the_time_in_all_includes_reading(plant: CliPlant, monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = 0.0

    async def slowly(*arguments: Any, **options: Any) -> Recordings:
        nonlocal now_s
        now_s += 5_000.0
        return await read_windows(*arguments, **options)

    monkeypatch.setattr("streamad.commands.train.read_windows", slowly)
    monkeypatch.setattr("streamad.commands.train.time", SimpleNamespace(perf_counter=lambda: now_s))
    assert " s (5000 s in all), " in plant("train").out


@pytest.mark.parametrize("name", ["empty.jsonl", "head.csv"])
def test_a_file_without_records_is_named_by_train_and_by_run_each_time(plant: CliPlant, name: str) -> None:
    (plant.folder / name).write_text("" if name == "empty.jsonl" else "stream,sequence,time,temp,pressure\n")
    plant(f"train {name}").assert_one_line_error(f"no record was read from {name}: ")
    plant.write_config(source={"url": name}, decode={"fields": {"values": None}})
    for _ in range(2):
        outcome = plant("run --quiet")
        assert (outcome.code, outcome.err) == (0, f"note: no record is in {name}: is source.url right?\n")


def test_a_run_with_nothing_new_has_no_such_note(plant: CliPlant) -> None:
    assert plant("run --quiet").err == ""
    assert plant("run --quiet").err == ""
