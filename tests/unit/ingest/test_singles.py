"""Records that are taken together: the result is that of one record after the other, whatever they hold."""

from __future__ import annotations

import json
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamad.errors import DecodeError
from streamad.ingest import intake as intake_module
from streamad.ingest.decode import Decoder
from streamad.ingest.decode_values import ValueReader, read_id
from streamad.ingest.intake import Intake
from streamad.ingest.sequences.closed_sequences import Closed
from streamad.ingest.table.rows import BatchTable, Row
from streamad.partition_progress import Progress, merge
from streamad.settings.plant_yaml import Settings
from streamad.tables import NO_STREAM
from streamad.telemetry.metrics import Counters
from streamad.types import Record, RecordBatch
from tests.support.examples import examples
from tests.support.ingest.assembly_model import all_of
from tests.support.ingest.buffered import pending_samples
from tests.support.runtime.pipeline import CHANNELS, START_US, settings_of

SECOND_US = 1_000_000
READINGS = dict.fromkeys(CHANNELS, 1.5)


def message(**fields: Any) -> dict[str, Any]:
    return {"stream": "r", "sequence": "A", "time": START_US / 1e6, "values": READINGS} | fields


ODD: list[Callable[[dict[str, Any]], bytes]] = [
    lambda _: b"{",
    lambda _: b"",
    lambda _: b"[1]",
    lambda of: json.dumps({**of, "values": {**READINGS, "temp": None}}).encode(),
    lambda of: json.dumps({**of, "values": {"flow": 2.0}}).encode(),
    lambda of: json.dumps({**of, "values": {"nobody": 2.0}}).encode(),
    lambda of: json.dumps({**of, "values": {**READINGS, "temp": 1e39}}).encode(),
    lambda of: json.dumps({**of, "values": {**READINGS, "temp": "2"}}).encode(),
    lambda of: json.dumps({**of, "values": {**READINGS, "temp": -9999}}).encode(),
    lambda of: b"\xef\xbb\xbf" + json.dumps(of).encode(),
    msgspec.msgpack.encode,
    lambda of: msgspec.msgpack.encode({**of, "values": {**READINGS, "temp": float("nan")}}),
    lambda of: msgspec.msgpack.encode({**of, "values": {**READINGS, "temp": float("inf")}}),
    lambda of: json.dumps({**of, "time": 1e12}).encode(),
    lambda of: json.dumps({**of, "time": -1}).encode(),
    lambda of: json.dumps({**of, "time": round(of["time"])}).encode(),
    lambda of: json.dumps({**of, "time": "2026-01-01T00:00:07Z"}).encode(),
    lambda of: json.dumps({**of, "time": of["time"] + 5_000}).encode(),
    lambda of: json.dumps({**of, "time": None}).encode(),
    lambda of: json.dumps({**of, "stream": 7}).encode(),
    lambda of: json.dumps({**of, "stream": "", "sequence": "A"}).encode(),
    lambda of: json.dumps({**of, "sequence": "a\nb"}).encode(),
    lambda of: json.dumps({**of, "sequence": None}).encode(),
    lambda of: json.dumps({**of, "times": [of["time"]], "values": [[1.0, 2.0, 3.0]]}).encode(),
    lambda of: json.dumps({**of, "values": READINGS | {"temp": 2.0}, "channels": ["flow"]}).encode(),
    lambda of: json.dumps({**of, "padding": "x" * 3_000}).encode(),
]


