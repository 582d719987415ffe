"""One trainer per model: who may take the lease, and when a stopped holder loses it. Time is the tests' own."""

from __future__ import annotations

import os
import resource
import signal
import stat
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeAlias

import pytest

from streamad.errors import OutputError
from streamad.learn.trainer.lease import Lease, LeaseRefusedError, LeaseTimes, is_held
from streamad.system.locks import try_lock

TIMES = LeaseTimes(renew_s=5.0, stopped_after_s=60.0, poll_s=1.0)
START_S = 1000.0


class Time:
    """A monotonic clock that moves by being slept on, and leases that are renewed meanwhile."""

    def __init__(self) -> None:
        self.now_s = START_S
        self.renewing: list[Lease] = []

    def monotonic(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        before = self.now_s
        self.now_s += seconds
        for lease in self.renewing:
            if int(self.now_s / 5) > int(before / 5):
                lease.renew()


Take: TypeAlias = Callable[..., Lease]


@pytest.fixture
def take(tmp_path: Path) -> Iterator[Take]:
    """Take the lease under ``tmp_path`` as one process or another; all are released after the test."""
    leases: list[Lease] = []

    def take(time: Time | None = None) -> Lease:
        time = time or Time()
        leases.append(Lease(tmp_path, TIMES, time.monotonic))
        leases[-1].take(7, time.sleep)
        return leases[-1]

    yield take
    for lease in leases:
        lease.release()


def watch_of(folder: Path, time: Time | None = None) -> Lease:
    return Lease(folder, TIMES, (time or Time()).monotonic)


def test_a_free_lease_is_taken_at_once(tmp_path: Path, take: Take) -> None:
    time = Time()
    lease = take(time)
    assert time.now_s == START_S
    assert lease.is_held()
    assert lease.renew()
    assert is_held(tmp_path)


def test_a_live_holder_s_lease_is_refused_as_soon_as_its_counter_moves(take: Take) -> None:
    lease, time = take(), Time()
    time.renewing.append(lease)
    with pytest.raises(LeaseRefusedError, match=rf"already runs \(pid {os.getpid()} on .*, since 1970-01-01T00:00:00"):
        take(time)
    assert time.now_s - START_S <= TIMES.renew_s + TIMES.poll_s
    assert lease.is_held()


def test_a_released_lease_is_free(tmp_path: Path, take: Take) -> None:
    first = take()
    first.release()
    first.release()
    assert not first.is_held()
    assert not first.renew()
    assert not is_held(tmp_path)
    time = Time()
    assert take(time).is_held()
    assert time.now_s == START_S
    assert not first.is_held()


def test_a_stopped_holder_loses_it_at_the_limit_and_not_before(take: Take) -> None:
    first, time = take(), Time()
    second = take(time)
    assert time.now_s - START_S == TIMES.stopped_after_s
    assert second.is_held()
    assert not first.is_held()
    assert not first.renew(), "it learns so at its first sign of life"


def test_a_former_holder_does_not_count_for_the_new_one(tmp_path: Path, take: Take) -> None:
    first, second, watch = take(), take(), watch_of(tmp_path)
    assert watch.holder() == "unknown"
    first.renew()
    assert watch.holder() == "unknown"
    first.release()
    assert second.is_held()
    assert watch.holder() == "unknown"


def test_a_watcher_distinguishes_running_from_stopped_on_its_own_clock(tmp_path: Path, take: Take) -> None:
    time = Time()
    watch = watch_of(tmp_path, time)
    assert watch.holder() == "none"
    lease = take()
    assert watch.holder() == "unknown"
    time.now_s += 59
    lease.renew()
    assert watch.holder() == "alive"
    time.now_s += 59.9
    assert watch.holder() == "unknown"
    time.now_s += 0.1
    assert watch.holder() == "stopped"
    lease.renew()
    assert watch.holder() == "alive"
    lease.release()
    assert watch.holder() == "none"


def test_a_holder_that_changes_between_two_looks_is_alive(tmp_path: Path, take: Take) -> None:
    first, watch = take(), watch_of(tmp_path)
    assert watch.holder() == "unknown"
    first.release()
    take()
    assert watch.holder() == "alive"


def test_the_locks_of_a_stopped_holder_s_fits_are_broken_and_only_then(tmp_path: Path, take: Take) -> None:
    take()
    work = tmp_path / "0123.lock"
    descriptor = try_lock(work)
    assert descriptor is not None
    second = take()
    again = try_lock(work)
    assert again is not None, "the same fits can go on"
    second.release()
    take()
    assert try_lock(work) is None, "those of a training by hand are left alone"
    os.close(descriptor)
    os.close(again)


def test_a_trainer_of_a_former_version_keeps_its_lease_until_it_ends(tmp_path: Path, take: Take) -> None:
    holders = tmp_path / "holders"
    holders.mkdir()
    former = try_lock(holders / "0123456789abcdef.held")
    assert former is not None
    assert is_held(tmp_path)
    assert watch_of(tmp_path).holder() == "unknown"
    os.close(former)
    assert not is_held(tmp_path)
    take()


def test_a_damaged_file_of_a_dead_holder_blocks_nothing(tmp_path: Path, take: Take) -> None:
    (tmp_path / "lease").write_bytes(b"\xff\xfe")
    assert take().is_held()


def test_a_file_removed_by_hand_is_a_lost_lease(tmp_path: Path, take: Take) -> None:
    lease = take()
    (tmp_path / "lease").unlink()
    assert not lease.renew()
    assert not lease.is_held()


def test_on_a_full_disk_the_lease_is_not_taken(tmp_path: Path, take: Take) -> None:
    take().release()
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (10, limits[1]))
        with pytest.raises(OutputError, match="raise the file size limit"):
            take()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, handler)
    assert not is_held(tmp_path)
    take()


