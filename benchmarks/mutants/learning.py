"""Mutants of the learner: what is released when, the bounds and transactions of its store, what it reads of a file."""

from __future__ import annotations

from benchmarks.mutants.mutant import Mutant, mutant

_SERVICE, _MODEL = "streamad/learn/process/service.py", "streamad/learn/process/model_learner.py"
_DATABASE, _SAMPLING = "streamad/learn/store/database.py", "streamad/learn/store/sampling.py"
_SUBSCRIPTION = "connectors/streamad_connectors/files/subscription.py"
_SAVED = "streamad/system/saved_progress.py"
_SERVICE_TESTS = "tests/unit/learn/process/test_service.py"
_STORE = "tests/unit/learn/store/"
_DATABASE_TESTS, _DATABASE_LAW = _STORE + "test_database.py", _STORE + "test_database_law.py"
_FILES = "tests/unit/connectors/files/"
_COMMITTED, _HOLD = _FILES + "test_subscription_committed.py", _FILES + "test_subscription_hold.py"
_TAKEN = "            await self.take(batch)\n            subscription.release(len(batch))\n"

LEARNING: tuple[Mutant, ...] = (
    # --- the learner ---
    mutant(
        "released-before-it-is-stored",
        _SERVICE,
        _TAKEN,
        "".join(reversed(_TAKEN.splitlines(keepends=True))),
        "a slice that the store cannot take, or a kill, loses its windows for good",
        _SERVICE_TESTS,
    ),
    mutant(
        "one-message-of-a-slice-released",
        _SERVICE,
        "            subscription.release(len(batch))\n",
        "            subscription.release(1)\n",
        "after a restart almost everything is read again, and what is held grows without bound",
        _SERVICE_TESTS,
    ),
    mutant(
        "slice-not-written",
        _MODEL,
        "        self._store.flush()\n",
        "",
        "a slice is released while it is in memory only",
        _SERVICE_TESTS,
    ),
    mutant(
        "known-sequences-shown-again",
        _MODEL,
        "new = [(one, share) for one, share in sequences if self._store.offer(one, share)]",
        "new = [(one, share) for one, share in sequences if self._store.offer(one, share) or True]",
        "records that come again count twice for the drift monitor",
        _SERVICE_TESTS,
    ),
    mutant(
        "every-share-accepted",
        _SERVICE,
        "append((one, window.share))",
        'append((one, "accepted"))',
        "sequences of the reserve are trained on",
        _SERVICE_TESTS,
    ),
    # --- the store ---
    Mutant(
        "bounds-in-a-transaction-of-their-own",
        _DATABASE,
        (
            (
                "rows)\n            self._enforce_bounds(connection)\n            self._count(connection)\n"
                "        self._pending.clear()\n",
                "rows)\n        with self._writing() as connection:\n            self._enforce_bounds(connection)\n"
                "            self._count(connection)\n        self._pending.clear()\n",
            ),
        ),
        "a failure between the two leaves more than the bounds allow",
        (_DATABASE_TESTS,),
    ),
    mutant(
        "waiting-sequences-forgotten-by-a-failed-flush",
        _DATABASE,
        "            rows = [self._row(one, share, form) for one, share in self._pending.values()]\n",
        "            rows = [self._row(one, share, form) for one, share in self._pending.values()]\n"
        "            self._pending.clear()\n",
        "a full disk loses what was offered",
        _DATABASE_TESTS,
    ),
    mutant(
        "no-transaction",
        _DATABASE,
        '            connection.execute("BEGIN IMMEDIATE")\n            try:\n                yield connection\n'
        '                connection.execute("COMMIT")\n',
        "            try:\n                yield connection\n",
        "each statement is durable on its own, so a failure leaves half of a flush",
        _DATABASE_TESTS,
    ),
    mutant(
        "purged-sequences-come-back",
        _DATABASE,
        '            connection.executemany("INSERT OR IGNORE INTO gone VALUES (?, ?)", chosen)\n',
        "",
        "a purged sequence is stored again when its record comes again",
        _DATABASE_TESTS,
    ),
    mutant(
        "waiting-places-are-read",
        _DATABASE,
        "values: list[str | int] = [self._model, share, _WAITS, self._form]",
        "values: list[str | int] = [self._model, share, _BEYOND, self._form]",
        "sequences that only may enter the reservoir are trained on",
        _DATABASE_LAW,
    ),
    mutant(
        "what-was-beyond-comes-back",
        _DATABASE,
        "row[3] == _BEYOND for row in rows",
        "row[3] == _WAITS for row in rows",
        "a sequence that stayed for its mark alone is trained on once there is room",
        _DATABASE_TESTS,
    ),
    mutant(
        "one-sequence-beyond-the-bound",
        _SAMPLING,
        "        return young[-bounds.limit :], young[-bounds.limit :]\n",
        "        return young[-bounds.limit - 1 :], young[-bounds.limit - 1 :]\n",
        "a share holds one sequence more than its bound",
        _DATABASE_LAW,
        _STORE + "test_sampling.py",
    ),
    mutant(
        "oldest-age-excluded",
        _SAMPLING,
        "young = by_time[times[by_time] >= oldest]",
        "young = by_time[times[by_time] > oldest]",
        "a sequence exactly max_age old is dropped",
        _DATABASE_LAW,
        _STORE + "test_sampling.py",
        _STORE + "test_inliers.py",
    ),
    # --- what is read of a worker's file ---
    mutant(
        "line-behind-the-commit",
        _SUBSCRIPTION,
        "if line.start + line.length <= end]",
        "if line.start <= end]",
        "the first line that no commit covers is learned from, and may be cut off",
        _COMMITTED,
    ),
    mutant(
        "position-behind-what-is-held",
        _SUBSCRIPTION,
        "            position = min(position, self._held[0].resume)\n",
        "            position = min(position, self._held[-1].resume)\n",
        "after a kill the lines that were read and not stored are skipped",
        _HOLD,
    ),
    mutant(
        "newest-lines-released",
        _SUBSCRIPTION,
        "            self._held.popleft()\n",
        "            self._held.pop()\n",
        "the oldest line held is never released, so all comes again",
        _HOLD,
    ),
    mutant(
        "length-of-the-oldest-commit",
        _SAVED,
        "newest = max((lengths for _, lengths in seen.values()), key=lambda each: each.number, default=None)",
        "newest = max((lengths for _, lengths in seen.values()), key=lambda each: -each.number, default=None)",
        "with several partitions only what the oldest of their commits covers is read",
        _COMMITTED,
    ),
    mutant(
        "changed-checkpoint-not-read",
        _SAVED,
        "                identity = there.st_ino, there.st_mtime_ns, there.st_size\n",
        "                identity = 0, 0, there.st_size\n",
        "a commit of the same size is not noticed, and its lines wait for the next one",
        _COMMITTED,
    ),
)
