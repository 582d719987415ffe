"""Tables of batches for hypothesis to draw, and as they grow."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from hypothesis import strategies as st

from streamad.ingest.table.rows import BatchTable, Row
from streamad.settings.plant_yaml import SequenceSettings
from tests.support.ingest.assembly_cases import us


@st.composite
def rows(draw: st.DrawFn, *, streams: str = "rst", start: int = 50, most: int = 6, routes: bool = False) -> list[Row]:
    """Draw rows that do not overlap, with and without pauses between; the last one of a stream may have no end."""
    found: list[Row] = []
    for stream in streams:
        at = start + draw(st.integers(0, 10))
        for number in range(draw(st.integers(0, most))):
            at += draw(st.sampled_from([0, 0, 1, 3, 8]))
            end = at + draw(st.sampled_from([1, 2, 5, 9, 20]))
            route = draw(st.sampled_from(["A", "B", None])) if routes else None
            found.append(Row(stream, f"{stream}{number}", at, end, len(found) + 2, route))
            at = end
        if found and found[-1].stream == stream and draw(st.booleans()):
            found[-1] = replace(found[-1], end_us=None)
    return found


def table_of(of: Sequence[Row], *, routes: bool = False) -> BatchTable:
    """Return the table of these rows."""
    return BatchTable("batches.csv", of, gives_routes=routes)


@st.composite
def table_settings(draw: st.DrawFn, *, lateness: bool = True) -> SequenceSettings:
    """Draw settings under which a table cuts the sequences, now and then a limit."""
    return us(
        end=("table",),
        table="batches.csv",
        max_duration=draw(st.sampled_from([4, 15, 40, 400])),
        max_samples=draw(st.sampled_from([3, 8, 1_000])),
        allowed_lateness=draw(st.integers(0, 10)) if lateness else 0,
        closed_memory=draw(st.one_of(st.none(), st.integers(0, 60))),
    )
