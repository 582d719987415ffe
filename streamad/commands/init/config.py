"""Writes the config of a sample, with comments on findings, guesses and alternatives."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import PurePath
from typing import Any

from pydantic import ValidationError
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource

from streamad.commands.init.layout import Layout
from streamad.commands.init.rhythm import Pauses, Rhythm, round_up
from streamad.errors import ConfigError, some_of
from streamad.settings.plant_yaml import ENV_PREFIX, Settings
from streamad.settings.template import Entry, Section, channel_entry, judging_sections, render
from streamad.settings.yaml_file import validation_problems

_UNITS_US = (("d", 86_400_000_000), ("h", 3_600_000_000), ("m", 60_000_000), ("s", 1_000_000), ("ms", 1_000))
_PIECE = 128


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


def duration_text(duration_us: int) -> str:
    """Return microseconds as a config writes them, in the largest unit that divides them."""
    if duration_us == 0:
        return "0s"
    unit, factor = next(((unit, factor) for unit, factor in _UNITS_US if duration_us % factor == 0), ("us", 1))
    return f"{duration_us // factor}{unit}"


def _readable(duration_us: float) -> str:
    """Return a duration for a comment: 1.8 h, 250 ms."""
    unit, factor = next(((unit, factor) for unit, factor in _UNITS_US if duration_us >= factor), ("us", 1))
    return f"{duration_us / factor:.3g} {unit}"


def sequence_settings(layout: Layout, pauses: Pauses | None) -> dict[str, Any]:
    """Return the section ``sequences`` for the sample."""
    modes = ["marker"] * (layout.end is not None) + ["change"] * layout.has_ids
    found: dict[str, Any] = {"end": modes, "max_duration": "365d"}
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
    found: dict[str, Any] = {}
    fields = field_mapping(layout)
    if fields is not None:
        found["fields"] = fields
    if layout.time.format is not None:
        found["time_format"] = layout.time.format
    elif layout.time.unit != "s":
        found["time_unit"] = layout.time.unit
    if layout.time.zone is not None:
        found["timezone"] = layout.time.zone
    if layout.missing:
        found["missing"] = list(layout.missing)
    if layout.quality is not None:
        found["quality"] = layout.quality.entry
    if layout.ids_from_files:
        found["sequence_from"] = "file"
    if layout.is_relative:
        found["time"] = "relative"
    if layout.stream is None:
        found["default_stream"] = stream
    return found


def field_mapping(layout: Layout) -> dict[str, Any] | None:
    """Return ``decode.fields``; None for streamad's own format."""
    if layout.form == "own":
        return None
    fields: dict[str, Any] = {"stream": layout.stream} if layout.stream is not None else {}
    fields |= {"sequence": layout.sequence, "time": layout.time.path}
    fields |= {} if layout.time.time_of_day is None else {"time_of_day": layout.time.time_of_day}
    fields["end"] = layout.end
    if layout.form == "per_channel":
        return fields | {"channel": layout.channel, "value": layout.value}
    return fields | {"values": layout.values}


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
    """Return the commented config; ``name`` is also the stream's if no field names it."""
    head = [f"Written by streamad init from {sample}; read it through: guesses are marked."]
    head += ["Then: streamad check, streamad train, streamad run. Every key: docs/guide/config.md."]
    left = [f"Left out: {path} ({why})." for path, why in layout.left_out]
    notes = [f"Note: {note}." for note in layout.notes]
    sections = (
        _source(url, options, native),
        _decode(layout, name, native),
        _sequences(layout, pauses, rhythm),
        _window(rhythm),
        *judging_sections(_recordings(url, classes)),
    )
    return render([*head, *([""] if left or notes else []), *notes, *left], name, layout.channels, sections)


