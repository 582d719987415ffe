"""The figures of a promotion decision or a comparison as a table of two models."""

from __future__ import annotations

from collections.abc import Mapping

from rich.table import Table

from streamad.outputs.versions.figures import figure_rows


def figures_table(figures: Mapping[str, float], heads: Mapping[str, str]) -> Table:
    """Return the table of ``Comparison.figures()``; ``heads`` are the names of challenger and champion, in order.

    Rows without any figure are left out: manifests of earlier versions have fewer figures.
    """
    table = Table("", *heads.values(), box=None)
    for row in figure_rows(figures, tuple(heads)):
        table.add_row(*row)
    return table
