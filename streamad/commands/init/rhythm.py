"""Measures a sample with the real decoder and assembler: order, pauses, sequences and a window length for them."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass

import numpy as np

from streamad.commands.init.durations import round_up
from streamad.commands.init.facts.rows import LONGEST_STEP
from streamad.commands.init.reading.kept import blocks_of
from streamad.commands.init.reading.sample import RawSample
from streamad.commands.shared.figures.losses import Losses
from streamad.commands.shared.recurring import Recurring
from streamad.ingest.intake import Intake
from streamad.messages import LateRecord
from streamad.settings.plant_yaml import Settings
from streamad.system.clock import SystemClock
from streamad.telemetry.metrics import Counters
from streamad.types import FinishedSequence, IntArray, Record, RecordBatch, SampleBlock

MAX_WINDOW = 512


@dataclass(frozen=True, slots=True)
class Pauses:
    """Times of the samples, stream by stream: usual distance, lateness, and long pauses."""

    period_us: int
    lateness_us: int
    gap_us: int | None
    n_pauses: int
    longest_step_us: int
    longest_pause_us: int


def find_pauses(
    sample: RawSample, settings: Settings, watched: Callable[[Collection[Record]], Iterable[Record]] = iter
) -> Pauses:
    """Read the sample's times; ``gap_us`` separates the usual distances from the pauses (None: no pauses).

    ``watched`` yields the records of a partition.
    """
    channels: dict[tuple[str, str, int], list[IntArray]] | None = None
    if settings.decode.fields is not None and settings.decode.fields.is_per_channel:
        channels = {}
    times = _times_by_stream(sample, settings, watched, channels)
    lateness_us = max((_lateness_us(found) for found in times.values()), default=0)
    all_us = _distances_us(times.values())
    if channels:
        all_us = _less_bursts(all_us, channels.values())
    if not len(all_us):
        return Pauses(0, lateness_us, None, 0, 0, 0)
    period_us = int(np.median(all_us))
    gap_us, n_pauses = _split(all_us, period_us)
    usual = all_us[: len(all_us) - n_pauses]
    return Pauses(
        period_us, lateness_us, gap_us, n_pauses, int(usual[-1]) if len(usual) else period_us, int(all_us[-1])
    )


def _less_bursts(distances_us: IntArray, channels: Iterable[list[IntArray]]) -> IntArray:
    """Return the distances without those within a burst: readings of all channels that come nearly together.

    ``channels`` are the times of each channel, of which the quickest has a usual distance. If what is left is not that
    distance, there are no bursts.
    """
    periods = [float(np.median(own)) for times in channels if len(own := _distances_us([times]))]
    if not periods:
        return distances_us
    left = distances_us[distances_us >= min(periods) / 4]
    is_burst = len(left) and min(periods) / 2 <= np.median(left) <= 2 * min(periods)
    return left if is_burst else distances_us


def _distances_us(times: Iterable[list[IntArray]]) -> IntArray:
    """Return the distances of successive samples of each stream, sorted."""
    distances = [np.diff(np.unique(np.concatenate(found))).astype(np.int64) for found in times]
    return np.sort(np.concatenate(distances)) if distances else np.empty(0, dtype=np.int64)


def _times_by_stream(
    sample: RawSample,
    settings: Settings,
    watched: Callable[[Collection[Record]], Iterable[Record]],
    channels: dict[tuple[str, str, int], list[IntArray]] | None,
) -> dict[tuple[str, str], list[IntArray]]:
    """Return the times of each record by partition and stream; put those of each channel into ``channels``."""
    times: dict[tuple[str, str], list[IntArray]] = {}
    newest_us: dict[tuple[str, str], int] = {}
    for partition, records in sample.records.items():
        for block in blocks_of(watched(records), sample.decoder(settings)):
            of_stream = times.setdefault((partition, block.stream), [])
            of_stream.append(_single_readings(block, newest_us.get((partition, block.stream), 0)))
            if channels is not None and not np.isnan(block.values[0]).all():
                place = (partition, block.stream, int(np.nanargmax(block.values[0])))
                channels.setdefault(place, []).append(of_stream[-1])
            last_us = int(of_stream[-1][-1])
            newest_us[partition, block.stream] = max(newest_us.get((partition, block.stream), 0), last_us)
    return times


def _single_readings(block: SampleBlock, newest_us: int) -> IntArray:
    """Return the times of a block; of a local time that comes twice, the reading that goes on from the newest time.

    As the assembler does, but a sample that is late by less than half of the hour is taken to be late.
    """
    if block.later_us is None:
        return block.times_us
    found = []
    for first_us, later_us in zip(block.times_us.tolist(), block.later_us.tolist(), strict=True):
        found.append(later_us if newest_us - first_us > (later_us - first_us) / 2 else first_us)
        newest_us = max(newest_us, found[-1])
    return np.sort(np.array(found, dtype=np.int64))


def _lateness_us(blocks: list[IntArray]) -> int:
    firsts = np.array([int(times[0]) for times in blocks])
    newest = np.maximum.accumulate([int(times[-1]) for times in blocks])
    return max(0, int((newest[:-1] - firsts[1:]).max(initial=0)))


def _split(sorted_us: IntArray, period_us: int) -> tuple[int | None, int]:
    """Return a duration between usual distances and pauses (at the widest jump), and the number of pauses."""
    far = int(np.searchsorted(sorted_us, LONGEST_STEP * period_us, side="right"))
    if far == len(sorted_us) or far == 0:
        return None, 0
    candidates = sorted_us[far - 1 :].astype(np.float64)
    jump = int(np.argmax(candidates[1:] / np.maximum(candidates[:-1], 1)))
    below, above = candidates[jump], candidates[jump + 1]
    return round_up(min(math.sqrt(below * above), above / 1.5)), len(candidates) - jump - 1


@dataclass(frozen=True, slots=True)
class Rhythm:
    """Lengths and periods of the sample's sequences, and a window length for them."""

    n_sequences: int
    n_streams: int
    shortest: int
    median: int
    longest: int
    longest_us: int
    period_us: int
    resample_us: int | None
    why_resample: str
    window: int
    points: int
    """Points of the longest sequence, on the grid if there is one."""
    usual_points: int
    usual_us: int
    """The medians of the sequences' points and durations."""

    @property
    def spread(self) -> str:
        """Return the range of the lengths, for people."""
        if self.shortest == self.longest:
            return f"{self.longest} samples each"
        return f"{self.shortest} to {self.longest} samples"


