"""A broker that lacks something that streamad needs is told in one line with the remedy (``streamad topics check``)."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Mapping

import pytest
from aiokafka import errors
from aiokafka.protocol.transaction import AddOffsetsToTxnRequest_v0, EndTxnRequest_v0, InitProducerIdRequest_v0

from streamad_connectors.kafka.topics.checks import OTHER_BROKER
from tests.support.kafka.stub import StubBroker, stub_broker
from tests.support.kafka.topics import TopicsPlant, texts
from tests.support.waiting import IN_TIME_S

JOIN_GROUP, CREATE_TOPICS, INIT_PRODUCER_ID, ADD_OFFSETS, END_TXN, TXN_COMMIT, DESCRIBE_CONFIGS = (
    11,
    19,
    22,
    25,
    26,
    28,
    32,
)
FETCH, FIND_COORDINATOR = 1, 10


@pytest.fixture
async def broker() -> AsyncIterator[StubBroker]:
    async with stub_broker() as started:
        yield started


def plant_at(broker: StubBroker, **options: str) -> TopicsPlant:
    return TopicsPlant(f"127.0.0.1:{broker.port}", **options)


async def test_an_empty_transaction_is_opened_and_aborted(broker: StubBroker) -> None:
    plant = plant_at(broker, transaction_timeout="7s")
    found = await plant.check()
    assert texts(found, "(transactions)", "ok") == [
        f"allowed to write transactional id {plant.transactional_id}",
        "opened and aborted an empty transaction",
    ]
    assert texts(found, "(cluster)") == texts(found, "(cluster)", "warning") == []
    name = f"streamad:{plant.inputs[0]}:check:{plant.group}"
    assert broker.requests[-3:] == [
        InitProducerIdRequest_v0(name, 7_000),
        AddOffsetsToTxnRequest_v0(name, 7, 0, plant.group),
        EndTxnRequest_v0(name, 7, 0, False),
    ]


@pytest.mark.parametrize(
    ("lacking", "level", "said"),
    [
        (
            {INIT_PRODUCER_ID: None, TXN_COMMIT: None},
            "error",
            f"transactions are not supported: {OTHER_BROKER} (missing: InitProducerId v0, TxnOffsetCommit v0)",
        ),
        ({FETCH: 3}, "error", f"reading committed records is not supported: {OTHER_BROKER} (missing: Fetch v4)"),
        (
            {JOIN_GROUP: 4},
            "warning",
            "static membership is not supported (KIP-345): a restarted worker moves partitions, with --instance and "
            "--workers, too (missing: JoinGroup v5)",
        ),
        (
            {DESCRIBE_CONFIGS: None},
            "warning",
            "the broker does not show its settings: make sure that progress and claims topics have "
            "cleanup.policy=compact, and that the input is kept for twice sequences.max_duration "
            "(missing: DescribeConfigs v0)",
        ),
        (
            {CREATE_TOPICS: None},
            "warning",
            "`streamad topics create` is not supported: make the topics with the broker's own tools "
            "(missing: CreateTopics v0)",
        ),
    ],
)
async def test_what_a_broker_does_not_offer_is_told_with_the_remedy(
    broker: StubBroker, lacking: Mapping[int, int | None], level: str, said: str
) -> None:
    broker.lacks(lacking)
    found = await plant_at(broker).check()
    assert [*texts(found, "(cluster)"), *texts(found, "(cluster)", "warning")] == [said]
    assert texts(found, "(cluster)", level) == [said]
    can_transact = INIT_PRODUCER_ID not in lacking
    assert len(texts(found, "(transactions)", "ok")) == (2 if can_transact else 0)
    assert texts(found, "(transactions)") == []


@pytest.mark.parametrize(
    ("key", "code", "said"),
    [
        (
            INIT_PRODUCER_ID,
            errors.UnsupportedVersionError.errno,
            f"the broker refuses transactions (InitProducerId: UNSUPPORTED_VERSION): {OTHER_BROKER}",
        ),
        (
            INIT_PRODUCER_ID,
            errors.InvalidRequestError.errno,
            f"the broker refuses transactions (InitProducerId: INVALID_REQUEST): {OTHER_BROKER}",
        ),
        (INIT_PRODUCER_ID, 999, f"the broker refuses transactions (InitProducerId: error 999): {OTHER_BROKER}"),
        (
            ADD_OFFSETS,
            errors.UnsupportedForMessageFormatError.errno,
            f"the broker refuses transactions (AddOffsetsToTxn: UNSUPPORTED_FOR_MESSAGE_FORMAT): {OTHER_BROKER}",
        ),
        (
            INIT_PRODUCER_ID,
            errors.InvalidTransactionTimeout.errno,
            "kafka {broker}: the transaction time-out is longer than the broker allows: lower transaction_timeout, or "
            "raise the broker's transaction.max.timeout.ms",
        ),
        (
            INIT_PRODUCER_ID,
            errors.GroupCoordinatorNotAvailableError.errno,
            "kafka {broker}: the coordinator of transactional id {name} is not available: is a broker down, or too few "
            "brokers for the internal topics (offsets.topic.replication.factor, "
            "transaction.state.log.replication.factor and .min.isr)?",
        ),
        (
            FIND_COORDINATOR,
            errors.InvalidRequestError.errno,
            f"the broker refuses transactions (FindCoordinator: INVALID_REQUEST): {OTHER_BROKER}",
        ),
        (INIT_PRODUCER_ID, None, f"the broker ends the connection when a transaction begins: {OTHER_BROKER}"),
    ],
)
async def test_a_transaction_that_is_refused_is_told_with_the_remedy(
    broker: StubBroker, key: int, code: int | None, said: str
) -> None:
    broker.codes[key] = code
    plant = plant_at(broker, request_timeout="500ms")
    began_s = time.monotonic()
    found = await plant.check()
    assert time.monotonic() - began_s < IN_TIME_S
    name = plant.transactional_id.replace(":0:", ":check:")
    assert texts(found, "(transactions)") == [said.format(broker=plant.bootstrap, name=name)]


async def test_a_broker_that_does_not_answer_is_given_up_in_time(broker: StubBroker) -> None:
    broker.silent.add(ADD_OFFSETS)
    plant = plant_at(broker, request_timeout="300ms")
    began_s = time.monotonic()
    (said,) = texts(await plant.check(), "(transactions)")
    assert time.monotonic() - began_s < IN_TIME_S
    assert said.startswith(f"kafka {plant.bootstrap}: no answer within 0.3 s to: write transactional id streamad:")
    assert ":check:" in said


async def test_the_ids_of_every_input_are_asked_for_and_one_transaction_is_enough(broker: StubBroker) -> None:
    plant = TopicsPlant(f"127.0.0.1:{broker.port}", n_inputs=2)
    assert texts(await plant.check(), "(transactions)", "ok") == [
        *(f"allowed to write transactional id streamad:{topic}:0:{plant.group}" for topic in plant.inputs),
        "opened and aborted an empty transaction",
    ]


async def test_an_id_that_is_refused_to_the_check_alone_is_no_error(broker: StubBroker) -> None:
    """Who granted rights on each worker's id instead of their prefix can run, but the check cannot try it."""
    broker.codes[INIT_PRODUCER_ID] = errors.TransactionalIdAuthorizationFailed.errno
    plant = plant_at(broker)
    found = await plant.check()
    assert texts(found, "(transactions)") == []
    assert texts(found, "(transactions)", "warning") == [
        f"cannot be tried: grant WRITE and DESCRIBE on transactional ids streamad:{plant.inputs[0]}:*"
    ]


async def test_a_broker_that_describes_nothing_says_nothing_of_its_settings(broker: StubBroker) -> None:
    broker.fields[DESCRIBE_CONFIGS] = {"resources": []}
    found = await plant_at(broker).check()
    assert texts(found, "(transactions)", "ok")[-1] == "opened and aborted an empty transaction"
