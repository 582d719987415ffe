"""``python -m benchmarks.paper run``, end to end: on made-up strokes, and the quick subset on real ones."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import msgspec
import numpy as np
import pytest

from benchmarks.paper import workers
from benchmarks.paper.__main__ import main
from benchmarks.paper.methods import METHODS
from benchmarks.paper.results_table import RESULTS, Tables, read_results
from benchmarks.paper.todo import is_current
from tests.support.forks import QuickProcesses
from tests.support.waiting import LIMIT_S
from tests.unit.benchmarks.paper.archives import write_waves
from tests.unit.benchmarks.paper.results import result, stored

ROOT = Path(__file__).resolve().parents[4]
SMALL = ["run", "--table", "1", "--datasets", "racket_sports"]


@pytest.fixture
def in_forks(monkeypatch: pytest.MonkeyPatch) -> None:
    """The workers are forks; those of ``test_ctrl_c_...`` start as they do for people."""
    modules = "benchmarks.paper.measure", "sklearn.ensemble", "sklearn.neighbors"
    monkeypatch.setattr(workers, "context", QuickProcesses(*modules))


@pytest.fixture
def strokes(tmp_path: Path, in_forks: None, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Four classes of waves as RacketSports has them; of the last only four sequences train."""
    data = tmp_path / "data"
    data.mkdir()
    write_waves(data, np.repeat([0, 1, 2, 3], [24, 24, 24, 4]), np.repeat([0, 1, 2, 3], 24), n_channels=6)
    monkeypatch.setenv("STREAMAD_DATA", str(data))
    return tmp_path


