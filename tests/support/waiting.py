"""Runs calls that may wait for ever on the code that a test is about."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

_T = TypeVar("_T")
LIMIT_S = 20.0


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
