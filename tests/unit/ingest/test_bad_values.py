"""A value that cannot be read costs its channel's value only, is counted, and is a dead letter at most once an hour.

The laws: the rest of the message is as if the value were null; counts by channel and reason add up; chunked equals
single; a restart at any record, and a replay, give the same letters and events.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from streamad.ingest.dead_letters import HOUR_US, MOST_CHANNELS, BadValueWatch
from streamad.ingest.decode import Decoder
from streamad.ingest.intake import Intake
from streamad.messages import DeadLetter
from streamad.partition_progress import Progress, merge
from streamad.settings.decode import ChannelSettings, DecodeSettings, FieldSettings, QualitySettings
from streamad.settings.plant_yaml import Settings
from streamad.telemetry.metrics import Counters
from streamad.types import BAD_REASONS, BadValues, FloatArray, Record, RecordBatch, SampleBlock
from tests.support.ingest.decoded import block_in
from tests.support.runtime.pipeline import START_US, settings_of

T = START_US // 1_000_000
NAN = math.nan
NAMES = ("temp", "pressure")
CHANNELS = [ChannelSettings(name=name) for name in NAMES]
OWN = DecodeSettings()
FLAT = DecodeSettings(fields=FieldSettings(values=None))
LONG = DecodeSettings(fields=FieldSettings(channel="tag", value="v"))
HEAD = {"stream": "r1", "sequence": "B1"}


def decoded(
    message: Any, settings: DecodeSettings = OWN, channels: list[ChannelSettings] | None = None, **record: Any
) -> SampleBlock:
    value = message if isinstance(message, bytes) else json.dumps(message).encode()
    block = block_in(Decoder(settings, channels or CHANNELS), Record(7, value, **record))
    assert block is not None
    return block


def reasons(block: SampleBlock) -> list[list[str]]:
    assert block.bad is not None
    return [[BAD_REASONS[code] for code in row] for row in block.bad.codes.tolist()]


def texts(block: SampleBlock) -> dict[str, str]:
    assert block.bad is not None
    return {NAMES[column]: text for (column, _), text in block.bad.first.items()}


# --- one bad value --------------------------------------------------------------------------------------------------

FORMS: list[tuple[str, Any, DecodeSettings, list[list[float]]]] = [
    ("single", {**HEAD, "time": T, "values": {"temp": "?", "pressure": 2}}, OWN, [[NAN, 2]]),
    ("chunk", {**HEAD, "times": [T, T + 1], "values": [[1, 2], ["?", 4]]}, OWN, [[1, 2], [NAN, 4]]),
    ("unordered", {**HEAD, "times": [T + 1, T], "values": [["?", 4], [1, 2]]}, OWN, [[1, 2], [NAN, 4]]),
    ("part", {**HEAD, "times": [T], "channels": ["temp"], "values": [["?"]]}, OWN, [[NAN, NAN]]),
    (
        "list",
        [{**HEAD, "time": T + i, "values": {"temp": v, "pressure": 2}} for i, v in enumerate([1, "?"])],
        OWN,
        [[1, 2], [NAN, 2]],
    ),
    ("flat", {**HEAD, "time": T, "temp": "?", "pressure": "2"}, FLAT, [[NAN, 2]]),
    ("one channel", {**HEAD, "time": T, "tag": "temp", "v": "?"}, LONG, [[NAN, NAN]]),
]
BAD: list[tuple[Any, str, str]] = [
    ("Bad", "wrong_type", "must be a number or null, got 'Bad'"),
    ("I/O Timeout", "wrong_type", "got 'I/O Timeout'"),
    ("#N/A", "wrong_type", "got '#N/A'"),
    ("\x1b[31m", "wrong_type", r"got '\x1b[31m'"),
    ("9" * 5_000, "wrong_type", "got '999"),
    (True, "wrong_type", "got true"),
    ([1.0], "wrong_type", "got a list"),
    ({"v": 1.0}, "wrong_type", "got an object"),
    (1e39, "infinite", "1e+39 is infinite or beyond 32-bit floats"),
    (-1e308, "infinite", "-1e+308 is infinite"),
    (10**400, "infinite", "inf is infinite"),
    (math.inf, "infinite", "inf is infinite"),
]


@pytest.mark.parametrize("form", FORMS, ids=[form[0] for form in FORMS])
@pytest.mark.parametrize(("value", "reason", "text"), BAD, ids=[f"{i}-{row[1]}" for i, row in enumerate(BAD)])
def test_a_bad_value_costs_its_channels_value_only(
    form: tuple[str, Any, DecodeSettings, list[list[float]]], value: Any, reason: str, text: str
) -> None:
    _, message, settings, values = form
    block = decoded(json.dumps(message).replace('"?"', json.dumps(value)).encode(), settings)
    np.testing.assert_array_equal(block.values, values)
    assert (block.stream, block.sequence, len(block)) == ("r1", "B1", len(values))
    is_bad = [[row == len(values) - 1 and column == 0 for column in range(2)] for row in range(len(values))]
    assert reasons(block) == [[reason if bad else "" for bad in row] for row in is_bad]
    assert text in texts(block)["temp"]
    assert len(texts(block)["temp"]) < 130


def test_a_path_that_meets_no_object_is_a_bad_value_in_channels_but_not_in_ids() -> None:
    channels = [ChannelSettings(name="temp", field="a.v"), ChannelSettings(name="pressure", field="b.v")]
    block = decoded({**HEAD, "time": T, "a": "Bad", "b": {"v": 2}}, FLAT, channels)
    np.testing.assert_array_equal(block.values, [[NAN, 2]])
    assert texts(block) == {"temp": "a.v: 'Bad' stands where an object should be"}


def test_a_recorded_array_with_an_infinite_value_keeps_its_sequence() -> None:
    message = {**HEAD, "times": [T, T + 1], "values": [[1.0, math.inf], [3.0, 4.0]]}
    block = decoded(msgspec.msgpack.encode(message), FLAT, native=True)
    np.testing.assert_array_equal(block.values, [[1, NAN], [3, 4]])
    assert reasons(block) == [["", "infinite"], ["", ""]]


def test_good_messages_say_nothing_of_bad_values() -> None:
    for _, message, settings, _ in FORMS:
        for value in ("1.5", "null"):
            assert decoded(json.dumps(message).replace('"?"', value).encode(), settings).bad is None


# --- what means missing ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "message", "settings", "values"), FORMS, ids=[form[0] for form in FORMS])
def test_texts_that_mean_missing_are_not_bad(
    name: str, message: Any, settings: DecodeSettings, values: list[list[float]]
) -> None:
    settings = settings.model_copy(update={"missing": ("Bad", " I/O Timeout")})
    for value in ("Bad", " BAD ", "i/o timeout"):
        block = decoded(json.dumps(message).replace('"?"', json.dumps(value)).encode(), settings)
        np.testing.assert_array_equal(block.values, values)
        assert block.bad is None
    assert decoded(json.dumps(message).replace('"?"', '"worse"').encode(), settings).bad is not None


@pytest.mark.parametrize(("name", "message", "settings", "values"), FORMS, ids=[form[0] for form in FORMS])
@pytest.mark.parametrize("value", [-9999, -9999.0, -1e20, 1e300])
def test_numbers_that_mean_missing_do_so_in_their_channel(
    name: str, message: Any, settings: DecodeSettings, values: list[list[float]], value: float
) -> None:
    written = json.dumps(message).replace('"?"', json.dumps(value)).encode()
    channels = [ChannelSettings(name="temp", missing=(-9999, -1e20, 1e300)), CHANNELS[1]]
    block = decoded(written, settings, channels)
    np.testing.assert_array_equal(block.values, values)
    assert block.bad is None
    other = decoded(written, settings, [CHANNELS[0], ChannelSettings(name="pressure", missing=(-9999,))])
    assert (other.bad is not None) == (value == 1e300)
    assert value == 1e300 or np.float32(value) in other.values


def test_numbers_that_mean_missing_are_found_in_recorded_arrays_too() -> None:
    message = {**HEAD, "times": [T, T + 1], "values": [[-9999.0, 2.0], [3.0, -9999.0]]}
    channels = [ChannelSettings(name="temp", missing=(-9999,)), CHANNELS[1]]
    block = decoded(msgspec.msgpack.encode(message), OWN, channels, native=True)
    np.testing.assert_array_equal(block.values, [[NAN, 2], [3, -9999]])


@pytest.mark.parametrize(
    ("section", "message"),
    [
        ({"missing": [-9999]}, r"channels\[\].missing"),
        ({"missing": ["-9999"]}, r"channels\[\].missing"),
        ({"missing": [None]}, "put it in quotes"),
        ({"missing": [False]}, "put it in quotes"),
        ({"quality": {"field": "q", "good": []}}, "at least 1"),
    ],
)
def test_decode_refuses_what_belongs_elsewhere(section: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        DecodeSettings(**section)


@pytest.mark.parametrize("value", ["Bad", math.inf, None, True])
def test_channels_refuse_texts_as_missing(value: Any) -> None:
    with pytest.raises(ValidationError, match=r"decode.missing|finite numbers"):
        ChannelSettings(name="temp", missing=[value])  # type: ignore[arg-type]


# --- qualities ------------------------------------------------------------------------------------------------------

GOOD = QualitySettings(field="q", good=(192, "Good", None))


@pytest.mark.parametrize(("quality", "is_good"), [
    (192, True), (192.0, True), ("192", True), ("good", True), (" GOOD", True), (None, True), ("", True), (..., True),
    (0, False), ("Bad", False), (24, False), (True, False), ({}, False), ([192], False), ("1920", False),
])  # fmt: skip
@pytest.mark.parametrize("form", ["single", "flat", "one channel"])
def test_readings_whose_quality_is_not_good_are_missing(form: str, quality: Any, is_good: bool) -> None:
    message, settings = {
        "single": ({**HEAD, "time": T, "values": {"temp": 1.5}}, OWN),
        "flat": ({**HEAD, "time": T, "temp": "1.5"}, FLAT),
        "one channel": ({**HEAD, "time": T, "tag": "temp", "v": 1.5}, LONG),
    }[form]
    if quality is not ...:
        message = {**message, "q": quality}
    if quality == [192]:
        is_good = True  # one for each row
    block = decoded(message, settings.model_copy(update={"quality": GOOD}))
    assert block.values[0, 0] == 1.5 if is_good else np.isnan(block.values[0, 0])
    if is_good:
        assert block.bad is None
    else:
        assert reasons(block) == [["quality", ""]]
        assert texts(block)["temp"].startswith("its quality is ")


def test_a_channels_own_quality_stands_beside_its_value() -> None:
    own = QualitySettings(field="temp_q", good=(1,))
    channels = [ChannelSettings(name="temp", quality=own), CHANNELS[1]]
    message = {**HEAD, "time": T, "temp": 1, "temp_q": 0, "pressure": 2, "q": 192}
    for settings in (FLAT, FLAT.model_copy(update={"quality": GOOD})):
        np.testing.assert_array_equal(decoded(message, settings, channels).values, [[NAN, 2]])
        np.testing.assert_array_equal(decoded({**message, "temp_q": 1}, settings, channels).values, [[1, 2]])
    bad = decoded({**message, "temp_q": 1, "q": 0}, FLAT.model_copy(update={"quality": GOOD}), channels)
    np.testing.assert_array_equal(bad.values, [[1, NAN]])
    inside = [
        ChannelSettings(name="temp", field="t.v", quality=QualitySettings(field="t.q", good=("ok",))),
        CHANNELS[1],
    ]
    nested = {**HEAD, "time": T, "values": {"t": {"v": 1, "q": "OK"}, "pressure": 2}}
    np.testing.assert_array_equal(decoded(nested, OWN, inside).values, [[1, 2]])
    nested["values"]["t"]["q"] = "stale"  # type: ignore[index]
    np.testing.assert_array_equal(decoded(nested, OWN, inside).values, [[NAN, 2]])


def test_a_chunk_may_have_a_quality_for_each_row() -> None:
    chunk = {**HEAD, "times": [T, T + 1, T + 2], "values": [[1, 2], [3, 4], [5, 6]]}
    settings = OWN.model_copy(update={"quality": GOOD})
    block = decoded({**chunk, "q": [192, 0]}, settings)  # the last one is not given
    np.testing.assert_array_equal(block.values, [[1, 2], [NAN, NAN], [5, 6]])
    assert reasons(block) == [["", ""], ["quality", "quality"], ["", ""]]
    np.testing.assert_array_equal(decoded({**chunk, "q": 0}, settings).values, np.full((3, 2), NAN))


def test_qualities_are_known_fields_of_strict_messages() -> None:
    fields = FieldSettings(values=None, ignore_unknown=False)
    channels = [ChannelSettings(name="temp", quality=QualitySettings(field="temp_q", good=(1,))), CHANNELS[1]]
    message = {**HEAD, "time": T, "temp": 1, "temp_q": 1, "pressure": 2, "q": 192}
    block = decoded(message, DecodeSettings(fields=fields, quality=GOOD), channels)
    np.testing.assert_array_equal(block.values, [[1, 2]])


# --- the law of decoding --------------------------------------------------------------------------------------------

bad_values = st.sampled_from([value for value, *_ in BAD])
cells = st.one_of(st.none(), st.floats(-1e6, 1e6), bad_values)


def is_bad(value: Any) -> bool:
    return any(value is bad or (type(value) is type(bad) and value == bad) for bad, *_ in BAD)


@given(rows=st.lists(st.tuples(cells, cells), min_size=1, max_size=9))
def test_the_rest_of_a_message_is_as_if_bad_values_were_null(rows: list[tuple[Any, Any]]) -> None:
    times = [T + i for i in range(len(rows))]
    clean = [[None if is_bad(value) else value for value in row] for row in rows]
    expected = decoded({**HEAD, "times": times, "values": clean}).values
    where = np.array([[is_bad(value) for value in row] for row in rows])
    singles = [
        {**HEAD, "time": time, "values": dict(zip(NAMES, row, strict=True))}
        for time, row in zip(times, rows, strict=True)
    ]
    for message in ({**HEAD, "times": times, "values": rows}, singles):
        block = decoded(message)
        np.testing.assert_array_equal(block.values, expected)
        assert (block.bad is None) == (not where.any())
        assert block.bad is None or np.array_equal(block.bad.codes > 0, where)


# --- the intake: counts, letters, events ----------------------------------------------------------------------------


class Reader:
    """An intake, with what it reported."""

    def __init__(self, settings: Settings, progress: Progress | None = None, counters: Counters | None = None) -> None:
        self.counters = counters or Counters()
        self.progress = progress
        decoder = Decoder(settings.decode, settings.channels)
        self.intake = Intake("p", settings, decoder, self.counters, progress=progress)
        self.letters: list[tuple[int, str]] = []
        self.events: list[str] = []

    def take(self, *records: Record) -> None:
        for closed in self.intake.take(RecordBatch("p", records, records[-1].offset + 1), START_US):
            self.intake.committed(closed)
        for output in self.intake.take_aside():
            if not isinstance(output.message, DeadLetter) or output.message.kind != "bad_value":
                continue
            self.letters.append((output.message.origin.offset, output.message.error))
        self.events += [each.text for each in self.intake.take_notices(START_US) if each.kind == "bad_values"]

    def committed(self) -> Progress:
        merged = merge(self.progress, self.intake.progress())
        self.progress = msgspec.msgpack.decode(msgspec.msgpack.encode(merged), type=Progress)
        return self.progress


def plant(**sections: Any) -> Settings:
    return settings_of(channels=[{"name": name} for name in NAMES], sequences={"max_duration": "20d"}, **sections)


def record(offset: int, temp: Any, pressure: Any = 1.0, at_s: float = 0.0, written_s: float | None = None) -> Record:
    message = {**HEAD, "time": T + at_s, "values": {"temp": temp, "pressure": pressure}}
    return Record(offset, json.dumps(message).encode(), None if written_s is None else START_US + int(written_s * 1e6))


def test_the_first_bad_value_of_a_channel_and_reason_is_a_dead_letter_with_its_bytes() -> None:
    reader = Reader(plant())
    records = [record(0, "Bad"), record(1, "Worse"), record(2, 1e39), record(3, "Bad", "Bad"), record(4, 1, 1e39)]
    reader.take(*records)
    assert reader.letters == [
        (0, "temp: must be a number or null, got 'Bad'; all else was read"),
        (2, "temp: 1e+39 is infinite or beyond 32-bit floats; all else was read"),
        (3, "pressure: must be a number or null, got 'Bad'; all else was read"),
        (4, "pressure: 1e+39 is infinite or beyond 32-bit floats; all else was read"),
    ]
    assert reader.counters.bad_values == {
        "temp": {"wrong_type": 3, "infinite": 1},
        "pressure": {"wrong_type": 1, "infinite": 1},
    }
    assert reader.counters.dead_letters == {"bad_value": 4}
    assert reader.counters.samples == 5
    assert reader.counters.as_dict()["bad_values"]["temp"] == {"wrong_type": 3, "infinite": 1}


def test_the_letter_holds_the_message() -> None:
    reader = Reader(plant())
    intake, bad = reader.intake, record(0, "Bad", "Bad")
    intake.take(RecordBatch("p", (bad,), 1), START_US)
    (output,) = intake.take_aside()
    assert isinstance(output.message, DeadLetter)
    assert output.role == "dead_letters"
    assert (output.message.value, output.message.origin.offset) == (bad.value, 0)
    assert output.message.error == (
        "temp: must be a number or null, got 'Bad'; pressure: must be a number or null, got 'Bad'; all else was read"
    )


@pytest.mark.parametrize("clock", ["event", "record"])
def test_then_there_is_one_letter_an_hour_by_the_records_clock_else_by_event_time(clock: str) -> None:
    reader = Reader(plant())
    times_s = [0, 1, 3_599.999999, 3_600, 3_601, 7_199.999999, 7_200, 100]
    for offset, time_s in enumerate(times_s):
        if clock == "event":
            reader.take(record(offset, "Bad", at_s=time_s))
        else:
            reader.take(record(offset, "Bad", at_s=offset, written_s=time_s))
    assert [offset for offset, _ in reader.letters] == [0, 3, 6]
    assert reader.counters.bad_values["temp"]["wrong_type"] == len(times_s)


def test_a_bad_quality_is_counted_and_an_event_but_no_letter() -> None:
    reader = Reader(plant(decode={"quality": {"field": "q", "good": [192]}}))
    for i in range(60):
        message = {**HEAD, "time": T + i, "values": {"temp": 1, "pressure": "Bad" if i == 0 else None}, "q": 0}
        reader.take(Record(i, json.dumps(message).encode()))
    assert reader.counters.bad_values == {"temp": {"quality": 60}, "pressure": {"wrong_type": 1}}
    assert [error for _, error in reader.letters] == [
        "pressure: must be a number or null, got 'Bad'; all else was read"
    ]
    assert reader.events == ["51 of 51 values of temp cannot be used (quality: its quality is 0)"]


def run_of(n: int, bad: set[int], begin: int = 0) -> list[Record]:
    return [record(begin + i, "Bad" if i in bad else 1.0, at_s=begin + i) for i in range(n)]


@pytest.mark.parametrize(("n_bad", "n_events"), [(50, 0), (51, 1)])
def test_more_than_five_per_cent_of_a_thousand_readings_is_an_event(n_bad: int, n_events: int) -> None:
    reader = Reader(plant())
    reader.take(*run_of(1_000, {*range(0, 20 * (n_bad - 1), 20), 999}))
    expected = ["51 of 1000 values of temp cannot be used (wrong_type: must be a number or null, got 'Bad')"]
    assert reader.events == expected * n_events


def test_a_window_begins_with_a_bad_reading_and_ends_after_a_thousand() -> None:
    reader = Reader(plant())
    reader.take(*run_of(990, set()))
    reader.take(*run_of(1_000, set(range(50)), 990), *run_of(50, set(range(50)), 1_990))
    assert reader.events == []
    reader.take(*run_of(1, {0}, 2_040))
    assert reader.events == ["51 of 51 values of temp cannot be used (wrong_type: must be a number or null, got 'Bad')"]


def test_a_channel_that_stays_bad_is_one_event_until_it_was_good_again() -> None:
    reader = Reader(plant())
    reader.take(*run_of(5_000, set(range(5_000))))
    assert len(reader.events) == 1
    reader.take(*run_of(900, set(), 5_000), *run_of(60, set(range(60)), 5_900))
    assert len(reader.events) == 1  # the window was not yet over
    reader.take(*run_of(2_000, set(), 6_060), *run_of(60, set(range(60)), 8_060))
    assert len(reader.events) == 2


def test_only_readings_of_the_channel_count() -> None:
    reader = Reader(plant())
    for offset in range(2_000):
        reader.take(record(offset, "Bad" if offset % 20 == 0 else None, at_s=offset))
    assert reader.counters.bad_values == {"temp": {"wrong_type": 100}}
    assert len(reader.events) == 1  # all readings there are


def test_many_channels_at_once_are_one_letter_and_one_event() -> None:
    names = [f"c{i}" for i in range(MOST_CHANNELS + 10)]
    watch = BadValueWatch(names, {})
    bad = BadValues(np.ones((60, len(names)), np.uint8), {(column, 1): "'Bad'" for column in range(len(names))})
    letter = watch.note(block_of(np.full((60, len(names)), np.nan, np.float32), bad), START_US)
    assert letter == "c0: 'Bad'; c1: 'Bad'; c2: 'Bad'; and 253 more; all else was read"
    (event,) = watch.take_over()
    assert event == (
        "51 of 51 values of c0; 51 of 51 values of c1; 51 of 51 values of c2; and 253 more cannot be used "
        "(wrong_type: 'Bad')"
    )
    assert len(watch.saved) == MOST_CHANNELS
    assert len(msgspec.msgpack.encode(watch.saved)) < 20_000


def test_channels_that_recovered_make_room_for_others() -> None:
    names = [f"c{i}" for i in range(MOST_CHANNELS + 1)]
    watch, values = BadValueWatch(names, {}), np.ones((1, len(names)), np.float32)
    for column in range(MOST_CHANNELS + 1):
        codes = np.zeros((1, len(names)), np.uint8)
        codes[0, column] = 1
        letter = watch.note(block_of(values, BadValues(codes, {(column, 1): "'Bad'"})), START_US)
        assert (letter is None) == (column == MOST_CHANNELS)
    watch.note(block_of(np.ones((1_000, len(names)), np.float32), None), START_US)
    for later_us, is_told in ((HOUR_US - 1, False), (HOUR_US, True)):
        codes = np.zeros((1, len(names)), np.uint8)
        codes[0, -1] = 1
        bad = BadValues(codes, {(MOST_CHANNELS, 1): "'Bad'"})
        assert (watch.note(block_of(values, bad), START_US + later_us) is not None) == is_told


def block_of(values: FloatArray, bad: BadValues | None) -> SampleBlock:
    times_us = np.arange(len(values), dtype=np.int64) + START_US
    return SampleBlock("r1", "B1", 0, times_us, values, bad=bad)


readings = st.sampled_from([1.0, 1.0, 1.0, None, "Bad", "Bad", 1e39])
steps_s = st.sampled_from([0, 1, 1, 700, 3_599, 3_600, 3_601])


@given(
    drawn=st.lists(st.tuples(readings, readings, steps_s), min_size=1, max_size=30),
    repeat=st.sampled_from([1, 40]),
    cut=st.integers(0, 30),
    begin=st.integers(0, 30),
    has_clock=st.booleans(),
)
def test_a_restart_at_any_record_gives_the_same_letters_events_and_counts(
    drawn: list[tuple[Any, Any, int]], repeat: int, cut: int, begin: int, has_clock: bool
) -> None:
    records, at_s = [], 0
    for temp, pressure, step_s in drawn:
        at_s += step_s
        for _ in range(repeat):
            offset = len(records)
            records.append(record(offset, temp, pressure, at_s, at_s if has_clock else None))
    settings = plant()
    whole = Reader(settings)
    whole.take(*records)
    expected = Counter(
        (name, "infinite" if value == 1e39 else "wrong_type")
        for row in drawn
        for name, value in zip(NAMES, row[:2], strict=True)
        if value in ("Bad", 1e39)
    )
    found = {(name, reason): n for name, of in whole.counters.bad_values.items() for reason, n in of.items()}
    assert found == {key: repeat * n for key, n in expected.items()}

    cut = min(cut, len(drawn)) * repeat
    first = Reader(settings)
    if cut:
        first.take(*records[:cut])
    progress = first.committed() if cut else None
    again = Reader(settings, progress, first.counters)
    for one in records[0 if progress is None else progress.low_watermark :]:  # read again from the low watermark on
        again.take(one)
    assert first.letters + again.letters == whole.letters
    assert first.events + again.events == whole.events
    assert first.counters.bad_values == whole.counters.bad_values


def over(reader: Reader) -> Counter[str]:
    """Return the channels that the events name, and after how many readings."""
    return Counter(re.findall(r"51 of \d+ values of \w+", " ".join(reader.events)))


@given(rows=st.lists(st.tuples(readings, readings), min_size=1, max_size=9), repeat=st.sampled_from([1, 30]))
def test_chunked_equals_single(rows: list[tuple[Any, Any]], repeat: int) -> None:
    rows = rows * repeat
    single = Reader(plant())
    single.take(*(record(i, *row, at_s=i) for i, row in enumerate(rows)))
    chunked = Reader(plant())
    for begin in range(0, len(rows), 100):
        part = rows[begin : begin + 100]
        message = {**HEAD, "times": [T + begin + i for i in range(len(part))], "values": part}
        chunked.take(Record(begin, json.dumps(message).encode()))
    assert chunked.counters.bad_values == single.counters.bad_values
    assert over(chunked) == over(single)
    assert chunked.intake.progress().bad_values.keys() == single.intake.progress().bad_values.keys()
    for name, state in chunked.intake.progress().bad_values.items():
        other = single.intake.progress().bad_values[name]
        assert (state.seen, state.bad, state.is_over) == (other.seen, other.bad, other.is_over)
        assert state.letters.keys() == other.letters.keys()


def test_a_held_sample_far_ahead_decides_nothing_about_letters() -> None:
    reader = Reader(plant())
    reader.take(record(0, 1.0), record(1, "Bad", at_s=300 * 86_400), record(2, "Bad", at_s=1))
    assert [offset for offset, error in reader.letters if "temp" in error] == [2]
    assert reader.counters.bad_values["temp"]["wrong_type"] == 2
