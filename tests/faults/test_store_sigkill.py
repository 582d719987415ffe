"""Writers of an inlier store that die at every operation on the disk, or are killed at random moments.

It opens clean afterwards, holds no id twice and no half shard, and ends as if nobody had been killed.
"""

from __future__ import annotations

import itertools
import random
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterator
from multiprocessing.context import ForkServerContext, ForkServerProcess
from pathlib import Path

import pytest

from streamad.learn.store import compaction
from streamad.messages import SHARES
from tests.support.forks import fork_server_context, forked
from tests.support.learning import store_child
from tests.support.learning.inlier_cases import sequence_of
from tests.support.runtime.disk import Disk

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs SIGKILL and a fork server")

LIMIT_S = 60.0
KILLS = 16
N_RANDOM = 240
Start = Callable[..., ForkServerProcess]


@pytest.fixture(autouse=True)
def few_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take back what the child's functions set in this process."""
    monkeypatch.setattr(compaction, "MAX_FILES", store_child.MAX_FILES)


@pytest.fixture(scope="module")
def fork_server() -> ForkServerContext:
    return fork_server_context("tests.support.learning.store_child")


@pytest.fixture
def start(fork_server: ForkServerContext) -> Iterator[Start]:
    """Starts children, which are ended at the end."""
    with forked(fork_server) as start:
        yield start


def contents(folder: Path, policy: str = "newest") -> dict[str, list[str]]:
    """What a fresh process reads; every checksum is verified on the way, and nothing may be wrong."""
    store = store_child.opened(folder, policy)
    found = {share: [one.id for one in store.read(share)] for share in SHARES}
    assert store.problems == []
    every = [one for of_share in found.values() for one in of_share]
    assert len(every) == len(set(every))
    assert not any(store.offer(sequence_of(int(one[3:])), "accepted") for one in every)
    assert store.counts() == {share: len(of_share) for share, of_share in found.items()}
    return found


def numbered(found: dict[str, list[str]]) -> set[int]:
    return {int(one[3:]) for of_share in found.values() for one in of_share}


@pytest.mark.parametrize("policy", ["newest", "reservoir"])
def test_killed_at_random_moments_and_started_again_from_the_beginning(
    tmp_path: Path, fork_server: ForkServerContext, start: Start, policy: str
) -> None:
    alone, folder = tmp_path / "alone", tmp_path / "store"
    began = time.monotonic()
    store_child.fill(alone, policy, N_RANDOM)
    alone_s = time.monotonic() - began
    expected = contents(alone, policy)
    assert {len(of_share) for of_share in expected.values()} == {store_child.BOUND}
    seed = random.randrange(2**32)
    rng = random.Random(seed)
    n_killed = 0
    for _ in range(KILLS):
        begins = fork_server.Event()
        process = start(store_child.fill_announced, begins, folder, policy, N_RANDOM)
        assert begins.wait(LIMIT_S)
        time.sleep(rng.uniform(0.0, alone_s / 4))  # no life is long enough to do it all, however fast the disk
        process.kill()
        process.join(LIMIT_S)
        n_killed += process.exitcode == -signal.SIGKILL
        if folder.exists():
            contents(folder, policy)
    final = start(store_child.fill, folder, policy, N_RANDOM)
    final.join(LIMIT_S)
    assert final.exitcode == 0
    assert n_killed > 1
    assert contents(folder, policy) == expected, f"seed {seed}"


def deaths(base: Path, folder: Path, change: Callable[[], object], *, loses_power: bool) -> Iterator[int]:
    """Copy ``base`` to ``folder`` and die at each operation of ``change`` in turn; yields after each death."""
    for dies_at in itertools.count(1):
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(base, folder)
        with Disk(folder, dies_at, loses_power=loses_power) as disk:
            change()
        if not disk.is_dead:
            return
        yield dies_at


@pytest.mark.parametrize("loses_power", [False, True])
def test_a_crash_at_any_write_loses_nothing_that_was_stored(tmp_path: Path, loses_power: bool) -> None:
    base, folder = tmp_path / "base", tmp_path / "store"
    store_child.prepare(base)
    shutil.copytree(base, folder)
    store_child.one_flush(folder)
    before, expected = contents(base), contents(folder)
    dies_at = 0
    for dies_at in deaths(base, folder, lambda: store_child.one_flush(folder), loses_power=loses_power):
        assert numbered(contents(folder)) <= numbered(before) | numbered(expected)
        store_child.one_flush(folder)
        assert contents(folder) == expected, dies_at
    assert dies_at > 20


@pytest.mark.parametrize("loses_power", [False, True])
def test_a_crash_at_any_write_of_a_purge_loses_nothing_else(tmp_path: Path, loses_power: bool) -> None:
    base, folder = tmp_path / "base", tmp_path / "store"
    store_child.prepare(base)
    before = numbered(contents(base))
    purged = set(sorted(before)[::3])
    ids = [f"id-{i:06d}" for i in purged]
    dies_at = 0
    for dies_at in deaths(base, folder, lambda: store_child.opened(folder).purge(ids=ids), loses_power=loses_power):
        found = numbered(contents(folder))
        assert found in (before, before - purged), dies_at
        store = store_child.opened(folder)
        assert store.purge(ids=ids) == len(found & purged)
        assert numbered(contents(folder)) == before - purged
        assert not any(store.offer(sequence_of(i), "accepted") for i in purged)
    assert dies_at > 10
