"""What may come to the assembler: any settings and any records, for hypothesis to draw."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from streamad.settings.plant_yaml import SequenceSettings
from tests.support.ingest.assembly_model import Record


def us(**limits: Any) -> SequenceSettings:
    """Return settings whose durations are given in ticks of 1 µs."""
    durations = ("gap", "max_duration", "allowed_lateness", "closed_memory")
    ticks = {key: f"{value}us" if key in durations and value is not None else value for key, value in limits.items()}
    return SequenceSettings(**ticks)


ROWS = st.sampled_from([(1.0, 2.0), (3.0, None), (None, 4.0), (None, None)])


@st.composite
def sequence_settings(draw: st.DrawFn, *, gap: bool = True, lateness: bool = True, memory: bool = True) -> Any:
    modes = ["marker", "change", "length"] + (["gap"] if gap else [])
    end = draw(st.sets(st.sampled_from(modes), min_size=1))
    return us(
        end=tuple(sorted(end)),
        gap=draw(st.integers(0, 12)) if "gap" in end else None,
        length=draw(st.integers(1, 5)) if "length" in end else None,
        max_duration=draw(st.integers(0, 40)),
        max_samples=draw(st.integers(1, 8)),
        allowed_lateness=draw(st.integers(0, 10)) if lateness else 0,
        closed_memory=draw(st.one_of(st.none(), st.integers(0, 60))) if memory else None,
    )


WRONG = st.sampled_from([-50, -20, 30, 90, 200])


@st.composite
def arrivals(
    draw: st.DrawFn,
    *,
    streams: str = "rst",
    clock: str | None = None,
    longest: int = 3,
    most: int = 24,
    routes: str = "ABCDE",
) -> list[Record]:
    """Draw records: event times wander about a common time; record times are missing, one and the same, or rise.

    They carry no route, one, or several of ``routes``. Now and then a time is wrong.
    """
    deltas = st.integers(-8, 8)
    clock = clock or draw(st.sampled_from(["none", "constant", "rising", "rising"]))
    ids = draw(st.sampled_from([[None], ["A", "B"], ["A", "B", "C", None]]))
    route = st.sampled_from(draw(st.sampled_from([[None], [routes[0]], [None, *routes]])))
    steps = st.tuples(
        st.sampled_from(streams),
        st.sampled_from(ids),
        st.lists(st.tuples(deltas | deltas | deltas | WRONG, ROWS), min_size=1, max_size=longest),
        st.sampled_from([False, False, False, True]),
        st.sampled_from([0, 0, 1, 2, 3, 8, 20]),
        st.sampled_from([0, 0, 1, 5, 30]),
        route,
    )
    records, event_us, record_us = [], 60, 60
    for stream, key, samples, end, forward, lag, value in draw(st.lists(steps, min_size=1, max_size=most)):
        event_us += forward
        record_us = max(record_us, event_us) + lag if clock == "rising" else record_us
        records.append(
            Record(
                stream,
                key,
                tuple(event_us + delta for delta, _ in samples),
                tuple(row for _, row in samples),
                end,
                None if clock == "none" else record_us,
                value,
            )
        )
    return records
