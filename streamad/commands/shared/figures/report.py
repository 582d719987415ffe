"""The report of a run: figures for machines, tables for people, also compared with labels."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from rich.table import Table
from rich.text import Text

from streamad.commands.shared.console import count, note, out, print_table, printed
from streamad.commands.shared.figures.labels import Labels
from streamad.commands.shared.figures.losses import lost, unscorable_text
from streamad.commands.shared.figures.warnings import WarningFigures, add_warnings
from streamad.errors import SourceError
from streamad.judge.evaluation import Evaluation, LabelFigures, evaluate
from streamad.judge.scoring import ModelInService
from streamad.judge.shift import ManyAlerts
from streamad.language import percent, percents
from streamad.messages import EarlyWarning, Verdict
from streamad.safe_text import visible_name

_ROWS = 20
_LABEL_CELLS = 22
KNOWN_SEQUENCES = "{} of {} have the id of one that trained or calibrated the model: figures on them are too good"


def print_summary(
    report: RunReport,
    configured_rate: float,
    evaluation: Evaluation | None = None,
    warned: tuple[WarningFigures, float] | None = None,
) -> None:
    """Print the figures of a run and, with labels, its detection and false-alarm rates.

    ``warned``: the figures of its warnings, and their configured rate. Of recordings read as fast as possible the time
    from the end to the decision is that of a queue: it is left out.
    """
    table = Table(show_header=False, box=None, padding=(0, 2, 0, 0))
    verdicts = ", ".join(f"{count} {decision}" for decision, count in sorted(report.counters["verdicts"].items()))
    table.add_row("model", report.model)
    if report.interrupted:
        table.add_row("interrupted", "the figures cover the sequences judged until then")
    table.add_row("sequences", f"{report.sequences}" + (f" ({verdicts})" if verdicts else ""))
    _add_counters(table, report.counters)
    if report.counters.get("trained_model"):
        table.add_row("known", KNOWN_SEQUENCES.format(report.counters["trained_model"], report.sequences))
    if evaluation is not None:
        add_evaluation(table, evaluation, configured_rate)
    if warned is not None:
        add_warnings(table, *warned)
    latency, slowest = report.latency_ms(0.5), report.latency_ms(0.99)
    if not report.is_recorded and latency is not None and slowest is not None:
        table.add_row("decision after the end", f"median {latency:.0f} ms, 99 % within {slowest:.0f} ms")
    if report.wall_s:
        table.add_row("speed", f"{report.sequences / report.wall_s:.1f} sequences/s, {report.wall_s:.1f} s in all")
    print_table(table)
    for loss in lost(report.counters):
        if loss.remedy:
            out.print(note(f"{loss.what}: {loss.text}"))
    if evaluation is not None:
        scored_by = {each.model.name for each in report.verdicts if each.model is not None and each.score is not None}
        print_by_label(evaluation, len(scored_by))


def _add_counters(table: Table, counters: Mapping[str, Any]) -> None:
    """Add what became of sequences and samples that have no score."""
    if reasons := unscorable_text(counters.get("unscorable", {})):
        table.add_row("unscorable", reasons)
    for name, of in counters.get("learning", {}).items():
        which = "" if len(counters["learning"]) == 1 else f" ({name})"
        if (learned := of["learned"]) is not None:
            table.add_row(f"learned{which}", _learned(learned, of["swaps"]))
        elif of["swaps"]:  # a learner elsewhere knows the rest
            table.add_row(f"swaps{which}", str(of["swaps"]))
    for loss in lost(counters):
        table.add_row(loss.what, loss.said)


def _learned(counters: dict[str, Any], swaps: int) -> str:
    """Return what was learned of one model for people: sequences stored, then events."""
    counters = {**counters, "swaps": swaps}
    kept = f"{counters['accepted']} accepted, {counters['reserved']} reserved, {counters['aside']} aside"
    happened = [
        f"{counters[name]} {name if counters[name] != 1 else name.removesuffix('s')}"
        + (f" ({counters['failed']} failed)" if name == "trainings" and counters["failed"] else "")
        for name in ("drifts", "trainings", "promotions", "swaps")
        if counters[name]
    ]
    return "; ".join([kept, ", ".join(happened)] if happened else [kept])


@dataclass(slots=True)
class RunReport:
    """Figures of a run; ``verdicts`` is empty unless they were kept, ``latencies_us`` has the latest ones.

    ``resumed``: records were read before this run. ``is_recorded``: they were read as
    fast as possible. ``in_service``: the models in service at the end, by name.
    ``many_alerts``: what is to say of those with far too many alerts. ``warnings`` are kept with the verdicts.
    """

    counters: dict[str, Any]
    wall_s: float
    model: str
    latencies_us: list[int]
    verdicts: list[Verdict]
    interrupted: bool = False
    resumed: bool = False
    is_recorded: bool = False
    in_service: Mapping[str, ModelInService] = field(default_factory=dict)
    many_alerts: Mapping[str, ManyAlerts] = field(default_factory=dict)
    warnings: Sequence[EarlyWarning] = ()

    @property
    def sequences(self) -> int:
        """Return the number of verdicts."""
        return sum(self.counters["verdicts"].values())

    def latency_ms(self, share: float) -> float | None:
        """Return a quantile of the time from a sequence's end to its committed verdict."""
        return float(np.quantile(self.latencies_us, share)) / 1e3 if self.latencies_us else None

    def evaluation(self, labels: Labels, alerts: Callable[[Verdict], bool] | None = None) -> Evaluation:
        """Compare the verdicts, or what ``alerts`` says of them, with the labels.

        Raises SourceError if no judged sequence has a label.
        """
        return compared(self.verdicts, labels, alerts)

    def unlabelled(self, labels: Labels) -> tuple[int, int]:
        """Return how many judged sequences have no label, and how many of these alerted."""
        without = [one for one in self.verdicts if labels.is_anomalous(one.stream, one.sequence) is None]
        return len(without), sum(map(is_alert, without))

    def as_dict(self) -> dict[str, Any]:
        """Return the figures for machines."""
        return {
            "sequences": self.sequences,
            "alerts": self.counters["alerts"],
            "model": self.model,
            "interrupted": self.interrupted,
            "wall_s": round(self.wall_s, 3),
            "sequences_per_s": round(self.sequences / self.wall_s, 3) if self.wall_s else None,
            "decision_latency_ms": {"p50": self.latency_ms(0.5), "p99": self.latency_ms(0.99)},
            "counters": self.counters,
            "many_alerts": {name: found.as_dict() for name, found in self.many_alerts.items()},
        }


