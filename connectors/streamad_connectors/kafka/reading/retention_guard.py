"""The retention guard: says so while records that are not judged yet are about to be deleted, or already are."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, NoReturn

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import KafkaError, for_code

from streamad.telemetry.logs import get_logger
from streamad.types import SourceNotice
from streamad_connectors.kafka.client.errors import explain, is_retriable
from streamad_connectors.kafka.client.options import partition_name
from streamad_connectors.kafka.client.source_state import SourceState
from streamad_connectors.kafka.client.stopping import connected

_RETENTION_AGE_S = 3600.0
_HOUR_US = 3_600_000_000


class RetentionGuard:
    """Compares the low watermarks of the partitions that are ours with what their topics still hold.

    Notices go to ``shared.notices``: "retention_passed_low_watermark" where records were deleted before they were
    judged, again whenever their number changes; "low_watermark_old" once the oldest of them is older than half of
    the topic's retention, again after it was younger.
    """

    def __init__(
        self, shared: SourceState, consumer: AIOKafkaConsumer, assigned: Callable[[], Collection[TopicPartition]]
    ) -> None:
        self._state = shared
        self._consumer = consumer
        self._assigned = assigned
        self._retention_us: Mapping[str, int | None] = {}
        self._retention_s: float | None = None
        self._lost: dict[str, tuple[int, int]] = {}
        self._old: set[str] = set()
        self._is_refused = False

    async def run(self) -> NoReturn:
        """Check at the interval ``retention_check`` until cancelled."""
        while True:
            await asyncio.sleep(self._state.options.retention_check / 1e6)
            try:
                await self.check()
            except KafkaError as error:
                # No reason to end: reading meets the same outage or refusal, and says what to do.
                get_logger().info("retention not checked", reason=explain(error, self._state.client))

    async def check(self) -> None:
        """Check once. Raises KafkaError where no broker answers."""
        assigned = list(self._assigned())
        self._forget({partition_name(*tp) for tp in assigned})
        if not assigned:
            return
        if self._retention_s is None or time.monotonic() - self._retention_s > _RETENTION_AGE_S:
            await self._learn_retention()
        begins = await self._consumer.beginning_offsets(assigned)
        ends = await self._consumer.end_offsets(assigned)
        for tp in assigned:
            name = partition_name(*tp)
            if name in self._state.progress_of:
                self._check_start(name, begins[tp])
                self._check_age(name, ends[tp], self._retention_us.get(tp.topic))

    def _check_start(self, name: str, begin: int) -> None:
        low_watermark, _ = self._state.progress_of[name]
        if begin <= low_watermark:
            self._lost.pop(name, None)
        elif self._lost.get(name) != (low_watermark, begin):
            self._lost[name] = (low_watermark, begin)
            self._emit(
                "retention_passed_low_watermark",
                f"retention has deleted offsets {low_watermark} to {begin - 1} before their sequences were judged: "
                "after a restart they cannot be read again; raise retention.ms of the topic, or shorten max_duration",
                name,
            )

    def _check_age(self, name: str, end: int, retention_us: int | None) -> None:
        low_watermark, record_us = self._state.progress_of[name]
        is_waiting = low_watermark < end and record_us is not None
        age_us = self._state.clock.now_us() - record_us if is_waiting and record_us is not None else 0
        if retention_us is None or 2 * age_us <= retention_us:
            self._old.discard(name)
        elif name not in self._old:
            self._old.add(name)
            self._emit(
                "low_watermark_old",
                f"the oldest record that is not judged yet is {age_us / _HOUR_US:.1f} h old, the topic keeps records "
                f"for {retention_us / _HOUR_US:.1f} h: raise retention.ms, shorten max_duration, or add workers",
                name,
            )

    def _forget(self, assigned: Iterable[str]) -> None:
        ours = set(assigned)
        self._old &= ours
        self._lost = {name: lost for name, lost in self._lost.items() if name in ours}

    async def _learn_retention(self) -> None:
        try:
            self._retention_us = await retention_of(self._state)
        except KafkaError as error:
            if is_retriable(error):
                raise
            if not self._is_refused:
                self._is_refused = True
                why = explain(error, self._state.client, f"configure topic {', '.join(self._state.place.topics)}")
                self._emit("retention_unknown", f"only the log's start is guarded, not its age: {why}", None)
        self._retention_s = time.monotonic()

    def _emit(self, kind: str, message: str, partition: str | None) -> None:
        self._state.notices.append(SourceNotice(kind, message, partition))


async def retention_of(shared: SourceState) -> dict[str, int | None]:
    """Return each input topic's retention in microseconds, None where it keeps records for ever. Raises KafkaError."""
    admin = AIOKafkaAdminClient(**shared.client.kwargs())
    try:
        await connected(admin.start())
        topics = [ConfigResource(ConfigResourceType.TOPIC, topic) for topic in shared.place.topics]
        answers = await admin.describe_configs(topics)
    finally:
        await admin.close()
    return {topic: _retention(entries) for answer in answers for topic, entries in _resources(answer)}


def _resources(answer: Any) -> Iterable[tuple[str, Iterable[tuple[Any, ...]]]]:
    for code, message, _, name, entries in answer.resources:
        if code:
            raise for_code(code)(message)
        yield name, entries


def _retention(entries: Iterable[tuple[Any, ...]]) -> int | None:
    settings = {entry[0]: entry[1] for entry in entries}
    if "delete" not in str(settings.get("cleanup.policy", "delete")) or int(settings["retention.ms"]) < 0:
        return None
    return int(settings["retention.ms"]) * 1000
