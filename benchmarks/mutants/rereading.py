"""Mutants of reading again after a restart: what is done, what is undone, ends that no record caused, what was told."""

from __future__ import annotations

from benchmarks.mutants.mutant import Mutant, mutant

_ENDS = "streamad/ingest/sequences/sequence_ends.py"
_JOINING, _JUMPS = "streamad/ingest/sequences/joining.py", "streamad/ingest/sequences/time_jumps.py"
_PROGRESS, _PARTITION = "streamad/ingest/sequences/progress.py", "streamad/ingest/sequences/streams.py"
_ASSEMBLY, _INTAKE = "streamad/ingest/assembly.py", "streamad/ingest/intake.py"
_TESTS = "tests/unit/ingest/"
_EXAMPLES, _LAWS = _TESTS + "test_intake.py", _TESTS + "test_restart_laws.py"
_ASSEMBLY_TESTS = _TESTS + "test_assembly.py"
_FORCED, _WRONG = _TESTS + "test_forced_ends.py", _TESTS + "test_wrong_times.py"

REREADING: tuple[Mutant, ...] = (
    # --- done and undone ---
    mutant(
        "first-undone-record-counts-as-done",
        _ASSEMBLY,
        "        if block.offset < stream.done_below:\n",
        "        if block.offset <= stream.done_below:\n",
        "after a restart the first record of an open sequence is dropped",
        _LAWS,
    ),
    mutant(
        "short-way-takes-done-sequences",
        _JOINING,
        "stream.entries or stream.partial or block.offset < stream.done_below:",
        "stream.entries or stream.partial:",
        "after a restart a whole sequence in one message gets a second verdict once its id is forgotten",
        _TESTS + "test_joining.py",
    ),
    mutant(
        "second-0-of-now-in-the-progress",
        _PROGRESS,
        "second_0_us=clocks.second_0_us,",
        "second_0_us=stream.clocks.second_0_us,",
        "times that restart begin elsewhere when they are read again, and a sequence is judged twice",
        _LAWS,
    ),
    mutant(
        "floor-of-now-in-the-progress",
        _PROGRESS,
        "floor_us=clocks.floor_us,",
        "floor_us=stream.clocks.floor_us,",
        "samples that a flush has released are late when they are read again",
        _LAWS,
    ),
    mutant(
        "sequences-in-flight-count-as-done",
        _PROGRESS,
        "    undone += [(closed.offset, closed.before) for closed in stream.reread.in_flight.values()]\n",
        "",
        "a crash between the end of a sequence and its commit loses the verdict",
        _LAWS,
    ),
    mutant(
        "held-sample-counts-as-done",
        _PROGRESS,
        "    undone += [] if stream.held is None else [(stream.held.position.offset, stream.held.before)]\n",
        "",
        "a restart loses the sample that is held because it lies far ahead",
        _WRONG,
        _LAWS,
    ),
    mutant(
        "late-part-of-a-sequence-counts-as-done",
        "streamad/ingest/sequences/open_sequence.py",
        "        if self.late is not None and self.late.position < self.position:\n"
        "            return self.late.position.offset, self.late.before\n",
        "",
        "a restart forgets that the first samples of a sequence came late: it gets a verdict as if it were whole",
        _WRONG,
        _LAWS,
    ),
    mutant(
        "record-that-ended-a-sequence-counts-as-done",
        _ENDS,
        "        if by is not None and by.position.offset < undone[0]:\n"
        "            undone = by.position.offset, by.before\n",
        "",
        "if the sample that ends a sequence came before it, a restart ends the sequence elsewhere",
        _ASSEMBLY_TESTS,
    ),
    mutant(
        "clock-of-now-in-the-progress",
        _PROGRESS,
        "before_us = clock_us if clocks is None else clocks.partition_us",
        "before_us = clock_us",
        "rereading begins with a clock that later records have moved, so no silence before them ends anything",
        _LAWS,
    ),
    mutant(
        "wrong-time-moves-the-clock-when-read-again",
        _JUMPS,
        "others = [time_us for time_us in times_us.tolist() if time_us not in held]",
        "others = times_us.tolist()",
        "a rejected time far ahead moves the clock of a second reading",
        _WRONG,
        _LAWS,
    ),
    mutant(
        "done-record-moves-the-clock-once",
        _JUMPS,
        "return [*times_us.tolist()]",
        "return sorted(times_us.tolist())[-1:]",
        "a second reading decides on a held sample at the last time of a record, the first did before it",
        _FORCED,
    ),
    # --- forced ends ---
    mutant(
        "forced-end-one-record-late",
        _PROGRESS,
        "self._waiting[-1][0] <= offset:",
        "self._waiting[-1][0] < offset:",
        "an end that no record caused is repeated one record later than it happened",
        _FORCED,
        _LAWS,
    ),
    mutant(
        "forced-ends-in-any-order",
        _PROGRESS,
        "sorted(waiting, key=itemgetter(0))[::-1]",
        "sorted(waiting, key=itemgetter(0))",
        "ends that no record caused are repeated from the last one on",
        _FORCED,
        _LAWS,
    ),
    mutant(
        "memory-ends-another-sequence",
        _ENDS,
        "            if hash_of(sequence.key) == ended:\n",
        "            if ended is not None:\n",
        "if memory is short, all sequences of the stream end, not the largest one",
        _FORCED,
        _LAWS,
    ),
    mutant(
        "wall-clock-end-told-although-implied",
        _PARTITION,
        "record_us >= end.clock_us",
        "record_us > end.clock_us",
        "an end that the next record's time implies stays in the progress",
        _FORCED,
    ),
    # --- what was told before ---
    mutant(
        "last-told-record-counts-as-new",
        _INTAKE,
        "        is_new = record.offset >= self._resume_at\n",
        "        is_new = record.offset >= self._resume_at - 1\n",
        "the last record before a restart is counted, and perhaps told as a dead letter, twice",
        _EXAMPLES,
        _LAWS,
    ),
    mutant(
        "first-new-record-counts-as-told",
        _INTAKE,
        "        is_new = record.offset >= self._resume_at\n",
        "        is_new = record.offset > self._resume_at\n",
        "a dead letter of the first record after a restart is lost",
        _EXAMPLES,
        _LAWS,
    ),
    mutant(
        "late-samples-of-repeated-ends-told-again",
        _INTAKE,
        "        self._set_late_aside(offset - 1, is_new=False, now_us=now_us)\n",
        "        self._set_late_aside(offset - 1, is_new=True, now_us=now_us)\n",
        "late samples that a forced end released are told once more after a restart",
        _FORCED,
        _LAWS,
    ),
    mutant(
        "wall-clock-ends-while-rereading",
        _INTAKE,
        "if self._assembler.clock_us is None or self.is_recovering:",
        "if self._assembler.clock_us is None:",
        "while records are read again, the wall clock ends sequences that the first reading did not",
        _EXAMPLES,
    ),
    mutant(
        "untold-from-the-beginning",
        _INTAKE,
        "tuple((*cut, max(begin, self.next_offset)) for cut, begin in cuts)",
        "tuple((*cut, begin) for cut, begin in cuts)",
        "late samples of a sequence that memory ended amid a second reading are told again after one more restart",
        _FORCED,
        _LAWS,
    ),
    mutant(
        "cursor-of-a-second-reading",
        _INTAKE,
        "if batch.cursor is not None and self.next_offset >= self._resume_at:",
        "if batch.cursor is not None:",
        "a commit amid the second reading of files stores a cursor that lies before its offset",
        _EXAMPLES,
    ),
)
