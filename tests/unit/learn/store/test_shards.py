from __future__ import annotations

import io
import json

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamad.learn.store.records import StoredSequence, WindowForm
from streamad.learn.store.shards import (
    FileName,
    ForeignError,
    Form,
    decode_shard,
    encode_shard,
    index_of,
    read_index,
)
from streamad.learn.store.storage import UnreadableError
from streamad.settings.plant_yaml import ResampleSettings, WindowSettings
from streamad.types import ChannelSpec, Window
from tests.support.learning.inlier_cases import CHANNELS, FORM, C, L, sequence_of

SOME = [sequence_of(i) for i in range(5)]


def named(content: bytes) -> FileName:
    return FileName.for_content(content, "accepted", "npz", stamp=1_767_225_600_000_000, writer="w-1")


def indexed(content: bytes, plant: Form = FORM) -> list[int]:
    return read_index(named(content), len(content), plant, lambda start: content[start:]).times.tolist()


def rewritten(content: bytes, **members: object) -> bytes:
    with np.load(io.BytesIO(content)) as archive:
        arrays = {name: archive[name] for name in archive.files}
    buffer = io.BytesIO()
    np.savez(buffer, **{**arrays, **members})  # type: ignore[arg-type]
    return buffer.getvalue()


def test_names_are_read_back_and_sort_by_age() -> None:
    name = named(b"content")
    assert FileName.of(str(name)) == name
    assert str(name) == (
        "accepted/1767225600000000-w-1-ed7002b439e9ac845f22357d822bac1444730fbdb6016d3ec9432297b9ec9f73.npz"
    )
    later = FileName.for_content(b"", "accepted", "npz", stamp=1_767_225_600_000_001, writer="a")
    assert name < later


@pytest.mark.parametrize(
    "text", ["", "x.npz", "accepted/x.npz", f"accepted/1-w-{'0' * 64}.npz", f"a/b/1767225600000000-w-{'0' * 64}.npz"]
)
def test_other_names_are_no_shards(text: str) -> None:
    assert FileName.of(text) is None


TEXT = st.text(st.characters(codec="utf-8"), max_size=8)
NUMBER = st.one_of(st.none(), st.floats(allow_nan=False, allow_infinity=False))
TIMES_US = st.integers(-62_135_596_800_000_000, 253_402_300_799_999_999)  # the years 1 to 9999


@given(
    st.lists(
        st.builds(
            StoredSequence,
            id=TEXT,
            stream=TEXT,
            sequence=TEXT,
            time_us=TIMES_US,
            stored_us=TIMES_US,
            window=st.builds(
                lambda numbers, length: Window(np.array(numbers, np.float32).reshape(C, L), length),
                st.lists(st.floats(width=32), min_size=C * L, max_size=C * L),
                st.integers(1, L),
            ),
            decision=st.sampled_from(["normal", "anomalous", "learning"]),
            score=NUMBER,
            p_value=NUMBER,
            model_version=st.one_of(st.none(), TEXT),
        ),
        min_size=1,
        max_size=4,
    )
)
def test_what_is_written_is_read_to_the_last_bit(sequences: list[StoredSequence]) -> None:
    content = encode_shard(sequences, FORM)
    name = named(content)
    read = decode_shard(name, content, FORM)
    for before, after in zip(sequences, read, strict=True):
        assert before.window.values.tobytes() == after.window.values.tobytes()
        fields = [field for field in before.__slots__ if field != "window"]
        assert [getattr(before, field) for field in fields] == [getattr(after, field) for field in fields]
    found = read_index(name, len(content), FORM, lambda start: content[start:])
    assert found.keys.tolist() == index_of(name, sequences).keys.tolist()
    assert found.times.tolist() == [one.time_us for one in sequences]


def test_equal_sequences_give_equal_bytes() -> None:
    assert encode_shard(SOME, FORM) == encode_shard([sequence_of(i) for i in range(5)], FORM)


