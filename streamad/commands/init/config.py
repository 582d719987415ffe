"""Writes the config of a sample, with comments on findings, guesses and alternatives."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import ValidationError
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource

from streamad.commands.init.durations import duration_text, readable, round_up
from streamad.commands.init.layout import Layout
from streamad.commands.init.rhythm import Pauses, Rhythm
from streamad.commands.init.rules.patterns import OF_PATTERN
from streamad.errors import ConfigError, some_of
from streamad.settings.plant_yaml import ENV_PREFIX, Settings
from streamad.settings.template import Entry, Section, channel_entry, judging_sections, render
from streamad.settings.yaml_file import validation_problems

_PIECE = 128
_LONG_US = 600_000_000
"""Of shorter sequences the verdict comes soon enough."""


class _OfSample(Settings):
    """Settings whose values come from a sample alone: the environment is for the commands that read the config."""

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        return (init_settings,)


def sequence_settings(layout: Layout, pauses: Pauses | None) -> dict[str, Any]:
    """Return the section ``sequences`` for the sample."""
    has_end = layout.end is not None or layout.words is not None
    modes = ["marker"] * has_end + ["change"] * layout.has_ids + ["restart"] * layout.restarts
    modes += ["while"] * (layout.state is not None)
    found: dict[str, Any] = {"end": modes, "max_duration": "365d"}
    if layout.state is not None:
        where = "tag" if layout.state.is_tag else "field"
        found["while"] = {where: layout.state.path, "in": list(layout.state.runs)}
    if not modes:
        if pauses is None or pauses.gap_us is None:
            found |= {"end": ["length"], "length": _PIECE}
        else:
            found |= {"end": ["gap"], "gap": duration_text(pauses.gap_us)}
    if layout.skips_without_id:
        found["without_id"] = "skip"
    if pauses is not None:
        found["allowed_lateness"] = duration_text(_lateness_us(layout, pauses))
    return found


def _lateness_us(layout: Layout, pauses: Pauses) -> int:
    if layout.is_relative:
        return 0  # times of every sequence begin at 0
    needed_us = pauses.lateness_us
    if layout.form == "per_channel":
        needed_us = max(needed_us, 2 * pauses.longest_step_us if not pauses.n_pauses else 2 * pauses.period_us)
    return round_up(needed_us) if needed_us else 0


def decode_settings(layout: Layout, stream: str) -> dict[str, Any]:
    """Return the section ``decode`` for the sample; ``stream`` names the stream if no field does."""
    given = {"format": layout.wire, "registry": layout.registry}
    found: dict[str, Any] = {key: value for key, value in given.items() if value is not None}
    fields = field_mapping(layout)
    if fields is not None:
        found["fields"] = fields
    if layout.marks.decimal != ".":
        found["decimal"] = layout.marks.decimal
    if layout.marks.thousands is not None:
        found["thousands"] = layout.marks.thousands
    if layout.time.row_period_us is not None:
        found |= {"time": "row", "row_period": duration_text(layout.time.row_period_us)}
    elif layout.is_relative:
        found["time"] = "relative"
    if layout.time.format is not None:
        found["time_format"] = layout.time.format
    elif layout.time.unit != "s" and layout.time.row_period_us is None:
        found["time_unit"] = layout.time.unit
    if layout.time.zone is not None:
        found["timezone"] = layout.time.zone
    if layout.missing:
        found["missing"] = list(layout.missing)
    if layout.quality is not None:
        found["quality"] = layout.quality.entry
    if layout.ids_from is not None:
        found["sequence_from"] = layout.ids_from
    if layout.stream is None:
        found["default_stream"] = stream
    return found


def field_mapping(layout: Layout) -> dict[str, Any] | None:
    """Return ``decode.fields``; None for streamad's own format."""
    if layout.form == "own":
        return None
    is_own = layout.stream is not None and layout.stream != OF_PATTERN
    fields: dict[str, Any] = {} if layout.each is None else {"each": layout.each}
    fields |= {"stream": layout.stream} if is_own else {}
    if layout.pattern is not None:
        fields["pattern"] = dict(zip(("field", "parts"), layout.pattern, strict=True))
    fields["sequence"] = None if not layout.sequence else _one_or_list(list(layout.sequence))
    if layout.id_tag is not None:
        fields["sequence"] = {"tag": layout.id_tag}
    if layout.time.step is not None:
        step = layout.time.step
        fields["start"] = layout.time.path
        fields["step"] = step.path if step.unit == layout.time.unit else {"field": step.path, "unit": step.unit}
    elif layout.time.row_period_us is None:
        parts: list[Any] = [path for path in (layout.time.path, layout.time.time_of_day) if path is not None]
        if layout.time.fraction is not None:
            parts.append(dict(zip(("field", "unit"), layout.time.fraction, strict=True)))
        fields["time"] = _one_or_list(parts)
    fields["end"] = layout.end
    if layout.words is not None:
        path, begins, ends = layout.words
        fields |= {"begin": {"field": path, "value": _one_or_list(list(begins))}} if begins else {}
        fields["end"] = {"field": path, "value": _one_or_list(list(ends))}
    if layout.nested:
        fields["nested"] = _one_or_list(list(layout.nested))
    if layout.form == "per_channel":
        named = {} if layout.pattern is not None else {"channel": layout.channel}
        return fields | named | {"value": layout.value}
    return fields | {"values": layout.values}


