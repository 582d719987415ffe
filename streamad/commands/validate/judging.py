"""The way from expectations to a protocol: check, judge, compare, decide."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from pathlib import Path

from streamad.commands.shared.figures.losses import check_usable
from streamad.commands.shared.figures.report import RunReport
from streamad.commands.validate.data import Given, check_apart, files_of, given, training_files
from streamad.commands.validate.found import Judged, facts_of, lines_of
from streamad.commands.validate.notes import notes_of
from streamad.commands.validate.origin import models_of, origin_of
from streamad.commands.validate.running import Runs
from streamad.errors import SourceError, UsageError, some_of
from streamad.messages import ModelRef, Verdict
from streamad.offline.models import versions_in_service
from streamad.plant import Plant
from streamad.types import from_us
from streamad.validation.expectations import Acceptance
from streamad.validation.protocol import Protocol


async def validated(plant: Plant, acceptance: Acceptance, path: Path, versions: Mapping[str, str]) -> Protocol:
    """Return the protocol of ``acceptance``, read from ``path``; ``versions``: instead of those in service.

    Raises InterruptedRunError, UsageError if expectations and data do not fit, SourceError, and what a run raises.
    """
    folder = path.parent
    found = [given(plant, each, folder) for each in acceptance.data]
    check_apart(found)
    _check_wanted(plant, acceptance, found)
    origin, trained_on = origin_of(plant, path), training_files(plant)
    pinned = {**versions_in_service(plant), **versions}
    seen: dict[tuple[Hashable, ...], str] = {}
    judged = [await _judged(Runs(plant, pinned), acceptance, each, seen) for each in found]
    _check_unchanged(plant, found, folder)
    if origin_of(plant, path) != origin:
        raise SourceError("the config or the expectations were changed while they were validated: run it again")
    lines = tuple(lines_of(acceptance, judged, trained_on))
    refs = {each.model for one in judged for each in one.report.verdicts if each.model is not None}
    return Protocol(
        title=acceptance.title,
        plant=plant.settings.name,
        passed=all(line.outcome == "passed" for line in lines),
        created_at=from_us(plant.clock.now_us()),
        decided_by=acceptance.decide_by,
        false_alarm_rate=plant.settings.alerts.false_alarm_rate,
        lines=lines,
        data=tuple(map(facts_of, judged)),
        models=models_of(plant, sorted(refs, key=_name)),
        origin=origin,
        notes=notes_of(plant, acceptance, judged),
    )


def _name(ref: ModelRef) -> tuple[str, str]:
    return ref.name, ref.version


def _check_wanted(plant: Plant, acceptance: Acceptance, found: Sequence[Given]) -> None:
    """Raise UsageError for an expectation that no data set, or not this config, can meet."""
    by_name = {each.wanted.name: each for each in found}
    if acceptance.wants_warnings and plant.settings.alerts.early is None:
        raise UsageError("an expectation is about warnings, and the config wants none: set alerts.early, train anew")
    for number, each in enumerate(acceptance.expect, start=1):
        sets = [by_name[one.name] for one in acceptance.sets_of(each)]
        kinds = {kind: is_fault for one in sets for kind, is_fault in one.kinds.items()}
        is_of_faults = each.at_least is not None
        fitting = [kind for kind, is_fault in kinds.items() if is_fault == is_of_faults]
        where = f"expectation {number} ({each.what})"
        if not kinds:
            names = some_of([one.wanted.name for one in sets])
            raise UsageError(f"{where}: no labels: give {names} labels (their file) or label (one for all)")
        if each.fault is not None and each.fault not in fitting:
            raise UsageError(
                f"{where}: no data set of it has the fault {each.fault!r}; its labels name: "
                f"{some_of(fitting) if fitting else 'none'}"
            )
        if not fitting:
            what = "faulty" if is_of_faults else "normal"
            raise UsageError(f"{where}: no label of its data means {what}; there are {some_of([*kinds])}")


async def _judged(runs: Runs, acceptance: Acceptance, each: Given, seen: dict[tuple[Hashable, ...], str]) -> Judged:
    """Return what was found on a data set, after all its runs; ``seen``: the data set of each sequence so far."""
    n_replays = acceptance.replays or 1
    report, outputs, with_records = await runs.replay(each, f"replay 1 of {n_replays}")
    if not report.verdicts:
        raise SourceError(f"data set {each.wanted.name}: {_why_empty(report, each)}")
    _check_once(seen, each.wanted.name, report.verdicts)
    judged = Judged(each, report, with_records, outputs)
    judged.evaluation()  # labels that fit no sequence are said before the other runs
    for number in range(2, n_replays + 1):
        _, again, _ = await runs.replay(each, f"replay {number} of {n_replays}")
        judged.replays.append(outputs.difference(again))
    if acceptance.restarts is not None:
        restarted = await runs.restarted(each, report.sequences, acceptance.restarts)
        judged.restart = outputs.difference(restarted)
    return judged


def _why_empty(report: RunReport, each: Given) -> str:
    """Return why no sequence was found."""
    try:
        check_usable(report.counters, given=each.url, may_be_empty=False)
    except SourceError as error:
        return str(error)
    return f"no sequence was found in {each.wanted.recordings}: see streamad check"


def _check_once(seen: dict[tuple[Hashable, ...], str], name: str, verdicts: Sequence[Verdict]) -> None:
    """Raise UsageError for a sequence that is there twice: copies would make every interval narrower."""
    for one in verdicts:
        n_before = len(seen)
        content = (one.n_samples, *one.means, *one.spreads)
        key = (one.stream, one.sequence, one.start_time, one.end_time, content)
        other = seen.setdefault(key, name)
        if len(seen) == n_before:
            where = f"twice in the data set {name}" if other == name else f"in the data sets {other} and {name}"
            what = f"the sequence {one.sequence!r} of {one.stream!r} that begins at {one.start_time.isoformat()}"
            raise UsageError(f"{what} is {where}, with the same values: it would count twice; leave it out once")


def _check_unchanged(plant: Plant, found: Sequence[Given], folder: Path) -> None:
    """Raise SourceError if a file of a data set was changed while it was judged."""
    for each in found:
        if files_of(plant, each.wanted, folder) != (each.files, each.labels_file):
            raise SourceError(f"data set {each.wanted.name}: its files have changed meanwhile: run it again")
