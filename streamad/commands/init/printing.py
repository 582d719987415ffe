"""Prints what ``init`` has found in a sample: fields, guesses, what is left out, and what comes next."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from streamad.commands.check.findings import Finding
from streamad.commands.init.durations import readable
from streamad.commands.init.layout import Layout
from streamad.commands.init.reading.sample import RawSample
from streamad.commands.init.rhythm import Rhythm
from streamad.commands.shared.console import Fields, err, out, print_json, row
from streamad.commands.shared.figures.losses import Losses
from streamad.errors import some_of

_LEFT_OUT_SHOWN = 10
_COLUMN = 13
_NEXT = "check, then train; before run, set source.url to the data to judge, and model.recordings to the sample"


@dataclass(frozen=True, slots=True)
class Proposal:
    """The config that ``init`` proposes for a sample, and the findings behind it."""

    raw: RawSample
    layout: Layout
    rhythm: Rhythm | None
    losses: Losses
    url: str
    text: str


def emit(config: Path, found: Proposal, default_stream: str | None, concerns: Sequence[Finding], as_json: bool) -> None:
    """Print what was found, the ``concerns`` of the checks, and what comes next."""
    raw, layout, rhythm = found.raw, found.layout, found.rhythm
    if as_json:
        report = _report(config, raw, layout, rhythm)
        print_json(report | {"lost": round(found.losses.share, 4), "checks": concerns})
        return
    show(found, default_stream)
    if (more := len(layout.left_out) - _LEFT_OUT_SHOWN) > 0:
        err.print(_told("left out", f"{more} more: see {config}"))
    if found.losses.are_many:
        err.print(_told("loses", f"{found.losses.text}: correct decode.fields and sequences before training"))
    for finding in concerns:
        err.print(_told(finding.outcome, f"{finding.message} -> {finding.advice}"))
    out.print(row("next", f"{_NEXT}: {found.url}", _COLUMN))
    out.print(f"wrote {config}; read it through, then: streamad check --config {config}")


def show(found: Proposal, default_stream: str | None) -> None:
    """Print the fields that were found, the guesses and what is left out."""
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
        notes.append(f"the time is {time.title}; {some_of(time.others)} would do as well (decode.fields)")
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
    if layout.each is not None:
        what = "a reading" if layout.form == "per_channel" else "a sample"
        found.append(("list", f"{layout.each}: each element is {what}, with the fields around the list that it lacks"))
    if raw.native:
        found.append(("time", "not in the file: generated, see the option period"))
    else:
        found += [
            ("time", f"{layout.time.title} ({layout.time.how})" if layout.time.title else layout.time.how),
            ("stream", layout.stream_title or f"not named in the messages{'' if stream is None else f': {stream}'}"),
            ("sequence", layout.sequence_title or _ids_elsewhere(layout)),
            ("end", _end_of(layout)),
        ]
    if rhythm is not None:
        spread = f"{rhythm.spread}, one every {readable(rhythm.period_us)}"
        found.append(("sequences", f"{rhythm.n_sequences}: {spread}"))
        found.append(("window", f"{rhythm.window} points" + (f"; {rhythm.why_resample}" if rhythm.resample_us else "")))
    return found


def _end_of(layout: Layout) -> str:
    if layout.words is not None:
        return f"{layout.words.path} is {' or '.join(layout.words.ends)}"
    if layout.state is not None:
        return f"{layout.state.path} is not {layout.state.said}"
    return f"{layout.end} is true" if layout.end else "no marker in the messages"


def _ids_elsewhere(layout: Layout) -> str:
    return "no id in the messages" if layout.ids_from is None else f"the {layout.ids_from}'s name"


def _report(config: Path, raw: RawSample, layout: Layout, rhythm: Rhythm | None) -> dict[str, Any]:
    return {
        "config": str(config),
        "records": raw.n_records,
        "form": layout.form,
        "each": layout.each,
        "channels": layout.channels,
        "time": layout.time,
        "stream": layout.stream_title,
        "sequence": layout.sequence_title,
        "end": layout.end,
        "sequences": rhythm,
        "left_out": dict(layout.left_out),
        "notes": [*layout.remarks, *_notes(layout)],
    }