def _one_or_list(fields: list[Any]) -> Any:
    return fields[0] if len(fields) == 1 else fields


def trial_settings(
    layout: Layout, url: str, options: Mapping[str, Any], stream: str, pauses: Pauses | None
) -> Settings:
    """Return settings that read the sample and cut its sequences; the window is not known yet.

    Raises ConfigError if a guess is one that the config refuses.
    """
    content: dict[str, Any] = {
        "channels": [channel_entry(line) for line in layout.channels],
        "source": {"url": url, "options": dict(options)},
        "decode": decode_settings(layout, stream),
        "sequences": sequence_settings(layout, pauses),
    }
    try:
        return _OfSample(**content)
    except ValidationError as error:
        problems = list(validation_problems(error, Settings, ENV_PREFIX, {}, ()))
        raise ConfigError(problems, source=f"the config that the sample {url} leads to") from error


def config_text(
    layout: Layout,
    *,
    name: str,
    sample: str,
    url: str,
    options: Mapping[str, Any],
    native: bool,
    classes: Sequence[str],
    pauses: Pauses,
    rhythm: Rhythm | None,
) -> str:
    """Return the commented config; ``name`` is also that of the stream if no field names it."""
    head = [f"Written by streamad init from {sample}; read it through: guesses are marked."]
    head += ["Then: streamad check, streamad train, streamad run. Every key: docs/guide/config.md."]
    left = [f"Left out: {path} ({why})." for path, why in layout.left_out]
    notes = [f"Note: {note}." for note in layout.notes]
    sections = (
        _source(url, options, native),
        _decode(layout, name, native),
        _sequences(layout, pauses, rhythm),
        _window(rhythm),
        *judging_sections(_recordings(url, classes), early=not native and _is_looked_at(layout, pauses, rhythm)),
    )
    return render([*head, *([""] if left or notes else []), *notes, *left], name, layout.channels, sections)


def _is_looked_at(layout: Layout, pauses: Pauses, rhythm: Rhythm | None) -> bool:
    """Return whether the config asks for warnings: sequences are long by times of the plant, and fit the window."""
    if rhythm is None or layout.time.row_period_us is not None or "length" in sequence_settings(layout, pauses):
        return False
    return rhythm.usual_us >= _LONG_US and rhythm.usual_points <= rhythm.window


def _recordings(url: str, classes: Sequence[str]) -> Entry:
    if not classes:
        return Entry("recordings", url, "what train learns from; default: the source", active=False)
    shown = ", ".join(classes[:8]) + (", ..." if len(classes) > 8 else "")
    option = f"{'&' if '?' in url else '?'}classes={classes[0]}"
    return Entry("recordings", url + option, f"learn from the normal class only; classes: {shown}", active=False)


def _source(url: str, options: Mapping[str, Any], native: bool) -> Section:
    entries = [Entry("url", url, "the sample; for run: what it shall judge")]
    if options:
        entries.append(Entry("options", dict(options), "found in the sample"))
    if native:
        entries.append(Entry("options", {"period": "20ms"}, "time from sample to sample; default 1s", active=False))
    about = "Where samples come from: a file, a folder or a pattern; paths are relative to this file's folder."
    return Section("source", (about,), tuple(entries))


_FORMS = {
    "own": "streamad's own format: nothing to map",
    "flat": "the channels are fields of the message itself; other fields are skipped",
    "object": "the channels are in one object; a channel that is not listed above makes a message unreadable",
    "per_channel": "one channel in each message; channels that are not listed above are skipped",
    "chunked": "several samples in each message, as rows",
}


