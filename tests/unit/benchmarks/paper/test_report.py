"""The report's document and its JSON, from made-up results."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from string import Template

import pytest

from benchmarks.paper.__main__ import main
from benchmarks.paper.choosing import Choice, jobs_of
from benchmarks.paper.methods import METHODS
from benchmarks.paper.report.markdown import NOT_RUN, left_section, named
from benchmarks.paper.report.report import TEMPLATE, build, without_missing_pictures
from benchmarks.paper.report.summary import HALVES, entries
from tests.unit.benchmarks.paper.results import result, stored

ROOT = Path(__file__).resolve().parents[4]
TASKS = ("0", "1", "2", "3")


def section(document: str, heading: str) -> str:
    return document.split(f"## {heading}")[1].split("\n## ", maxsplit=1)[0]


def document(results: list) -> str:
    return build(TEMPLATE.read_text(), results, entries(results))


def test_a_cell_has_our_mean_its_deviation_and_the_difference_to_the_paper() -> None:
    results = [
        result(normal_name=name, method="neutral_ad", seed=seed, auc=0.87 + seed / 100)
        for name in TASKS
        for seed in (0, 1, 2)
    ]
    table = section(document(results), "Table 1")
    assert "| NeuTraL AD |  |  |  |  | **88.0±1.0 (+1.5)** |" in table
    assert "Figures with ± have 3 seeds; the others have one." in table


def test_a_cell_with_another_number_of_seeds_is_named() -> None:
    seeds = {"neutral_ad": (0, 1, 2), "isolation_forest": (0, 1, 2), "goad": (0, 1)}
    results = [
        result(normal_name=name, method=method, seed=seed, auc=0.8)
        for name in TASKS
        for method, of_method in seeds.items()
        for seed in of_method
    ]
    expected = "Figures with ± have 3 seeds, GOAD on RS has 2; the others have one."
    assert expected in section(document(results), "Table 1")
    assert "seeds" not in section(document([]), "Table 1")


def test_all_that_print_alike_are_a_column_s_best() -> None:
    aucs = {"lof": 0.8804, "nearest": 0.8796, "minirocket": 0.8794}
    results = [result(normal_name=name, method=method, auc=auc) for name in TASKS for method, auc in aucs.items()]
    table = section(document(results), "Table 1")
    assert re.findall(r"^\| (\S.*?) \|.*\*\*88\.0", table, re.MULTILINE) == ["LOF", "nearest neighbour"]


def test_a_difference_that_rounds_to_nothing_has_no_minus() -> None:
    results = [result(normal_name=name, auc=0.5736) for name in TASKS]
    assert "| LOF |  |  |  |  | **57.4 (+0.0)** |" in section(document(results), "Table 1")


def test_a_cell_that_was_not_run_is_empty_and_not_the_paper_s() -> None:
    table = section(document([]), "Table 2")
    assert "| LOF |  |  |  |  |  |" in table


def test_an_incomplete_seed_is_noted_below() -> None:
    table = section(document([result(normal_name="2")]), "Table 1")
    assert "| LOF |  |  |  |  |  |" in table
    assert "LOF on RS (seed 0: 1 of 4 tasks)" in table


def test_the_exchanged_columns_are_remarked_on_if_they_are_compared_with() -> None:
    lof = [result("natops", str(name), auc=0.86) for name in range(6)]
    assert "exchanged" in section(document(lof), "Table 1")
    assert "exchanged" not in section(document([]), "Table 1")


def test_the_time_is_summed_by_where_it_was_spent() -> None:
    results = [result(normal_name=name, fit_s=1800.0, score_s=0.0) for name in TASKS]
    results += [result("natops", device="cuda", machine="a GPU", fit_s=360.0, score_s=0.0)]
    results.append(result("natops", "1", fit_s=0.0, versions={"torch": "2.9", "numpy": "2.4"}))
    results.append(result("natops", "2", fit_s=0.0, versions={"torch": "2.10"}))
    time = section(document(results), "How long it takes")
    assert "The 7 stored models took, in hours: 0.10 on a GPU, 2.00 on a machine, 1 thread." in time
    assert "Measured with numpy 2.4; torch 2.10, 2.9." in time


@pytest.mark.parametrize(("n_stored", "n_missing"), [(3, 5), (4, 4)])
def test_missing_models_are_counted_by_part_and_data_set(n_stored: int, n_missing: int) -> None:
    methods = [name for name in METHODS if name not in ("lof", "simclr")]
    results = [result(normal_name=name, method=method) for name in TASKS for method in methods]
    results += [result(normal_name=name, fit_s=3599.5) for name in TASKS[:n_stored]]
    assert f"(table 1: RS {n_missing}, " in left_section(results)


def test_time_not_known_is_said() -> None:
    """SimCLR was never measured, so its time is not known."""
    assert ", plus the times not known," in left_section([result(normal_name="0")])


def test_the_whole_study_is_the_stored_and_missing_models_of_one_seed() -> None:
    stored = [result(normal_name=name, fit_s=3600.0, seed=seed) for name in TASKS[:3] for seed in (0, 1)]
    # LOF n-vs-rest was never measured and is assumed to take three times as long as one-vs-rest.
    expected = "The whole study with one seed takes 16 hours of one core, plus the times not known,"
    assert expected in left_section(stored)


def test_a_complete_study_has_no_missing_model() -> None:
    results = [result(**asdict(cell)) for job in jobs_of(Choice()) for cell in job.cells]
    text = r"No model of seed 0 is missing; the study with one seed takes \d+ hours of one core\."
    assert re.fullmatch(text, left_section(results))


def test_on_a_cpu_its_own_time_counts_and_not_the_clock_s() -> None:
    results = [result(normal_name=name, fit_s=9000.0, cpu_s=1800.0) for name in TASKS]
    assert "in hours: 2.00 on a machine" in section(document(results), "How long it takes")


def test_a_cell_is_named_by_data_set_table_and_method() -> None:
    results = [result(normal_name=name, seed=seed, auc=0.6 + seed / 10) for name in TASKS for seed in (0, 1)]
    results += [result("thyroid", "inliers", protocol="tabular_drawn", f1=0.5)]
    figures = named([*entries(results), *entries(results, (HALVES,))])
    assert (figures["racket_sports_1_lof"], figures["racket_sports_1_lof_pm"]) == ("65.0", "65.0±7.1")
    assert (figures["thyroid_0_lof"], figures["thyroid_0_lof_pm"]) == ("50.0", "50.0")
    assert (figures["racket_sports_1_lof_s"], figures["racket_sports_2_lof_s"]) == ("1.5", NOT_RUN)
    assert figures["racket_sports_2_lof"] == figures["epilepsy_1_simclr_pm"] == NOT_RUN
    assert build("LOF has ${racket_sports_2_lof}.", results, entries(results)).endswith("LOF has (not run).")


def test_an_unknown_placeholder_is_an_error() -> None:
    with pytest.raises(KeyError, match="tabel_1"):
        build("${tabel_1}", [], entries([]))


def test_every_part_is_in_the_template() -> None:
    names = set(Template(TEMPLATE.read_text()).get_identifiers())
    assert {"table_1", "table_2", "table_3", "time", "left"} <= names


def test_json_is_the_last_line_and_has_every_cell(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    halves = result("thyroid", "inliers", protocol="tabular_drawn", f1=0.755)
    stored(tmp_path, *(result(normal_name=name, auc=0.574) for name in TASKS), halves)
    assert main(["report", "--results", str(tmp_path), "--json"]) == 0
    cells = json.loads(capsys.readouterr().out.splitlines()[-1])["cells"]
    tables, sweeps, ablations = 2 * 5 * 14 + 4 * 9 + 2 * 8, 16 * (5 + 9), 2 * 3 * 14
    assert len(cells) == tables + sweeps + ablations
    found = [
        tuple(cell[key] for key in ("dataset", "protocol", "method", "ours", "paper", "seeds"))
        for cell in cells
        if cell["ours"] is not None
    ]
    assert found == [
        ("racket_sports", "one_vs_rest", "lof", 57.4, 57.4, 1),
        ("thyroid", "tabular_drawn", "lof", 75.5, None, 1),
    ]


def test_a_reader_that_has_had_enough_is_no_error(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    command = [sys.executable, "-m", "benchmarks.paper", "report", "--json", "--results", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, stdout=writing, stderr=subprocess.PIPE, text=True, check=False)
    os.close(writing)
    assert (done.returncode, done.stderr) == (141, "")


def test_the_document_is_written_to_the_given_path(tmp_path: Path) -> None:
    (tmp_path / "results").mkdir()
    assert main(["report", "--results", str(tmp_path / "results"), "--to", str(tmp_path / "paper.md")]) == 0
    written = (tmp_path / "paper.md").read_text()
    assert written.startswith("<!-- Built by")
    assert "${" not in written


def test_a_folder_that_is_not_there_is_one_line_with_exit_code_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["report", "--results", str(tmp_path / "none")]) == 2
    assert "no folder" in capsys.readouterr().err


def test_a_picture_that_is_not_drawn_yet_is_left_out(tmp_path: Path) -> None:
    (tmp_path / "there.png").touch()
    text = "before\n\n![one](there.png)\n\n![other](missing.png)\n\nafter\n"
    assert without_missing_pictures(text, tmp_path) == "before\n\n![one](there.png)\n\nafter\n"
