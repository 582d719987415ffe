"""The training process: ``python -m streamad.learn.trainer``, started by ``Child``.

It reads a pickled ``TrainerSpec`` from stdin and writes one line, a ``TrainingResult``, to stdout. SIGTERM and the end
of its stdin (the learner has died) interrupt the training, which saves its state and resumes at a later start.
"""

from __future__ import annotations

import os
import pickle
import signal
import sys
import threading
from contextlib import suppress
from types import FrameType

_MAX_NICENESS = 19


def main() -> None:
    """Do the training that stdin asks for, at the lowest priority."""
    lower_priority()  # before the imports of ``serve``: libraries start threads while they are imported
    serve()


def lower_priority() -> None:
    """Give this thread, and those that it starts from now on, only the time that no other process wants.

    SCHED_IDLE is Linux's scheduling class for that (sched(7)).
    """
    os.nice(_MAX_NICENESS)
    if sys.platform == "linux":
        with suppress(OSError):  # a sandbox may refuse it; the niceness stays
            os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))


def serve() -> None:
    """Do the training that stdin asks for; all output but the result goes to stderr."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C at a terminal is for the learner, which ends this process
    output = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    import msgspec  # noqa: PLC0415 - after ``lower_priority``

    from streamad.learn.trainer.job import run_job  # noqa: PLC0415
    from streamad.system.clock import SystemClock  # noqa: PLC0415

    try:
        spec = pickle.load(sys.stdin.buffer)  # noqa: S301 - written by the learner that started this process
    except (EOFError, pickle.UnpicklingError):  # the learner died at once
        return
    signal.signal(signal.SIGTERM, _interrupt)
    threading.Thread(target=_interrupt_at_end_of_input, name="streamad-learner-watch", daemon=True).start()
    result = run_job(spec, SystemClock())
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    with suppress(BrokenPipeError), output:
        output.write(msgspec.json.encode(result) + b"\n")


def _interrupt(number: int, frame: FrameType | None) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # a second one must not interrupt the saving
    raise KeyboardInterrupt


def _interrupt_at_end_of_input() -> None:
    # Not through sys.stdin: a thread that waits in there must not hold its lock when the interpreter ends.
    while os.read(0, 4096):
        pass
    main_thread = threading.main_thread().ident
    if main_thread is not None:
        signal.pthread_kill(main_thread, signal.SIGTERM)


if __name__ == "__main__":
    main()
