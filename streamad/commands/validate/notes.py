"""What readers of a protocol must know beside its lines: what it leaves out, and what its rates rest on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from streamad.commands.shared.console import count
from streamad.commands.shared.figures.certification import certification_of
from streamad.commands.validate.data import SameLabel
from streamad.commands.validate.found import Judged
from streamad.errors import some_of
from streamad.judge.shift import lines_of
from streamad.language import percent
from streamad.plant import Plant
from streamad.validation.expectations import Acceptance


def notes_of(plant: Plant, acceptance: Acceptance, judged: Sequence[Judged]) -> tuple[str, ...]:
    """Return the notes, each once."""
    found = [*_of_settings(plant, acceptance)]
    for each in judged:
        found += [f"data set {each.name}: {text}" for text in _of_data(acceptance, each)]
        found += lines_of(each.report.many_alerts, plant.settings, learns=False)
        found += certification_of(each.report, plant.settings).lines
    found.append("attributions (why there was an alert) are no part of this protocol")
    return tuple(dict.fromkeys(found))


def _of_settings(plant: Plant, acceptance: Acceptance) -> Iterator[str]:
    settings = plant.settings
    if settings.learning is not None:
        yield (
            "this plant learns (section learning of the config): versions that come into service later are not those "
            "of this protocol"
        )
    rate = settings.alerts.false_alarm_rate
    for each in acceptance.expect:
        if each.what == "false_alarms" and each.limit <= rate:
            yield (
                f"the config wants {percent(rate, None)} of normal sequences to alert (alerts.false_alarm_rate); the "
                f"expectation is at most {percent(each.limit, None)}: it can hardly be met"
            )
    if acceptance.restarts is None:
        yield "whether a run that is broken off says the same after its restart was not looked at (restarts: null)"
    if acceptance.replays is None:
        yield "whether replays say the same was not looked at (replays: null)"


def _of_data(acceptance: Acceptance, judged: Judged) -> Iterator[str]:
    given = judged.given
    if given.others:
        yield f"{count(len(given.others), 'file')} of the folder are no recordings and were not read: " + some_of(
            given.others
        )
    if given.labels is None:
        yield "it has no labels, so its sequences are in no rate"
        return
    found = {label.text for each in judged.report.verdicts if (label := given.labels.of(each.stream, each.sequence))}
    for kind, is_fault in given.kinds.items():
        if kind not in found:
            yield f"no sequence has the label {kind!r}, which its labels name"
        elif is_fault and not _is_expected(acceptance, judged.name, kind):
            yield f"no expectation is about the fault {kind!r}: what was found of it decides nothing"
    if isinstance(given.labels, SameLabel) or given.labels.by_start:
        return
    there = {(each.stream, each.sequence) for each in judged.report.verdicts}
    names = {name for _, name in there}
    absent = [
        name
        for stream, name in given.labels.by_key
        if (name not in names if stream is None else (stream, name) not in there)
    ]
    if absent:
        yield f"{count(len(absent), 'label')} of sequences that are not in the recordings: {some_of(sorted(absent))}"


def _is_expected(acceptance: Acceptance, name: str, kind: str) -> bool:
    return any(
        each.what in ("detection", "warned") and each.fault in (None, kind) and (each.data is None or name in each.data)
        for each in acceptance.expect
    )