def test_renewing_keeps_a_lease_and_reports_its_loss_once(tmp_path: Path, take: Take) -> None:
    lease, watch, lost = Lease(tmp_path, LeaseTimes(renew_s=0.001)), watch_of(tmp_path), threading.Semaphore(0)
    lease.take(7)
    with lease.renewing(lost.release):
        while watch.holder() != "alive":
            pass
        (tmp_path / "lease").unlink()
        assert lost.acquire(timeout=30)
        assert not lost.acquire(timeout=0.05), "dozens of renewals later"
    lease.release()


RACER = """
import os
import sys
from pathlib import Path
from streamad.learn.trainer.lease import Lease, LeaseRefusedError, LeaseTimes
folder, turns = Path(sys.argv[1]), int(sys.argv[2])
print("ready", flush=True)
sys.stdin.readline()
while turns:
    lease = Lease(folder, LeaseTimes(poll_s=0.0005, renew_s=0.001))
    try:
        lease.take(0)
    except LeaseRefusedError:  # another racer was quicker
        continue
    with lease.renewing(lambda: os._exit(3)):
        with (folder / "held").open("x"):  # fails if another racer holds the lease
            os.unlink(folder / "held")
    lease.release()
    turns -= 1
"""


def test_of_processes_that_race_for_it_one_at_a_time_has_it(tmp_path: Path) -> None:
    racers = [
        subprocess.Popen(
            [sys.executable, "-c", RACER, str(tmp_path), "20"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for _ in range(4)
    ]
    try:
        for racer in racers:
            assert racer.stdout is not None
            assert racer.stdout.readline() == "ready\n"
        for racer in racers:
            print("go", file=racer.stdin, flush=True)
        assert [racer.wait(60) for racer in racers] == [0, 0, 0, 0]
    finally:
        for racer in racers:
            racer.kill()
            racer.communicate()


def test_the_folder_of_trainings_and_the_lease_are_for_this_user_alone(tmp_path: Path) -> None:
    training = tmp_path / "training"
    before = os.umask(0)
    try:
        lease = Lease(training)
        lease.take(0)
        lease.release()
    finally:
        os.umask(before)
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in (training, *training.iterdir())}
    assert modes == {"training": 0o700, "lease": 0o600, "lease.guard": 0o600}


def test_the_lease_is_not_written_through_a_link(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_bytes(b"precious")
    training = tmp_path / "training"
    training.mkdir()
    (training / "lease.guard").symlink_to(victim)
    with pytest.raises(OutputError, match=r"a link is in its place; .* remove the link"):
        Lease(training).take(0)
    assert victim.read_bytes() == b"precious"
