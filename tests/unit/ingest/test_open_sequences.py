"""The open sequences of a stream find what ends next without a look at all of them, and find the same."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from streamad.ingest.sequences.closed_ids import NEVER_US
from streamad.ingest.sequences.earliest import Earliest
from streamad.ingest.sequences.open_sequence import OpenSequence
from streamad.ingest.sequences.open_sequences import OpenSequences
from streamad.ingest.sequences.runs import Clocks, Run
from streamad.settings.plant_yaml import SequenceSettings
from streamad.types import Position
from tests.support.ingest.assembly_cases import us

NOTHING = Clocks(None, None, None, None, None)


class Scanned:
    """The same answers, by a look at all open sequences."""

    def __init__(self, limits: SequenceSettings, sequences: list[OpenSequence]) -> None:
        self.limits, self.sequences = limits, sequences

    def limit_of(self, sequence: OpenSequence, apart: OpenSequence | None = None) -> int:
        limit_us = sequence.start_us + self.limits.max_duration
        if self.limits.gap is None or sequence is apart:
            return limit_us
        return min(limit_us, sequence.last_us + self.limits.gap)

    def limit_us(self, apart: OpenSequence | None) -> int:
        return min((self.limit_of(each, apart) for each in self.sequences), default=NEVER_US)

    def overdue(self, time_us: int) -> list[OpenSequence]:
        return [each for each in self.sequences if self.limit_of(each) < time_us]


def run_of(key: str | None, time_us: int, offset: int, clock_us: int) -> Run:
    times_us, values = np.array([time_us]), np.ones((1, 2), np.float32)
    return Run(key, times_us, values, Position(offset, 0), NOTHING, arrived_us=clock_us)


@given(st.sampled_from([None, 4]), st.data())
def test_every_answer_is_that_of_a_look_at_all(gap: int | None, data: st.DataObject) -> None:
    modes = ("marker",) if gap is None else ("marker", "gap")
    limits = us(end=modes, gap=gap, max_duration=9)
    found, known, time_us = OpenSequences(limits), dict[str | None, OpenSequence](), 0
    for offset in range(data.draw(st.integers(1, 25))):
        time_us += data.draw(st.integers(0, 3))
        overdue = Scanned(limits, list(known.values())).overdue(time_us)
        taken = found.take_overdue(time_us)
        silent_us = data.draw(st.integers(-1, time_us))
        if not overdue and data.draw(st.booleans()):
            overdue = [each for each in known.values() if each.since_us <= silent_us]
            taken = found.take_silent(silent_us)
        assert taken == overdue
        for sequence in taken:
            found.remove(sequence)
            del known[sequence.key]
        key = data.draw(st.sampled_from([None, "A", "B", "C", "D"]))
        run = run_of(key, time_us, data.draw(st.integers(0, offset)), time_us + data.draw(st.integers(0, 5)))
        if key not in known:
            known[key] = OpenSequence(run, partial=False)
            found.add(known[key])
        nbytes = known[key].nbytes
        known[key].append(run)
        found.grew(known[key], nbytes)

        every = list(known.values())
        assert list(found) == list(found.keys()) == list(known)
        assert list(found.values()) == every
        assert found.nbytes == sum(sequence.nbytes for sequence in every)
        assert found.first_since_us == min(sequence.since_us for sequence in every)
        lowest = min(sequence.undone_from[0] for sequence in every)
        assert found.undone_from is not None
        assert found.undone_from[0] == lowest
        for apart in [None, *every] if len(every) > 1 else [None]:
            assert found.limit_us(apart) == Scanned(limits, every).limit_us(apart)


@given(st.lists(st.tuples(st.sampled_from("abcd"), st.integers(-1, 5)), max_size=300))
def test_the_first_is_the_smallest_of_what_is_there(steps: list[tuple[str, int]]) -> None:
    found, known = Earliest(), dict[str, int]()
    for key, value in steps:
        if value < 0:
            found.discard(key)
            known.pop(key, None)
        else:
            found.put(key, value)
            known[key] = value
        assert found.first() == min(((value, key) for key, value in known.items()), default=None)
        assert len(found) == len(known)
    assert sorted(found.take_through(2)) == sorted(key for key, value in known.items() if value <= 2)
    assert found.first() == min(((value, key) for key, value in known.items() if value > 2), default=None)
