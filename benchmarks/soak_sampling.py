"""What a soak measures of processes and folders: memory, open files, threads, and bytes on the disk. Linux only."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

_MB = 1e6
_KB = 1024
_BLOCK = 512
_MAPS = {"rss": ("Rss",), "pss": ("Pss",), "uss": ("Private_Clean", "Private_Dirty"), "anonymous": ("Anonymous",)}


class Found(NamedTuple):
    """A process: its id, its parent's, and its session's, which outlives a parent that is killed."""

    pid: int
    parent: int
    session: int


def processes() -> list[Found]:
    """Return all processes of this machine but the dead ones that nobody has waited for."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            state, parent, _, session, *_ = path.read_text().rpartition(")")[2].split()
            if state != "Z":
                found.append(Found(int(path.parent.name), int(parent), int(session)))
    return found


def memory_of(pid: int) -> dict[str, float]:
    """Return the memory of a process in MB.

    ``rss`` is all that is resident, ``pss`` with shared pages divided among those that share them, ``uss`` without
    them, ``anonymous`` what was allocated, so that it is no copy of a file: a leak is in the last one, whoever shares.
    """
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]
    kb = {name: int(value.split()[0]) for name, _, value in (line.partition(":") for line in lines)}
    return {f"{kind}_mb": round(sum(kb[name] for name in names) * _KB / _MB, 2) for kind, names in _MAPS.items()}


def figures_of(pid: int) -> dict[str, float] | None:
    """Return memory, open files and threads of a process, None if it has ended."""
    try:
        files, threads = (sum(1 for _ in Path(f"/proc/{pid}/{kind}").iterdir()) for kind in ("fd", "task"))
        return {**memory_of(pid), "files": files, "threads": threads}
    except (OSError, KeyError):  # it has ended, or just ends: then its memory has no lines
        return None


def measured(parts: Mapping[str, int]) -> dict[str, dict[str, float]]:
    """Return the figures of each part, given by its id; ``X children`` are those that ``X`` started, together."""
    found: dict[str, dict[str, float]] = {}
    everybody = processes()
    for name, pid in parts.items():
        if (own := figures_of(pid)) is not None:
            found[name] = own
        children = [each for one in everybody if one.session == pid != one.pid and (each := figures_of(one.pid))]
        if children:
            found[f"{name} children"] = {key: round(sum(each[key] for each in children), 2) for key in children[0]}
    return found


def orphans(sessions: Iterable[int]) -> list[int]:
    """Return the processes that outlived those who began ``sessions``."""
    wanted = set(sessions)
    return [one.pid for one in processes() if one.session in wanted and one.pid not in wanted]


def mb_in(paths: Iterable[Path]) -> float:
    """Return how many MB files and folders take on the disk."""
    return round(sum(_bytes_of(path) for path in paths) / _MB, 4)


def _bytes_of(path: Path) -> int:
    total = 0
    with contextlib.suppress(OSError):  # deleted meanwhile
        if path.is_dir() and not path.is_symlink():
            with os.scandir(path) as entries:
                total += sum(_bytes_of(Path(entry.path)) for entry in entries)
        total += path.lstat().st_blocks * _BLOCK
    return total
