"""Checks that sequences are cut right and lose nothing: halves, fragments, ids that come again, late samples."""

from __future__ import annotations

from datetime import timedelta

from streamad.commands.check.findings import Finding, failed, ok, warning
from streamad.commands.check.sample import Sample, is_sorted
from streamad.commands.shared.console import count
from streamad.commands.shared.figures.lengths import odd_lengths
from streamad.commands.shared.figures.losses import DISPLACED, FINER_TIMES, Losses
from streamad.plant import Plant
from streamad.plugins import gives_files

_FEWEST_TOGETHER = 5
"""Samples of an id in a row; with fewer, several ids go on at once."""


def halves(check: str, url: str, sample: Sample) -> list[Finding]:
    """Warn of sequences that end with a file of ``url`` and come again in another: a batch over midnight."""
    if not gives_files(url):
        return []
    files: dict[tuple[str, str], set[str]] = {}
    for partition, stream, key in sample.places:
        if key is not None:
            files.setdefault((stream, key), set()).add(partition)
    ends = {"end_of_input", "table"}
    cut = {(one.stream, one.sequence) for one in sample.sequences if one.reason in ends}
    twice = sorted(each for each in cut if len(files.get(each, ())) > 1)
    if not twice:
        return []
    stream, sequence = twice[0]
    what = "1 sequence lies" if len(twice) == 1 else f"{len(twice)} sequences lie"
    message = f"{what} in several files, and each part is judged by itself: {sequence} of {stream}"
    return [warning(check, message, "if one file continues the other, set source.options.files: joined")]


def split(check: str, sample: Sample) -> list[Finding]:
    """Say of the partitions of a topic that streams lie in several of them, or may do so because there are no keys."""
    several = {stream: list(homes) for stream, homes in sample.homes.items() if len(homes) > 1}
    is_keyless = sample.n_without_key > 0
    if len(sample.partitions) < 2 or not (several or is_keyless):
        return []
    n, n_streams = len(several), len(sample.homes)
    keyless = f"{sample.n_without_key} of {sample.counters.records} messages have no key"
    advice = "let the producer send the stream as message key, such as producer.send(TOPIC, key=STREAM, value=MESSAGE)"
    if not several:
        return [warning(check, f"{keyless}: a stream's messages may come to lie in several partitions", advice)]
    stream, homes = next(iter(several.items()))
    message = (
        f"{n} of {count(n_streams, 'stream')} {'lies' if n == 1 else 'lie'} in several partitions, such as {stream}"
    )
    message = f"{message} in {', '.join(homes)}: {'its' if n == 1 else 'their'} sequences are unscorable"
    if is_keyless:
        message = f"{message}; {keyless}"
    else:
        advice = f"the key is not the stream (or partitions were added): {advice}"
    return [(failed if n == n_streams else warning)(check, message, advice)]


def late(check: str, plant: Plant, sample: Sample) -> list[Finding]:
    """Warn of samples that came too late, as where an id comes again."""
    counters = sample.counters
    if not counters.late_samples:
        return []
    message = f"{counters.late_samples} of {counters.samples} samples came too late"
    is_much = Losses.of(counters).is_much(counters.late_samples)
    if is_much:
        message = f"{message}, and are lost"
    if sample.n_restarts and "restart" not in plant.settings.sequences.end:
        advice = f"relative times begin anew {count(sample.n_restarts, 'time')}: write sequences.end: [restart]"
        return [warning(check, message, advice)]
    found = sample.recurring
    if found.pause_us is not None and counters.samples >= _FEWEST_TOGETHER * sample.n_stretches:
        return [warning(check, f"{message}: {found.text}", found.advice)]
    advice = _for_late_samples(plant, sample)
    if is_much:
        advice = f"{advice}; or a field that tells streams apart is missing (decode.fields.stream)"
    return [warning(check, message, advice)]


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


def displaced(check: str, sample: Sample) -> list[Finding]:
    """Say how many samples replaced another value; it is a warning if they are many."""
    losses = Losses.of(sample.counters)
    if not losses.n_displaced:
        return []
    message = f"{losses.n_displaced} of {losses.n_all} samples are {DISPLACED}"
    if losses.is_much(losses.n_displaced):
        return [warning(check, f"{message}, and are lost", FINER_TIMES)]
    return [ok(check, message)]


def spread(check: str, sample: Sample) -> list[Finding]:
    """Warn of sequences that are far shorter than the usual one, and of lengths that differ widely."""
    odd = odd_lengths(sample.sequences, sample.places)
    return [] if odd is None else [warning(check, *odd)]
