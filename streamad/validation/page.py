"""The protocol as one page, which runs nothing and asks for nothing (``web/templates/acceptance.html``)."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from importlib.resources import files
from typing import Final, NamedTuple

from markupsafe import Markup, escape

from streamad.judge.verdicts import span_text
from streamad.language import NO_BREAK, percent, percents
from streamad.safe_text import visible_name
from streamad.validation.deciding import Outcome, Rate
from streamad.validation.protocol import DataFacts, FileDigest, Line, ModelFacts, Protocol
from streamad.web.charts.svg import rect, svg, upright
from streamad.web.rendering import rendered

_SIGNS: Final[dict[Outcome, str]] = {"passed": "● passed", "failed": "▲ failed", "not_shown": "▨ not shown"}
_HEIGHT = 16
_BASIS: Final = {
    "bound": "Decided by the bound: the whole interval must keep to the limit, unless a line says otherwise.",
    "estimate": "Decided by the estimate: the share found must keep to the limit, unless a line says otherwise.",
}
_METHODS: Final = {"split": "held out", "out_of_fold": "scored out of fold"}


class _Named(NamedTuple):
    """A data set or a model, in words, with the rows of its files."""

    name: str
    text: str
    files: list[list[str]]
    recordings: str = ""
    labels: str = ""
    facts: tuple[str, ...] = ()


def page_of(protocol: Protocol, content: bytes) -> str:
    """Return the page of ``protocol``, whose JSON is ``content``: the page names its digest."""
    origin = protocol.origin
    versions = ", ".join(f"{name} {version}" for name, version in origin.versions.items())
    return rendered(
        "acceptance.html",
        protocol=protocol,
        made=f"{protocol.created_at:%Y-%m-%d %H:%M:%S} UTC",
        result=result_text(protocol),
        basis=_BASIS[protocol.decided_by],
        style=Markup((files("streamad.web") / "static" / "streamad.css").read_text("utf-8")),
        rates=[_rate_row(protocol, number, line) for number, line in protocol.of("rates")],
        conditions=[_row(number, line) for number, line in protocol.of("data")],
        equality=[_row(number, line) for number, line in protocol.of("equality")],
        labels=[row for one in protocol.data for row in _labels(one)],
        warnings=[_warnings(one) for one in protocol.data if one.warnings is not None] if _has_looks(protocol) else [],
        rate=percent(protocol.false_alarm_rate, None),
        data=[_data(one) for one in protocol.data],
        models=[_model(one) for one in protocol.models],
        origin=_files([origin.config, origin.expectations, *origin.further]),
        versions=versions,
        digest=hashlib.sha256(content).hexdigest(),
    )


def result_text(protocol: Protocol) -> str:
    """Return the outcome of all lines, for people."""
    n = len(protocol.lines)
    if protocol.passed:
        return f"PASSED: all {n} lines"
    counts = (("failed", protocol.count("failed")), ("not shown", protocol.count("not_shown")))
    return f"NOT PASSED: of {n} lines {' and '.join(f'{k} {name}' for name, k in counts if k)}"


def _has_looks(protocol: Protocol) -> bool:
    """Return whether there is anything to say of warnings."""
    found = [one.warnings for one in protocol.data if one.warnings is not None]
    is_expected = any("warned of" in line.what for line in protocol.lines)
    return is_expected or any(each.of_normal.k or each.of_faulty.k for each in found)


def _row(number: int, line: Line) -> list[object]:
    return [number, _with(line.what, line.says), _data_text(line), line.expected, line.found, _outcome(line)]


def _rate_row(protocol: Protocol, number: int, line: Line) -> list[object]:
    expected = line.expected
    if line.decided_by != protocol.decided_by:
        expected += f" (by the {line.decided_by})"
    what = _with(line.what, line.says)
    return [number, what, _data_text(line), expected, line.found, _picture(line), _outcome(line)]


def _data_text(line: Line) -> str:
    return ", ".join(line.data)


def _with(text: str, says: str) -> Markup:
    """Return ``text``, and below it what else is to be said."""
    further = Markup('<span class="says">{}</span>').format(visible_name(says)) if says else Markup()
    return escape(visible_name(text)) + further


def _outcome(line: Line) -> str | Markup:
    text = _SIGNS[line.outcome].replace(" ", NO_BREAK)
    return text if line.outcome == "passed" else Markup('<span class="odd">{}</span>').format(text)


def _picture(line: Line) -> str | Markup:
    """Return the interval, the share in it, and the limit."""
    if line.interval is None or line.share is None or line.limit is None:
        return ""
    top = min(1.0, max(4 * line.limit, 1.1 * line.interval[1])) if line.at_most else 1.0
    low, high, share, limit = (100 * each / top for each in (*line.interval, line.share, line.limit))
    css = "range" if line.outcome == "passed" else "range odd"
    parts = [
        rect(0, _HEIGHT / 2 - 0.5, 100, 1, "bar"),
        rect(low, 4, max(high - low, 0.5), _HEIGHT - 8, css),
        upright(share, 2, _HEIGHT - 2, "found"),
        upright(limit, 0, _HEIGHT, "asked"),
    ]
    label = f"{percents(*line.interval, 1)}, {percent(line.share, 1)} found, limit {percent(line.limit, None)}"
    return svg(parts, _HEIGHT, label, css="interval")


def _labels(one: DataFacts) -> Iterable[list[object]]:
    for each in one.by_label:
        alerts = f"{each.alerts.k} of {each.alerts.n}"
        auc = "" if each.auc is None else f"{each.auc:.3f}"
        means = "fault" if each.is_fault else "normal"
        yield [one.name, each.label or "(empty)", means, alerts, _share(each.alerts), each.n_unscorable or "", auc]


def _share(rate: Rate) -> str:
    if rate.share is None or rate.interval is None:
        return ""
    return f"{percent(rate.share, 1)} ({percents(*rate.interval, 1)})"


def _warnings(one: DataFacts) -> list[str]:
    found = one.warnings
    assert found is not None
    lead = delay = ""
    if found.median_lead_s is not None and found.median_lead is not None:
        lead = f"{span_text(found.median_lead_s)}, {percent(found.median_lead)} of the usual length"
    if found.median_delay_s is not None:
        delay = span_text(found.median_delay_s)
        delay += f"; {found.n_before_onset} came before it" if found.n_before_onset else ""
    return [one.name, *(_of(rate) for rate in (found.of_normal, found.of_faulty)), lead, delay]


def _of(rate: Rate) -> str:
    return f"{rate.k} of {rate.n}" + (f": {_share(rate)}" if rate.n else "")


def _data(one: DataFacts) -> _Named:
    decisions = ", ".join(f"{n} {decision}" for decision, n in one.decisions.items())
    facts = [f"{one.n_sequences} sequences ({decisions}) of {one.n_records} records"]
    facts += [f"{n} without a score: {reason}" for reason, n in one.unscorable.items()]
    facts += [f"{what}: {text}" for what, text in one.lost.items()]
    listed = [*one.files, *([] if one.labels_file is None else [one.labels_file])]
    return _Named(one.name, "", _files(listed), one.recordings, one.labels, tuple(facts))


def _model(one: ModelFacts) -> _Named:
    packages = ", ".join(f"{name} {version}" for name, version in one.trained_with.items())
    text = (
        f"Model {one.name} {one.version}: detector {one.detector}, seed {one.seed}, trained "
        f"{one.trained_at:%Y-%m-%d %H:%M} UTC on {one.n_training} sequences, calibrated on {one.n_calibration} "
        f"({_METHODS.get(one.calibration, one.calibration)}), with {packages}. Digest, as in the decision log: "
        f"{one.sha256}"
    )
    return _Named(one.name, text, _files(one.files))


def _files(found: Iterable[FileDigest]) -> list[list[str]]:
    return [[each.name, str(each.n_bytes), each.sha256] for each in found]
