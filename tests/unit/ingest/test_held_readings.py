"""Readings that hold: what a sequence begins with, what a progress saves of it, and what is kept of silent streams."""

from __future__ import annotations

import json
from collections import deque
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamad.ingest.decode import Decoder
from streamad.ingest.intake import Intake
from streamad.ingest.sequences.closed_sequences import Closed
from streamad.ingest.sequences.held_readings import HeldReadings
from streamad.ingest.windowing import to_window
from streamad.partition_progress import HeldReading, Progress, StreamProgress, after_gap, merge
from streamad.settings.plant_yaml import SequenceSettings, WindowSettings
from streamad.telemetry.metrics import Counters
from streamad.types import FloatArray, Position, Record, RecordBatch, Window
from tests.support.runtime.pipeline import START_US, settings_of

HOLDS = [{"name": "temp"}, {"name": "setpoint", "fill": "hold"}]
MONTH_US = 30 * 86_400_000_000


class Plant:
    """One partition, by messages of one sample each, a second apart unless ``at`` says otherwise."""

    def __init__(self, progress: Progress | None = None, **sequences: Any) -> None:
        self.sequences = sequences
        self.settings = settings_of(channels=HOLDS, sequences=sequences)
        self.progress = progress
        self.intake = Intake(
            "p",
            self.settings,
            Decoder(self.settings.decode, self.settings.channels, None),
            Counters(),
            progress=progress,
        )
        self.finished: deque[Closed] = deque()

    def send(self, sequence: str | None, at: float, stream: str = "r", *, end: bool = False, **values: Any) -> None:
        offset = self.intake.next_offset
        message = {"stream": stream, "sequence": sequence, "time": START_US / 1e6 + at, "values": values, "end": end}
        self.finished += self.intake.take(
            RecordBatch("p", (Record(offset, json.dumps(message).encode()),), offset + 1), START_US
        )

    def silence(self) -> None:
        """Let the wall clock end all that is open, and forget the stream."""
        self.finished += self.intake.expire(MONTH_US, START_US)

    def restarted(self, verdicts: int) -> Plant:
        """Return the next process, ``verdicts`` after the last progress."""
        return Plant(self.commit(verdicts), **self.sequences)

    def commit(self, verdicts: int) -> Progress:
        for _ in range(verdicts):
            self.intake.committed(self.finished.popleft())
        self.progress = msgspec.json.decode(
            msgspec.json.encode(merge(self.progress, self.intake.progress())), type=Progress
        )
        return self.progress

    def carried(self) -> list[float | None]:
        """Return the setpoint that each sequence finished so far begins with."""
        rows = [closed.sequence.carried for closed in self.finished]
        return [None if row is None else row.tolist()[1] for row in rows]


def test_before_the_first_reading_ever_nothing_is_carried_and_then_the_last_one_is() -> None:
    plant = Plant()
    plant.send("A", 0, temp=1)
    plant.send("A", 1, setpoint=70, end=True)
    plant.send("B", 2, temp=1)
    plant.send("B", 3, temp=1, end=True)
    assert plant.carried() == [None, 70]


def test_neither_a_null_nor_a_bad_value_ends_what_is_held() -> None:
    plant = Plant()
    plant.send("A", 0, setpoint=70)
    plant.send("A", 1, setpoint=None)
    plant.send("A", 2, setpoint="Bad", end=True)
    plant.send("B", 3, temp=1, end=True)
    assert plant.carried() == [None, 70]


def test_a_reading_between_two_sequences_counts_whether_it_is_left_out_or_a_sequence_of_its_own() -> None:
    for without_id in ("skip", "keep"):
        plant = Plant(without_id=without_id)
        plant.send("A", 0, setpoint=70, end=True)
        plant.send(None, 1, setpoint=80)
        plant.send("B", 2, temp=1, end=True)
        assert plant.carried()[-1] == 80


def test_a_left_out_reading_later_than_the_first_sample_waits_for_the_next_sequence() -> None:
    plant = Plant(without_id="skip")
    plant.send("A", 0, setpoint=70, end=True)
    plant.send(None, 5, setpoint=80)
    plant.send("B", 4, temp=1, end=True)
    plant.send("C", 6, temp=1, end=True)
    assert plant.carried() == [None, 70, 80]


def test_a_late_reading_is_not_held_and_one_of_an_ended_sequence_in_time_is() -> None:
    plant = Plant()
    plant.send("A", 0, setpoint=70)
    plant.send("A", 5, temp=1, end=True)
    plant.send("A", 4, setpoint=60)
    plant.send("B", 6, temp=1, end=True)
    plant.send("A", 7, setpoint=90)
    plant.send("C", 8, temp=1, end=True)
    assert plant.carried() == [None, 70, 90]


