"""What may come to the assembler where states, words or tags say where sequences begin: for hypothesis to draw."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import strategies as st

from streamad.settings.boundaries import BoundaryRules
from streamad.settings.plant_yaml import SequenceSettings
from streamad.types import OUTSIDE, Boundary
from tests.support.ingest.assembly_cases import ROWS, us
from tests.support.ingest.assembly_model import Record

BY_FIELD, BY_BEGIN = BoundaryRules(), BoundaryRules(by_begin=True)
BY_TAG, BY_ID_TAG, BY_TAGS = BoundaryRules(by_tag=True), BoundaryRules(by_id_tag=True), BoundaryRules(True, False, True)
RULES = (BY_FIELD, BY_BEGIN, BY_TAG, BY_ID_TAG, BY_TAGS)


@st.composite
def boundary_settings(draw: st.DrawFn, rules: BoundaryRules) -> SequenceSettings:
    """Draw settings that go with ``rules``; limits that seldom end a sequence before a state or a word does."""
    modes = [("marker",), ("marker", "change"), ("marker", "gap"), ("marker", "length"), ("change",), ("length",)]
    end = draw(st.sampled_from(modes[:4] if rules.by_begin else modes))
    return us(
        end=end,
        gap=draw(st.integers(4, 12)) if "gap" in end else None,
        length=draw(st.integers(2, 6)) if "length" in end else None,
        max_duration=draw(st.sampled_from([12, 60, 60])),
        max_samples=draw(st.sampled_from([4, 30, 30])),
        allowed_lateness=draw(st.sampled_from([0, 0, 3, 8])),
        closed_memory=draw(st.sampled_from([None, 0, 20])),
        without_id="keep" if rules.by_begin else draw(st.sampled_from(["keep", "keep", "skip"])),
    )


@st.composite
def bounded(
    draw: st.DrawFn, rules: BoundaryRules, *, most: int = 24, longest: int = 3, clock: str | None = None
) -> list[Record]:
    """Draw records whose times mostly rise, and which now and then say what ``rules`` are about."""
    clock = clock or draw(st.sampled_from(["none", "constant", "rising", "rising"]))
    ids = [None] if rules.by_tag or rules.by_id_tag else draw(st.sampled_from([[None], ["A"], ["A", "B", None]]))
    step = st.sampled_from([1, 1, 1, 2, 3, 0, -2, 7, *([-9, 90] if draw(st.booleans()) else [])])
    steps = st.tuples(
        st.sampled_from(draw(st.sampled_from(["r", "rs"]))),
        st.sampled_from(ids),
        st.lists(st.tuples(step, ROWS), min_size=1, max_size=longest),
        st.sampled_from([False, False, False, True]),
        st.sampled_from([0, 0, 1, 30]),
        st.sampled_from(draw(st.sampled_from([[None], [None, "A", "B"]]))),
    )
    records: list[Record] = []
    event_us = record_us = 60
    for stream, key, samples, end, lag, route in draw(st.lists(steps, min_size=1, max_size=most)):
        times = []
        for forward, _ in samples:
            times.append(event_us + forward)
            event_us += max(0, forward if forward < 50 else 0)
        record_us = max(record_us, event_us) + lag if clock == "rising" else record_us
        own_us = None if clock == "none" else record_us
        record = Record(stream, key, tuple(times), tuple(row for _, row in samples), end, own_us, route)
        records.append(draw(_with_boundaries(record, rules)))
    return records


@st.composite
def _with_boundaries(draw: st.DrawFn, record: Record, rules: BoundaryRules) -> Record:
    n = len(record.times)
    if rules == BY_FIELD:
        bare = Boundary(is_bare=True, state=False)
        states = draw(st.lists(st.sampled_from([None, None, None, OUTSIDE, OUTSIDE, bare]), min_size=n, max_size=n))
        rows = tuple((None, None) if each == bare else row for each, row in zip(states, record.rows, strict=True))
        return replace(record, boundaries=tuple(states) if any(states) else None, rows=rows)
    if rules.by_begin:
        return draw(_with_words(record))
    record = replace(record, end=record.end and not rules.by_id_tag)
    kinds = [*[Boundary(is_bare=True, state=True)] * 3, Boundary(is_bare=True, state=False)] * rules.by_tag
    keys = ["A", "B", "B", None] * rules.by_id_tag
    kinds += [Boundary(is_bare=True, names=True, sequence=key) for key in keys]
    found = draw(st.lists(st.sampled_from([*[None] * 2 * len(kinds), *kinds]), min_size=n, max_size=n))
    if not any(found):
        return record
    rows = tuple((None, None) if each is not None else row for each, row in zip(found, record.rows, strict=True))
    return replace(record, boundaries=tuple(found), rows=rows, route=None, end=False)


@st.composite
def _with_words(draw: st.DrawFn, record: Record) -> Record:
    n, key = len(record.times), draw(st.sampled_from([record.sequence, None, None]))
    kind = draw(st.sampled_from(["none", "none", "begin", "begin", "end", "both", "bare begin", "bare end"]))
    if "bare" in kind:
        boundary = Boundary(is_bare=True, begins="begin" in kind, ends="end" in kind)
        rows = ((None, None),)
        key = draw(st.sampled_from([key, "A", "B"]))
        return replace(
            record, sequence=key, times=record.times[:1], rows=rows, end=boundary.ends, boundaries=(boundary,)
        )
    record = replace(record, sequence=key, end=kind in ("end", "both"))
    begins = kind in ("begin", "both")
    if not (begins or record.end):
        return record
    first = min(range(n), key=lambda at: (record.times[at], at)) if begins else None
    found = [
        Boundary(begins=at == first, ends=at == record.end_at) if at in (first, record.end_at) else None
        for at in range(n)
    ]
    return replace(record, boundaries=tuple(found))
