"""The UEA/aeon text format: cases of equal and unequal length, missing values, labels."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from streamad.errors import SourceError
from tests.support.files import read_one, source

CONTENT = """\
# a comment
@problemName Strokes
@timeStamps false
@missing true
@univariate false
@dimensions 2
@equalLength false
@classLabel true good bad
@data
1,2,3:4,5,6:good

7,?:8,9:bad
# between
1.5:NaN,2:good
"""


def write(folder: Path, content: str, name: str = "Strokes_TRAIN.ts") -> str:
    (folder / name).write_text(content)
    return name


async def test_cases(tmp_path: Path) -> None:
    name = write(tmp_path, CONTENT)
    records = await read_one(name, tmp_path)
    messages = [msgspec.msgpack.decode(record.value) for record in records]
    nan = pytest.approx(float("nan"), nan_ok=True)
    assert [(m["stream"], m["sequence"], m["values"], m["end"]) for m in messages] == [
        ("Strokes_TRAIN", "train-0000", [[1, 4], [2, 5], [3, 6]], True),
        ("Strokes_TRAIN", "train-0001", [[7, 8], [nan, 9]], True),
        ("Strokes_TRAIN", "train-0002", [[1.5, nan], [nan, 2]], True),
    ]
    assert all(record.native for record in records)
    assert source(name, tmp_path).labels() == {"train-0000": "good", "train-0001": "bad", "train-0002": "good"}


async def test_classes_keep_the_numbering(tmp_path: Path) -> None:
    name = write(tmp_path, CONTENT.replace("\n", "\r\n"))
    assert source(f"{name}?classes=bad", tmp_path).labels() == {"train-0001": "bad"}
    (record,) = await read_one(f"{name}?classes=bad", tmp_path)
    assert msgspec.msgpack.decode(record.value)["sequence"] == "train-0001"
    with pytest.raises(SourceError, match=r"no class 'ugly' in its @classLabel line \(there are: good, bad\)"):
        await read_one(f"{name}?classes=ugly", tmp_path)


async def test_train_and_test_files_together(tmp_path: Path) -> None:
    write(tmp_path, CONTENT)
    write(tmp_path, CONTENT, "Strokes_TEST.ts")
    assert len(source("*.ts", tmp_path).labels()) == 6
    assert set(source("*.ts?split=test", tmp_path).labels()) == {"test-0000", "test-0001", "test-0002"}


async def test_univariate_without_labels(tmp_path: Path) -> None:
    name = write(tmp_path, "@univariate true\n@classLabel false\n@data\n1,2\n3\n", "plain.ts")
    records = await read_one(name, tmp_path)
    assert [msgspec.msgpack.decode(record.value)["values"] for record in records] == [[[1.0], [2.0]], [[3.0]]]
    assert source(name, tmp_path).labels() == {}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("@timeStamps true\n@data\n", r"line 1: \.ts files with timestamps are not read; convert"),
        ("@data\n(0,1),(1,2)\n", r"line 2: \.ts files with timestamps are not read"),
        ("@dimensions 2\n", "has no @data line"),
        ("", "has no @data line"),
        ("1,2:3,4\n@data\n", "line 1: data before an @data line"),
        ("@data\n1,2:3,4\n1,2\n", "line 3: has 1 dimensions, others 2"),
        ("@data\n1,x:3,4\n", "line 2: could not convert string to float: 'x'"),
        ("@classLabel true a b\n@data\n1,2:3,4:c\n", "line 3: does not end in a class of the @classLabel line"),
        ("@data\n1:2:3\n", "has 3 channels, the plant has 2"),
    ],
)
async def test_files_that_do_not_fit(content: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=message):
        await read_one(write(tmp_path, content), tmp_path, channels=("temp", "flow"))


async def test_a_split_that_the_name_does_not_state(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="its name ends in neither _TRAIN nor _TEST"):
        await read_one(write(tmp_path, CONTENT, "plain.ts") + "?split=train", tmp_path)


async def test_a_value_too_large_for_float32_is_infinite_without_a_warning(tmp_path: Path) -> None:
    name = write(tmp_path, "@data\n1,1e300,-1e39\n", "large.ts")
    (record,) = await read_one(name, tmp_path)
    assert msgspec.msgpack.decode(record.value)["values"] == [[1.0], [float("inf")], [float("-inf")]]
