"""What may come to the assembler: any settings and any records, for hypothesis to draw."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import strategies as st

from streamad.settings.plant_yaml import SequenceSettings
from tests.support.ingest.assembly_model import Record


def us(**limits: Any) -> SequenceSettings:
    """Return settings whose durations are given in ticks of 1 µs."""
    durations = ("gap", "max_duration", "allowed_lateness", "closed_memory")
    ticks = {key: f"{value}us" if key in durations and value is not None else value for key, value in limits.items()}
    return SequenceSettings(**ticks)


ROWS = st.sampled_from([(1.0, 2.0), (3.0, None), (None, 4.0), (None, None), (5.0, None), (None, 6.0)])
HOLDS = st.sampled_from([{0: "x"}, {1: "y"}, {0: "x", 1: "y"}])
"""Channels whose values hold."""


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


@st.composite
def restarting_settings(draw: st.DrawFn) -> SequenceSettings:
    """Draw settings under which a time below the one before begins a sequence."""
    more = draw(st.sampled_from([(), (), ("marker",), ("change",), ("gap",), ("length",), ("change", "marker")]))
    return us(
        end=("restart", *more),
        gap=draw(st.integers(3, 12)) if "gap" in more else None,
        length=draw(st.integers(1, 5)) if "length" in more else None,
        max_duration=draw(st.sampled_from([3, 10, 2_000_000])),
        max_samples=draw(st.sampled_from([2, 5, 1_000])),
        closed_memory=draw(st.one_of(st.none(), st.integers(0, 60))),
    )


@st.composite
def restarting(
    draw: st.DrawFn, *, streams: str = "rs", most: int = 20, farthest: int = 3_000_000, clock: str | None = None
) -> list[Record]:
    """Draw records with relative times, which count on, stand still, begin anew or, up to ``farthest``, jump ahead.

    An end mark belongs to the last sample of its record. Without record times there is one stream.
    """
    clock = clock or draw(st.sampled_from(["none", "constant", "rising"]))
    names = streams[:1] if clock == "none" else streams
    ids = draw(st.sampled_from([[None], [None], ["A"], ["A", "B", None]]))
    step = st.sampled_from([1, 1, 1, 2, 3, 0, -1, -4, None, *([farthest] if farthest > 3 else [])])
    record = st.tuples(
        st.sampled_from(names),
        st.sampled_from(ids),
        st.lists(step, min_size=1, max_size=4),
        st.sampled_from([False, False, False, True]),
        st.sampled_from([0, 1, 5, 30]),
    )
    last = dict.fromkeys(names, 0)
    records, record_us, number = [], 60, 0
    for stream, key, steps, end, lag in draw(st.lists(record, min_size=1, max_size=most)):
        times, rows = [], []
        for forward in steps:
            last[stream] = 0 if forward is None else max(0, last[stream] + forward)
            times.append(last[stream])
            number += 1
            rows.append((float(number), draw(st.sampled_from([None, 1.0]))))
        record_us += lag if clock == "rising" else 0
        own_us = None if clock == "none" else record_us
        records.append(Record(stream, key, tuple(times), tuple(rows), end, own_us))
    return records


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


@st.composite
def together(draw: st.DrawFn, arriving: st.SearchStrategy[list[Record]], *, most: int = 4) -> list[list[Record]]:
    """Draw records of up to ``most`` blocks: messages that follow each other and have the same record time."""
    found: list[list[Record]] = []
    for record in draw(arriving):
        last = found[-1] if found else []
        if last and len(last) < most and last[0].record_us == record.record_us and draw(st.booleans()):
            found[-1] = [*last, replace(record, first=last[-1].first + len(last[-1].times))]
        else:
            found.append([record])
    return found


@st.composite
def orderly_settings(draw: st.DrawFn) -> SequenceSettings:
    """Draw settings under which orderly records go the short ways, now and then up to a limit."""
    end = draw(st.sampled_from([("marker",), ("marker", "change"), ("marker",), ("gap", "marker"), ("length",)]))
    return us(
        end=end,
        gap=draw(st.integers(3, 12)) if "gap" in end else None,
        length=draw(st.integers(4, 9)) if "length" in end else None,
        max_duration=draw(st.integers(20, 200)),
        max_samples=draw(st.integers(6, 40)),
        closed_memory=draw(st.one_of(st.none(), st.integers(0, 200))),
    )


@st.composite
def orderly(draw: st.DrawFn, *, streams: str = "rs", most: int = 24, routes: str = "AB") -> list[Record]:
    """Draw records whose times rise; now and then one time is an old one, an equal one or a wrong one."""
    clock = draw(st.sampled_from(["none", "constant", "rising", "rising"]))
    ids = draw(st.sampled_from([["A", "B"], ["A", "B", "C", None], [f"I{number}" for number in range(40)]]))
    step = st.sampled_from([1] * 16 + [2, 3, 0, -3, 9, 300])
    samples = st.lists(st.tuples(step, st.just((1.0, 2.0)) | st.just((1.0, 2.0)) | ROWS), min_size=1, max_size=3)
    route = st.sampled_from(draw(st.sampled_from([[None], [routes[0]], [routes[0]] * 9 + [None, *routes]])))
    end, is_same = st.sampled_from([False, False, True]), st.sampled_from([True, True, False])
    steps = st.tuples(st.sampled_from(streams), st.sampled_from(ids), samples, end, is_same, route)
    records: list[Record] = []
    event_us = record_us = 60
    for stream, key, values, end, is_same, value in draw(st.lists(steps, min_size=6, max_size=most)):
        if is_same and records and not records[-1].end:  # the sequence goes on
            stream, key, value = records[-1].stream, records[-1].sequence, records[-1].route  # noqa: PLW2901
        times = []
        for forward, _ in values:
            times.append(event_us + forward)
            event_us += forward if 0 <= forward < 100 else 1
        record_us = max(record_us, event_us) if clock == "rising" else record_us
        own_us = None if clock == "none" else record_us
        records.append(Record(stream, key, tuple(times), tuple(row for _, row in values), end, own_us, value))
    return records
