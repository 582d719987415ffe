"""Which judged windows are kept, and what their records hold."""

from __future__ import annotations

from datetime import UTC, datetime

import numpy as np
import pytest

from streamad.judge.gate import is_shown, make_window
from streamad.judge.verdicts import alert_id
from streamad.messages import ModelRef, Verdict, unpacked_values
from streamad.settings.outputs import DisplaySettings
from streamad.types import ChannelSpec, Position, Window

WINDOW = Window(np.arange(12, dtype=np.float32).reshape(3, 4), 2)
CHANNELS = (ChannelSpec("temp", "°C"), ChannelSpec("pressure", "bar"), ChannelSpec("ph", ""))
ALERTS, ALL = DisplaySettings(), DisplaySettings(windows="all")
AT = datetime(2026, 3, 1, tzinfo=UTC)
VERDICT = Verdict(
    verdict_id="v",
    stream="r",
    sequence="B-1",
    decision="anomalous",
    reason="marker",
    start_time=AT,
    end_time=AT,
    n_samples=2,
    score=7.5,
    p_value=0.001,
    model=ModelRef("default", "0002"),
    created_at=AT,
)


def test_windows_of_a_twentieth_of_the_normal_sequences_are_shown_by_their_id_alone() -> None:
    ids = [alert_id("s", str(number), Position(0, 0), 0) for number in range(20_000)]
    drawn = {each for each in ids if is_shown(each, alerted=False, display=ALERTS)}
    assert len(drawn) == pytest.approx(1_000, abs=100)
    assert all(is_shown(each, alerted=True, display=ALERTS) for each in ids[:50])
    assert all(is_shown(each, alerted=False, display=ALL) for each in ids[:50])


def test_a_record_holds_the_points_of_the_sequence_in_the_order_of_the_channels() -> None:
    record = make_window(VERDICT, WINDOW, CHANNELS)
    assert (record.channels, record.units) == (["temp", "pressure", "ph"], ["°C", "bar", ""])
    assert (record.length, record.alerted) == (2, True)
    assert unpacked_values(record).tolist() == [[0, 1], [4, 5], [8, 9]]


def test_a_record_holds_all_of_its_verdict_that_learning_uses() -> None:
    record = make_window(VERDICT, WINDOW, CHANNELS, "aside")
    assert (record.share, record.decision, record.score, record.p_value) == ("aside", "anomalous", 7.5, 0.001)
    assert (record.verdict_id, record.stream, record.sequence) == ("v", "r", "B-1")
    assert (record.end_time, record.model) == (AT, ModelRef("default", "0002"))
    assert make_window(VERDICT, WINDOW, CHANNELS).share is None
