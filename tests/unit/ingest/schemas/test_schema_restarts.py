"""The law of registered schemas: what the registry says later never changes what a restart reads again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamad.errors import DecodeError, SourceError
from streamad.ingest.decode import Decoder
from streamad.ingest.intake import Intake
from streamad.ingest.schemas.framing import SchemaKey, framed
from streamad.ingest.schemas.known import ASK_AGAIN_US, MOST_SCHEMAS, KnownSchema, Schemas
from streamad.ingest.schemas.registered import RegisteredSchema
from streamad.ingest.schemas.used import MOST_USED, UsedSchemas
from streamad.ingest.sequences.closed_sequences import Closed
from streamad.partition_progress import UsedSchema
from streamad.settings.plant_yaml import SequenceSettings
from streamad.types import Record, RecordBatch
from tests.support.examples import examples
from tests.support.ingest import assembly_model
from tests.support.ingest.assembly_cases import arrivals, sequence_settings
from tests.support.ingest.restarts import Partition, Step, choosing, message_of, never, scripts

PLACE = "http://localhost:8081"
SCHEMA = RegisteredSchema("json", "{}")


def framed_as(schema: int, message: bytes) -> bytes:
    return b"\0" + schema.to_bytes(4, "big") + message


def message_with_schema(record: assembly_model.Record, start_us: int) -> bytes:
    """Return a message of one of three schemas, or without one."""
    schema, message = sum(record.times) % 4, message_of(record, start_us)
    return framed_as(schema, message) if schema else message


class SchemaPartition(Partition):
    """Processes whose registry has more schemas from time to time, or fewer; ``read`` says what was found at first.

    ``answer`` is asked for each schema that is fetched; ``read`` holds for each offset below N whether the record's
    schema was known.
    """

    def __init__(self, limits: SequenceSettings, script: list[Step], choose: Callable[[str, int], int]) -> None:
        super().__init__(limits, script, choose, from_start=True, registry={"url": PLACE})
        self.registered: set[SchemaKey] = set()
        self.read: dict[int, bool] = {}
        self.schemas = Schemas(PLACE)

    def decoder(self) -> Decoder:
        plant, self.schemas = self.settings, Schemas(PLACE)
        return Decoder(plant.decode, plant.channels, plant.route_field, plant.sequences.while_, self.schemas)

    def take(self, intake: Intake, batch: RecordBatch) -> list[Closed]:
        assert intake.schemas is not None
        resume_at = 0 if self.progress is None else self.progress.next_offset
        if self.choose("register", 3) == 0:
            self.registered.add(self.choose("schema", 2) + 1)
        if self.choose("unregister", 12) == 12:
            self.registered.discard(self.choose("schema", 2) + 1)
        for schema, first in intake.schemas.wanted(batch.records, 0).items():
            if self.answers(schema, first):
                self.schemas.learn(schema, SCHEMA, "d", 0)
            elif self.choose("ask again", 1):
                self.schemas.refuse(schema, "absent", -ASK_AGAIN_US)
            else:
                self.schemas.refuse(schema, "absent", 0)
        for record in batch.records:
            if record.offset >= resume_at and (found := framed(record)) is not None:
                self.read[record.offset] = self.schemas.get(found.schema) is not None
        return super().take(intake, batch)

    def run_or_end(self, crashes: int) -> tuple[Counter[Any], str | None]:
        """Return what was committed, and the error that ended it."""
        try:
            return self.run(crashes), None
        except SourceError as error:
            return self.told, str(error)

    def answers(self, schema: SchemaKey, _: int) -> bool:
        return schema in self.registered


class Found:
    """What was found at the first reading, record by record."""

    def __init__(self, read: dict[int, bool]) -> None:
        self._read = read
        self._schemas = Schemas(PLACE)

    def known(self, schema: SchemaKey, offset: int) -> KnownSchema:
        if self._read[offset]:
            self._schemas.learn(schema, SCHEMA, "d", 0)
            return self._schemas.known(schema, offset)
        raise DecodeError("unknown_schema", "absent")


class Uninterrupted(Partition):
    """One process that finds what others have found."""

    def __init__(self, limits: SequenceSettings, script: list[Step], read: dict[int, bool]) -> None:
        super().__init__(limits, script, never, from_start=True, registry={"url": PLACE})
        self.found = Found(read)

    def decoder(self) -> Decoder:
        plant = self.settings
        return Decoder(plant.decode, plant.channels, plant.route_field, plant.sequences.while_, self.found)


@given(sequence_settings(), scripts(arrivals(most=16), single=message_with_schema), st.integers(1, 3), st.data())
@settings(max_examples=examples(150))
def test_a_restart_reads_with_the_schemas_of_before_or_stops(
    limits: SequenceSettings, script: list[Step], crashes: int, data: st.DataObject
) -> None:
    partition = SchemaPartition(limits, script, choosing(data))
    told, ended = partition.run_or_end(crashes)
    if ended is None:
        assert told == Uninterrupted(limits, script, partition.read).run(0)
    else:
        used = {} if partition.progress is None else partition.progress.schemas
        gone = [schema for schema in used if int(schema) not in partition.registered]
        assert any(f"schema {schema} of {PLACE}, which cannot be had any more" in ended for schema in gone)


def intake_of(saved: dict[str, UsedSchema], resume_at: int, *known: int) -> UsedSchemas:
    schemas = Schemas(PLACE)
    for schema in known:
        schemas.learn(schema, SCHEMA, "d", 0)
    return UsedSchemas(schemas, "p", saved, resume_at)


def test_a_schema_registered_later_stays_unknown_below_the_next_offset() -> None:
    used = intake_of({}, 10, 7)
    records = [Record(9, framed_as(7, b"{}")), Record(10, framed_as(7, b"{}")), Record(11, framed_as(8, b"{}"))]
    assert used.wanted(records, 0) == {8: 11}
    with pytest.raises(DecodeError, match="was not known when this was read first") as caught:
        used.known(7, 9)
    assert caught.value.kind == "unknown_schema"
    assert used.known(7, 10).digest == "d"
    assert used.saved(10) == {"7": UsedSchema(10, 10, "d")}
    assert used.saved(11) == {}


def test_records_before_the_first_known_one_stay_unknown() -> None:
    used = intake_of({"7": UsedSchema(5, 8, "d")}, 10, 7)
    with pytest.raises(DecodeError, match="was not known"):
        used.known(7, 4)
    assert used.known(7, 5).digest == "d"
    used.known(7, 12)
    assert used.saved(5) == {"7": UsedSchema(5, 12, "d")}


@pytest.mark.parametrize(("digest", "text"), [("d", "cannot be had any more"), ("other", "is another one now")])
def test_a_schema_that_is_gone_or_another_one_ends_the_run(digest: str, text: str) -> None:
    used = intake_of({"7": UsedSchema(5, 8, digest)}, 10, *([7] if digest == "other" else []))
    with pytest.raises(SourceError, match=text) as caught:
        used.known(7, 6)
    assert "p: records from offset 5 on were read with schema 7" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_partition_uses_so_many_schemas_and_no_more() -> None:
    used = intake_of({}, 0, *range(1, MOST_USED + 2))
    for schema in range(1, MOST_USED + 1):
        used.known(schema, schema)
    with pytest.raises(DecodeError, match="more than 1000 schemas are in use already"):
        used.known(MOST_USED + 1, MOST_USED + 1)
    assert used.known(1, MOST_USED + 2)
    assert not used.wanted([Record(MOST_USED + 3, framed_as(MOST_USED + 5, b"{}"))], 0)
    assert len(used.saved(500)) == MOST_USED + 1 - 500 + 1  # the first one was used last of all
    assert used.known(MOST_USED + 1, MOST_USED + 3)


def test_a_process_knows_so_many_schemas_and_no_more() -> None:
    schemas = Schemas(PLACE)
    for schema in range(1, MOST_SCHEMAS + 2):
        schemas.learn(schema, SCHEMA, "d", 0)
    assert schemas.get(MOST_SCHEMAS) is not None
    with pytest.raises(DecodeError, match="more than 2000 schemas are in use"):
        schemas.known(MOST_SCHEMAS + 1, 0)


def test_an_absent_schema_is_asked_for_again_after_half_a_minute() -> None:
    schemas = Schemas(PLACE)
    assert not schemas.is_settled(7, 0)
    schemas.refuse(7, "absent", 5)
    assert schemas.is_settled(7, 4 + ASK_AGAIN_US)
    assert not schemas.is_settled(7, 5 + ASK_AGAIN_US)
    with pytest.raises(DecodeError, match="absent"):
        schemas.known(7, 0)


def test_what_was_asked_for_is_not_wanted_again_however_long_that_took() -> None:
    schemas = Schemas(PLACE)
    used = UsedSchemas(schemas, "p")
    records = [Record(schema, framed_as(schema, b"{}")) for schema in range(1, 4)]
    assert used.wanted(records, 0) == {1: 1, 2: 2, 3: 3}
    for schema in range(1, 4):
        schemas.refuse(schema, "absent", 0)
    assert not used.wanted(records, ASK_AGAIN_US)
    assert used.wanted(records, ASK_AGAIN_US) == {1: 1, 2: 2, 3: 3}


def test_what_is_refused_is_bounded() -> None:
    schemas = Schemas(PLACE)
    for schema in range(20_000):
        schemas.refuse(schema, "absent", 0)
    assert Counter(schemas.is_settled(schema, 0) for schema in range(20_000)) == {True: 10_000, False: 10_000}


def test_a_schema_that_cannot_be_read_is_refused_with_its_reason() -> None:
    schemas = Schemas(PLACE)
    schemas.learn(7, RegisteredSchema("avro", "nonsense"), "d", 0)
    with pytest.raises(DecodeError, match=f"schema 7 of {PLACE} cannot be read: "):
        schemas.known(7, 0)
