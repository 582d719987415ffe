"""Requests to a cluster about topics, settings, rights and abilities, each with a time-out; only ``Admin.create`` and
``Admin.empty_transaction`` change it.

aiokafka's admin client is not used: its metadata requests let a broker create missing topics, and it has no requests
that show which rights are granted.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from types import TracebackType
from typing import Any, NamedTuple

from aiokafka import errors
from aiokafka.client import AIOKafkaClient, CoordinationType
from aiokafka.protocol.admin import ApiVersionRequest, CreateTopicsRequest, DescribeConfigsRequest
from aiokafka.protocol.api import Request
from aiokafka.protocol.fetch import FetchRequest
from aiokafka.protocol.group import HeartbeatRequest
from aiokafka.protocol.metadata import MetadataRequest
from aiokafka.protocol.produce import ProduceRequest
from aiokafka.protocol.transaction import AddOffsetsToTxnRequest, EndTxnRequest, InitProducerIdRequest

from streamad.errors import SourceError
from streamad_connectors.kafka.client.errors import explain, is_retriable, why_failed
from streamad_connectors.kafka.client.options import Client
from streamad_connectors.kafka.client.stopping import connected

_PAUSE_S = 0.1
_TOPIC, _BROKER = 2, 4  # resource types of DescribeConfigs
_UNUSED_PRODUCER_ID = 2**63 - 1  # brokers assign ids from 0 on (KIP-98)
_REFUSED = (
    errors.TopicAuthorizationFailedError.errno,
    errors.GroupAuthorizationFailedError.errno,
    errors.ClusterAuthorizationFailedError.errno,
    errors.TransactionalIdAuthorizationFailed.errno,
)
_UNSETTLED = (
    errors.GroupCoordinatorNotAvailableError.errno,
    errors.NotCoordinatorForGroupError.errno,
    errors.GroupLoadInProgressError.errno,
    errors.LeaderNotAvailableError.errno,
    errors.NotLeaderForPartitionError.errno,
)
# Another producer with our id has begun a transaction (90: PRODUCER_FENCED, which aiokafka 0.14 does not know).
_OVERTAKEN = (
    errors.InvalidProducerEpoch.errno,
    errors.InvalidProducerIdMapping.errno,
    errors.ConcurrentTransactions.errno,
    90,
)


class TopicState(NamedTuple):
    """A topic as a broker describes it: each partition's leader (-1: none), and the smallest numbers of copies."""

    name: str
    leaders: tuple[int, ...]
    copies: int
    in_sync: int

    @property
    def partitions(self) -> int:
        """Number of partitions."""
        return len(self.leaders)

    @property
    def is_led(self) -> bool:
        """Whether every partition has a leader."""
        return all(leader >= 0 for leader in self.leaders)


class NewTopic(NamedTuple):
    """A topic to create."""

    name: str
    partitions: int
    replicas: int
    settings: Mapping[str, str]


