"""Questions to a cluster about topics, settings and rights, each with a time-out and none of them changing anything.

aiokafka's admin client is not used: it asks for topics in a way that lets a broker make missing ones, and it sends
nothing that would tell which rights are there.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, NamedTuple

from aiokafka import errors
from aiokafka.client import AIOKafkaClient, CoordinationType
from aiokafka.protocol.admin import CreateTopicsRequest, DescribeConfigsRequest
from aiokafka.protocol.api import Request
from aiokafka.protocol.fetch import FetchRequest
from aiokafka.protocol.group import HeartbeatRequest
from aiokafka.protocol.metadata import MetadataRequest
from aiokafka.protocol.produce import ProduceRequest
from aiokafka.protocol.transaction import EndTxnRequest

from streamad_connectors.kafka.client.errors import is_retriable
from streamad_connectors.kafka.client.options import Client
from streamad_connectors.kafka.client.stopping import connected

_PAUSE_S = 0.1
_TOPIC, _BROKER = 2, 4  # resource types of DescribeConfigs
# Nobody has this producer id: ids are given out from 0 on (KIP-98).
_NOBODY = 2**63 - 1
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


class TopicState(NamedTuple):
    """A topic as a broker describes it: by partition number its leader (-1: none), and the fewest copies of any."""

    name: str
    leaders: tuple[int, ...]
    copies: int
    in_sync: int

    @property
    def partitions(self) -> int:
        """How many partitions."""
        return len(self.leaders)

    @property
    def is_led(self) -> bool:
        """Whether every partition has a leader."""
        return all(leader >= 0 for leader in self.leaders)


class NewTopic(NamedTuple):
    """A topic to make."""

    name: str
    partitions: int
    replicas: int
    settings: Mapping[str, str]


class Admin:
    """A connection to a cluster. All calls raise KafkaError, or TimeoutError after the client's request time-out."""

    def __init__(self, client: Client) -> None:
        self._timeout_s = client.request_timeout_s
        self._client = AIOKafkaClient(**client.kwargs())

    async def open(self) -> None:
        """Connect."""
        async with asyncio.timeout(self._timeout_s):
            await connected(self._client.bootstrap())
        if not self._client.cluster.brokers():
            raise errors.KafkaConnectionError("no brokers in the answer")  # what a refused token looks like

    async def close(self) -> None:
        """Disconnect; safe to call twice."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._timeout_s):
                await self._client.close()

    async def describe(self, topics: Sequence[str]) -> dict[str, TopicState | int]:
        """Return of each topic its state, or the number of the error that the broker has instead of one."""
        answer = await self._ask(MetadataRequest(list(topics), allow_auto_topic_creation=False))
        self._client.cluster.update_metadata(answer)
        return {entry["topic"]: entry["error_code"] or _state(entry) for entry in answer.to_object()["topics"]}

    async def settings(self, topics: Sequence[str], names: Sequence[str]) -> dict[str, dict[str, str] | int]:
        """Return the settings ``names`` of each topic, or the number of an error."""
        if not topics:
            return {}
        answer = await self._ask(DescribeConfigsRequest([(_TOPIC, topic, list(names)) for topic in topics]))
        return {entry[3]: entry[0] or _settings(entry[4]) for entry in answer.resources}

    async def broker_settings(self, names: Sequence[str]) -> dict[str, str] | int:
        """Return the settings ``names`` of one of the brokers, or the number of an error."""
        node = self._any_node()
        answer = await self._ask(DescribeConfigsRequest([(_BROKER, str(node), list(names))]), node)
        entry = answer.resources[0]
        return int(entry[0]) or _settings(entry[4])

    async def create(self, topics: Sequence[NewTopic], *, dry_run: bool) -> dict[str, tuple[int, str]]:
        """Make topics; return of each the number of its error (0: none) and what the broker says of it."""
        wanted: list[tuple[Any, ...]] = [
            (new.name, new.partitions, new.replicas, [], list(new.settings.items())) for new in topics
        ]
        request = CreateTopicsRequest(
            create_topic_requests=wanted, timeout=int(self._timeout_s * 1_000), validate_only=dry_run
        )
        answer = await self._ask(request, self._controller())
        return {name: (code, rest[0] or "" if rest else "") for name, code, *rest in answer.topic_errors}

    async def read_refusal(self, topic: TopicState) -> int:
        """Return 0 where reading is allowed, else the number of the error: a fetch of nothing."""
        request = FetchRequest(0, 0, 1, 1, [(topic.name, [(0, 0, 1)])])
        return await self._refusal(request, topic.leaders[0], lambda answer: answer.topics[0][1][0][1])

    async def write_refusal(self, topic: TopicState) -> int:
        """Return 0 where writing is allowed, else the number of the error: a produce request without records.

        A broker looks at the rights first, and then refuses it as INVALID_RECORD: nothing is ever written.
        """
        request = ProduceRequest(None, -1, int(self._timeout_s * 1_000), [(topic.name, [(0, b"")])])
        return await self._refusal(request, topic.leaders[0], lambda answer: answer.topics[0][1][0][1])

    async def group_refusal(self, group: str) -> int:
        """Return 0 where the group may be joined, else the number of the error: a heartbeat of nobody."""
        node = await self._coordinator(CoordinationType.GROUP, group)
        return await self._refusal(HeartbeatRequest(group, -1, "nobody"), node, lambda answer: answer.error_code)

    async def transaction_refusal(self, transactional_id: str) -> int:
        """Return 0 where the id may be used, else the number of the error: an abort by a producer that nobody is.

        The broker looks at the rights first and then refuses the producer: a worker with this id goes on undisturbed.
        """
        node = await self._coordinator(CoordinationType.TRANSACTION, transactional_id)
        request = EndTxnRequest(transactional_id, _NOBODY, 0, False)
        return await self._refusal(request, node, lambda answer: answer.error_code)

    async def _coordinator(self, kind: CoordinationType, key: str) -> int:
        # The first one to ask a new cluster has to wait until the internal topics are made.
        async def find() -> int:
            node: int = await self._client.coordinator_lookup(kind, key)
            if not await self._client.ready(node):
                raise errors.NodeNotReadyError(node)
            return node

        return int(await self._retried(find))

    async def _refusal(self, request: Request[Any], node: int, code_in: Callable[[Any], int]) -> int:
        # What was just made or moved is not everywhere at once.
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

    def _controller(self) -> int:
        controller = self._client.cluster.controller
        return self._any_node() if controller is None else int(controller.nodeId)


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
