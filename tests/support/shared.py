"""A folder that is costly to make, made once for all processes of a test run."""

from __future__ import annotations

import os
from collections.abc import Callable
from fcntl import LOCK_EX, flock
from pathlib import Path

import pytest


def made_once(factory: pytest.TempPathFactory, name: str, make: Callable[[Path], None]) -> Path:
    """Return the folder ``name`` of the run, which ``make`` fills if no process has done so yet. Copy it to change it.

    Where ``make`` fails, the next process tries anew, in another folder.
    """
    base = factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        base = base.parent  # the processes have a folder each in that of the run
    with (base / f"{name}.lock").open("a+") as lock:
        flock(lock, LOCK_EX)
        lock.seek(0)
        if made := lock.read():
            return Path(made)
        folder = factory.mktemp(name)
        make(folder)
        lock.write(str(folder))
        return folder
