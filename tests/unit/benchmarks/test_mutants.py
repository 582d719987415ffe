"""The mutants fit the code of today, and a trial tells which are caught and leaves the checkout as it is."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from benchmarks.mutants.__main__ import MUTANTS
from benchmarks.mutants.mutant import Mutant, StaleError, mutant
from benchmarks.mutants.results import Result, read_results, store_result, table
from benchmarks.mutants.trial import ROOT, TrialError, copied

GATE, TESTS = "streamad/judge/gate.py", "tests/unit/judge/test_gate.py"


@pytest.mark.parametrize("each", MUTANTS, ids=[each.name for each in MUTANTS])
def test_a_mutant_changes_its_file_and_names_tests_that_are_there(each: Mutant) -> None:
    """A mutant whose text is gone guards nothing: write it anew for the code that is there now."""
    source = (ROOT / each.file).read_text(encoding="utf-8")
    changed = each.of(source)
    assert changed != source
    compile(changed, each.file, "exec")
    assert each.tests
    for test in each.tests:
        file, *names = test.split("::")
        content = (ROOT / file).read_text(encoding="utf-8")
        assert all(f"def {name}(" in content for name in names)


def test_each_name_is_there_once() -> None:
    assert len({each.name for each in MUTANTS}) == len(MUTANTS)


@pytest.mark.skipif(shutil.which("git") is None or not (ROOT / ".git").exists(), reason="needs a checkout of git")
def test_a_trial_names_the_test_that_failed_or_none_and_changes_no_file() -> None:
    before = (ROOT / GATE).read_text(encoding="utf-8")
    limit = mutant("limit", GATE, "p_value > accept_above", "p_value >= accept_above", "", TESTS)
    harmless = mutant("harmless", GATE, "_SHOWN_SHARE = 0.05", "_SHOWN_SHARE = 5 / 100", "", TESTS)
    broken = mutant("broken", GATE, "_SHOWN_SHARE = 0.05", "_SHOWN_SHARE = 0.05 +", "", TESTS)
    stale = mutant("stale", GATE, "no such text", "", "", TESTS)
    with copied() as copy:
        assert (copy.caught_by(limit) or "").startswith(f"{TESTS}::test_the_truth_table[")
        assert copy.caught_by(harmless) is None
        with pytest.raises(TrialError, match="pytest ended with"):
            copy.caught_by(broken)
        with pytest.raises(StaleError, match=r"stale: streamad/judge/gate\.py has this text 0 times"):
            copy.caught_by(stale)
        assert (copy.root / GATE).read_text(encoding="utf-8") == before
    assert not copy.root.exists()
    assert (ROOT / GATE).read_text(encoding="utf-8") == before


def test_results_are_kept_in_the_order_of_the_mutants(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    for result in (
        Result("gone", "0", "t", 1.0),
        Result("b", "1", None, 1.0),
        Result("a", "2", "t", 1.0),
        Result("b", "3", "u", 1.0),
    ):
        store_result(result, ["a", "b"] if result.name != "gone" else ["gone"], path)
    assert list(read_results(path).values()) == [Result("a", "2", "t", 1.0), Result("b", "3", "u", 1.0)]
    assert table([Result("a", "2", "t", 1.0), Result("b", "3", None, 1.0)]).splitlines()[2:] == [
        "| a | `t` |",
        "| b | **survived** |",
    ]


def test_a_result_counts_until_the_mutant_or_its_tests_change(tmp_path: Path) -> None:
    (tmp_path / "module.py").write_text("a = 1\n")
    (tmp_path / "test_it.py").write_text("")
    one = mutant("one", "module.py", "1", "2", "", "test_it.py::test_a")
    first = one.digest(tmp_path)
    assert one.digest(tmp_path) == first
    assert mutant("one", "module.py", "1", "3", "", "test_it.py::test_a").digest(tmp_path) != first
    (tmp_path / "test_it.py").write_text("# changed\n")
    assert one.digest(tmp_path) != first
