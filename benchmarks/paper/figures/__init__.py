"""``python -m benchmarks.paper figures``: draws the paper's figures into docs/figures/ from stored results.

Curves are drawn from the study's cells. The data of the other figures are measured once and kept as NPZ files beside
the results; ``--anew`` trains their small models again.
"""

from __future__ import annotations

import argparse
import importlib
from pathlib import Path
from typing import Any, Final

from benchmarks.paper.results_table import RESULTS
from streamad.system.files import writing

FOLDER: Final = Path(__file__).resolve().parents[3] / "docs" / "figures"
FIGURES: Final = {
    "paper_score_histogram": "histogram",
    "paper_views_pca": "pca",
    "paper_sad_masks": "masks",
    "paper_sad_transformations": "sad_transformations",
    "paper_natops_transformations": "natops_transformations",
    "paper_n_vs_rest": "n_vs_rest",
    "paper_ablation": "ablation",
    "paper_thyroid_masks": "thyroid_masks",
    "paper_thyroid_simplex": "simplex",
}
"""Name of the picture -> its module here, whose ``draw`` takes the folder of results and returns the figure."""

_DPI: Final = 110


def register(subparsers: Any) -> None:
    """Add ``figures`` to the subcommands."""
    parser = subparsers.add_parser("figures", help="draw the figures from stored results", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"which (default: all): {', '.join(FIGURES)}")
    parser.add_argument("--results", type=Path, default=RESULTS, help="folder of the results (default: the study's)")
    parser.add_argument("--to", type=Path, default=FOLDER, help="folder of the pictures (default: docs/figures)")
    parser.add_argument("--anew", action="store_true", help="measure the stored data of the figures again")
    parser.set_defaults(command=run)


def run(arguments: argparse.Namespace) -> int:
    """Draw the figures; the exit code is 1 if one has no data yet."""
    from benchmarks.paper.figures.stores import forget  # noqa: PLC0415 - the help needs no torch
    from streamad.errors import UsageError  # noqa: PLC0415

    names = arguments.names or list(FIGURES)
    if unknown := [name for name in names if name not in FIGURES]:
        raise UsageError(f"no figure {unknown[0]!r}: there are {', '.join(FIGURES)}")
    if arguments.anew:
        forget(arguments.results, [FIGURES[name] for name in names])
    with writing(arguments.to):
        arguments.to.mkdir(parents=True, exist_ok=True)
    drawn = [_drawn(name, arguments.results, arguments.to) for name in names]
    return 0 if all(drawn) else 1


def _drawn(name: str, results: Path, folder: Path) -> bool:
    figure = importlib.import_module(f"{__name__}.{FIGURES[name]}").draw(results)
    if figure is None:
        print(f"{name}: nothing to show yet, run its part of the study first")
        return False
    path = folder / f"{name}.png"
    with writing(path):
        figure.savefig(path, dpi=_DPI, metadata={"Software": None})
    print(f"{name}: {path}")
    return True
