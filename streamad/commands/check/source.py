"""Checks that the source's messages become samples, sequences and windows."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta

import numpy as np

from streamad.commands.check.findings import Finding, Outcome, failed, failure, ok, warning
from streamad.commands.check.models import check_routes
from streamad.commands.check.sample import Sample, is_sorted, read_sample
from streamad.commands.shared.console import count, run_async
from streamad.commands.shared.figures.losses import LENGTHS_ADVICE, Losses, wide_lengths
from streamad.commands.shared.figures.report import bad_values_text
from streamad.commands.shared.plants import name_config
from streamad.commands.shared.topics import merged_errors, topics_of
from streamad.errors import StreamadError, some_of
from streamad.ingest.bad_values import BAD_VALUE
from streamad.ingest.windowing import Unscorable, to_window
from streamad.plant import Plant
from streamad.plugins import load, split_url
from streamad.ports import RangedSource, Source, TransactionalSource
from streamad.runtime.wiring import source_for
from streamad.settings.places import sink_urls
from streamad.settings.plant_yaml import SequenceSettings, WindowSettings

_LIMITS = frozenset({"max_duration", "max_samples", "memory", "end_of_input"})
_KEYS = {"source": "source.url"}  # checks that are not named as their key
_MANY = 0.2  # a larger share is no accident


def check_source(plant: Plant) -> list[Finding]:
    """Read the first records of the source and check samples, sequences, windows and models."""
    try:
        source = source_for(plant)
        sample = run_async(read_sample(plant, _at_rest(source)))
    except StreamadError as error:
        return failure("source", error)
    findings = _records("source", sample, is_live=isinstance(source, TransactionalSource))
    if any(finding.outcome == "failed" for finding in findings):
        return findings
    findings += [*_channels(plant, sample), *_sequences(plant, sample), *_windows(plant, sample)]
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
        sample = run_async(read_sample(plant, _at_rest(source)))
    except StreamadError as error:
        return [
            warning("model.recordings", finding.message, "needed for streamad train only")
            for finding in failure("model.recordings", error)
        ]
    findings = _records("model.recordings", sample)
    if any(finding.outcome == "failed" for finding in findings):
        return findings
    return [
        *findings,
        *_late("model.recordings", plant, sample),
        *_halves("sequences", sample),
        *_spread("model.recordings", sample),
    ]


def _records(check: str, sample: Sample, *, is_live: bool = False) -> list[Finding]:
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
        findings.append(warning(check, message, "name what means missing in decode.missing or channels[].missing"))
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
    if not findings:
        first = "" if sample.is_complete else "the first "
        streams = count(len(sample.newest_us), "stream")
        what = f"{first}{counters.records} records, {counters.samples} samples of {streams}"
        ignored = f", {counters.ignored} records without a channel of the plant" if counters.ignored else ""
        left_out = f", {counters.without_id} samples without a sequence id" if counters.without_id else ""
        findings.append(ok(check, what + ignored + left_out))
    return findings


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
        *_halves("sequences", sample),
        *_spread("sequences", sample),
        *_bounds(plant, sample),
    ]
    if any(finding.outcome != "ok" for finding in findings) or not sample.sequences:
        return findings
    reasons = Counter(sequence.reason for sequence in sample.sequences)
    ended = ", ".join(f"{count} by {reason}" for reason, count in reasons.most_common())
    return [ok("sequences", f"{count(len(sample.sequences), 'sequence')} ended: {ended}")]


def _ends(plant: Plant, sample: Sample) -> list[Finding]:
    settings = plant.settings.sequences
    limits_only = _LIMITS - {"end_of_input"} if plant.settings.decode.sequence_from == "file" else _LIMITS
    modes = " or ".join(settings.end)
    advice = _advice(settings, sample)
    if not sample.sequences:
        message = f"no sequence ended ({modes}) in the first {sample.counters.records} records"
        return [warning("sequences", message, advice)]
    reasons = {sequence.reason for sequence in sample.sequences}
    if reasons <= limits_only:
        message = f"no sequence ended by {modes}: only by {', '.join(sorted(reasons))}"
        return [warning("sequences", message, advice)]
    limits = sorted(reasons & _LIMITS - {"end_of_input"})
    if limits:
        count = sum(sequence.reason in limits for sequence in sample.sequences)
        message = f"{count} of {len(sample.sequences)} sequences ended by {', '.join(limits)}"
        return [warning("sequences", message, "raise the limit if they are whole, else check the end modes")]
    return []


def _halves(check: str, sample: Sample) -> list[Finding]:
    """Warn of sequences that end with a file and come again: a batch over midnight in two files."""
    seen = Counter((one.stream, one.sequence) for one in sample.sequences)
    halves = {(one.stream, one.sequence) for one in sample.sequences if one.reason == "end_of_input"}
    twice = sorted(key for key in halves if seen[key] > 1)
    if not twice:
        return []
    stream, sequence = twice[0]
    what = "1 sequence lies" if len(twice) == 1 else f"{len(twice)} sequences lie"
    message = f"{what} in several files, and each part is judged by itself: {sequence} of {stream}"
    return [warning(check, message, "if one file continues the other, set source.options.files: joined")]


def _advice(settings: SequenceSettings, sample: Sample) -> str:
    reasons = []
    if "marker" in settings.end and not sample.has_markers:
        reasons.append("no message has end: true (decode.fields.end)")
    if "change" in settings.end and not sample.has_ids:
        reasons.append("no message names a sequence (decode.fields.sequence)")
    if not reasons:
        reasons.append("the sample may be too short")
    return "; ".join(reasons) + ": choose other end modes (sequences.end) unless that is as it should be"


def _for_late_samples(plant: Plant, sample: Sample) -> str:
    if not sample.lateness_us:
        zone = plant.settings.decode.timezone
        local = f"; or the clocks were set back and decode.timezone ({zone}) is not the plant's" if zone else ""
        return f"their sequence had ended, times are in order: several at once need an end without change{local}"
    lateness_s = sample.lateness_us / 1e6
    late = f"{lateness_s:g} s" if lateness_s < 100 else f"{timedelta(seconds=round(lateness_s))} (h:mm:ss)"
    behind = f"some lie {late} behind the newest of their stream"
    sort = "" if is_sorted(plant) else ", or sort recordings by time (source.options.sort)"
    return f"{behind}: raise sequences.allowed_lateness{sort}"


def _late(check: str, plant: Plant, sample: Sample) -> list[Finding]:
    counters = sample.counters
    if not counters.late_samples:
        return []
    message = f"{counters.late_samples} of {counters.samples} samples came too late"
    advice = _for_late_samples(plant, sample)
    if Losses.of(counters).are_many:
        message = f"{message}, and are lost"
        advice = f"{advice}; or a field that tells streams apart is missing (decode.fields.stream)"
    return [warning(check, message, advice)]


def _spread(check: str, sample: Sample) -> list[Finding]:
    spread = wide_lengths([sequence.n_samples for sequence in sample.sequences])
    return [] if spread is None else [warning(check, spread, LENGTHS_ADVICE)]


def _order(plant: Plant, sample: Sample) -> list[Finding]:
    settings, fields = plant.settings.sequences, plant.settings.decode.fields
    findings = _late("sequences", plant, sample)
    if not findings and fields is not None and fields.channel is not None and not settings.allowed_lateness:
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
    windows = [to_window(sequence, settings, plant.settings.channel_specs) for sequence in sample.sequences]
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
