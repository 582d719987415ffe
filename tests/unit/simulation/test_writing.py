"""The files hold every sample once, in order, and the truth; nothing is overwritten unasked."""

from __future__ import annotations

import csv
import json

import numpy as np
import pytest

from streamad.simulation.messages import write_recordings
from streamad.simulation.recordings import simulate


@pytest.fixture(scope="module")
def recordings():
    return simulate(5, 2, seed=8)


@pytest.fixture
def written(recordings, tmp_path):
    return write_recordings(recordings, tmp_path / "new" / "folder")


def messages(path):
    return [json.loads(line, parse_constant=pytest.fail) for line in path.read_text().splitlines()]


def test_messages_hold_every_sample_once_and_in_order(recordings, written):
    parts = {}
    for message in messages(written[0]):
        parts.setdefault((message["stream"], message["sequence"]), []).append(message)
    assert len(parts) == len(recordings)
    for recording in recordings:
        own = parts[recording.stream, recording.sequence]
        times = [time for message in own for time in message["times"]]
        rows = [row for message in own for row in message["values"]]
        assert [round(time * 1e6) for time in times] == recording.times_us.tolist()
        read = np.array([[np.nan if value is None else value for value in row] for row in rows], dtype=np.float32)
        np.testing.assert_array_equal(read, recording.values)
        assert [message.get("end", False) for message in own] == [False] * (len(own) - 1) + [True]
        assert all(len(message["times"]) == len(message["values"]) for message in own)


def test_missing_values_are_null(recordings, written):
    nulls = sum(row.count(None) for message in messages(written[0]) for row in message["values"])
    assert nulls == sum(int(np.isnan(recording.values).sum()) for recording in recordings) > 0


def test_chunks_of_both_streams_come_in_the_order_of_their_last_sample(written):
    read = messages(written[0])
    ends = [message["times"][-1] for message in read]
    assert ends == sorted(ends)
    assert max(len(message["times"]) for message in read) == 20
    streams = [message["stream"] for message in read[:8]]
    assert set(streams) == {"fermenter-1", "fermenter-2"}


def test_labels_match(recordings, written):
    with written[1].open(newline="") as table:
        rows = list(csv.DictReader(table))
    assert len(rows) == len(recordings)
    for row, recording in zip(rows, recordings, strict=True):
        assert (row["stream"], row["sequence"]) == (recording.stream, recording.sequence)
        assert (row["label"], row["fault"]) == ("1" if recording.fault else "0", recording.fault)
        assert row["fault_channel"] == (recording.fault_channel or "")
        if recording.fault:
            assert round(float(row["onset"]) * 1e6) == recording.onset_us
            assert float(row["severity"]) == pytest.approx(recording.severity, rel=1e-3)
        else:
            assert row["onset"] == row["severity"] == ""


@pytest.mark.parametrize("name", ["recordings.jsonl", "labels.csv"])
def test_an_existing_file_is_not_overwritten(recordings, tmp_path, name):
    (tmp_path / name).write_text("mine")
    with pytest.raises(FileExistsError, match=name):
        write_recordings(recordings, tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [name]
    assert (tmp_path / name).read_text() == "mine"


def test_overwriting_when_asked_leaves_nothing_else_behind(recordings, tmp_path):
    write_recordings(recordings[:1], tmp_path)
    write_recordings(recordings, tmp_path, overwrite=True)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["labels.csv", "recordings.jsonl"]
    assert len({message["sequence"] for message in messages(tmp_path / "recordings.jsonl")}) == len(recordings)


def test_a_write_that_fails_leaves_the_old_file(recordings, tmp_path):
    write_recordings(recordings[:1], tmp_path)
    before = (tmp_path / "recordings.jsonl").read_bytes()
    with pytest.raises(AttributeError):
        write_recordings([*recordings, "no recording"], tmp_path, overwrite=True)
    assert (tmp_path / "recordings.jsonl").read_bytes() == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["labels.csv", "recordings.jsonl"]
