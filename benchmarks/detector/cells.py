"""The measured cells: one JSON line each in ``cells.jsonl``, sorted, so that a run can be continued and git merges."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import msgspec

from streamad.system.files import write_atomically

PATH: Final = Path(__file__).resolve().parent / "cells.jsonl"


class Cell(msgspec.Struct, frozen=True, order=True, omit_defaults=True):
    """One fit and its AUC on the test windows, 0 to 100.

    ``label`` is the class that is normal (one_vs_rest) or left out (n_vs_rest); ``n_training`` 0 stands for all
    windows of the set. Method ``choices`` holds the AUC of every choice of the grid in ``aucs``, in the grid's order.
    """

    dataset: str
    protocol: str
    label: int
    method: str
    n_training: int = 0
    seed: int = 0
    auc: float = 0.0
    fit_s: float = 0.0
    score_ms: float = 0.0
    aucs: tuple[float, ...] = ()

    @property
    def key(self) -> tuple[str, str, int, str, int, int]:
        """Return what tells the cell from others."""
        return self.dataset, self.protocol, self.label, self.method, self.n_training, self.seed


def read_cells(path: Path = PATH) -> list[Cell]:
    """Return the cells measured so far."""
    if not path.exists():
        return []
    return [msgspec.json.decode(line, type=Cell) for line in path.read_bytes().splitlines()]


def add_cell(cell: Cell, path: Path = PATH) -> None:
    """Store ``cell`` in the place of one with the same key."""
    cells = [each for each in read_cells(path) if each.key != cell.key]
    lines = [msgspec.json.encode(each) for each in sorted([*cells, cell], key=lambda each: each.key)]
    write_atomically(path, b"\n".join(lines) + b"\n")
