"""Messages of the simulated plant: as a running plant sends them, and as files hold them."""

from __future__ import annotations

import csv
import itertools
import json
from collections import Counter

import numpy as np
import pytest

from streamad.ingest.decode import Decoder
from streamad.settings.plant_yaml import ChannelSettings, DecodeSettings
from streamad.simulation.faults import CHANNELS, FAULTS
from streamad.simulation.messages import PlantTime, longest_us, most_batches, plant_messages, write_recordings
from streamad.simulation.recordings import begin_us, simulate, simulate_stream
from streamad.types import Record, SampleBlock
from tests.support.ingest.decoded import block_in

START_US = 1_795_000_000_123_000


def fed(n_batches: int = 3, *, shrink: float = 1.0, chunk: int = 1, n_streams: int = 2, faults: float = 0.0):
    return list(
        plant_messages(
            PlantTime(START_US, shrink),
            first_index=4,
            n_batches=n_batches,
            n_streams=n_streams,
            fault_share=faults,
            chunk_samples=chunk,
        )
    )


def blocks_of(messages) -> list[SampleBlock]:
    decoder = Decoder(DecodeSettings(), tuple(ChannelSettings(name=name, unit=unit) for name, unit in CHANNELS))
    records = [
        Record(offset, message.text.encode(), message.time_us, message.stream.encode())
        for offset, message in enumerate(messages)
    ]
    decoded = [block_in(decoder, record, record.timestamp_us or 0) for record in records]
    return [block for block in decoded if block is not None]


@pytest.mark.parametrize("chunk", [1, 50])
@pytest.mark.parametrize("shrink", [1.0, 3600.0, 7.0])
def test_decoded_messages_are_the_simulated_batches_in_the_plants_time(chunk: int, shrink: float) -> None:
    messages = fed(chunk=chunk, shrink=shrink)
    blocks = blocks_of(messages)
    origin_us = begin_us(4, 2)
    for recording in simulate(3, 0, seed=0, first_index=4, n_streams=2):
        own = [
            block
            for block in blocks
            if block.sequence is not None and block.sequence.endswith(f"-{recording.sequence}")
        ]
        assert {block.stream for block in own} == {recording.stream}
        np.testing.assert_array_equal(np.concatenate([block.values for block in own]), recording.values)
        wanted_us = START_US + (recording.times_us - origin_us) / shrink
        assert np.abs(np.concatenate([block.times_us for block in own]) - wanted_us).max() <= 1
        assert [block.end for block in own] == [False] * (len(own) - 1) + [True]
    assert sum(message.n_samples for message in messages) == sum(map(len, blocks))


def test_messages_come_in_the_order_of_their_last_samples_streams_between_each_other() -> None:
    messages = fed(6, chunk=10)
    times = [message.time_us for message in messages]
    assert times == sorted(times)
    streams = [message.stream for message in messages]
    changes = sum(one != other for one, other in itertools.pairwise(streams))
    assert changes > 20, "the streams run side by side, not one after the other"


def test_the_first_sample_is_at_the_start_and_ids_carry_it() -> None:
    first = fed()[0]
    assert first.time_us == START_US
    assert json.loads(first.text)["sequence"] == "20261118T110640-B-0005"


def test_in_its_own_time_the_plant_goes_on_behind_its_training_with_the_ids_of_its_recordings() -> None:
    messages = list(plant_messages(None, first_index=4, n_batches=3, chunk_samples=50))
    batches = {message.batch.sequence: message.batch for message in messages if message.batch is not None}
    recordings = simulate(3, 0, seed=0, first_index=4, n_streams=2)
    assert sorted(batches) == [recording.sequence for recording in recordings]
    for recording in recordings:
        np.testing.assert_array_equal(batches[recording.sequence].times_us, recording.times_us)


@pytest.mark.parametrize("n_streams", [1, 2, 3])
def test_the_most_batches_of_a_span_end_within_it(n_streams: int) -> None:
    span_us = longest_us(4 * n_streams, n_streams)
    assert most_batches(span_us, n_streams) == 4 * n_streams
    assert most_batches(span_us - 1, n_streams) == 3 * n_streams
    assert most_batches(-1, n_streams) == n_streams


