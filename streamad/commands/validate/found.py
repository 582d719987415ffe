"""What was found on the data sets, beside what was expected: the lines of the protocol."""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass, field

from streamad.commands.shared.console import count
from streamad.commands.shared.figures.losses import Losses, lost, unscorable_text
from streamad.commands.shared.figures.report import RunReport, compared
from streamad.commands.shared.figures.warnings import WarningFigures, warning_figures
from streamad.commands.validate.comparing import COMPARED_TEXT, Outputs
from streamad.commands.validate.data import Given
from streamad.errors import SourceError
from streamad.judge.evaluation import Evaluation
from streamad.judge.verdicts import span_text
from streamad.language import percent, percents
from streamad.messages import EarlyWarning, Verdict
from streamad.validation.deciding import Basis, Outcome, Rate, decide, fewest, needed
from streamad.validation.expectations import Acceptance, Expectation, Limits
from streamad.validation.protocol import DataFacts, LabelCount, Line, WarningCounts

_FILES_SHOWN = 5
_ROUNDING = 1e-9
_TEXTS = {
    "false_alarms": "normal sequences that alert",
    "detection": "faulty sequences that alert",
    "false_warnings": "normal sequences that are warned of",
    "warned": "faulty sequences that are warned of before their end",
}


@dataclass(slots=True)
class Judged:
    """A data set, the report of its first replay, and how further runs on it differed ("": not at all).

    ``with_records``: the partitions that have any.
    """

    given: Given
    report: RunReport
    with_records: Set[str]
    outputs: Outputs
    replays: list[str] = field(default_factory=list)
    restart: str | None = None

    @property
    def name(self) -> str:
        """Return the name of the data set."""
        return self.given.wanted.name

    def evaluation(self) -> Evaluation | None:
        """Return the figures by label, None without labels. Raises SourceError if none fits."""
        if self.given.labels is None:
            return None
        try:
            return compared(self.report.verdicts, self.given.labels)
        except SourceError as error:
            raise SourceError(f"data set {self.name}: {error}") from error

    def warned(self, *, fault: str | None = None, lead_us: int | None = None) -> WarningFigures | None:
        """Return the figures of warnings, None without labels.

        ``fault``: of faulty sequences those of this kind. ``lead_us``: as if later warnings had not come.
        """
        labels, report = self.given.labels, self.report
        if labels is None:
            return None
        verdicts, warnings = report.verdicts, report.warnings
        if fault is not None:
            found = [(each, labels.of(each.stream, each.sequence)) for each in verdicts]
            verdicts = [each for each, label in found if label is not None and label.text == fault]
        if lead_us is not None:
            warnings = _early_enough(warnings, verdicts, lead_us / 1e6)
        return warning_figures(warnings, verdicts, labels)


def _early_enough(
    warnings: Sequence[EarlyWarning], verdicts: Sequence[Verdict], lead_s: float
) -> Sequence[EarlyWarning]:
    ends = {each.warning.warning_id: each.end_time for each in verdicts if each.warning is not None}
    return [
        each
        for each in warnings
        if (end := ends.get(each.warning_id)) is not None and (end - each.time).total_seconds() >= lead_s
    ]


def lines_of(acceptance: Acceptance, judged: Sequence[Judged], trained_on: dict[str, str] | str) -> Iterator[Line]:
    """Yield the lines of the protocol. ``trained_on``: name by digest of the files of the training, if known."""
    for expectation in acceptance.expect:
        names = {one.name for one in acceptance.sets_of(expectation)}
        yield _of_rate(expectation, acceptance.basis_of(expectation), [one for one in judged if one.name in names])
    for each in judged:
        yield from _of_data(each, acceptance.limits, trained_on)
    for each in judged:
        yield from _of_equality(acceptance, each)


