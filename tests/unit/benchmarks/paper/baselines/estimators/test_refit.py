"""What every estimator that is loaded by training again has in common, shown on the quickest."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.paper.baselines.estimators.nearest import NearestNeighbour
from benchmarks.paper.baselines.estimators.refit import RECORD_FILE, WINDOWS_FILE
from benchmarks.paper.baselines.estimators.shallow import IsolationForest, OneClassSvm, OneClassSvmOptions
from streamad.errors import ArtifactError, DetectorError, OutputError
from tests.support.detectors import ROWS, SEQUENCES

DATA = SEQUENCES.normal


def test_loading_takes_the_options_and_the_seed_of_the_export(tmp_path: Path) -> None:
    fitted = OneClassSvm(OneClassSvmOptions(nu=0.1)).fit(DATA, seed=3)
    fitted.export(tmp_path)
    loaded = OneClassSvm(OneClassSvmOptions(nu=0.9)).load(tmp_path)
    assert np.array_equal(loaded.score(DATA.values, DATA.lengths), fitted.score(DATA.values, DATA.lengths))
    assert loaded.summary.settings == {"nu": 0.1, "seed": 3}


def test_what_the_caller_does_to_its_windows_after_training_changes_nothing(tmp_path: Path) -> None:
    mine = replace(DATA, values=DATA.values.copy(), lengths=DATA.lengths.copy())
    fitted = NearestNeighbour().fit(mine, seed=0)
    before = fitted.score(DATA.values, DATA.lengths)
    mine.values[...] = 7.0
    mine.lengths[...] = 1
    fitted.export(tmp_path)
    assert np.array_equal(NearestNeighbour().load(tmp_path).score(DATA.values, DATA.lengths), before)


def test_what_lies_beyond_a_training_windows_length_does_not_matter() -> None:
    beyond = np.arange(24) >= DATA.lengths[:, None, None]
    spoilt = replace(DATA, values=np.where(beyond, np.float32(99), DATA.values))
    found, expected = (OneClassSvm().fit(data, seed=0).score(DATA.values, DATA.lengths) for data in (spoilt, DATA))
    assert np.array_equal(found, expected)


def test_windows_of_another_shape_are_refused() -> None:
    fitted = NearestNeighbour().fit(DATA, seed=0)
    with pytest.raises(ArtifactError, match=r"takes windows \[B, 3, 24\], not \(12, 6, 1\)"):
        fitted.score(ROWS.anomalous.values, ROWS.anomalous.lengths)


def _cut(folder: Path) -> None:
    content = (folder / WINDOWS_FILE).read_bytes()
    (folder / WINDOWS_FILE).write_bytes(content[: len(content) // 2])


def _member(offset: int, value: int) -> Callable[[Path], None]:
    """Overwrite a byte of every header of the archive: local at ``offset``, in the directory two bytes later."""

    def spoil(folder: Path) -> None:
        content = bytearray((folder / WINDOWS_FILE).read_bytes())
        for signature, shift in ((b"PK\x03\x04", 0), (b"PK\x01\x02", 2)):
            at = content.find(signature)
            while at >= 0:
                content[at + offset + shift] = value
                at = content.find(signature, at + 4)
        (folder / WINDOWS_FILE).write_bytes(content)

    return spoil


def _no_deflate(folder: Path) -> None:
    np.savez_compressed(folder / WINDOWS_FILE, values=DATA.values, lengths=DATA.lengths)
    content = bytearray((folder / WINDOWS_FILE).read_bytes())
    begin = 30 + int.from_bytes(content[26:28], "little") + int.from_bytes(content[28:30], "little")
    content[begin] = 0xFF  # a block of deflate of the reserved type
    (folder / WINDOWS_FILE).write_bytes(content)


def _arrays(**arrays: Any) -> Callable[[Path], None]:
    return lambda folder: np.savez(folder / WINDOWS_FILE, **arrays)


def _record(text: str) -> Callable[[Path], None]:
    return lambda folder: (folder / RECORD_FILE).write_text(text) and None


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (lambda folder: (folder / WINDOWS_FILE).unlink(), "No such file"),
        (_cut, "holds no whole nearest model"),
        (_member(6, 1), "encrypted"),
        (_member(8, 97), "compression"),
        (_no_deflate, "while decompressing"),
        (_arrays(values=DATA.values), "lengths"),
        (_arrays(values=DATA.values[:, 0], lengths=DATA.lengths), r"must be \[N, C, L\]"),
        (_arrays(values=np.array([object()] * 2), lengths=DATA.lengths), "allow_pickle=False"),
        (_record("{"), "the record is not one"),
        (_record('{"format": 1, "kind": "nearest", "options": {"depth": 3}, "seed": 0}'), "the record is not one"),
        (_record('{"format": 2, "kind": "nearest", "options": {}, "seed": 0}'), r"\(nearest, format 2\)"),
    ],
    ids=[
        "missing",
        "cut",
        "encrypted",
        "unknown compression",
        "not deflated",
        "no lengths",
        "two dimensions",
        "objects",
        "no JSON",
        "foreign option",
        "newer format",
    ],
)
def test_a_damaged_model_is_an_artifact_error(spoil: Callable[[Path], None], reason: str, tmp_path: Path) -> None:
    NearestNeighbour().fit(DATA, seed=0).export(tmp_path)
    spoil(tmp_path)
    with pytest.raises(ArtifactError, match=reason):
        NearestNeighbour().load(tmp_path)


def test_a_model_of_another_kind_is_an_artifact_error(tmp_path: Path) -> None:
    NearestNeighbour().fit(DATA, seed=0).export(tmp_path)
    with pytest.raises(ArtifactError, match=r"\(nearest, format 1\) than .* \(oc_svm, format 1\)"):
        OneClassSvm().load(tmp_path)


def test_a_folder_that_cannot_be_written_is_an_output_error(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match=r"training\.npz"):
        NearestNeighbour().fit(DATA, seed=0).export(tmp_path / "absent")


def test_a_missing_library_is_named_with_its_installation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sklearn.ensemble", None)
    with pytest.raises(DetectorError, match=r"sklearn is missing .* pip install '\.\[study\]' in the checkout"):
        IsolationForest().fit(DATA, seed=0)
