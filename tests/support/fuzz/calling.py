"""Calls the command line inside this process, or in one of its own, and keeps all that it printed."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
import time
import traceback
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from functools import cache
from importlib.metadata import EntryPoints, entry_points
from pathlib import Path
from unittest.mock import patch

import typer.main

from streamad.cli import main
from tests.support.waiting import LIMIT_S

"""A call that takes longer hangs; one that ends by a signal alone gets it after ``stop_after_s``."""


class HungError(KeyboardInterrupt):
    """Raised in a call that passed LIMIT_S; a Ctrl-C, as only such an error passes through an event loop."""


@dataclass(frozen=True, slots=True)
class Answer:
    """The end of one call: exit code, printed text, and the traceback of an error that left the command line."""

    code: int
    out: str
    err: str
    raised: str = ""
    hung: bool = False
    wall_s: float = 0.0


def call(
    arguments: Sequence[str],
    folder: Path,
    environment: Mapping[str, str] | None = None,
    *,
    stop_after_s: float | None = None,
) -> Answer:
    """Run ``streamad ARGUMENTS`` in ``folder`` inside this process, which must be its main thread."""
    began_s = time.monotonic()
    raised, code = "", 0
    with _streams() as (out, err), _surroundings(arguments, folder, environment or {}), _guard(stop_after_s) as hung:
        try:
            main()
        except SystemExit as stop:
            code = _code_of(stop)
        except KeyboardInterrupt:  # streamad.__main__ makes it this code
            code = 130
        except BaseException:  # noqa: BLE001 - every error that leaves the command line is a finding
            raised, code = traceback.format_exc(), 1
    return Answer(code, _text(out), _text(err), raised, bool(hung), time.monotonic() - began_s)


def call_process(
    arguments: Sequence[str],
    folder: Path,
    environment: Mapping[str, str] | None = None,
    *,
    stop_after_s: float | None = None,
) -> Answer:
    """Run the same in a process of its own."""
    began_s = time.monotonic()
    surroundings = {**os.environ, **_fixed(folder), **(environment or {})}
    words = [os.fsencode(word) for word in (sys.executable, "-m", "streamad", *arguments)]
    process = subprocess.Popen(
        words, cwd=folder, env=surroundings, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    hung = False
    try:
        out, err = process.communicate(timeout=LIMIT_S if stop_after_s is None else stop_after_s + 5)
    except subprocess.TimeoutExpired:
        hung = stop_after_s is None
        process.send_signal(signal.SIGKILL if hung else signal.SIGINT)
        try:
            out, err = process.communicate(timeout=LIMIT_S)
        except subprocess.TimeoutExpired:
            hung = True
            process.kill()
            out, err = process.communicate()
    text = out.decode("utf-8", "replace"), err.decode("utf-8", "replace")
    # A Ctrl-C before the first line of ours ends Python by that signal, which shells show as 130.
    code = 130 if process.returncode == -signal.SIGINT else process.returncode
    return Answer(code, *text, "", hung, time.monotonic() - began_s)


@cache
def _entry_points(group: str) -> EntryPoints:
    return entry_points(group=group)


# What each process does once, and takes half the time of a call inside this one.
_SHORTCUTS: dict[str, object] = {
    "streamad.plugins.entry_points": _entry_points,
    "typer.main.get_command": cache(typer.main.get_command),
    "streamad.commands.shared.monitor.calm_garbage_collector": nullcontext,
}


def _fixed(folder: Path) -> dict[str, str]:
    return {"COLUMNS": "200", "HOME": str(folder.parent), "USER": "fuzz"}


def _code_of(stop: SystemExit) -> int:
    if stop.code is None or isinstance(stop.code, int):
        return stop.code or 0
    print(stop.code, file=sys.stderr)
    return 1


def _text(stream: io.TextIOWrapper) -> str:
    stream.flush()
    assert isinstance(stream.buffer, io.BytesIO)
    return stream.buffer.getvalue().decode("utf-8", "replace")


@contextmanager
def _streams() -> Iterator[tuple[io.TextIOWrapper, io.TextIOWrapper]]:
    """Replace the standard streams by ones with the error handlers of a real process."""
    out, err = (
        io.TextIOWrapper(io.BytesIO(), encoding="utf-8", errors=errors) for errors in ("strict", "backslashreplace")
    )
    before = sys.stdin, sys.stdout, sys.stderr
    sys.stdin, sys.stdout, sys.stderr = io.TextIOWrapper(io.BytesIO(), encoding="utf-8"), out, err
    try:
        yield out, err
    finally:
        sys.stdin, sys.stdout, sys.stderr = before


@contextmanager
def _surroundings(arguments: Sequence[str], folder: Path, environment: Mapping[str, str]) -> Iterator[None]:
    before = Path.cwd()
    os.chdir(folder)
    try:
        with ExitStack() as stack:
            stack.enter_context(patch.object(sys, "argv", ["streamad", *arguments]))
            stack.enter_context(patch.dict(os.environ, {**_fixed(folder), **environment}))
            stack.enter_context(patch.object(os, "_exit", sys.exit))
            for name, quick in _SHORTCUTS.items():
                stack.enter_context(patch(name, quick))
            stack.enter_context(warnings.catch_warnings())
            warnings.simplefilter("default")
            for ignored in (DeprecationWarning, PendingDeprecationWarning, ImportWarning, ResourceWarning):
                warnings.simplefilter("ignore", ignored)
            yield
    finally:
        os.chdir(before)


@contextmanager
def _guard(stop_after_s: float | None) -> Iterator[list[float]]:
    """Send SIGINT after ``stop_after_s``, raise HungError after LIMIT_S; yield a list, empty if it was in time."""
    hung: list[float] = []
    ends_s = time.monotonic() + LIMIT_S

    def on_alarm(*_: object) -> None:
        if time.monotonic() >= ends_s:
            hung.append(LIMIT_S)
            raise HungError
        signal.setitimer(signal.ITIMER_REAL, max(0.01, ends_s - time.monotonic()))
        signal.raise_signal(signal.SIGINT)

    before = signal.signal(signal.SIGALRM, on_alarm), signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.setitimer(signal.ITIMER_REAL, LIMIT_S if stop_after_s is None else stop_after_s)
    try:
        yield hung
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before[0])
        signal.signal(signal.SIGINT, before[1])