def _recordings(url: str, classes: Sequence[str]) -> Entry:
    if not classes:
        return Entry(
            "recordings",
            f"normal/*{PurePath(url.partition('?')[0]).suffix or '.jsonl'}",
            "normal sequences to learn from; default: the source",
            active=False,
        )
    shown = ", ".join(classes[:8]) + (", ..." if len(classes) > 8 else "")
    option = f"{'&' if '?' in url else '?'}classes={classes[0]}"
    return Entry("recordings", url + option, f"learn from the normal class only; classes: {shown}", active=False)


def _source(url: str, options: Mapping[str, Any], native: bool) -> Section:
    entries = [Entry("url", url)]
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
    about += [f"Time: {layout.time.how}." if not native else "The file holds no times: see source.options."]
    if layout.time.others:
        about.append(f"Guessed: the time is {layout.time.path}; {some_of(layout.time.others)} would do as well.")
    comments = {
        "fields": "",
        "sequence_from": "one sequence a file, whose name is the id",
        "time": "counts from the sequence's start; or: absolute",
        "time_unit": "of numeric times: s, ms, us or ns",
        "time_format": "of the dates: strptime tokens, or excel",
        "timezone": "given"
        if layout.zone_is_given
        else "a guess: the dates do not name it; or for example Europe/Berlin",
        "missing": "these texts mean a missing value; others are counted",
        "quality": "readings of another quality are missing",
        "default_stream": "no field names the stream: all samples belong to this one",
    }
    entries = [Entry(key, found[key], comment) for key, comment in comments.items() if key in found]
    entries.append(Entry("max_clock_skew", "1h", "times further in the future are unreadable", active=False))
    return Section("decode", tuple(about), tuple(entries))


def _sequences(layout: Layout, pauses: Pauses, rhythm: Rhythm | None) -> Section:
    found = sequence_settings(layout, pauses)
    about = ["When a sequence ends. Modes: marker (end: true), change (the stream's next id), gap, length."]
    if found["end"] == ["change"]:
        about.append("With change alone, a sequence is judged when the stream's next one begins.")
    entries = [Entry("end", found["end"], _why_end(layout, pauses))]
    if "gap" in found:
        entries.append(Entry("gap", found["gap"], f"{pauses.n_pauses} pauses are longer"))
    if "length" in found:
        entries.append(Entry("length", found["length"], "a guess: samples in a sequence"))
        entries.append(Entry("gap", "10s", "with end: [gap]: no sample for this long", active=False))
    if "without_id" in found:
        entries.append(Entry("without_id", "skip", f"a guess: without {layout.sequence}, as between two; or: keep"))
    longest_us = rhythm.longest_us if rhythm is not None else 0
    limit_us = 4 * longest_us
    if "change" in found["end"]:  # a sequence waits for the next one to begin
        limit_us = max(limit_us, 2 * (longest_us + pauses.longest_pause_us))
    limit_us = max(round_up(limit_us), 60_000_000) if longest_us else 86_400_000_000
    seen = f"hard limit; the longest in the sample took {_readable(longest_us)}" if longest_us else "hard limit"
    entries.append(Entry("max_duration", duration_text(limit_us), seen))
    late = "samples came in order"
    if pauses.lateness_us and not layout.is_relative:
        late = f"samples came up to {_readable(pauses.lateness_us)} late"
    if layout.form == "per_channel":
        late += ", and a slow channel must not be late"
    entries.append(Entry("allowed_lateness", found["allowed_lateness"], late))
    return Section("sequences", tuple(about), tuple(entries))


def _why_end(layout: Layout, pauses: Pauses) -> str:
    if layout.ids_from_files:
        return "every file is one sequence"
    if layout.end and layout.sequence:
        return f"{layout.end} is true on last samples; {layout.sequence} names the sequence"
    if layout.end or layout.sequence:
        return f"{layout.end} is true on last samples" if layout.end else f"{layout.sequence} names the sequence"
    if pauses.gap_us is None:
        return "no id, no end marker, no pauses found: cut into pieces"
    return f"no id and no end marker, but pauses (samples usually come every {_readable(pauses.period_us)})"


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
