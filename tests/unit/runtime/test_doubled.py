"""The law of the bridge: a kill may double records, and with times in them each is in a verdict once all the same.

What a kill doubles are the last records before it: they come again, in order, and then the further ones.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from streamad.testing import ListSource
from tests.support.runtime.pipeline import CHANNELS, START_US, records_of, run_pipeline, settings_of

MODES: dict[str, dict[str, Any]] = {
    "marker": {"end": ["marker", "change"]},
    "change": {"end": ["change"]},
    "gap": {"end": ["gap"], "gap": "3s"},
    "length": {"end": ["length"], "length": 4},
    "late": {"end": ["marker", "change"], "allowed_lateness": "2s"},
}


@st.composite
def recordings(draw: st.DrawFn) -> tuple[list[bytes], list[int], str]:
    """Draw messages of single samples of two streams, the places of kills with how many records come again, a mode."""
    mode = draw(st.sampled_from(sorted(MODES)))
    lanes = [_lane(draw, stream, mode) for stream in ("r1", "r2")]
    messages = []
    while any(lanes):
        lane = draw(st.sampled_from([lane for lane in lanes if lane]))
        messages.append(lane.pop(0))
    doubled = list(range(len(messages)))
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(1, len(doubled)))
        n = draw(st.integers(1, min(at, 12)))
        doubled[at:at] = doubled[at - n : at]
    return messages, doubled, mode


def _lane(draw: st.DrawFn, stream: str, mode: str) -> list[bytes]:
    lane, time_s = [], START_US / 1e6
    for number in range(draw(st.integers(1, 4))):
        n = draw(st.integers(2, 6))
        time_s += 10
        for at in range(n):
            time_s += 1
            values = dict.fromkeys(CHANNELS, float(draw(st.integers(0, 9))))
            message: dict[str, Any] = {"stream": stream, "time": time_s, "values": values}
            if mode not in ("gap", "length"):
                message["sequence"] = f"b-{number}"
            if mode in ("marker", "late") and at == n - 1:
                message["end"] = True
            lane.append(json.dumps(message).encode())
    return lane


def verdicts(messages: list[bytes], mode: str) -> list[tuple[object, ...]]:
    async def judged() -> list[tuple[object, ...]]:
        decode = {"fields": {"sequence": None}} if mode in ("gap", "length") else {}
        plant = settings_of(sequences=MODES[mode], decode=decode)
        run = await run_pipeline(ListSource.of({"p": records_of(messages)}), plant, explains=False)
        fields = ("stream", "sequence", "start_time", "end_time", "n_samples", "score", "decision", "reason")
        return sorted(tuple(str(getattr(each.verdict, name)) for name in fields) for each in run.judged)

    return asyncio.run(judged())


@settings(max_examples=60)
@given(drawn=recordings())
def test_doubled_records_give_the_verdicts_of_single_ones(drawn: tuple[list[bytes], list[int], str]) -> None:
    messages, doubled, mode = drawn
    assert verdicts([messages[at] for at in doubled], mode) == verdicts(messages, mode)
