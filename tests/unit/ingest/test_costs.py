"""What whoever writes a topic can make a record cost: twice the elements, about twice the lines."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import numpy as np
import pytest

from streamad.ingest.decode import Decoder
from streamad.ingest.intake import Intake
from streamad.ingest.sequences.clocks import StreamClocks
from streamad.ingest.sequences.runs import runs_of
from streamad.settings.plant_yaml import SequenceSettings
from streamad.telemetry.metrics import Counters
from streamad.types import Boundary, Record, RecordBatch, SampleBlock
from tests.support.runtime.pipeline import START_US, settings_of

T = 1_772_352_930
FIELDS = {"each": "list", "stream": "unit", "time": "t", "channel": "id", "value": "v"}


def lines_of(function: Callable[[], object]) -> int:
    """Return how many lines run within ``function``, each time round a loop too: unlike its time, always as many."""
    n = 0

    def count(_: FrameType, event: str, __: object) -> Any:
        nonlocal n
        n += event == "line"
        return count

    before = sys.gettrace()
    sys.settrace(count)
    try:
        function()
    finally:
        sys.settrace(before)
    return n


def lines_for(elements: list[dict[str, Any]], lateness: str, **fields: Any) -> int:
    """Return how many lines it takes to read one record with these elements."""
    sequences = {"end": ["change"], "allowed_lateness": lateness, "max_duration": "7d"}
    plant = settings_of(channels=[{"name": "temp"}], decode={"fields": FIELDS | fields}, sequences=sequences)
    intake = Intake("p", plant, Decoder(plant.decode, plant.channels), Counters())
    value = json.dumps({"unit": "R", "list": elements}).encode()
    batch = RecordBatch("p", (Record(0, value),), 1)
    return lines_of(lambda: (intake.take(batch, START_US), intake.end_of_input(START_US)))


@pytest.mark.parametrize("lateness", ["0s", "2d"])
@pytest.mark.parametrize("step", [0, 1, -1])
def test_readings_of_a_tag_between_samples(step: int, lateness: str) -> None:
    def lines(n: int) -> int:
        elements = [{"id": ("B", "temp")[at % 2], "v": at, "t": T + at * step} for at in range(n)]
        return lines_for(elements, lateness, sequence={"tag": "B"})

    assert lines(1_200) < 2.5 * lines(600)


@pytest.mark.parametrize("lateness", ["0s", "2d"])
def test_samples_of_many_sequences_at_one_time(lateness: str) -> None:
    def lines(n: int) -> int:
        elements = [{"id": "temp", "v": at, "t": T, "batch": f"B{at}"} for at in range(n)]
        return lines_for(elements, lateness, sequence="batch")

    assert lines(1_200) < 2.5 * lines(600)


def test_a_record_of_readings_of_a_tag_between_samples() -> None:
    def lines(n: int) -> int:
        boundaries = tuple(Boundary(is_bare=True, names=True, sequence=str(at)) if at % 2 else None for at in range(n))
        values = np.zeros((n, 1), dtype=np.float32)
        block = SampleBlock("R", None, 0, np.arange(n), values, boundaries=boundaries)
        before = StreamClocks(SequenceSettings()).before(None, None)
        return lines_of(lambda: runs_of(block, before, 0))

    assert lines(1_200) < 2.5 * lines(600)
