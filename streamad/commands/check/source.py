"""Checks that the source's messages become samples, sequences and windows."""

from __future__ import annotations

import json
import re
from collections import Counter

import numpy as np

from streamad.commands.check.cuts import displaced, halves, late, split, spread
from streamad.commands.check.findings import Finding, Outcome, failed, failure, ok, warning
from streamad.commands.check.models import check_routes
from streamad.commands.check.names import misspelled
from streamad.commands.check.sample import Sample, read_sample
from streamad.commands.check.table import rows_and_samples
from streamad.commands.shared.console import count, run_async
from streamad.commands.shared.figures.losses import LATER, MISSING, TAGS, bad_values_text
from streamad.commands.shared.plants import merged_errors, name_config, topics_of
from streamad.errors import SourceError, StreamadError, some_of
from streamad.ingest.dead_letters import BAD_VALUE
from streamad.ingest.table.reading import read_table
from streamad.ingest.windowing import Unscorable, judged_window
from streamad.language import percent
from streamad.plant import Plant
from streamad.plugins import load, split_url
from streamad.ports import RangedSource, Source, TransactionalSource
from streamad.runtime.wiring import source_for
from streamad.schemas.fetching import check_registry
from streamad.settings.boundaries import WhileSettings, WordSet
from streamad.settings.places import sink_urls
from streamad.settings.plant_yaml import WindowSettings
from streamad.telemetry.metrics import Counters

_LIMITS = frozenset({"max_duration", "max_samples", "memory", "end_of_input"})
_LIMIT_KEYS = {"memory": "max_buffered_bytes"}  # limits that are not named as their key
_KEYS = {"source": "source.url"}  # checks that are not named as their key
_MANY = 0.2  # a larger share is no accident
_PLAIN = re.compile(r"\w[\w -]*")


def check_source(plant: Plant) -> list[Finding]:
    """Read the first records of the source and check samples, sequences, windows and models."""
    try:
        table = read_table(plant.settings, plant.base_dir)
    except SourceError as error:
        return [failed("sequences.table", str(error))]
    try:
        source = source_for(plant)
        sample = run_async(read_sample(plant, _at_rest(source), table))
    except StreamadError as error:
        return failure("source", error)
    is_live = isinstance(source, TransactionalSource)
    findings = [*_records("source", plant, sample, is_live=is_live), *(split("source", sample) if is_live else ())]
    findings += misspelled(plant, sample.fields)
    if any(finding.outcome == "failed" for finding in findings):
        return findings
    findings += [*_channels(plant, sample), *rows_and_samples(sample)]
    if any(finding.outcome == "failed" for finding in findings):
        return findings
    findings += [*_sequences(plant, sample), *_windows(plant, sample)]
    return findings + check_routes(plant, sample)


def check_topics(plant: Plant) -> tuple[list[Finding], frozenset[str]]:
    """Check the source's topics; also return the roles of sinks whose topic is broken."""
    try:
        return run_async(_topics(plant))
    except StreamadError as error:
        return failure("source", error), frozenset(sink_urls(plant.settings))


async def _topics(plant: Plant) -> tuple[list[Finding], frozenset[str]]:
    async with topics_of(plant) as topics:
        if topics is None:
            return [], frozenset()
        found, wanted = await topics.check(), await topics.wanted()
    outcomes: dict[str, Outcome] = {"ok": "ok", "warning": "warning", "error": "failed"}
    findings = [
        Finding("topics", outcomes[level], name_config(f"{topic}: {text}"))
        for level, topic, text in merged_errors(found)
    ]
    wrong = {finding.topic for finding in found if finding.level == "error"}
    return findings, frozenset(role for topic in wanted if topic.name in wrong for role in topic.role.split(", "))


def _at_rest(source: Source) -> Source:
    """Return what ``source`` holds now: a member of a group would take partitions from the workers."""
    return source.between(None, None) if isinstance(source, RangedSource) else source


def check_schemas(plant: Plant) -> list[Finding]:
    """Check that the registry of ``decode.registry`` answers; no finding if there is none."""
    try:
        place = run_async(check_registry(plant))
    except StreamadError as error:
        return failure("decode.registry", error)
    return [] if place is None else [ok("decode.registry", f"{place} answers")]


