"""Mutants of the gate, the order of verdicts, and the local commit: what is written, synced and renamed when."""

from __future__ import annotations

from benchmarks.mutants.mutant import Mutant, mutant

_GATE, _PARTITION = "streamad/judge/gate.py", "streamad/runtime/partition.py"
_PIPELINE, _CHECKPOINT = "streamad/runtime/pipeline.py", "streamad/runtime/checkpoint.py"
_SAVED, _FILES = "streamad/system/saved_progress.py", "streamad/system/files.py"
_TESTS = "tests/unit/runtime/"
_SUBMITTER = "streamad/runtime/submitter.py"
_GATE_TESTS = "tests/unit/judge/test_gate.py"
_PIPELINE_TESTS, _PARTITION_TESTS = _TESTS + "test_pipeline.py", _TESTS + "test_pipeline_partitions.py"
_WINDOW_TESTS, _CHECKPOINT_TESTS = _TESTS + "test_windows.py", _TESTS + "test_checkpoint.py"
_CRASHES = "tests/faults/test_crash_points.py"
_DONE = "        done = self._take_judged()\n        judged = [waiting.task.result() for waiting in done]\n"
_UPDATE = (
    "        update = unchanged(self.unread) if self.unread is not None "
    "else self.intake.progress(ended=self.has_ended)\n"
)
_SYNC = (
    "                os.fsync(descriptor)\n            finally:\n                os.close(descriptor)\n"
    "            temporary.replace"
)
_WRITE = (
    "        for role in (role for role in ROLES if role in self._sinks):\n"
    "            if records := [record for record in outputs if record.role == role]:\n"
    "                await self._sinks[role].write(records)\n                await self._sinks[role].flush()\n"
)
_SAVE = (
    "        await self._write(blake2b(update.partition.encode(), digest_size=12).hexdigest(), progress)\n"
    "        self._progress[update.partition] = progress\n"
)

