"""One process after the other on the same records, with crashes between: what the laws of restarts are tested with."""

from __future__ import annotations

import json
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal, NamedTuple

import msgspec
from hypothesis import strategies as st

from streamad.ingest.decode import Decoder
from streamad.ingest.intake import Intake
from streamad.ingest.sequences.closed_sequences import Closed
from streamad.ingest.table.rows import BatchTable
from streamad.messages import DeadLetter, LateRecord, OutputRecord
from streamad.partition_progress import Progress, merge
from streamad.settings.plant_yaml import SequenceSettings, Settings
from streamad.telemetry.metrics import Counters
from streamad.types import Record, RecordBatch
from tests.support.ingest import assembly_model
from tests.support.ingest.assembly_model import cut_of
from tests.support.runtime.pipeline import START_US, settings_of

BROKEN = b"{"


class Outside(NamedTuple):
    """What comes from outside: silence of ``idle_us`` by the wall clock, or short memory."""

    kind: Literal["expire", "evict"]
    idle_us: int = 0


@dataclass(frozen=True)
class Step:
    """A batch of one record, then what comes from outside before the next one."""

    record: Record
    next_offset: int
    outside: tuple[Outside, ...] = ()


def message_of(record: assembly_model.Record, start_us: int = START_US) -> bytes:
    """Return the record as a chunk of the own format, its ticks after ``start_us``."""
    return json.dumps(
        {
            "stream": record.stream,
            "sequence": record.sequence,
            "times": [(start_us + time) / 1e6 for time in record.times],
            "values": record.rows,
            "end": record.end,
            "recipe": record.route,
        }
    ).encode()


def list_of(parts: list[assembly_model.Record], start_us: int, *, broken: bool) -> bytes:
    """Return a record of several blocks as a message with a list of samples, one of them perhaps unreadable."""
    elements: list[Any] = [
        {
            "stream": part.stream,
            "sequence": part.sequence,
            "time": (start_us + time) / 1e6,
            "values": dict(zip("xy", row, strict=True)),
            "end": index == part.end_at,
            "recipe": part.route,
        }
        for part in parts
        for index, (time, row) in enumerate(zip(part.times, part.rows, strict=True))
    ]
    return json.dumps({"device": "g1", "list": [*elements, *[7] * broken]}).encode()


@st.composite
def scripts(
    draw: st.DrawFn,
    arriving: st.SearchStrategy[list[Any]],
    start_us: int = START_US,
    *,
    each: bool = False,
    single: Callable[[assembly_model.Record, int], bytes] = message_of,
) -> list[Step]:
    """Draw records with gaps between their offsets, some of them unreadable, and what comes from outside."""
    outside = st.lists(
        st.one_of(
            st.integers(1, 60).map(lambda idle_us: Outside("expire", idle_us)),
            st.just(Outside("evict")),
        ),
        max_size=3,
    )
    offset, steps = draw(st.integers(0, 2)), []
    for found in draw(arriving):
        own_us = found[0].record_us if each else found.record_us
        record_us = None if own_us is None else START_US + own_us
        broken = draw(st.sampled_from([False, False, False, True]))
        message = list_of(found, start_us, broken=draw(st.booleans())) if each else single(found, start_us)
        for value in [BROKEN] * broken + [message]:
            following = offset + draw(st.sampled_from([1, 1, 3]))
            next_offset = draw(st.sampled_from([offset + 1, following]))
            steps.append(Step(Record(offset, value, record_us), next_offset, tuple(draw(outside))))
            offset = following
    return steps


@cache
def _plant(fill: str, decode: str) -> Settings:
    """Return the settings of all plants that differ in their limits: to read them anew takes as long as a run."""
    channels = [{"name": "x", "fill": fill}, {"name": "y", "fill": fill}]
    return settings_of(channels=channels, models={"field": "recipe"}, decode=json.loads(decode))