def is_alive(pid: str) -> bool:
    """Say whether a process runs; an ended one that nobody has waited for does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_a_run_stores_each_cell_and_the_next_leaves_out_the_stored_ones(
    strokes: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    out = strokes / "results"
    command = [*SMALL, "--methods", "lof", "isolation_forest", "--seeds", "2", "--out", str(out)]
    assert main(command) == 0
    output = capfd.readouterr()
    assert output.err.startswith("12 of 12 cells to measure\n")
    assert "12/12 racket_sports one_vs_rest" in output.err
    assert "racket_sports one_vs_rest lof: AUC" in output.out
    assert "(4 of 4 cells)" in output.out
    found = read_results(out)
    assert len(found) == 12
    for one in found:
        assert one.auc > 0.9, "classes differ in speed"
        assert 0 <= one.ap <= 1
        assert (one.n_train, one.n_test, one.n_anomalies) == (4 if one.normal == (3,) else 24, 96, 72)
        assert one.fit_s > 0
        assert 0 < (one.cpu_s or 0) < 60
        assert 50 < one.peak_memory_mb < 5000
        assert (one.device, one.threads) == ("cpu", 1)
        assert {"python", "torch", "numpy", "scikit-learn"} <= set(one.versions)
        for name in (one.git_commit, one.detectors_tree):
            assert name is None or len(name.removesuffix("+changes")) == 40
        assert one.git_commit != one.detectors_tree or one.git_commit is None
        assert one.options

    table = out / "racket_sports__one_vs_rest.jsonl"
    whole = table.read_bytes()
    table.write_bytes(whole[:-20])
    assert main(command) == 0
    assert capfd.readouterr().err.startswith(
        f"1 of 12 cells to measure, 11 are stored in {out}, 1 stored ones are damaged or outdated"
    )
    assert table.read_bytes().splitlines()[:-1] == whole.splitlines()[:-1]
    assert len(read_results(out)) == 12
    assert main(command) == 0
    assert capfd.readouterr().err == f"0 of 12 cells to measure, 12 are stored in {out}\n"


def test_options_change_the_methods_own_settings_and_are_kept_apart_from_the_study(
    strokes: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    out = strokes / "results"
    chosen = [*SMALL, "--methods", "lof", "--normal", "0"]
    to_out, changed = ["--out", str(out)], ["--options", "n_neighbors=3"]
    assert main([*chosen, *changed, "--out", str(RESULTS)]) == 2
    assert "error: --options is no part of the study: give --out another folder" in capfd.readouterr().err
    assert main([*chosen, *changed, *to_out]) == 0
    assert [one.options["n_neighbors"] for one in read_results(out)] == [3]
    assert main([*chosen, *changed, *to_out]) == 0
    assert capfd.readouterr().err.endswith(f"0 of 1 cells to measure, 1 are stored in {out}\n")
    assert main([*chosen, "--options", "n_neighbors=4", *to_out]) == 2
    error = (
        f"error: {out} holds racket_sports one_vs_rest lof, normal 0, seed 0 with n_neighbors=3, not 4: give another"
    )
    assert error in capfd.readouterr().err
    assert main([*chosen, "--options", "n_neighbors=4", *to_out, "--redo"]) == 0
    assert [one.options["n_neighbors"] for one in read_results(out)] == [4]


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["--options", "n_neighbors=none"], "error: lof refuses its settings for racket_sports: n_neighbors: "),
        (["--options", "neighbours=3"], "error: lof refuses its settings for racket_sports: neighbours: "),
        (["--options", "n_neighbors"], "'n_neighbors' is not KEY=VALUE, as in epochs=250"),
        (["--options", "n_neighbors=["], "n_neighbors: '[' is not a value in YAML, as 3, true or [12, 4]"),
        (["--seeds", "0"], "argument --seeds: '0' is not a whole number from 1 on"),
        (["--jobs", "two"], "argument --jobs: 'two' is not a whole number from 1 on"),
    ],
)
def test_a_setting_that_cannot_be_is_an_error_before_anything_is_measured(
    words: list[str], error: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    try:
        code = main([*SMALL, "--methods", "lof", "--dry-run", "--out", str(tmp_path), *words])
    except SystemExit as end:
        code = end.code  # type: ignore[assignment]
    assert code in (1, 2)
    assert error in capfd.readouterr().err


def test_options_cannot_change_what_the_ablation_varies(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    words = ["--figure", "ablation", "--datasets", "natops", "--dry-run", "--out", str(tmp_path)]
    assert main(["run", *words, "--options", "transformation=residual", "epochs=1e1"]) == 2
    assert "error: --options transformation: the figure varies that itself" in capfd.readouterr().err


def test_options_can_give_a_shortened_training_its_published_length(
    tmp_path: Path, data_file: Callable[[str], Path], capfd: pytest.CaptureFixture[str]
) -> None:
    data_file("character_trajectories.npz")
    words = ["--table", "2", "--datasets", "character_trajectories", "--methods", "neutral_ad", "--dry-run"]
    assert main(["run", *words, "--out", str(tmp_path), "--options", "epochs=100", "batch_size=quarter"]) == 0
    assert len(capfd.readouterr().out.splitlines()) == 20


@pytest.mark.parametrize("batch_size", ["quarter", "100000"])
def test_a_batch_that_the_data_decides_is_done_the_second_time(
    batch_size: str, strokes: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    out = strokes / "results"
    command = [*SMALL, "--methods", "neutral_ad", "--normal", "0", "--out", str(out), "--options", "epochs=1"]
    assert main([*command, f"batch_size={batch_size}"]) == 0
    (one,) = read_results(out)
    assert one.options["batch_size"] == (one.n_train // 4 if batch_size == "quarter" else one.n_train)
    assert main([*command, f"batch_size={batch_size}"]) == 0
    assert capfd.readouterr().err.endswith(f"0 of 1 cells to measure, 1 are stored in {out}\n")
    assert main([*command, "batch_size=2"]) == 2
    assert f"with batch_size={one.options['batch_size']}, not 2: give another" in capfd.readouterr().err


def test_a_failed_cell_is_reported_and_the_others_go_on(strokes: Path, capfd: pytest.CaptureFixture[str]) -> None:
    data = strokes / "data" / "racket_sports.npz"
    with np.load(data) as archive:
        arrays = dict(archive)
    keep = np.r_[:72, 72]  # one sequence of the last class
    np.savez(data, **{name: a[keep] if name.startswith("train") else a for name, a in arrays.items()})
    out = strokes / "results"
    assert main([*SMALL, "--methods", "lof", "--normal", "2", "3", "--out", str(out)]) == 1
    output = capfd.readouterr()
    assert "failed racket_sports one_vs_rest lof, normal 3, seed 0: 1 training sequences" in output.err
    assert output.err.endswith("error: 1 of 2 cells failed, see above; the same command tries them again\n")
    assert "(1 of 2 cells)" in output.out
    assert [one.normal_name for one in read_results(out)] == ["2"]


def test_ctrl_c_ends_the_run_and_its_processes_and_the_same_command_goes_on(strokes: Path) -> None:
    out = strokes / "results"
    command = [*SMALL, "--methods", "isolation_forest", "--seeds", "100", "--out", str(out)]
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a job in the background inherits none
    try:
        run = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.paper", *command], cwd=ROOT, stderr=subprocess.PIPE, text=True
        )
    finally:
        signal.signal(signal.SIGINT, before)
    assert run.stderr is not None
    assert any(line.startswith("1/400 ") for line in run.stderr)  # its first cell is stored
    children = Path(f"/proc/{run.pid}/task/{run.pid}/children").read_text().split()
    run.send_signal(signal.SIGINT)
    _, output = run.communicate(timeout=LIMIT_S)
    assert run.returncode == 130
    assert "the same command resumes from here" in output.splitlines()[-1]
    assert "Traceback" not in output
    assert children
    deadline_s = time.monotonic() + LIMIT_S
    while any(is_alive(pid) for pid in children):  # multiprocessing's own helper ends when it sees that the run has
        assert time.monotonic() < deadline_s
        time.sleep(0.05)
    n_stored = len(read_results(out))
    assert 1 <= n_stored < 400
    assert not list(out.glob(".*.tmp"))


def test_a_cell_of_an_earlier_revision_of_its_method_is_measured_again_and_until_then_left_out(
    strokes: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    out, page = strokes / "out", strokes / "page.md"
    command = ["run", "--table", "1", "--datasets", "racket_sports", "--methods", "lof", "--out", str(out)]
    report = ["report", "--results", str(out), "--to", str(page)]
    assert main(command) == main(report) == 0
    assert "outdated" not in capfd.readouterr().err
    row, empty = re.compile(r"^\| LOF \|.*\d", re.MULTILINE), re.compile(r"^\| LOF \|[ |]+$", re.MULTILINE)
    assert row.search(page.read_text())
    monkeypatch.setitem(METHODS, "lof", replace(METHODS["lof"], revision=2))
    assert main(report) == 0
    assert capfd.readouterr().err == "4 stored cells are outdated and left out: `run` measures them anew\n"
    assert not row.search(page.read_text())
    assert empty.search(page.read_text())
    stored(out, *(msgspec.structs.replace(one, auc=0.25) for one in read_results(out)))
    assert main(command) == 0
    assert capfd.readouterr().err.startswith("4 of 4 cells to measure, 4 stored ones are damaged or outdated")
    assert all(one.auc > 0.9 for one in read_results(out))


def test_a_revision_may_be_of_some_data_sets_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(METHODS, "lof", replace(METHODS["lof"], revision=2, mended={"natops": 3}))
    cells = [result(dataset, revision=2) for dataset in ("racket_sports", "natops")]
    assert [is_current(one) for one in cells] == [True, False]
    assert is_current(result("natops", revision=3))


def test_a_dry_run_names_the_cells_and_measures_nothing(strokes: Path, capfd: pytest.CaptureFixture[str]) -> None:
    out = strokes / "results"
    assert main([*SMALL, "--methods", "lof", "--dry-run", "--out", str(out)]) == 0
    output = capfd.readouterr()
    assert output.out.splitlines()[0] == "racket_sports one_vs_rest lof, normal 0, seed 0"
    assert len(output.out.splitlines()) == 4
    assert not out.exists()


@pytest.mark.parametrize(
    ("command", "code", "error"),
    [
        (["run", "--datasets", "natops", "--methods", "lof", "--redo"], 1, r"no .*natops\.npz: set STREAMAD_DATA"),
        (["run", "--table", "3", "--methods", "rnn"], 2, "rnn: not for these data sets"),
        (["run", "--quick", "--table", "1"], 2, "--quick chooses the cells itself"),
        (["run", "--quick", "--out", str(RESULTS / "quick")], 2, "--quick is no part of the study"),
    ],
)
def test_a_mistake_is_one_line(
    strokes: Path, capfd: pytest.CaptureFixture[str], command: list[str], code: int, error: str
) -> None:
    assert main(command) == code
    output = capfd.readouterr().err
    assert len(output.splitlines()) == 1
    assert re.match(f"error: .*{error}", output)


@pytest.mark.parametrize("words", [["run", "--methods", "svm"], ["run", "--seeds", "0"], ["walk"], []])
def test_an_unknown_argument_is_a_usage_error(words: list[str], capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code == 2
    assert "usage: python -m benchmarks.paper" in capfd.readouterr().err


def test_the_quick_subset_measures_three_methods_on_real_strokes(
    data_file: Callable[[str], Path], tmp_path: Path, in_forks: None
) -> None:
    data_file("racket_sports.npz")
    assert main(["run", "--quick", "--jobs", "2", "--out", str(tmp_path)]) == 0
    found = {one.method: one for one in read_results(tmp_path)}
    assert set(found) == {"lof", "minirocket", "neutral_ad"}
    assert found["lof"].auc == pytest.approx(0.657, abs=0.002)  # what scikit-learn's LOF gives on these arrays
    assert found["minirocket"].auc > 0.7
    assert found["neutral_ad"].auc > 0.65
    assert {one.normal_name for one in found.values()} == {"0"}
    assert Tables(RESULTS).get(found["lof"].cell) != found["lof"]
