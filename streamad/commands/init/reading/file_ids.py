"""Finds out whether every file of a sample is one sequence, so that the file's name can be its id."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Literal

import numpy as np

from streamad.commands.init.facts.rows import LONGEST_STEP
from streamad.commands.init.layout import Layout
from streamad.commands.init.reading.kept import blocks_of
from streamad.commands.init.reading.sample import RawSample, read_raw
from streamad.errors import SourceError
from streamad.ingest.decode import Decoder
from streamad.plugins import gives_files
from streamad.settings.plant_yaml import Settings
from streamad.types import IntArray, Record

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

    It fits if nothing else tells sequences apart, and every file is one continuous course of one stream, with pauses
    between.
    ``raw`` was read with separate files and is decoded with ``settings``.
    """
    if not gives_files(url) or raw.native or len(raw.records) < 2 or layout.has_ids or layout.restarts:
        return None
    courses = [_course(records, raw.decoder(settings)) for records in raw.records.values()]
    known = [course for course in courses if course is not None]
    if len(known) < len(courses) or not _are_sequences(known, counts=layout.time.counts):
        return None
    of: Literal["file", "folder"] = "file"
    joined = _named_by(of, url, home, raw)
    if joined is None:
        of = "folder"
        joined = _named_by(of, url, home, raw)
    if joined is None:
        return None
    layout.ids_from = of
    why = f"each of the {len(known)} files was taken for one sequence, whose id is the {layout.ids_from}'s name"
    layout.notes.append(f"{why} (decode.sequence_from: {layout.ids_from})")
    if not layout.is_relative and not _follow(joined, settings):
        return read_raw(url, home, raw.options, ids_from=layout.ids_from, schemas=raw.schemas)
    layout.notes.append(_HELD)
    return replace(joined, options={**joined.options, "files": "joined"})


def _named_by(of: Literal["file", "folder"], url: str, home: Path, raw: RawSample) -> RawSample | None:
    """Return the sample read as one recording, with ids from files or folders; None if two have one name."""
    try:
        return read_raw(
            f"{url}{'&' if '?' in url else '?'}files=joined", home, raw.options, ids_from=of, schemas=raw.schemas
        )
    except SourceError:
        return None


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
    longest_us = LONGEST_STEP * int(np.median(steps_us))
    if steps_us.max() > longest_us or len({course.channels for course in courses}) > 1:
        return False
    return (counts and _restart(courses)) or _have_pauses_between(courses, longest_us)


def _have_pauses_between(courses: Sequence[_Course], longest_us: int) -> bool:
    """Return whether the files of each stream follow each other in time, with pauses."""
    for stream in {course.stream for course in courses}:
        spans = sorted((int(c.times_us[0]), int(c.times_us[-1])) for c in courses if c.stream == stream)
        if any(after[0] - before[1] <= longest_us for before, after in pairwise(spans)):
            return False
    return True


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
