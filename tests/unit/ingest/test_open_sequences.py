"""The open sequences of a stream find what ends next without a look at all of them, and find the same."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from streamad.ingest.sequences.clocks import NEVER_US, Clocks
from streamad.ingest.sequences.open_sequence import OpenSequence
from streamad.ingest.sequences.open_sequences import Earliest, OpenSequences
from streamad.ingest.sequences.runs import Run
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


def samples(first_us: int, n: int, offset: int, *, missing: bool = False, clock_us: int = 0) -> Run:
    values = np.full((n, 2), np.nan if missing else offset, np.float32)
    times_us = np.arange(first_us, first_us + n)
    return Run("A", times_us, values, Position(offset, 0), NOTHING, arrived_us=clock_us)


@given(st.lists(st.tuples(st.sampled_from([0, 1, 3, 31, 32, 300]), st.booleans()), min_size=1, max_size=14))
def test_samples_in_parts_of_any_size_are_kept_in_order(steps: list[tuple[int, bool]]) -> None:
    sequence = OpenSequence(samples(0, 1, 0), partial=False)
    times, rows, given_arrays = list[int](), list[list[float]](), list[tuple[Run, Run]]()
    for offset, (n, missing) in enumerate([(1, False), *steps]):
        run = samples(len(times) if n else len(times) - 1, max(n, 1), offset, missing=missing)
        kept = samples(run.first_us, len(run), offset, missing=missing)
        given_arrays.append((run, kept))
        before = sequence.nbytes
        sequence.append(run)
        if n:
            times += run.times_us.tolist()
            rows += run.values.tolist()
            assert sequence.nbytes > before
        elif not missing:
            rows[-1] = [float(offset)] * 2
        assert (sequence.n, sequence.last_us) == (len(times), times[-1])
        np.testing.assert_array_equal(np.concatenate(sequence.times_us), times)
        np.testing.assert_array_equal(np.concatenate(sequence.values), np.array(rows, np.float32))
    if len(rows) > 1 and np.isnan(rows[-1]).all():
        times.pop()
        rows.pop()
    sequence.drop_bare_marker()
    finished = sequence.finish("s", "marker")
    np.testing.assert_array_equal(finished.times_us, times)
    np.testing.assert_array_equal(finished.values, np.array(rows, np.float32))
    for run, kept in given_arrays:  # arrays that came in records are not ours to change
        np.testing.assert_array_equal(run.values, kept.values)


def test_single_samples_take_little_more_memory_than_their_values() -> None:
    sequence = OpenSequence(samples(0, 1, 0), partial=False)
    for number in range(1_000):
        sequence.append(samples(number, 1, number))
    held = sum(part.base.nbytes for parts in (sequence.times_us, sequence.values) for part in parts)  # type: ignore[union-attr]
    used = 1_000 * (8 + 2 * 4)
    assert used <= held <= sequence.nbytes <= 2 * used + 250 * 5