def _decode(layout: Layout, stream: str, native: bool) -> Section:
    found = decode_settings(layout, stream)
    about = [f"How messages are read: {_FORMS[layout.form]} (docs/guide/messages.md)."]
    if layout.each is not None:
        about.append(
            f"Each element of {layout.each} counts as a message with the fields around the list that it lacks."
        )
    about += [f"Time: {layout.time.how}." if not native else "The file holds no times: see source.options."]
    if layout.time.others:
        about.append(f"Guessed: the time is {layout.time.title}; {some_of(layout.time.others)} would do as well.")
    comments = {
        "format": "InfluxDB's line protocol: a sample or a reading a line",
        "registry": "with the schemas that messages name",
        "fields": "",
        "decimal": "decimal mark of numbers in text",
        "thousands": "mark between groups of three digits",
        "sequence_from": "one sequence a file; the id is its name, or its folder's",
        "time": "row: rows are evenly spaced samples"
        if layout.time.row_period_us is not None
        else "counts from the sequence's start; or: absolute",
        "row_period": "time from row to row: a guess" if layout.time.note is not None else "time from row to row",
        "time_unit": "of numeric times: s, ms, us, ns, min, h or d",
        "time_format": "of the dates: strptime tokens, or excel",
        "timezone": "given"
        if layout.zone_is_given
        else "a guess: the dates do not name it; or for example Europe/Berlin",
        "missing": "these texts mean a missing value; others are counted",
        "quality": "readings of another quality are missing",
        "default_stream": "no field names the stream: name it after your line or machine",
    }
    entries = [Entry(key, found[key], comment) for key, comment in comments.items() if key in found]
    entries.append(Entry("max_clock_skew", "1h", "times further in the future are unreadable", active=False))
    return Section("decode", tuple(about), tuple(entries))


def _sequences(layout: Layout, pauses: Pauses, rhythm: Rhythm | None) -> Section:
    found = sequence_settings(layout, pauses)
    about = ["When a sequence ends. Modes: marker (end: true), change (the stream's next id), restart, gap, length."]
    if found["end"] in (["change"], ["restart"]):
        about.append(f"With {found['end'][0]} alone, a sequence is judged when the stream's next one begins.")
    entries = [Entry("end", found["end"], _why_end(layout, pauses))]
    if "while" in found:
        entries.append(Entry("while", found["while"], "a guess: other states lie between two batches"))
    if "gap" in found:
        entries.append(Entry("gap", found["gap"], f"{pauses.n_pauses} pauses are longer"))
    if "length" in found:
        entries.append(Entry("length", found["length"], "a guess: samples in a sequence"))
        entries.append(Entry("gap", "10s", "with end: [gap]: no sample for this long", active=False))
    if "without_id" in found:
        entries.append(
            Entry("without_id", "skip", f"a guess: without {layout.sequence_title}, as between two; or: keep")
        )
    longest_us = rhythm.longest_us if rhythm is not None else 0
    limit_us = 4 * longest_us
    if {"change", "restart"} & {*found["end"]}:  # a sequence waits for the next one to begin
        limit_us = max(limit_us, 2 * (longest_us + pauses.longest_pause_us))
    limit_us = max(round_up(limit_us), 60_000_000) if longest_us else 86_400_000_000
    seen = f"hard limit; the longest in the sample took {readable(longest_us)}" if longest_us else "hard limit"
    entries.append(Entry("max_duration", duration_text(limit_us), seen))
    late = "samples came in order"
    if pauses.lateness_us and not layout.is_relative:
        late = f"samples came up to {readable(pauses.lateness_us)} late"
    if layout.form == "per_channel":
        late += ", and a slow channel must not be late"
    entries.append(Entry("allowed_lateness", found["allowed_lateness"], late))
    return Section("sequences", tuple(about), tuple(entries))


def _why_end(layout: Layout, pauses: Pauses) -> str:
    if layout.ids_from is not None:
        return "every file is one sequence"
    parts = [f"{layout.end} is true on last samples"] if layout.end else []
    if names := layout.sequence_title:
        parts.append(f"{names} {'names' if len(layout.sequence) <= 1 else 'name'} the sequence")
    if layout.restarts:
        parts.append("the time begins anew in each sequence")
    if layout.words is not None:
        parts.append(f"words of {layout.words.path} end a batch")
    if layout.state is not None:
        parts.append(f"{layout.state.path} says when a batch runs")
    if parts:
        return "; ".join(parts)
    if pauses.gap_us is None:
        return "no id, no end marker, no pauses found: cut into pieces"
    return f"no id and no end marker, but pauses (samples usually come every {readable(pauses.period_us)})"


def _window(rhythm: Rhythm | None) -> Section:
    about = "How a sequence becomes a fixed-length window; shorter ones are padded."
    if rhythm is None:
        return Section("window", (about, "No whole sequence in the sample: a guess."), (Entry("length", 128),))
    seen = f"{rhythm.n_sequences} sequences in the sample: {rhythm.spread}, median {rhythm.median}"
    entries = [Entry("length", rhythm.window, seen)]
    is_needed = rhythm.resample_us is not None
    period = {"period": duration_text(rhythm.resample_us or max(1, rhythm.period_us))}
    why = rhythm.why_resample if is_needed else "samples already come regularly"
    entries.append(Entry("resample", period, f"onto a uniform grid: {why}", active=is_needed))
    squeezed = "longer ones are squeezed; or: truncate, reject"
    if rhythm.points > rhythm.window:
        squeezed = f"sequences of up to {rhythm.points} points are squeezed; or: truncate, reject"
    entries.append(Entry("longer", "resample", squeezed))
    entries.append(Entry("max_missing", 0.2, "more of a channel missing: unscorable"))
    return Section("window", (about,), tuple(entries))