def test_an_index_longer_than_the_first_piece_is_read_in_a_second_one() -> None:
    many = [sequence_of(i) for i in range(20_000)]
    content = encode_shard(many, FORM)
    assert indexed(content) == [one.time_us for one in many]


def test_damage_to_any_byte_is_found() -> None:
    content = encode_shard(SOME, FORM)
    name = named(content)
    for place in range(0, len(content), 7):
        damaged = content[:place] + bytes([content[place] ^ 0x10]) + content[place + 1 :]
        with pytest.raises(UnreadableError, match="sha256"):
            decode_shard(name, damaged, FORM)


def test_a_cut_shard_has_no_index() -> None:
    content = encode_shard(SOME, FORM)
    for length in range(0, len(content), 11):
        with pytest.raises(UnreadableError):
            indexed(content[:length])


def test_pickles_are_refused() -> None:
    content = rewritten(encode_shard(SOME, FORM), index=np.array([{"a": 1}, None], dtype=object))
    with pytest.raises(UnreadableError, match="allow_pickle"):
        indexed(content)


@pytest.mark.parametrize(
    "members",
    [
        {"index": np.zeros((5, 3), np.int64)},
        {"index": np.zeros((5, 2), np.int64)},
        {"values": np.zeros((4, C, L), np.float32)},
        {"values": np.zeros((5, C, L), np.float64)},
        {"lengths": np.full(5, L + 1)},
        {"lengths": np.zeros(5, np.int64)},
        {"records": np.frombuffer(b"[]", np.uint8)},
        {"records": np.frombuffer(b"[{}]", np.uint8)},
        {"header": np.frombuffer(b"{}", np.uint8)},
        {"header": np.frombuffer(b"\xff", np.uint8)},
        {"header": np.frombuffer(b'{"format": "\xff"}', np.uint8)},
        {"records": np.frombuffer(b'[{"id": "\xff"}]', np.uint8)},
    ],
)
def test_arrays_that_do_not_fit_together_are_refused(members: dict[str, object]) -> None:
    content = rewritten(encode_shard(SOME, FORM), **members)
    with pytest.raises(UnreadableError):
        decode_shard(named(content), content, FORM)


@pytest.mark.parametrize(
    ("plant", "told"),
    [
        (
            Form(channels=(ChannelSpec("temp_c", "K"), ChannelSpec("flow")), window=FORM.window),
            r"other channels \(temp_c\[degC\] flow, in the config temp_c\[K\] flow\)",
        ),
        (Form(channels=CHANNELS[::-1], window=FORM.window), "other channels"),
        (
            Form(channels=CHANNELS, window=WindowForm.of(WindowSettings(length=7))),
            r"other windows \(length 6, in the config 7\)",
        ),
        (
            Form(
                channels=CHANNELS,
                window=WindowForm.of(WindowSettings(length=L, resample=ResampleSettings(period="2s"))),
            ),
            "resample_period_us None, in the config 2000000",
        ),
    ],
)
def test_shards_of_another_plant_are_foreign(plant: Form, told: str) -> None:
    content = encode_shard(SOME, FORM)
    with pytest.raises(ForeignError, match=told):
        indexed(content, plant)
    with pytest.raises(ForeignError, match=told):
        decode_shard(named(content), content, plant)


def test_shards_of_a_later_release_are_foreign_not_damaged() -> None:
    header = json.loads(msgspec.json.encode(FORM)) | {"schema_version": 2, "channels": "something new"}
    content = rewritten(encode_shard(SOME, FORM), header=np.frombuffer(json.dumps(header).encode(), np.uint8))
    with pytest.raises(ForeignError, match="schema version 2, this release reads 1"):
        indexed(content)


def test_numpy_alone_opens_a_shard() -> None:
    with np.load(io.BytesIO(encode_shard(SOME, FORM)), allow_pickle=False) as archive:
        assert archive["values"].shape == (5, C, L)
        assert json.loads(archive["records"].tobytes())[1]["id"] == "id-000001"
        assert json.loads(archive["header"].tobytes())["channels"][0] == {"name": "temp_c", "unit": "degC"}
