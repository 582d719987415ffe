"""A producer that is dropped leaves nothing for asyncio to log, whatever its sender failed with."""

# ruff: noqa: SLF001 - the futures that aiokafka's sender fails when it ends are private

from __future__ import annotations

import asyncio
import gc
from typing import Any

from aiokafka import TopicPartition, errors
from aiokafka.producer.transaction_manager import TransactionState

from streamad_connectors.kafka.writing.producer import PartitionProducer

WAITING, SENT = TopicPartition("alerts", 0), TopicPartition("alerts", 1)


async def test_what_a_call_gave_up_before_the_sender_failed_is_not_logged() -> None:
    """As after a freeze: the time-out of a commit passed, and then the sender hears that it is fenced."""
    logged: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: logged.append(context))
    await _given_up()
    gc.collect()
    await asyncio.sleep(0)
    assert logged == []


async def _given_up() -> None:
    kwargs = {"bootstrap_servers": "127.0.0.1:1"}
    producer = PartitionProducer(kwargs, "id", timeout_s=1, transaction_timeout_s=1, max_message_bytes=1_000)
    inner = producer._producer
    manager, accumulator = inner._txn_manager, inner._message_accumulator
    manager.state = TransactionState.READY
    manager.begin_transaction()
    for place in (WAITING, SENT):
        builder = inner.create_batch()
        builder.append(timestamp=None, key=None, value=b"1")
        sent = await accumulator.add_batch(builder, place, 1)
        sent.cancel()
    accumulator._pending_batches.add(accumulator._batches.pop(SENT).popleft())
    asyncio.shield(manager.add_offsets_to_txn({}, "group")).cancel()
    failure = asyncio.get_running_loop().create_future()
    failure.set_exception(errors.ProducerFenced())
    dropping = asyncio.create_task(producer.discard())
    await asyncio.sleep(0)
    inner._sender._fail_all(failure)
    await dropping
