"""Who judges the units: this process, or several of this machine. Another executor is Ray (``on_ray``)."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import closing, suppress
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any, Protocol

from streamad.errors import ExecutorError, StreamadError
from streamad.offline.units import Task, Unit
from streamad.offline.work import Outcome, Worker
from streamad.plugins import failure_of

Share = Callable[[Unit, float], None]
"""Is told which share of a unit was read."""
_STEP = 0.01
KILLS = 2
"""A unit whose process died so often is not tried again."""


class Executor(Protocol):
    """Judges units, and yields what became of each as it is done.

    Law: the files and outcomes are those of ``InProcess``, in some order. A worker that dies takes at most the unit at
    hand with it, which is judged again. Raises StreamadError if nothing more can be judged; what is done stays.
    """

    def outcomes(self, task: Task, units: Sequence[Unit], share: Share) -> Generator[Outcome]:
        """Yield the outcome of each unit."""
        ...


class InProcess:
    """Judges in this process, one unit after the other."""

    def outcomes(self, task: Task, units: Sequence[Unit], share: Share) -> Generator[Outcome]:
        """Yield the outcome of each unit."""
        with closing(Worker(task)) as worker:
            for unit in units:
                yield worker.do(unit, lambda done, unit=unit: share(unit, done))  # type: ignore[misc]


class Processes:
    """Judges in ``n`` processes of this machine, the largest units first."""

    def __init__(self, n: int) -> None:
        self._n = n

    def outcomes(self, task: Task, units: Sequence[Unit], share: Share) -> Generator[Outcome]:
        """Yield the outcome of each unit. Raises StreamadError."""
        left = deque(largest_first(units))
        killed: dict[Unit, int] = {}
        hands = [_Hand(task) for _ in range(min(self._n, len(left)))]
        try:
            for hand in hands:
                hand.give(left)
            while any(hand.unit is not None for hand in hands):
                for hand in _ready(hands):
                    unit = hand.unit
                    message = hand.receive()
                    if isinstance(message, float) and unit is not None:
                        share(unit, message)
                    elif isinstance(message, StreamadError):
                        raise message
                    elif isinstance(message, Outcome):
                        yield message
                        hand.give(left)
                    elif unit is not None:
                        killed[unit] = killed.get(unit, 0) + 1
                        if killed[unit] < KILLS:
                            left.append(unit)
                        else:
                            yield Outcome(unit, error=killed_text(hand.end()))
                        hands[hands.index(hand)] = another = _Hand(task)
                        another.give(left)
        finally:
            for hand in hands:
                hand.stop()


def largest_first(units: Iterable[Unit]) -> list[Unit]:
    """Return ``units`` so that the workers end at about the same time."""
    return sorted(units, key=lambda unit: -unit.n_bytes)


def killed_text(how: str) -> str:
    """Return why a unit failed whose worker died ``how`` each time."""
    return f"its process died {KILLS} times ({how}): it may take more memory than there is"


class _Hand:
    """One process, the pipe to it, and the unit that it judges."""

    def __init__(self, task: Task) -> None:
        context = multiprocessing.get_context("spawn")
        self.connection, theirs = context.Pipe()
        self.unit: Unit | None = None
        self.process: BaseProcess = context.Process(target=_work, args=(theirs, task), daemon=True)
        self.process.start()
        theirs.close()

    def give(self, left: deque[Unit]) -> None:
        """Let the process judge the next unit of ``left``; without one it ends."""
        self.unit = left.popleft() if left else None
        with suppress(OSError):  # it has died: the pipe's end says so
            self.connection.send(self.unit)

    def receive(self) -> Any:
        """Return the next message; None if the process has died."""
        try:
            return self.connection.recv()
        except (EOFError, OSError):
            return None

    def end(self) -> str:
        """Return how the process died."""
        self.process.join()
        code = self.process.exitcode
        return f"signal {-code}" if code is not None and code < 0 else f"exit code {code}"

    def stop(self) -> None:
        """End the process at once; a unit at hand leaves no file."""
        self.connection.close()
        self.process.terminate()
        self.process.join()


def _ready(hands: Sequence[_Hand]) -> list[_Hand]:
    by_connection = {hand.connection: hand for hand in hands if hand.unit is not None}
    return [by_connection[each] for each in wait(list(by_connection)) if isinstance(each, Connection)]


def _work(connection: Connection, task: Task) -> None:
    """Judge the units that come until there is none, or the parent has died."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the parent, too, which ends this process
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    threading.Thread(target=_end_with_parent, daemon=True).start()
    told = 0.0

    def show(share: float) -> None:
        nonlocal told
        if abs(share - told) >= _STEP:
            told = share
            connection.send(share)

    try:
        with closing(Worker(task)) as worker:
            while (unit := connection.recv()) is not None:
                connection.send(worker.do(unit, show))
    except EOFError:
        return
    except StreamadError as error:
        connection.send(error)
    except Exception as error:  # noqa: BLE001 - the parent says what it was
        connection.send(ExecutorError(f"a worker failed: {failure_of(error)}"))


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
