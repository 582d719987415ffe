"""Finds recordings that lie deeper than in a folder itself: one folder a recording, or folders of recordings."""

from __future__ import annotations

import glob
import os
from collections import defaultdict
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from streamad.types import SequenceFrom
from streamad_connectors.files.formats.known import format_by_ending
from streamad_connectors.files.formats.options import FileOptions

_MOST_ENTRIES = 20_000
_DEEPEST = 4


@dataclass(frozen=True, slots=True)
class Deeper:
    """The pattern below a folder that matches the recordings alone, how many there are, and what can be their ids."""

    pattern: str
    n_files: int
    sequence_from: SequenceFrom


@dataclass(frozen=True, slots=True)
class _File:
    folders: tuple[str, ...]
    name: str
    size: int


def deeper_recordings(folder: Path, options: FileOptions) -> Deeper | None:
    """Return where recordings lie below ``folder``, which has none itself; None if there are none.

    They are the files of one depth and format that are largest together: those with one name, if most folders have it.
    """
    groups: dict[tuple[int, str], list[_File]] = defaultdict(list)
    for file in _files_below(folder, options):
        groups[len(file.folders), _ending(file.name)].append(file)
    if not groups:
        return None
    files = max(groups.values(), key=_size)
    by_name: dict[str, list[_File]] = defaultdict(list)
    for file in files:
        by_name[file.name].append(file)
    n_folders = len({file.folders for file in files})
    named = [same for same in by_name.values() if 2 * len(same) > n_folders >= max(2, len(by_name))]
    if named:
        files = max(named, key=_size)
    last = glob.escape(files[0].name) if named else f"*{glob.escape(_ending(files[0].name))}"
    levels = [{file.folders[level] for file in files} for level in range(len(files[0].folders))]
    parts = [glob.escape(names.pop()) if len(names) == 1 else "*" for names in levels]
    return Deeper("/".join([*parts, last]), len(files), _ids(files, is_one_name=bool(named)))


def _ids(files: list[_File], *, is_one_name: bool) -> SequenceFrom:
    """Return whose names differ from file to file."""
    names = {file.folders[-1] if is_one_name else file.name for file in files}
    if len(names) < len(files):
        return "message"
    return "folder" if is_one_name else "file"


def _files_below(folder: Path, options: FileOptions) -> Iterator[_File]:
    """Yield the files of a known format in the folders below ``folder``, the next ones first."""
    n_entries = 0
    waiting: list[tuple[str, ...]] = [()]
    for folders in waiting:
        with suppress(OSError), os.scandir(folder.joinpath(*folders)) as entries:  # one that may not be listed
            for entry in islice(entries, _MOST_ENTRIES - n_entries):
                n_entries += 1
                if entry.name.startswith("."):
                    continue
                if entry.is_dir(follow_symlinks=False):
                    if len(folders) < _DEEPEST:
                        waiting.append((*folders, entry.name))
                elif folders and entry.is_file() and _is_recording(entry.name, options):
                    yield _File(folders, entry.name, entry.stat().st_size)


def _is_recording(name: str, options: FileOptions) -> bool:
    return options.format != "auto" or format_by_ending(Path(name)) is not None


def _ending(name: str) -> str:
    return "".join(Path(name).suffixes[-2:]) if name.lower().endswith(".gz") else Path(name).suffix


def _size(files: list[_File]) -> int:
    return sum(file.size for file in files)
