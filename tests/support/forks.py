"""The fork server that tests share: a process of pytest has one, and its preloads count only before its first fork."""

from __future__ import annotations

import multiprocessing
from multiprocessing.context import ForkServerContext


def fork_server_context(*more: str) -> ForkServerContext:
    """Return the context whose children have everything imported: a life then takes milliseconds, not seconds.

    ``more`` are further modules to import, for who asks first.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.support.runtime.child", "tests.support.kafka.child", *more])
    return context
