"""Prints detection and false alarms by label: a row for each label, as far as a terminal should hold."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table
from rich.text import Text

from streamad.commands.shared.console import count, note, out, print_table, printed
from streamad.judge.evaluation import Evaluation, LabelFigures
from streamad.safe_text import visible_name

_ROWS = 20
_LABEL_CELLS = 22


def print_by_label(evaluation: Evaluation, n_models: int = 1) -> None:
    """Print a table of the anomalous labels and one of the normal ones, each if there are several.

    The rates of all sequences together say the same of a single one. ``n_models`` gave the scores.
    """
    anomalous = [one for one in evaluation.by_label if one.is_anomalous]
    normal = [one for one in evaluation.by_label if not one.is_anomalous]
    if len(anomalous) > 1:
        _print_rows("Found by label:", anomalous, has_auc=any(one.auc is not None for one in anomalous))
    if len(normal) > 1:
        _print_rows("False alarms by label:", normal, has_auc=False)
    if evaluation.auc is not None and n_models > 1:
        out.print(
            note(
                f"the AUC compares scores of {n_models} models, each with a scale of its own. The shares of alerts "
                "hold for all models together. For one model, replay its sequences alone."
            )
        )


def _print_rows(title: str, rows: Sequence[LabelFigures], *, has_auc: bool) -> None:
    has_unscorable = any(one.n_unscorable for one in rows)
    shares = "share" if rows[0].interval is None else "share (95 % interval)"
    optional = {"AUC": has_auc, "unscorable": has_unscorable}
    table = Table("label", "alerted", shares, *(name for name, is_shown in optional.items() if is_shown), box=None)
    table.padding = (0, 2, 0, 0)
    for one in rows[:_ROWS]:
        cells = [_label(one.label), f"{one.n_alerts} of {one.n_sequences}", _share(one)]
        if has_auc:
            cells.append("" if one.auc is None else f"{one.auc:.3f}")
        if has_unscorable:
            cells.append(str(one.n_unscorable or ""))
        table.add_row(*cells)
    out.print(title)
    print_table(table, whole=("alerted", shares))
    if more := rows[_ROWS:]:
        n_sequences = sum(one.n_sequences for one in more)
        out.print(f"and {count(len(more), 'more label')} ({count(n_sequences, 'sequence')}): --json lists all")


def _label(text: str) -> str:
    """Return a label for a cell: on one line, at most as wide as its column."""
    shown = Text(visible_name(printed(text)) or "(empty)")
    shown.truncate(_LABEL_CELLS, overflow="ellipsis")
    return shown.plain


def _share(one: LabelFigures) -> str:
    interval = "" if one.interval is None else f" ({100 * one.interval[0]:.1f} to {100 * one.interval[1]:.1f})"
    return f"{one.rate:.1%}{interval}"
