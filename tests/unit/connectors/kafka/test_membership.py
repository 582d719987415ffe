"""What of a Kafka source is pure: records made of aiokafka's, a member's memory, when a static member was replaced."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka import ConsumerRecord, TopicPartition
from aiokafka.coordinator.protocol import ConsumerProtocolMemberAssignment
from aiokafka.errors import KafkaError, for_code

from streamad.errors import SourceError
from streamad.types import Record
from streamad_connectors.kafka.client.admin import retention_us
from streamad_connectors.kafka.reading import membership as _membership
from streamad_connectors.kafka.reading.membership import FencedInstanceIdError, Membership, sticky_assignor
from streamad_connectors.kafka.reading.reader import to_records


def consumer_record(offset: int, timestamp_ms: int, key: bytes | None, value: bytes | None) -> ConsumerRecord[Any, Any]:
    return ConsumerRecord("press", 0, offset, timestamp_ms, 0, key, value, None, 0, 0, ())


def test_records_of_aiokafka_become_ours() -> None:
    assert to_records([]) == ()
    assert to_records(
        [
            consumer_record(7, 1_700_000_000_123, b"reactor-1", b"{}"),
            consumer_record(9, 0, None, None),
            consumer_record(10, -1, None, b""),
        ]
    ) == (Record(7, b"{}", 1_700_000_000_123_000, b"reactor-1"), Record(9, b"", 0, None), Record(10, b"", None, None))


@pytest.mark.parametrize(
    ("headers", "schema"),
    [
        ([], None),
        ([("trace", b"x")], None),
        ([("trace", b"x"), ("__value_schema_id", b"\1\xab")], "01ab"),
        ([("__key_schema_id", b"\1")], None),
        ([("__value_schema_id", None)], None),
        ([("apicurio.value.globalId", b"\0\0\0\7")], "apicurio.value.globalId=00000007"),
        ([("apicurio.value.contentId", b"\7"), ("__value_schema_id", b"\0\xab")], "00ab"),
    ],
)
def test_a_header_that_names_a_schema_is_kept(headers: list[tuple[str, bytes | None]], schema: str | None) -> None:
    message: ConsumerRecord[Any, Any] = ConsumerRecord("press", 0, 1, 0, 0, None, b"x", None, 0, 0, tuple(headers))
    (record,) = to_records([message])
    assert record.schema == schema


@pytest.mark.parametrize(
    ("label", "found"),
    [(None, None), ("topic", "press"), ("header:tag", "R2/temp"), ("header:x", "\ufffd"), ("header:y", None)],
)
def test_what_the_pattern_asks_for_is_kept(label: str | None, found: str | None) -> None:
    headers = (("tag", b"R1/temp"), ("tag", b"R2/temp"), ("x", b"\xff"), ("y", None))
    message: ConsumerRecord[Any, Any] = ConsumerRecord("press", 0, 1, 0, 0, None, b"x", None, 0, 0, headers)
    assert [record.label for record in to_records([message], label)] == [found]


def test_two_members_in_one_process_remember_apart() -> None:
    ours, theirs = sticky_assignor(), sticky_assignor()
    ours.on_assignment(ConsumerProtocolMemberAssignment(0, [("press", [0, 1])], b""))
    ours.on_generation_assignment(7)
    assert ours.member_assignment == [TopicPartition("press", 0), TopicPartition("press", 1)]
    assert (theirs.member_assignment, theirs.generation) == (None, -1)
    assert ours.name == theirs.name == "sticky"


class Member:
    """A membership whose client forgets its member id when the test says so; heard of at second 0."""

    def __init__(
        self,
        monkeypatch: pytest.MonkeyPatch,
        instance: str | None = "worker-1",
        on_assigned: Callable[[object], None] = lambda _: None,
    ) -> None:
        self.now_s = 0.0
        monkeypatch.setattr(_membership, "time", SimpleNamespace(monotonic=lambda: self.now_s))
        self.membership = Membership("group", instance, 15.0, on_assigned)
        self.n_joins = 0
        self.coordinator = SimpleNamespace(
            member_id="m", generation=1, _do_heartbeat=self.beat, _do_rejoin_group=self.join, _closing=None
        )
        self.membership.attach(SimpleNamespace(_coordinator=self.coordinator), sticky_assignor())
        self.rejoin(0.0, replaced=False)

    async def beat(self) -> bool:
        """Answer a heartbeat a minute after it was sent."""
        self.now_s += 60.0
        return True

    async def join(self, _: object) -> bool:
        self.n_joins += 1
        return True

    def rejoin(self, at_s: float, *, replaced: bool) -> None:
        self.now_s = at_s
        self.coordinator.member_id = "" if replaced else "m"
        self.membership.on_partitions_revoked([])
        self.coordinator.member_id = "m"
        self.membership.on_partitions_assigned([])


def test_a_member_replaced_three_times_in_a_minute_shares_its_id(monkeypatch: pytest.MonkeyPatch) -> None:
    member = Member(monkeypatch)
    member.rejoin(3.0, replaced=True)
    member.rejoin(6.0, replaced=True)
    assert member.membership.failure is None
    member.rejoin(9.0, replaced=True)
    assert isinstance(member.membership.failure, SourceError)
    assert "'worker-1'" in str(member.membership.failure)


@pytest.mark.parametrize(
    ("instance", "times_s", "is_heard", "replaced"),
    [
        ("worker-1", (0.0, 10.0, 61.0, 72.0, 122.0), True, True),
        ("worker-1", (15.1, 30.3, 45.5, 60.7), False, True),
        (None, (1.0, 2.0, 3.0, 4.0), False, True),
        ("worker-1", (1.0, 2.0, 3.0, 4.0), False, False),
    ],
    ids=["replaced far apart", "replaced while silent", "replaced without an instance id", "rebalanced"],
)
def test_no_failure_of_a_member(
    monkeypatch: pytest.MonkeyPatch, instance: str | None, times_s: tuple[float, ...], is_heard: bool, replaced: bool
) -> None:
    member = Member(monkeypatch, instance)
    for at_s in times_s:
        if is_heard:
            member.membership.heard_s = at_s
        member.rejoin(at_s, replaced=replaced)
    assert member.membership.failure is None


def test_who_was_frozen_while_another_took_its_name_is_the_first_to_give_up(monkeypatch: pytest.MonkeyPatch) -> None:
    frozen = Member(monkeypatch)
    frozen.rejoin(20.0, replaced=True)
    frozen.rejoin(21.0, replaced=True)
    assert frozen.membership.failure is None
    frozen.rejoin(22.0, replaced=True)  # the other one has been replaced twice by now
    assert isinstance(frozen.membership.failure, SourceError)


async def test_an_answer_that_a_frozen_process_reads_when_it_wakes_is_none_of_now(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Else it counts as settled, both processes bear the same number of replacements, and both give up."""
    frozen = Member(monkeypatch)
    frozen.now_s = 20.0
    assert await vars(frozen.coordinator)["_do_heartbeat"]()
    assert (frozen.membership.heard_s, frozen.now_s) == (20.0, 80.0)
    for at_s in (80.1, 81.0, 82.0):
        assert frozen.membership.failure is None
        frozen.rejoin(at_s, replaced=True)
    assert isinstance(frozen.membership.failure, SourceError)


