"""``streamad validate --init``: a commented file of expectations, from the config, recordings and labels."""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Iterator
from contextlib import aclosing
from pathlib import Path

from streamad.commands.shared.console import Bar, count, err, local_url, note, out, printed, run_async
from streamad.commands.shared.figures.labels import LabelOptions, Labels
from streamad.commands.shared.options import open_input
from streamad.commands.shared.plants import check_out
from streamad.commands.validate.data import digests_of
from streamad.errors import SourceError, StreamadError, UsageError
from streamad.ingest.table.reading import read_table
from streamad.judge.evaluation import alerts_by_chance, clopper_pearson
from streamad.language import percent
from streamad.learn.parts import registry_of
from streamad.plant import Plant
from streamad.plugins import split_url
from streamad.ports import Source
from streamad.runtime.recordings import read_by_partition
from streamad.safe_text import masked
from streamad.schemas.fetching import fetching
from streamad.settings.template import scalar
from streamad.system.files import write_atomically
from streamad.telemetry.metrics import Counters

_HEAD = """\
# What the monitor must show before people rely on it: streamad validate judges the recordings below and writes a
# protocol of what was expected beside what was found. Every number of "expect" is a proposal: write what is needed,
# before the first protocol is made. docs/guide/validate.md says what decides.

schema: 1
title: {title}
# bound: the whole 95 % interval of a rate must keep to its limit. estimate: the share that was found must.
decide_by: bound
restarts: 3                                   # break off a run on each data set so often; null: do not look at it
replays: 2                                    # compare so many replays of each data set; null: do not look at it

# Recordings that did not train the model; paths are relative to this file.
data:
  - name: recordings
    recordings: {recordings}
{labels}
# Shares that may not be exceeded in any data set; they are counted.
limits:
  lost_samples: 0                             # unreadable, too late, displaced
  unscorable: 0                               # sequences without a score
  unlabelled: 0                               # sequences without a label, where there are labels

expect:
"""
_NO_MODEL = 1_000_000
"""Calibration sequences, as long as no model says how many it has: their chance is left out."""
_FOUND, _WARNED = 0.5, 0.2


def write_expectations(
    plant: Plant,
    path: Path,
    recordings: str | None,
    label_options: tuple[str | None, str | None, str | None, str | None],
    *,
    force: bool,
) -> None:
    """Write the file ``path``. Raises UsageError if it is there, SourceError if the recordings cannot be read."""
    if path.exists() and not force:
        raise UsageError(f"{path} is there already: name another file, or write --force")
    if path.suffix.lower() not in (".yaml", ".yml"):
        raise UsageError(f"{path}: the expectations are a .yaml file")
    options = LabelOptions(*label_options)
    check_out(plant, path, is_recording=False)
    url = local_url(recordings) if recordings is not None else _absolute(plant)
    digests_of(open_input(plant, url), url)  # a topic is refused
    labels = options.read(open_input(plant, url), plant.settings.decode)
    kinds = run_async(_kinds(plant, open_input(plant, url), labels))
    content = _HEAD.format(
        title=scalar(f"{plant.settings.name}: acceptance"),
        recordings=scalar(_relative(url, path)),
        labels="".join(f"    {line}\n" for line in _label_lines(options, path)),
    )
    content += "".join(f"{line}\n" for line in _expectations(plant, kinds))
    write_atomically(path, content.encode())
    n = sum(kinds.values())
    out.print(f"{count(n, 'sequence')}, {count(len(kinds), 'label')}: {printed(str(path))}")
    if labels is None:
        err.print(note(f"no labels: write label or labels into {path}, or name them with --labels"))


def _absolute(plant: Plant) -> str:
    """Return the source of the config, seen from everywhere."""
    url = plant.settings.source.url
    scheme, rest, _ = split_url(url)
    return str(plant.base_dir / rest) if scheme == "file" and not Path(rest).is_absolute() else url


def _relative(url: str, path: Path) -> str:
    """Return ``url`` as the file ``path`` names it."""
    scheme, rest, options = split_url(url)
    if scheme != "file" or options:
        return url
    return os.path.relpath(rest, path.absolute().parent)