class Admin:
    """A connection to a cluster. All calls raise KafkaError, or TimeoutError after the client's request time-out.

    Connecting may take one time-out for each broker that the client names.
    """

    def __init__(self, client: Client) -> None:
        self._timeout_s = client.request_timeout_s
        self._connect_timeout_s = client.connect_timeout_s
        self._client = AIOKafkaClient(**client.kwargs())

    async def open(self) -> None:
        """Connect; a failure leaves nothing open."""
        try:
            async with asyncio.timeout(self._connect_timeout_s):
                await connected(self._client.bootstrap())
            if not self._client.cluster.brokers():  # the answer to a refused token
                raise errors.KafkaConnectionError("no brokers in the answer")
        except BaseException:
            await self.close()
            raise

    async def __aenter__(self) -> Admin:
        await self.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Disconnect; safe to call twice."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._timeout_s):
                await self._client.close()

    async def offered(self) -> dict[int, tuple[int, int]]:
        """Return the requests that a broker takes (ApiVersions): by their key, the lowest and the highest version."""
        answer = await self._ask(ApiVersionRequest())
        return {key: (lowest, highest) for key, lowest, highest in answer.api_versions}

    async def describe(self, topics: Sequence[str]) -> dict[str, TopicState | int]:
        """Return the state of each topic, or the broker's error code; a missing topic is never created."""
        answer = await self._ask(MetadataRequest(list(topics), allow_auto_topic_creation=False))
        self._client.cluster.update_metadata(answer)
        return {entry["topic"]: entry["error_code"] or _state(entry) for entry in answer.to_object()["topics"]}

    async def settings(self, topics: Sequence[str], names: Sequence[str]) -> dict[str, dict[str, str] | int]:
        """Return the settings ``names`` of each topic, or an error code."""
        if not topics:
            return {}
        answer = await self._ask(DescribeConfigsRequest([(_TOPIC, topic, list(names)) for topic in topics]))
        return {entry[3]: entry[0] or _settings(entry[4]) for entry in answer.resources}

    async def broker_settings(self, names: Sequence[str]) -> dict[str, str] | int:
        """Return the settings ``names`` of one of the brokers, or an error code."""
        node = self._any_node()
        answer = await self._ask(DescribeConfigsRequest([(_BROKER, str(node), list(names))]), node)
        if not answer.resources:
            return int(errors.UnknownError.errno)
        entry = answer.resources[0]
        return int(entry[0]) or _settings(entry[4])

    async def retentions_us(self, topics: Sequence[str]) -> dict[str, int | None]:
        """Return each topic's retention in microseconds, None if it keeps records without limit."""
        found = await self.settings(topics, ("cleanup.policy", "retention.ms"))
        for topic, values in found.items():
            if isinstance(values, int):
                raise errors.for_code(values)(topic)
        return {topic: retention_us(values) for topic, values in found.items() if not isinstance(values, int)}

    async def create(self, topics: Sequence[NewTopic], *, dry_run: bool) -> dict[str, tuple[int, str]]:
        """Create topics; return the error code (0: none) and the broker's text for each."""
        wanted: list[tuple[Any, ...]] = [
            (new.name, new.partitions, new.replicas, [], list(new.settings.items())) for new in topics
        ]
        request = CreateTopicsRequest(
            create_topic_requests=wanted, timeout=int(self._timeout_s * 1_000), validate_only=dry_run
        )
        controller = self._client.cluster.controller
        answer = await self._ask(request, None if controller is None else int(controller.nodeId))
        return {name: (code, rest[0] or "" if rest else "") for name, code, *rest in answer.topic_errors}

    async def read_refusal(self, topic: TopicState) -> int:
        """Return 0 if reading is allowed, else the error code. The probe is a fetch of nothing."""
        request = FetchRequest(0, 0, 1, 1, [(topic.name, [(0, 0, 1)])])
        return await self._refusal(request, topic.leaders[0], lambda answer: answer.topics[0][1][0][1])

    async def write_refusal(self, topic: TopicState) -> int:
        """Return 0 if writing is allowed, else the error code. The probe is a produce request without records.

        A broker checks the rights first and then refuses the request as INVALID_RECORD, so nothing is written.
        """
        request = ProduceRequest(None, -1, int(self._timeout_s * 1_000), [(topic.name, [(0, b"")])])
        return await self._refusal(request, topic.leaders[0], lambda answer: answer.topics[0][1][0][1])

    async def group_refusal(self, group: str) -> int:
        """Return 0 if the group may be joined, else the error code. The probe is an unknown member's heartbeat."""
        node = await self._coordinator(CoordinationType.GROUP, group)
        return await self._refusal(HeartbeatRequest(group, -1, "nobody"), node, lambda answer: answer.error_code)

    async def transaction_refusal(self, transactional_id: str) -> int:
        """Return 0 if the id may be used, else the error code. The probe is an abort by an unknown producer.

        The broker checks the rights first and then refuses the producer, so a worker with this id is not disturbed.
        """
        node = await self._coordinator(CoordinationType.TRANSACTION, transactional_id)
        request = EndTxnRequest(transactional_id, _UNUSED_PRODUCER_ID, 0, False)
        return await self._refusal(request, node, lambda answer: answer.error_code)

    async def empty_transaction(self, transactional_id: str, group: str, timeout_ms: int) -> tuple[str, int]:
        """Open a transaction that may commit offsets of ``group``, and abort it; no topic is written.

        Return the last request and its error code (0: none). Fences every other producer of the id. If it fails after
        it has begun, the broker ends it after ``timeout_ms``.
        """

        async def transact() -> tuple[str, int]:
            node = await self._find(CoordinationType.TRANSACTION, transactional_id)
            producer = await self._client.send(node, InitProducerIdRequest(transactional_id, timeout_ms))
            if _refused(producer.error_code):
                return "InitProducerId", int(producer.error_code)
            ours = transactional_id, producer.producer_id, producer.producer_epoch
            begun = await self._client.send(node, AddOffsetsToTxnRequest(*ours, group))
            if _refused(begun.error_code):
                return "AddOffsetsToTxn", int(begun.error_code)
            ended = await self._client.send(node, EndTxnRequest(*ours, False))
            return "EndTxn", int(ended.error_code) if _refused(ended.error_code) else 0

        step, code = await self._retried(transact)
        return step, code

    async def _coordinator(self, kind: CoordinationType, key: str) -> int:
        return int(await self._retried(lambda: self._find(kind, key)))

    async def _find(self, kind: CoordinationType, key: str) -> int:
        # The first request to a new cluster creates the internal topics, and fails until they are there.
        node: int = await self._client.coordinator_lookup(kind, key)
        if not await self._client.ready(node):
            raise errors.NodeNotReadyError(node)
        return node

    async def _refusal(self, request: Request[Any], node: int, code_in: Callable[[Any], int]) -> int:
        # New topics and new leaders are not known to every broker at once.
        async def send() -> int:
            code = code_in(await self._client.send(node, request))
            if code in _UNSETTLED:
                raise errors.for_code(code)
            return code if code in _REFUSED else 0

        return int(await self._retried(send))

    async def _ask(self, request: Request[Any], node: int | None = None) -> Any:
        async def send() -> Any:
            return await self._client.send(self._any_node() if node is None else node, request)

        return await self._retried(send)

    async def _retried(self, call: Callable[[], Awaitable[Any]]) -> Any:
        last: errors.KafkaError | None = None
        try:
            async with asyncio.timeout(self._timeout_s):
                while True:
                    try:
                        return await call()
                    except errors.KafkaError as error:
                        if not is_retriable(error):
                            raise
                        last = error
                    await asyncio.sleep(_PAUSE_S)
        except TimeoutError:
            raise last or TimeoutError from None

    def _any_node(self) -> int:
        node: int | None = self._client.get_random_node()
        if node is None:
            raise errors.NoBrokersAvailable
        return node


