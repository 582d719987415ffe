"""Finds out whether the files of a sample continue each other, as days of one historian do."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

from streamad.commands.init.records import RawSample, blocks_of, read_raw
from streamad.plugins import split_url
from streamad.settings.plant_yaml import Settings
from streamad.types import FILE_OFFSETS


def read_joined(url: str, home: Path, raw: RawSample, settings: Settings) -> tuple[RawSample, str] | None:
    """Return the sample read with files: joined, and why that fits; None if it does not.

    It fits if a stream is in several files, and in the order of their names each begins after the one before has ended.
    """
    if split_url(url)[0] != "file" or raw.native or len(raw.records) < 2 or settings.decode.time == "relative":
        return None
    joined = read_raw(f"{url}{'&' if '?' in url else '?'}files=joined", home)
    spans = _spans(joined, settings)
    shared = {stream: of for stream, of in spans.items() if len(of) > 1}
    if not shared or not all(_follow(of) for of in shared.values()):
        return None
    stream, n_files = min((stream, len(of)) for stream, of in shared.items())
    return joined, f"the {len(raw.records)} files are taken as one recording: stream {stream} lies in {n_files} of them"


def _spans(joined: RawSample, settings: Settings) -> dict[str, dict[int, tuple[int, int]]]:
    """Return for each stream its first and last time in each file, by the file's ordinal."""
    spans: dict[str, dict[int, tuple[int, int]]] = {}
    for records in joined.records.values():
        for block in blocks_of(records, joined.decoder(settings)):
            of, ordinal = spans.setdefault(block.stream, {}), block.offset // FILE_OFFSETS
            first_us, last_us = int(block.times_us[0]), int(block.times_us[-1])
            known = of.get(ordinal, (first_us, last_us))
            of[ordinal] = (min(known[0], first_us), max(known[1], last_us))
    return spans


def _follow(of: dict[int, tuple[int, int]]) -> bool:
    ordered = [of[ordinal] for ordinal in sorted(of)]
    return all(before[1] <= after[0] for before, after in pairwise(ordered))
