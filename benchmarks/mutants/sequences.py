"""Mutants of the ends of sequences: limits, markers, closed ids, late entries; and of the clocks behind them."""

from __future__ import annotations

from benchmarks.mutants.mutant import Mutant, mutant

_FOLDER = "streamad/ingest/sequences/"
_ENDS, _OPEN = _FOLDER + "sequence_ends.py", _FOLDER + "open_sequences.py"
_JOINING, _JUMPS = _FOLDER + "joining.py", _FOLDER + "time_jumps.py"
_CLOCKS, _CLOSED = _FOLDER + "clocks.py", _FOLDER + "closed_sequences.py"
_ASSEMBLY, _PARTITION = "streamad/ingest/assembly.py", "streamad/ingest/sequences/streams.py"
_TESTS = "tests/unit/ingest/"
_EXAMPLES, _LAWS = _TESTS + "test_assembly.py", _TESTS + "test_assembly_laws.py"
_RESTARTS = _TESTS + "test_restart_laws.py"
_SHORT, _WRONG = _TESTS + "test_joining.py", _TESTS + "test_wrong_times.py"
_RUNS, _STARTS = _FOLDER + "runs.py", _FOLDER + "relative_times.py"

SEQUENCES: tuple[Mutant, ...] = (
    # --- limits ---
    mutant(
        "max-duration-from-the-last-sample",
        _ENDS,
        "limit_us, n_left = sequence.start_us + settings.max_duration, n_left - sequence.n",
        "limit_us, n_left = sequence.last_us + settings.max_duration, n_left - sequence.n",
        "max_duration counts from the last sample, so a sequence that never pauses never ends",
        _EXAMPLES,
    ),
    mutant(
        "max-samples-one-more",
        _ENDS,
        "sequence.n >= self.settings.max_samples:",
        "sequence.n > self.settings.max_samples:",
        "a sequence takes one sample more than max_samples",
        _EXAMPLES,
    ),
    mutant(
        "length-one-more",
        _ENDS,
        "elif self.settings.length is not None and sequence.n >= self.settings.length:",
        "elif self.settings.length is not None and sequence.n > self.settings.length:",
        "a sequence of exactly `length` samples does not end",
        _EXAMPLES,
    ),
    mutant(
        "gap-forgotten-inside-a-chunk",
        _ENDS,
        "            n = int(gaps.argmax()) + 1 if gaps.any() else n\n",
        "            n = int(gaps.argmax()) + 1 if gaps.all() else n\n",
        "a gap between two samples of one chunk ends nothing",
        _EXAMPLES,
    ),
    mutant(
        "second-sample-at-the-limit-ends",
        _OPEN,
        "        if self.limit_us() >= time_us:",
        "        if self.limit_us() > time_us:",
        "a second sample at the same time, exactly at max_duration, ends the sequence",
        _EXAMPLES,
    ),
    mutant(
        "max-duration-of-many-one-tick-early",
        _OPEN,
        "take_through(time_us - self._max_duration - 1)",
        "take_through(time_us - self._max_duration)",
        "of several open sequences one ends at max_duration, not after it",
        _TESTS + "test_open_sequences.py",
    ),
    mutant(
        "reason-of-an-equal-limit",
        _FOLDER + "open_sequence.py",
        "self.last_us + gap <= self.start_us + settings.max_duration",
        "self.last_us + gap < self.start_us + settings.max_duration",
        "if gap and max_duration end at the same time, the reason is max_duration",
        _EXAMPLES,
    ),
    mutant(
        "short-way-one-sample-too-many",
        _JOINING,
        "n_together > settings.max_samples or (settings.length is not None and n_together >= settings.length)",
        "n_together > settings.max_samples or (settings.length is not None and n_together > settings.length)",
        "the short way takes the last sample of a sequence of fixed length, and nothing ends it",
        _SHORT,
    ),
    mutant(
        "short-way-without-the-gap-of-singles",
        _JOINING,
        "        if gap is not None and time_us - sequence.last_us > gap:\n            break\n",
        "",
        "records taken together join a sequence that a gap has ended",
        _TESTS + "test_singles.py",
    ),
    mutant(
        "short-way-beyond-the-deadline",
        _JOINING,
        "        if now_us > deadline_us:\n            break\n",
        "",
        "records taken together move the clock past the silence of other streams, which do not end in time",
        _TESTS + "test_singles.py",
    ),
    mutant(
        "whole-sequence-of-a-known-id",
        _JOINING,
        "if not _has_plain_times(block) or stream.closed.knows(key, max(clock_us, first_us)):",
        "if not _has_plain_times(block):",
        "a whole sequence in one message gets a second verdict if it comes twice",
        _SHORT,
    ),
    # --- markers and change ---
    mutant(
        "marker-where-none-is-configured",
        _ENDS,
        'nbytes, is_end = sequence.nbytes, run.end and "marker" in self.settings.end',
        "nbytes, is_end = sequence.nbytes, run.end",
        "`end: true` ends a sequence although sequences.end does not name marker",
        _EXAMPLES,
        _LAWS,
    ),
    mutant(
        "bare-marker-alone-removed",
        _FOLDER + "open_sequence.py",
        "if self.n == 1 or not math.isnan(last[0])",
        "if not math.isnan(last[0])",
        "an end mark that is all there is of a sequence leaves a sequence without samples, which cannot be judged",
        _EXAMPLES,
        _LAWS,
    ),
    mutant(
        "change-before-closed",
        _ENDS,
        "        if self._is_closed(run):\n            if self.table is None or not self.table.is_done(run):\n"
        "                self._drop_late(run, closed=True)\n            return\n"
        '        if "change" in self.settings.end:\n            self._end_others(run, "change")\n',
        '        if "change" in self.settings.end:\n            self._end_others(run, "change")\n'
        "        if self._is_closed(run):\n            if self.table is None or not self.table.is_done(run):\n"
        "                self._drop_late(run, closed=True)\n            return\n",
        "a late sample of a closed sequence ends the open one",
        _EXAMPLES,
        _LAWS,
    ),
    # --- closed ids ---
    mutant(
        "closed-memory-one-tick-short",
        _CLOSED,
        "return clock_us <= at_us + self.memory_us",
        "return clock_us < at_us + self.memory_us",
        "an id may recur exactly closed_memory after its end",
        _EXAMPLES,
    ),
    mutant(
        "closed-through-without-its-own-time",
        _CLOSED,
        "run.first_us <= self._through_us",
        "run.first_us < self._through_us",
        "without ids, a sample at the time of the last closed sample begins a new sequence",
        _EXAMPLES,
        _LAWS,
    ),
    mutant(
        "closed-ids-forgotten-while-samples-wait",
        _ENDS,
        "self.closed.forget(min((run.arrived_us for run in self.pending.runs), default=clock_us))",
        "self.closed.forget(clock_us)",
        "a waiting sample of a closed sequence begins it anew if its id is forgotten first",
        _EXAMPLES,
        _LAWS,
    ),
    # --- lost samples ---
    mutant(
        "copy-displaces",
        _RUNS,
        "    return bool(np.count_nonzero((row < later) | (row > later)))\n",
        "    return True\n",
        "an equal copy of a sample counts as lost, so a producer that sends twice makes all sequences unscorable",
        _EXAMPLES,
    ),
    mutant(
        "late-samples-without-an-id-before-the-start",
        _ENDS,
        "run.first_us >= sequence.start_us):",
        "run.first_us >= 0):",
        "late samples of a pause count as lost in the sequence after it",
        _EXAMPLES,
    ),
    # --- times that restart ---
    mutant(
        "time-that-stands-still-restarts",
        _STARTS,
        "if current_us + int(part.times_us[0]) < newest_us else",
        "if current_us + int(part.times_us[0]) <= newest_us else",
        "with end: [restart] a second sample of the same time begins a sequence",
        _TESTS + "test_restarting_times.py",
    ),
    mutant(
        "restart-ends-nothing",
        _ENDS,
        "        if run.restarts:\n            self._restart(run, clock_us)\n",
        "",
        "a sequence before a restart goes on: its samples and those of the next one are one sequence",
        _TESTS + "test_restarting_times.py",
    ),
    # --- late entries ---
    mutant(
        "late-entry-of-a-closed-sequence",
        _ENDS,
        "(sequence is not None or self._is_closed(run)):",
        "sequence is not None:",
        "late samples of a judged sequence give it a second verdict",
        _EXAMPLES,
        _WRONG,
    ),
    mutant(
        "late-entry-stays-behind-its-sequence",
        _ENDS,
        "self.entries.pop(run.sequence, None)",
        "self.entries.get(run.sequence)",
        "a sequence whose first samples came late gets a second verdict, with reason late",
        _WRONG,
    ),
    mutant(
        "late-entries-one-fewer",
        _ENDS,
        "elif len(self.entries) > MAX_LATE_ENTRIES:",
        "elif len(self.entries) >= MAX_LATE_ENTRIES:",
        "the oldest late entry ends one too early",
        _WRONG,
    ),
    # --- watermark and clocks ---
    mutant(
        "sample-at-the-watermark-is-late",
        _ENDS,
        "if watermark_us is not None and run.first_us < watermark_us:",
        "if watermark_us is not None and run.first_us <= watermark_us:",
        "a sample exactly allowed_lateness behind the newest one is dropped as late",
        _EXAMPLES,
    ),
    mutant(
        "floor-instead-of-the-later-one",
        _CLOCKS,
        "return watermark if self.floor_us is None else max(watermark, self.floor_us)",
        "return watermark if self.floor_us is None else self.floor_us",
        "after a silence the watermark stands still, and samples are never late again",
        _EXAMPLES,
        _LAWS,
    ),
    mutant(
        "clock-of-a-silence-forgotten",
        _ENDS,
        'self.close(sequence, "table" if is_over else sequence.limit_reason(self.settings), deadline_us)',
        'self.close(sequence, "table" if is_over else sequence.limit_reason(self.settings))',
        "closed_memory counts from the last sample, not from the end by silence, so an id is forgotten too early",
        _EXAMPLES,
        _LAWS,
    ),
    mutant(
        "silence-without-lateness",
        _CLOCKS,
        "        return end_us + self._settings.allowed_lateness\n",
        "        return end_us\n",
        "silence ends a sequence before its late samples can have come",
        _EXAMPLES,
    ),
    mutant(
        "deadline-by-event-time",
        _CLOCKS,
        "else self.last_record_us + self._settings.allowed_lateness\n",
        "else (self.max_time_us or 0) + self._settings.allowed_lateness\n",
        "the wait for late samples is timed by the stream's event time, not by the partition's record clock",
        _EXAMPLES,
        _LAWS,
    ),
    mutant(
        "record-clock-goes-back",
        _PARTITION,
        "        if self.clock_us is None or record_us > self.clock_us:\n            self.clock_us = record_us\n"
        "            self._run_deadlines(record_us)\n",
        "        self.clock_us = record_us\n        self._run_deadlines(record_us)\n",
        "a record with an earlier time sets the partition's clock back",
        _EXAMPLES,
        _LAWS,
    ),
    mutant(
        "clock-before-the-samples",
        _PARTITION,
        "        self._accept(stream, run)\n        if moves:\n            self._move_by(run.times_us)\n",
        "        if moves:\n            self._move_by(run.times_us)\n        self._accept(stream, run)\n",
        "the last time of a chunk ends its own sequence before its samples are taken",
        _EXAMPLES,
        _LAWS,
    ),
    mutant(
        "clock-passes-over-a-held-sample",
        _PARTITION,
        "in times_us.tolist() if self._jumps.held else (times_us.item(-1),):",
        "in (times_us.item(-1),):",
        "where the clock decides on a held sample depends on how samples are packed into records",
        _LAWS,
    ),
    mutant(
        "sample-accepted-by-the-clock-ends-no-silence",
        _PARTITION,
        "            clocks.last_record_us = max(held.run.arrived_us, clocks.last_record_us or held.run.arrived_us)\n",
        "            clocks.last_record_us = clocks.last_record_us or held.run.arrived_us\n",
        "a stream is forgotten while the id of a sequence that a held sample began is closed, so the id recurs",
        _LAWS,
    ),
    mutant(
        "stream-looked-up-before-the-clock-moves",
        _ASSEMBLY,
        "            partition_before = self._reach_record((block,), record_us)\n"
        "            # Looked up only now: the clock may have made the stream be forgotten.\n"
        "            stream = streams.by_name.get(block.stream)\n",
        "            stream = streams.by_name.get(block.stream)\n"
        "            partition_before = self._reach_record((block,), record_us)\n",
        "the samples of a stream that this record made be forgotten go to its former life, and are lost",
        _EXAMPLES,
        _LAWS,
    ),
    mutant(
        "refused-record-adds-its-stream",
        _ASSEMBLY,
        "        if block.relative:\n"
        "            stream.starts.check(block, record_us, streams.clock_us or 0)\n"
        "        if known is None:\n"
        "            self._admit(stream, block, record_us)\n",
        "        if known is None:\n"
        "            self._admit(stream, block, record_us)\n"
        "        if block.relative:\n"
        "            stream.starts.check(block, record_us, streams.clock_us or 0)\n",
        "a record whose times lie after the year 2200 takes a place of max_streams",
        _EXAMPLES,
    ),
    mutant(
        "late-entries-end-before-waiting-samples",
        _ENDS,
        "        self.flush()\n        table = self.table\n",
        "        table = self.table\n        for entry in list(self.entries.values()):\n"
        "            self.close_late(entry)\n        self.flush()\n",
        "at the end of the input a sequence whose first samples came late, and others wait, gets two verdicts",
        _EXAMPLES,
        _LAWS,
        _WRONG,
    ),
    mutant(
        "waiting-samples-released-after-the-largest-is-chosen",
        _PARTITION,
        "            stream.flush()\n            largest = max(",
        "            largest = max(",
        "if memory is short, a sequence whose samples all wait is not ended, and its memory stays taken",
        _EXAMPLES,
        _TESTS + "test_forced_ends.py",
        _LAWS,
    ),
    mutant(
        "stream-forgotten-before-its-ends-are-collected",
        _PARTITION,
        "        self.collect(stream)\n"
        "        if deadline_us < now_us and stream.held is None and self._overdue is None:\n",
        "        if deadline_us < now_us and stream.held is None and self._overdue is None:\n",
        "the last sequences of a stream that is forgotten are never handed out",
        _EXAMPLES,
        _LAWS,
    ),
    # --- samples far ahead ---
    Mutant(
        "far-ahead-exactly-at-the-limit",
        _JUMPS,
        (
            ("if run.last_us - newest_us <= self.farthest_us:", "if run.last_us - newest_us < self.farthest_us:"),
            ("is_far = run.times_us - before > self.farthest_us", "is_far = run.times_us - before >= self.farthest_us"),
        ),
        "a sample exactly at the limit is held as if its time were wrong",
        (_EXAMPLES,),
    ),
    mutant(
        "accepted-sample-moves-the-clock-with-its-own-record-time",
        _JUMPS,
        "moved_at = offset if held.record_us is None else None",
        "moved_at = offset",
        "read again, an accepted sample moves the clock to an event time although its record had a time of its own",
        _EXAMPLES,
    ),
    mutant(
        "overdue-one-record-early",
        _JUMPS,
        "if self.n_records - oldest.number <= MAX_RECORDS:",
        "if self.n_records - oldest.number < MAX_RECORDS:",
        "a held sample is accepted one record too early",
        _WRONG,
    ),
    # --- records of several blocks, and values that hold ---
    mutant(
        "clocks-before-a-record-for-its-first-block-alone",
        _ASSEMBLY,
        "                self._take_block(stream, block, record_us, before)\n",
        "                now = before if stream is None else stream.clocks.before(streams.clock_us, streams.clock_us)\n"
        "                self._take_block(stream, block, record_us, now)\n",
        "rereading begins a record of several blocks with the clocks of its last one",
        _RESTARTS,
    ),
    mutant(
        "stream-forgotten-within-a-record",
        _ASSEMBLY,
        "        streams.hold_lives()\n",
        "",
        "a stream that ends within a record of several blocks has two lives there, which progress cannot tell apart",
        _RESTARTS,
        _TESTS + "test_several_blocks.py",
    ),
    mutant(
        "late-readings-hold",
        _ENDS,
        "            if accepted is None:\n                return\n            run = accepted\n",
        "            if self.readings is not None:\n"
        "                self.readings.come(late.times_us, late.values, late.position, begins=False)\n"
        "            if accepted is None:\n                return\n            run = accepted\n",
        "what a sequence begins with depends on readings that came late",
        _TESTS + "test_held_readings.py",
        _LAWS,
    ),
)