def _of_data(judged: Judged, limits: Limits, trained_on: dict[str, str] | str) -> Iterator[Line]:
    report, name = judged.report, judged.name
    n, counters = report.sequences, report.counters
    losses = Losses.of(counters)
    is_known = judged.given.by_file  # joined files are one partition
    empty = [file.name for file in judged.given.files if is_known and file.name not in judged.with_records]
    yield _counted(
        name, "files of which no record was read", len(empty), len(judged.given.files), 0.0,
        says=", ".join(empty[:_FILES_SHOWN]),
    )  # fmt: skip
    lost_says = losses.text if losses.share else ""
    n_lost = losses.n_late + losses.n_displaced + losses.n_refused
    yield _counted(name, "samples and records that are lost", n_lost, losses.n_all, limits.lost_samples, says=lost_says)
    yield _counted(
        name, "sequences without a score", counters["verdicts"].get("unscorable", 0), n, limits.unscorable,
        says=unscorable_text(counters["unscorable"]),
    )  # fmt: skip
    if judged.given.labels is not None:
        unlabelled, alerted = report.unlabelled(judged.given.labels)
        says = f"{alerted} of them alerted; they are in no rate" if unlabelled else ""
        yield _counted(name, "sequences without a label", unlabelled, n, limits.unlabelled, says=says)
    yield _of_training(judged, trained_on)


def _counted(name: str, what: str, k: int, n: int, limit: float, *, says: str = "") -> Line:
    is_kept = k <= limit * n + _ROUNDING
    return Line(
        part="data",
        what=what,
        data=(name,),
        expected="none" if limit == 0 else f"at most {percent(limit, None)}",
        found=f"{k} of {n}",
        outcome="passed" if is_kept else "failed",
        says=says,
        limit=limit,
        at_most=True,
    )


def _of_training(judged: Judged, trained_on: dict[str, str] | str) -> Line:
    """Return whether the model has seen the sequences, by their ids and by the content of the files of its training."""
    n_known, n = judged.report.counters["trained_model"], judged.report.sequences
    same = (
        [] if isinstance(trained_on, str) else [each.name for each in judged.given.files if each.sha256 in trained_on]
    )
    recurs = judged.given.wanted.ids_recur
    says = [f"the content of {same[0]} is that of a file of model.recordings"] if same else []
    if n_known and recurs:
        says.append(f"{n_known} ids are those of training sequences; the expectations say that ids recur (ids_recur)")
    if isinstance(trained_on, str):
        says.append(f"compared by ids alone: {trained_on}")
    return Line(
        part="data",
        what="sequences that trained or calibrated the model",
        data=(judged.name,),
        expected="none",
        found=f"{n_known} of {n} by id, {len(same)} of {count(len(judged.given.files), 'file')} by content",
        outcome="failed" if same or (n_known and not recurs) else "passed",
        says="; ".join(says),
    )


def _of_rate(expectation: Expectation, basis: Basis, judged: Sequence[Judged]) -> Line:
    at_most, limit = expectation.at_most is not None, expectation.limit
    rate = _rate(expectation, judged)
    outcome = decide(rate, limit, basis, at_most=at_most)
    n_needed = None if outcome == "passed" else needed(rate, limit, at_most=at_most)
    found = "no such sequence"
    if rate.share is not None and rate.interval is not None:
        found = f"{rate.k} of {rate.n}: {percent(rate.share, 1)} ({percents(*rate.interval, 1)})"
    return Line(
        part="rates",
        what=_what(expectation),
        data=tuple(each.name for each in judged),
        expected=f"{'at most' if at_most else 'at least'} {percent(limit, None)}",
        found=found,
        outcome=outcome,
        says=_why(rate, outcome, n_needed, limit, at_most=at_most),
        rate=rate,
        share=rate.share,
        interval=rate.interval,
        limit=limit,
        at_most=at_most,
        decided_by=basis,
        n_needed=n_needed,
    )


def _what(expectation: Expectation) -> str:
    text = _TEXTS[expectation.what]
    if expectation.lead is not None:
        text = f"faulty sequences that are warned of at least {span_text(expectation.lead / 1e6)} before their end"
    return text if expectation.fault is None else f"{text}, of {expectation.fault}"


def _why(rate: Rate, outcome: Outcome, n_needed: int | None, limit: float, *, at_most: bool) -> str:
    if outcome == "passed":
        return ""
    best = fewest(limit, at_most=at_most)
    fewest_text = "" if best is None else f"at least {count(best, 'such sequence')} can show this, if none errs"
    if outcome == "failed" or rate.share is None:
        return "" if outcome == "failed" else fewest_text
    if n_needed is None:
        return "the share lies on the limit: no number of sequences shows it"
    return f"not shown by {rate.n}; about {n_needed} such sequences would, if the share stays" + (
        f"; {fewest_text}" if best is not None and rate.n < best and n_needed != best else ""
    )