COMMITS: tuple[Mutant, ...] = (
    # --- gate and window records ---
    mutant(
        "accept-above-includes-its-limit",
        _GATE,
        "verdict.p_value > accept_above",
        "verdict.p_value >= accept_above",
        "a sequence exactly at accept_above is trained on",
        _GATE_TESTS,
    ),
    mutant(
        "learning-verdict-of-no-champion",
        _GATE,
        "    if verdict.model != champion:\n        return False\n"
        '    if verdict.decision == "learning":\n        return True\n',
        '    if verdict.decision == "learning":\n        return True\n'
        "    if verdict.model != champion:\n        return False\n",
        "a sequence that no model has judged is trained on although one serves by now",
        _GATE_TESTS,
    ),
    mutant(
        "reserve-after-acceptance",
        _GATE,
        "    if is_reserved(verdict.stream, verdict.sequence, settings.reserve):\n",
        '    if verdict.decision != "anomalous" and is_reserved(verdict.stream, verdict.sequence, settings.reserve):\n',
        "the reserve loses its upper tail, so each retraining alerts more often",
        _GATE_TESTS,
    ),
    mutant(
        "halves-of-the-reserve-by-the-same-draw",
        _GATE,
        '_draw("half", stream, sequence) < 0.5',
        '_draw("reserve", stream, sequence) < 0.5',
        "the whole reserve calibrates, and nothing is left to compare with",
        "tests/unit/learn/store/test_records.py",
    ),
    mutant(
        "gate-by-the-model-of-the-plant",
        _GATE,
        "champion=self._champion(judged.model_name))",
        "champion=self._champion(self._settings.model.name))",
        "with several models no sequence is accepted, because another model's version is compared",
        _WINDOW_TESTS,
        _TESTS + "test_pipeline_models.py",
    ),
    mutant(
        "share-decided-before-the-commit",
        _GATE,
        "        verdict, window = judged.verdict, judged.window\n        if window is None:\n            return None\n"
        "        share = self._share_of(judged)\n",
        "        verdict, window = judged.verdict, judged.window\n        if window is None:\n            return None\n"
        "        share = None if self._settings.learning is None else gate(\n"
        "            verdict, settings=self._settings.learning, champion=verdict.model\n        )\n",
        "a verdict of a model that serves no longer is accepted",
        _WINDOW_TESTS,
    ),
    # --- the order of verdicts ---
    mutant(
        "verdicts-in-the-order-of-judging",
        _PARTITION,
        "        while self.in_flight and self.in_flight[0].task.done():\n",
        "        self.in_flight = deque(sorted(self.in_flight, key=lambda waiting: not waiting.task.done()))\n"
        "        while self.in_flight and self.in_flight[0].task.done():\n",
        "the verdict that is ready first is committed first, whenever its sequence ended",
        _PIPELINE_TESTS,
    ),
    mutant(
        "failure-takes-others-with-it",
        _PARTITION,
        "            if self.in_flight[0].task.exception() is not None and taken and not self.has_ended:\n"
        "                break\n",
        "",
        "verdicts before a sequence that cannot be judged are lost for this run",
        "tests/unit/runtime/test_partition.py",
    ),
    mutant(
        "end-of-a-partition-in-parts",
        _PARTITION,
        "all(waiting.task.done() for waiting in self.in_flight)",
        "any(waiting.task.done() for waiting in self.in_flight)",
        "a crash at the end of the input repeats some of its verdicts",
        _PIPELINE_TESTS,
    ),
    Mutant(
        "progress-before-its-verdicts",
        _PARTITION,
        ((_UPDATE, ""), (_DONE, _DONE + _UPDATE)),
        "the progress does not know the verdicts committed with it, so a restart repeats them",
        (_PARTITION_TESTS, _CRASHES),
    ),
    mutant(
        "dead-letters-written-again",
        _PARTITION,
        "        aside, self.aside = self.aside, []\n        self.aside_bytes = 0\n",
        "        aside = self.aside\n        self.aside_bytes = 0\n",
        "dead letters are written again by every later commit",
        _PIPELINE_TESTS,
    ),
    mutant(
        "batch-from-before-the-seek",
        _PARTITION,
        "if record.offset >= expected)",
        "if record.offset > expected)",
        "if part of a batch continues after a seek, its first record is lost",
        _PARTITION_TESTS,
        _PIPELINE_TESTS,
        "tests/faults/test_partition_schedules.py",
    ),
    mutant(
        "assigned-again-without-a-drop",
        _PIPELINE,
        "                self._drop(event.partition)\n                self._restore(event)\n",
        "                self._restore(event)\n",
        "a partition that is assigned anew keeps what its former life had in flight",
        _PIPELINE_TESTS,
    ),
    mutant(
        "restored-before-it-is-released",
        _PIPELINE,
        "        await self._releases.done(event.partition)\n",
        "",
        "a partition that comes back is restored while its former life still commits",
        _PARTITION_TESTS,
        "tests/faults/test_partition_schedules.py",
    ),
    mutant(
        "end-from-before-the-seek",
        _PIPELINE,
        "        if partition is None or not partition.is_through(event):\n",
        "        if partition is None:\n",
        "an end that the source told before a seek ends sequences whose records are still to be read again",
        _PARTITION_TESTS,
    ),
    # --- the local checkpoint ---
    Mutant(
        "progress-before-the-outputs",
        _CHECKPOINT,
        ((_WRITE, ""), (_SAVE, _SAVE + _WRITE)),
        "a crash between the two loses the outputs of a commit, because its progress says that they are written",
        (_CHECKPOINT_TESTS, _CRASHES),
    ),
    mutant(
        "outputs-in-any-order",
        _CHECKPOINT,
        "for role in (role for role in ROLES if role in self._sinks):",
        "for role in dict.fromkeys(record.role for record in outputs if record.role in self._sinks):",
        "after a crash a verdict names a warning that is in no file",
        _CHECKPOINT_TESTS,
    ),
    mutant(
        "outputs-not-synced",
        _CHECKPOINT,
        "                await self._sinks[role].write(records)\n                await self._sinks[role].flush()\n",
        "                await self._sinks[role].write(records)\n",
        "the progress is stored while its outputs are still in memory: a crash loses them",
        _CHECKPOINT_TESTS,
        _CRASHES,
    ),
    mutant(
        "rename-before-the-sync",
        _FILES,
        _SYNC,
        _SYNC.replace("                os.fsync(descriptor)\n", "                pass\n"),
        "after a power cut the checkpoint's file is empty",
        _CRASHES,
    ),
    mutant(
        "folder-not-synced",
        _FILES,
        "            with suppress(OSError):\n                temporary.unlink()\n            raise\n"
        "        sync_folder(path.parent)\n",
        "            with suppress(OSError):\n                temporary.unlink()\n            raise\n",
        "after a power cut the checkpoint is the one before, but its outputs are not cut back to it",
        _CRASHES,
    ),
    mutant(
        "next-commit-after-a-failed-one",
        _CHECKPOINT,
        "                self._failure = error\n",
        "",
        "a commit after a failed one makes half of that durable",
        _CHECKPOINT_TESTS,
    ),
    mutant(
        "paid-windows-removed-before-the-commit",
        _CHECKPOINT,
        "        progress = merge(self._progress.get(update.partition), update)\n",
        "        await asyncio.to_thread(self._windows.remove_paid, update.debts)\n"
        "        progress = merge(self._progress.get(update.partition), update)\n",
        "a crash between the two leaves a debt without its window",
        _TESTS + "test_debts.py",
        _CRASHES,
    ),
    mutant(
        "no-lengths-before-the-first-commit",
        _CHECKPOINT,
        '        await self._write("start", None)\n',
        "",
        "a crash before the first commit leaves messages that the next run writes again",
        _CHECKPOINT_TESTS,
    ),
    mutant(
        "lengths-of-the-last-file",
        _SAVED,
        "    newest = max(commits, key=lambda commit: commit.number, default=CommitFile(number=0, outputs={}))\n",
        "    newest = commits[-1] if commits else CommitFile(number=0, outputs={})\n",
        "outputs are cut back to the lengths of another partition's older commit",
        _CHECKPOINT_TESTS,
        _CRASHES,
    ),
    # --- a stream in one place ---
    mutant(
        "judged-before-its-claim-is-read-back",
        _SUBMITTER,
        "        await self.homes.claimed(closed.sequence.stream, partition.name)\n",
        "",
        "a fragment is judged although another partition has claimed its stream",
        _TESTS + "test_shared_homes.py",
        "tests/faults/test_split_schedules.py",
    ),
)
