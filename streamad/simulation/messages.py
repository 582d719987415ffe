"""Messages of the simulated plant in streamad's own format: as files with labels, or in the time of a running plant."""

from __future__ import annotations

import csv
import heapq
import io
import itertools
import json
import math
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from operator import itemgetter
from pathlib import Path
from typing import NamedTuple

import numpy as np

from streamad.simulation.faults import SENSORS
from streamad.simulation.recordings import SLOT_US, STAGGER_US, Recording, begin_us, simulate_stream
from streamad.system.files import write_atomically, writing
from streamad.types import from_us

RECORDINGS_NAME = "recordings.jsonl"
LABELS_NAME = "labels.csv"
CHUNK_SAMPLES = 20
LABEL_COLUMNS = ("stream", "sequence", "label", "fault", "fault_channel", "onset", "severity")


def _number(value: float, decimals: int) -> float | None:
    return None if math.isnan(value) else round(float(value), decimals)


def messages_of(recording: Recording, chunk_samples: int = CHUNK_SAMPLES) -> Iterator[tuple[int, str]]:
    """Yield the messages of one recording, each with the time of its last sample in Unix microseconds.

    A message holds up to `chunk_samples` samples; with 1, its values have the names of their channels.
    """
    n = len(recording.times_us)
    rows = [
        [_number(value, sensor.decimals) for value, sensor in zip(row, SENSORS, strict=True)]
        for row in recording.values.tolist()
    ]
    times_us = recording.times_us.tolist()
    for first in range(0, n, chunk_samples):
        last = min(first + chunk_samples, n)
        message: dict[str, object] = {"stream": recording.stream, "sequence": recording.sequence}
        if chunk_samples == 1:
            message["time"] = _seconds(times_us[first])
            message["values"] = {sensor.name: value for sensor, value in zip(SENSORS, rows[first], strict=True)}
        else:
            message["times"] = [_seconds(time_us) for time_us in times_us[first:last]]
            message["values"] = rows[first:last]
        if last == n:
            message["end"] = True
        yield times_us[last - 1], json.dumps(message, separators=(",", ":"), allow_nan=False)


def _seconds(time_us: int) -> float:
    return time_us // 1_000_000 if time_us % 1_000_000 == 0 else time_us / 1e6


def write_recordings(
    recordings: Sequence[Recording], folder: str | os.PathLike[str], *, overwrite: bool = False
) -> tuple[Path, Path]:
    """Write `recordings.jsonl` and `labels.csv` into `folder`, which is created if need be; returns both paths.

    Messages of all streams are in the order in which a broker would get them: by the time of their last sample.
    Raises FileExistsError, before anything is written, if one of the files exists and `overwrite` is False; OutputError
    if they cannot be written.
    """
    where = Path(folder)
    messages, labels = where / RECORDINGS_NAME, where / LABELS_NAME
    for path in (messages, labels):
        if path.exists() and not overwrite:
            raise FileExistsError(f"{path} exists: choose another folder or ask for overwriting")
    with writing(where):
        where.mkdir(parents=True, exist_ok=True)
    lines = sorted(itertools.chain.from_iterable(map(messages_of, recordings)), key=itemgetter(0))
    write_atomically(messages, "".join(f"{line}\n" for _, line in lines).encode())
    write_atomically(labels, labels_csv(recordings, with_header=True).encode())
    return messages, labels


def labels_csv(recordings: Iterable[Recording], *, with_header: bool) -> str:
    """Return the labels of recordings as lines of CSV, with the columns `LABEL_COLUMNS`."""
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    if with_header:
        table.writerow(LABEL_COLUMNS)
    table.writerows(map(_label_row, recordings))
    return text.getvalue()


def _label_row(recording: Recording) -> tuple[object, ...]:
    truth: tuple[object, ...] = (0, "", "", "", "")
    if recording.fault:
        onset_s = "" if recording.onset_us is None else recording.onset_us / 1e6
        truth = (1, recording.fault, recording.fault_channel or "", onset_s, f"{recording.severity:.4g}")
    return recording.stream, recording.sequence, *truth


@dataclass(frozen=True, slots=True)
class PlantTime:
    """Time of the messages: it begins at ``start_us`` and runs ``shrink`` times as fast as the simulation."""

    start_us: int
    shrink: float = 1.0

    def of(self, recording: Recording, origin_us: int) -> Recording:
        """Return ``recording`` in this time; ``origin_us`` of the simulation is the start.

        Its id begins with the start: like a real plant, one that is started again repeats no id.
        """
        shrink = Fraction(self.shrink)

        def shifted(time_us: int) -> int:
            return self.start_us + int((time_us - origin_us) / shrink)

        return replace(
            recording,
            sequence=f"{from_us(self.start_us):%Y%m%dT%H%M%S}-{recording.sequence}",
            start_us=shifted(recording.start_us),
            times_us=np.array([shifted(time_us) for time_us in recording.times_us.tolist()], dtype=np.int64),
            onset_us=None if recording.onset_us is None else shifted(recording.onset_us),
        )


class PlantMessage(NamedTuple):
    """One message in streamad's JSON format: its last sample's time (Unix microseconds), its stream, its text.

    ``batch`` is the batch of which this is the last message, else None; ``n_samples`` counts those in this message.
    """

    time_us: int
    stream: str
    text: str
    n_samples: int
    batch: Recording | None = None


def plant_messages(
    time: PlantTime | None,
    *,
    seed: int = 0,
    first_index: int = 0,
    n_batches: int | None = None,
    n_streams: int = 2,
    fault_share: float = 0.0,
    chunk_samples: int = 1,
) -> Iterator[PlantMessage]:
    """Yield the messages of all streams by the time of their last sample; `n_batches` None: without an end.

    `time` None: that of the simulation, with the ids of its recordings; each start repeats them.
    Deterministic. Each batch is simulated when it begins (about 25 ms), so little memory is needed. Raises
    ValueError for counts below their least, or a share outside 0 to 1.
    """
    if first_index < 0 or n_streams < 1 or chunk_samples < 1 or not 0 <= fault_share <= 1:
        raise ValueError("first_index must be 0 or more, streams and chunk 1 or more, the share of faults 0 to 1")
    origin_us = begin_us(first_index, n_streams)
    streams = [
        _messages(
            simulate_stream(
                stream,
                n_batches,
                seed=seed,
                first_index=first_index,
                n_streams=n_streams,
                fault_share=fault_share,
            ),
            time,
            origin_us,
            chunk_samples,
        )
        for stream in range(n_streams)
    ]
    return heapq.merge(*streams, key=lambda message: message.time_us)


def _messages(
    recordings: Iterator[Recording], time: PlantTime | None, origin_us: int, chunk_samples: int
) -> Iterator[PlantMessage]:
    for recording in recordings:
        batch = recording if time is None else time.of(recording, origin_us)
        left = len(batch.times_us)
        for time_us, text in messages_of(batch, chunk_samples):
            n_samples = min(chunk_samples, left)
            left -= n_samples
            yield PlantMessage(time_us, batch.stream, text, n_samples, None if left else batch)


def most_batches(span_us: int, n_streams: int) -> int:
    """Return how many batches surely end within ``span_us`` of the simulation, at least one of each stream."""
    return n_streams * max(1, (span_us - (n_streams - 1) * STAGGER_US) // SLOT_US)


def longest_us(n_batches: int, n_streams: int) -> int:
    """Return an upper bound in microseconds of the simulation for the end of `n_batches`."""
    return -(-n_batches // n_streams) * SLOT_US + (n_streams - 1) * STAGGER_US