def _rate(expectation: Expectation, judged: Sequence[Judged]) -> Rate:
    """Return how many sequences of the kind did what is expected of them, in all data sets together."""
    k = n = 0
    for each in judged:
        own = _own_rate(expectation, each)
        k, n = k + own.k, n + own.n
    return Rate(k, n)


def _own_rate(expectation: Expectation, judged: Judged) -> Rate:
    if expectation.what in ("false_alarms", "detection"):
        evaluation = judged.evaluation()
        labels = () if evaluation is None else evaluation.by_label
        is_fault = expectation.what == "detection"
        own = [one for one in labels if one.is_anomalous == is_fault and expectation.fault in (None, one.label)]
        # Without a score no sequence alerts: that finds no fault, and is no proof of a low false-alarm rate.
        n = sum(one.n_sequences - (0 if is_fault else one.n_unscorable) for one in own)
        return Rate(sum(one.n_alerts for one in own), n)
    figures = judged.warned(fault=expectation.fault, lead_us=expectation.lead)
    if figures is None:
        return Rate(0, 0)
    of_normal, of_faulty = _rates_of(figures)
    return of_normal if expectation.what == "false_warnings" else of_faulty


def _rates_of(figures: WarningFigures) -> tuple[Rate, Rate]:
    of_normal = Rate(round((figures.normal_share or 0.0) * figures.n_normal), figures.n_normal)
    of_faulty = Rate(round((figures.faults_before_end_share or 0.0) * figures.n_faulty), figures.n_faulty)
    return of_normal, of_faulty


def _of_equality(acceptance: Acceptance, judged: Judged) -> Iterator[Line]:
    if acceptance.replays is not None:
        differing = [each for each in judged.replays if each]
        yield Line(
            part="equality",
            what=f"{acceptance.replays} replays say the same",
            data=(judged.name,),
            expected="equal",
            found=f"different: {differing[0]}" if differing else "equal",
            outcome="failed" if differing else "passed",
            says=f"compared: {COMPARED_TEXT}",
        )
    if judged.restart is not None:
        times = count(acceptance.restarts or 0, "time")
        yield Line(
            part="equality",
            what=f"a run that is broken off {times} says what one without a break says",
            data=(judged.name,),
            expected="equal",
            found=f"different: {judged.restart}" if judged.restart else "equal",
            outcome="failed" if judged.restart else "passed",
            says="broken off by an error as verdicts at even shares of all were being committed, the last time right "
            "after that, and started anew from its checkpoint; the process itself was not killed",
        )


def facts_of(judged: Judged) -> DataFacts:
    """Return what the protocol says of a data set."""
    report, given = judged.report, judged.given
    evaluation, figures = judged.evaluation(), judged.warned()
    labels = () if evaluation is None else evaluation.by_label
    of_labels = tuple(
        LabelCount(
            one.label, one.is_anomalous, Rate(one.n_alerts, one.n_sequences), one.rate, one.interval, one.n_unscorable,
            one.auc,
        )
        for one in labels
    )  # fmt: skip
    return DataFacts(
        name=judged.name,
        recordings=given.wanted.recordings,
        files=given.files,
        labels=given.labels_text,
        labels_file=given.labels_file,
        n_records=report.counters["records"],
        n_sequences=report.sequences,
        decisions=dict(sorted(report.counters["verdicts"].items())),
        unscorable=dict(sorted(report.counters["unscorable"].items())),
        n_unlabelled=0 if given.labels is None else report.unlabelled(given.labels)[0],
        lost={loss.what: loss.text for loss in lost(report.counters)},
        by_label=of_labels,
        warnings=None if figures is None else _warnings_of(figures),
    )


def _warnings_of(figures: WarningFigures) -> WarningCounts:
    of_normal, of_faulty = _rates_of(figures)
    return WarningCounts(
        of_normal=of_normal,
        of_faulty=of_faulty,
        median_lead_s=figures.median_lead_s,
        median_lead=figures.median_lead_share,
        median_delay_s=figures.median_delay_s,
        n_before_onset=figures.n_before_onset,
    )
