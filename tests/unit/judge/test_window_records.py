"""Which judged windows are kept, and what their records hold."""

from __future__ import annotations

from base64 import b64decode
from datetime import UTC, datetime
from typing import Any

import msgspec
import numpy as np
import pytest
from msgspec import UNSET

from streamad.ingest.windowing import to_window
from streamad.judge.early.packing import unpacked
from streamad.judge.gate import WindowRecords, is_shown, make_window
from streamad.judge.judging import JudgedSequence
from streamad.judge.scoring import MicroBatcher
from streamad.judge.verdicts import alert_id
from streamad.messages import ModelRef, Verdict, unpacked_values
from streamad.settings.outputs import DisplaySettings
from streamad.testing import ManualClock
from streamad.types import ChannelSpec, FinishedSequence, Position, Window
from tests.support.runtime.pipeline import settings_of

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


@pytest.mark.parametrize(
    ("early", "learning", "has_course"), [({}, {}, True), (None, {}, False), ({}, None, False), (None, None, False)]
)
def test_only_a_learner_that_makes_looks_gets_what_looks_saw(early: Any, learning: Any, has_course: bool) -> None:
    settings = settings_of(alerts={"early": early}, learning=learning, display={"windows": "all"})
    batcher = MicroBatcher(None, ManualClock(), settings.run, name="default")
    values = np.arange(9, dtype=np.float32).reshape(3, 3)
    sequence = FinishedSequence("r", "B-1", "marker", np.arange(3, dtype=np.int64), values, Position(0, 0))
    window = to_window(sequence, settings.window, settings.channel_specs)
    assert isinstance(window, Window)
    record = WindowRecords(settings, batcher).of(JudgedSequence(VERDICT, window=window, model_name="default"), sequence)
    assert record is not None
    assert (record.course is not UNSET) == has_course
    if record.course is not UNSET:
        course = unpacked(b64decode(record.course), unpacked_values(record), settings.window.length)
        assert course.values.tolist() == values[:2].T.tolist(), "no look sees the last sample"
    else:
        assert b"course" not in msgspec.json.encode(record)