def test_readings_within_the_lateness_count_in_their_order() -> None:
    plant = Plant(allowed_lateness="3s")
    plant.send("A", 0, setpoint=70)
    plant.send("A", 3, setpoint=80)
    plant.send("B", 2, temp=1)
    plant.send("A", 1, setpoint=75)
    plant.finished += plant.intake.end_of_input(START_US)
    begins = {closed.key: row for closed, row in zip(plant.finished, plant.carried(), strict=True)}
    assert begins == {"A": None, "B": 75}


def test_a_stream_begun_anew_before_its_readings_hides_them_from_no_sequence_before() -> None:
    """A restart at the sequence B, which began with 70, before another life of its stream hid that reading."""
    plant = Plant()
    plant.send("A", 0, setpoint=70, end=True)
    plant.send("B", 3, temp=1, end=True)
    plant.silence()
    plant.send("C", -1, temp=1, end=True)
    plant.silence()
    assert plant.carried() == [None, 70, None]
    again = plant.restarted(verdicts=1)
    again.send("B", 3, temp=1, end=True)
    again.send("C", -1, temp=1, end=True)
    assert again.carried() == [70, None]


def test_a_stream_begun_anew_between_its_readings_holds_none_of_them_after_a_restart_either() -> None:
    """Of a forgotten stream the newest reading counts, here 90: what is before it shows no older one."""
    plant = Plant(end=["marker"], allowed_lateness="20s", max_duration="60s")
    plant.send("A", 0, setpoint=70, end=True)
    plant.send("D", 10, setpoint=90, end=True)
    plant.send("B", 5, temp=1)
    plant.silence()
    plant.send("C", 8, temp=1)
    plant.silence()
    begun = {closed.key: row for closed, row in zip(plant.finished, plant.carried(), strict=True)}
    assert begun == {"A": None, "D": 70, "B": 70, "C": None}
    assert [closed.key for closed in plant.finished] == ["A", "D", "B", "C"]
    for _ in range(2):
        plant = plant.restarted(verdicts=2 if plant.progress is None else 0)
        plant.send("B", 5, temp=1)
        plant.send("C", 8, temp=1)
        plant.silence()
        assert plant.carried() == [70, None]


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32), late_us=st.sampled_from([0, 5, 60]), n=st.integers(1, 150))
def test_of_many_samples_each_sequence_begins_with_the_newest_before_it(seed: int, late_us: int, n: int) -> None:
    random = np.random.default_rng(seed)
    readings = HeldReadings({0: "a", 2: "b", 3: "c"}, SequenceSettings(allowed_lateness=late_us / 1e6))
    came: list[tuple[int, int, int, FloatArray]] = []
    newest_us = 0
    for offset in range(n):
        first_us = max(0, newest_us - late_us) + int(random.integers(0, late_us + 4))
        length = int(random.choice([1, 1, 1, 4, 40]))
        times_us = first_us + np.cumsum(random.integers(0 if length == 1 else 1, 4, length))
        values = random.random((length, 4)).astype(np.float32)
        values[random.random((length, 4)) < random.choice([0.0, 0.5, 0.95])] = np.nan
        came += [(int(at), offset, index, values[index]) for index, at in enumerate(times_us)]
        if late_us == 0 and random.random() < 0.5:
            readings.take(times_us, values, offset)
            newest_us = int(times_us[-1])
        else:
            readings.come(times_us, values, Position(offset, 0), begins=False)
            newest_us = max(newest_us, int(times_us[-1]))
            readings.settle(newest_us - late_us)
        if random.random() < 0.1:
            begin = newest_us - late_us + 1, 0, 0
            held = readings.before(begin[0], Position(0, 0))
            for channel, name in ((0, "a"), (2, "b"), (3, "c")):
                before = [each for each in came if each[:3] < begin and each[3][channel] == each[3][channel]]
                newest = max(before, key=lambda each: each[:3], default=None)
                assert held.get(name) == (None if newest is None else (*newest[:3], float(newest[3][channel])))


def test_progress_holds_one_reading_of_a_channel_as_of_the_first_undone_record() -> None:
    plant = Plant()
    plant.send("A", 0, setpoint=70, end=True)
    plant.send("B", 1, temp=1)
    plant.send("B", 2, setpoint=80)
    saved = plant.commit(1).streams["r"]
    assert saved.done_below == 1
    assert saved.held == {"setpoint": (HeldReading(value=70.0, time_us=START_US, offset=0, index=0),)}
    encoded = msgspec.json.encode(saved.held["setpoint"])
    assert len(encoded) + len("setpoint") < 100


def test_held_readings_outlive_a_forgotten_stream_and_a_restart_after_it() -> None:
    limits = {"end": ["marker", "gap"], "gap": "2s", "max_duration": "2s", "closed_memory": "0s"}
    plant = Plant(**limits)
    plant.send("A", 0, setpoint=70, end=True)
    plant.send("A", 100, "other", temp=1, end=True)
    assert "r" not in plant.intake.streams
    saved = plant.commit(2).streams["r"]
    assert (saved.forgotten, saved.held["setpoint"][0].value) == (True, 70)
    again = Plant(plant.progress, **limits)
    assert list(again.intake.streams) == ["other"]
    for each in (plant, again):
        each.send("B", 101, temp=1, end=True)
        assert each.carried() == [70]


