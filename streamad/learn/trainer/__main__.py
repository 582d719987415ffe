"""The process that trains: ``python -m streamad.learn.trainer``, started by ``Retrainer`` and fed through its stdin.

It reads one line, a ``TrainerSpec``, and writes one line, a ``TrainingResult``. SIGTERM and the end of its standard
input (the worker has died) interrupt the training, which saves its state and goes on at a later start.
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from importlib import import_module

_MAX_NICENESS = 19


def main() -> None:
    """Do the training that standard input asks for, at the lowest priority."""
    lower_priority()
    # Libraries start threads while they are imported: those must have the priority, too.
    import_module("streamad.learn.trainer.process").serve()


def lower_priority() -> None:
    """Let this thread, and those started by it from now on, give way to every other one.

    SCHED_IDLE is Linux's class for what may only have the time that nobody else wants (sched(7)).
    """
    os.nice(_MAX_NICENESS)
    if sys.platform == "linux":
        with suppress(OSError):  # a sandbox may refuse it; the niceness stays
            os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))


if __name__ == "__main__":
    main()
