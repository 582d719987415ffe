"""acceptance.yaml: what is read, and what is refused with its line."""

from __future__ import annotations

from pathlib import Path

import pytest

from streamad.errors import ConfigError
from streamad.validation.expectations import load_acceptance

GOOD = """\
schema: 1
title: line 1
data:
  - name: days
    recordings: days.jsonl
    labels: truth.csv
expect:
  - what: false_alarms
    at_most: 0.05
  - what: warned
    at_least: 0.5
    fault: stuck
    lead: 10m
"""


def _load(folder: Path, text: str) -> None:
    path = folder / "acceptance.yaml"
    path.write_text(text)
    load_acceptance(path)


def test_defaults_are_the_strict_ones(tmp_path: Path) -> None:
    path = tmp_path / "acceptance.yaml"
    path.write_text(GOOD)
    found = load_acceptance(path)
    assert (found.decide_by, found.restarts, found.replays) == ("bound", 3, 2)
    assert (found.limits.lost_samples, found.limits.unscorable, found.limits.unlabelled) == (0, 0, 0)
    assert found.expect[1].lead == 600_000_000
    assert [each.name for each in found.sets_of(found.expect[0])] == ["days"]


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("at_most: 0.05", "at_least: 0.05", ("expect.0 (line 8)", "false_alarms takes at_most")),
        ("at_most: 0.05", "at_most: 0", ("(line 9)", "no number of sequences shows 0 by the bound")),
        ("at_least: 0.5", "at_least: 1", ("(line 11)", "no number of sequences shows 1")),
        ("at_most: 0.05", "at_most: 5", ("(line 9)", "less than 1")),
        ("at_most: 0.05", "at_most: .nan", ("(line 9)",)),
        ("at_most: 0.05", "at_most: 0.05\n    fault: x", ("leave fault out",)),
        ("what: warned", "what: detection", ("lead is about warnings",)),
        ("what: warned", "what: detects", ("detection",)),
        ("fault: stuck", "fault: [stuck]", ("(line 12)", "string")),
        ("lead: 10m", "lead: soon", ("(line 13)", "soon", "duration")),
        ("lead: 10m", "data: [nights]", ("no data set is named nights; there are days",)),
        ("labels: truth.csv", "labels: truth.csv\n    label: normal", ("leave one of them out",)),
        ("labels: truth.csv", "normal: [ok]", ("normal is about labels",)),
        ("recordings: days.jsonl", "recordings: kafka://u:secret@h/t", ("password",)),
        ("name: days", "name: ../days", ("(line 4)",)),
        ("title: line 1", "titel: line 1", ("did you mean 'title'",)),
        ("schema: 1", "schema: 2", ("schema 2", "acceptance.yaml", "update streamad")),
        ("schema: 1", "schema: 1\nrestarts: 0", ("(line 2)",)),
        ("schema: 1", "schema: 1\nreplays: 1", ("(line 2)",)),
        ("schema: 1", "schema: 1\nlimits: {unscorable: -1}", ("(line 2)",)),
        ("schema: 1", "schema: 1\ntitle: again", ("key given twice",)),
        ("title: line 1", 'title: "a\\0b"', ("NUL",)),
        (GOOD[GOOD.index("expect:") :], "expect: []\n", ("must list from 1",)),
        (GOOD, "- a list", ("must be a mapping",)),
        (GOOD, "a: &a [*a]", ()),
    ],
)
def test_wrong_expectations_are_refused(tmp_path: Path, old: str, new: str, words: tuple[str, ...]) -> None:
    assert old in GOOD
    with pytest.raises(ConfigError) as caught:
        _load(tmp_path, GOOD.replace(old, new, 1))
    for word in words:
        assert word in str(caught.value), str(caught.value)
    assert "secret" not in str(caught.value)


def test_a_limit_without_room_is_shown_by_the_estimate(tmp_path: Path) -> None:
    _load(tmp_path, GOOD.replace("at_most: 0.05", "at_most: 0\n    decide_by: estimate"))


def test_two_data_sets_have_two_names(tmp_path: Path) -> None:
    another = "data:\n  - {name: days, recordings: more.jsonl}\n"
    with pytest.raises(ConfigError, match="days is the name of two data sets"):
        _load(tmp_path, GOOD.replace("data:\n", another, 1))


def test_a_missing_file_names_the_command_that_writes_one(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="streamad validate --init"):
        load_acceptance(tmp_path / "acceptance.yaml")