def measure(sample: RawSample, settings: Settings) -> tuple[Rhythm | None, Losses, Recurring]:
    """Cut the sample's sequences and measure them, None if there is none; also return what is lost, and ids again."""
    counters, recurring = Counters(), Recurring()
    sequences = _sequences(sample, settings, counters, recurring)
    return _rhythm(sequences, settings) if sequences else None, Losses.of(counters), recurring


def _rhythm(sequences: list[FinishedSequence], settings: Settings) -> Rhythm:
    lengths = np.array([sequence.n_samples for sequence in sequences])
    spans_us = np.array([sequence.end_us - sequence.start_us for sequence in sequences])
    steps_us = np.concatenate([np.diff(sequence.times_us) for sequence in sequences])
    period_us = int(np.median(steps_us)) if len(steps_us) else 0
    resample_us, why = _grid(sequences, steps_us, period_us, settings.window.max_missing)
    points = lengths if resample_us is None else spans_us // resample_us + 1
    return Rhythm(
        n_sequences=len(sequences),
        n_streams=len({sequence.stream for sequence in sequences}),
        shortest=int(lengths.min()),
        median=int(np.median(lengths)),
        longest=int(lengths.max()),
        longest_us=int(spans_us.max()),
        period_us=period_us,
        resample_us=resample_us,
        why_resample=why,
        window=_window(points),
        points=int(points.max()),
        usual_points=int(np.median(points)),
        usual_us=int(np.median(spans_us)),
    )


def _sequences(
    sample: RawSample, settings: Settings, counters: Counters, recurring: Recurring
) -> list[FinishedSequence]:
    decoder, now_us = sample.decoder(settings), SystemClock().now_us()
    ended: list[FinishedSequence] = []
    still_open: list[FinishedSequence] = []
    for partition, records in sample.records.items():
        intake = Intake(partition, settings, decoder, counters)
        batch = RecordBatch(partition, tuple(records), records[-1].offset + 1)
        for closed in intake.take(batch, now_us):
            recurring.add(partition, closed)
            ended.append(closed.sequence)
        for output in intake.take_aside():
            if isinstance(output.message, LateRecord):
                recurring.note_late(partition, output.message, is_relative=settings.decode.counts_from_start)
        still_open += [closed.sequence for closed in intake.end_of_input(now_us)]
    found = ended + still_open if sample.is_complete or not ended else ended
    return [sequence for sequence in found if not sequence.is_late]


def _grid(
    sequences: list[FinishedSequence], steps_us: IntArray, period_us: int, max_missing: float
) -> tuple[int | None, str]:
    """Return the period of the grid that the sequences need, and why; None if samples are regular."""
    if len(steps_us) < 2 or period_us == 0:
        return None, ""
    seen = [np.isfinite(sequence.values) for sequence in sequences]
    shares = np.array([present.mean(axis=0) for present in seen])
    usual = np.median(shares, axis=0)
    if (usual[usual > 0] < 1 - max_missing).any():
        fastest = int(np.argmax(usual))
        times = [one.times_us[present[:, fastest]] for one, present in zip(sequences, seen, strict=True)]
        together = np.concatenate([np.diff(times_us) for times_us in times])
        return (_tidy(float(np.median(together))) if len(together) else None), "channels come at different times"
    low, high = np.quantile(steps_us, [0.1, 0.9])
    if high > 1.5 * low:
        return _tidy(period_us), "samples come at irregular intervals"
    return None, ""


def _tidy(duration_us: float) -> int:
    """Round to two significant digits: 100 ms, not 99.873 ms."""
    unit = 10 ** max(0, math.floor(math.log10(max(duration_us, 1))) - 1)
    return max(1, int(round(duration_us / unit) * unit))


def _window(points: IntArray) -> int:
    """Return the common length, else the longest (95 % quantile if they differ widely) up to a multiple of 8."""
    longest = float(points.max())
    if longest == points.min():
        return min(MAX_WINDOW, max(2, int(longest)))
    if longest > 2 * float(np.median(points)):
        longest = max(float(np.quantile(points, 0.95)), 2.0)
    return min(MAX_WINDOW, max(8, math.ceil(longest / 8) * 8))
