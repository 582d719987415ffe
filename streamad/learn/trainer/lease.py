"""One trainer per model, across all processes and machines that share the registry.

The holder has a lock (flock) on ``<training>/lease`` and increments the counter in it. The system releases the lock of
a dead process at once. If the counter stands still, the holder is stopped, and another process replaces the file. No
wall clock decides anything.
"""

from __future__ import annotations

import fcntl
import os
import platform
import secrets
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Literal, NamedTuple, TypeAlias

from streamad.errors import RegistryError
from streamad.system.files import append_whole, writing
from streamad.system.locks import locked, try_lock
from streamad.system.opening import STATE_FOLDER, open_regular, read_state
from streamad.system.rights import reason
from streamad.types import from_us

_GUARD_TIMEOUT_S = 10.0
_DIGITS = 20
Holder: TypeAlias = Literal["none", "unknown", "alive", "stopped"]


class LeaseRefusedError(RegistryError):
    """Raised when a training must not begin: another one runs, or has done what was asked for."""


class LeaseTimes(NamedTuple):
    """Seconds on each process's own monotonic clock.

    ``renew_s``: the holder increments the counter this often. ``stopped_after_s``: a holder whose counter stands still
    for so long has lost the lease. ``poll_s``: a process that wants the lease reads the counter this often.
    """

    renew_s: float = 2.0
    stopped_after_s: float = 60.0
    poll_s: float = 0.2


def is_held(training: Path) -> bool:
    """Return whether a process, running or stopped, holds the lease. Raises RegistryError."""
    return _content_if_held(training / "lease") is not None


def _content_if_held(path: Path) -> bytes | None:
    """Return the content of the lease if a process has locked it; a trainer of a former version locks another file."""
    for file in (path, *sorted((path.parent / "holders").glob("*.held"))):
        try:
            with os.fdopen(open_regular(file, follows_links=False), "rb") as opened:
                try:
                    fcntl.flock(opened, fcntl.LOCK_SH | fcntl.LOCK_NB)
                except BlockingIOError:
                    return opened.read()
        except FileNotFoundError:
            pass
        except OSError as error:
            raise RegistryError(f"cannot read {file}: {reason(error, file, 'read')}") from error
    return None


class Lease:
    """The right to train one model: held from ``take`` to ``release``, the death of the process, or a long stop."""

    def __init__(
        self, training: Path, times: LeaseTimes | None = None, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._training = training
        self._path = training / "lease"
        self._times = times or LeaseTimes()
        self._monotonic = monotonic
        self._seen: bytes | None = None
        self._seen_s = 0.0
        self._descriptor: int | None = None
        self._owner = b""
        self._count = 0

    def holder(self) -> Holder:
        """Return the state of the holder, ``unknown`` until its counter has moved or stood long. Raises RegistryError.

        Time is counted from the call that first read the present counter.
        """
        before, self._seen = self._seen, _content_if_held(self._path)
        if self._seen is None:
            return "none"
        if self._seen == before:
            return "stopped" if self._monotonic() - self._seen_s >= self._times.stopped_after_s else "unknown"
        self._seen_s = self._monotonic()
        return "unknown" if before is None else "alive"

    def take(self, since_us: int, sleep: Callable[[float], None] = time.sleep) -> None:
        """Take the lease if it is free, or its holder is dead or has been stopped for long.

        A held lease is watched until its counter moves (LeaseRefusedError) or has stood still for long enough.
        Raises LeaseRefusedError, RegistryError, OutputError.
        """
        guard = self._training / "lease.guard"
        busy = f"{guard} has been held by another process for {_GUARD_TIMEOUT_S:.0f} s: end it if it hangs"
        with writing(self._training):
            self._training.mkdir(STATE_FOLDER, parents=True, exist_ok=True)
        while True:
            with writing(self._path), locked(guard, busy=busy, timeout_s=_GUARD_TIMEOUT_S):
                holder = self.holder()
                if holder in ("none", "stopped") and self._replace(since_us):
                    if holder == "stopped":  # its locks of work folders: a lock on a removed file protects nothing
                        for path in self._training.glob("*.lock"):
                            with suppress(OSError):
                                path.unlink()
                    return
            if holder == "alive":
                owner = (self._seen or b"")[_DIGITS:].partition(b" ")[2].decode(errors="replace")
                raise LeaseRefusedError(f"a training of the model already runs ({owner}): wait for its end")
            sleep(self._times.poll_s)

    def is_held(self) -> bool:
        """Return whether this process still holds the lease; check before each visible write."""
        try:
            return self._is_own()
        except OSError:
            return False

    def renew(self) -> bool:
        """Increment the counter; False if the lease is another process's by now."""
        if self._descriptor is None:
            return False
        self._count += 1
        try:
            with suppress(OSError):  # such as a full disk; the lock still shows that this process exists
                os.pwrite(self._descriptor, _digits(self._count), 0)
            return self._is_own()
        except OSError:  # unreadable for the moment: no other process can have taken it either
            return True

    @contextmanager
    def renewing(self, on_lost: Callable[[], None]) -> Iterator[None]:
        """Renew in a thread during the block; if the lease is lost, ``on_lost`` is called there, once."""
        ended = threading.Event()

        def renew() -> None:
            while not ended.wait(self._times.renew_s):
                if not self.renew():
                    on_lost()
                    return

        thread = threading.Thread(target=renew, name="streamad-lease", daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()

    def release(self) -> None:
        """Release the lease; safe to call twice."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def _replace(self, since_us: int) -> bool:
        """Replace the file by one that this process has locked; False if a reader locks it at this very moment.

        A stopped holder keeps its lock on the removed file, and what it writes there is lost.
        """
        self._path.unlink(missing_ok=True)
        descriptor = try_lock(self._path)
        if descriptor is None:
            return False
        since = from_us(since_us).isoformat(timespec="seconds")
        self._owner = f"{secrets.token_hex(8)} pid {os.getpid()} on {platform.node()}, since {since}".encode()
        try:
            os.ftruncate(descriptor, 0)
            append_whole(descriptor, _digits(0) + self._owner, 0)
        except BaseException:
            os.close(descriptor)
            raise
        self._descriptor = descriptor
        return True

    def _is_own(self) -> bool:
        if self._descriptor is None:
            return False
        try:
            return read_state(self._path)[_DIGITS:] == self._owner
        except FileNotFoundError:
            return False


def _digits(count: int) -> bytes:
    return f"{count:0{_DIGITS}d}".encode()
