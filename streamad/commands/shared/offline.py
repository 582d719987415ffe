"""Judges recordings into a folder of Parquet files: what ``score`` and ``replay`` share."""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import typer

from streamad.commands.shared.console import Bar, count, err, notice, out, print_json, printed
from streamad.commands.shared.figures.losses import check_usable, lost, unscorable_text
from streamad.commands.shared.figures.report import KNOWN_SEQUENCES
from streamad.commands.shared.options import input_url, open_input, span_now, versions_asked
from streamad.commands.shared.plants import check_out, load_whole_plant
from streamad.errors import ArtifactError, ExecutorError, UsageError
from streamad.offline.columns import check_extra
from streamad.offline.executors import Executor, InProcess, Processes
from streamad.offline.files import file_of
from streamad.offline.models import Models, versions_in_service
from streamad.offline.on_ray import OnRay, need_ray
from streamad.offline.tally import Tally
from streamad.offline.units import Kept, Kind, Task, Unit, config_digest, units_of
from streamad.offline.work import Outcome
from streamad.plant import Plant
from streamad.ports import Source
from streamad.ranges import Span
from streamad.safe_text import visible_name

JobsOption = Annotated[
    int | None,
    typer.Option(
        "--jobs", "-j", min=1, metavar="N", help="With --out: processes, each for a file at a time. Default: 1."
    ),
]
OnOption = Annotated[
    str | None,
    typer.Option(
        "--on",
        metavar="ray[://HOST:PORT]",
        help="With --out: judge on Ray, started here or RAY_ADDRESS's, or by the client of a cluster. "
        "Recordings, registry and FOLDER have the same path there.",
    ),
]
_MOST_NAMED = 20


def ray_address(on: str) -> str | None:
    """Return the address that ``--on`` names, None for ``ray``. Raises UsageError."""
    if on != "ray" and re.fullmatch(r"ray://[^/\s@]+:\d+", on) is None:
        raise UsageError(f"--on {on}: must be ray, or ray://HOST:PORT of a cluster (10001 is Ray's default)")
    need_ray()
    return None if on == "ray" else on


def executor_for(jobs: int | None, on: str | None) -> Executor:
    """Return the executor that the options name. Raises UsageError, PluginError without Ray."""
    if on is not None:
        return OnRay(ray_address(on), jobs)
    return InProcess() if jobs in (None, 1) else Processes(jobs)


@dataclass(slots=True)
class _Done:
    """The units of a run that are judged, kept and failed, and their figures."""

    n_judged: int = 0
    n_kept: int = 0
    n_others: int = 0
    """Files of verdicts in the folder that are of none of the units."""
    failed: list[Outcome] = field(default_factory=list)
    tally: Tally = Tally()  # noqa: RUF009 - it cannot change

    def add(self, outcome: Outcome) -> None:
        """Count a unit that is done."""
        if outcome.tally is None:
            self.failed.append(outcome)
        else:
            self.n_judged += 1
            self.tally += outcome.tally


class _Progress:
    """Shows which share of the bytes is judged, and the time left."""

    def __init__(self, bar: Bar, units: Sequence[Unit]) -> None:
        self._bar = bar
        self._n_units = len(units)
        self._n_bytes = sum(_weight(unit) for unit in units)
        self._n_done = 0
        self._done_bytes = 0.0
        self._shares: dict[Unit, float] = {}

    def share(self, unit: Unit, share: float) -> None:
        """Show that ``share`` of ``unit`` was read."""
        self._shares[unit] = share
        self._show()

    def done(self, unit: Unit) -> None:
        """Show that ``unit`` is done."""
        self._shares.pop(unit, None)
        self._done_bytes += _weight(unit)
        self._n_done += 1
        self._show()

    def _show(self) -> None:
        running = sum(share * _weight(unit) for unit, share in self._shares.items())
        text = f"judging: {self._n_done} of {count(self._n_units, 'file')}"
        self._bar.show(text, self._done_bytes + running, self._n_bytes)


def _weight(unit: Unit) -> int:
    return unit.n_bytes + 1


def judge_files(
    folder: Path,
    kind: Kind,
    config: Path,
    *,
    recordings: str | None,
    from_url: str | None,
    since: str | None,
    until: str | None,
    version: str | None,
    jobs: int | None,
    on: str | None,
    as_json: bool,
) -> None:
    """Judge what the options of ``score`` and ``replay`` name, see ``judge_into``. Raises StreamadError."""
    executor = executor_for(jobs, on)
    plant = load_whole_plant(config)
    asked, name = versions_asked(version, plant.settings), plant.settings.model.name
    if plant.settings.models is None:
        version = Models(plant, asked).get(name).ref.version
    given = input_url(recordings, from_url)
    span = span_now(plant, since, until)
    source = open_input(plant, given, span)
    judge_into(folder, kind, plant, source, url=given, span=span, version=version, executor=executor, as_json=as_json)


