"""KDD Cup 99 as numbers: 34 continuous columns, and one column for each value of the symbolic ones.

A constant symbolic column (is_host_login in the ten per cent) is left out, which gives the paper's 120 columns.
Legend: n connections, S values of the symbolic columns.
"""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

from streamad.errors import SourceError
from streamad.types import BoolArray, FloatArray

N_COLUMNS: Final = 41
# protocol_type, service, flag, land, logged_in, is_host_login, is_guest_login
SYMBOLIC: Final = (1, 2, 3, 6, 11, 20, 21)
CONTINUOUS: Final = tuple(column for column in range(N_COLUMNS) if column not in SYMBOLIC)
NORMAL: Final = "normal."
_BLOCK_LINES: Final = 20_000


@dataclass(frozen=True, slots=True, eq=False)
class Connections:
    """``continuous`` float32 [n, 34], ``one_hot`` uint8 [n, S], ``is_attack`` bool [n]."""

    continuous: FloatArray
    one_hot: npt.NDArray[np.uint8]
    is_attack: BoolArray


def read_connections(path: Path) -> Connections:
    """Return the connections in the archive's gzip file. Raises SourceError if it is not as described."""
    try:
        with gzip.open(path, "rt", encoding="ascii") as lines:
            number: dict[str, int] = {}  # two lines of three repeat another: each distinct one is parsed once
            places = np.array([number.setdefault(line, len(number)) for line in lines], np.int64)
        blocks = [_columns(block) for block in _batched(number)]
    except (OSError, EOFError, ValueError, zlib.error) as error:
        raise SourceError(f"{path} is not the KDD Cup 99 file: {error}") from error
    if not blocks:
        raise SourceError(f"{path} is not the KDD Cup 99 file: it is empty")
    continuous, symbols, is_attack = (np.concatenate(parts) for parts in zip(*blocks, strict=True))
    return Connections(continuous[places], _one_hot(symbols)[places], is_attack[places])


def _batched(lines: Iterable[str]) -> Iterator[list[str]]:
    """Yield ``lines`` in lists of at most 20,000."""
    rest = iter(lines)
    while block := list(islice(rest, _BLOCK_LINES)):
        yield block


def _columns(lines: list[str]) -> tuple[FloatArray, npt.NDArray[np.str_], BoolArray]:
    rows = [line.rstrip("\n").split(",") for line in lines]
    if any(len(row) != N_COLUMNS + 1 for row in rows):
        raise ValueError(f"a line has not {N_COLUMNS + 1} fields")
    fields = np.array(rows)
    return fields[:, CONTINUOUS].astype(np.float32), fields[:, SYMBOLIC], fields[:, N_COLUMNS] != NORMAL


def _one_hot(symbols: npt.NDArray[np.str_]) -> npt.NDArray[np.uint8]:
    columns = []
    for column in symbols.T:
        values, number = np.unique(column, return_inverse=True)
        if len(values) > 1:
            columns.append(np.eye(len(values), dtype=np.uint8)[number])
    return np.concatenate(columns, axis=1) if columns else np.zeros((len(symbols), 0), np.uint8)
