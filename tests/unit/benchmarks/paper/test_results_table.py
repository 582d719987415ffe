"""The tables of results: read as written, sorted, one row for each cell, and nothing lost by a crash or a merge."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.paper.results_table import RESULTS, Result, Tables, read_results
from streamad.errors import RegistryError, SourceError
from streamad.system.locks import try_lock
from tests.unit.benchmarks.paper.results import result, stored

TABLE = "racket_sports__one_vs_rest.jsonl"
LATER = "2026-01-02T00:00:00Z"
OPTIONS = st.dictionaries(st.text(max_size=4), st.one_of(st.none(), st.booleans(), st.integers(-9, 9), st.text()))
RESULT = st.builds(
    result,
    dataset=st.sampled_from(["natops", "epilepsy"]),
    protocol=st.sampled_from(["one_vs_rest", "ablation"]),
    normal_name=st.sampled_from(["0", "2", "10", "not-1"]),
    method=st.sampled_from(["lof", "neutral_ad"]),
    variant=st.sampled_from(["", "residual-k04"]),
    seed=st.integers(0, 2),
    auc=st.floats(0, 1),
    cpu_s=st.one_of(st.none(), st.floats(0, 1e6)),
    options=OPTIONS,
    versions=st.dictionaries(st.text(max_size=4), st.text()),
)


def lines(folder: Path) -> list[bytes]:
    return (folder / TABLE).read_bytes().splitlines(keepends=True)


@settings(max_examples=40)
@given(st.lists(st.lists(RESULT, max_size=6), max_size=3))
def test_added_results_are_read_again_and_of_each_cell_the_last(
    tmp_path_factory: pytest.TempPathFactory, batches: list[list[Result]]
) -> None:
    folder = tmp_path_factory.mktemp("results")
    tables = Tables(folder)
    for batch in batches:
        tables.add(batch)
    expected = {one.cell: one for batch in batches for one in batch}
    assert {one.cell: one for one in tables} == {one.cell: one for one in read_results(folder)} == expected
    assert all(tables.get(cell) == one for cell, one in expected.items())
    assert list(tables) == read_results(folder)


def test_the_order_in_which_cells_come_does_not_change_a_byte(tmp_path: Path) -> None:
    ones = [
        result(normal_name=name, method=method, seed=seed, options={"a": seed, "b": method})
        for name in ("10", "2")
        for method in ("lof", "goad")
        for seed in (0, 1)
    ]
    stored(tmp_path / "a", *ones)
    for one in reversed(ones):
        stored(tmp_path / "b", one)
    files = [{path.name: path.read_bytes() for path in (tmp_path / name).iterdir()} for name in "ab"]
    assert files[0] == files[1]
    assert set(files[0]) == {TABLE, "settings.json", ".lock"}
    rows = [msgspec.json.decode(line) for line in lines(tmp_path / "a")]
    assert [(row["method"], row["normal_name"], row["seed"]) for row in rows] == [
        (method, name, seed) for method in ("goad", "lof") for name in ("2", "10") for seed in (0, 1)
    ]


def test_sets_of_options_are_stored_once_on_a_line_and_may_differ_from_row_to_row(tmp_path: Path) -> None:
    ones = [result(normal_name=str(n), options={"nu": 0.5, "k": n % 2}, versions={"torch": "2"}) for n in range(4)]
    stored(tmp_path, *ones)
    assert read_results(tmp_path) == ones
    rows = [msgspec.json.decode(line) for line in lines(tmp_path)]
    assert [len({row[key] for row in rows}) for key in ("options", "versions")] == [2, 1]
    assert len((tmp_path / "settings.json").read_text().splitlines()) == 3 + 2


def test_options_of_other_types_are_stored_as_text(tmp_path: Path) -> None:
    class Version(str):
        __slots__ = ()

    stored(tmp_path, result(options={"torch": Version("2.6"), "path": tmp_path}))
    assert read_results(tmp_path)[0].options == {"torch": "2.6", "path": str(tmp_path)}


@pytest.mark.parametrize(
    "damaged", [b"", b"[]", b'{"seed":1}', b'{"method":"lo', b"<<<<<<< HEAD"], ids=lambda line: line.decode()
)
def test_a_torn_or_foreign_line_is_no_result_and_the_next_write_removes_it(tmp_path: Path, damaged: bytes) -> None:
    ones = [result(normal_name=str(number)) for number in range(3)]
    stored(tmp_path, *ones)
    whole = lines(tmp_path)
    (tmp_path / TABLE).write_bytes(b"".join(whole[:2]) + damaged + b"\n" + whole[2][:-20])
    tables = Tables(tmp_path)
    assert list(tables) == ones[:2]
    assert tables.get(ones[2].cell) is None
    assert tables.n_damaged == 2
    tables.add([ones[2]])
    assert (lines(tmp_path), tables.n_damaged) == (whole, 0)


@pytest.mark.parametrize("is_first", [True, False])
def test_of_two_rows_of_a_cell_as_a_merge_leaves_them_the_later_measured_counts(tmp_path: Path, is_first: bool) -> None:
    stored(tmp_path, result(auc=0.1), result(normal_name="1"))
    earlier = lines(tmp_path)
    stored(tmp_path, result(auc=0.9, finished_at=LATER))
    later = lines(tmp_path)
    (tmp_path / TABLE).write_bytes(b"".join(later + earlier if is_first else earlier + later))
    assert [one.auc for one in read_results(tmp_path)] == [0.9, 0.5]


def test_two_processes_may_add_to_a_table(tmp_path: Path) -> None:
    first, second = Tables(tmp_path), Tables(tmp_path)
    ones = [result(normal_name=str(number), options={"k": number}) for number in range(3)]
    first.add([ones[0]])
    second.add([ones[1]])
    first.add([ones[2]])
    assert list(first) == read_results(tmp_path) == ones


def test_settings_that_are_lost_are_an_error_and_no_loss_of_rows(tmp_path: Path) -> None:
    stored(tmp_path, result())
    (tmp_path / "settings.json").write_text("{")
    with pytest.raises(SourceError, match=r"cannot read .*settings\.json: .*; restore it from git"):
        Tables(tmp_path)
    (tmp_path / "settings.json").unlink()
    with pytest.raises(SourceError, match=rf"{TABLE} needs \w+ of settings\.json: restore it from git"):
        Tables(tmp_path)
    assert len(lines(tmp_path)) == 1


def test_a_writer_waits_for_the_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmarks.paper.results_table.LOCK_TIMEOUT_S", 0.0)
    assert try_lock(tmp_path / ".lock") is not None
    with pytest.raises(RegistryError, match=r"another run keeps .* locked"):
        stored(tmp_path, result())


def test_every_committed_table_is_as_it_would_be_written(tmp_path: Path) -> None:
    stored(tmp_path, *read_results())
    for path in (*RESULTS.glob("*.jsonl"), RESULTS / "settings.json"):
        assert (tmp_path / path.name).read_bytes() == path.read_bytes(), path.name
    assert (tmp_path / "natops__sweep.jsonl").exists()