def list_options(plant: Plant) -> list[Finding]:
    """Return the options of the source."""
    scheme = split_url(plant.settings.source.url)[0]
    try:
        known = load("sources", scheme).options_model.model_fields
    except StreamadError as error:
        return failure("source.options", error)
    return [ok("source.options", f"known to {scheme}: {', '.join(known) or 'none'}")]


def check_recordings(plant: Plant) -> list[Finding]:
    """Check that ``model.recordings`` can be read; no finding if there are none."""
    if plant.settings.model.recordings is None:
        return []
    try:
        source = source_for(plant, plant.settings.model.recordings)
        table = read_table(plant.settings, plant.base_dir)
        sample = run_async(read_sample(plant, _at_rest(source), table))
    except StreamadError as error:
        return [
            warning("model.recordings", finding.message, "needed for streamad train only")
            for finding in failure("model.recordings", error)
        ]
    findings = _records("model.recordings", plant, sample)
    if any(finding.outcome == "failed" for finding in findings):
        return findings
    return [
        *findings,
        *(finding for finding in rows_and_samples(sample, "model.recordings: ") if finding.outcome != "ok"),
        *late("model.recordings", plant, sample),
        *displaced("model.recordings", sample),
        *halves("sequences", plant.settings.model.recordings, sample),
        *spread("model.recordings", sample),
    ]


def _records(check: str, plant: Plant, sample: Sample, *, is_live: bool = False) -> list[Finding]:
    counters = sample.counters
    if not counters.records:
        if sample.is_complete and not is_live:
            return [failed(check, "no record in it", f"check {_KEYS.get(check, check)}")]
        when = "in it yet" if sample.is_complete else "came within ten seconds"
        return [warning(check, f"no record {when}", "is the plant running, is the URL right?")]
    unreadable = sum(counters.dead_letters.values()) - counters.dead_letters[BAD_VALUE]
    findings = []
    surprising = {
        name: {reason: count for reason, count in of.items() if reason != "quality"}
        for name, of in counters.bad_values.items()
    }
    if any(surprising.values()):
        first = sample.unreadable.get(BAD_VALUE, "")
        message = f"values that cannot be used: {bad_values_text(surprising)}; {first}"
        findings.append(warning(check, message, MISSING))
    for kind, first in sample.unreadable.items():
        if kind == BAD_VALUE:
            continue
        message = f"{counters.dead_letters[kind]} of {counters.records} records are unreadable: {kind}; {first}"
        advice = "see decode and channels in the config; unreadable records go to the dead letters"
        findings.append((failed if unreadable == counters.records else warning)(check, message, advice))
    if counters.ignored and not counters.samples:
        advice = "check the channels' field (or name), and decode.fields"
        findings.append(failed(check, f"none of {counters.records} records holds a channel of the plant", advice))
    elif counters.without_id and not counters.samples:
        message = f"none of {counters.without_id} samples has a sequence id, and sequences.without_id is skip"
        findings.append(failed(check, message, "check decode.fields.sequence"))
    if sample.table is None:  # else its rows are looked at, too
        findings += _outside(check, sample, plant.settings.sequences.while_)
    left_out = _left_out(counters)
    if not findings:
        first = "" if sample.is_complete else "the first "
        streams = count(len(sample.newest_us), "stream")
        what = f"{first}{counters.records} records, {counters.samples} samples of {streams}"
        findings.append(ok(check, what + left_out))
    elif left_out:
        findings.append(ok(check, f"{counters.records} records{left_out}"))
    return findings


def _outside(check: str, sample: Sample, state: WhileSettings | None) -> list[Finding]:
    """Report samples in no sequence if they are all, words that say nothing, and what came too late."""
    findings, counters = [], sample.counters
    if counters.before_tag == counters.samples > 0:
        message = f"no reading of {TAGS} in the sample: all {counters.samples} samples are in no sequence"
        findings.append(failed(check, message, "write the tag as the messages name it"))
    elif counters.outside == counters.samples > 0:
        words = {name: [word for word in of if word] for name, of in sample.words.items()}
        found = [f"{name} holds {some_of(of)}" if of else f"no message has {name}" for name, of in words.items()]
        message = f"all {counters.samples} samples are in no sequence: {'; '.join(found)}"
        findings.append(failed(check, message, "check sequences.while, decode.fields.begin and their words"))
    elif counters.before_tag:
        message = f"{counters.before_tag} of {counters.samples} samples came before the first reading of {TAGS}"
        findings.append(warning(check, message, "they are in no sequence: is the tag read that late?"))
    elif state is not None and counters.outside > _MANY * counters.samples:
        findings.append(_many_outside(check, sample, state))
    if counters.unbegun_ends:
        message = f"{count(counters.unbegun_ends, 'end')} without a beginning: their samples are in no sequence"
        findings.append(warning(check, message, "check decode.fields.begin, or the sample begins amid a sequence"))
    if counters.late_boundaries:
        message = f"{counters.late_boundaries} states, words or readings of tags came after samples of later times"
        findings.append(warning(check, message, LATER))
    return findings


