"""``streamad init``: writes a commented config for a sample recording."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any
from zoneinfo import ZoneInfo

import typer

from streamad.commands.check.findings import Finding
from streamad.commands.check.source import check_source
from streamad.commands.init.config import config_text, duration_text, trial_settings
from streamad.commands.init.fields.names import plain_name
from streamad.commands.init.file_ids import read_file_ids
from streamad.commands.init.files import read_joined
from streamad.commands.init.layout import Layout, find_layout
from streamad.commands.init.order import read_sorted, without_set_back
from streamad.commands.init.records import RawSample, read_raw
from streamad.commands.init.rhythm import Rhythm, find_pauses, measure
from streamad.commands.shared.console import Fields, JsonOption, err, local_url, out, print_json, row
from streamad.commands.shared.figures.losses import Losses
from streamad.commands.shared.plants import load_plant
from streamad.commands.shared.progress_bar import Bar
from streamad.errors import OutputError, SourceError, UsageError, some_of
from streamad.plugins import ConnectorContext, connect_source, split_url
from streamad.ports import LabelledSource, NamedChannels
from streamad.settings.time_format import checked_format
from streamad.system.clock import SystemClock
from streamad.system.files import write_atomically

_LEFT_OUT_SHOWN = 10
_COLUMN = 13


def init(
    sample: Annotated[
        str, typer.Argument(help="A sample: a file (jsonl, csv, parquet, npz), a folder of them, or a URL.")
    ],
    *,
    write_to: Annotated[Path, typer.Option("--out", help="The config to write.", metavar="FILE")] = Path("plant.yaml"),
    time_format: Annotated[
        str | None,
        typer.Option(help="Format of the dates if several fit, in strptime tokens.", metavar="FORMAT"),
    ] = None,
    timezone: Annotated[
        str | None,
        typer.Option(help="Zone of dates without a UTC offset, such as Europe/Berlin.", metavar="ZONE"),
    ] = None,
    name: Annotated[str | None, typer.Option(help="Name of the monitor; default: the sample's name.")] = None,
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
    with Bar("reading the sample", quiet=as_json, is_endless=True) as bar:
        found = _find(sample, write_to, bar, name=name, time_format=form, zone=zone)
        if found.losses.are_many and not force:
            if not as_json:
                _show(found, None)
            raise SourceError(_refusal(found))
        write_atomically(write_to, found.text.encode())
        bar.show("checking the config")
        plant = load_plant(write_to)
        concerns = [finding for finding in check_source(plant) if finding.outcome != "ok"]
    _emit(write_to, found, plant.settings.decode.default_stream, concerns, as_json)


@dataclass(frozen=True, slots=True)
class _Proposal:
    """What was found in a sample, and the config for it."""

    raw: RawSample
    layout: Layout
    rhythm: Rhythm | None
    losses: Losses
    text: str


def _find(
    sample: str, write_to: Path, bar: Bar, *, name: str | None, time_format: str | None, zone: str | None
) -> _Proposal:
    """Read the sample and make its config. Raises SourceError, also if no record of it can be read."""
    home = write_to.absolute().parent
    url = local_url(sample)
    if str(split_url(url)[2].get("follow", "")).lower() in {"true", "1", "yes", "on"}:
        raise UsageError("a sample must end: leave follow out here, and set source.options.follow in the config")
    raw = read_raw(url, home)
    recordings = connect_source(url, {}, ConnectorContext((), SystemClock(), home), where="sample")
    named = recordings.channel_names() if raw.native and isinstance(recordings, NamedChannels) else None
    bar.show(f"finding the fields of {raw.n_records} records")
    layout = find_layout(raw, named, time_format)
    _set_zone(layout, zone, native=raw.native)
    options = dict(raw.options)
    if "encoding" in options:
        layout.notes.append(
            f"the text is no UTF-8 and was read as {options['encoding']}: if letters look wrong, set "
            "source.options.encoding"
        )
    readable = url
    if layout.as_text:
        options["text"] = list(layout.as_text)
        readable = f"{url}{'&' if '?' in url else '?'}text={','.join(layout.as_text)}"
        raw = _as_text(readable, home, layout)
    title = plain_name(name or Path(os.path.normpath(split_url(url)[1])).name.split(".")[0], "plant")
    bar.show(f"measuring the sequences of {raw.n_records} records")
    settings = trial_settings(layout, url, options, title, None)
    raw.check_readable(settings)
    if (named_by_files := read_file_ids(readable, home, raw, layout, settings)) is not None:
        raw = named_by_files
        options |= raw.options
    elif (joined := read_joined(readable, home, raw, settings)) is not None:
        raw, why = joined
        options["files"] = "joined"
        layout.notes.append(f"{why} (source.options.files: joined)")
    settings = trial_settings(layout, url, options, title, None)
    pauses = without_set_back(layout, find_pauses(raw, settings))
    if (in_order := read_sorted(home, raw, layout, pauses, settings)) is not None:
        raw = in_order
        options["sort"] = True
        pauses = find_pauses(raw, trial_settings(layout, url, options, title, None))
    if pauses.gap_us is None and not layout.end and not layout.has_ids:
        layout.notes.append("neither ids nor an end marker nor pauses: sequences are cut by length, as a stopgap")
    rhythm, losses = measure(raw, trial_settings(layout, url, options, title, pauses))
    labels = recordings.labels() if raw.native and isinstance(recordings, LabelledSource) else {}
    text = config_text(
        layout,
        name=title,
        sample=sample,
        url=_relative(url, home),
        options=options,
        native=raw.native,
        classes=sorted(set(labels.values())),
        pauses=pauses,
        rhythm=rhythm,
    )
    return _Proposal(raw, layout, rhythm, losses, text)


def _set_zone(layout: Layout, zone: str | None, *, native: bool) -> None:
    """Set the zone that the user gave; where times do not depend on it, say so instead."""
    if zone is None:
        return
    if native or layout.time.zone is None:
        why = "the file holds no times" if native else f"{layout.time.path} is {layout.time.how}"
        layout.remarks.append(f"--timezone has no effect and was not written: {why}, which needs no zone")
        return
    layout.time, layout.zone_is_given = replace(layout.time, zone=zone), True


def _refusal(found: _Proposal) -> str:
    layout = found.layout
    ids = f"stream {layout.stream or 'none'}, sequence {layout.sequence or 'none'}, time {layout.time.path}"
    remedy = layout.remedy or "give a sample whose fields tell its sequences apart"
    return (
        f"the config that fits best ({ids}) would lose {found.losses.text}: nothing was written; {remedy}, or write "
        "the config with --force and correct decode.fields and sequences"
    )


def _as_text(url: str, home: Path, layout: Layout) -> RawSample:
    """Read the sample with its ids as text. Raises SourceError if it is no CSV file: only that can be read so."""
    try:
        return read_raw(url, home)
    except SourceError:
        ids = " and ".join(layout.as_text)
        raise SourceError(
            f"{ids}: ids must be text or whole numbers, but some are not; write them as text, or leave the field out"
        ) from None


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


def _emit(
    config: Path, found: _Proposal, default_stream: str | None, concerns: Sequence[Finding], as_json: bool
) -> None:
    raw, layout, rhythm = found.raw, found.layout, found.rhythm
    if as_json:
        report = _report(config, raw, layout, rhythm)
        print_json(report | {"lost": round(found.losses.share, 4), "checks": concerns})
        return
    _show(found, default_stream)
    if (more := len(layout.left_out) - _LEFT_OUT_SHOWN) > 0:
        err.print(_told("left out", f"{more} more: see {config}"))
    if found.losses.are_many:
        err.print(_told("loses", f"{found.losses.text}: correct decode.fields and sequences before training"))
    for finding in concerns:
        err.print(_told(finding.outcome, f"{finding.message} -> {finding.advice}"))
    out.print(f"wrote {config}; read it through, then: streamad check --config {config}")


def _show(found: _Proposal, default_stream: str | None) -> None:
    layout = found.layout
    for name, value in _found(found.raw, layout, found.rhythm, default_stream):
        out.print(row(name, value, _COLUMN))
    for remark in layout.remarks:
        err.print(_told("note", remark))
    for note in _notes(layout):
        err.print(_told("guessed", note))
    for path, why in layout.left_out[:_LEFT_OUT_SHOWN]:
        err.print(_told("left out", f"{path}: {why}"))


def _told(name: str, text: str) -> Fields:
    return row(name, text, _COLUMN, "yellow")


def _notes(layout: Layout) -> list[str]:
    """Return the guesses, in whole phrases; the config marks those about the time itself."""
    time, notes = layout.time, list(layout.notes)
    if time.others:
        chosen = " and ".join(filter(None, (time.path, time.time_of_day)))
        notes.append(f"the time is {chosen}; {some_of(time.others)} would do as well (decode.fields)")
    if time.zone is not None and not layout.zone_is_given:
        notes.append(f"the dates in {time.path} name no time zone: {time.zone}; if that is wrong, set decode.timezone")
    return notes


def _found(raw: RawSample, layout: Layout, rhythm: Rhythm | None, stream: str | None) -> list[tuple[str, str]]:
    names = ", ".join(f"{line.name}{f' [{line.unit}]' if line.unit else ''}" for line in layout.channels[:12])
    more = f", and {len(layout.channels) - 12} more" if len(layout.channels) > 12 else ""
    unreadable = f", {raw.unreadable} unreadable" if raw.unreadable else ""
    found = [
        ("sample", f"{raw.n_records} records{'' if raw.is_complete else ' (its beginning)'}{unreadable}"),
        ("channels", f"{len(layout.channels)}: {names}{more}"),
    ]
    if raw.native:
        found.append(("time", "not in the file: generated, see the option period"))
    else:
        found += [
            ("time", f"{' and '.join(filter(None, (layout.time.path, layout.time.time_of_day)))} ({layout.time.how})"),
            ("stream", layout.stream or f"not named in the messages{'' if stream is None else f': {stream}'}"),
            ("sequence", layout.sequence or ("the file's name" if layout.ids_from_files else "no id in the messages")),
            ("end", f"{layout.end} is true" if layout.end else "no marker in the messages"),
        ]
    if rhythm is not None:
        spread = f"{rhythm.spread}, one every {duration_text(rhythm.period_us)}"
        found.append(("sequences", f"{rhythm.n_sequences}: {spread}"))
        found.append(("window", f"{rhythm.window} points" + (f"; {rhythm.why_resample}" if rhythm.resample_us else "")))
    return found


def _report(config: Path, raw: RawSample, layout: Layout, rhythm: Rhythm | None) -> dict[str, Any]:
    return {
        "config": str(config),
        "records": raw.n_records,
        "form": layout.form,
        "channels": layout.channels,
        "time": layout.time,
        "stream": layout.stream,
        "sequence": layout.sequence,
        "end": layout.end,
        "sequences": rhythm,
        "left_out": dict(layout.left_out),
        "notes": [*layout.remarks, *_notes(layout)],
    }
