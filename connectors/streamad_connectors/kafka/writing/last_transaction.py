"""How the last transaction of a transactional id ended, as its coordinator knows it: DescribeTransactions (KIP-664)."""

from __future__ import annotations

import asyncio
from enum import Enum, auto
from typing import Any, ClassVar

from aiokafka import errors
from aiokafka.client import AIOKafkaClient, CoordinationType
from aiokafka.protocol.api import Request, RequestStruct, Response
from aiokafka.protocol.types import CompactArray, CompactString, Int16, Int32, Int64, Schema, TaggedFields

from streamad_connectors.kafka.client.errors import is_retriable

_PAUSE_S = 0.05
_NOT_FOUND = 105  # TRANSACTIONAL_ID_NOT_FOUND, which aiokafka 0.14 does not know


class Ending(Enum):
    """The end of a transaction; ``UNKNOWN``: none since the producer's start, or the broker (before 3.0) cannot say."""

    COMMIT = auto()
    ABORT = auto()
    UNKNOWN = auto()


# What is prepared will be completed; what is still ongoing is aborted by the next producer's start.
_ENDINGS = {"PrepareCommit": Ending.COMMIT, "CompleteCommit": Ending.COMMIT}
_UNKNOWN = ("Empty", "Dead")


class _Answer(Response):  # type: ignore[misc]  # aiokafka has no types
    API_KEY = 65
    API_VERSION = 0
    SCHEMA = Schema(
        ("throttle_time_ms", Int32),
        (
            "transaction_states",
            CompactArray(
                ("error_code", Int16),
                ("transactional_id", CompactString("utf-8")),
                ("transaction_state", CompactString("utf-8")),
                ("transaction_timeout_ms", Int32),
                ("transaction_start_time_ms", Int64),
                ("producer_id", Int64),
                ("producer_epoch", Int16),
                (
                    "topics",
                    CompactArray(
                        ("topic", CompactString("utf-8")), ("partitions", CompactArray(Int32)), ("tags", TaggedFields)
                    ),
                ),
                ("tags", TaggedFields),
            ),
        ),
        ("tags", TaggedFields),
    )


class _Question(RequestStruct):  # type: ignore[misc]
    FLEXIBLE_VERSION = True
    API_KEY = 65
    API_VERSION = 0
    RESPONSE_TYPE = _Answer
    SCHEMA = Schema(("transactional_ids", CompactArray(CompactString("utf-8"))), ("tags", TaggedFields))


class _DescribeTransactions(Request[_Question]):  # type: ignore[misc]
    API_KEY: ClassVar[int] = 65

    def __init__(self, transactional_id: str) -> None:
        self._transactional_id = transactional_id

    def build(self, request_struct_class: type[_Question]) -> _Question:
        return request_struct_class([self._transactional_id], {})


async def last_ending(client: AIOKafkaClient, transactional_id: str) -> Ending:
    """Ask, with a connected ``client``, how the last transaction of ``transactional_id`` ended or will end.

    Retries without limit while the coordinator is away. Raises KafkaError.
    """
    while True:
        try:
            return await _asked(client, transactional_id)
        except errors.IncompatibleBrokerVersion:
            return Ending.UNKNOWN
        except errors.KafkaError as error:
            if not is_retriable(error):
                raise
        await asyncio.sleep(_PAUSE_S)


async def _asked(client: AIOKafkaClient, transactional_id: str) -> Ending:
    node: int = await client.coordinator_lookup(CoordinationType.TRANSACTION, transactional_id)
    if not await client.ready(node):
        raise errors.NodeNotReadyError(node)
    answer: Any = await client.send(node, _DescribeTransactions(transactional_id))
    error_code, _, state, *_ = answer.transaction_states[0]
    if error_code == _NOT_FOUND or state in _UNKNOWN:
        return Ending.UNKNOWN
    if error_code:
        raise errors.for_code(error_code)
    return _ENDINGS.get(state, Ending.ABORT)
