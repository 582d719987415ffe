"""LoneThread: calls in order, one at a time, and the end of the process does not wait for one that hangs."""

from __future__ import annotations

import asyncio
import ctypes
import os
import subprocess
import sys
import threading
from concurrent.futures import CancelledError
from pathlib import Path

import pytest

from streamad.system.threads import LoneThread, give_back_memory, in_thread
from tests.support.waiting import LIMIT_S

HANGING = """
import threading
from streamad.system import threads
threads.EXIT_WAIT_S = 0.2
hanging, ending = threads.LoneThread("hanging"), threads.LoneThread("ending")
hanging.submit(threading.Event().wait)
ending.submit(lambda: (threading.Event().wait(0.05), print("at its end", flush=True)))
hanging.shutdown()
"""


def test_calls_come_one_after_the_other_in_the_same_thread() -> None:
    thread = LoneThread("lone")
    idents = [thread.submit(threading.get_ident) for _ in range(5)]
    assert len({ident.result(LIMIT_S) for ident in idents} - {threading.get_ident()}) == 1
    numbers: list[int] = []
    for number in range(100):
        thread.submit(numbers.append, number)
    thread.shutdown(wait=True)
    assert numbers == list(range(100))
    with pytest.raises(RuntimeError, match="after shutdown"):
        thread.submit(print)


async def test_a_result_and_an_error_come_back() -> None:
    thread = LoneThread("lone")
    assert await in_thread(thread, int, "ff", base=16) == 255
    with pytest.raises(ValueError, match="invalid literal"):
        await in_thread(thread, int, "x")
    thread.shutdown()


async def test_a_cancelled_caller_leaves_and_the_thread_goes_on() -> None:
    thread, gate = LoneThread("lone"), threading.Event()
    task = asyncio.create_task(in_thread(thread, gate.wait, LIMIT_S))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    gate.set()
    assert await in_thread(thread, str, 1) == "1"
    thread.shutdown()


def test_waiting_calls_may_be_cancelled() -> None:
    thread, gate = LoneThread("lone"), threading.Event()
    begun = thread.submit(gate.wait, LIMIT_S)
    waiting = thread.submit(print, "never")
    thread.shutdown(cancel_futures=True)
    gate.set()
    assert begun.result(LIMIT_S)
    with pytest.raises(CancelledError):
        waiting.result(LIMIT_S)


def test_a_process_does_not_wait_for_a_call_that_hangs() -> None:
    ended = subprocess.run(
        [sys.executable, "-c", HANGING], timeout=LIMIT_S, check=False, capture_output=True, text=True
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "at its end\n", "")


ENDING = """
import sys, threading
from streamad import cli
from streamad.__main__ import main
from streamad.system import threads
threads.EXIT_WAIT_S = 0.2
def run():
    thread = threads.LoneThread("hanging")
    if "hangs" in sys.argv:
        thread.submit(threading.Event().wait)
    print("said")
    sys.exit(3)
cli.main = run
import atexit
atexit.register(print, "at its end")
main()
"""


@pytest.mark.parametrize(("word", "printed"), [("hangs", "said\n"), ("ends", "said\nat its end\n")])
def test_a_command_whose_call_hangs_ends_with_its_code_and_without_the_end_of_the_interpreter(
    word: str, printed: str
) -> None:
    command = [sys.executable, "-c", ENDING, word]
    ended = subprocess.run(command, timeout=LIMIT_S, check=False, capture_output=True, text=True)
    assert (ended.returncode, ended.stdout, ended.stderr) == (3, printed, "")


def resident_mb() -> float:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "malloc_trim"), reason="only glibc can give it back")
def test_memory_that_was_freed_in_another_thread_is_given_back() -> None:
    """Of small pieces every thousandth lives on: the end of the arena is never free."""
    kept: list[bytes] = []

    def fill() -> None:
        pieces = [bytes(4_000) for _ in range(50_000)]
        kept.extend(pieces[::1_000])

    thread = threading.Thread(target=fill)
    thread.start()
    thread.join()
    before_mb = resident_mb()
    give_back_memory()
    assert resident_mb() < before_mb - 100
    assert len(kept) == 50