async def partition_counts(client: Client, doing: str = "read") -> dict[str, int]:
    """Return the number of partitions of each topic of ``client``; ``doing`` is "read" or "write", for error texts.

    Raises SourceError if no broker can be reached, one refuses, or a topic does not exist.
    """
    topics = client.place.topics
    try:
        async with Admin(client) as admin:
            states = await admin.describe(topics)
    except (errors.KafkaError, OSError) as error:  # TimeoutError is an OSError
        raise SourceError(await why_failed(error, client, f"{doing} topic {', '.join(topics)}")) from error
    for topic, state in states.items():
        if isinstance(state, int):
            raise SourceError(explain(errors.for_code(state)(topic), client, f"{doing} topic {topic}"))
    return {topic: state.partitions for topic, state in states.items() if isinstance(state, TopicState)}


def retention_us(settings: Mapping[str, str]) -> int | None:
    """Return the retention that a topic's settings give it, None if it keeps records without limit."""
    retention_ms = int(settings["retention.ms"])
    if "delete" not in settings.get("cleanup.policy", "delete") or retention_ms < 0:
        return None
    return retention_ms * 1_000


def _refused(code: int) -> bool:
    """Return whether ``code`` is an error. Raises it if the same request may succeed in a moment."""
    if code in _OVERTAKEN:
        raise errors.ConcurrentTransactions
    if code in _UNSETTLED:
        raise errors.for_code(code)
    return code != 0


def _state(entry: Mapping[str, Any]) -> TopicState:
    partitions = sorted(entry["partitions"], key=lambda partition: int(partition["partition"]))
    return TopicState(
        entry["topic"],
        tuple(partition["leader"] for partition in partitions),
        min((len(partition["replicas"]) for partition in partitions), default=0),
        min((len(partition["isr"]) for partition in partitions), default=0),
    )


def _settings(entries: Sequence[Sequence[Any]]) -> dict[str, str]:
    return {name: value for name, value, *_ in entries if value is not None}
