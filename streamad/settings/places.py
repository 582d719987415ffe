"""Where a config's files lie, and whether what is written there would be mixed up or read back as recordings."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path

from streamad.errors import Problem
from streamad.messages import Role
from streamad.plugins import split_url


def place_key(role: Role) -> str:
    """Return the key of the config that names the place of ``role``."""
    return f"learning.{role}" if role in ("feedback", "control") else f"sinks.{role}"


def file_of(url: str, base_dir: Path) -> Path | None:
    """Return the file that the sink ``url`` means, links resolved; None where it means no file."""
    scheme, rest, _ = split_url(url)
    return Path(os.path.realpath(base_dir / rest)) if scheme == "file" and rest else None


def _input_of(url: str, base_dir: Path) -> Path | None:
    """Return the file, folder or pattern that the source ``url`` means: there, ``~`` is a home folder."""
    scheme, rest, _ = split_url(url)
    return Path(os.path.realpath(base_dir / Path(rest).expanduser())) if scheme == "file" and rest else None


def place_problems(sinks: Mapping[Role, str], inputs: Mapping[str, str], base_dir: Path) -> list[Problem]:
    """Return what is wrong with the files of ``sinks`` (URL by role) beside each other and ``inputs`` (URL by key).

    Two sinks in one file would cut off each other's messages after a crash; a sink in the place of an input would be
    read as recordings by the next run.
    """
    problems: list[Problem] = []
    roles: dict[Path, str] = {}
    for role, url in sinks.items():
        key, path = place_key(role), file_of(url, base_dir)
        if path is None:
            continue
        if path in roles:
            problems.append(
                Problem(key, f"{path} is also the file of {roles[path]}: give every role a file of its own")
            )
            continue
        roles[path] = key
        problems += _read_back(key, path, inputs, base_dir)
    return problems


def _read_back(key: str, path: Path, inputs: Mapping[str, str], base_dir: Path) -> list[Problem]:
    if path.is_dir():  # no sink can write there, and says so
        return []
    for where, url in inputs.items():
        place = _input_of(url, base_dir)
        if place is not None and (place in (path, path.parent) or _matches(path.parts, place.parts)):
            text = f"{path} would be read as recordings ({where}: {url}): write to another folder, such as out/"
            return [Problem(key, text)]
    return []


def _matches(parts: Sequence[str], pattern: Sequence[str]) -> bool:
    """Say whether a glob of ``pattern`` finds the path of ``parts``; ``**`` is any number of folders."""
    if not pattern:
        return not parts
    if pattern[0] == "**":
        return any(_matches(parts[start:], pattern[1:]) for start in range(len(parts) + 1))
    return bool(parts) and fnmatchcase(parts[0], pattern[0]) and _matches(parts[1:], pattern[1:])
