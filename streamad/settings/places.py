"""The files of a config, and whether sinks would overwrite each other or be read back as recordings."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path

from streamad.errors import Problem
from streamad.messages import Role
from streamad.plugins import split_url


def place_key(role: Role) -> str:
    """Return the key of the config with the URL of ``role``."""
    return f"learning.{role}" if role in ("feedback", "control") else f"sinks.{role}"


def file_of(url: str, base_dir: Path) -> Path | None:
    """Return the file of the sink ``url``, links resolved; None if it is no file."""
    scheme, rest, _ = split_url(url)
    return Path(os.path.realpath(base_dir / rest)) if scheme == "file" and rest else None


def _input_of(url: str, base_dir: Path) -> Path | None:
    """Return the file, folder or pattern of the source ``url``, in which ``~`` is the home folder."""
    scheme, rest, _ = split_url(url)
    try:
        return Path(os.path.realpath(base_dir / Path(rest).expanduser())) if scheme == "file" and rest else None
    except RuntimeError:  # there is no such user: the source reports it
        return None


def place_problems(
    sinks: Mapping[Role, str], inputs: Mapping[str, str], base_dir: Path, config: Path | None = None
) -> list[Problem]:
    """Return the conflicts among the files of ``sinks`` (URL by role), with ``inputs`` (URL by key) and the config.

    Two sinks in one file would truncate each other's messages after a crash; a sink in an input folder would be read
    as recordings by the next run; a message would break the config.
    """
    problems: list[Problem] = []
    config_file = None if config is None else Path(os.path.realpath(config))
    roles: dict[Path, str] = {}
    for role, url in sinks.items():
        key, path = place_key(role), file_of(url, base_dir)
        if path is None:
            continue
        if path == config_file:
            problems.append(Problem(key, f"{path} is the config itself: name another file, such as out/{role}.jsonl"))
            continue
        if path in roles:
            problems.append(
                Problem(key, f"{path} is also the file of {roles[path]}: give every role a file of its own")
            )
            continue
        roles[path] = key
        problems += _read_back(key, path, inputs, base_dir)
    return problems


def _is_folder(path: Path) -> bool:
    try:
        return path.is_dir()
    except OSError:  # a name that is too long: the sink reports it
        return False


def _read_back(key: str, path: Path, inputs: Mapping[str, str], base_dir: Path) -> list[Problem]:
    if _is_folder(path):  # the sink reports that it cannot write there
        return []
    for where, url in inputs.items():
        place = _input_of(url, base_dir)
        if place is not None and (place in (path, path.parent) or _matches(path.parts, place.parts)):
            text = f"{path} would be read as recordings ({where}: {url}): write to another folder, such as out/"
            return [Problem(key, text)]
    return []


def _matches(parts: Sequence[str], pattern: Sequence[str]) -> bool:
    """Return whether the glob ``pattern`` matches the path ``parts``; ``**`` is any number of folders."""
    if not pattern:
        return not parts
    if pattern[0] == "**":
        return any(_matches(parts[start:], pattern[1:]) for start in range(len(parts) + 1))
    return bool(parts) and fnmatchcase(parts[0], pattern[0]) and _matches(parts[1:], pattern[1:])