def _many_outside(check: str, sample: Sample, state: WhileSettings) -> Finding:
    """Warn of many samples whose state is none of ``state``, with the states that were seen there."""
    name, runs, counters = state.tag or state.field or "", WordSet(state.in_), sample.counters
    others = [(word, times) for word, times in sample.words[name].most_common() if word not in runs]
    seen = ", ".join(f"{word or 'nothing'} ({times})" for word, times in others)
    share = percent(counters.outside / counters.samples)
    message = f"{share} of {counters.samples} samples are in no sequence; there {name} holds {seen}"
    words = [*map(str, state.in_), *(word for word, _ in others if word)]
    listed = ", ".join(word if _PLAIN.fullmatch(word) else json.dumps(word, ensure_ascii=False) for word in words)
    key = "field" if state.tag is None else "tag"
    line = f"sequences.while: {{{key}: {name}, in: [{listed}]}}"
    return warning(check, message, f"if states of these belong to batches, write those, too: {line}")


def _left_out(counters: Counters) -> str:
    """Return what was left out as the config says, to be appended to what was read."""
    parts = (
        (counters.ignored, "records without a channel of the plant"),
        (counters.tombstones, "tombstones"),
        (counters.without_id, "samples without a sequence id"),
        (counters.outside, "samples in no sequence"),
    )
    return "".join(f", {n} {what}" for n, what in parts if n)


def _channels(plant: Plant, sample: Sample) -> list[Finding]:
    silent = [
        channel.name for channel, seen in zip(plant.settings.channels, sample.seen.tolist(), strict=True) if not seen
    ]
    if not silent:
        return [ok("channels", f"all {len(sample.seen)} have values")]
    advice = "check their field (or name); a channel without values makes every sequence unscorable"
    return [warning("channels", f"no value of {some_of(silent)} in the sample", advice)]


def _sequences(plant: Plant, sample: Sample) -> list[Finding]:
    findings = [
        *_ends(plant, sample),
        *_order(plant, sample),
        *halves("sequences", plant.settings.source.url, sample),
        *spread("sequences", sample),
        *_bounds(plant, sample),
    ]
    if any(finding.outcome != "ok" for finding in findings) or not sample.sequences:
        return findings
    reasons = Counter(sequence.reason for sequence in sample.sequences)
    ended = ", ".join(f"{count} by {reason}" for reason, count in reasons.most_common())
    return [ok("sequences", f"{count(len(sample.sequences), 'sequence')} ended: {ended}"), *findings]


def _ends(plant: Plant, sample: Sample) -> list[Finding]:
    settings = plant.settings.sequences
    limits_only = _LIMITS - {"end_of_input"} if plant.settings.decode.sequence_from != "message" else _LIMITS
    modes = " or ".join(settings.end)
    advice = _advice(plant, sample)
    if not sample.sequences:
        message = f"no sequence ended ({modes}) in the first {sample.counters.records} records"
        return [warning("sequences", message, advice)]
    reasons = {sequence.reason for sequence in sample.sequences}
    limits = sorted(reasons & _LIMITS - {"end_of_input"})
    raises = " and ".join(f"sequences.{_LIMIT_KEYS.get(each, each)}" for each in limits)
    if reasons <= limits_only:
        advice = f"raise {raises} if they are cut; else: {advice}" if limits else advice
        message = f"no sequence ended by {modes}: only by {', '.join(sorted(reasons))}"
        return [warning("sequences", message, advice)]
    if limits:
        count = sum(sequence.reason in limits for sequence in sample.sequences)
        message = f"{count} of {len(sample.sequences)} sequences ended by {', '.join(limits)}"
        return [warning("sequences", message, f"raise {raises} if they are cut, else check the end modes")]
    return []