def is_alert(verdict: Verdict) -> bool:
    """Return whether the verdict raised an alert."""
    return verdict.decision == "anomalous"


def add_evaluation(table: Table, evaluation: Evaluation, configured_rate: float, normal: str = "normal") -> None:
    """Add the figures of all labelled sequences; ``normal`` says which normal ones, if not those of the run."""
    if evaluation.auc is not None:
        table.add_row("AUC", f"{evaluation.auc:.4f}")
    if evaluation.detection_rate is not None:
        found = f"{percent(evaluation.detection_rate, 1)} of {evaluation.n_anomalous} anomalous"
        table.add_row("found", found + _interval(evaluation.detection_interval))
    if evaluation.false_alarm_rate is not None:
        false = f"{percent(evaluation.false_alarm_rate, 1)} of {evaluation.n_normal} {normal}"
        table.add_row("false-alarm rate", false + _interval(evaluation.false_alarm_interval))
        table.add_row(
            "  configured", percent(configured_rate, 1) if configured_rate >= 0.001 else f"{configured_rate:g}"
        )
    if evaluation.n_unscorable:
        table.add_row("  unscorable", f"{evaluation.n_unscorable} of these: neither found nor false alarms")


def _interval(interval: tuple[float, float] | None) -> str:
    return "" if interval is None else f" (95 % interval {percents(interval[0], interval[1], 1)})"


def compared(
    verdicts: Sequence[Verdict],
    labels: Labels,
    alerts: Callable[[Verdict], bool] | None = None,
    *,
    normal_calibrated: bool = False,
) -> Evaluation:
    """Compare ``verdicts``, or what ``alerts`` says of them, with their labels; those without one are left out.

    ``normal_calibrated``: see ``evaluate``. Raises SourceError if there are verdicts and none has a label.
    """
    found = [(verdict, labels.of(verdict.stream, verdict.sequence)) for verdict in verdicts]
    labelled = [(verdict, label) for verdict, label in found if label is not None]
    if verdicts and not labelled:
        raise SourceError(
            f"none of the {len(verdicts)} judged sequences has a label: the recordings say "
            f"{verdicts[0].sequence!r} of stream {verdicts[0].stream!r}, the labels {labels.example!r}"
        )
    return evaluate(
        [verdict.score for verdict, _ in labelled],
        [(alerts or is_alert)(verdict) for verdict, _ in labelled],
        [label.is_anomalous for _, label in labelled],
        [label.text for _, label in labelled],
        normal_calibrated=normal_calibrated,
    )


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
    return f"{percent(one.rate, 1)}{interval}"