def test_of_more_silent_streams_than_max_streams_the_oldest_lose_what_they_held_and_one_event_says_so() -> None:
    plant = Plant(end=["marker", "gap"], gap="2s", max_duration="2s", closed_memory="0s", max_streams=2)
    for number in range(5):
        plant.send("A", 100 * number, f"r{number}", setpoint=number, end=True)
    held = {name for name, stream in plant.commit(5).streams.items() if stream.held}
    assert held == {"r2", "r3", "r4"}  # two silent ones and the one that is known
    (notice,) = plant.intake.take_notices(START_US)
    assert (notice.kind, notice.stream) == ("held_forgotten", "r0")
    assert "more than 2 silent streams" in notice.text
    assert plant.intake.take_notices(START_US) == []


def test_what_was_held_before_a_gap_of_lost_records_holds_no_more() -> None:
    held = {"setpoint": (HeldReading(value=70.0, time_us=0, offset=0, index=0),)}
    streams = {
        "behind": StreamProgress(done_below=3, held=held),
        "silent": StreamProgress(done_below=3, held=held, forgotten=True),
        "ahead": StreamProgress(done_below=9, held=held),
    }
    after = after_gap(Progress(partition="p", next_offset=9, low_watermark=3, streams=streams), 5)
    assert {name: bool(stream.held) for name, stream in after.streams.items()} == {"behind": False, "ahead": True}


def test_a_channel_that_holds_no_more_is_dropped_from_the_progress() -> None:
    plant = Plant()
    plant.send("A", 0, setpoint=70, end=True)
    progress = plant.commit(1)
    settings = settings_of(channels=[{"name": "temp"}, {"name": "setpoint"}])
    decoder = Decoder(settings.decode, settings.channels, None)
    again = Intake("p", settings, decoder, Counters(), progress=progress)
    message = {"stream": "r", "sequence": "B", "time": START_US / 1e6 + 1, "values": {"temp": 1}, "end": True}
    (closed,) = again.take(RecordBatch("p", (Record(1, json.dumps(message).encode()),), 2), START_US)
    assert closed.sequence.carried is None
    assert again.progress().streams["r"].held == {}  # type: ignore[union-attr]


@pytest.mark.parametrize("by", ["id", "state", "word"])
def test_a_grid_covers_a_sequence_from_what_begins_it_to_what_ends_it(by: str) -> None:
    """Between a tag or word and the next reading values hold: a quiet beginning or end is not cut off."""
    fields: dict[str, Any] = {"channel": "tag", "value": "v", "sequence": {"tag": "id"} if by == "id" else None}
    sequences: dict[str, Any] = {"end": ["change"] if by == "id" else ["marker"], "without_id": "skip"}
    begin, end = {"tag": "id", "v": 0}, {"tag": "id", "v": ""}
    if by == "state":
        sequences |= {"while": {"tag": "state", "in": ["RUN"]}, "without_id": "keep"}
        begin, end = {"tag": "state", "v": "RUN"}, {"tag": "state", "v": "IDLE"}
    elif by == "word":
        fields = {"values": None, "sequence": None, "begin": {"field": "e", "value": "GO"}}
        fields["end"] = {"field": "e", "value": "STOP"}
        sequences["without_id"] = "keep"
        begin, end = {"e": "GO"}, {"e": "STOP"}
    channel = {"name": "temp", "fill": "hold"}
    plant = settings_of(channels=[channel], sequences=sequences, decode={"fields": fields})
    decoder = Decoder(plant.decode, plant.channels, None, plant.sequences.while_)
    intake = Intake("p", plant, decoder, Counters())
    window = WindowSettings.model_validate({"length": 16, "resample": {"period": "10s"}})
    found = []
    for start in (0, 200):
        reading = [{"tag": "temp", "v": float(value), "temp": value} for value in (1, 2, 3)]
        for at, said in ((-5, reading[0]), (0, begin), (31, reading[1]), (60, end), (70, reading[2])):
            message = {"stream": "r", "time": START_US / 1e6 + 10 + start + at, **said}
            message["v"] = start if message.get("v") == 0 else message.get("v")  # another id each time
            record = Record(intake.next_offset, json.dumps(message).encode())
            found += intake.take(RecordBatch("p", (record,), record.offset + 1), START_US)
    for closed in found:
        made = to_window(closed.sequence, window, plant.channel_specs)
        assert isinstance(made, Window)
        assert made.values[0, : made.length].tolist() == [1, 1, 1, 1, 2, 2, 2]
        assert (closed.sequence.n_samples, closed.sequence.end_us - closed.sequence.start_us) == (1, 60_000_000)
    assert len(found) == 2