async def test_who_gives_up_joins_no_more_so_that_the_other_is_not_replaced_once_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    member = Member(monkeypatch)
    client = vars(member.coordinator)
    client["_closing"] = asyncio.get_running_loop().create_future()
    assert await client["_do_rejoin_group"](None)
    for at_s in (3.0, 6.0, 9.0):
        member.rejoin(at_s, replaced=True)
    joining = asyncio.create_task(client["_do_rejoin_group"](None))
    await asyncio.sleep(0)
    assert not joining.done()
    client["_closing"].set_result(None)
    assert not await joining
    assert member.n_joins == 1


def test_a_settled_member_stays_if_a_newcomer_takes_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    settled, newcomer = Member(monkeypatch), Member(monkeypatch)
    for at_s in (100.0, 101.0, 102.0):
        settled.membership.heard_s = at_s
        settled.now_s = at_s
        monkeypatch.setattr(_membership, "time", SimpleNamespace(monotonic=lambda: settled.now_s))
        settled.rejoin(at_s, replaced=True)
    assert settled.membership.failure is None
    monkeypatch.setattr(_membership, "time", SimpleNamespace(monotonic=lambda: newcomer.now_s))
    for at_s in (1.0, 2.0, 3.0):
        newcomer.rejoin(at_s, replaced=True)
    assert isinstance(newcomer.membership.failure, SourceError)


def test_the_error_of_a_shared_id_is_known_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    assert for_code(82) is FencedInstanceIdError
    membership = Member(monkeypatch).membership
    assert isinstance(membership.explains(KafkaError(repr(for_code(82)()))), SourceError)
    assert membership.explains(KafkaError(repr(for_code(-1)()))) is None


def test_an_exception_in_a_callback_is_kept_for_the_source(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: object) -> None:
        raise RuntimeError("no")

    assert isinstance(Member(monkeypatch, on_assigned=fail).membership.failure, RuntimeError)


@pytest.mark.parametrize(
    ("settings", "expected_us"),
    [
        ({"retention.ms": "604800000", "cleanup.policy": "delete"}, 604_800_000_000),
        ({"retention.ms": "1000", "cleanup.policy": "compact,delete"}, 1_000_000),
        ({"retention.ms": "1000", "cleanup.policy": "compact"}, None),
        ({"retention.ms": "-1", "cleanup.policy": "delete"}, None),
    ],
)
def test_how_long_a_topic_keeps_records(settings: dict[str, str], expected_us: int | None) -> None:
    assert retention_us(settings) == expected_us