def judge_into(
    folder: Path,
    kind: Kind,
    plant: Plant,
    source: Source,
    *,
    url: str | None,
    span: Span,
    version: str | None,
    executor: Executor,
    as_json: bool,
) -> None:
    """Judge the units of ``source`` that ``folder`` does not hold yet, and print what became of all.

    Raises StreamadError, at the end also if units failed.
    """
    check_extra()
    check_out(plant, file_of(folder, "verdicts", "file", ""), is_recording=False, also_read=url)
    units = units_of(source, url or plant.settings.source.url)
    versions = versions_in_service(plant)
    if version is not None:
        versions[plant.settings.model.name] = version
    task = Task(kind, plant, url, span, versions, folder.absolute(), _config_digest(kind, plant, url, span))
    done, left, kept = _Done(), [], Kept(task)
    for unit in units:
        if (made := kept.of(unit)) is None:
            left.append(unit)
        else:
            done.n_kept += 1
            done.tally += made.tally
    try:
        with Bar("judging", quiet=as_json) as bar:
            progress = _Progress(bar, left)
            with closing(executor.outcomes(task, left, progress.share)) as outcomes:
                for outcome in outcomes:
                    done.add(outcome)
                    progress.done(outcome.unit)
    except KeyboardInterrupt as stop:
        n = done.n_kept + done.n_judged
        raise KeyboardInterrupt(f"{n} of {count(len(units), 'file')} are judged; the same command goes on") from stop
    done.n_others = _n_others(folder, units)
    _print(done, folder, as_json=as_json)
    if done.failed:
        raise ExecutorError(
            f"{len(done.failed)} of {count(len(units), 'file')} not judged: the same command tries again"
        )
    if done.tally.errors and not done.tally.n_scored:
        raise ArtifactError(done.tally.errors[min(done.tally.errors)])
    check_usable(done.tally.counters, given=url, may_be_empty=span != Span())


def _config_digest(kind: Kind, plant: Plant, url: str | None, span: Span) -> str:
    named = plant.settings.sequences.table
    table = b"" if named is None else (plant.base_dir / named.file).read_bytes()
    return config_digest(kind, plant, url, span, table)


def _n_others(folder: Path, units: Sequence[Unit]) -> int:
    own = {file_of(folder, "verdicts", unit.partition, unit.place) for unit in units}
    return sum(path not in own for path in (folder / "verdicts").glob("*.parquet"))


def _print(done: _Done, folder: Path, *, as_json: bool) -> None:
    tally, n_sequences = done.tally, sum(done.tally.decisions.values())
    if as_json:
        print_json(_as_dict(done, folder))
    else:
        for loss in lost(tally.counters) if tally.counters else ():
            err.print(notice(loss.what, f": {loss.text}"))
        if tally.n_known:
            err.print("warning: " + KNOWN_SEQUENCES.format(tally.n_known, n_sequences))
        if reasons := unscorable_text(tally.reasons):
            err.print(notice("unscorable", f": {reasons}"))
        for name, error in sorted(tally.errors.items()):
            err.print(notice(f"model {name}", f": {error}"))
        each = ", ".join(f"{n} {decision}" for decision, n in sorted(tally.decisions.items()))
        kept = f", {done.n_kept} kept from before" if done.n_kept else ""
        out.print(
            f"{count(done.n_judged, 'file')} judged{kept}; {count(n_sequences, 'sequence')}"
            f"{f' ({each})' if each else ''} in {printed(str(folder / 'verdicts'))}"
        )
        if done.n_others:
            other = count(done.n_others, "other file")
            err.print(notice("warning", f": {other} there, of recordings that this command does not read"))
    for outcome in done.failed[:_MOST_NAMED]:
        err.print(notice("not judged", f": {visible_name(outcome.unit.partition)}: {outcome.error}"))
    if len(done.failed) > _MOST_NAMED:
        err.print(notice("not judged", f": {len(done.failed) - _MOST_NAMED} more (--json names all)"))


def _as_dict(done: _Done, folder: Path) -> dict[str, Any]:
    tally = done.tally
    return {
        "folder": str(folder),
        "judged": done.n_judged,
        "kept": done.n_kept,
        "others": done.n_others,
        "failed": {each.unit.partition: each.error for each in done.failed},
        "sequences": sum(tally.decisions.values()),
        "decisions": tally.decisions,
        "unscorable": tally.reasons,
        "model_errors": tally.errors,
        "trained_model": tally.n_known,
        "counters": tally.counters,
    }