def test_only_the_last_message_of_a_batch_carries_its_truth() -> None:
    messages = fed(2, chunk=1)
    by_stream = {stream: [m for m in messages if m.stream == stream] for stream in ("fermenter-1", "fermenter-2")}
    for own in by_stream.values():
        assert [message.batch is None for message in own] == [True] * (len(own) - 1) + [False]
        assert own[-1].batch is not None
        assert own[-1].batch.times_us[-1] == own[-1].time_us


@pytest.mark.parametrize(("n_batches", "n_streams"), [(1, 3), (7, 3), (6, 2)])
def test_each_batch_is_fed_once_and_all_end_within_the_longest_time(n_batches: int, n_streams: int) -> None:
    messages = fed(n_batches, n_streams=n_streams, chunk=50)
    numbers = [message.batch.sequence[-4:] for message in messages if message.batch is not None]
    assert sorted(numbers) == [f"{index + 1:04d}" for index in range(4, 4 + n_batches)]
    assert messages[-1].time_us - START_US <= longest_us(n_batches, n_streams)


def test_a_plant_without_an_end_goes_on() -> None:
    endless = plant_messages(PlantTime(START_US), n_streams=1, chunk_samples=200)
    assert [message.batch is not None for message in itertools.islice(endless, 5)] == [True] * 5


@pytest.mark.parametrize("share", [0.0, 0.25, 0.1, 1.0])
def test_the_share_of_faulty_batches_is_kept_and_kinds_take_turns(share: float) -> None:
    batches = list(simulate_stream(0, 40, seed=3, first_index=0, n_streams=1, fault_share=share))
    faults = [batch.fault for batch in batches if batch.fault]
    assert len(faults) == round(40 * share)
    kinds = Counter(faults)
    assert max(kinds.values(), default=0) - min((kinds[fault.name] for fault in FAULTS), default=0) <= 1


def test_the_position_of_a_batch_does_not_change_its_faults() -> None:
    whole = list(simulate_stream(0, 16, seed=3, first_index=0, n_streams=1, fault_share=0.5))
    later = list(simulate_stream(0, 6, seed=3, first_index=10, n_streams=1, fault_share=0.5))
    assert [(batch.sequence, batch.fault) for batch in later] == [(batch.sequence, batch.fault) for batch in whole[10:]]
    for one, other in zip(later, whole[10:], strict=True):
        np.testing.assert_array_equal(one.values, other.values)


@pytest.mark.parametrize(
    "wrong", [{"first_index": -1}, {"n_streams": 0}, {"chunk_samples": 0}, {"fault_share": 1.1}, {"fault_share": -0.1}]
)
def test_impossible_plants_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="must be"):
        plant_messages(PlantTime(START_US), **wrong)  # type: ignore[arg-type]


# --- files ---


@pytest.fixture(scope="module")
def recordings():
    return simulate(5, 2, seed=8)


@pytest.fixture
def written(recordings, tmp_path):
    return write_recordings(recordings, tmp_path / "new" / "folder")


def lines_of(path):
    return [json.loads(line, parse_constant=pytest.fail) for line in path.read_text().splitlines()]


def test_messages_hold_every_sample_once_and_in_order(recordings, written):
    parts = {}
    for message in lines_of(written[0]):
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


def test_chunks_of_both_streams_come_in_the_order_of_their_last_sample(written):
    read = lines_of(written[0])
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
    assert len({message["sequence"] for message in lines_of(tmp_path / "recordings.jsonl")}) == len(recordings)


def test_a_write_that_fails_leaves_the_old_file(recordings, tmp_path):
    write_recordings(recordings[:1], tmp_path)
    before = (tmp_path / "recordings.jsonl").read_bytes()
    with pytest.raises(AttributeError):
        write_recordings([*recordings, "no recording"], tmp_path, overwrite=True)
    assert (tmp_path / "recordings.jsonl").read_bytes() == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["labels.csv", "recordings.jsonl"]
