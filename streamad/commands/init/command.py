"""``streamad init``: writes a commented config for a sample recording."""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Annotated
from zoneinfo import ZoneInfo

import typer

from streamad.commands.check.source import check_source
from streamad.commands.init.config import config_text, trial_settings
from streamad.commands.init.facts.rows import LONGEST_STEP
from streamad.commands.init.facts.words import plain_name
from streamad.commands.init.finding import find_layout
from streamad.commands.init.layout import Layout
from streamad.commands.init.printing import Proposal, emit, show
from streamad.commands.init.reading.file_ids import read_file_ids
from streamad.commands.init.reading.joined import read_joined
from streamad.commands.init.reading.order import read_sorted, without_set_back
from streamad.commands.init.reading.registered import SampleSchemas
from streamad.commands.init.reading.sample import RawSample, read_raw
from streamad.commands.init.rhythm import find_pauses, measure
from streamad.commands.init.rules.holding import note_holding
from streamad.commands.shared.console import Bar, JsonOption, local_url
from streamad.commands.shared.options import local_path
from streamad.commands.shared.plants import load_plant
from streamad.errors import OutputError, SourceError, UsageError
from streamad.plugins import ConnectorContext, connect_source, split_url
from streamad.ports import LabelledSource, NamedChannels
from streamad.settings.fields import parse_duration_us
from streamad.settings.time_format import checked_format
from streamad.system.clock import SystemClock
from streamad.system.files import write_atomically

_ANY_SAMPLE = frozenset({"train", "training", "normal", "data", "sample", "recordings", "export", "log", "live"})
"""Names of samples that tell nothing of the plant."""


