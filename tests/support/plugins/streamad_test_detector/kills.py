"""Dies by SIGKILL at a chosen touch of a chosen file: what ``KILL_WORKER`` or ``KILL_TRAINER`` in the environment says.

The value is ``PATH:COUNT``, or ``PATH:COUNT:THEN`` to die at the first touch of THEN after that. A touch is any audited
operation (open, rename, mkdir, remove, list) on a path that contains PATH.
"""

from __future__ import annotations

__all__ = ["die_as_told"]

import os
import signal
import sys


def die_as_told() -> None:
    """Read from the environment what this process, a worker or a trainer, is to die of, if anything."""
    is_trainer = "/trainer/" in sys.argv[0]
    told = os.environ.get("KILL_TRAINER" if is_trainer else "KILL_WORKER")
    if told:
        path, count, *then = told.split(":")
        sys.addaudithook(_Death(path, int(count), then[0] if then else ""))


class _Death:
    def __init__(self, path: str, count: int, then: str) -> None:
        self._path, self._left, self._then = path, count, then

    def __call__(self, event: str, args: tuple[object, ...]) -> None:
        names = [str(arg) for arg in args if isinstance(arg, str | os.PathLike)]
        if self._left > 0:
            self._left -= any(self._path in name for name in names)
            dies = self._left == 0 and not self._then
        else:
            dies = bool(self._then) and any(self._then in name for name in names)
        if dies:
            os.kill(os.getpid(), signal.SIGKILL)
