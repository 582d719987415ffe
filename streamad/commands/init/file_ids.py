"""Finds out whether every file of a sample is one sequence, so that the file's name can be its id."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

import numpy as np

from streamad.commands.init.layout import Layout
from streamad.commands.init.records import RawSample, blocks_of, read_raw
from streamad.errors import SourceError
from streamad.ingest.decode import Decoder
from streamad.plugins import split_url
from streamad.settings.plant_yaml import Settings
from streamad.types import IntArray, Record

_LONGEST_STEP = 5  # in usual steps: a longer one is a pause
_HELD = (
    "the newest file's sequence waits until the next file is there; if files appear whole, set "
    "source.options.at_end: judge"
)


@dataclass(frozen=True, slots=True)
class _Course:
    """The samples of one file: sorted times int64 [n], stream, and the channels that have values."""

    times_us: IntArray
    stream: str
    channels: frozenset[int]


def read_file_ids(url: str, home: Path, raw: RawSample, layout: Layout, settings: Settings) -> RawSample | None:
    """Return the sample read with files' names as ids, noted in ``layout``; None if that does not fit.

    It fits if nothing else names a sequence, and every file is one continuous course of one stream with pauses between.
    ``raw`` was read with separate files and is decoded with ``settings``.
    """
    if split_url(url)[0] != "file" or raw.native or len(raw.records) < 2 or layout.has_ids:
        return None
    courses = [_course(records, raw.decoder(settings)) for records in raw.records.values()]
    known = [course for course in courses if course is not None]
    if len(known) < len(courses) or not _are_sequences(known, counts=layout.time.counts):
        return None
    try:
        joined = read_raw(f"{url}{'&' if '?' in url else '?'}files=joined", home, ids_from_files=True)
    except SourceError:
        return None  # two files of equal name
    layout.ids_from_files = True
    why = f"each of the {len(known)} files was taken for one sequence, whose id is the file's name"
    layout.notes.append(f"{why} (decode.sequence_from: file)")
    if not layout.is_relative and not _follow(joined, settings):
        return read_raw(url, home, ids_from_files=True)
    layout.notes.append(_HELD)
    return replace(joined, options={**joined.options, "files": "joined"})


def _course(records: Sequence[Record], decoder: Decoder) -> _Course | None:
    """Return the samples of a file; None if it has several streams or fewer than two times."""
    blocks = list(blocks_of(records, decoder))
    if len({block.stream for block in blocks}) != 1:
        return None
    times_us = np.unique(np.concatenate([block.times_us for block in blocks]))
    seen = np.any([np.isfinite(block.values).any(axis=0) for block in blocks], axis=0)
    channels = frozenset(np.flatnonzero(seen).tolist())
    return _Course(times_us, blocks[0].stream, channels) if len(times_us) > 1 else None


def _are_sequences(courses: Sequence[_Course], *, counts: bool) -> bool:
    """Return whether files are whole sequences: no pause inside, pauses between, and no two files of other channels."""
    steps_us = np.concatenate([np.diff(course.times_us) for course in courses])
    longest_us = _LONGEST_STEP * int(np.median(steps_us))
    if steps_us.max() > longest_us or len({course.channels for course in courses}) > 1:
        return False
    for stream in {course.stream for course in courses}:
        spans = sorted((int(c.times_us[0]), int(c.times_us[-1])) for c in courses if c.stream == stream)
        if not counts and any(after[0] - before[1] <= longest_us for before, after in pairwise(spans)):
            return False
    return not counts or _restart(courses)


def _restart(courses: Sequence[_Course]) -> bool:
    """Return whether times without a date begin anew in every file."""
    last_first_us = max(int(course.times_us[0]) for course in courses)
    return last_first_us < min(int(course.times_us[-1]) for course in courses)


def _follow(joined: RawSample, settings: Settings) -> bool:
    """Return whether each stream's files come in the order of their times."""
    newest_us: dict[str, int] = {}
    for block in blocks_of(
        (record for records in joined.records.values() for record in records), joined.decoder(settings)
    ):
        if int(block.times_us[0]) < newest_us.get(block.stream, 0):
            return False
        newest_us[block.stream] = int(block.times_us[-1])
    return True
