"""Proves that a new version can serve: a process of its own loads it as ``streamad run`` does, on one thread.

``python -m streamad.learn.trainer.proof`` reads pickled settings, model and folder from stdin and writes the backends
that must not serve, a JSON array, as a line to stdout.
"""

from __future__ import annotations

import ctypes
import math
import os
import pickle
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec

from streamad.errors import DetectorError, StreamadError
from streamad.learn.parts import detector_for
from streamad.learn.registry.artifact import refused_backends
from streamad.learn.registry.backends import TORCHSCRIPT, RefusedBackend
from streamad.learn.trainer.child import environment_of
from streamad.messages import ModelRef
from streamad.plant import Plant
from streamad.safe_text import one_line
from streamad.settings.plant_yaml import Settings
from streamad.system.clock import SystemClock
from streamad.telemetry.logs import get_logger

LIMIT_S = 600.0
"""Loading takes seconds. In the training process of a busy machine, which has the lowest priority, it takes minutes."""
_ORPHAN_S = 60.0
_COMMAND = (sys.executable, "-P", "-m", "streamad.learn.trainer.proof")
_RESUMES = "then train again, which resumes from the finished fits"
_SHOWN = 300
_PR_SET_PDEATHSIG = 1


def proved_in_new_process(
    settings: Settings,
    model: ModelRef,
    folder: Path,
    *,
    limit_s: float = LIMIT_S,
    command: Sequence[str] = _COMMAND,
) -> tuple[RefusedBackend, ...]:
    """Load the sealed version in ``folder`` in a new process; return the backends that must not serve it, and why.

    The settings go through the process's stdin: they hold secrets as their places only. It imports from where this
    process does. Raises DetectorError if it cannot be started, dies, or takes longer than ``limit_s``.
    """
    environment = {**environment_of(1), "PYTHONPATH": os.pathsep.join(sys.path)}
    content = pickle.dumps((settings, model, folder.absolute(), limit_s))
    what = "the new version is not published, because the process that tries it"
    try:
        done = subprocess.run(
            command, input=content, capture_output=True, env=environment, timeout=limit_s, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise DetectorError(
            f"{what} did not load it within {limit_s:g} s: end what keeps this machine busy, {_RESUMES}; if it hangs "
            "again, name another model.detector"
        ) from error
    except OSError as error:
        raise DetectorError(f"{what} cannot be started ({error.strerror}): mend that, {_RESUMES}") from error
    errors = done.stderr.decode(errors="replace").strip()
    if errors:
        get_logger().debug("the proof wrote", model=model.name, text=errors)
    result = done.stdout.splitlines()[-1:]  # what Python's own start prints (site, sitecustomize) comes before
    try:
        return msgspec.json.decode(b"".join(result), type=tuple[RefusedBackend, ...])
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise DetectorError(f"{what} {_ending(done.returncode, errors)}, {_RESUMES}") from error


def _ending(code: int, errors: str) -> str:
    """Return how the process ended and what to do about it."""
    if code < 0:
        return f"was killed by signal {-code} (out of memory?): free memory"
    last = f" ({one_line(errors.splitlines()[-1])[:_SHOWN]})" if errors else ""
    return f"ended with exit code {code}{last}: mend that"


def end_with_parent() -> None:
    """Let the kernel end this process when the one that started it ends, also by SIGKILL. Linux alone has that.

    PR_SET_PDEATHSIG of prctl(2).
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def main() -> None:
    """Try the version that stdin names; all output but the result goes to stderr."""
    output = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    settings, model, folder, limit_s = pickle.load(sys.stdin.buffer)  # noqa: S301 - written by the training process
    end_with_parent()
    signal.alarm(math.ceil(limit_s + _ORPHAN_S))  # where no signal tells of a training that was killed
    with output:
        output.write(msgspec.json.encode(_tried(settings, model, folder)) + b"\n")


def _tried(settings: Settings, model: ModelRef, folder: Path) -> tuple[RefusedBackend, ...]:
    try:
        return refused_backends(folder, model, settings, detector_for(Plant(settings, folder, SystemClock())))
    except StreamadError as error:
        text = str(error).removeprefix(f"model {model.name} {model.version}: ")
        return (RefusedBackend(TORCHSCRIPT, text),)


if __name__ == "__main__":
    main()
