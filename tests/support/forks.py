"""The fork server that tests share: a process of pytest has one, and its preloads count only before its first fork."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerContext, ForkServerProcess
from typing import Any, Final

from tests.support.waiting import LIMIT_S

_PRELOADED: Final = (
    "tests.support.runtime.child",
    "tests.support.kafka.child",
    "streamad.commands.run.command",
    "streamad.commands.train",
    "streamad.judge.shift",
    "streamad.runtime.reports",
    "streamad_models.torchscript",
    "scipy.special",
)


@contextmanager
def forked(context: ForkServerContext) -> Iterator[Callable[..., ForkServerProcess]]:
    """Give the function that starts a child; those that a failing test leaves behind are ended, each by its id."""
    children: list[ForkServerProcess] = []

    def start(target: Callable[..., None], *args: object, **named: object) -> ForkServerProcess:
        process = context.Process(target=target, args=args, kwargs=named)
        process.start()
        children.append(process)
        return process

    try:
        yield start
    finally:
        for process in children:
            if process.is_alive():
                process.kill()
            process.join(LIMIT_S)
            process.close()


def fork_server_context(*more: str) -> ForkServerContext:
    """Return the context whose children have everything imported: a life then takes milliseconds, not seconds.

    ``more`` are further modules to import, for who asks first.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([*_PRELOADED, *more])
    return context


class QuickProcesses:
    """Stands in for a context that starts Python anew: forks with the environment of who starts them.

    ``more`` are further modules to import. The study's tests that go through its command line, and those of its
    workers, have its own.
    """

    def __init__(self, *more: str) -> None:
        self._context = fork_server_context(*more)

    def Pipe(self) -> tuple[Connection, Connection]:  # noqa: N802 - multiprocessing's name
        return self._context.Pipe()

    def Process(self, target: Callable[..., None], args: tuple[Any, ...], daemon: bool) -> ForkServerProcess:  # noqa: N802
        return self._context.Process(target=_in_environment, args=(dict(os.environ), target, *args), daemon=daemon)


def _in_environment(environment: dict[str, str], target: Callable[..., None], *args: Any) -> None:
    os.environ.clear()
    os.environ.update(environment)
    target(*args)
