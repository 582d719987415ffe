"""Messages about sequences, as a plant's outputs hold them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np

from streamad.messages import (
    Alert,
    Attribution,
    ChannelShare,
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
