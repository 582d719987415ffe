"""A test that fills the memory says where it stands, before the system ends other processes."""

from __future__ import annotations

import os
import signal
import threading
from contextlib import suppress
from pathlib import Path
from typing import Final

MOST_MB: Final = 6_000
"""No worker of the tests has held more than 2,300 MB."""
_EVERY_S: Final = 1.0


def watch_workers(most_mb: float = MOST_MB) -> None:
    """End each child of this process that holds more than ``most_mb``: pytest then prints where its threads stand.

    It is watched from the controller of pytest-xdist, whose workers fork: they take no thread of it along.
    """
    threading.Thread(target=_watch, args=(most_mb,), name="memory guard", daemon=True).start()


def _watch(most_mb: float) -> None:
    pause, own = threading.Event(), os.getpid()
    while not pause.wait(_EVERY_S):
        for task in Path(f"/proc/{own}/task").glob("*"):  # none where there is no /proc
            with suppress(OSError):  # it has just ended
                for child in (task / "children").read_text().split():
                    _end_if_full(int(child), most_mb)


def _end_if_full(process: int, most_mb: float) -> None:
    pages = int(Path(f"/proc/{process}/statm").read_text().split()[1])
    if pages * os.sysconf("SC_PAGE_SIZE") > most_mb * 1e6:
        os.kill(process, signal.SIGABRT)
