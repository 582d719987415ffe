"""The files of cells: read as written, whole or not at all, and nothing taken for a result that is none."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from benchmarks.paper.results_table import Cell, read_result, read_results, write_result
from streamad.errors import OutputError
from tests.unit.benchmarks.paper.results import result


def test_a_result_lies_by_data_set_protocol_method_and_task_and_is_read_as_written(tmp_path: Path) -> None:
    one = result(normal_name="2", seed=3, options={"nu": 0.5})
    path = write_result(one, tmp_path)
    assert path == tmp_path / "racket_sports" / "one_vs_rest" / "lof" / "2-3.json"
    assert read_result(path) == one
    assert one.cell == Cell("racket_sports", "one_vs_rest", "lof", 3, (2,), "2")
    assert [entry.name for entry in path.parent.iterdir()] == ["2-3.json"]


def test_a_variant_has_a_folder_of_its_own(tmp_path: Path) -> None:
    path = write_result(result(protocol="ablation", method="neutral_ad", variant="residual-k04"), tmp_path)
    assert path.relative_to(tmp_path).parts == ("racket_sports", "ablation", "neutral_ad-residual-k04", "0-0.json")


def test_options_of_other_types_are_stored_as_text(tmp_path: Path) -> None:
    class Version(str):
        __slots__ = ()

    path = write_result(result(options={"torch": Version("2.6")}), tmp_path)
    assert msgspec.json.decode(path.read_bytes())["options"] == {"torch": "2.6"}


def test_a_damaged_file_is_no_result(tmp_path: Path) -> None:
    path = write_result(result(), tmp_path)
    whole = path.read_bytes()
    for content in (b"", whole[:-20], whole.replace(b'"auc"', b'"area"'), whole.replace(b"0.5", b'"high"', 1), b"[]"):
        path.write_bytes(content)
        assert read_result(path) is None
        assert list(read_results(tmp_path)) == []
    assert read_result(tmp_path / "none.json") is None


def test_all_results_are_read_but_the_misplaced(tmp_path: Path) -> None:
    ones = [result(normal_name=str(number)) for number in range(3)]
    paths = [write_result(one, tmp_path) for one in ones]
    (tmp_path / "racket_sports" / "one_vs_rest" / "lof" / "9-0.json").write_bytes(paths[0].read_bytes())
    assert list(read_results(tmp_path)) == ones


def test_a_file_in_the_way_of_a_folder_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "racket_sports").write_text("in the way")
    with pytest.raises(OutputError, match="a file is in the way"):
        write_result(result(), tmp_path)
