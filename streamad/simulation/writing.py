"""Writes recordings as streamad's own chunked messages, and the truth about them as a table beside."""

from __future__ import annotations

__all__ = [
    "CHUNK_SAMPLES",
    "LABELS_NAME",
    "LABEL_COLUMNS",
    "RECORDINGS_NAME",
    "label_row",
    "messages_of",
    "write_recordings",
]

import csv
import json
import math
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TextIO

from streamad.simulation.recordings import Recording
from streamad.simulation.sensors import SENSORS

RECORDINGS_NAME = "recordings.jsonl"
LABELS_NAME = "labels.csv"
CHUNK_SAMPLES = 20
LABEL_COLUMNS = ("stream", "sequence", "label", "fault", "fault_channel", "onset", "severity")


def _number(value: float, decimals: int) -> float | None:
    return None if math.isnan(value) else round(float(value), decimals)


def messages_of(recording: Recording, chunk_samples: int = CHUNK_SAMPLES) -> Iterator[tuple[int, str]]:
    """Yield the messages of one recording, each with the time of its last sample in Unix microseconds.

    A message holds up to `chunk_samples` samples; with 1, its values go by the names of their channels.
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


def _write_messages(out: TextIO, recordings: Sequence[Recording]) -> None:
    """All chunks in the order in which a broker would have got them: by the time of their last sample."""
    chunks = [chunk for recording in recordings for chunk in messages_of(recording)]
    chunks.sort(key=lambda chunk: chunk[0])
    out.writelines(line + "\n" for _, line in chunks)


def _write_labels(out: TextIO, recordings: Sequence[Recording]) -> None:
    table = csv.writer(out, lineterminator="\n")
    table.writerow(LABEL_COLUMNS)
    table.writerows(label_row(recording) for recording in recordings)


def label_row(recording: Recording) -> tuple[object, ...]:
    """Return the truth about one recording, in the order of `LABEL_COLUMNS`."""
    truth: tuple[object, ...] = (0, "", "", "", "")
    if recording.fault:
        onset_s = "" if recording.onset_us is None else recording.onset_us / 1e6
        truth = (1, recording.fault, recording.fault_channel or "", onset_s, f"{recording.severity:.4g}")
    return recording.stream, recording.sequence, *truth


def _replace(path: Path, write: Callable[[TextIO], None]) -> None:
    """Write beside `path`, force it to disk, then rename: a reader never sees half a file."""
    beside = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with beside.open("w", encoding="utf-8", newline="") as out:
            write(out)
            out.flush()
            os.fsync(out.fileno())
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)


def write_recordings(
    recordings: Sequence[Recording], folder: str | os.PathLike[str], *, overwrite: bool = False
) -> tuple[Path, Path]:
    """Write `recordings.jsonl` and `labels.csv` into `folder`, which is created if need be; returns both paths.

    Chunks of all streams are interleaved by the time of their last sample. Raises FileExistsError, before anything is
    written, when one of the files exists and `overwrite` is False; OSError when the folder cannot be written.
    """
    where = Path(folder)
    messages, labels = where / RECORDINGS_NAME, where / LABELS_NAME
    for path in (messages, labels):
        if path.exists() and not overwrite:
            raise FileExistsError(f"{path} exists: choose another folder or ask for overwriting")
    where.mkdir(parents=True, exist_ok=True)
    _replace(messages, lambda out: _write_messages(out, recordings))
    _replace(labels, lambda out: _write_labels(out, recordings))
    return messages, labels
