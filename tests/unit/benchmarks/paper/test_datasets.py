"""The study's data as tasks: padding, kept lengths, the splits, and the real files if they are there."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from benchmarks.paper.data.datasets import LENGTHS, class_task, read_sequences
from benchmarks.paper.protocols import CLASSES
from streamad.errors import SourceError


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("STREAMAD_DATA", str(tmp_path))
    return tmp_path


def save(folder: Path, name: str, lengths: list[int], length: int, n_channels: int) -> np.ndarray:
    """Write both splits with values 1..: the same of each; what lies behind an end is not a number."""
    x = np.arange(1.0, len(lengths) * n_channels * length + 1).reshape(len(lengths), n_channels, length)
    x[np.broadcast_to((np.arange(length) >= np.array(lengths)[:, None])[:, None], x.shape)] = np.nan
    arrays = {"x": x.astype(np.float32), "len": np.array(lengths, np.int32), "y": np.arange(len(lengths)) % 2}
    np.savez(
        folder / f"{name}.npz", **{f"{which}_{key}": a for which in ("train", "test") for key, a in arrays.items()}
    )
    return x


def test_spoken_digits_of_20_to_50_frames_are_kept_and_zero_padded_to_50(folder: Path) -> None:
    x = save(folder, "spoken_arabic_digits", [19, 20, 50, 51, 33], 60, 2)
    test = read_sequences("spoken_arabic_digits").test
    assert test.windows.ids == ("test-0001", "test-0002", "test-0004")
    assert test.windows.lengths.tolist() == [20, 50, 33]
    assert test.classes.tolist() == [1, 0, 0]
    assert test.windows.values.shape == (3, 2, 50)
    np.testing.assert_array_equal(test.windows.values[0, :, :20], x[1, :, :20])
    assert not test.windows.values[0, :, 20:].any()


def test_character_trajectories_are_zero_padded_to_182_whatever_their_file_s_length(folder: Path) -> None:
    x = save(folder, "character_trajectories", [3, 7], 7, 3)
    train = read_sequences("character_trajectories").train.windows
    assert train.values.shape == (2, 3, 182)
    np.testing.assert_array_equal(train.values[1, :, :7], x[1])
    assert not train.values[0, :, 3:].any()


def test_the_normal_classes_alone_train_and_all_of_the_test_split_tests(folder: Path) -> None:
    save(folder, "racket_sports", [30] * 5, 30, 2)
    task = class_task(read_sequences("racket_sports"), (1,))
    assert task.train.ids == ("train-0001", "train-0003")
    assert len(task.test) == 5
    assert task.is_anomaly.tolist() == [True, False, True, False, True]


def test_a_missing_or_foreign_file_is_one_line_with_advice(folder: Path) -> None:
    with pytest.raises(SourceError, match=r"no .*natops\.npz: set STREAMAD_DATA"):
        read_sequences("natops")
    np.savez(folder / "natops.npz", x=np.zeros(3))
    with pytest.raises(SourceError, match=r"natops\.npz is no data set of sequences.*build it anew"):
        read_sequences("natops")
    save(folder, "racket_sports", [31], 31, 2)
    with pytest.raises(SourceError, match="longer than 30"):
        read_sequences("racket_sports")


@pytest.mark.parametrize(
    ("name", "n_train", "n_test", "n_channels"),
    [
        ("racket_sports", 151, 152, 6),
        ("epilepsy", 137, 138, 3),
        ("natops", 180, 180, 24),
        ("character_trajectories", 1422, 1436, 3),
        ("spoken_arabic_digits", 5810, 2014, 13),
    ],
)
def test_the_real_data_sets_are_the_paper_s(
    data_file: Callable[[str], Path], name: str, n_train: int, n_test: int, n_channels: int
) -> None:
    data_file(f"{name}.npz")
    recordings = read_sequences(name)
    for split, n in ((recordings.train, n_train), (recordings.test, n_test)):
        assert split.windows.values.shape == (n, n_channels, LENGTHS[name])
        assert tuple(np.unique(split.classes)) == CLASSES[name]
        assert np.isfinite(split.windows.values).all()
