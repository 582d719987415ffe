"""Mutants of the commit on Kafka: the fence, transactions left open, what a commit holds. They need a real broker."""

from __future__ import annotations

from textwrap import indent

from benchmarks.mutants.mutant import Mutant, mutant

_FOLDER = "connectors/streamad_connectors/kafka/writing/"
_COMMITTER, _PRODUCER = _FOLDER + "committer.py", _FOLDER + "producer.py"
_LAST, _PROGRESS = _FOLDER + "last_transaction.py", _FOLDER + "progress_topic.py"
_TESTS, _CRASHES = "tests/integration/kafka/test_committer.py", "tests/faults/kafka/test_commit_points.py"
_READ = (
    "            items = await read_items(\n"
    "                client.consumer_kwargs(), place.progress_topic, place.number, client.request_timeout_s\n"
    "            )\n"
)
_START = "                await producer.start()  # the fence, before anything is read\n"
_CANCELLED = "                offsets.cancel()  # a producer whose batch was refused is closed: nobody would answer\n"
_ENDED = "                await asyncio.wait([offsets])\n"
_SENT = (
    "            offsets = asyncio.ensure_future(producer.send_offsets_to_transaction({of: offset}, group))\n"
    "            try:\n"
    "                await asyncio.gather(*sent, offsets)\n"
    "            except BaseException:\n" + _CANCELLED + _ENDED + "                raise\n"
)
_COMMIT = "            await producer.commit_transaction()\n"
_ASKED = (
    "            self.former_ending = await last_ending(producer.client, self._transactional_id)\n"
    "            await connected(producer._sender.start())"
)
_OTHERS = (
    "            await self._write_others([record for record in outputs if record.role in self._others])\n"
    "            await self._transact(held, update, messages)\n"
)

KAFKA: tuple[Mutant, ...] = (
    Mutant(
        "kafka-progress-read-before-the-fence",
        _COMMITTER,
        ((_READ, ""), (_START, indent(_READ, "    ") + _START)),
        "a former owner commits after its progress was read, and its verdicts come twice",
        (f"{_CRASHES}::test_a_former_owner_commits_nothing_while_the_new_one_reads", _TESTS),
    ),
    Mutant(
        "kafka-progress-read-before-left-open-ends",
        _COMMITTER,
        (
            ("            await producer.end_left_open(written, commit=former.ending is Ending.COMMIT)\n", ""),
            (
                _READ,
                _READ + "            await producer.end_left_open(written, commit=former.ending is Ending.COMMIT)\n",
            ),
        ),
        "a transaction left without markers hides the progress, or its progress is not seen",
        (_TESTS,),
    ),
    mutant(
        "kafka-left-open-always-aborted",
        _COMMITTER,
        "commit=former.ending is Ending.COMMIT)",
        "commit=False)",
        "messages of a committed transaction are aborted where its markers are missing",
        _TESTS,
    ),
    mutant(
        "kafka-left-open-ends-in-the-progress-alone",
        _COMMITTER,
        "written |= {TopicPartition(topic, number) for number in range(await producer.partitions_of(topic))}\n",
        "await producer.partitions_of(topic)\n",
        "what a transaction left open in an output is committed or aborted by the next one",
        _TESTS,
    ),
    mutant(
        "kafka-ending-forgotten-by-a-second-try",
        _COMMITTER,
        "        if ending is not Ending.UNKNOWN:\n            self.ending = ending\n",
        "        self.ending = ending\n",
        "after a restore that failed behind its fence nobody knows how the last transaction ended",
        _TESTS,
    ),
    mutant(
        "kafka-ending-asked-after-the-fence",
        _PRODUCER,
        _ASKED,
        "            await connected(producer._sender.start())\n"
        "            self.former_ending = await last_ending(producer.client, self._transactional_id)",
        "the start makes the coordinator forget how the last transaction ended",
        _TESTS,
    ),
    mutant(
        "kafka-complete-commit-taken-for-an-abort",
        _LAST,
        '"PrepareCommit": Ending.COMMIT, "CompleteCommit": Ending.COMMIT}',
        '"PrepareCommit": Ending.COMMIT}',
        "what a committed transaction left open is aborted",
        _TESTS,
    ),
    mutant(
        "kafka-commit-before-its-sends",
        _PRODUCER,
        _SENT + _COMMIT,
        "            await producer.send_offsets_to_transaction({of: offset}, group)\n"
        + _COMMIT
        + "            await asyncio.gather(*sent)\n",
        "a transaction commits although the broker refused one of its messages",
        f"{_CRASHES}::test_a_refused_record_leaves_nothing_of_its_transaction",
    ),
    mutant(
        "kafka-offsets-left-waiting",
        _PRODUCER,
        _CANCELLED + _ENDED,
        "",
        "a refused commit leaves a task that waits for a closed producer for ever",
        f"{_CRASHES}::test_offsets_that_nobody_answers_end_with_the_batch_that_was_refused",
    ),
    mutant(
        "kafka-group-offset-behind-open-sequences",
        _COMMITTER,
        "OffsetAndMetadata(update.low_watermark,",
        "OffsetAndMetadata(update.next_offset,",
        "the group's offset lies behind samples of open sequences: lag and age are reported too small",
        _TESTS,
    ),
    mutant(
        "kafka-others-after-the-commit",
        _COMMITTER,
        _OTHERS,
        "".join(reversed(_OTHERS.splitlines(keepends=True))),
        "a crash after the commit loses the messages of sinks outside the cluster",
        _TESTS,
    ),
    mutant(
        "kafka-fenced-fences-at-once",
        _COMMITTER,
        "            await self._state.clock.sleep(wait_us / 1e6)\n\n    async def _fail_restoring",
        "\n    async def _fail_restoring",
        "two workers fence each other in turn, and neither commits",
        _TESTS,
    ),
    mutant(
        "kafka-failed-producer-stays-in-use",
        _COMMITTER,
        "        except BaseException as error:\n            self._forget(held)\n",
        "        except BaseException as error:\n",
        "after a failed transaction the next commit goes through a producer whose outcome is in doubt",
        f"{_CRASHES}::test_a_zombie_commits_nothing_any_more",
    ),
    mutant(
        "kafka-progress-read-through-an-open-transaction",
        _PROGRESS,
        "if is_closed and (position >= end or (position == before and answered_ms > moved_ms)):",
        "if position >= end or (position == before and answered_ms > moved_ms):",
        "a restart reads the progress up to a transaction that is still open, and misses what was committed behind it",
        _TESTS,
    ),
    mutant(
        "kafka-forgotten-stream-leaves-its-ids",
        _PROGRESS,
        "                items += stream.delete(name.encode()) if stream is not None else ()\n",
        "                items += [Item(_STREAM + name.encode(), None)] if stream is not None else []\n",
        "a forgotten stream leaves its closed ids behind, and the next restart refuses them",
        "tests/unit/connectors/kafka/test_progress_codec.py",
    ),
)
