"""A part of the fuzzer's cases (benchmarks/fuzz.py): no traceback, one error line, counts that add up."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from streamad.testing import ListSource
from streamad.types import Record
from tests.support.fuzz.calling import Answer
from tests.support.fuzz.cells import run_case
from tests.support.fuzz.command_lines import ENDLESS
from tests.support.fuzz.damage import damage_file
from tests.support.fuzz.law import broken
from tests.support.fuzz.messages import imbalance
from tests.support.fuzz.plant import FuzzPlant, build
from tests.support.runtime.pipeline import messy_recordings, records_of, run_pipeline, settings_of

SEED = 20
CASES = {
    "messages": range(12),
    "framed": range(6),
    "files": range(60),
    "configs": range(60),
    "command-lines": range(60),
}


@pytest.fixture(scope="module")
def plant(tmp_path_factory: pytest.TempPathFactory) -> FuzzPlant:
    return build(tmp_path_factory.mktemp("fuzz") / "template")


@pytest.mark.parametrize("family", CASES)
def test_no_case_breaks_the_law(family: str, plant: FuzzPlant, tmp_path: Path) -> None:
    found = [fault for number in CASES[family] for fault in run_case(family, number, SEED, plant, tmp_path)]
    assert found == []


def test_commands_that_run_until_they_are_stopped_are_known() -> None:
    assert {"run", "learn", "notify", "bridge", "record", "tail", "web", "--watch"} <= ENDLESS
    assert ENDLESS.isdisjoint({"streamad", "check", "train", "score", "show", "verify"})


def test_json_nested_too_deeply_is_damaged_further(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    for number in range(20):
        path.write_bytes(b"[" * 20_000 + b"\n")
        damage_file(path, random.Random(number))


@pytest.mark.parametrize("name", ["records", "samples", "late_samples", "sequence_samples", "ignored", "held"])
async def test_counts_that_are_off_by_one_do_not_add_up(name: str) -> None:
    settings = settings_of()
    partitions = {"t/0": [*records_of(messy_recordings(3, streams="ab")), Record(1_000, b"")]}
    run = await run_pipeline(ListSource.of(partitions), settings)
    assert imbalance(run, partitions, settings) is None
    counters = run.pipeline.counters
    setattr(counters, name, getattr(counters, name) + 1)
    assert imbalance(run, partitions, settings) is not None


@pytest.mark.parametrize(
    ("answer", "arguments", "expected"),
    [
        (Answer(0, "", ""), ["run"], None),
        (Answer(130, "", ""), ["run"], None),
        (Answer(1, "", "note\nerror: x\n  more\n"), ["run"], None),
        (Answer(2, "", "Usage: streamad\n"), ["run"], None),
        (Answer(2, "", "Usage: streamad\n+- Error --+\n"), ["run"], "0 error lines with exit code 2"),
        (Answer(1, "failed  source", ""), ["check"], None),
        (Answer(1, "", ""), ["run"], "0 error lines with exit code 1"),
        (Answer(1, "", "error: x\nerror: y\n"), ["run"], "2 error lines with exit code 1"),
        (Answer(0, "", "error: x\n"), ["run"], "1 error lines with exit code 0"),
        (Answer(-9, "", ""), ["run"], "exit code -9"),
        (Answer(1, "", "", raised="Traceback\nKeyError: 1"), ["run"], "traceback: KeyError: 1 (:0)"),
        (Answer(0, "", "", hung=True), ["run"], "hangs"),
    ],
)
def test_the_law(answer: Answer, arguments: list[str], expected: str | None) -> None:
    assert broken(answer, arguments) == expected


@pytest.mark.parametrize(
    "who",
    [
        "source 'file' (streamad_connectors.files.source:FileSource)",
        "model default 0001 failed: detector 'neutral_ad' (streamad_models:NeutralAD)",
        "sink 'acme' (acme:Sink) or sink 'file' (streamad_connectors.files.sink:FileSink)",
    ],
)
def test_an_unexpected_error_in_a_plug_in_of_ours_breaks_the_law(who: str) -> None:
    answer = Answer(1, "", f"error: {who} failed: ValueError: x\n")
    assert (broken(answer, ["run"]) or "").startswith("a plug-in of streamad's own fails: (streamad_")
    other = Answer(1, "", "error: source 'acme' (acme.streamad_models:Source) failed: ValueError: x\n")
    assert broken(other, ["run"]) is None


@pytest.mark.parametrize(
    "text", ["Traceback (most recent call last):", "x.py:3: RuntimeWarning: y", "Exception ignored in: x"]
)
def test_what_no_command_prints(text: str) -> None:
    assert (broken(Answer(0, "", text), ["run"]) or "").startswith("prints ")
