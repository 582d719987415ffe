"""How often the retention guard says that records are old, by a clock of the test and without a broker."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, cast

import pytest
import yaml
from aiokafka import TopicPartition

from streamad.settings.fields import parse_duration_us
from streamad.testing import ManualClock
from streamad_connectors.kafka.client.options import partition_name
from streamad_connectors.kafka.client.source_state import LowWatermark, SourceState
from streamad_connectors.kafka.reading.retention_guard import REMIND_US, RetentionGuard

HOUR_US = 3_600_000_000
RULES = Path(__file__).resolve().parents[4] / "deploy" / "prometheus" / "streamad.rules.yml"


class Log:
    """Stands in for the consumer: a partition of ten records."""

    async def beginning_offsets(self, partitions: list[TopicPartition]) -> dict[TopicPartition, int]:
        return dict.fromkeys(partitions, 0)

    async def end_offsets(self, partitions: list[TopicPartition]) -> dict[TopicPartition, int]:
        return dict.fromkeys(partitions, 10)


async def test_that_records_are_old_is_said_again_every_half_hour(monkeypatch: pytest.MonkeyPatch) -> None:
    async def look_up(guard: Any) -> None:
        vars(guard).update(_retention_us={"t": 10 * HOUR_US}, _retention_s=float("inf"))

    monkeypatch.setattr(RetentionGuard, "_look_up_retention", look_up)
    clock = ManualClock()
    state = SourceState(cast("Any", None), cast("Any", None), "group", clock)
    guard = RetentionGuard(state, cast("Any", Log()), lambda: [TopicPartition("t", 0)])
    state.low_watermarks[partition_name("t", 0)] = LowWatermark(3, clock.now_us() - 6 * HOUR_US)
    told = []
    for _ in range(8):
        await guard.check()
        told.append(len(state.notices))
        clock.advance(REMIND_US / 4e6)
    assert told == [1, 1, 1, 1, 2, 2, 2, 2]
    assert {notice.kind for notice in state.notices} == {"low_watermark_old"}


def test_the_rule_looks_back_for_longer_than_the_guard_is_silent() -> None:
    rules = [rule for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]]
    (rule,) = [rule for rule in rules if rule["alert"] == "StreamadLowWatermarkOld"]
    windows = [parse_duration_us(found) for found in re.findall(r"\[(\w+)\]", rule["expr"])]
    assert min(windows) >= 2 * REMIND_US
