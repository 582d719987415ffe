"""Cells of a fuzzing run: some cases of one family, each a function of seed and number, with what they found."""

from __future__ import annotations

import faulthandler
import json
import random
import shutil
import sys
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.support.fuzz import framed
from tests.support.fuzz.calling import LIMIT_S
from tests.support.fuzz.command_lines import run_command_line
from tests.support.fuzz.configs import run_config
from tests.support.fuzz.files import run_file
from tests.support.fuzz.messages import PER_CASE, run_messages
from tests.support.fuzz.plant import FuzzPlant

Case = Callable[[random.Random, FuzzPlant, Path], Iterator[tuple[list[str], str | None]]]


def _case_of(name: str, run: Callable[[random.Random], str | None]) -> Case:
    def case(rng: random.Random, _plant: FuzzPlant, _folder: Path) -> Iterator[tuple[list[str], str | None]]:
        try:
            yield [name], run(rng)
        except Exception:  # noqa: BLE001 - every error that leaves the pipeline is a finding
            yield [name], f"traceback: {traceback.format_exc().splitlines()[-1][:200]}"

    return case


FAMILIES: dict[str, Case] = {
    "messages": _case_of("messages", run_messages),
    "framed": _case_of("framed", framed.run_framed),
    "files": run_file,
    "configs": run_config,
    "command-lines": run_command_line,
}
CASES_PER_CELL = {"messages": 40, "framed": 20, "files": 100, "configs": 100, "command-lines": 100}
PER_CASE_OF = {"messages": PER_CASE, "framed": framed.PER_CASE}
"""Messages in a case; a case of another family is one file, config or command line."""


@dataclass(frozen=True, slots=True)
class Cell:
    """The cases ``first`` to ``after - 1`` of a family."""

    family: str
    first: int
    after: int

    @property
    def name(self) -> str:
        """The cell as ``--only`` names it."""
        return f"{self.family}:{self.first}-{self.after}"


def cells(counts: dict[str, int]) -> list[Cell]:
    """Return the cells of ``counts`` messages, files ..., in turn among families, so that each has a part early."""
    found = []
    for family, count in counts.items():
        n = -(-count // PER_CASE_OF.get(family, 1))
        size = CASES_PER_CELL[family]
        of_family = [Cell(family, first, min(first + size, n)) for first in range(0, n, size)]
        found += [((index + 0.5) / len(of_family), cell) for index, cell in enumerate(of_family)]
    return [cell for _, cell in sorted(found, key=lambda each: (each[0], each[1].family))]


def run_case(family: str, number: int, seed: int, plant: FuzzPlant, folder: Path) -> Iterator[dict[str, str]]:
    """Run one case in ``folder``; yield what breaks the law, with the words that repeat it."""
    rng = random.Random(f"{seed}:{family}:{number}")
    for words, fault in FAMILIES[family](rng, plant, folder):
        if fault is not None:
            yield {"case": f"{family}:{number}", "words": " ".join(words)[:500], "fault": fault}


def run_cell(cell: Cell, seed: int, plant: FuzzPlant, folder: Path, kept: Path) -> dict[str, object]:
    """Run the cases of ``cell``; the plant of each that breaks the law is kept in ``kept``.

    The number of the case under way is in ``folder``/case, for the process that waits for this one.
    """
    faults: list[dict[str, str]] = []
    for number in range(cell.first, cell.after):
        (folder / "case").write_text(f"{cell.family}:{number}")
        faulthandler.dump_traceback_later(4 * LIMIT_S, exit=True)
        for fault in run_case(cell.family, number, seed, plant, folder):
            faults.append(fault)
            print(json.dumps(fault), file=sys.stderr, flush=True)
            if (folder / "plant").is_dir():
                shutil.copytree(
                    folder / "plant",
                    kept / f"{cell.family}-{number}",
                    symlinks=True,
                    dirs_exist_ok=True,
                    copy_function=_copy,
                )
        faulthandler.cancel_dump_traceback_later()
    return {"cell": cell.name, "cases": cell.after - cell.first, "faults": faults}


def _copy(source: str, target: str) -> None:
    if Path(source).is_file():  # a FIFO would block
        shutil.copy2(source, target)