def _advice(plant: Plant, sample: Sample) -> str:
    settings, fields = plant.settings.sequences, plant.settings.decode.fields
    reasons = []
    if "marker" in settings.end and not sample.has_markers:
        what = "the end word" if fields is not None and fields.has_end_word else "end: true"
        reasons.append(f"no message has {what} (decode.fields.end)")
    if "change" in settings.end and not sample.has_ids:
        reasons.append("no message names a sequence (decode.fields.sequence)")
    if not reasons:
        reasons.append("the sample may be too short")
    return "; ".join(reasons) + ": choose other end modes (sequences.end) unless that is as it should be"


def _order(plant: Plant, sample: Sample) -> list[Finding]:
    settings, fields = plant.settings.sequences, plant.settings.decode.fields
    too_late = late("sequences", plant, sample)
    findings = [*too_late, *displaced("sequences", sample)]
    if not too_late and fields is not None and fields.is_per_channel and not settings.allowed_lateness:
        message = "one channel per message, and no lateness allowed: a channel behind the others would be dropped"
        advice = "set sequences.allowed_lateness to about two sampling periods of the slowest channel"
        findings.append(warning("sequences", message, advice))
    if settings.gap is not None and settings.gap + settings.allowed_lateness <= sample.longest_chunk_us:
        covers = f"is not longer than what one message covers ({sample.longest_chunk_us / 1e6:g} s)"
        message = f"the gap of {settings.gap / 1e6:g} s {covers}: the wait for the next message would end the sequence"
        findings.append(warning("sequences", message, "raise sequences.gap, or send shorter chunks"))
    return findings


def _bounds(plant: Plant, sample: Sample) -> list[Finding]:
    settings, streams = plant.settings.sequences, len(sample.newest_us)
    findings = []
    if "too_many_streams" not in sample.unreadable and streams > 0.8 * settings.max_streams:
        message = f"{streams} streams, {settings.max_streams} are allowed"
        findings.append(warning("sequences", message, "raise sequences.max_streams"))
    longest = max((sequence.times_us.nbytes + sequence.values.nbytes for sequence in sample.sequences), default=0)
    if longest * streams > settings.max_buffered_bytes:
        message = f"{streams} streams with one sequence open each need {longest * streams / 1e6:.0f} MB"
        advice = "raise sequences.max_buffered_bytes, or sequences will end by memory"
        findings.append(warning("sequences", message, advice))
    return findings


def _windows(plant: Plant, sample: Sample) -> list[Finding]:
    if not sample.sequences:
        return []
    settings, n = plant.settings.window, len(sample.sequences)
    channels = plant.settings.channel_specs
    windows = [judged_window(sequence, plant.settings, channels) for sequence in sample.sequences]
    refused = [window.detail for window in windows if isinstance(window, Unscorable)]
    findings = []
    if refused:
        reason = Counter(detail.partition(":")[0] for detail in refused).most_common(1)[0][0]
        example = next(detail for detail in refused if detail.startswith(reason))
        message = f"{len(refused)} of {n} sequences are unscorable, most of them because: {example}"
        outcome = failed if len(refused) == n else warning
        findings.append(outcome("window", message, "see window and sequences in docs/guide/config.md"))
    lengths = np.array([_points(sequence.times_us, settings) for sequence in sample.sequences])
    spread = f"{lengths.min()} to {lengths.max()} points, median {np.median(lengths):g}"
    longer = int((lengths > settings.length).sum())
    if longer > _MANY * n:
        what = {"truncate": "are cut", "resample": "are squeezed", "reject": "are unscorable"}[settings.longer]
        message = f"{longer} of {n} sequences are longer than window.length {settings.length} and {what} ({spread})"
        findings.append(warning("window", message, "raise window.length, or resample to a longer period"))
    elif 4 * lengths.max() < settings.length:
        message = f"window.length {settings.length} is far more than any sequence has ({spread})"
        findings.append(warning("window", message, "lower window.length: training and scoring take time by length"))
    return findings or [ok("window", f"{spread}; {longer} of {n} longer than window.length {settings.length}")]


def _points(times_us: np.ndarray[tuple[int], np.dtype[np.int64]], settings: WindowSettings) -> int:
    if settings.resample is None:
        return len(times_us)
    return int(times_us[-1] - times_us[0]) // settings.resample.period + 1
