"""The trainer's process around its job: standard input and output, signals, and the end of its worker."""

from __future__ import annotations

import os
import signal
import sys
import threading
from contextlib import suppress
from types import FrameType
from typing import BinaryIO

import msgspec

from streamad.learn.trainer.child import LOST_LEASE_CODE, TrainerSpec
from streamad.learn.trainer.job import run_job
from streamad.system.clock import SystemClock


def serve() -> None:
    """Do the training that standard input asks for, and write its result to standard output."""
    output = _own_output()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C at a terminal is for the worker, which ends this process
    line = sys.stdin.buffer.readline()
    if not line:
        return
    spec = msgspec.json.decode(line, type=TrainerSpec)
    signal.signal(signal.SIGTERM, _interrupt)
    threading.Thread(target=_interrupt_at_end_of_input, name="streamad-worker-watch", daemon=True).start()
    result = run_job(spec, SystemClock(), lost=lambda: os._exit(LOST_LEASE_CODE))
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    with suppress(BrokenPipeError), output:
        output.write(msgspec.json.encode(result) + b"\n")


def _own_output() -> BinaryIO:
    """Return the standard output for the result alone: whatever else writes there goes to standard error."""
    output = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    return output


def _interrupt(number: int, frame: FrameType | None) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # a second one must not interrupt the saving
    raise KeyboardInterrupt


def _interrupt_at_end_of_input() -> None:
    # Not through sys.stdin: a thread that waits in there must not hold its lock when the interpreter ends.
    while os.read(0, 4096):
        pass
    main = threading.main_thread().ident
    if main is not None:
        signal.pthread_kill(main, signal.SIGTERM)
