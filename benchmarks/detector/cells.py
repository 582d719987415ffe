"""The measured cells, one JSON line each in ``cells.jsonl``, appended at once: a run can be stopped and continued."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import msgspec

PATH: Final = Path(__file__).resolve().parent / "cells.jsonl"


class Cell(msgspec.Struct, frozen=True, order=True, omit_defaults=True):
    """A method on a task: the AUC on the test windows, and what a user gets; all figures x 100.

    ``label`` is the class that is normal (one_vs_rest) or left out (n_vs_rest), or the seed of a division. ``found``
    and ``false_alarms`` are the shares of anomalies and of normal test windows with a p-value of at most 2 % by the
    calibration of ``streamad train``. Method ``choices`` has none of the three, but the AUC and the share found at the
    rank threshold of every choice of the grid, in the grid's order.
    """

    dataset: str
    protocol: str
    label: int
    method: str
    seed: int = 0
    n_training: int = 0
    n_calibration: int = 0
    auc: float = 0.0
    found: float | None = None
    false_alarms: float | None = None
    fit_s: float = 0.0
    aucs: tuple[float, ...] = ()
    shares: tuple[float, ...] = ()

    @property
    def key(self) -> tuple[str, str, int, str, int]:
        """Return what tells the cell from others."""
        return self.dataset, self.protocol, self.label, self.method, self.seed


def read_cells(path: Path = PATH) -> list[Cell]:
    """Return the cells measured so far, sorted; of several with one key the last."""
    if not path.exists():
        return []
    cells = (msgspec.json.decode(line, type=Cell) for line in path.read_bytes().splitlines())
    return sorted({cell.key: cell for cell in cells}.values(), key=lambda cell: cell.key)


def add_cell(cell: Cell, path: Path = PATH) -> None:
    """Append ``cell``: runs of different methods may share the file."""
    with path.open("ab") as file:
        file.write(msgspec.json.encode(cell) + b"\n")
