"""The report of a run, and of the simple detectors beside a model: figures for machines, a table for people."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from rich.table import Table

from streamad.commands.shared.console import count, err, note, out, print_table
from streamad.commands.shared.figures.by_label import print_by_label
from streamad.commands.shared.figures.labels import Labels
from streamad.errors import SourceError
from streamad.ingest.bad_values import BAD_VALUE
from streamad.judge.evaluation import Evaluation, evaluate
from streamad.judge.scoring import ModelInService
from streamad.judge.shift.many_alerts import ManyAlerts
from streamad.learn.registry.manifest import FoundAtRate, ReferenceFigures, References
from streamad.messages import Verdict

_CHANNELS_SHOWN = 5
_REASONS_SHOWN = 5
KNOWN_SEQUENCES = "{} of {} have the id of one that trained or calibrated the model: figures on them are too good"


def print_summary(report: RunReport, configured_rate: float, evaluation: Evaluation | None = None) -> None:
    """Print the figures of a run and, with labels, its detection and false-alarm rates."""
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
    latency, slowest = report.latency_ms(0.5), report.latency_ms(0.99)
    if latency is not None and slowest is not None:
        table.add_row("decision after the end", f"median {latency:.0f} ms, 99 % within {slowest:.0f} ms")
    if report.wall_s:
        table.add_row("speed", f"{report.sequences / report.wall_s:.1f} sequences/s, {report.wall_s:.1f} s in all")
    print_table(table)
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
    for what, said in lost_texts(counters):
        table.add_row(what, said)
    if held := counters.get("held"):
        table.add_row("open", f"{count(held, 'sequence')} held: the next run may bring the rest")


def is_alert(verdict: Verdict) -> bool:
    """Return whether the verdict raised an alert."""
    return verdict.decision == "anomalous"


def bad_values_text(counts: Mapping[str, Mapping[str, int]]) -> str:
    """Return the counts of values that cannot be used for people: the channels with most of them, and the reasons."""
    ranked = sorted(((name, of) for name, of in counts.items() if of), key=lambda item: -sum(item[1].values()))
    shown = [f"{sum(of.values())} of {name} ({', '.join(of)})" for name, of in ranked[:_CHANNELS_SHOWN]]
    rest = sum(sum(of.values()) for _, of in ranked[_CHANNELS_SHOWN:])
    more = [f"{rest} of {len(ranked) - _CHANNELS_SHOWN} more channels"] if rest else []
    return f"{', '.join([*shown, *more])}: missing"


def unreadable_text(dead_letters: Mapping[str, int]) -> str:
    """Return the counts of records of which nothing was read, by kind; "" if there are none."""
    return ", ".join(f"{count} {kind}" for kind, count in dead_letters.items() if kind != BAD_VALUE)


def unscorable_text(reasons: Mapping[str, int]) -> str:
    """Return the counts of unscorable sequences by reason for people, the most frequent first; "" if there are none."""
    ranked = sorted(reasons.items(), key=lambda item: -item[1])
    rest = sum(n for _, n in ranked[_REASONS_SHOWN:])
    shown = [f"{n} {why}" for why, n in ranked[:_REASONS_SHOWN]]
    return "; ".join([*shown, f"{rest} for other reasons"] if rest else shown)


NO_RECORD = "no record was read: is the path or URL right, and the range of --since and --until?"


def check_usable(counters: Mapping[str, Any], no_record: str = NO_RECORD, *, given: str | None = None) -> None:
    """Raise SourceError if records were read and none holds a sample; print the note ``no_record`` if there is none.

    ``given``: the URL of what was read instead of the config's source.
    """
    n, kinds = counters["records"], unreadable_text(counters["dead_letters"])
    if not n and not kinds:
        err.print(note(no_record))
    if counters["samples"] or not (kinds or counters["ignored"] or counters["without_id"]):
        return
    parts = [f"{kinds}: unreadable"] if kinds else []
    if counters["ignored"]:
        parts.append(f"{counters['ignored']} hold no channel of the plant")
    if counters.get("without_id"):
        parts.append(f"{count(counters['without_id'], 'sample')} without a sequence id: sequences.without_id is skip")
    of = f" --from {shlex.quote(given)}" if given else ""
    raise SourceError(f"none of {n} records is usable ({'; '.join(parts)}): see streamad check{of} --config FILE")


def lost_texts(counters: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield what became of records and samples that are in no sequence, and the counts, for people."""
    if letters := counters["dead_letters"]:
        kinds = ", ".join(f"{n} {kind}" for kind, n in letters.items())
        yield "dead letters", f"{sum(letters.values())} ({kinds})"
    if n := counters["late_samples"]:
        yield "late samples", str(n)
    if n := counters.get("without_id"):
        yield "without an id", f"{count(n, 'sample')} left out"
    if values := counters.get("bad_values"):
        yield "bad values", bad_values_text(values)


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


