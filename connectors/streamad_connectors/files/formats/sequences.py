"""Turns recorded sequences (npz) into records of streamad's own chunked msgpack format.

Shapes: C channels, n samples.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec
import numpy as np

from streamad.errors import SourceError
from streamad.types import ChannelSpec, FloatArray, Record
from streamad_connectors.files.formats.options import FileOptions
from streamad_connectors.files.formats.reading import ReadRecord, shrunk_error

CHUNK_SAMPLES = 256
_CHUNK_VALUES = 65_536  # keeps a chunk of very many channels well below decode.max_message_bytes


@dataclass(frozen=True, slots=True, eq=False)
class Recorded:
    """One whole sequence: ``values`` float32 [C, n] in plant channel order, NaN = missing; n is at least 1."""

    sequence: str
    values: FloatArray


def stream_name(path: Path, options: FileOptions) -> str:
    """Return the stream option, else the file's name without endings, its other characters replaced."""
    if options.stream is not None:
        return options.stream
    stem = path.name.removesuffix(".gz")
    return re.sub(r"[^A-Za-z0-9._-]", "_", Path(stem).stem).lstrip(".")[:64] or "recording"


def channel_order(names: Sequence[str] | None, n_channels: int, plant: Sequence[ChannelSpec], path: Path) -> list[int]:
    """Return the file's channel index for each of the plant's channels.

    If the names are the same, they are matched; otherwise the numbers must agree, and the file's order is kept.
    """
    wanted = [channel.name for channel in plant]
    if names is not None and len(names) == len(set(names)) and set(names) == set(wanted):
        return [list(names).index(name) for name in wanted]
    if wanted and len(wanted) != n_channels:
        in_file = f"{n_channels} channels" + (f" ({_listed(names)})" if names else "")
        raise SourceError(
            f"{path}: has {in_file}, the plant has {len(wanted)} ({_listed(wanted)}); make the config's channels fit"
        )
    return list(range(n_channels))


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(names[:8])
    return shown + (", ..." if len(names) > 8 else "")


def native_records(
    sequences: Iterable[Recorded], offset: int, path: Path, options: FileOptions
) -> Iterator[ReadRecord]:
    """Yield the chunks of ``sequences`` from chunk number ``offset`` on.

    The times are synthetic: samples ``period`` apart, one sequence after the other with ``pause`` between. A record's
    time is that of its last sample.
    """
    encoder = msgspec.msgpack.Encoder()
    stream = stream_name(path, options)
    period_us = options.period
    pause_us = 10 * period_us if options.pause is None else options.pause
    start_us = round(options.start.timestamp() * 1e6)
    number = 0
    for recorded in sequences:
        n_channels, n = recorded.values.shape
        step = min(CHUNK_SAMPLES, max(1, _CHUNK_VALUES // n_channels))
        for first in range(0, n, step):
            last = min(first + step, n)
            if number >= offset:
                times_us = start_us + np.arange(first, last, dtype=np.int64) * period_us
                message: dict[str, object] = {
                    "stream": stream,
                    "sequence": recorded.sequence,
                    "times": (times_us / 1e6).tolist(),
                    "values": recorded.values[:, first:last].T.tolist(),
                }
                if last == n:
                    message["end"] = True
                record = Record(number, encoder.encode(message), timestamp_us=int(times_us[-1]), native=True)
                yield record, number + 1
            number += 1
        start_us += n * period_us + pause_us
    if number < offset:
        raise shrunk_error(path, offset, number, "chunks (with these options)")


def merge_labels(found: Iterable[tuple[Path, Mapping[str, str]]]) -> dict[str, str]:
    """Join the labels of several files. Raises SourceError if two of them have the same sequence."""
    merged: dict[str, str] = {}
    for path, labels in found:
        repeated = merged.keys() & labels.keys()
        if repeated:
            raise SourceError(
                f"{path}: sequence {min(repeated)!r} was in an earlier file, too, so labels would be mixed up; "
                "read one file at a time"
            )
        merged.update(labels)
    return merged
