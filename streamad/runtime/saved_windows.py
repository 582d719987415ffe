"""The windows of debts beside a local checkpoint: one file each, written once, not at every commit."""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from msgspec.structs import replace

from streamad.partition_progress import Debt, Progress
from streamad.system.files import clear_leftovers, write_atomically, writing
from streamad.system.opening import STATE_FOLDER, read_state

_SUFFIX = ".zlib"
_ID = re.compile(r"[0-9a-f]{32}")


def without_windows(progress: Progress) -> Progress:
    """Return ``progress`` as a partition's file holds it: debts without their windows."""
    if not progress.debts:
        return progress
    return replace(progress, debts={name: replace(debt, window=b"") for name, debt in progress.debts.items()})


class SavedWindows:
    """The files of one checkpoint in ``folder``, named by alert_id.

    Law: a window is durable before the commit that names its debt, and is removed only after the one that pays it. A
    file that no debt names was left by a killed process.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def restored(self, progress: Mapping[str, Progress]) -> dict[str, Progress]:
        """Return ``progress`` by partition, its debts with their windows, and remove files that belong to none.

        A window that is gone, or cannot be read, stays empty: its debt ends with an attribution without reasons.
        """
        owed = {name for each in progress.values() for name in each.debts if _ID.fullmatch(name)}
        if self._folder.is_dir() and not self._folder.is_symlink():
            clear_leftovers(self._folder)
            for path in self._folder.glob(f"*{_SUFFIX}"):
                if path.stem not in owed:
                    with suppress(OSError):
                        path.unlink()
        return {
            partition: replace(each, debts={name: self._filled(name, debt) for name, debt in each.debts.items()})
            for partition, each in progress.items()
        }

    def _filled(self, name: str, debt: Debt) -> Debt:
        if _ID.fullmatch(name):
            with suppress(OSError):
                return replace(debt, window=read_state(self._path(name)))
        return debt

    def write(self, debts: Mapping[str, Debt | None]) -> None:
        """Write the windows of new debts, durably. Raises OutputError."""
        new = {name: debt.window for name, debt in debts.items() if debt is not None}
        if not new:
            return
        with writing(self._folder):
            self._folder.mkdir(STATE_FOLDER, exist_ok=True)
        for name, window in new.items():
            write_atomically(self._path(name), window, is_state=True)

    def remove_paid(self, debts: Mapping[str, Debt | None]) -> None:
        """Remove the windows of paid debts; what cannot be removed is removed at the next start."""
        for name, debt in debts.items():
            if debt is None and _ID.fullmatch(name):
                with suppress(OSError):
                    self._path(name).unlink(missing_ok=True)

    def _path(self, name: str) -> Path:
        return self._folder / f"{name}{_SUFFIX}"