def _label_lines(options: LabelOptions, path: Path) -> Iterator[str]:
    if options.where is None:
        yield "# label: normal                           # of all sequences; or labels: truth.csv"
        return
    where = options.where if options.where == "source" else _relative(str(Path(options.where).absolute()), path)
    yield f"labels: {scalar(where)}"
    if options.normal is not None:
        yield f"normal: {scalar([*dict.fromkeys(options.normal.split(','))])}"
    for key, value in (("label_id", options.id_column), ("label_column", options.label_column)):
        if value is not None:
            yield f"{key}: {scalar(value)}"


async def _kinds(plant: Plant, source: Source, labels: Labels | None) -> Counter[tuple[str, bool] | None]:
    """Return how many sequences have each label, and mean a fault; None: no label. Raises SourceError."""
    found: Counter[tuple[str, bool] | None] = Counter()
    table = read_table(plant.settings, plant.base_dir)
    with Bar("reading the recordings") as bar:

        def show(_: Counters, share: float | None) -> None:
            bar.show(f"reading the recordings: {count(found.total(), 'sequence')}", share)

        async with fetching(plant) as fetcher:
            sequences = read_by_partition(
                plant.settings, source, plant.clock, Counters(), show, table=table, fetcher=fetcher
            )
            try:
                async with aclosing(sequences):
                    async for _, closed in sequences:
                        one = closed.sequence
                        label = None if labels is None else labels.of(one.stream, one.sequence)
                        found[None if label is None else (label.text, label.is_anomalous)] += 1
            finally:
                await source.close()
    if not found:
        raise SourceError("no sequence was found in the recordings: see streamad check")
    if labels is not None and set(found) == {None}:
        raise SourceError(f"none of {count(found.total(), 'sequence')} has a label: {labels.example!r} is one that has")
    return found


def _expectations(plant: Plant, kinds: Counter[tuple[str, bool] | None]) -> Iterator[str]:
    faults = sorted((key[0], n) for key, n in kinds.items() if key is not None and key[1])
    n_normal = sum(n for key, n in kinds.items() if key is not None and not key[1])
    alerts, n_calibration = plant.settings.alerts, _n_calibration(plant)
    if n_normal or not faults:
        yield from _at_most("false_alarms", alerts.false_alarm_rate, n_normal, n_calibration)
    n_faulty = sum(n for _, n in faults)
    if n_faulty:
        yield from _at_least("detection", None, n_faulty, _FOUND)
    for kind, n in faults if len(faults) > 1 else ():
        yield from _at_least("detection", kind, n, _FOUND)
    if alerts.early is not None and n_normal:
        yield from _at_most("false_warnings", alerts.early.false_alarm_rate, n_normal, n_calibration)
    if alerts.early is not None and n_faulty:
        yield from _at_least("warned", None, n_faulty, _WARNED)
        yield "    # fault: KIND                             # of one kind of fault"
        yield "    # lead: 10m                               # count warnings that come so long before the end"


def _at_most(what: str, rate: float, n: int, n_calibration: int) -> Iterator[str]:
    """Yield an expectation that a monitor which keeps to its configured rate meets, but for one time in 40."""
    yield f"  - what: {what}"
    if not n:
        yield f"    at_most: {min(0.99, 2 * rate):.2g}"
        return
    chance = alerts_by_chance(n, n_calibration, rate)
    k = chance[1] if chance is not None else math.ceil(n * rate + 2 * math.sqrt(n * rate))
    limit = min(0.99, math.ceil(1000 * clopper_pearson(min(k, n), n)[1]) / 1000)
    yield (
        f"    at_most: {limit:g}".ljust(46) + f"# config: {percent(rate, None)}; of {n} normal ones chance gives up to "
        f"{k}, which show this"
    )


def _at_least(what: str, kind: str | None, n: int, share: float) -> Iterator[str]:
    best = clopper_pearson(n, n)[0]
    limit = min(share, math.floor(100 * best) / 100)
    yield f"  - what: {what}"
    if kind is not None:
        yield f"    fault: {scalar(kind)}"
    yield f"    at_least: {max(limit, 0.01):g}".ljust(46) + f"# {count(n, 'sequence')} can show {percent(best)} at best"


def _n_calibration(plant: Plant) -> int:
    """Return how many sequences calibrate the model in service."""
    name = plant.settings.model.name
    try:
        registry = registry_of(plant)
        version = registry.current_or_none(name)
        return _NO_MODEL if version is None else registry.manifest(name, version).metrics.n_calibration
    except StreamadError as error:
        err.print(note(masked(f"no model is known: {error}")))
        return _NO_MODEL
