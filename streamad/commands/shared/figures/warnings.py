"""The worth of warnings of running sequences, by the sequences' labels: false ones, and how early the others were."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from rich.table import Table

from streamad.commands.shared.console import out, print_table, wrapped
from streamad.commands.shared.figures.labels import Labels
from streamad.judge.evaluation import clopper_pearson
from streamad.judge.verdicts import span_text
from streamad.language import percent, percents
from streamad.learn.registry.manifest import EarlyRecord
from streamad.messages import EarlyWarning, Verdict
from streamad.types import to_us


@dataclass(frozen=True, slots=True)
class WarningFigures:
    """Shares of the labelled sequences that were warned of, with 95 % intervals; None if there were none of a kind.

    Those without a score are counted apart: none like them calibrates, so the rate says nothing of them. A fault counts
    if its warning lies before the sequence's end. The lead is the time from the warning to the end: in seconds, and as
    a share of the usual length. The delay is that since the onset, where labels know one; a warning before it has none.
    """

    n_normal: int
    normal_share: float | None
    normal_interval: tuple[float, float] | None
    n_faulty: int
    faults_before_end_share: float | None
    faults_before_end_interval: tuple[float, float] | None
    median_lead_share: float | None
    median_lead_s: float | None
    n_before_onset: int = 0
    median_delay_share: float | None = None
    median_delay_s: float | None = None
    n_unscorable: int = 0
    n_unscorable_warned: int = 0


def warning_figures(warnings: Sequence[EarlyWarning], verdicts: Sequence[Verdict], labels: Labels) -> WarningFigures:
    """Return the figures of the ``warnings`` of judged sequences that have a label."""
    raised = {each.warning_id: each for each in warnings}
    found: dict[bool, list[EarlyWarning | None]] = {True: [], False: []}
    leads: list[tuple[float, float]] = []
    delays: list[tuple[float, float]] = []
    unscorable: list[bool] = []
    n_before_onset = 0
    for verdict in verdicts:
        is_anomalous = labels.is_anomalous(verdict.stream, verdict.sequence)
        if is_anomalous is None:
            continue
        if verdict.decision == "unscorable":
            unscorable.append(verdict.warning is not None)
            continue
        warning = None if verdict.warning is None else raised.get(verdict.warning.warning_id)
        if warning is not None and is_anomalous:
            lead_s = (verdict.end_time - warning.time).total_seconds()
            seen_s = (warning.time - warning.start_time).total_seconds()
            if lead_s > 0:
                of_usual = warning.age / seen_s if seen_s else 0.0
                leads.append((lead_s, lead_s * of_usual))
                if (delay_s := _delay_s(warning, verdict, labels)) is not None:
                    n_before_onset += delay_s < 0
                    delays += [(delay_s, delay_s * of_usual)] if delay_s >= 0 else []
            else:
                warning = None
        found[is_anomalous].append(warning)
    normal, faulty = found[False], found[True]
    n_false, n_before = (sum(each is not None for each in part) for part in (normal, faulty))
    return WarningFigures(
        n_normal=len(normal),
        normal_share=n_false / len(normal) if normal else None,
        normal_interval=clopper_pearson(n_false, len(normal)) if normal else None,
        n_faulty=len(faulty),
        faults_before_end_share=n_before / len(faulty) if faulty else None,
        faults_before_end_interval=clopper_pearson(n_before, len(faulty)) if faulty else None,
        median_lead_share=median(share for _, share in leads) if leads else None,
        median_lead_s=median(lead_s for lead_s, _ in leads) if leads else None,
        n_before_onset=n_before_onset,
        median_delay_share=median(share for _, share in delays) if delays else None,
        median_delay_s=median(delay_s for delay_s, _ in delays) if delays else None,
        n_unscorable=len(unscorable),
        n_unscorable_warned=sum(unscorable),
    )


def _delay_s(warning: EarlyWarning, verdict: Verdict, labels: Labels) -> float | None:
    """Return how long after the fault's onset the warning came; None without an onset amid the sequence."""
    onset_us = labels.onset_us(verdict.stream, verdict.sequence)
    if onset_us is None or not to_us(verdict.start_time) <= onset_us <= to_us(verdict.end_time):
        return None
    return (to_us(warning.time) - onset_us) / 1e6


def add_warnings(table: Table, figures: WarningFigures, configured_rate: float) -> None:
    """Add rows of the figures."""
    if figures.faults_before_end_share is not None and figures.faults_before_end_interval is not None:
        low, high = figures.faults_before_end_interval
        share = f"{percent(figures.faults_before_end_share, 1)} of {figures.n_faulty} anomalous before their end"
        table.add_row("warned of", f"{share} (95 % interval {percents(low, high, 1)})")
    if figures.median_lead_s is not None and figures.median_lead_share is not None:
        lead = f"{span_text(figures.median_lead_s)}, {percent(figures.median_lead_share)} of the usual length (median)"
        table.add_row("  lead", lead)
    if figures.median_delay_s is not None and figures.median_delay_share is not None:
        delay = (
            f"{span_text(figures.median_delay_s)}, {percent(figures.median_delay_share)} of the usual length (median)"
        )
        before = f"; {figures.n_before_onset} came before it" if figures.n_before_onset else ""
        table.add_row("  since the onset", f"{delay}{before}")
    if figures.normal_share is not None and figures.normal_interval is not None:
        low, high = figures.normal_interval
        share = f"{percent(figures.normal_share, 1)} of {figures.n_normal} normal"
        table.add_row("false warnings", f"{share} (95 % interval {percents(low, high, 1)})")
        table.add_row(
            "  configured", percent(configured_rate, 1) if configured_rate >= 0.001 else f"{configured_rate:g}"
        )
    if figures.n_unscorable_warned:
        table.add_row(
            "  unscorable", f"{figures.n_unscorable_warned} of {figures.n_unscorable}, in none of these shares"
        )


def print_expected(early: EarlyRecord | None) -> None:
    """Print which share of injected faults that begin midway is warned of by each look; nothing if none were looked at.

    Ages are shares of the usual length.
    """
    if early is None or (expected := early.expected) is None:
        return
    low, high = expected.interval
    out.print(
        wrapped(
            f"{percent(expected.warned[-1])} of {expected.n_faults} injected faults that begin midway are warned of "
            f"before the end (90 % interval {percents(low, high)}), and {expected.rate:g} of normal "
            "ones at most; by age:"
        )
    )
    ages = (percent(look.n_points / early.usual) for look in early.looks)
    table = Table("age", *ages, box=None, padding=(0, 1, 0, 0), pad_edge=False)
    for name, shares in (("begun", expected.begun), ("warned of", expected.warned)):
        table.add_row(name, *(percent(share) for share in shares))
    print_table(table, whole=("age",))
