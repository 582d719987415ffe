"""Links among recordings: one that leads out of its folder would copy what this program can read into dead letters.

Links within a folder are followed, as those of volumes that Kubernetes mounts. A link that is named itself may lead
anywhere; a second name of a file (hard link) cannot be told from the first.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from streamad.errors import SourceError


class Bound:
    """The folder that no link may lead out of, None: any may."""

    def __init__(self, folder: Path | None) -> None:
        self._real = None if folder is None else os.path.realpath(folder)

    def check(self, paths: Iterable[Path]) -> None:
        """Raise SourceError if one of ``paths`` lies elsewhere than below the folder."""
        known: set[str] = set()  # folders; one look at each file takes a tenth of the time that its whole path does
        for path in paths:
            folder = os.path.dirname(path)  # noqa: PTH120 - a hundred thousand paths
            if folder not in known or os.path.islink(path):  # noqa: PTH114
                self.check_one(path)
                known.add(folder)

    def check_one(self, path: Path) -> None:
        """Raise SourceError if ``path`` lies elsewhere than below the folder."""
        if self._real is None:
            return
        real = os.path.realpath(path)
        if os.path.commonpath((real, self._real)) != self._real:
            raise SourceError(
                f"{path}: is a link, or lies in one, out of {self._real}, to {real}: copy the file there, or set "
                "source.options.links: anywhere"
            )


ANYWHERE = Bound(None)
