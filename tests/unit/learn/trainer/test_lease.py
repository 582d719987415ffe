"""One trainer per model: who may take the lease, and what becomes of one that was stopped. Time is the tests' own."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from streamad.errors import OutputError, RegistryError
from streamad.learn.trainer.lease import (
    Heartbeat,
    Lease,
    LeaseRecord,
    LeaseRefusedError,
    LeaseTimes,
    LeaseWatch,
    read_record,
    take_lease,
)
from streamad.learn.trainer.requests import TrainingRequest
from streamad.system.locks import try_lock

REQUEST = TrainingRequest(reason="command", requested_us=1)
TIMES = LeaseTimes(renew_s=5.0, stopped_after_s=60.0, poll_s=1.0)


class Time:
    """A monotonic clock that moves by being slept on; ``then`` runs at each step of it."""

    def __init__(self) -> None:
        self.now_s = 1000.0
        self.renewing: list[Lease] = []

    def monotonic(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        before = self.now_s
        self.now_s += seconds
        for lease in self.renewing:
            if int(self.now_s / 5) > int(before / 5):
                lease.renew()


@pytest.fixture
def held() -> Iterator[list[Lease]]:
    leases: list[Lease] = []
    yield leases
    for lease in leases:
        lease.release()


def first_attempt(former: LeaseRecord | None, status: Path) -> int:
    status.write_text("{}")
    return 1 if former is None else former.attempt + 1


def take(folder: Path, held: list[Lease], time: Time | None = None, request: TrainingRequest = REQUEST) -> Lease:
    time = time or Time()
    lease = take_lease(
        folder,
        request,
        prepare=first_attempt,
        since_us=7,
        times=TIMES,
        monotonic=time.monotonic,
        sleep=time.sleep,
    )
    held.append(lease)
    return lease


def test_a_free_lease_is_taken_at_once_and_says_by_whom(tmp_path: Path, held: list[Lease]) -> None:
    time = Time()
    lease = take(tmp_path, held, time)
    assert time.now_s == 1000.0
    assert lease.is_held()
    assert lease.renew()
    record = read_record(tmp_path)
    assert record == lease.record
    assert (record.pid, record.request, record.since_us, record.attempt) == (os.getpid(), REQUEST, 7, 1)
    assert lease.status_path.read_text() == "{}"


def test_a_live_holder_is_refused_to_others_as_soon_as_its_count_moves(tmp_path: Path, held: list[Lease]) -> None:
    lease = take(tmp_path, held)
    time = Time()
    time.renewing.append(lease)
    with pytest.raises(LeaseRefusedError, match=rf"already runs \(pid {os.getpid()} on .*, since 1970-01-01T00:00:00"):
        take(tmp_path, held, time)
    assert time.now_s - 1000 <= TIMES.renew_s + TIMES.poll_s
    assert lease.is_held()


def test_a_released_lease_is_free_and_its_record_stays(tmp_path: Path, held: list[Lease]) -> None:
    first = take(tmp_path, held)
    first.release()
    first.release()
    assert not first.is_held()
    assert read_record(tmp_path) == first.record
    time = Time()
    second = take(tmp_path, held, time)
    assert time.now_s == 1000.0
    assert second.record.attempt == 2
    assert not first.is_held()


def test_a_stopped_holder_loses_it_at_the_limit_and_not_before(tmp_path: Path, held: list[Lease]) -> None:
    first = take(tmp_path, held)
    time = Time()
    second = take(tmp_path, held, time)
    assert time.now_s - 1000 == TIMES.stopped_after_s
    assert second.is_held()
    assert not first.is_held()
    assert not first.renew(), "it learns so at its first sign of life"


def test_what_a_former_holder_writes_goes_nowhere_near_the_new_one_s_files(tmp_path: Path, held: list[Lease]) -> None:
    first = take(tmp_path, held)
    second = take(tmp_path, held)
    first.status_path.write_text("late")
    first.renew()
    assert second.status_path.read_text() == "{}"
    assert read_record(tmp_path) == second.record
    watch = LeaseWatch(tmp_path, 60, lambda: 0.0)
    assert [watch.look(), watch.look()] == ["unknown", "unknown"], "nor does it count for the new one"
    first.release()
    assert second.is_held()
    assert watch.look() == "unknown"


def test_a_watcher_tells_the_living_from_the_stopped_on_its_own_clock(tmp_path: Path, held: list[Lease]) -> None:
    time = Time()
    watch = LeaseWatch(tmp_path, 60, time.monotonic)
    assert watch.look() == "none"
    lease = take(tmp_path, held)
    assert watch.look() == "unknown"
    time.now_s += 59
    lease.renew()
    assert watch.look() == "alive"
    time.now_s += 59.9
    assert watch.look() == "unknown"
    time.now_s += 0.1
    assert watch.look() == "stopped"
    lease.renew()
    assert watch.look() == "alive"
    lease.release()
    assert watch.look() == "none"


def test_a_holder_that_changes_while_one_waits_is_alive(tmp_path: Path, held: list[Lease]) -> None:
    first = take(tmp_path, held)
    watch = LeaseWatch(tmp_path, 60, lambda: 0.0)
    assert watch.look() == "unknown"
    first.release()
    take(tmp_path, held)
    assert watch.look() == "alive"


def test_the_wall_clock_decides_nothing(tmp_path: Path, held: list[Lease]) -> None:
    """A record from the far future or past, as a clock that was wrong leaves it, neither frees nor blocks the lease."""
    lease = take(tmp_path, held)
    for since_us in (0, 2**57):
        record = {**json.loads((tmp_path / "lease.json").read_text()), "since_us": since_us}
        (tmp_path / "lease.json").write_text(json.dumps(record))
        time = Time()
        time.renewing.append(lease)
        with pytest.raises(LeaseRefusedError):
            take(tmp_path, held, time)
    lease.release()
    take(tmp_path, held)


def test_what_prepare_refuses_leaves_the_lease_as_it_was(tmp_path: Path, held: list[Lease]) -> None:
    def refuse(former: LeaseRecord | None, status: Path) -> int:
        raise LeaseRefusedError("done already")

    with pytest.raises(LeaseRefusedError, match="done already"):
        take_lease(tmp_path, REQUEST, prepare=refuse, since_us=0)
    assert read_record(tmp_path) is None
    assert take(tmp_path, held).record.attempt == 1


def test_only_the_newest_holder_s_files_stay(tmp_path: Path, held: list[Lease]) -> None:
    for _ in range(5):
        lease = take(tmp_path, held)
        lease.release()
    left = sorted(path.name for path in (tmp_path / "holders").iterdir())
    assert left == [".guard", lease.status_path.name]


def test_the_locks_of_a_stopped_holder_s_fits_are_broken_and_only_then(tmp_path: Path, held: list[Lease]) -> None:
    take(tmp_path, held)
    work = tmp_path / "0123.lock"
    descriptor = try_lock(work)
    assert descriptor is not None
    take(tmp_path, held)
    again = try_lock(work)
    assert again is not None, "the same fits can go on"
    held[-1].release()
    take(tmp_path, held)
    assert try_lock(work) is None, "those of a training by hand are left alone"
    os.close(descriptor)
    os.close(again)


@pytest.mark.parametrize("content", [b"{half", b'{"token": "\xff\xfe"}'])
def test_a_damaged_record_is_one_clear_line(tmp_path: Path, held: list[Lease], content: bytes) -> None:
    (tmp_path / "lease.json").write_bytes(content)
    with pytest.raises(RegistryError, match=r"lease\.json is damaged: make sure that no training runs, then remove it"):
        take(tmp_path, held)


def test_a_record_removed_by_hand_is_a_lost_lease(tmp_path: Path, held: list[Lease]) -> None:
    lease = take(tmp_path, held)
    (tmp_path / "lease.json").unlink()
    assert not lease.renew()
    assert not lease.is_held()


def test_a_full_disk_is_told_and_takes_nothing(tmp_path: Path, held: list[Lease]) -> None:
    lease = take(tmp_path, held)
    lease.release()
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (10, limits[1]))
        with pytest.raises(OutputError, match="raise the file size limit"):
            take(tmp_path, held)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, handler)
    assert read_record(tmp_path) == lease.record
    assert list((tmp_path / "holders").glob("*.held")) == []
    take(tmp_path, held)


def test_a_heartbeat_keeps_a_lease_and_tells_once_that_it_was_lost(tmp_path: Path, held: list[Lease]) -> None:
    lease = take(tmp_path, held)
    watch = LeaseWatch(tmp_path, 60, lambda: 0.0)
    lost = threading.Semaphore(0)
    with Heartbeat(lease, 0.001, lost.release):
        while watch.look() != "alive":
            pass
        (tmp_path / "lease.json").unlink()
        assert lost.acquire(timeout=30)
        assert not lost.acquire(timeout=0.05), "dozens of beats later"


HOLDER = """
import sys
from pathlib import Path
from streamad.learn.trainer.lease import Heartbeat, LeaseTimes, take_lease
from streamad.learn.trainer.requests import TrainingRequest
request = TrainingRequest(reason="command", requested_us=1)
lease = take_lease(Path(sys.argv[1]), request, prepare=lambda former, status: 1, since_us=0)
with Heartbeat(lease, 0.01, lambda: print("lost", flush=True)):
    print("taken", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def holder(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """A process that holds the lease and renews it every 10 ms."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with process:
        assert process.stdout is not None
        assert process.stdout.readline() == "taken\n"
        yield process
        process.kill()


def test_a_killed_holder_frees_the_lease_at_once(
    tmp_path: Path, holder: subprocess.Popen[str], held: list[Lease]
) -> None:
    with pytest.raises(LeaseRefusedError, match=f"pid {holder.pid} "):
        take_lease(tmp_path, REQUEST, prepare=first_attempt, since_us=0)
    holder.kill()
    holder.wait()
    time = Time()
    assert take(tmp_path, held, time).is_held()
    assert time.now_s == 1000.0


def test_a_stopped_process_loses_the_lease_and_learns_so_when_it_goes_on(
    tmp_path: Path, holder: subprocess.Popen[str], held: list[Lease]
) -> None:
    holder.send_signal(signal.SIGSTOP)
    os.waitid(os.P_PID, holder.pid, os.WSTOPPED | os.WNOWAIT)
    time = Time()
    lease = take(tmp_path, held, time)
    assert time.now_s - 1000 == TIMES.stopped_after_s
    holder.send_signal(signal.SIGCONT)
    assert holder.stdout is not None
    assert holder.stdout.readline() == "lost\n"
    assert lease.is_held()
    assert read_record(tmp_path) == lease.record


RACER = """
import sys
from pathlib import Path
from streamad.learn.trainer.lease import LeaseRefusedError, LeaseTimes, take_lease
from streamad.learn.trainer.requests import TrainingRequest
folder, request = Path(sys.argv[1]), TrainingRequest(reason="command", requested_us=1)
times = LeaseTimes(poll_s=0.001)
print("ready", flush=True)
sys.stdin.readline()
lease = None
while lease is None:
    try:
        lease = take_lease(folder, request, prepare=lambda former, status: 1, since_us=0, times=times)
    except LeaseRefusedError:  # another racer was quicker
        pass
print("taken", flush=True)
sys.stdin.readline()
lease.release()
"""


def test_of_processes_that_race_for_it_one_at_a_time_has_it(tmp_path: Path) -> None:
    racers = [
        subprocess.Popen(
            [sys.executable, "-c", RACER, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for _ in range(4)
    ]
    try:
        for racer in racers:
            assert racer.stdout is not None
            assert racer.stdout.readline() == "ready\n"
        for racer in racers:
            assert racer.stdin is not None
            print("go", file=racer.stdin, flush=True)
        by_pid = {racer.pid: racer for racer in racers}
        seen: set[int] = set()
        while len(seen) < len(racers):
            record = read_record(tmp_path)
            if record is None or record.pid in seen:
                continue
            seen.add(record.pid)
            racer = by_pid[record.pid]
            assert racer.stdout is not None
            assert racer.stdout.readline() == "taken\n"
            still = read_record(tmp_path)
            assert still == record, "nobody took it from a holder that lives"
            assert racer.stdin is not None
            print("done", file=racer.stdin, flush=True)
            assert racer.wait(30) == 0
    finally:
        for racer in racers:
            racer.kill()
            racer.communicate()