def init(
    sample: Annotated[
        str, typer.Argument(help="A sample: a file (jsonl, csv, parquet, npz), a folder of them, or a URL.")
    ],
    *,
    write_to: Annotated[
        Path, typer.Option("--out", callback=local_path, help="The config to write.", metavar="FILE")
    ] = Path("plant.yaml"),
    time_format: Annotated[
        str | None,
        typer.Option(help="Format of the dates if several fit, in strptime tokens.", metavar="FORMAT"),
    ] = None,
    timezone: Annotated[
        str | None,
        typer.Option(help="Zone of dates without a UTC offset, such as Europe/Berlin.", metavar="ZONE"),
    ] = None,
    row_period: Annotated[
        str | None,
        typer.Option(help="Read rows as evenly spaced samples, this long apart: 250ms.", metavar="DURATION"),
    ] = None,
    registry: Annotated[
        str | None,
        typer.Option(
            help="Schema Registry of the sample's messages: its URL, or {url: ..., username: ..., password: {env: P}}."
        ),
    ] = None,
    name: Annotated[
        str | None, typer.Option(help="Name of the monitor; default: the sample's, or the folder's.")
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Overwrite an existing config; write one that loses samples.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Write a commented plant.yaml that reads a sample recording.

    Finds channels and units, times, ids of streams and sequences, end markers or pauses, the sampling period and the
    lengths of sequences. Prints all that it found, and marks guesses as such.

    Example: streamad init recording.csv
    """
    _refuse_missing(sample)
    if write_to.exists() and not force:
        raise OutputError(f"{write_to} exists: name another file with --out, or overwrite it with --force")
    _refuse_sample(write_to, sample)
    form, zone = None if time_format is None else _checked(time_format), None if timezone is None else _zone(timezone)
    with Bar("reading the sample", quiet=as_json) as bar:
        found = _find(
            sample,
            write_to,
            bar,
            name=name,
            time_format=form,
            zone=zone,
            row_period_us=_period(row_period),
            registry=registry,
        )
        if found.losses.are_many and not force:
            if not as_json:
                show(found, None)
            raise SourceError(_refusal(found))
        write_atomically(write_to, found.text.encode())
        bar.show("checking the config")
        plant = load_plant(write_to)
        concerns = [finding for finding in check_source(plant) if finding.outcome != "ok"]
    emit(write_to, found, plant.settings.decode.default_stream, concerns, as_json)


def _find(
    sample: str,
    write_to: Path,
    bar: Bar,
    *,
    name: str | None,
    time_format: str | None,
    zone: str | None,
    row_period_us: int | None,
    registry: str | None,
) -> Proposal:
    """Read the sample and make its config. Raises SourceError, also if no record of it can be read."""
    home = write_to.absolute().parent
    url = local_url(sample)
    if str(split_url(url)[2].get("follow", "")).lower() in {"true", "1", "yes", "on"}:
        raise UsageError("a sample must end: leave follow out here, and set source.options.follow in the config")
    raw = read_raw(url, home, schemas=SampleSchemas.of(registry, home))
    recordings = connect_source(url, {}, ConnectorContext((), SystemClock(), home), where="sample")
    named = recordings.channel_names() if raw.native and isinstance(recordings, NamedChannels) else None
    bar.show(f"finding the fields of {raw.n_records} records")
    layout = find_layout(raw, named, time_format, row_period_us, bar.each)
    layout.registry = None if raw.schemas is None else raw.schemas.given
    _set_zone(layout, zone, native=raw.native)
    options = dict(raw.options)
    if "encoding" in options:
        layout.notes.append(
            f"the text is no UTF-8 and was read as {options['encoding']}: if letters look wrong, set "
            "source.options.encoding"
        )
    if raw.is_keyless:
        layout.notes.append(
            "the messages have no key, so that a stream's may lie in several partitions, where it is unscorable: let "
            "the producer send the stream as message key"
        )
    if raw.layout is not None and raw.layout.header is not None and not raw.layout.is_sure:
        layout.notes.append(f"{raw.layout.why}: if that is wrong, set source.options.header")
    if layout.as_text:
        options["text"] = _text_columns(raw, layout)
    name = plain_name(name or _stem(url) or home.name, "plant")
    bar.show(f"measuring the sequences of {raw.n_records} records")
    settings = trial_settings(layout, url, options, name, None)
    raw.check_readable(settings)
    if (named_by_files := read_file_ids(url, home, raw, layout, settings)) is not None:
        raw = named_by_files
        options |= raw.options
    elif (joined := read_joined(url, home, raw, settings)) is not None:
        raw, why = joined
        options["files"] = "joined"
        layout.notes.append(f"{why} (source.options.files: joined)")
    settings = trial_settings(layout, url, options, name, None)
    pauses = without_set_back(layout, find_pauses(raw, settings, bar.each))
    if (in_order := read_sorted(home, raw, layout, pauses, settings)) is not None:
        raw = in_order
        options["sort"] = True
        pauses = find_pauses(raw, trial_settings(layout, url, options, name, None))
    note_holding(layout, raw, settings)
    is_marked = layout.end or layout.words is not None or layout.state is not None
    if pauses.gap_us is None and not is_marked and not layout.has_ids and not layout.restarts:
        layout.notes.append("neither ids nor an end marker nor pauses: sequences are cut by length, as a stopgap")
    rhythm, losses, recurring = measure(raw, trial_settings(layout, url, options, name, pauses))
    if layout.remedy is None and (recurring.pause_us or 0) > LONGEST_STEP * pauses.period_us:
        layout.remedy = f"{recurring.text}: write the config with --force; {recurring.advice}"
    labels = recordings.labels() if raw.native and isinstance(recordings, LabelledSource) else {}
    written = _relative(url, home)
    text = config_text(
        layout,
        name=name,
        sample=sample,
        url=written,
        options=options,
        native=raw.native,
        classes=sorted(set(labels.values())),
        pauses=pauses,
        rhythm=rhythm,
    )
    return Proposal(raw, layout, rhythm, losses, written, text)


def _stem(url: str) -> str:
    """Return the sample's name without its endings; an empty text if it tells nothing of the plant."""
    path = os.path.normpath(split_url(url)[1])
    stem = Path(path).name.split(".")[0]
    return "" if stem.lower() in _ANY_SAMPLE or any(mark in path for mark in "*?[") else stem


def _set_zone(layout: Layout, zone: str | None, *, native: bool) -> None:
    """Set the zone that the user gave; where times do not depend on it, say so instead."""
    if zone is None:
        return
    if native or layout.time.zone is None:
        why = "the file holds no times" if native else f"{layout.time.path} is {layout.time.how}"
        layout.remarks.append(f"--timezone has no effect and was not written: {why}, which needs no zone")
        return
    layout.time, layout.zone_is_given = replace(layout.time, zone=zone), True


def _refusal(found: Proposal) -> str:
    layout = found.layout
    ids = (
        f"stream {layout.stream_title or 'none'}, sequence {layout.sequence_title or 'none'}, "
        f"time {layout.time.title or layout.time.how}"
    )
    remedy = layout.remedy or "give a sample whose fields tell its sequences apart"
    if "--force" not in remedy:
        remedy = f"{remedy}, or write the config with --force and correct decode.fields and sequences"
    return f"the config that fits best ({ids}) would lose {found.losses.text}: nothing was written; {remedy}"


def _text_columns(raw: RawSample, layout: Layout) -> list[str]:
    """Return the columns whose ids a table's reader must leave as text. Raises SourceError if there is no table."""
    if raw.layout is not None:
        return list(layout.as_text)
    ids = " and ".join(layout.as_text)
    raise SourceError(
        f"{ids}: ids must be text or whole numbers, but some are not; write them as text, or leave the field out"
    )


def _refuse_missing(sample: str) -> None:
    """Raise SourceError if the sample is a path that is not there, whatever else is wrong."""
    scheme, rest, _ = split_url(sample)
    if scheme == "file" and rest and not any(mark in rest for mark in "*?["):
        with suppress(OSError, ValueError, RuntimeError):  # the source says what is wrong with it
            if not Path(rest).expanduser().exists():
                raise SourceError(f"{rest}: no such file or folder; check the path")


def _refuse_sample(config: Path, sample: str) -> None:
    """Raise UsageError if the config would overwrite the sample, also by another name of it."""
    scheme, rest, _ = split_url(sample)
    with suppress(OSError, ValueError):  # what is not there, or is no path, is not overwritten
        if scheme == "file" and config.samefile(rest):
            raise UsageError(f"--out {config} is the sample itself: name another file with --out")


def _zone(timezone: str) -> str:
    try:
        return ZoneInfo(timezone).key
    except (KeyError, ValueError, OSError) as error:
        raise UsageError(
            f"--timezone: no time zone {timezone!r}: write an IANA name such as Europe/Berlin or UTC"
        ) from error


def _period(row_period: str | None) -> int | None:
    try:
        return None if row_period is None else parse_duration_us(row_period)
    except ValueError as error:
        raise UsageError(f"--row-period: {error}") from None


def _checked(time_format: str) -> str:
    try:
        return checked_format(time_format)
    except ValueError as error:
        raise UsageError(f"--time-format: {error}") from None


def _relative(url: str, home: Path) -> str:
    """Return the URL of the sample, relative to the config's folder if it is in that folder."""
    scheme, rest, _ = split_url(url)
    if scheme != "file":
        return url
    # As the source does it: ".." leaves a linked folder by its name.
    path, folder = Path(os.path.normpath(rest)), Path(os.path.normpath(home))
    written = path.relative_to(folder).as_posix() if path.is_relative_to(folder) else path.as_posix()
    prefix = "" if split_url(written)[0] == "file" else "file:"  # mqtt:file.csv would be another scheme
    return prefix + written + url.partition(rest)[2]
