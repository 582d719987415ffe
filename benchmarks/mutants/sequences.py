"""Mutants of the ends of sequences: limits, markers, closed ids, late entries; and of the clocks behind them."""

from __future__ import annotations

from benchmarks.mutants.mutant import Mutant, mutant

_FOLDER = "streamad/ingest/sequences/"
_ENDS, _OPEN = _FOLDER + "sequence_ends.py", _FOLDER + "open_sequences.py"
_JOINING, _JUMPS = _FOLDER + "joining.py", _FOLDER + "time_jumps.py"
_CLOCKS, _CLOSED = _FOLDER + "clocks.py", _FOLDER + "closed_sequences.py"
_ASSEMBLY, _PARTITION = "streamad/ingest/assembly.py", "streamad/ingest/partition/streams.py"
_TESTS = "tests/unit/ingest/"
_EXAMPLES, _LAWS = _TESTS + "test_assembly.py", _TESTS + "test_assembly_laws.py"
_SHORT, _WRONG = _TESTS + "test_joining.py", _TESTS + "test_wrong_times.py"

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
        _ENDS,
        "sequence.last_us + gap <= sequence.start_us + self.settings.max_duration",
        "sequence.last_us + gap < sequence.start_us + self.settings.max_duration",
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
    Mutant(
        "change-before-closed",
        _ENDS,
        (
            (
                "        if self._is_closed(run):\n            self._drop_late(run, closed=True)\n            return\n"
                '        if "change" in self.settings.end:\n',
                '        if "change" in self.settings.end:\n',
            ),
            (
                '                self.close(other, "change", clock_us, by=run)\n        self._append(run)\n',
                '                self.close(other, "change", clock_us, by=run)\n'
                "        if self._is_closed(run):\n            self._drop_late(run, closed=True)\n            return\n"
                "        self._append(run)\n",
            ),
        ),
        "a late sample of a closed sequence ends the open one",
        (_EXAMPLES, _LAWS),
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
    # --- late entries ---
    mutant(
        "late-entry-of-a-closed-sequence",
        _ENDS,
        "(run.sequence in self.open or self._is_closed(run)):",
        "run.sequence in self.open:",
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
        "self.close(sequence, self._limit_reason(sequence), deadline_us)",
        "self.close(sequence, self._limit_reason(sequence))",
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
        "        self._accept(stream, run)\n        if moves:\n            self.move(run.last_us)\n",
        "        if moves:\n            self.move(run.last_us)\n        self._accept(stream, run)\n",
        "the last time of a chunk ends its own sequence before its samples are taken",
        _EXAMPLES,
        _LAWS,
    ),
    mutant(
        "stream-looked-up-before-the-clock-moves",
        _ASSEMBLY,
        "        if record_us is not None:\n            streams.move(record_us)\n"
        "        # Looked up only now: the move may have made the stream be forgotten.\n"
        "        stream = streams.by_name.get(block.stream)\n",
        "        stream = streams.by_name.get(block.stream)\n"
        "        if record_us is not None:\n            streams.move(record_us)\n",
        "the samples of a stream that this record made be forgotten go to its former life, and are lost",
        _EXAMPLES,
        _LAWS,
    ),
    mutant(
        "refused-record-adds-its-stream",
        _ASSEMBLY,
        "        if block.relative:\n"
        "            check_times(None if known is None else known.starts, block, record_us, streams.clock_us or 0)\n"
        "        stream = known or self._admit(block, record_us)\n",
        "        stream = known or self._admit(block, record_us)\n"
        "        if block.relative:\n"
        "            check_times(None if known is None else known.starts, block, record_us, streams.clock_us or 0)\n",
        "a record whose times lie after the year 2200 takes a place of max_streams",
        _EXAMPLES,
    ),
    mutant(
        "late-entries-end-before-waiting-samples",
        _PARTITION,
        "            stream.flush()\n            for sequence in list(stream.open.values()):\n"
        '                stream.close(sequence, "end_of_input")\n'
        "            for entry in list(stream.entries.values()):\n                stream.close_late(entry)\n",
        "            for entry in list(stream.entries.values()):\n                stream.close_late(entry)\n"
        "            stream.flush()\n            for sequence in list(stream.open.values()):\n"
        '                stream.close(sequence, "end_of_input")\n',
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
        "        self.collect(stream)\n        if deadline_us < now_us and stream.held is None:\n"
        "            self._forget(stream)\n",
        "        if deadline_us < now_us and stream.held is None:\n            self._forget(stream)\n",
        "the last sequences of a stream that is forgotten are never handed out",
        _EXAMPLES,
        _LAWS,
    ),
    # --- samples far ahead ---
    mutant(
        "far-ahead-exactly-at-the-limit",
        _JUMPS,
        "if newest_us is None or time_us - newest_us <= self.farthest_us:",
        "if newest_us is None or time_us - newest_us < self.farthest_us:",
        "a sample exactly at the limit is held as if its time were wrong",
        _EXAMPLES,
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
)
