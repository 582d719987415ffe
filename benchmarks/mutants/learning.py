"""Mutants of the learner: what is released when, requests, bounds and transactions of its store, reading a file."""

from __future__ import annotations

from benchmarks.mutants.mutant import Mutant, mutant

_SERVICE, _MODEL = "streamad/learn/process/service.py", "streamad/learn/process/model_learner.py"
_INLIERS, _BOUNDS = "streamad/learn/store/inliers.py", "streamad/learn/store/bounds.py"
_TRAININGS, _JOB = "streamad/learn/trainer/trainings.py", "streamad/learn/trainer/job.py"
_SUBSCRIPTION = "connectors/streamad_connectors/files/subscription.py"
_SINK = "connectors/streamad_connectors/files/sink.py"
_SAVED = "streamad/system/saved_progress.py"
_SERVICE_TESTS = "tests/unit/learn/process/test_service.py"
_STORE = "tests/unit/learn/store/"
_INLIERS_TESTS, _LAW = _STORE + "test_inliers.py", _STORE + "test_inliers_law.py"
_CHILD_TESTS = "tests/unit/learn/trainer/test_child.py"
_FILES = "tests/unit/connectors/files/"
_ROTATED = _FILES + "test_output_files.py"
_COMMITTED, _HOLD = _FILES + "test_subscription_committed.py", _FILES + "test_subscription_hold.py"
_TAKEN = "            await self.take(batch)\n            messages.done(one.number for one in batch)\n"

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
        "            messages.done(one.number for one in batch)\n",
        "            messages.done(one.number for one in batch[:1])\n",
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
    mutant(
        "stored-although-another-learner-took-over",
        _SERVICE,
        "            await self._check_ours()\n            await self.take(batch)\n",
        "            await self.take(batch)\n",
        "two learners store, and learn from, the same windows",
        _SERVICE_TESTS + "::test_what_was_read_before_another_learner_took_over_is_not_stored",
    ),
    # --- requests and trainings ---
    mutant(
        "request-answered-twice",
        _TRAININGS,
        "            self._store.answered(status.last.request.id)\n",
        "            pass\n",
        "a learner that was killed after a training trains for the same request again",
        _CHILD_TESTS + "::test_a_request_is_trained_once_and_answered_even_if_the_learner_dies_before_it_knows",
    ),
    mutant(
        "answered-request-asked-again",
        _INLIERS,
        'new = "INSERT OR IGNORE INTO requests (id, model, content) VALUES (?, ?, ?)"',
        'new = "INSERT OR REPLACE INTO requests (id, model, content) VALUES (?, ?, ?)"',
        "a message that is read again trains once more",
        _INLIERS_TESTS,
    ),
    mutant(
        "newest-answers-forgotten",
        _INLIERS,
        "WHERE content IS NULL ORDER BY number DESC LIMIT -1 OFFSET ?",
        "WHERE content IS NULL ORDER BY number LIMIT -1 OFFSET ?",
        "after a thousand requests each one counts again when its message comes again",
        _INLIERS_TESTS,
    ),
    mutant(
        "purge-done-again",
        _INLIERS,
        "            if request_id is not None and not self._add_request(connection, request_id, None):\n"
        "                return 0\n",
        "",
        "a purge whose message is read again deletes what was stored since",
        _INLIERS_TESTS,
    ),
    mutant(
        "training-begun-beside-another",
        _TRAININGS,
        'return read_status(self._registry, self._name).state == "running"',
        "return False",
        "a learner starts a training whose model another process trains, and gets a failure",
        _CHILD_TESTS + "::test_a_training_waits_for_another_process_to_end_and_trains_then",
    ),
    mutant(
        "training-without-its-lock",
        _JOB,
        "        with locked(lock_of(self._training), busy=busy, timeout_s=_LOCK_S):\n",
        "        with suppress():\n",
        "two processes train a model at once, and each overwrites what the other saves",
        _CHILD_TESTS + "::test_a_training_that_cannot_begin_beside_another_says_so",
    ),
    mutant(
        "effort-asked-for-twice",
        _TRAININGS,
        'id=f"effort-{version}"',
        'id=f"effort-{now_us}"',
        "a rollback to the quick first version, or a restart, trains with the configured effort again",
        _CHILD_TESTS + "::test_the_first_training_is_quick_and_one_with_the_configured_effort_follows_once",
    ),
    # --- the store ---
    Mutant(
        "bounds-in-a-transaction-of-their-own",
        _INLIERS,
        (
            (
                "rows)\n            self._enforce_bounds(connection)\n            self._count(connection)\n",
                "rows)\n        with self._writing() as connection:\n            self._enforce_bounds(connection)\n"
                "            self._count(connection)\n",
            ),
        ),
        "a failure between the two leaves more than the bounds allow",
        (_INLIERS_TESTS,),
    ),
    mutant(
        "sequences-of-a-failed-flush-count-as-known",
        _INLIERS,
        "        pending, self._pending = self._pending, {}\n",
        "        pending = self._pending\n",
        "what comes again after a full disk is stored, and drift never sees it",
        _INLIERS_TESTS,
    ),
    mutant(
        "no-transaction",
        _INLIERS,
        '            connection.execute("BEGIN IMMEDIATE")\n            try:\n                yield connection\n'
        '                connection.execute("COMMIT")\n',
        "            try:\n                yield connection\n",
        "each statement is durable on its own, so a failure leaves half of a flush",
        _INLIERS_TESTS,
    ),
    mutant(
        "purged-sequences-come-back",
        _INLIERS,
        '            connection.executemany("INSERT OR IGNORE INTO gone VALUES (?, ?)", chosen)\n',
        "",
        "a purged sequence is stored again when its record comes again",
        _INLIERS_TESTS,
    ),
    mutant(
        "what-was-beyond-comes-back",
        _INLIERS,
        "row[3] == _BEYOND for row in rows",
        "row[3] > _BEYOND for row in rows",
        "a sequence that stayed for its mark alone is trained on once there is room",
        _INLIERS_TESTS,
    ),
    mutant(
        "one-sequence-beyond-the-bound",
        _BOUNDS,
        ">= oldest_us][-bounds.limit :]",
        ">= oldest_us][-bounds.limit - 1 :]",
        "a share holds one sequence more than its bound",
        _LAW,
        _STORE + "test_bounds.py",
    ),
    mutant(
        "oldest-age-excluded",
        _BOUNDS,
        "young = young[times[young] >= oldest_us]",
        "young = young[times[young] > oldest_us]",
        "a sequence exactly max_age old is dropped",
        _LAW,
        _STORE + "test_inliers_bounds.py",
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
    # --- an output in several files ---
    mutant(
        "later-files-outlive-a-cut",
        _SINK,
        "                file.path.unlink()\n",
        "                pass\n",
        "messages of no commit stay in files behind the one that was cut back",
        _ROTATED,
    ),
    mutant(
        "owner-of-the-first-file-alone",
        _SINK,
        "        if claim is not None and claim.inode == full.st_ino:",
        "        if claim is None:",
        "once the first file is deleted, another plant's start cuts off what this one wrote",
        _ROTATED,
    ),
    mutant(
        "file-deleted-that-is-not-read",
        _SUBSCRIPTION,
        "<= later.start <= position\n",
        "<= later.start\n",
        "windows that the learner has not stored are deleted",
        _ROTATED,
    ),
    mutant(
        "young-file-deleted",
        _SUBSCRIPTION,
        ">= until_us:",
        "< until_us:",
        "the page and reports lose the latest windows, and old ones stay",
        _ROTATED,
    ),
    mutant(
        "lines-of-deleted-files-read-again",
        _SUBSCRIPTION,
        "        if holder is None:\n            return True\n",
        "        if holder is None:\n            return False\n",
        "after old files were deleted, their lines count as cut off",
        _ROTATED,
    ),
    mutant(
        "read-anew-after-old-files-went",
        _SUBSCRIPTION,
        "before is not None and first != before and first[0] <= before[0]\n",
        "before is not None and first != before\n",
        "whenever an old file is deleted, all that is left is read again",
        _ROTATED,
    ),
    mutant(
        "deleted-lines-skipped-in-silence",
        _SUBSCRIPTION,
        '        self._lost = self._position, f"',
        '        _ = self._position, f"',
        "windows that were deleted before they were learned from are not named",
        _ROTATED,
    ),
)
