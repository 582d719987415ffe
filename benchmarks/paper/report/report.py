"""``python -m benchmarks.paper report``: docs/model/paper.md from the stored cells and paper.md.in."""

from __future__ import annotations

import argparse
import json
import re
import string
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from benchmarks.paper.report.curves import curves_as_json
from benchmarks.paper.report.markdown import (
    left_section,
    named,
    table_section,
    time_section,
)
from benchmarks.paper.report.summary import HALVES, TABLES, Entry, entries
from benchmarks.paper.results_table import RESULTS, Result
from benchmarks.paper.todo import read_current
from streamad.errors import UsageError
from streamad.system.files import writing

HERE: Final = Path(__file__).resolve().parent
TEMPLATE: Final = HERE / "paper.md.in"
DOCUMENT: Final = HERE.parents[2] / "docs" / "model" / "paper.md"
_NOTE: Final = (
    "<!-- Built by `python -m benchmarks.paper report`; its text is in benchmarks/paper/report/paper.md.in. -->\n\n"
)


def register(subparsers: Any) -> None:
    """Add ``report`` to the subcommands."""
    parser = subparsers.add_parser(
        "report", help="build docs/model/paper.md from the stored cells", description=__doc__
    )
    parser.add_argument("--results", type=Path, default=RESULTS, help="folder of the cells (default: the study's)")
    parser.add_argument("--to", type=Path, default=DOCUMENT, help="the document (default: docs/model/paper.md)")
    parser.add_argument("--json", action="store_true", help="print every cell as one JSON object last; write nothing")
    parser.set_defaults(command=run)


def run(arguments: argparse.Namespace) -> int:
    """Write the document, or print the cells; return the exit code."""
    if not arguments.results.is_dir():
        raise UsageError(f"no folder {arguments.results}: run the study first, or name it with --results")
    results, n_outdated = read_current(arguments.results)
    if n_outdated:
        print(f"{n_outdated} stored cells are outdated and left out: `run` measures them anew", file=sys.stderr)
    found = entries(results)
    if arguments.json:
        cells = [entry.as_json() for entry in (*found, *entries(results, (HALVES,)))]
        print(json.dumps({"cells": [*cells, *curves_as_json(results)]}))
        return 0
    document = build(TEMPLATE.read_text(encoding="utf-8"), results, found)
    with writing(arguments.to):
        arguments.to.write_text(without_missing_pictures(document, arguments.to.parent), encoding="utf-8")
    print(f"{arguments.to}: {len(results)} models in {sum(entry.ours is not None for entry in found)} cells")
    return 0


def without_missing_pictures(document: str, folder: Path) -> str:
    """Return ``document`` without the pictures that do not exist; links are relative to ``folder``."""

    def kept(picture: re.Match[str]) -> str:
        return picture[0] if (folder / picture[1]).exists() else ""

    return re.sub(r"^!\[[^]]*\]\(([^)]+)\)\n\n", kept, document, flags=re.MULTILINE)


def build(template: str, results: Sequence[Result], found: Sequence[Entry]) -> str:
    """Return the document: ``template`` with its ``${names}`` filled. Raises KeyError for a name that is none.

    The names are those of sections and of cells (``named``). Typed figures are not checked.
    """
    drawn = entries(results, (HALVES,))
    parts = named([*found, *drawn])
    parts |= {f"table_{table.number}": table_section(table, found) for table in TABLES}
    parts |= {"time": time_section(results), "left": left_section(results)}
    return _NOTE + string.Template(template).substitute(parts)
