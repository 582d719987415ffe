"""Mutants of looks at running sequences: when they are due, by which version, and what a restart knows of them."""

from __future__ import annotations

from benchmarks.mutants.mutant import Mutant, mutant

_LOOKING, _COURSE = "streamad/judge/early/looking.py", "streamad/judge/early/course.py"
_JUDGING = "streamad/judge/judging.py"
_PROGRESS, _CLOSED = "streamad/ingest/sequences/progress.py", "streamad/ingest/sequences/closed_sequences.py"
_TESTS = "tests/unit/runtime/test_looks.py"
_COURSE_TESTS, _SAVED_TESTS = "tests/unit/judge/early/test_course.py", "tests/unit/ingest/test_looks_saved.py"

LOOKS: tuple[Mutant, ...] = (
    # --- when ---
    mutant(
        "newest-sample-seen",
        _COURSE,
        "        return n_samples - 1\n",
        "        return n_samples\n",
        "a look is due one point early, and a sample that still comes changes what it has seen",
        _COURSE_TESTS,
        _TESTS,
    ),
    mutant(
        "point-at-the-newest-sample-seen",
        _COURSE,
        "min(-(-span_us // settings.resample.period), MAX_GRID_POINTS)",
        "min(span_us // settings.resample.period + 1, MAX_GRID_POINTS)",
        "on a grid a look is due at the time of its last point, where another sample may still come",
        _COURSE_TESTS,
    ),
    mutant(
        "beginning-not-seen-looked-at",
        _LOOKING,
        "    return not sequence.partial and sequence.late is None and not sequence.is_torn\n",
        "    return sequence.late is None and not sequence.is_torn\n",
        "a sequence whose beginning was missed is warned of, because its ages are wrong",
        _TESTS,
    ),
    mutant(
        "told-although-it-ended-meanwhile",
        _LOOKING,
        "        if seen is not None and stream.open.get(sequence.key) is sequence:\n",
        "        if seen is not None:\n",
        "a sequence that ends while a look at it is scored is warned of twice, once after its verdict",
        _TESTS,
    ),
    mutant(
        "warning-after-its-verdict",
        _JUDGING,
        '            records.append(OutputRecord("attributions", key, self.attribution))\n        return records\n',
        '            records.append(OutputRecord("attributions", key, self.attribution))\n'
        "        if self.seen is not None:\n"
        "            records = [*records[len(self.seen.outputs) :], *self.seen.outputs]\n        return records\n",
        "a reader meets a verdict that names a warning which it does not know",
        _TESTS,
    ),
    # --- by which version, and what is a warning ---
    mutant(
        "looks-by-the-version-in-service",
        _LOOKING,
        "        if looks is None or looks.model == served.ref:\n",
        "        if looks is None or served.early is not None:\n",
        "after a promotion the p-value mixes the scales of two versions",
        _TESTS,
    ),
    mutant(
        "p-at-the-rate-does-not-warn",
        _LOOKING,
        "early.p_value(largest)[0] <= self._rate:",
        "early.p_value(largest)[0] < self._rate:",
        "with few calibration sequences, whose least p-value is the rate, nothing is ever warned of",
        _TESTS,
    ),
    mutant(
        "newest-look-counts-alone",
        _LOOKING,
        "            largest = max(largest, float(",
        "            largest = (float(",
        "the p-value of a running sequence rises again once later looks find less",
        _TESTS,
    ),
    mutant(
        "warned-of-again",
        _LOOKING,
        "        largest, warned, maxima = taken.largest, taken.warning, list[float]()\n",
        "        largest, warned, maxima = taken.largest, None, list[float]()\n",
        "each later look at an odd sequence repeats its warning",
        _TESTS,
    ),
    # --- what a restart knows ---
    mutant(
        "looks-in-no-commit",
        _LOOKING,
        "            intake.looked_at(name)\n",
        "",
        "a warning is committed without the looks that raised it, and a restart repeats it",
        _TESTS + "::test_a_model_that_comes_amid_a_sequence_takes_all_its_looks",
    ),
    mutant(
        "looks-at-ended-sequences-not-saved",
        _PROGRESS,
        "        for each in life.reread.in_flight.values()\n    }\n    former =",
        "        for each in life.reread.in_flight.values()\n        if each.looks is None\n    }\n    former =",
        "a crash between the end of a sequence and its verdict repeats its warning",
        _SAVED_TESTS,
    ),
    mutant(
        "looks-lost-amid-rereading",
        _PROGRESS,
        "    former = lives if is_rereading else ()\n",
        "    former = ()\n",
        "a second restart before a sequence has begun again repeats its warning",
        _SAVED_TESTS,
    ),
    mutant(
        "warning-not-in-the-progress",
        _PROGRESS,
        "    looks |= {key: found for key, found in taken.items() if found is not None}\n",
        "    looks |= {\n        key: msgspec.structs.replace(found, warning=None)\n"
        "        for key, found in taken.items() if found is not None\n    }\n",
        "after a restart a sequence is warned of again, and its verdict names another warning",
        _TESTS,
    ),
    mutant(
        "looks-of-the-former-use-of-an-id",
        _CLOSED,
        '    return f"{hash_of(key)}@{start_us}"\n',
        '    return f"{hash_of(key)}@"\n',
        "two sequences that share their id share their looks, and the second is not looked at",
        _SAVED_TESTS,
    ),
    mutant(
        "looks-of-another-sequence",
        _CLOSED,
        "        return self.looks.get(looks_key(run.sequence, run.first_us)) if self.looks else None\n",
        "        return next(iter(self.looks.values()), None)\n",
        "after a restart a sequence goes on with the largest z of another one",
        _TESTS,
    ),
)