def add_evaluation(table: Table, evaluation: Evaluation, configured_rate: float, normal: str = "normal") -> None:
    """Add the figures of all labelled sequences; ``normal`` says which normal ones, if not those of the run."""
    if evaluation.auc is not None:
        table.add_row("AUC", f"{evaluation.auc:.4f}")
    if evaluation.detection_rate is not None:
        found = f"{evaluation.detection_rate:.1%} of {evaluation.n_anomalous} anomalous"
        table.add_row("found", found + _interval(evaluation.detection_interval))
    if evaluation.false_alarm_rate is not None:
        false = f"{evaluation.false_alarm_rate:.1%} of {evaluation.n_normal} {normal}"
        table.add_row("false-alarm rate", false + _interval(evaluation.false_alarm_interval))
        table.add_row("  configured", f"{configured_rate:.1%}" if configured_rate >= 0.001 else f"{configured_rate:g}")
    if evaluation.n_unscorable:
        table.add_row("  unscorable", f"{evaluation.n_unscorable} of these: neither found nor false alarms")


def _interval(interval: tuple[float, float] | None) -> str:
    return "" if interval is None else f" (95 % interval {interval[0]:.1%} to {interval[1]:.1%})"


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


@dataclass(slots=True)
class RunReport:
    """Figures of a run; ``verdicts`` is empty unless they were kept, ``latencies_us`` has the latest ones.

    ``resumed``: records were read before this run. ``in_service``: the models in service at the end, by name.
    ``many_alerts``: what is to say of those with far too many alerts.
    """

    counters: dict[str, Any]
    wall_s: float
    model: str
    latencies_us: list[int]
    verdicts: list[Verdict]
    interrupted: bool = False
    resumed: bool = False
    in_service: Mapping[str, ModelInService] = field(default_factory=dict)
    many_alerts: Mapping[str, ManyAlerts] = field(default_factory=dict)

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
    if name not in known:
        return
    table = Table("found", *known, box=None, padding=(0, 1, 0, 0), pad_edge=False)
    for fault in known[name]:
        table.add_row(fault.replace("_", " "), *(f"{shares[fault]:.0%}" for shares in known.values()))
    print_table(table, whole=("found",))


def better_line(name: str, record: References) -> str | None:
    """Return the line about the kind that finds more than the model ``name`` for sure, and the most of those."""
    better, ours = record.better, record.found
    if better is None or ours is None or better.found is None or better.gain is None or better.gain_interval is None:
        return None
    low, high = better.gain_interval
    return (
        f"{better.kind} finds more injected faults than {name} ({better.found.share:.0%} against {ours.share:.0%}, "
        f"difference {100 * better.gain:.0f} points, 90 % interval {100 * low:.0f} to {100 * high:.0f}): "
        f"train it beside this model and replay your recordings with both; before each of its commands write "
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
    return "" if found is None else f"{found.share:.0%}"


def _gain(one: ReferenceFigures) -> str:
    if one.gain is None or one.gain_interval is None:
        return ""
    low, high = one.gain_interval
    return f"{_signed(one.gain)} ({_signed(low)} to {_signed(high)})"


def _signed(share: float) -> str:
    text = f"{share:+.0%}"
    return "0%" if text in ("+0%", "-0%") else text
