"""Runs calls that may wait for ever on the code that a test is about."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

_T = TypeVar("_T")
LIMIT_S = 300.0
"""What only a program that hangs takes, however slow the machine is."""
IN_TIME_S = 35.0
"""What our time-outs of some seconds take on a slow machine; aiokafka's own are 40 s."""


def returned(call: Callable[[], _T]) -> _T:
    """Return what ``call`` returns, or raise what it raises; an AssertionError if it does not end."""
    found: list[_T] = []
    raised: list[BaseException] = []

    def work() -> None:
        try:
            found.append(call())
        except BaseException as error:  # noqa: BLE001 - raised again by the caller's thread
            raised.append(error)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(LIMIT_S)
    assert not thread.is_alive(), "it waits for ever"
    if raised:
        raise raised[0]
    return found[0]
