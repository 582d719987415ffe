"""The pipeline with a registry: nothing is judged without its schema, and a registry that is away loses nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamad.errors import SourceError
from streamad.messages import Role
from streamad.ports import Clock, Committer
from streamad.runtime.checkpoint import LocalCommitter
from streamad.schemas.client import SchemaRegistry
from streamad.schemas.fetching import BACK, SILENT, Fetcher
from streamad.schemas.waiting import SchemaWaits
from streamad.settings.plant_yaml import Settings
from streamad.settings.schemas.registry import SchemaRegistrySettings
from streamad.system.clock import SystemClock
from streamad.system.saved_progress import read_checkpoint
from streamad.telemetry.events import EventLog
from streamad.testing import ListSink, ListSource
from streamad.types import PartitionAssigned, PartitionEnded, PartitionRevoked, Record, RecordBatch, SourceEvent
from tests.support.examples import examples
from tests.support.runtime.pipeline import START_US, Run, line, run_pipeline, settings_of, steps, until
from tests.support.schemas.registry import Fault, HurriedClock, StubRegistry, stub_registry


@pytest.fixture
def stub() -> Iterator[StubRegistry]:
    with stub_registry() as registry:
        yield registry


class PausingSource(ListSource):
    """Plays its script on for the other partitions, as a broker does."""

    def __init__(self, *script: Any) -> None:
        super().__init__(script, endless=True)
        self.paused: set[str] = set()

    def pause(self, partition: str) -> None:
        self.paused.add(partition)

    async def seek(self, partition: str, offset: int | None) -> int:
        self.paused.discard(partition)
        return await super().seek(partition, offset)

    def _rest(self, event: SourceEvent) -> SourceEvent | None:
        return None if getattr(event, "partition", None) in self.paused else super()._rest(event)


def framed(schema: int, message: bytes) -> bytes:
    return b"\0" + schema.to_bytes(4, "big") + message


def records(schema: int | None, n: int = 3, stream: str = "r1", first: int = 0) -> tuple[Record, ...]:
    """Return ``n`` sequences of one record each, with times a minute apart."""
    found = []
    for offset in range(first, first + n):
        message = line(stream, f"B-{offset}", [60.0 * offset, 60.0 * offset + 1], end=True)
        value = message if schema is None else framed(schema, message)
        found.append(Record(offset, value, START_US + 60_000_000 * offset))
    return tuple(found)


def batch(partition: str, found: tuple[Record, ...]) -> RecordBatch:
    return RecordBatch(partition, found, found[-1].offset + 1, caught_up=True, begins_at=found[0].offset)


def plant(stub: StubRegistry, **decode: Any) -> Settings:
    return settings_of(decode={"registry": {"url": stub.url}, **decode})


def fetcher_of(stub: StubRegistry, give_up_s: float = 1e9) -> Callable[[Clock, EventLog], Fetcher]:
    def make(_: Clock, events: EventLog) -> Fetcher:
        registry = SchemaRegistry(SchemaRegistrySettings(url=stub.url), Path())
        return Fetcher(registry, HurriedClock(START_US), int(give_up_s * 1e6), events.emit)

    return make


def judged(run: Run) -> list[str]:
    return sorted(f"{verdict.stream} {verdict.sequence}" for verdict in run.verdicts)


def kinds(run: Run) -> list[str]:
    return [event.kind for event in run.events]


async def test_a_registry_that_is_away_pauses_the_partition_that_needs_it(stub: StubRegistry) -> None:
    stub.add(7)
    stub.fault = "500"
    source = PausingSource(
        PartitionAssigned("a"), PartitionAssigned("b"), batch("a", (*records(None, 1), *records(7, 2, first=1)))
    )

    async def beside(run: Run, _: asyncio.Task[None]) -> None:
        await until(lambda: SILENT in kinds(run))
        assert source.paused == {"a"}
        assert not run.pipeline.status.partitions["a"].caught_up  # records wait: nothing is silent
        source.feed(batch("a", records(7, 3, first=3)), batch("b", records(None, 3, "r2")))
        await until(lambda: judged(run) == ["r1 B-0", "r2 B-0", "r2 B-1", "r2 B-2"])
        assert run.pipeline.status.gauges().waiting_for_schemas == 1
        stub.fault = None
        await until(lambda: len(run.verdicts) == 9)
        run.pipeline.request_stop()

    run = await run_pipeline(source, plant(stub), fetcher=fetcher_of(stub), while_running=beside)
    assert judged(run) == [f"r1 B-{n}" for n in range(6)] + [f"r2 B-{n}" for n in range(3)]
    assert kinds(run) == [SILENT, BACK]
    assert not run.messages("dead_letters")
    assert run.pipeline.counters.records == 9
    assert run.pipeline.status.gauges().waiting_for_schemas == 0


async def test_a_source_that_cannot_pause_is_not_read_on(stub: StubRegistry) -> None:
    stub.add(7)
    stub.fault = "500"
    pulled: list[SourceEvent] = []

    class Counted(ListSource):
        def _rest(self, event: SourceEvent) -> SourceEvent | None:
            pulled.append(event)
            return super()._rest(event)

    source = Counted(
        [
            PartitionAssigned("a"),
            PartitionAssigned("b"),
            *(batch("b", records(None, 1, "r2", n)) for n in range(2)),
            *(batch("a", records(7, 1, first=n)) for n in range(50)),
            PartitionEnded("a"),
            PartitionEnded("b"),
        ]
    )

    async def beside(run: Run, _: asyncio.Task[None]) -> None:
        await until(lambda: SILENT in kinds(run) and len(run.verdicts) == 2)  # what was read is committed meanwhile
        await steps()
        assert len(pulled) == 5
        assert run.pipeline.status.gauges().waiting_for_schemas == 1
        stub.fault = None

    run = await run_pipeline(source, plant(stub), fetcher=fetcher_of(stub), while_running=beside)
    assert len(run.verdicts) == 52
    assert run.pipeline.status.gauges().waiting_for_schemas == 0
    assert kinds(run) == [SILENT, BACK]
    assert not run.messages("dead_letters")


async def test_what_came_during_a_restore_waits_in_order_behind_the_first_batch(stub: StubRegistry) -> None:
    """A source reads ahead while its partition is restored; of its three batches only the first needs a schema."""
    stub.add(7)
    stub.faults.append("500")

    class SlowSeek(ListSource):
        async def seek(self, partition: str, offset: int | None) -> int:
            begin = await super().seek(partition, offset)
            await steps()
            return begin

    events = [batch("a", records(schema, 1, first=n)) for n, schema in enumerate((7, None, None))]

    async def beside(run: Run, _: asyncio.Task[None]) -> None:
        await until(lambda: len(run.verdicts) == 3)
        run.pipeline.request_stop()

    source = SlowSeek([PartitionAssigned("a"), *events], endless=True)
    run = await run_pipeline(source, plant(stub), fetcher=fetcher_of(stub), while_running=beside)
    assert judged(run) == ["r1 B-0", "r1 B-1", "r1 B-2"]


@pytest.mark.parametrize("kind", [ListSource, PausingSource])
async def test_a_registry_that_stays_away_ends_the_run(stub: StubRegistry, kind: type[ListSource]) -> None:
    stub.fault = "500"
    script = [PartitionAssigned("a"), batch("a", records(7))]
    source = PausingSource(*script) if kind is PausingSource else ListSource(script, endless=True)
    runs: list[Run] = []

    async def beside(run: Run, task: asyncio.Task[None]) -> None:
        runs.append(run)
        await asyncio.wait([task])

    with pytest.raises(SourceError, match=r"schemas could not be asked for .* answered 500"):
        await run_pipeline(source, plant(stub), fetcher=fetcher_of(stub, 1), while_running=beside)
    assert not runs[0].messages("dead_letters")
    assert kinds(runs[0]) == [SILENT]


@pytest.mark.parametrize("kind", [ListSource, PausingSource])
async def test_a_stop_does_not_wait_for_the_registry(stub: StubRegistry, kind: type[ListSource]) -> None:
    stub.fault = "silent"
    script = [PartitionAssigned("a"), batch("a", records(7))]
    source = PausingSource(*script) if kind is PausingSource else ListSource(script, endless=True)

    async def beside(run: Run, _: asyncio.Task[None]) -> None:
        await until(lambda: bool(stub.asked))
        run.pipeline.request_stop()

    run = await run_pipeline(source, plant(stub), fetcher=fetcher_of(stub), while_running=beside)
    assert not run.verdicts
    assert not run.messages("dead_letters")


FAULTS: list[Fault | None] = [None, None, "refused", "cut", "500", "401", "429", "html", "other"]


@given(
    st.lists(st.sampled_from(FAULTS), max_size=12),
    st.lists(st.tuples(st.booleans(), st.sampled_from([None, 7, 8, 9])), min_size=1, max_size=10),
    st.sampled_from([ListSource, PausingSource]),
)
@settings(max_examples=examples(15))
def test_a_registry_that_comes_and_goes_changes_no_verdict(
    faults: list[Fault | None], sent: list[tuple[bool, int | None]], kind: type[ListSource]
) -> None:
    """Each message goes to one of two partitions and names a schema, or none; the registry lacks schema 9."""
    found: dict[str, list[Record]] = {"a": [], "b": []}
    for is_first, schema in sent:
        of = found["a" if is_first else "b"]
        of += records(schema, 1, "r1" if is_first else "r2", len(of))
    script: list[Any] = [PartitionAssigned(name) for name in found]
    script += [batch(name, (record,)) for name, of in found.items() for record in of]
    n_absent = sum(schema == 9 for _, schema in sent)

    async def beside(run: Run, _: asyncio.Task[None]) -> None:
        await until(lambda: run.pipeline.counters.records == len(sent))
        run.pipeline.request_stop()

    async def lived() -> Run:
        source = PausingSource(*script) if kind is PausingSource else ListSource(script, endless=True)
        with stub_registry() as stub:
            stub.add(7)
            stub.add(8)
            stub.faults.extend([None, *faults])  # a login that is refused at first is a mistake in the config
            return await run_pipeline(source, plant(stub), fetcher=fetcher_of(stub), while_running=beside)

    run = asyncio.run(lived())
    assert [letter.kind for letter in run.messages("dead_letters")] == ["unknown_schema"] * n_absent
    assert len(run.verdicts) == len(sent) - n_absent
    assert kinds(run) == [SILENT, BACK] * (len(kinds(run)) // 2)
    assert run.pipeline.counters.records == len(sent)


async def test_a_revoked_partition_waits_no_more(stub: StubRegistry) -> None:
    stub.fault = "silent"
    source = PausingSource(PartitionAssigned("a"), batch("a", records(7)))

    async def beside(run: Run, _: asyncio.Task[None]) -> None:
        await until(lambda: bool(stub.asked))
        source.paused.clear()
        source.feed(PartitionRevoked("a"), PartitionAssigned("b"), batch("b", records(None, 1)))
        await until(lambda: len(run.verdicts) == 1)
        run.pipeline.request_stop()

    await run_pipeline(source, plant(stub), fetcher=fetcher_of(stub), while_running=beside)


async def test_a_schema_that_the_registry_lacks_makes_dead_letters_that_say_so(stub: StubRegistry) -> None:
    source = ListSource([PartitionAssigned("a"), batch("a", records(7, 2)), PartitionEnded("a")])
    run = await run_pipeline(source, plant(stub), fetcher=fetcher_of(stub))
    letters = run.messages("dead_letters")
    assert [(letter.kind, letter.origin.offset) for letter in letters] == [("unknown_schema", 0), ("unknown_schema", 1)]
    assert letters[0].error == f"{stub.url} does not have schema 7: register it, or correct decode.registry.url"
    assert letters[0].value.startswith(b"\0\0\0\0\7{")
    assert stub.asked == ["/schemas/ids/7"]


async def lived(stub: StubRegistry, folder: Path, *found: Record, ends: bool = False, before: Run | None = None) -> Run:
    """Return what a process with a checkpoint has made of records, and the one before it; more come unless it ends."""
    committers: list[LocalCommitter] = []

    def saved(sinks: Mapping[Role, ListSink]) -> Committer:
        for role, sink in sinks.items():
            sink.records += [] if before is None else before.sinks[role].records
        committers.append(LocalCommitter(folder, sinks, {role: f"file:{role}" for role in sinks}))
        return committers[0]

    source = ListSource([PartitionAssigned("a"), batch("a", found), *[PartitionEnded("a")] * ends])
    try:
        return await run_pipeline(source, plant(stub), fetcher=fetcher_of(stub), committer=saved)
    finally:
        await committers[0].close()


def part(offset: int, schema: int | None, *, end: bool = False) -> Record:
    message = line("r1", "B-0", [offset, offset + 0.5], end=end)
    return Record(offset, message if schema is None else framed(schema, message), START_US + 1_000_000 * offset)


async def test_the_checkpoint_keeps_what_was_unknown(stub: StubRegistry, tmp_path: Path) -> None:
    """A sequence stays open over a restart; its second record had no schema at first, its third one had."""
    first = [part(0, None), part(1, 7), part(2, 8)]
    stub.add(8)
    run = await lived(stub, tmp_path, *first)
    assert [letter.origin.offset for letter in run.messages("dead_letters")] == [1]
    used = read_checkpoint(tmp_path).progress["a"].schemas
    assert {schema: (each.first, each.last) for schema, each in used.items()} == {"8": (2, 2)}
    stub.add(7)
    run = await lived(stub, tmp_path, *first, part(3, 7, end=True), ends=True, before=run)
    assert [letter.origin.offset for letter in run.messages("dead_letters")] == [1]
    assert [verdict.n_samples for verdict in run.verdicts] == [6]


async def test_a_schema_that_is_gone_ends_a_restart_in_one_line(stub: StubRegistry, tmp_path: Path) -> None:
    stub.add(7)
    run = await lived(stub, tmp_path, part(0, 7))
    del stub.answers["/schemas/ids/7"]
    with pytest.raises(SourceError, match=r"were read with schema 7 of .* cannot be had any more") as caught:
        await lived(stub, tmp_path, part(0, 7), before=run)
    assert "\n" not in str(caught.value)


async def test_what_is_held_of_a_partition_that_is_restored_is_dropped(stub: StubRegistry) -> None:
    """The source gives it again."""
    waits = SchemaWaits(ListSource([]), None, SystemClock(), lambda _: None)
    waits.held.extend([batch("a", records(7)), PartitionEnded("a"), batch("b", records(7)), PartitionAssigned("a")])
    waits.forget("a")
    assert [*waits.held] == [batch("b", records(7)), PartitionAssigned("a")]