class Partition:
    """One process after the other on the same script, as the pipeline drives them.

    ``choose(what, n)`` is asked for a number from 0 to n wherever chance decides: whether to commit, how much, whether
    to crash. ``told`` holds what was committed.
    """

    def __init__(
        self,
        limits: SequenceSettings,
        script: list[Step],
        choose: Callable[[str, int], int],
        *,
        from_start: bool,
        table: BatchTable | None = None,
        fill: Literal["linear", "hold"] = "linear",
        each: bool = False,
        **decode: Any,
    ) -> None:
        if each:
            decode["fields"] = {"each": "list"}
        self.settings: Settings = _plant(fill, json.dumps(decode)).model_copy(update={"sequences": limits})
        self.script = script
        self.events = [(i, j) for i, step in enumerate(script) for j in range(-1, len(step.outside))]
        self.choose = choose
        self.table = table
        self.from_start = from_start
        self.progress: Progress | None = None
        self.done = 0
        self.told: Counter[Any] = Counter()

    def run(self, crashes: int) -> Counter[Any]:
        while not self.live(may_crash=crashes > 0):
            crashes -= 1
        return self.told

    def live(self, *, may_crash: bool) -> bool:
        """Run one process; return whether it reached the end."""
        intake = Intake(
            "p",
            self.settings,
            self.decoder(),
            Counters(),
            seen_from_start=self.from_start,
            progress=self.progress,
            table=self.table,
        )
        in_flight: deque[Closed] = deque()
        aside: list[OutputRecord] = []

        def goes_on(done: int) -> bool:
            aside.extend(intake.take_aside())
            if self.choose("commit", 2) == 1:
                self.commit(intake, in_flight, aside, self.choose("verdicts", len(in_flight)), done)
            return not (may_crash and self.choose("crash", 12) == 12)

        for batch in self.read_again():
            in_flight += self.take(intake, batch)
            if not goes_on(self.done):
                return False
        assert not intake.is_recovering
        for done in range(self.done, len(self.events)):
            in_flight += self.happen(intake, *self.events[done])
            if not goes_on(done + 1):
                return False
        self.commit(intake, in_flight, aside, len(in_flight), len(self.events))
        if may_crash and self.choose("crash", 4) == 4:
            return False
        in_flight += intake.end_of_input(START_US)
        aside += intake.take_aside()
        self.commit(intake, in_flight, aside, len(in_flight), len(self.events), ended=True)
        return not (may_crash and self.choose("crash", 4) == 4)

    def decoder(self) -> Decoder:
        """Return the decoder of a new process."""
        plant = self.settings
        return Decoder(plant.decode, plant.channels, plant.route_field, plant.sequences.while_)

    def take(self, intake: Intake, batch: RecordBatch) -> list[Closed]:
        return intake.take(batch, START_US)

    def read_again(self) -> list[RecordBatch]:
        """Return the records from the low watermark on, in batches cut anew."""
        if self.progress is None or self.progress.low_watermark == self.progress.next_offset:
            return []
        batches: list[RecordBatch] = []
        for step in self.script:
            if self.progress.low_watermark <= step.record.offset < self.progress.next_offset:
                records: tuple[Record, ...] = (step.record,)
                if batches and self.choose("join", 1):
                    records = batches.pop().records + records
                batches.append(RecordBatch("p", records, step.next_offset))
        if not batches:
            return [RecordBatch("p", (), self.progress.next_offset)]
        return batches

    def happen(self, intake: Intake, i: int, j: int) -> list[Closed]:
        step = self.script[i]
        if j < 0:
            return self.take(intake, RecordBatch("p", (step.record,), step.next_offset))
        if step.outside[j].kind == "expire":
            return intake.expire(step.outside[j].idle_us, START_US)
        return intake.evict_largest(START_US)

    def commit(
        self,
        intake: Intake,
        in_flight: deque[Closed],
        aside: list[OutputRecord],
        verdicts: int,
        done: int,
        *,
        ended: bool = False,
    ) -> None:
        for closed in [in_flight.popleft() for _ in range(verdicts)]:
            intake.committed(closed)
            self.told[cut_of(closed)] += 1
        for record in aside:
            self.told.update(told_by(record))
        aside.clear()
        merged = merge(self.progress, intake.progress(ended=ended))
        assert merged.low_watermark <= merged.next_offset
        self.progress = msgspec.msgpack.decode(msgspec.msgpack.encode(merged), type=Progress)
        self.done = done


def told_by(record: OutputRecord) -> list[tuple[Any, ...]]:
    """Return a dead letter, or the late samples one by one, comparable."""
    message = record.message
    if isinstance(message, DeadLetter):
        return [("dead", message.origin.offset)]
    assert isinstance(message, LateRecord)
    return [
        (message.origin.offset, message.stream, message.sequence, message.cause, time, tuple(row))
        for time, row in zip(message.times, message.values, strict=True)
    ]


def never(_: str, __: int) -> int:
    return 0


def choosing(data: st.DataObject) -> Callable[[str, int], int]:
    """Return a ``choose`` by chance: bytes are drawn many at a time, since a draw of its own costs more than a step."""
    drawn: deque[int] = deque()

    def choose(_: str, n: int) -> int:
        if not drawn:
            drawn.extend(data.draw(st.binary(min_size=64, max_size=64)))
        return drawn.popleft() % (n + 1)

    return choose
