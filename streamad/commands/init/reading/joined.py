"""Finds out whether the files of a sample continue each other, as days of one historian do."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

from streamad.commands.init.reading.file_ends import ends_of
from streamad.commands.init.reading.kept import KeptBlocks, blocks_of
from streamad.commands.init.reading.sample import RawSample, read_raw
from streamad.plugins import gives_files, split_url
from streamad.settings.plant_yaml import Settings
from streamad.types import FILE_OFFSETS, SampleBlock


@dataclass(slots=True)
class Part:
    """One stream in one file: its first and last time, and the times of each of its sequences."""

    first_us: int
    last_us: int
    sequences: dict[str, tuple[int, int]] = field(default_factory=dict)

    def add(self, block: SampleBlock) -> None:
        """Add the samples of one record."""
        first_us, last_us = int(block.times_us[0]), int(block.times_us[-1])
        self.first_us, self.last_us = min(self.first_us, first_us), max(self.last_us, last_us)
        if block.sequence is not None:
            known = self.sequences.get(block.sequence, (first_us, last_us))
            self.sequences[block.sequence] = min(known[0], first_us), max(known[1], last_us)


Parts = dict[str, dict[int, Part]]
"""The parts of each stream by the file's place in the order of reading."""


def read_joined(url: str, home: Path, raw: RawSample, settings: Settings) -> tuple[RawSample, str] | None:
    """Return the sample read with files: joined, and why that fits; None if it does not.

    It fits if a stream is in several files, and in the order of their names each begins after the one before has ended.
    If the sample ends within the first file, beginnings and ends of the files decide, at most those of 12.
    """
    if not gives_files(url) or raw.native or settings.decode.time != "absolute":
        return None
    if len(raw.records) < 2 and (raw.is_complete or (home / Path(split_url(url)[1]).expanduser()).is_file()):
        return None
    joined = read_raw(f"{url}{'&' if '?' in url else '?'}files=joined", home, raw.options, schemas=raw.schemas)
    parts = _parts_of(joined, settings)
    n_files = len({place for of in parts.values() for place in of})
    if n_files > 1 or joined.is_complete:
        stream = continued(parts)
        if stream is None:
            return None
        several = f"the {len(raw.records)} files are taken as one recording"
        return joined, f"{several}: stream {stream} lies in {len(parts[stream])} of them"
    ends = ends_of(url, home, raw.options)
    decoder = KeptBlocks(settings.decode, settings.channels, settings.sequences.while_)
    parts = {}
    for place, records in ends.records.items():
        for block in blocks_of(records, decoder):
            _add(parts, place, block)
    stream = continued(parts)
    if stream is None:
        return None
    return joined, f"the {ends.n_files} files are taken as one recording: {_join(parts[stream], stream, ends.names)}"


def _parts_of(joined: RawSample, settings: Settings) -> Parts:
    parts: Parts = {}
    for records in joined.records.values():
        for block in blocks_of(records, joined.decoder(settings)):
            _add(parts, block.offset // FILE_OFFSETS, block)
    return parts


def _add(parts: Parts, place: int, block: SampleBlock) -> None:
    new = Part(int(block.times_us[0]), int(block.times_us[-1]))
    parts.setdefault(block.stream, {}).setdefault(place, new).add(block)


def continued(parts: Parts) -> str | None:
    """Return a stream in several files, if all such streams go on from file to file: the one in the fewest files."""
    shared = {stream: of for stream, of in parts.items() if len(of) > 1}
    if not shared or not all(_follow(of) for of in shared.values()):
        return None
    return min((len(of), stream) for stream, of in shared.items())[1]


def _follow(of: Mapping[int, Part]) -> bool:
    """Return whether times go on from part to part, and ids come again only where a sequence goes on."""
    ordered = [of[place] for place in sorted(of)]
    if not all(before.last_us <= after.first_us for before, after in pairwise(ordered)):
        return False
    seen: set[str] = set()
    open_id: str | None = None
    for part in ordered:
        by_time = sorted(part.sequences, key=lambda name: part.sequences[name])
        if not by_time:
            continue
        if seen & set(by_time[1:]) or (by_time[0] in seen and by_time[0] != open_id):
            return False
        seen |= set(by_time)
        open_id = max(by_time, key=lambda name: part.sequences[name][1])
    return True


def _join(of: Mapping[int, Part], stream: str, names: Mapping[int, str]) -> str:
    """Return which sequence, else which stream, goes on from a file to the next one."""
    for before, after in pairwise(sorted(of)):
        both = of[before].sequences.keys() & of[after].sequences.keys()
        if both and after == before + 1:
            return f"sequence {min(both)} of stream {stream} goes on from {names[before]} to {names[after]}"
    first, second = sorted(of)[:2]
    return f"stream {stream} goes on from {names[first]} to {names[second]}"
