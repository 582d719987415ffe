"""Threads: a single one for blocking work, apart from the event loop; and how many torch uses."""

from __future__ import annotations

import asyncio
import atexit
import ctypes
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future
from contextlib import contextmanager
from functools import cache
from queue import SimpleQueue
from typing import Any, ParamSpec, TypeVar
from weakref import WeakSet

T = TypeVar("T")
P = ParamSpec("P")


EXIT_WAIT_S = 5.0
"""How long the end of the process waits for all threads together."""
_begun: WeakSet[LoneThread] = WeakSet()


@atexit.register
def _wait_at_exit() -> bool:
    """Give the running calls a moment to end; return whether all have."""
    until_s = time.monotonic() + EXIT_WAIT_S
    threads = list(_begun)
    for thread in threads:
        thread.shutdown(cancel_futures=True)
    have_ended = [thread.join(max(0.0, until_s - time.monotonic())) for thread in threads]
    return all(have_ended)


def end_process(code: int) -> None:
    """End the process with ``code`` at once if a call goes on: cut off in foreign code later it would be an abort."""
    if not _wait_at_exit():
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


class LoneThread(Executor):
    """One thread, started by the first call, for calls that may never return, such as to a network share.

    ``shutdown`` does not wait for it. The process waits five seconds at its end for all such threads, then cuts their
    calls off, as a kill would. The threads of a ThreadPoolExecutor would keep the interpreter from ending.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._calls: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()
        self._is_shut = False
        self._is_cancelled = False

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Call ``fn`` after all calls submitted before. Raises RuntimeError after ``shutdown``."""
        future: Future[T] = Future()

        def call() -> None:
            if self._is_cancelled:
                future.cancel()
            if not future.set_running_or_notify_cancel():
                return
            try:
                future.set_result(fn(*args, **kwargs))
            except BaseException as error:  # noqa: BLE001 - the future carries it
                future.set_exception(error)

        with self._lock:
            if self._is_shut:
                raise RuntimeError("cannot schedule new futures after shutdown")
            self._calls.put(call)
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name=self._name, daemon=True)
                self._thread.start()
                _begun.add(self)
        return future

    def shutdown(self, wait: bool = False, *, cancel_futures: bool = False) -> None:
        """Take no more calls; the thread ends after the waiting ones, which ``cancel_futures`` cancels."""
        with self._lock:
            self._is_cancelled = self._is_cancelled or cancel_futures
            if not self._is_shut:
                self._is_shut = True
                self._calls.put(None)
        if wait:
            self.join()

    def join(self, timeout_s: float | None = None) -> bool:
        """Return when the thread has ended after ``shutdown``, or after ``timeout_s``: whether it has."""
        if self._thread is None:
            return True
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _work(self) -> None:
        while (call := self._calls.get()) is not None:
            call()
            del call  # it refers to its result


async def in_thread(thread: Executor, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Return ``function(...)``, run in ``thread``. A cancelled caller leaves; the function runs to its end."""
    call: Callable[[], Any] = lambda: function(*args, **kwargs)  # noqa: E731 - run_in_executor takes no keywords
    result: T = await asyncio.get_running_loop().run_in_executor(thread, call)
    return result


def give_back_memory() -> None:
    """Return to the system what was freed in the arenas of all threads, with glibc; elsewhere do nothing.

    A model is loaded in one thread and freed in another: its memory lies between memory that is still in use, so the
    next model mostly takes new pages. Without this a worker's memory doubled over its promotions (benchmarks/soak.py).
    """
    trim = _malloc_trim()
    if trim is not None:
        trim(0)


@cache
def _malloc_trim() -> Callable[[int], int] | None:
    if sys.platform != "linux":
        return None
    found: Callable[[int], int] | None = getattr(ctypes.CDLL(None), "malloc_trim", None)
    return found


@contextmanager
def judging_on_one_thread() -> Iterator[None]:
    """Let torch, if it is imported, use one thread for the block, as ``streamad run`` does; the environment wins.

    Its threads wait for each other at every small operation, which takes longer than they save.
    """
    torch: Any = sys.modules.get("torch")
    if torch is None or "OMP_NUM_THREADS" in os.environ:
        yield
        return
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
