"""NPZ archives: whole sequences as native chunks, in the plant's channel order."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from streamad.errors import SourceError
from streamad.types import Record
from tests.support.files import read_one, source

START_S = 1_767_225_600.0  # 2026-01-01T00:00:00Z


def decode(record: Record) -> Any:
    assert record.native
    return msgspec.msgpack.decode(record.value)


def sequences(records: list[Record]) -> dict[str, np.ndarray[Any, Any]]:
    """Join the chunks: sequence id -> [n, C]; each must end once, with its last chunk."""
    rows: dict[str, list[list[float]]] = {}
    ended: set[str] = set()
    for message in map(decode, records):
        assert message["sequence"] not in ended
        rows.setdefault(message["sequence"], []).extend(message["values"])
        if message.get("end"):
            ended.add(message["sequence"])
    assert ended == set(rows)
    return {name: np.array(values, dtype=np.float32) for name, values in rows.items()}


async def test_lengths_times_and_chunks(tmp_path: Path) -> None:
    x = np.arange(2 * 1 * 600, dtype=np.float32).reshape(2, 1, 600)
    np.savez(tmp_path / "press 3.npz", x=x, len=[513, 2])
    records = await read_one("press 3.npz?period=0.5&pause=10s", tmp_path)
    messages = [decode(record) for record in records]
    assert [record.offset for record in records] == [0, 1, 2, 3]
    assert [(m["sequence"], len(m["times"]), m.get("end")) for m in messages] == [
        ("0000", 256, None),
        ("0000", 256, None),
        ("0000", 1, True),
        ("0001", 2, True),
    ]
    assert {m["stream"] for m in messages} == {"press_3"}
    assert messages[0]["times"][:2] == [START_S, START_S + 0.5]
    assert messages[2]["times"] == [START_S + 256.0]
    assert messages[3]["times"] == [START_S + 513 / 2 + 10, START_S + 513 / 2 + 10.5]
    assert messages[3]["values"] == [[600.0], [601.0]]
    assert records[3].timestamp_us == round((START_S + 513 / 2 + 10.5) * 1e6)


async def test_without_lengths_sequences_end_before_their_nan_tails(tmp_path: Path) -> None:
    x = np.full((3, 2, 4), np.nan)
    x[0, 0, :3] = 1.0  # channel 1 is missing throughout
    x[1, 1, 1] = 2.0  # missing at first, ends after sample 1
    np.savez(tmp_path / "a.npz", x=x)
    found = sequences(await read_one("a.npz", tmp_path))
    assert {name: values.shape for name, values in found.items()} == {"0000": (3, 2), "0001": (2, 2)}
    np.testing.assert_array_equal(found["0001"], [[np.nan, np.nan], [np.nan, 2.0]])


async def test_many_channels_make_shorter_chunks(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", x=np.zeros((1, 1000, 200), dtype=np.float32))
    records = await read_one("a.npz", tmp_path)
    assert [len(decode(record)["times"]) for record in records] == [65, 65, 65, 5]
    assert max(len(record.value) for record in records) < 700_000


def labelled(folder: Path, **more: Any) -> None:
    x = np.arange(6, dtype=np.float32).reshape(6, 1, 1)
    np.savez(
        folder / "a.npz",
        train_x=x[:4],
        train_len=np.ones(4, dtype=int),
        train_y=[0, 1, 0, 2],
        test_x=x[4:],
        test_len=np.ones(2, dtype=int),
        test_y=[2, 0],
        **more,
    )


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("", {"train-0000": "0", "train-0001": "1", "train-0002": "0", "train-0003": "2", "test-0000": "2"}),
        ("?split=train&classes=0", {"train-0000": "0", "train-0002": "0"}),
        ("?classes=1,2", {"train-0001": "1", "train-0003": "2", "test-0000": "2"}),
        ("?split=test", {"test-0000": "2", "test-0001": "0"}),
    ],
)
async def test_splits_and_classes(query: str, expected: dict[str, str], tmp_path: Path) -> None:
    labelled(tmp_path)
    labels = dict(source(f"a.npz{query}", tmp_path).labels())
    if not query:
        assert labels.pop("test-0001") == "0"
    assert labels == expected
    found = sequences(await read_one(f"a.npz{query}", tmp_path))
    assert set(found) - {"test-0001"} == set(expected) - {"test-0001"}


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("number", [np.inf, -np.inf, 1e300, np.nan])
def test_a_class_that_no_integer_is_stays_a_number(number: float, tmp_path: Path) -> None:
    x = np.zeros((2, 1, 3), np.float32)
    np.savez(tmp_path / "a.npz", x=x, len=np.array([3, 3]), y=np.array([number, 1.0]))
    assert dict(source("a.npz", tmp_path).labels()) == {"0000": str(number), "0001": "1.0"}


@pytest.mark.parametrize(
    ("names", "asked", "label"),
    [
        (["walk", "run", "0"], "run", "run"),
        (["walk", "run", "0"], "0", "0"),  # a name goes before the number, as among the labels of a replay
        (["walk", "run", "0"], "1", "run"),
        (["1.0", "2.0", "3.0"], "1", "1.0"),  # a whole number is the class of that name, not of that index
        (["1.0", "2.0", "3.0"], "2.0", "2.0"),
        (["1.0", "2.0", "3.0"], "0", "1.0"),
    ],
)
async def test_class_names_and_numbers(names: list[str], asked: str, label: str, tmp_path: Path) -> None:
    labelled(tmp_path, classes=np.array(names))
    labels = source(f"a.npz?split=train&classes={asked}", tmp_path).labels()
    assert set(labels.values()) == {label}
    if label == "run":
        assert set(labels) == {"train-0001"}
    with pytest.raises(SourceError, match="no class 'swim'"):
        await read_one("a.npz?classes=swim", tmp_path)


@pytest.mark.parametrize(
    ("names", "plant", "expected"),
    [
        (["flow", "temp"], ("temp", "flow"), [[1.0, 0.0]]),  # by name
        (["a", "b"], ("temp", "flow"), [[0.0, 1.0]]),  # other names, same number: the file's order
        (None, ("temp", "flow"), [[0.0, 1.0]]),
        (["a", "b"], (), [[0.0, 1.0]]),  # no plant yet
    ],
)
async def test_channel_order(
    names: list[str] | None, plant: tuple[str, ...], expected: list[list[float]], tmp_path: Path
) -> None:
    named = {} if names is None else {"channels": np.array(names)}
    np.savez(tmp_path / "a.npz", x=np.arange(2.0).reshape(1, 2, 1), **named)
    (record,) = await read_one("a.npz", tmp_path, channels=plant)
    assert decode(record)["values"] == expected


async def test_batch_ids_are_the_sequences(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", x=np.zeros((2, 1, 1)), batch_id=[17, 4])
    assert set(sequences(await read_one("a.npz", tmp_path))) == {"17", "4"}
    np.savez(tmp_path / "b.npz", x=np.zeros((2, 1, 1)), batch_id=[17, 17])
    with pytest.raises(SourceError, match="batch_id names a sequence twice"):
        await read_one("b.npz", tmp_path)


@pytest.mark.parametrize(
    ("arrays", "query", "message"),
    [
        ({"z": [1]}, "", r"has no array x, train_x or test_x \(found: z\)"),
        ({"x": np.zeros((2, 3))}, "", r"x is float64 with shape \(2, 3\); needed are numbers, sequences x channels"),
        ({"x": np.array([[["a"]]])}, "", "needed are numbers"),
        (
            {"x": np.zeros((1, 3, 1)), "channels": ["p", "q", "r"]},
            "",
            r"has 3 channels \(p, q, r\), the plant has 2 \(te",
        ),
        ({"x": np.zeros((1, 2, 1)), "len": [2]}, "", r"len does not fit x with shape \(1, 2, 1\)"),
        ({"x": np.zeros((2, 2, 1)), "len": [1]}, "", "len does not fit"),
        ({"x": np.zeros((2, 2, 1)), "y": [1]}, "", "y has shape"),
        ({"x": np.zeros((2, 2, 1))}, "?classes=1", r"has no classes \(array y\)"),
        ({"x": np.zeros((2, 2, 1))}, "?split=train", r"has no train split \(one part only\)"),
        ({"train_x": np.zeros((2, 2, 1))}, "?split=test", r"has no test split \(train\)"),
        ({"x": np.array([[[object()]]])}, "", "holds objects, which need pickle"),
    ],
)
async def test_archives_that_do_not_fit(arrays: dict[str, Any], query: str, message: str, tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", **arrays)
    with pytest.raises(SourceError, match=message):
        await read_one(f"a.npz{query}", tmp_path, channels=("temp", "flow"))


async def test_no_archive(tmp_path: Path) -> None:
    (tmp_path / "a.npz").write_bytes(b"x")
    with pytest.raises(SourceError, match="is no NumPy archive"):
        await read_one("a.npz", tmp_path)
    with (tmp_path / "b.npz").open("wb") as file:
        np.save(file, np.zeros(3))
    with pytest.raises(SourceError, match="is a single array"):
        await read_one("b.npz", tmp_path)


async def test_labels_of_several_files_may_not_be_mixed_up(tmp_path: Path) -> None:
    for name in ("a", "b"):
        np.savez(tmp_path / f"{name}.npz", x=np.zeros((1, 1, 1)), y=[3])
    with pytest.raises(SourceError, match="sequence '0000' was in an earlier file, too"):
        source("*.npz", tmp_path).labels()
    (tmp_path / "c.jsonl").write_text("{}\n")
    assert source("c.jsonl", tmp_path).labels() == {}


async def test_natops(data_file: Callable[[str], Path], tmp_path: Path) -> None:
    path = data_file("natops.npz")
    found = sequences(await read_one(f"{path}?split=train&classes=0", tmp_path))
    labels = source(f"{path}?split=train&classes=0", tmp_path).labels()
    assert found.keys() == labels.keys()
    assert set(labels.values()) == {"1.0"}
    with np.load(path, allow_pickle=False) as archive:
        x, y = archive["train_x"], archive["train_y"]
    assert list(found) == [f"train-{index:04d}" for index in np.flatnonzero(y == 0)]
    for name, values in found.items():
        np.testing.assert_array_equal(values.T, x[int(name[-4:])])


async def test_batch_nylon_has_names_and_ids_but_no_labels(data_file: Callable[[str], Path], tmp_path: Path) -> None:
    path = data_file("batch_nylon.npz")
    with np.load(path, allow_pickle=False) as archive:
        x, names, ids = archive["x"], [str(name) for name in archive["channels"]], archive["batch_id"]
    turned = sequences(await read_one(path, tmp_path, channels=tuple(reversed(names))))
    assert list(turned) == [str(number) for number in ids]
    first = turned[str(ids[0])]
    np.testing.assert_array_equal(first[:, ::-1].T, x[0][:, : len(first)])
    assert source(path, tmp_path).labels() == {}


def test_channel_names_are_known_if_all_files_agree(tmp_path: Path) -> None:
    x = np.zeros((1, 2, 3), np.float32)
    for name, channels in [("a", ["u", "v"]), ("b", ["u", "v"]), ("c", ["v", "u"])]:
        np.savez(tmp_path / f"{name}.npz", x=x, channels=np.array(channels))
    np.savez(tmp_path / "none.npz", x=x)
    (tmp_path / "a.jsonl").write_text("{}")
    assert source("c.npz", tmp_path).channel_names() == ("v", "u")
    assert source("[ab].npz", tmp_path).channel_names() == ("u", "v")
    assert source("[ac].npz", tmp_path).channel_names() is None
    assert source("[a-z]*.npz", tmp_path).channel_names() is None
    assert source("none.npz", tmp_path).channel_names() is None
    assert source("a.*", tmp_path).channel_names() is None


@pytest.mark.parametrize("names", [np.array([{"u": 1}, None], dtype=object), None])
def test_unreadable_channel_names_are_a_one_line_error(tmp_path: Path, names: np.ndarray | None) -> None:
    if names is None:
        (tmp_path / "a.npz").write_bytes(b"PK no archive")
    else:
        np.savez(tmp_path / "a.npz", x=np.zeros((1, 2, 3), np.float32), channels=names)
    with pytest.raises(SourceError, match=r"a\.npz: ") as caught:
        source("a.npz", tmp_path).channel_names()
    assert "\n" not in str(caught.value)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("length", [np.nan, np.inf, -1.0, 1e300])
def test_a_length_that_is_none_is_refused(length: float, tmp_path: Path) -> None:
    x = np.zeros((2, 1, 3), np.float32)
    np.savez(tmp_path / "a.npz", x=x, len=np.array([length, 3.0]), y=np.array([0, 1]))
    with pytest.raises(SourceError, match="len"):
        source("a.npz", tmp_path).labels()
