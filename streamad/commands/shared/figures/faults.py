"""Prints the share of injected faults that a model and the simple kinds find, and how to find more."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from rich.table import Table

from streamad.commands.shared.console import note, out, print_table
from streamad.commands.shared.figures.report import RunReport
from streamad.judge.calibration import recordings_for
from streamad.language import NO_BREAK, percent, percents
from streamad.learn.registry.manifest import FoundAtRate, LargerCalibration, ReferenceFigures, References
from streamad.learn.registry.registry import Registry
from streamad.settings.plant_yaml import Settings

_LOW_SHARE = 0.5
_WORTH_MORE = 0.05
_MODELS_SHOWN = 5


@dataclass(frozen=True, slots=True)
class FoundFaults:
    """The lines about the injected faults that a model finds at the configured false-alarm rate.

    ``is_low``: fewer than half of them are found. ``remedy`` is what to do about it, whether it is low or not;
    ``better_kind`` is the part of it that names another kind of detector.
    """

    fact: str
    remedy: str
    is_low: bool
    better_kind: str = ""

    def line(self, *, below_certified: bool) -> str:
        """Return the fact, and if it is low what to do.

        ``below_certified``: another line says what to do about the rate, so that this one need not repeat it.
        """
        advice = self.better_kind if below_certified else self.remedy
        return f"{self.fact}; {advice}" if self.is_low and advice else self.fact


def found_faults(references: References | None, settings: Settings, *, says_more: bool = True) -> FoundFaults | None:
    """Return what is known; None if no faults were injected when the version was trained.

    ``says_more``: with what more calibration sequences would change.
    """
    if references is None:
        return None
    found, rate = references.found, settings.alerts.false_alarm_rate
    low, high = found.interval
    is_now = rate == found.rate
    at_rate = f"the configured rate of {found.rate:g}" if is_now else f"{found.rate:g}, the rate of its training,"
    fact = (
        f"{percent(found.share)} of {references.n_injected} injected faults are found at {at_rate} "
        f"(90 % interval {percents(low, high)}; AUC {references.auc:.2f})"
    )
    if says_more and found.with_more and found.share < 1.0:
        (first, share), *others = ((one.n_calibration, f"about {percent(one.share)}") for one in found.with_more)
        if _useful(found):
            fact += f"; {first} calibration sequences instead of {found.n_calibration} would find {share}"
            fact += "".join(f", {n} {share}" for n, share in others)
        else:
            fact += f"; more calibration sequences than {found.n_calibration} would find hardly more"
    if not is_now:
        fact += f"; {rate:g} is configured now"
    better_kind = "" if references.better is None else f"try model.detector: {references.better.kind}"
    return FoundFaults(fact, _remedy(better_kind, found, settings), found.share < _LOW_SHARE, better_kind)


def _remedy(better_kind: str, found: FoundAtRate, settings: Settings) -> str:
    """Return what finds more: more recordings, another kind, or a higher rate."""
    advice = []
    if useful := _useful(found):
        n_recordings = recordings_for(useful[0].n_calibration, settings.model.calibration)
        advice.append(f"train on {n_recordings} recordings or more")
    if better_kind:
        advice.append(better_kind)
    return ", ".join([*advice, "or raise alerts.false_alarm_rate" if advice else "raise alerts.false_alarm_rate"])


def _useful(found: FoundAtRate) -> list[LargerCalibration]:
    """Return the larger calibrations that would find clearly more."""
    return [one for one in found.with_more if one.share >= found.share + _WORTH_MORE]


def found_faults_in_service(report: RunReport, registry: Registry, settings: Settings) -> dict[str, FoundFaults]:
    """Return what is known of the injected faults that the models of a run find, by name. Raises StreamadError."""
    known = {}
    for name, model in report.in_service.items():
        references = registry.manifest(model.ref.name, model.ref.version).references
        if (found := found_faults(references, settings)) is not None:
            known[name] = found
    return known


def lines_of_faults(found: Mapping[str, FoundFaults], below_certified: Collection[str]) -> list[str]:
    """Return the lines about models that find few of the faults, or are among those ``below_certified``, by name."""
    said = {
        name: one.line(below_certified=name in below_certified)
        for name, one in found.items()
        if one.is_low or name in below_certified
    }
    lines = [line if len(found) == 1 else f"{name}: {line}" for name, line in said.items()]
    return lines[:_MODELS_SHOWN]


def print_references(found: Mapping[str, References], *, names_better: bool = True) -> None:
    """Print the figures of models, by the name each has here, and of the other kinds; nothing if no kind was measured.

    All models have the same trial, so the other kinds have the same figures beside each. ``names_better``: a note
    follows if a kind finds more than a model for sure.
    """
    records = [record for record in found.values() if record.others]
    if not records:
        return
    first = records[0]
    out.print(f"simple kinds on the same sequences ({first.n_injected} injected faults, {first.n_held_out} normal):")
    print_table(_table(found), whole=("",))
    for one in first.others:
        if one.left_out is not None:
            out.print(f"{one.kind} is left out: {one.left_out}")
    for name, record in found.items():
        if names_better and (line := better_line(name, record)) is not None:
            out.print(note(line))


def print_by_fault(name: str, record: References) -> None:
    """Print the share of each kind of fault that the model ``name`` and the other kinds find at the configured rate."""
    shares = {name: record.found, **{one.kind: one.found for one in record.others}}
    known = {who: found.by_fault for who, found in shares.items() if found is not None}
    table = Table("found", *known, box=None, padding=(0, 1, 0, 0), pad_edge=False)
    for fault in known[name]:
        table.add_row(fault.replace("_", " "), *(percent(shares[fault]) for shares in known.values()))
    print_table(table, whole=("found",))


def better_line(name: str, record: References) -> str | None:
    """Return the line about the kind that finds more than the model ``name`` for sure, and the most of those."""
    better, ours = record.better, record.found
    if better is None or better.found is None or better.gain is None or better.gain_interval is None:
        return None
    low, high = better.gain_interval
    return (
        f"{better.kind} finds more injected faults than {name} ({percent(better.found.share)} against "
        f"{percent(ours.share)}, difference {100 * better.gain:.0f} points, 90 % interval {100 * low:.0f} to "
        f"{100 * high:.0f}): train it beside this model and replay your recordings with both; before each "
        f"of its commands write "
        f"STREAMAD_MODEL__DETECTOR={better.kind} STREAMAD_MODEL__REGISTRY=registry-{better.kind}"
    )


def _table(found: Mapping[str, References]) -> Table:
    table = Table("", "found", *(f"beside {name}\n(90 % interval)" for name in found), "AUC", box=None)
    for name, record in found.items():
        table.add_row(name, _share(record.found), *("" for _ in found), f"{record.auc:.3f}")
    kinds = dict.fromkeys(one.kind for record in found.values() for one in record.others if one.auc is not None)
    for kind in kinds:
        beside = [next((one for one in record.others if one.kind == kind), None) for record in found.values()]
        figures = next(one for one in beside if one is not None)
        gains = ("" if one is None else _gain(one) for one in beside)
        table.add_row(kind, _share(figures.found), *gains, f"{figures.auc:.3f}")
    return table


def _share(found: FoundAtRate | None) -> str:
    return "" if found is None else percent(found.share)


def _gain(one: ReferenceFigures) -> str:
    if one.gain is None or one.gain_interval is None:
        return ""
    low, high = one.gain_interval
    return f"{_signed(one.gain)} ({_signed(low)} to {_signed(high)})"


def _signed(share: float) -> str:
    text = f"{100 * share:+.0f}{NO_BREAK}%"
    return "0%" if text in ("+0%", "-0%") else text
