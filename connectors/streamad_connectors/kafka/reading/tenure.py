"""One reader of a group at a time: all partitions of the topic go to one member, and the other members wait."""

from __future__ import annotations

import asyncio
import os
import socket
import time
from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final

import msgspec
from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.coordinator.protocol import ConsumerProtocolMemberAssignment, ConsumerProtocolMemberMetadata

_VERSION: Final = 0


class _Claim(msgspec.Struct):
    """A member's name, and since when it has held the partitions (0: never); it sends both when it joins."""

    name: str = ""
    since_us: int = 0


class Tenure:
    """Whether this member has all partitions of ``topic``; given to aiokafka as the assignor of its consumer.

    The leader gives all of them to the member that has them already, else to any one. Law: a tenure is one membership.
    A member that the brokers have expelled has lost it, even if it gets the partitions again at once: another one may
    have read in between.
    """

    name = "streamad-one-reader"

    def __init__(self, topic: str) -> None:
        self._topic = topic
        self._own = _Claim(f"{socket.gethostname()}, process {os.getpid()}")
        self._consumer: AIOKafkaConsumer | None = None
        self._member: str | None = None
        self.holder = ""
        """Host and process of the member that has the partitions, "" if unknown."""
        self.is_lost = False
        self.settled = asyncio.Event()
        """Set once it is known that this member has the partitions, or never will."""

    def attach(self, consumer: AIOKafkaConsumer) -> None:
        """Let ``consumer``, not started yet, say which member of the group this is."""
        self._consumer = consumer

    @property
    def _member_now(self) -> str:
        assert self._consumer is not None
        return str(self._consumer._coordinator.member_id)  # noqa: SLF001 - has no public name

    @property
    def is_held(self) -> bool:
        """Return whether this member has all partitions, as far as it has been told."""
        return self._member is not None and not self.is_lost and self._member_now == self._member

    def revoked(self) -> None:
        """Note that a rebalance begins: whoever is no member any more has lost the partitions."""
        if self._member is not None and self._member_now != self._member:
            self._lose()

    def assigned(self, assigned: Collection[TopicPartition]) -> None:
        """Note a new assignment."""
        assert self._consumer is not None
        has_all = len(assigned) == len(self._consumer.partitions_for_topic(self._topic) or ()) > 0
        if self._member is None and has_all:
            self._member = self._member_now
            self._own.since_us = time.time_ns() // 1_000
            self.settled.set()
        elif self._member is not None and not (has_all and self._member_now == self._member):
            self._lose()

    def _lose(self) -> None:
        self.is_lost = True
        self._own.since_us = 0

    # --- what aiokafka asks of an assignor ---

    def metadata(self, topics: Iterable[str]) -> ConsumerProtocolMemberMetadata:
        """Return what this member says when it joins."""
        return ConsumerProtocolMemberMetadata(_VERSION, list(topics), msgspec.json.encode(self._own))

    def assign(
        self, cluster: Any, members: Mapping[str, ConsumerProtocolMemberMetadata]
    ) -> dict[str, ConsumerProtocolMemberAssignment]:
        """Return the assignment of each member, as the leader of the group."""
        claims = {member: _claim_in(metadata.user_data) for member, metadata in members.items()}
        holder = max(members, key=lambda member: (claims[member].since_us, member))
        everything = [(self._topic, sorted(cluster.partitions_for_topic(self._topic) or ()))]
        said = msgspec.json.encode(claims[holder])
        return {
            member: ConsumerProtocolMemberAssignment(_VERSION, everything if member == holder else [], said)
            for member in members
        }

    def on_assignment(self, assignment: ConsumerProtocolMemberAssignment) -> None:
        """Take note of who has the partitions."""
        self.holder = _claim_in(assignment.user_data).name


def _claim_in(user_data: bytes | None) -> _Claim:
    try:
        return msgspec.json.decode(user_data or b"{}", type=_Claim)
    except msgspec.DecodeError:  # another program in our group
        return _Claim()
