"""Membership of the consumer group: new assignments, and detection of two workers with one instance id.

aiokafka 0.14 swallows exceptions of its callbacks, reports no heartbeats, sends no instance id with them, and does not
know the error FENCED_INSTANCE_ID: two members with one static id (KIP-345) replace each other without end.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Collection
from typing import Any

from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener, TopicPartition
from aiokafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
from aiokafka.errors import BrokerResponseError, KafkaError, kafka_errors

from streamad.errors import SourceError

# A broker may drop a member this often within the time below: after a long silence, or when a coordinator lost its
# state. More replacements mean two processes with one name. An established member may be replaced more often, so that
# the newcomer, or a process that was frozen while another took its name, gives up first. A newcomer is replaced at the
# other one's next heartbeat, which is at most a third of the session time-out away.
_MOST_REPLACED = 2
_MOST_REPLACED_ESTABLISHED = 5
_REPLACED_WITHIN_S = 60.0
_ESTABLISHED_SHARE = 0.67


class FencedInstanceIdError(BrokerResponseError):  # type: ignore[misc]  # aiokafka ships no types
    """Raised by the broker if another member has joined with our instance id (KIP-345)."""

    errno = 82
    message = "FENCED_INSTANCE_ID"
    description = "another member has joined with the same group.instance.id"


kafka_errors.setdefault(FencedInstanceIdError.errno, FencedInstanceIdError)


def sticky_assignor() -> type[StickyPartitionAssignor]:
    """Return a subclass of aiokafka's sticky assignor (KIP-54), which keeps the assignment in its class."""
    return type("StickyAssignor", (StickyPartitionAssignor,), {})


class Membership(ConsumerRebalanceListener):  # type: ignore[misc]  # aiokafka ships no types
    """One consumer's membership in its group; ``failure`` is the error that ends the source.

    ``on_assigned`` is called with all partitions of a new assignment before any of them is fetched; it must not wait.
    """

    def __init__(
        self,
        group: str,
        instance: str | None,
        session_timeout_s: float,
        on_assigned: Callable[[Collection[TopicPartition]], None],
    ) -> None:
        self.failure: Exception | None = None
        self.heard_s = time.monotonic()
        self._group = group
        self._instance = instance
        self._session_timeout_s = session_timeout_s
        self._on_assigned = on_assigned
        self._replaced_s: deque[float] = deque()
        self._member_since_s: float | None = None
        self._is_established = False
        self._is_member = False
        self._coordinator: Any = None
        self._assignor: Any = None

    def attach(self, consumer: AIOKafkaConsumer, assignor: type[StickyPartitionAssignor]) -> None:
        """Observe the heartbeats of ``consumer``, started but not subscribed, and let it join until it has failed."""
        self.heard_s = time.monotonic()
        self._coordinator, self._assignor = consumer._coordinator, assignor  # noqa: SLF001 - has no public name
        beat, join = self._coordinator._do_heartbeat, self._coordinator._do_rejoin_group  # noqa: SLF001 - has no hooks

        async def heard_beat() -> bool:
            # A process that was frozen may read an answer from before: the broker heard of it when it asked.
            asked_s = time.monotonic()
            is_member: bool = await beat()
            if is_member:
                self.heard_s = asked_s
            return is_member

        async def join_unless_taken(subscription: Any) -> bool:
            if self.failure is not None:
                # To join would replace the other process once more, which then gives up as well.
                await asyncio.wait({self._coordinator._closing})  # noqa: SLF001 - set once the consumer stops
                return False
            joined: bool = await join(subscription)
            return joined

        self._coordinator._do_heartbeat = heard_beat  # noqa: SLF001 - as above
        self._coordinator._do_rejoin_group = join_unless_taken  # noqa: SLF001 - as above

    def on_partitions_revoked(self, revoked: Collection[TopicPartition]) -> None:
        """Count a replacement by another member, if it was one; partitions are kept until the new assignment."""
        was_member, self._is_member = self._is_member, False
        now_s = time.monotonic()
        was_replaced = was_member and not self._coordinator.member_id
        if self._instance is not None and was_replaced:
            self._count_replacement(now_s)

    def survives(self, error: KafkaError) -> bool:
        """Return whether to continue after ``error``: the other process with our name may be the one that stops."""
        if FencedInstanceIdError.__name__ not in str(error):
            return False
        self._count_replacement(time.monotonic())
        if self.failure is not None or not self._is_established:
            return False
        self._coordinator.reset_generation()  # else aiokafka retries without end with the replaced member id
        return True

    def _count_replacement(self, now_s: float) -> None:
        if now_s - self.heard_s > self._session_timeout_s:
            self._replaced_s.clear()  # replaced after a silence, as it should be
            self._is_established = False
        elif not self._replaced_s:
            since_s = now_s if self._member_since_s is None else self._member_since_s
            self._is_established = now_s - since_s > _ESTABLISHED_SHARE * self._session_timeout_s
        self._replaced_s.append(now_s)
        while self._replaced_s[0] < now_s - _REPLACED_WITHIN_S:
            self._replaced_s.popleft()
        if len(self._replaced_s) > (_MOST_REPLACED_ESTABLISHED if self._is_established else _MOST_REPLACED):
            self.failure = self._instance_taken()

    def on_partitions_assigned(self, assigned: Collection[TopicPartition]) -> None:
        """Pass on a new assignment."""
        self._is_member = True
        self.heard_s = time.monotonic()
        if self._member_since_s is None:
            self._member_since_s = self.heard_s
        self._assignor.on_generation_assignment(self._coordinator.generation)
        try:
            self._on_assigned(assigned)
        except Exception as error:  # noqa: BLE001 - aiokafka would swallow it; the source raises it
            self.failure = error

    def explains(self, error: KafkaError) -> SourceError | None:
        """Return ``error`` as advice if it concerns our instance id, else None."""
        return self._instance_taken() if FencedInstanceIdError.__name__ in str(error) else None

    def _instance_taken(self) -> SourceError:
        return SourceError(
            f"instance id {self._instance!r} is used by another process in group {self._group}: "
            "give each worker its own --instance"
        )
