"""The study's tables as tasks: the halves, the scaling, the one-hot columns of KDD, and the real files' sizes."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from benchmarks.paper.data.kdd import read_connections
from benchmarks.paper.data.tables import KDD_FILE, table_task
from streamad.errors import SourceError


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("STREAMAD_DATA", str(tmp_path))
    return tmp_path


def rows_of(windows: object) -> set[int]:
    return {int(name.removeprefix("row-")) for name in windows.ids}  # type: ignore[attr-defined]


def connections(n_attacks: int, n_normal: int) -> list[str]:
    """Return lines of KDD: the duration counts them, the service alternates, everything else is constant."""
    lines = []
    for number in range(n_attacks + n_normal):
        fields = ["0"] * 41
        fields[0], fields[1:4] = str(number), ["tcp", f"service{number % 3}", "SF"]
        lines.append(",".join([*fields, "smurf." if number < n_attacks else "normal."]))
    return lines


def write_kdd(folder: Path, lines: list[str]) -> None:
    (folder / KDD_FILE).write_bytes(gzip.compress("".join(f"{line}\n" for line in lines).encode()))


def write_thyroid(folder: Path) -> None:
    x = np.arange(22, dtype=np.float32).reshape(11, 2)
    np.savez(folder / "thyroid.npz", x=x, y=np.r_[1, np.zeros(9), 1].astype(np.int32))


def test_the_first_half_of_the_inliers_trains_whatever_the_seed_and_the_others_and_all_outliers_test(
    folder: Path,
) -> None:
    write_thyroid(folder)
    first, other = (table_task("thyroid", seed) for seed in (0, 1))
    assert first.train.ids == other.train.ids == tuple(f"row-{number:06d}" for number in (1, 2, 3, 4))
    assert first.test.ids == other.test.ids == tuple(f"row-{number:06d}" for number in (5, 6, 7, 8, 9, 0, 10))
    assert first.is_anomaly.tolist() == [False] * 5 + [True] * 2


def test_or_the_seed_draws_the_half_that_trains(folder: Path) -> None:
    write_thyroid(folder)
    x = np.arange(22, dtype=np.float32).reshape(11, 2)
    first, again, other = (table_task("thyroid", seed, drawn=True) for seed in (0, 0, 1))
    assert (len(first.train), len(first.test)) == (4, 7)
    assert not rows_of(first.train) & rows_of(first.test)
    assert rows_of(first.train) | rows_of(first.test) == set(range(11))
    assert {first.test.ids[i] for i in np.flatnonzero(first.is_anomaly)} == {"row-000000", "row-000010"}
    assert first.train.values.shape == (4, 2, 1)
    np.testing.assert_array_equal(first.train.values[0, :, 0], x[int(first.train.ids[0].removeprefix("row-"))])
    assert first.train.lengths.tolist() == [1] * 4
    assert first.train.ids == again.train.ids != other.train.ids


def test_kdd_is_one_hot_and_standardised_by_the_half_that_trains(folder: Path) -> None:
    write_kdd(folder, connections(n_attacks=40, n_normal=9))
    task = table_task("kdd", 0)
    assert task.train.values.shape == (20, 34 + 3, 1)  # three services; the symbolic columns without a choice are out
    assert task.test.values.shape == (29, 37, 1)
    assert task.is_anomaly.sum() == 9  # normal connections are the outliers
    assert task.train.values[:, 0, 0].mean() == pytest.approx(0, abs=1e-6)
    assert task.train.values[:, 0, 0].std() == pytest.approx(1, abs=1e-6)
    assert not task.train.values[:, 1:34].any()
    assert (task.test.values[:, 34:].sum(axis=1) == 1).all()


def test_kddrev_turns_the_roles_and_keeps_a_quarter_as_many_attacks(folder: Path) -> None:
    write_kdd(folder, connections(n_attacks=40, n_normal=16))
    task = table_task("kdd_rev", 0)
    assert (len(task.train), len(task.test), task.is_anomaly.sum()) == (8, 8 + 4, 4)
    drawn = [rows_of(table_task("kdd_rev", seed).test) for seed in (0, 1)]
    assert drawn[0] != drawn[1]


WHOLE = gzip.compress("\n".join(connections(300, 300)).encode())


@pytest.mark.parametrize(
    "content",
    [b"no gzip", gzip.compress(b""), gzip.compress(b"1,2,normal.\n"), WHOLE[: len(WHOLE) // 2]],
    ids=["no gzip", "empty", "three columns", "truncated"],  # the bytes of gzip hold the time
)
def test_another_file_than_kdd_s_is_an_error(tmp_path: Path, content: bytes) -> None:
    (tmp_path / KDD_FILE).write_bytes(content)
    with pytest.raises(SourceError, match="is not the KDD Cup 99 file"):
        read_connections(tmp_path / KDD_FILE)


@pytest.mark.parametrize(
    ("name", "n_train", "n_outliers", "n_columns"), [("arrhythmia", 193, 66, 274), ("thyroid", 1839, 93, 6)]
)
def test_the_real_tables_are_the_paper_s(
    data_file: Callable[[str], Path], name: str, n_train: int, n_outliers: int, n_columns: int
) -> None:
    data_file(f"{name}.npz")
    task = table_task(name, 0)
    assert task.train.values.shape == (n_train, n_columns, 1)
    assert task.is_anomaly.sum() == n_outliers


def test_the_real_kdd_has_120_columns_and_as_many_rows_as_the_paper_s(data_file: Callable[[str], Path]) -> None:
    data_file(KDD_FILE)
    task = table_task("kdd", 0)
    assert task.train.values.shape == (396_743 // 2, 120, 1)
    assert (len(task.test), task.is_anomaly.sum()) == (396_743 - 396_743 // 2 + 97_278, 97_278)
    reverse = table_task("kdd_rev", 0)
    assert (len(reverse.train), reverse.is_anomaly.sum()) == (97_278 // 2, 24_319)
