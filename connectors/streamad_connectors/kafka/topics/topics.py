"""Creates and checks the topics of a plant: inputs, progress, outputs and feedback."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Mapping, Sequence
from typing import TypeVar

from aiokafka import errors

from streamad.errors import SourceError
from streamad.messages import Role
from streamad.plugins import ConnectorContext
from streamad.ports import Sink, Topic, TopicFinding
from streamad.settings.places import place_key
from streamad_connectors.kafka.client.admin import Admin, NewTopic, TopicState
from streamad_connectors.kafka.client.errors import explain, why_failed
from streamad_connectors.kafka.client.options import (
    Client,
    KafkaSourceOptions,
    claims_topic_of,
    progress_topic_of,
)
from streamad_connectors.kafka.topics import checks
from streamad_connectors.kafka.topics.abilities import Offered, has_transactions, lacking, shows_settings
from streamad_connectors.kafka.topics.coordinators import check_groups, check_transactions
from streamad_connectors.kafka.writing.sink import KafkaSink

_Answer = TypeVar("_Answer")

_PAUSE_S = 0.05
_DAY_MS = 86_400_000
_KEPT_MS: dict[Role, int] = {
    "dead_letters": 14 * _DAY_MS,
    "late": 14 * _DAY_MS,
    "feedback": 90 * _DAY_MS,
}
_KEPT_BY_DEFAULT_MS = 30 * _DAY_MS
# What the page, reports and explanations look back on; kept together (``history_ms``).
_HISTORY: frozenset[Role] = frozenset({"alerts", "warnings", "attributions", "verdicts", "windows", "events"})
_INPUT_KEPT_MS = 7 * _DAY_MS
_INPUT_KEPT_SEQUENCES = 4
# From three copies on, two must hold an acknowledged record: then one broker may be away, and one may be lost.
_SAFE_COPIES = 3
# Kafka's default (message.max.bytes), set explicitly because a broker's own default may be lower.
_MESSAGE_BYTES = 1_048_588
# Compaction works on closed segments only: with large ones a restart would read days of progress.
_PROGRESS = {
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": "0.1",
    "segment.bytes": str(16 * 1024 * 1024),
    "segment.ms": "3600000",
    "max.compaction.lag.ms": "21600000",
    "max.message.bytes": str(_MESSAGE_BYTES),
}
_READ = frozenset({"input", "progress", "claims", "feedback"})
_ONLY_READ = frozenset({"input", "feedback"})
_OF_THEIR_OWN: tuple[Role, ...] = ("feedback", "status")
# Only the newest status of each worker matters (key: its name); those of workers that are gone go after a week.
_STATUS = {
    "cleanup.policy": "compact,delete",
    "retention.ms": str(7 * _DAY_MS),
    "segment.ms": "3600000",
    "max.message.bytes": str(_MESSAGE_BYTES),
}


class KafkaTopics:
    """``streamad.ports.Topics`` of a Kafka source and the sinks of the same cluster.

    ``client``, ``options`` and ``group`` are the source's; ``sinks`` are all sinks of the plant, of which only each
    KafkaSink of the same cluster counts. Nothing connects before the first call; every call ends within a few
    ``request_timeout``.
    """

    def __init__(
        self,
        client: Client,
        options: KafkaSourceOptions,
        group: str,
        sinks: Mapping[Role, Sink],
        context: ConnectorContext,
    ) -> None:
        self._client = client
        self._place = client.place
        self._group = group
        self._sinks = {
            role: sink
            for role, sink in sinks.items()
            if isinstance(sink, KafkaSink) and client.same_cluster(sink.client)
        }
        self._elsewhere = {
            role: sink for role, sink in sinks.items() if isinstance(sink, KafkaSink) and role not in self._sinks
        }
        self._feedback_group = context.feedback_group
        self._max_duration_us = context.max_duration_us
        self._options = options
        self._connected: Admin | None = None

    async def wanted(self) -> Sequence[Topic]:
        """Return inputs, progress topics and outputs; partitions None if they depend on a missing input.

        Raises SourceError if no broker answers.
        """
        return self._wanted(_counts(await self._states(self._place.topics)))

    async def create(
        self, *, partitions: int, replicas: int, history_ms: int = 0, dry_run: bool = False
    ) -> Sequence[TopicFinding]:
        """Create the missing topics and leave all others as they are.

        Inputs get ``partitions``, progress topics those of their input, outputs those of the largest input. New topics
        of verdicts, alerts, attributions, windows and events keep their messages for at least ``history_ms``. With
        ``dry_run`` the brokers only validate the request. Raises SourceError if no broker answers.
        """
        counts = _counts(await self._states(self._place.topics))
        topics = self._wanted({name: count or partitions for name, count in counts.items()}, history_ms)
        states = await self._states([topic.name for topic in topics])
        new = [
            NewTopic(topic.name, topic.partitions or partitions, replicas, _safe(topic.settings, replicas))
            for topic in topics
            if checks.is_missing(states[topic.name])
        ]
        findings = self._clashes()
        for topic in topics:
            findings += checks.existing(topic, states[topic.name], self._client)
        findings += checks.fewer_copies(states, replicas)
        if not new:
            return findings
        admin = await self._admin()
        answers = await self._asked(admin.create(new, dry_run=dry_run), "create topics")
        findings += [checks.created(topic, *answers[topic.name], self._client, dry_run=dry_run) for topic in new]
        if not dry_run:
            await self._wait_for_leaders([topic.name for topic in new if answers[topic.name][0] == 0])
        return findings

    async def check(self) -> Sequence[TopicFinding]:
        """Return findings; no topic is written, no group is joined, no worker is disturbed.

        Rights are probed by requests that a broker refuses for another reason if the right is there (see ``Admin``),
        transactions by an empty one that is aborted. Raises SourceError if no broker answers.
        """
        admin = await self._admin()
        offered = await self._asked(admin.offered(), "list the requests that the broker takes")
        counts = _counts(await self._states(self._place.topics))
        topics = self._wanted(counts)
        states = await self._states([topic.name for topic in topics])
        there = {name: state for name, state in states.items() if isinstance(state, TopicState)}
        findings = [*self._clashes(), *checks.security(self._client), *lacking(offered)]
        for topic in topics:
            if checks.is_missing(states[topic.name]):
                findings.append(checks.missing(topic))
            else:
                findings += checks.existing(topic, states[topic.name], self._client)
        if shows_settings(offered):
            findings += await self._check_settings([topic for topic in topics if topic.name in there], there)
        findings += await self._check_rights([topic for topic in topics if topic.name in there], there)
        return [*findings, *await self._check_coordinators(offered)]

    async def close(self) -> None:
        """Disconnect; safe to call twice."""
        if self._connected is not None:
            admin, self._connected = self._connected, None
            await admin.close()

    def _wanted(self, counts: Mapping[str, int | None], history_ms: int = 0) -> list[Topic]:
        kept_ms = max(_INPUT_KEPT_MS, _INPUT_KEPT_SEQUENCES * -(-(self._max_duration_us or 0) // 1_000))
        settings = {"cleanup.policy": "delete", "retention.ms": str(kept_ms)}
        inputs = [Topic(name, "input", counts.get(name), settings) for name in self._place.topics]
        progress = [
            Topic(progress_topic_of(self._group, name), "progress", counts.get(name), _PROGRESS)
            for name in self._place.topics
        ]
        known = [count for count in counts.values() if count is not None]
        largest = max(known) if len(known) == len(self._place.topics) else None
        claims = Topic(claims_topic_of(self._group), "claims", 1, _PROGRESS)
        taken = {topic.name for topic in (*inputs, *progress, claims)}
        roles: dict[str, list[Role]] = {}
        for role, sink in self._sinks.items():
            roles.setdefault(sink.place.topic, []).append(role)
        outputs = [
            Topic(name, ", ".join(of), *self._as_output(name, of, largest, history_ms))
            for name, of in roles.items()
            if name not in taken
        ]
        return [*inputs, *progress, claims, *outputs]

    def _as_output(
        self, name: str, roles: Sequence[Role], largest: int | None, history_ms: int
    ) -> tuple[int | None, Mapping[str, str]]:
        """Return partitions and settings of the topic of ``roles``."""
        if list(roles) == ["status"]:
            return 1, _STATUS
        is_one = list(roles) in (["feedback"], ["decisions"])  # a chain is read in its order
        return 1 if is_one else largest, self._output_settings(name, roles, history_ms)

    def _output_settings(self, name: str, roles: Sequence[Role], history_ms: int) -> dict[str, str]:
        kept_ms = max(_KEPT_MS.get(role, _KEPT_BY_DEFAULT_MS) for role in roles)
        if not _HISTORY.isdisjoint(roles):
            kept_ms = max(kept_ms, history_ms)
        return {
            "cleanup.policy": "delete",
            "retention.ms": "-1" if "decisions" in roles else str(kept_ms),
            "max.message.bytes": str(max(_MESSAGE_BYTES, self._message_bytes(name))),
        }

    def _message_bytes(self, name: str) -> int:
        return max((sink.max_message_bytes for sink in self._sinks.values() if sink.place.topic == name), default=0)

    def _clashes(self) -> list[TopicFinding]:
        ours = {progress_topic_of(self._group, name): "a progress topic" for name in self._place.topics}
        ours |= {claims_topic_of(self._group): "the claims topic", **dict.fromkeys(self._place.topics, "an input")}
        findings = []
        for role, sink in self._sinks.items():
            name = sink.place.topic
            if (what := ours.get(name)) is not None:
                text = f"is {what} and the place of {place_key(role)} at once: write to another topic"
                findings.append(TopicFinding("error", name, text))
        for role in _OF_THEIR_OWN:
            others = self._others_at(role)
            if others:
                text = f"is the place of {place_key(role)} and of {others[0]} at once: give each a topic of its own"
                findings.append(TopicFinding("error", self._sinks[role].place.topic, text))
        return [*findings, *(checks.elsewhere(role, sink.client) for role, sink in self._elsewhere.items())]

    def _others_at(self, role: Role) -> list[str]:
        """Return other outputs at the topic of ``role``: the right to write feedback must not allow forged alerts."""
        topic = self._sinks[role].place.topic if role in self._sinks else None
        return [place_key(other) for other, sink in self._sinks.items() if sink.place.topic == topic and other != role]

    async def _check_settings(self, topics: Sequence[Topic], there: Mapping[str, TopicState]) -> list[TopicFinding]:
        names = [topic.name for topic in topics]
        admin = await self._admin()
        found = await self._asked(admin.settings(names, checks.TOPIC_SETTINGS), "configure topics")
        seen = {name: values for name, values in found.items() if not isinstance(values, int)}
        findings = []
        for topic in topics:
            if topic.name in seen:
                longest = _MESSAGE_BYTES if topic.role == "progress" else self._message_bytes(topic.name)
                findings += checks.settings(topic, seen[topic.name], self._client, self._max_duration_us, longest)
        of_broker = await self._asked(admin.broker_settings(checks.BROKER_SETTINGS), "configure the cluster")
        if not isinstance(of_broker, int):
            findings += checks.broker(of_broker, self._options)
        findings += checks.copies(list(there.values()), seen)
        hidden = [name for name in names if name not in seen]
        return [*findings, *checks.unseen([*hidden, *(["the cluster"] if isinstance(of_broker, int) else [])])]

    async def _check_rights(self, topics: Sequence[Topic], there: Mapping[str, TopicState]) -> list[TopicFinding]:
        admin = await self._admin()
        findings = []
        for topic in topics:
            state = there[topic.name]
            if not state.leaders or state.leaders[0] < 0:
                continue  # no broker to ask, which is reported already
            if topic.role in _READ:
                doing = f"read topic {topic.name}"
                code = await self._asked(admin.read_refusal(state), doing)
                findings += checks.refusal(topic.name, code, self._client, doing)
            if topic.role not in _ONLY_READ:
                doing = f"write topic {topic.name}"
                code = await self._asked(admin.write_refusal(state), doing)
                findings += checks.refusal(topic.name, code, self._client, doing)
        return findings

    async def _check_coordinators(self, offered: Offered) -> list[TopicFinding]:
        admin = await self._admin()
        groups = {"(group)": self._group}
        if "feedback" in self._sinks:
            groups["(feedback)"] = self._feedback_group
        findings = await check_groups(admin, self._client, groups)
        if has_transactions(offered):
            timeout_ms, may_join = self._options.transaction_timeout // 1_000, findings[0].level == "ok"
            findings += await check_transactions(admin, self._client, self._group, timeout_ms, open_one=may_join)
        return findings

    async def _states(self, topics: Sequence[str]) -> dict[str, TopicState | int]:
        admin = await self._admin()
        return await self._asked(admin.describe(topics), f"describe topic {', '.join(topics)}")

    async def _wait_for_leaders(self, topics: Sequence[str]) -> None:
        # A new topic has no leaders for a moment, which a run that starts right away would meet.
        try:
            async with asyncio.timeout(self._client.request_timeout_s):
                while not _are_led(await self._states(topics)):  # noqa: ASYNC110 - only the broker knows
                    await asyncio.sleep(_PAUSE_S)
        except TimeoutError:
            raise SourceError(explain(errors.LeaderNotAvailableError(), self._client, "topics just made")) from None

    async def _admin(self) -> Admin:
        if self._connected is None:
            admin = Admin(self._client)
            try:
                await admin.open()
            except (errors.KafkaError, OSError) as error:
                raise SourceError(await why_failed(error, self._client)) from error
            self._connected = admin
        return self._connected

    async def _asked(self, answer: Awaitable[_Answer], doing: str) -> _Answer:
        try:
            return await answer
        except (errors.KafkaError, OSError) as error:
            raise SourceError(explain(error, self._client, doing)) from error


def _counts(states: Mapping[str, TopicState | int]) -> dict[str, int | None]:
    return {name: state.partitions if isinstance(state, TopicState) else None for name, state in states.items()}


def _are_led(states: Mapping[str, TopicState | int]) -> bool:
    return all(isinstance(state, TopicState) and state.is_led for state in states.values())


def _safe(settings: Mapping[str, str], replicas: int) -> dict[str, str]:
    return {**settings, **({"min.insync.replicas": "2"} if replicas >= _SAFE_COPIES else {})}
