"""Data files from the archives' own files: written values come back, and a wrong file is an error of one line."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from scipy.io import savemat

from benchmarks.paper.__main__ import main
from benchmarks.paper.data import archive_tables, archives
from benchmarks.paper.data.archive_series import arabic_digits, series_arrays
from benchmarks.paper.data.archive_tables import arrhythmia_text, kdd_content, matlab_arrays
from benchmarks.paper.data.archives import Way, find_files, npz_content
from streamad.errors import SourceError
from tests.support.data import data_file
from tests.unit.benchmarks.paper.archives import write_digits, write_ts


def sequences(n: int, channels: int, lengths: list[int]) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.int32]]:
    """Return random sequences, NaN behind their ends; the lengths go round."""
    all_lengths = np.resize(np.array(lengths, dtype=np.int32), n)
    x = np.random.default_rng(n).normal(size=(n, channels, max(lengths))).astype(np.float32)
    x[np.broadcast_to(np.arange(x.shape[2]) >= all_lengths[:, None, None], x.shape)] = np.nan
    return x, all_lengths


def assert_split(arrays: archives.Arrays, split: str, x: npt.NDArray, lengths: npt.NDArray, y: list[int]) -> None:
    np.testing.assert_array_equal(arrays[f"{split}_x"], x)
    assert (arrays[f"{split}_x"].dtype, arrays[f"{split}_len"].dtype) == (np.float32, np.int32)
    np.testing.assert_array_equal(arrays[f"{split}_len"], lengths)
    np.testing.assert_array_equal(arrays[f"{split}_y"], y)
    assert arrays[f"{split}_y"].dtype == np.int32


def test_sequences_of_ts_files_come_back_with_their_lengths_and_classes(tmp_path: Path) -> None:
    (x, lengths), (test_x, test_lengths) = sequences(3, 2, [4, 7, 5]), sequences(2, 2, [6])
    header = ["walk", "run"]
    train = write_ts(tmp_path / "A_TRAIN.ts", x, lengths, ["run", "walk", "run"], header)
    test = write_ts(tmp_path / "A_TEST.ts", test_x, test_lengths, ["walk", "run"], header)
    arrays = series_arrays(train, test, with_names=True)
    assert arrays["classes"].tolist() == ["run", "walk"]
    assert_split(arrays, "train", x, lengths, [0, 1, 0])
    assert_split(arrays, "test", test_x, test_lengths, [1, 0])


def test_numbered_classes_are_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    x, lengths = sequences(3, 1, [4])
    labels = ["10", "2", "1"]
    paths = [write_ts(tmp_path / f"A_{split}.ts", x, lengths, labels, labels) for split in ("TRAIN", "TEST")]
    arrays = series_arrays(*paths, with_names=False, first_class=1)
    assert arrays["train_y"].tolist() == [3, 2, 1]
    assert "classes" not in arrays


def test_padding_with_missing_values_is_no_part_of_a_sequence(tmp_path: Path) -> None:
    path = tmp_path / "A_TRAIN.ts"
    path.write_text("@classLabel true a\n@data\n1,?,3,?,?:4,5,?,?,?:a\n1,2,3,4,5:6,7,8,9,0:a\n")
    arrays = series_arrays(path, path, with_names=False)
    assert arrays["train_len"].tolist() == [3, 5]
    np.testing.assert_array_equal(arrays["train_x"][0, 1], [4, 5, np.nan, np.nan, np.nan])


def test_spoken_digits_of_ucis_text_are_in_the_order_of_the_digits(tmp_path: Path) -> None:
    (x, lengths), (test_x, test_lengths) = sequences(20, 13, [4, 6, 5]), sequences(10, 13, [5])
    train = write_digits(tmp_path / "Train_Arabic_Digit.txt", x, lengths)
    test = write_digits(tmp_path / "Test_Arabic_Digit.txt", test_x, test_lengths)
    arrays = arabic_digits(train, test)
    assert_split(arrays, "train", x, lengths, [digit for digit in range(10) for _ in range(2)])
    assert_split(arrays, "test", test_x, test_lengths, list(range(10)))


def test_a_matlab_table_comes_back(tmp_path: Path) -> None:
    x, y = np.random.default_rng(0).normal(size=(5, 3)), np.array([[0], [1], [0], [0], [1]])
    savemat(tmp_path / "thyroid.mat", {"X": x, "y": y.astype(np.float64)})
    arrays = matlab_arrays(tmp_path / "thyroid.mat")
    np.testing.assert_array_equal(arrays["x"], x.astype(np.float32))
    assert (arrays["y"].tolist(), arrays["y"].dtype) == ([0, 1, 0, 0, 1], np.int32)


def test_arrhythmia_of_ucis_text_leaves_out_the_attributes_with_gaps(tmp_path: Path) -> None:
    rows = [[str(1000 * row + column) for column in range(279)] for row in range(3)]
    for row in rows:
        row[10:15] = ["?"] * 5
    text = "\n".join(",".join([*row, label]) for row, label in zip(rows, ("1", "8", "16"), strict=True))
    (tmp_path / "arrhythmia.data").write_text(text + "\n")
    arrays = arrhythmia_text(tmp_path / "arrhythmia.data")
    assert arrays["x"].shape == (3, 274)
    assert arrays["x"][2, 8:12].tolist() == [2008, 2009, 2015, 2016]
    assert arrays["y"].tolist() == [0, 1, 0]


@pytest.fixture
def connections(tmp_path: Path) -> Path:
    """Three connections, one of them normal."""
    fields = ["0", "tcp", "http", "SF", *["0"] * 37]
    path = tmp_path / "kddcup.data_10_percent.gz"
    with gzip.open(path, "wt") as stream:
        stream.writelines(",".join([*fields, label]) + "\n" for label in ("normal.", "smurf.", "neptune."))
    return path


def test_connections_are_copied_once_they_are_known_to_be_all(
    connections: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(SourceError, match=r"has 3 connections, 2 of them attacks; .* has 494021 and 396743"):
        kdd_content(connections)
    monkeypatch.setattr(archive_tables, "N_CONNECTIONS", 3)
    monkeypatch.setattr(archive_tables, "N_ATTACKS", 2)
    assert kdd_content(connections) == connections.read_bytes()


def test_another_release_with_other_sizes_is_refused(tmp_path: Path) -> None:
    savemat(tmp_path / "thyroid.mat", {"X": np.zeros((5, 3)), "y": np.zeros((5, 1))})
    with pytest.raises(SourceError, match=r"gives x of \(5, 3\), not \(3772, 6\)"):
        npz_content(matlab_arrays, {"x": (3772, 6)}, tmp_path / "thyroid.mat")


def digits(path: Path) -> archives.Arrays:
    return arabic_digits(path, path)


def series(path: Path) -> archives.Arrays:
    return series_arrays(path, path, with_names=False)


@pytest.mark.parametrize(
    ("read", "content", "error"),
    [
        (matlab_arrays, "no MATLAB file", "cannot read"),
        (matlab_arrays, "", "cannot read"),
        (digits, "1 2 3\n", "coefficients a line"),
        (digits, "\n".join(["1 " * 13, ""] * 11), "has 11 utterances"),
        (digits, "one two\n", "could not convert"),
        (digits, "1 2\n3\n", "inhomogeneous"),
        (digits, "", "has 0 utterances"),
        (series, "@classLabel true a\n@data\n1,2:3,4:a\n1,2:a\n", r"sequences of \[1, 2\] channels"),
        (series, "@classLabel false\n@data\n1,2:3,4\n", "no @classLabel and @data lines"),
        (series, "@classLabel true a\n1,2:3,4:a\n", "no @classLabel and @data lines"),
        (series, "@classLabel true a\n@data\n1,2:3,4:b\n", "does not end in one of its classes"),
        (series, "@classLabel true a\n@data\n1,x:3,4:a\n", "could not convert string to float: 'x'"),
    ],
)
def test_a_damaged_or_foreign_file_is_an_error_of_one_line(
    tmp_path: Path, read: Callable[[Path], archives.Arrays], content: str, error: str
) -> None:
    path = tmp_path / "a_file"
    path.write_text(content)
    with pytest.raises(SourceError, match=error) as caught:
        read(path)
    assert "\n" not in str(caught.value)


def test_a_matlab_file_of_something_else_is_an_error(tmp_path: Path) -> None:
    savemat(tmp_path / "thyroid.mat", {"x": np.zeros((5, 3))})
    with pytest.raises(SourceError, match="holds no X and y"):
        matlab_arrays(tmp_path / "thyroid.mat")


def test_files_are_found_wherever_they_lie_and_never_twice(tmp_path: Path) -> None:
    (tmp_path / "NATOPS").mkdir()
    (tmp_path / "NATOPS" / "NATOPS_TRAIN.ts").touch()
    names = ("NATOPS_TRAIN.ts", "NATOPS_TEST.ts")
    assert find_files(tmp_path, names) == []
    (tmp_path / "NATOPS_TEST.ts").touch()
    assert find_files(tmp_path, names) == [tmp_path / "NATOPS" / "NATOPS_TRAIN.ts", tmp_path / "NATOPS_TEST.ts"]
    (tmp_path / "NATOPS_TRAIN.ts").touch()
    with pytest.raises(SourceError, match="there twice"):
        find_files(tmp_path, names)


def test_a_missing_or_wrong_file_is_reported_and_the_others_are_built(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    good = Way("good.npz", ("good.mat",), partial(npz_content, matlab_arrays, {"x": (2, 1)}))
    wrong = Way("wrong.npz", ("wrong.mat",), partial(npz_content, matlab_arrays, {}))
    absent = Way("absent.npz", ("a.ts", "b.ts"), partial(npz_content, matlab_arrays, {}))
    known = {"good": (good,), "wrong": (wrong,), "absent": (absent, wrong)}
    monkeypatch.setattr(archives, "DATASETS", known)
    source, target = tmp_path / "from", tmp_path / "made" / "to"
    source.mkdir()
    savemat(source / "good.mat", {"X": np.ones((2, 1)), "y": np.array([[0], [1]])})
    assert main(["data", "--from", str(source), "--to", str(target), "--datasets", "good"]) == 0
    with np.load(target / "good.npz", allow_pickle=False) as built:
        assert built["y"].tolist() == [0, 1]
    assert "absent: not built" not in capsys.readouterr().out
    (source / "wrong.mat").write_bytes(b"nothing")
    monkeypatch.setitem(known, "absent", (absent,))
    assert main(["data", "--from", str(source), "--to", str(target)]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == f"good: {target / 'good.npz'}"
    assert lines[1].startswith("wrong: not built: cannot read")
    assert lines[2] == f"absent: not built: {source} holds no a.ts and b.ts (unpack archives first)"


def test_a_folder_that_is_not_there_is_one_line_with_exit_code_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["data", "--from", str(tmp_path / "none"), "--to", str(tmp_path)]) == 2
    assert "no such folder" in capsys.readouterr().err


def test_the_paper_s_racket_sports_come_back_exactly(tmp_path: Path) -> None:
    with np.load(data_file("racket_sports.npz"), allow_pickle=False) as archive:
        original = dict(archive)
    names = original["classes"].tolist()
    for split in ("train", "test"):
        labels = [names[number] for number in original[f"{split}_y"]]
        path = tmp_path / "from" / "RacketSports" / f"RacketSports_{split.upper()}.ts"
        write_ts(path, original[f"{split}_x"], original[f"{split}_len"], labels, names[::-1])
    assert main(["data", "--from", str(tmp_path / "from"), "--to", str(tmp_path), "--datasets", "racket_sports"]) == 0
    with np.load(tmp_path / "racket_sports.npz", allow_pickle=False) as built:
        assert sorted(built.files) == sorted(original)
        for name, array in original.items():
            np.testing.assert_array_equal(built[name], array)
            assert built[name].dtype.kind == array.dtype.kind
            assert name == "classes" or built[name].dtype == array.dtype
