"""The retention guard: notices about unjudged records that will soon be deleted, or already are."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import NoReturn

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import KafkaError

from streamad.telemetry.logs import get_logger
from streamad.types import SourceNotice
from streamad_connectors.kafka.client.admin import Admin
from streamad_connectors.kafka.client.errors import explain, is_retriable
from streamad_connectors.kafka.client.options import partition_name
from streamad_connectors.kafka.client.source_state import SourceState

_RETENTION_AGE_S = 3600.0
_HOUR_US = 3_600_000_000
REMIND_US = _HOUR_US // 2
"""So often it is said again that records are old: the rule StreamadLowWatermarkOld looks back an hour."""


class RetentionGuard:
    """Compares the low watermarks of assigned partitions with the records that their topics still hold.

    It appends to ``state.notices``: "retention_passed_low_watermark" if records were deleted before they were judged,
    again whenever their number changes; "low_watermark_old" once the oldest unjudged record is older than half of the
    topic's retention, again every half hour as long as it is, and after it was younger.
    """

    def __init__(
        self, state: SourceState, consumer: AIOKafkaConsumer, assigned: Callable[[], Collection[TopicPartition]]
    ) -> None:
        self._state = state
        self._consumer = consumer
        self._assigned = assigned
        self._retention_us: Mapping[str, int | None] = {}
        self._retention_s: float | None = None
        self._lost: dict[str, tuple[int, int]] = {}
        self._old_us: dict[str, int] = {}
        self._is_refused = False

    async def run(self) -> NoReturn:
        """Check at the interval ``retention_check`` until cancelled."""
        while True:
            await asyncio.sleep(self._state.options.retention_check / 1e6)
            try:
                await self.check()
            except (KafkaError, OSError) as error:
                # No reason to end: reading meets the same outage or refusal and reports it.
                get_logger().info("retention not checked", reason=explain(error, self._state.client))

    async def check(self) -> None:
        """Check once. Raises KafkaError or TimeoutError if no broker answers."""
        assigned = list(self._assigned())
        self._forget({partition_name(*tp) for tp in assigned})
        if not assigned:
            return
        if self._retention_s is None or time.monotonic() - self._retention_s > _RETENTION_AGE_S:
            await self._look_up_retention()
        begins = await self._consumer.beginning_offsets(assigned)
        ends = await self._consumer.end_offsets(assigned)
        for tp in assigned:
            name = partition_name(*tp)
            if name in self._state.low_watermarks:
                self._check_start(name, begins[tp])
                self._check_age(name, ends[tp], self._retention_us.get(tp.topic))

    def _check_start(self, name: str, begin: int) -> None:
        low_watermark = self._state.low_watermarks[name].offset
        if begin <= low_watermark:
            self._lost.pop(name, None)
        elif self._lost.get(name) != (low_watermark, begin):
            self._lost[name] = (low_watermark, begin)
            self._notice(
                "retention_passed_low_watermark",
                f"retention has deleted offsets {low_watermark} to {begin - 1} before their sequences were judged: "
                "after a restart they cannot be read again; raise retention.ms of the topic, or shorten max_duration",
                name,
            )

    def _check_age(self, name: str, end: int, retention_us: int | None) -> None:
        low_watermark, record_us = self._state.low_watermarks[name]
        age_us = self._state.clock.now_us() - record_us if low_watermark < end and record_us is not None else 0
        if retention_us is None or 2 * age_us <= retention_us:
            self._old_us.pop(name, None)
        elif name not in self._old_us or self._state.clock.monotonic_us() - self._old_us[name] >= REMIND_US:
            self._old_us[name] = self._state.clock.monotonic_us()
            self._notice(
                "low_watermark_old",
                f"the oldest record that is not judged yet is {age_us / _HOUR_US:.1f} h old, the topic keeps records "
                f"for {retention_us / _HOUR_US:.1f} h: raise retention.ms, shorten max_duration, or add workers",
                name,
            )

    def _forget(self, assigned: Iterable[str]) -> None:
        ours = set(assigned)
        self._old_us = {name: told_us for name, told_us in self._old_us.items() if name in ours}
        self._lost = {name: lost for name, lost in self._lost.items() if name in ours}

    async def _look_up_retention(self) -> None:
        topics = self._state.client.place.topics
        try:
            async with Admin(self._state.client) as admin:
                self._retention_us = await admin.retentions_us(topics)
        except KafkaError as error:
            if is_retriable(error):
                raise
            if not self._is_refused:
                self._is_refused = True
                why = explain(error, self._state.client, f"configure topic {', '.join(topics)}")
                self._notice("retention_unknown", f"only the log's start is guarded, not its age: {why}", None)
        self._retention_s = time.monotonic()

    def _notice(self, kind: str, message: str, partition: str | None) -> None:
        self._state.notices.append(SourceNotice(kind, message, partition))
