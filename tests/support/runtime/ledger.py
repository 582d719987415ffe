"""A committer in memory for tests of the pipeline."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from streamad.messages import OutputRecord, Role
from streamad.partition_progress import Progress, ProgressUpdate, merge
from streamad.testing import ListSink


class Ledger:
    """A committer in memory that can hold calls back (``held``) and fail: what a broker does, without one.

    ``failing`` maps the number of a commit to its error, and to whether the commit was made all the same (in doubt).
    """

    def __init__(
        self,
        *held: str,
        failing: Mapping[int, tuple[Exception, bool]] | None = None,
        progress: Mapping[str, Progress] | None = None,
    ) -> None:
        self.sinks: Mapping[Role, ListSink] = {}
        self.progress = dict(progress or {})
        self.calls: list[str] = []
        self.gates = {name: asyncio.Event() for name in held}
        self.failing = dict(failing or {})
        self.n_commits = 0
        self.commits: list[tuple[ProgressUpdate, Sequence[OutputRecord]]] = []
        self.under_way: set[str] = set()
        self.most_under_way = 0
        self.max_item_bytes: int | None = None

    def __call__(self, sinks: Mapping[Role, ListSink]) -> Ledger:
        self.sinks = sinks
        return self

    async def owing(self) -> Mapping[str, Progress]:
        return {name: progress for name, progress in self.progress.items() if progress.debts}

    async def restore(self, partition: str) -> Progress | None:
        self.calls.append(f"restore {partition}")
        if (gate := self.gates.get(f"restore {partition}")) is not None:
            await gate.wait()
        return self.progress.get(partition)

    async def commit(self, update: ProgressUpdate, outputs: Sequence[OutputRecord]) -> None:
        partition = update.partition
        assert partition not in self.under_way, "one commit of a partition at a time"
        self.under_way.add(partition)
        self.most_under_way = max(self.most_under_way, len(self.under_way))
        try:
            if (gate := self.gates.get(partition)) is not None:
                await gate.wait()
            await asyncio.sleep(0)
            self.n_commits += 1
            error, in_doubt = self.failing.pop(self.n_commits, (None, False))
            if error is None or in_doubt:
                for record in outputs:
                    self.sinks[record.role].records.append(record)
                self.commits.append((update, outputs))
                self.progress[partition] = merge(self.progress.get(partition), update)
            if error is not None:
                raise error
        finally:
            self.under_way.discard(partition)

    async def release(self, partition: str) -> None:
        assert partition not in self.under_way, "a commit under way ends before its partition is released"
        if (gate := self.gates.get(f"release {partition}")) is not None:
            await gate.wait()
        self.calls.append(f"release {partition}")

    async def close(self) -> None:
        return
