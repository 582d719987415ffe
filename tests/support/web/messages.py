"""Messages about sequences, as a plant's outputs hold them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np

from streamad.messages import (
    Alert,
    Attribution,
    ChannelSegment,
    ChannelShare,
    EarlyWarning,
    Feedback,
    Message,
    ModelRef,
    Verdict,
    Window,
    packed_values,
)

T = datetime(2026, 3, 1, 6, tzinfo=UTC)
MODEL = ModelRef("default", "0001")


def verdict(i: int, decision: Any = "normal", **more: Any) -> Verdict:
    at = T + timedelta(minutes=i)
    return Verdict(
        verdict_id=f"{i:032x}", stream=f"reactor-{i % 3}", sequence=f"B-{i}", decision=decision, reason="marker",
        start_time=at - timedelta(seconds=50), end_time=at, n_samples=50, score=1.0 + i, p_value=0.5, tail="empirical",
        model=MODEL, created_at=at, **more,
    )  # fmt: skip


def messages_of(i: int) -> list[Message]:
    """Return all messages about an anomalous sequence."""
    judged = verdict(i, "anomalous")
    at, stream, sequence = judged.end_time, judged.stream, judged.sequence
    head: dict[str, Any] = {"stream": stream, "sequence": sequence, "created_at": at}
    span: dict[str, Any] = {"start_time": judged.start_time, "end_time": at, "n_samples": 50}
    return [
        judged,
        Alert(
            alert_id=judged.verdict_id, reason="marker", score=1.0 + i, p_value=0.5, false_alarm_rate=0.02,
            tail="empirical", model=MODEL, **head, **span,
        ),
        Attribution(
            alert_id=judged.verdict_id, score=1.0 + i, terms=[], dominating_transformation=0,
            channels=[ChannelShare(channel="temp_c", unit="K", share=1.0)], method="channel-replacement",
            tail="empirical", model=MODEL, **head,
        ),
        Window(
            verdict_id=judged.verdict_id, model=MODEL, channels=["temp_c"], units=["K"], length=3,
            values=packed_values(np.arange(3, dtype=np.float32)[None]), alerted=True, **head, **span,
        ),
        Feedback(alert_id=judged.verdict_id, judgement="false_alarm", note="a", by="kim", created_at=at),
        Feedback(
            alert_id=judged.verdict_id, judgement="confirmed", note="b", by="lee", created_at=at + timedelta(seconds=9)
        ),
    ]  # fmt: skip


def warning_of(i: int, **more: Any) -> EarlyWarning:
    """Return the warning of the sequence of ``verdict(i)``, raised amid it."""
    judged = verdict(i)
    fields: dict[str, Any] = {
        "warning_id": f"{i:032x}".replace("0", "f", 1), "stream": judged.stream, "sequence": judged.sequence,
        "start_time": judged.start_time, "time": judged.start_time + timedelta(seconds=27), "n_points": 27, "age": 0.54,
        "look": 5, "score": 4.2, "p_value": 0.01, "false_alarm_rate": 0.01, "tail": "empirical", "model": MODEL,
        "created_at": judged.start_time + timedelta(seconds=28),
    }  # fmt: skip
    return EarlyWarning(**fields | more)


def reasons_of(warning: EarlyWarning) -> Attribution:
    """Return why ``warning`` was raised."""
    segment = ChannelSegment(
        channel="temp_c", unit="K", start=0.5, end=1.0, start_time=warning.start_time + timedelta(seconds=13),
        end_time=warning.time, direction="above", size=2.0, text="temp_c 2 K above the band from 50 % to 100 %",
    )  # fmt: skip
    return Attribution(
        alert_id=warning.warning_id, stream=warning.stream, sequence=warning.sequence, score=warning.score, terms=[],
        dominating_transformation=0, channels=[ChannelShare(channel="temp_c", unit="K", share=1.0)], segments=[segment],
        method="channel-replacement", tail="empirical", model=warning.model, created_at=warning.created_at,
    )  # fmt: skip
