"""The event about streams above ``max_streams``: at once, then once an hour, and no record is left uncounted."""

from __future__ import annotations

import re
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from streamad.ingest.dead_letters import RefusedStreams

HOUR_US = 3_600_000_000


def test_the_first_record_is_told_at_once_and_the_next_after_an_hour() -> None:
    refused = RefusedStreams(2)
    assert refused.take(0) is None
    refused.note("stream 'c' would be one more than max_streams")
    told = refused.take(5)
    assert told is not None
    assert told.startswith("1 record of further streams refused: sequences.max_streams is 2 (stream 'c' would")
    assert refused.take(2 * HOUR_US) is None
    refused.note("d")
    refused.note("e")
    assert refused.take(4 + HOUR_US) is None
    told = refused.take(5 + HOUR_US)
    assert told is not None
    assert told.startswith("2 records of further streams refused: sequences.max_streams is 2 (d)")


@given(st.lists(st.tuples(st.integers(0, HOUR_US), st.integers(0, 3))))
def test_texts_are_an_hour_apart_and_their_counts_add_up(steps: list[tuple[int, int]]) -> None:
    refused, now_us, told_us, n_told = RefusedStreams(1), 0, [], 0
    for after_us, n in [*steps, (HOUR_US, 0)]:
        now_us += after_us
        for _ in range(n):
            refused.note("x")
        if text := refused.take(now_us):
            told_us.append(now_us)
            n_told += int(text.split()[0])
            assert re.match(r"[0-9]+ records? of", text)
    assert all(later - earlier >= HOUR_US for earlier, later in pairwise(told_us))
    assert n_told == sum(n for _, n in steps)