@st.composite
def records(draw: st.DrawFn) -> list[Record]:
    """Draw records, most of which continue a sequence; what is odd, and how often, differs from list to list."""
    random = Random(draw(st.integers(0, 1 << 32)))
    streams, size = draw(st.sampled_from(["r", "rs", "rst"])), draw(st.sampled_from([8, 4, 30]))
    is_timed, rare = draw(st.sampled_from([True, True, False])), draw(st.sampled_from([0.0, 0.01, 0.02, 0.04]))
    is_loaded = draw(st.sampled_from([False, False, True]))  # all at once: the record times stand still
    steps = draw(st.sampled_from([[1], [1, 1, 1, 2], [1, 1, 1, 1, 0, -2], [5, 10], [1] * 20 + [30, 200]]))
    is_own, ahead_s = draw(st.booleans()), draw(st.sampled_from([0, 0, 30, -30]))

    def is_rare() -> bool:
        return random.random() < rare

    time_s, drawn = 0, list[Record]()
    numbers = dict.fromkeys(streams, 0)
    for offset in range(random.randint(20, 120)):
        stream, time_s = random.choice(streams), time_s + random.choice(steps)
        number = numbers[stream]
        key = str(random.randrange(4) if is_rare() else number // size)
        of = message(stream=stream, sequence=key, time=START_US / 1e6 + 60 + time_s + ahead_s)
        of["route"] = "m" if number // size % 2 else random.choice("mn")
        numbers[stream] += 1
        if is_rare():
            of["end"] = True
            numbers[stream] += size
        native = is_rare()
        value = random.choice(ODD)(of) if is_rare() else json.dumps(of).encode()
        if native:
            value = msgspec.msgpack.encode(of)
        us = START_US + (60 if is_loaded else 60 + time_s) * SECOND_US
        own_us: int | None = us
        if is_own and is_rare():
            own_us = random.choice([None, -1, 1 << 62, us - 3_000 * SECOND_US, us + 40 * SECOND_US])
        drawn.append(Record(offset, value, own_us if is_timed else None, native=native))
    return drawn


def _batches() -> list[Row]:
    """Rows of 9 s every 12 s; every second one is followed by the next at once."""
    begins_s = [(60 + 12 * number, 72 + 12 * number if number % 2 else 69 + 12 * number) for number in range(60)]
    return [
        Row(stream, f"{stream}{begin}", START_US + begin * SECOND_US, START_US + end * SECOND_US, 2)
        for stream in "rs"
        for begin, end in begins_s
    ]


TABLE = BatchTable("batches.csv", _batches())


@st.composite
def plants(draw: st.DrawFn) -> Settings:
    end = draw(st.sampled_from([["marker"], ["marker", "change"], ["marker", "gap"], ["length"], ["table"]]))
    sequences: dict[str, Any] = {"end": end, "max_duration": draw(st.sampled_from(["10s", "300s"]))}
    sequences |= {"gap": "7s"} if "gap" in end else {}
    sequences |= {"table": "batches.csv"} if "table" in end else {}
    sequences |= {"length": 7} if "length" in end else {}
    sequences["max_samples"] = draw(st.sampled_from([5, 1_000]))
    sequences["max_streams"] = draw(st.sampled_from([2, 100]))
    sequences["without_id"] = "keep" if "table" in end else draw(st.sampled_from(["keep", "skip"]))
    sequences["allowed_lateness"] = draw(st.sampled_from(["0s", "0s", "0s", "5s"]))
    channels = [{"name": name} for name in CHANNELS]
    if draw(st.booleans()):
        channels[0]["missing"] = [-9999]  # type: ignore[assignment]
    for channel in channels if draw(st.booleans()) else ():
        channel["fill"] = "hold"
    others = [{}, {}, {}, {"timezone": "Europe/Berlin"}, {"format": "json"}]
    others += [] if "table" in end else [{"time": "relative"}]
    decode = {"max_message_bytes": 2_000} | draw(st.sampled_from(others))
    return settings_of(sequences=sequences, channels=channels, decode=decode)


@dataclass(eq=False)
class Taking:
    """An intake, and all that came out of it."""

    plant: Settings
    route: str | None = None
    counters: Counters = field(default_factory=Counters)
    progress: Progress | None = None
    in_flight: deque[Closed] = field(default_factory=deque)
    ended: list[Any] = field(default_factory=list)
    aside: list[Any] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.restart()

    def restart(self) -> None:
        decoder = Decoder(self.plant.decode, self.plant.channels, self.route)
        table = TABLE if self.plant.sequences.table is not None else None
        self.intake = Intake("p", self.plant, decoder, self.counters, progress=self.progress, table=table)
        self.in_flight.clear()

    def take(self, records: list[Record], written: tuple[tuple[int, int], ...]) -> None:
        batch = RecordBatch("p", tuple(records), records[-1].offset + 1, written=written)
        self.end(self.intake.take(batch, START_US))

    def end(self, ended: list[Closed]) -> None:
        self.in_flight += ended
        self.ended += [all_of(closed) for closed in ended]
        self.aside += [msgspec.to_builtins(record.message) for record in self.intake.take_aside()]

    def commit(self, n: int) -> None:
        for _ in range(n):
            self.intake.committed(self.in_flight.popleft())
        self.progress = merge(self.progress, self.intake.progress())


@given(plants(), records(), st.data())
@settings(max_examples=examples(600), deadline=None)
def test_records_taken_together_give_what_they_give_one_by_one(
    plant: Settings, records: list[Record], data: st.DataObject
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(intake_module, "_FEWEST_TOGETHER", data.draw(st.sampled_from([1, 3])))
        route = data.draw(st.sampled_from([None, None, "route"]))
        together, one_by_one = Taking(plant, route), Taking(plant, route)
        written_s = data.draw(st.sampled_from([None, 400, 70]))
        written = () if written_s is None else ((0, START_US + written_s * SECOND_US),)
        at, may_restart = 0, data.draw(st.booleans())
        while at < len(records):
            behind = min(len(records), at + data.draw(st.integers(1, 40)))
            together.take(records[at:behind], written)
            with pytest.MonkeyPatch.context() as alone:
                alone.setattr(intake_module, "_FEWEST_TOGETHER", 1_000)
                one_by_one.take(records[at:behind], written)
            if (idle_s := data.draw(st.sampled_from([0, 0, 0, 5, 400]))) > 0:
                for each in (together, one_by_one):
                    each.end(each.intake.expire(idle_s * SECOND_US, START_US))
            if data.draw(st.sampled_from([False] * 9 + [True])):
                for each in (together, one_by_one):
                    each.end(each.intake.evict_largest(START_US))
            assert together.ended == one_by_one.ended
            assert together.aside == one_by_one.aside
            assert together.counters.as_dict() == one_by_one.counters.as_dict()
            ours, theirs = together.intake._assembler, one_by_one.intake._assembler  # noqa: SLF001
            assert pending_samples(ours) == pending_samples(theirs)
            for name in ("clock_us", "open_sequences", "buffered_bytes"):
                assert getattr(ours, name) == getattr(theirs, name), name
            assert ours.jumps.n_records == theirs.jumps.n_records
            assert ours.buffered_bytes == sum(stream.nbytes for stream in ours.streams.values())
            n = data.draw(st.integers(-1, len(together.in_flight)))
            if n >= 0:
                together.commit(n)
                one_by_one.commit(n)
            assert together.progress == one_by_one.progress
            assert together.intake.take_notices(START_US) == one_by_one.intake.take_notices(START_US)
            at = behind
            if may_restart and together.progress is not None and data.draw(st.integers(0, 9)) == 9:
                together.restart()
                one_by_one.restart()
                at = together.progress.low_watermark


def test_a_gap_ends_a_sequence_among_records_that_were_loaded_at_once() -> None:
    """Their own times stand still, so no deadline of the partition's clock passes."""
    taking = Taking(settings_of(sequences={"end": ["gap"], "gap": "7s"}))
    times_s = [*range(30), *range(37, 67)]  # a pause of 8 s
    records = []
    for offset, time_s in enumerate(times_s):
        value = json.dumps(message(sequence=None, time=START_US / 1e6 + time_s)).encode()
        records.append(Record(offset, value, START_US + 60 * SECOND_US))
    taking.take(records[:5], ())
    taking.take(records[5:], ())
    assert [(closed.sequence.reason, closed.sequence.n_samples) for closed in taking.in_flight] == [("gap", 30)]


def test_samples_that_continue_their_sequences_are_not_decoded_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    plant = settings_of()
    taking = Taking(plant)
    ids = [(stream, number) for number in range(40) for stream in "rst"]
    drawn = [
        Record(offset, json.dumps(message(stream=stream, time=START_US / 1e6 + number)).encode(), START_US)
        for offset, (stream, number) in enumerate(ids)
    ]
    taking.take(drawn[:3], ())
    monkeypatch.setattr(Decoder, "decode", lambda *_: pytest.fail("decoded alone"))
    taking.take(drawn[3:], ())
    assert (taking.counters.samples, pending_samples(taking.intake._assembler)) == (120, 120)  # noqa: SLF001
    assert (taking.ended, taking.aside) == ([], [])


def test_one_odd_record_among_many_costs_only_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    taking = Taking(settings_of())
    values = [json.dumps(message(time=START_US / 1e6 + number)).encode() for number in range(100)]
    values[50] = b"{"
    alone: list[int] = []
    decode = Decoder.decode

    def counted(decoder: Decoder, record: Record, written_us: int | None) -> Any:
        alone.append(record.offset)
        return decode(decoder, record, written_us)

    monkeypatch.setattr(Decoder, "decode", counted)
    taking.take([Record(0, values[0], START_US)], ())
    taking.take([Record(offset, value, START_US) for offset, value in enumerate(values)][1:], ())
    assert alone == [0, 50]
    assert (taking.counters.samples, taking.counters.dead_letters) == (99, {"malformed": 1})


@pytest.mark.parametrize("every", [1, 10, 100])
@pytest.mark.parametrize(
    "odd",
    [
        {"time": START_US / 1e6 + 5_000},
        {"time": START_US / 1e3},
        {"time": "never"},
        {"values": READINGS | {"temp": float("inf")}},
    ],
    ids=["clock ahead", "milliseconds", "no time", "infinite"],
)
def test_odd_records_do_not_make_others_be_decoded_again(
    odd: dict[str, Any], every: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    decoded = Counter[str]()
    packed, decode = ValueReader.packed, Decoder.decode
    monkeypatch.setattr(ValueReader, "packed", lambda *given: decoded.update(["together"]) or packed(*given))
    monkeypatch.setattr(Decoder, "decode", lambda *given: decoded.update(["alone"]) or decode(*given))
    taking = Taking(settings_of())
    drawn = []
    for offset in range(2_000):
        of = message(time=START_US / 1e6 + offset / 100) | (odd if offset % every == every - 1 else {})
        drawn.append(Record(offset, msgspec.msgpack.encode(of), START_US + offset * 10_000))
    taking.take(drawn, ())
    n_odd = 2_000 // every
    assert taking.counters.samples + sum(taking.counters.dead_letters.values()) in (2_000, 2_001)
    assert decoded["together"] + decoded["alone"] <= 2_000 + n_odd + 200


def test_chunks_are_hardly_ever_decoded_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    tried, singles = [], Decoder.singles
    monkeypatch.setattr(Decoder, "singles", lambda *given: tried.append(given[2]) or singles(*given))
    taking = Taking(settings_of())
    drawn = []
    for offset in range(4_000):
        times = [START_US / 1e6 + 2 * offset, START_US / 1e6 + 2 * offset + 1]
        of = message(time=None, times=times, values=[[1.0] * len(CHANNELS)] * 2, sequence=str(offset // 10))
        drawn.append(Record(offset, json.dumps(of).encode(), START_US + 2 * offset * SECOND_US))
    for at in range(0, 4_000, 100):
        taking.take(drawn[at : at + 100], ())
    assert taking.counters.samples == 8_000
    assert 4 < len(tried) < 12


def test_no_stream_may_have_the_name_of_none() -> None:
    with pytest.raises(DecodeError):
        read_id(NO_STREAM, "stream")
