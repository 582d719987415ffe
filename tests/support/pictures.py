"""Judged sequences for tests of pictures."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np

from streamad.judge.calibration import Calibration
from streamad.judge.envelope import Envelope
from streamad.messages import Attribution, ChannelSegment, ChannelShare, ModelRef, NearestSequence, TermShare
from streamad.pictures.content import Courses
from streamad.pictures.facts import Facts
from streamad.types import ChannelSpec

START = datetime(2026, 1, 1, 8, tzinfo=UTC)
MODEL = ModelRef("default", "0003")


def facts_of(span_s: float = 60.0, n_samples: int = 30, **changes: Any) -> Facts:
    given: dict[str, Any] = {
        "id": "5f" * 16,
        "stream": "r1",
        "sequence": "B-2",
        "decision": "anomalous",
        "reason": "marker",
        "start_time": START,
        "end_time": START + timedelta(seconds=span_s),
        "n_samples": n_samples,
        "created_at": START,
        "score": 12.5,
        "p_value": 0.01,
        "tail": "empirical",
        "rate": 0.02,
        "model": MODEL,
    }
    return Facts(**given | changes)


def segment_of(channel: str, start: float, end: float, **changes: Any) -> ChannelSegment:
    given: dict[str, Any] = {
        "channel": channel,
        "unit": "K",
        "start": start,
        "end": end,
        "start_time": START,
        "end_time": START,
        "direction": "above",
        "size": 3.1,
        "text": f"{channel} departs",
    }
    return ChannelSegment(**given | changes)


def attribution_of(shares: dict[str, float], *segments: ChannelSegment, **changes: Any) -> Attribution:
    facts = facts_of()
    given: dict[str, Any] = {
        "alert_id": facts.id,
        "stream": facts.stream,
        "sequence": facts.sequence,
        "score": 12.5,
        "terms": [TermShare(transformation=0, term=2.5, calibration_quantile=1.0, member="pca.distance")],
        "dominating_transformation": 0,
        "channels": [ChannelShare(channel=name, unit="K", share=share) for name, share in shares.items()],
        "method": "channel-replacement",
        "tail": "empirical",
        "model": MODEL,
        "created_at": START,
        "nearest": [NearestSequence(sequence="r1/B-0", distance=0.4)],
        "segments": list(segments),
    }
    return Attribution(**given | changes)


def window_of(names: list[str], n: int, length: int | None = None, *, seed: int = 0) -> tuple[Courses, Envelope]:
    """The readings of one sequence of ``n`` points and the envelope of forty like it, padded to ``length``."""
    rng = np.random.default_rng(seed)
    values = np.zeros((40, len(names), length or n), np.float32)
    values[:, :, :n] = rng.normal(np.arange(n), 1.0, (40, len(names), n))
    envelope = Envelope.of(values, np.full(40, n))
    return Courses(tuple(ChannelSpec(name, "K") for name in names), values[0, :, :n], n), envelope


def calibration_of(n: int = 99) -> Calibration:
    return Calibration.from_terms(np.random.default_rng(1).gamma(2.0, 1.0, (n, 3)).astype(np.float32), 0.02)
