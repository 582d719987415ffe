"""One trainer per model, across all processes and machines that share the registry.

``<training>/lease.json`` names the holder by a token. Whatever a holder writes carries its token in the file's name, so
that one that lost its lease cannot write over its successor's. No wall clock decides anything.
"""

from __future__ import annotations

import fcntl
import os
import platform
import secrets
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Literal, TypeAlias

import msgspec

from streamad.errors import RegistryError
from streamad.learn.trainer.requests import TrainingRequest
from streamad.system.files import write_atomically, writing
from streamad.system.locks import locked, try_lock
from streamad.system.untrusted_json import decode_json
from streamad.types import from_us

_GUARD_TIMEOUT_S = 10.0
Holder: TypeAlias = Literal["none", "unknown", "alive", "stopped"]


class LeaseRefusedError(RegistryError):
    """Raised where a training must not begin: another one runs, or has done what was asked for."""


class LeaseTimes(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds on each process's own monotonic clock: a holder whose count stands for ``stopped_after_s`` has lost it.

    ``renew_s``: how often a holder counts. ``poll_s``: how often one looks who waits to learn whether a holder lives.
    """

    renew_s: float = 2.0
    stopped_after_s: float = 60.0
    poll_s: float = 0.2


class LeaseRecord(msgspec.Struct, frozen=True, kw_only=True):
    """Who trains what; it stays after the training. ``attempt`` counts from 1, again after each death on the way."""

    token: str
    pid: int
    host: str
    since_us: int
    request: TrainingRequest
    attempt: int


def read_record(training: Path) -> LeaseRecord | None:
    """Return the latest holder's record, None before the first. Raises RegistryError where it cannot be read."""
    path = training / "lease.json"
    try:
        return decode_json(path.read_bytes(), LeaseRecord)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise RegistryError(f"cannot read {path}: {error.strerror}") from error
    except msgspec.DecodeError as error:
        raise RegistryError(f"{path} is damaged: make sure that no training runs, then remove it") from error


def status_path(training: Path, token: str) -> Path:
    """Return where the holder ``token`` tells how far it is."""
    return training / "holders" / f"{token}.json"


def _held_path(training: Path, token: str) -> Path:
    return training / "holders" / f"{token}.held"


def is_held(training: Path, record: LeaseRecord) -> bool:
    """Say whether the process behind ``record`` is there, alive or stopped: its lock dies with it."""
    return _count(training, record) is not None


def _count(training: Path, record: LeaseRecord) -> bytes | None:
    """Return what the holder has counted to, None where there is no holder any more. Raises RegistryError."""
    path = _held_path(training, record.token)
    try:
        with path.open("rb") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return file.read()
            return None
    except FileNotFoundError:
        return None
    except OSError as error:
        raise RegistryError(f"cannot look at {path}: {error.strerror}") from error


class LeaseWatch:
    """Tells a holder that is alive from one that was stopped, by watching its count on the watcher's own clock."""

    def __init__(self, training: Path, stopped_after_s: float, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._training = training
        self._stopped_after_s = stopped_after_s
        self._monotonic = monotonic
        self._seen: tuple[str, bytes] | None = None
        self._since_s = 0.0

    def look(self) -> Holder:
        """Return what is known of the holder by now: nothing yet at the first look. Raises RegistryError."""
        record = read_record(self._training)
        count = None if record is None else _count(self._training, record)
        if record is None or count is None:
            self._seen = None
            return "none"
        before, self._seen = self._seen, (record.token, count)
        if before == self._seen:
            return "stopped" if self._monotonic() - self._since_s >= self._stopped_after_s else "unknown"
        self._since_s = self._monotonic()
        return "unknown" if before is None else "alive"


class Lease:
    """The right to train one model, held by this process until ``release``, its death, or a long stop."""

    def __init__(self, training: Path, record: LeaseRecord, descriptor: int) -> None:
        self.record = record
        self._training = training
        self._descriptor = descriptor
        self._count = 0

    @property
    def status_path(self) -> Path:
        """Return the file of this holder alone, for telling how far it is."""
        return status_path(self._training, self.record.token)

    def is_held(self) -> bool:
        """Say whether the lease is certainly still this process's: ask before anything that others see."""
        try:
            return self._names_this()
        except RegistryError:
            return False

    def renew(self) -> bool:
        """Count on, so that watchers see life; False where the lease is another's by now."""
        self._count += 1
        with suppress(OSError):  # such as a full disk; the lock still says that this process is there
            os.pwrite(self._descriptor, f"{self._count:020d}".encode(), 0)
        try:
            return self._names_this()
        except RegistryError:  # unreadable for the moment: nobody else can have taken it either
            return True

    def release(self) -> None:
        """Give the lease up; safe to call twice."""
        if self._descriptor >= 0:
            with suppress(OSError):
                _held_path(self._training, self.record.token).unlink()
            os.close(self._descriptor)
            self._descriptor = -1

    def _names_this(self) -> bool:
        record = read_record(self._training)
        return self._descriptor >= 0 and record is not None and record.token == self.record.token


def take_lease(
    training: Path,
    request: TrainingRequest,
    *,
    prepare: Callable[[LeaseRecord | None, Path], int],
    since_us: int,
    times: LeaseTimes | None = None,
    monotonic: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> Lease:
    """Take the lease under ``training``: free, a dead process's, or one whose holder has been stopped for long.

    ``prepare`` is called while nobody else can take it, with the former record and the status file of the new holder;
    it fills that file and returns the number of the attempt, or raises and so leaves all as it is. A held lease is
    watched until its count moves (then LeaseRefusedError) or has stood for ``times.stopped_after_s``.

    Raises LeaseRefusedError, RegistryError, OutputError.
    """
    times = times or LeaseTimes()
    watch = LeaseWatch(training, times.stopped_after_s, monotonic)
    holders = training / "holders"
    with writing(holders):
        holders.mkdir(parents=True, exist_ok=True)
    while True:
        guard = holders / ".guard"
        busy = f"{guard} has been held by another process for {_GUARD_TIMEOUT_S:.0f} s: end it if it hangs"
        with writing(guard), locked(guard, busy=busy, timeout_s=_GUARD_TIMEOUT_S):
            holder = watch.look()
            if holder in ("none", "stopped"):
                return _take(training, request, prepare, since_us, was_stopped=holder == "stopped")
        if holder == "alive":
            raise LeaseRefusedError(_busy_text(training))
        sleep(times.poll_s)


def _take(
    training: Path,
    request: TrainingRequest,
    prepare: Callable[[LeaseRecord | None, Path], int],
    since_us: int,
    *,
    was_stopped: bool,
) -> Lease:
    token = secrets.token_hex(8)
    attempt = prepare(read_record(training), status_path(training, token))
    record = LeaseRecord(
        token=token, pid=os.getpid(), host=platform.node(), since_us=since_us, request=request, attempt=attempt
    )
    descriptor = try_lock(_held_path(training, token))
    assert descriptor is not None, "nobody else knows the token yet"
    lease = Lease(training, record, descriptor)
    try:
        lease.renew()
        write_atomically(training / "lease.json", msgspec.json.encode(record))
    except BaseException:
        lease.release()
        raise
    _clear(training, token, work_locks=was_stopped)
    return lease


def _clear(training: Path, token: str, *, work_locks: bool) -> None:
    """Remove what former holders left; ``work_locks``: also the locks of work folders that a stopped one holds on to.

    (A lock on a file that is gone protects nothing: see ``try_lock``.)
    """
    left = [path for path in (training / "holders").iterdir() if not path.name.startswith((".guard", token))]
    for path in [*left, *(training.glob("*.lock") if work_locks else ())]:
        with suppress(OSError):
            path.unlink()


def _busy_text(training: Path) -> str:
    record = read_record(training)
    if record is None:  # removed by hand this very moment
        return "another training of the model has just begun"
    since = from_us(record.since_us).isoformat(timespec="seconds")
    return f"a training of the model already runs (pid {record.pid} on {record.host}, since {since}): wait for its end"


class Heartbeat:
    """Renews a lease in a thread of its own during the block; should it be lost, ``on_lost`` is called there, once."""

    def __init__(self, lease: Lease, renew_s: float, on_lost: Callable[[], None]) -> None:
        self._lease = lease
        self._renew_s = renew_s
        self._on_lost = on_lost
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="streamad-lease", daemon=True)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._ended.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._ended.wait(self._renew_s):
            if not self._lease.renew():
                self._on_lost()
                return
