"""Checks where streamad writes: sinks and checkpoint, without leaving anything behind."""

from __future__ import annotations

__all__ = ["check_checkpoint", "check_sinks"]

import asyncio
import fnmatch
import os
from pathlib import Path
from typing import Any

import msgspec

from streamad.commands._check_findings import Finding, failed, failure, ok, warning
from streamad.commands._common import Plant
from streamad.errors import StreamadError
from streamad.locks import try_lock
from streamad.plugins import connect_sink, split_url
from streamad.settings import Settings
from streamad.wiring import sink_urls


def check_sinks(plant: Plant) -> list[Finding]:
    """Say of every role whether its sink can be made and written to, and whether two use one file."""
    findings: list[Finding] = []
    roles: dict[Path, str] = {}
    for role, url in sink_urls(plant.settings).items():
        check = f"sinks.{role}"
        try:
            sink = connect_sink(url, {}, plant.context, check)
            asyncio.run(sink.close())
        except StreamadError as error:
            findings += failure(check, error)
            continue
        path = _file(url, plant.base_dir)
        if path is None:
            findings.append(ok(check, url))
            continue
        if path in roles:
            findings.append(
                failed(check, f"{path} is also the file of {roles[path]}", "give every role a file of its own")
            )
            continue
        roles[path] = check
        findings.append(_read_as_input(check, path, plant) or _writable_file(check, path))
    return findings


def _file(url: str, base_dir: Path) -> Path | None:
    scheme, rest, _ = split_url(url)
    return Path(os.path.realpath(base_dir / rest)) if scheme == "file" and rest else None


def _read_as_input(check: str, path: Path, plant: Plant) -> Finding | None:
    """Refuse a sink whose messages the source would take for recordings."""
    urls = {"source.url": plant.settings.source.url, "model.recordings": plant.settings.model.recordings}
    for key, url in urls.items():
        source = None if url is None else _file(url, plant.base_dir)
        if source is None:
            continue
        pattern = path.match(str(source)) if "**" not in str(source) else fnmatch.fnmatch(str(path), str(source))
        if source in (path, path.parent) or (pattern and "*" in str(source)):
            return failed(
                check, f"{path} would be read as recordings ({key}: {url})", "write to another folder, such as out/"
            )
    return None


def _writable_file(check: str, path: Path) -> Finding:
    if path.is_dir():
        return failed(check, f"{path} is a folder", "name a file in it")
    if path.exists():
        if not os.access(path, os.W_OK):
            return failed(check, f"{path} cannot be written", "give this user write permission")
        return ok(check, f"{path} (exists, is appended to)")
    return _makeable(check, path) or ok(check, f"{path} (will be made)")


def _makeable(check: str, path: Path) -> Finding | None:
    """Return why ``path`` cannot be made, None where it can."""
    home = next(parent for parent in path.parents if parent.exists())
    if not home.is_dir():
        return failed(check, f"{home} is a file, {path} needs a folder there", "move it or write elsewhere")
    if not os.access(home, os.W_OK | os.X_OK):
        return failed(check, f"{home} cannot be written", "give this user write permission, or write elsewhere")
    return None


def check_checkpoint(plant: Plant) -> list[Finding]:
    """Say whether the checkpoint can be used and fits the outputs that are there."""
    check, settings = "checkpoint", plant.settings
    if settings.run.checkpoint is None:
        return [warning(check, "none: every run begins anew and repeats its outputs", "name a folder: run.checkpoint")]
    folder = plant.base_dir / settings.run.checkpoint
    if folder.exists() and not folder.is_dir():
        return [failed(check, f"{folder} is a file", "name a folder: run.checkpoint")]
    if not folder.exists():
        return [_makeable(check, folder) or ok(check, f"{folder} (will be made; the first run reads from the start)")]
    if not os.access(folder, os.W_OK | os.X_OK):
        return [failed(check, f"{folder} cannot be written", "give this user write permission")]
    if _is_locked(folder / "lock"):
        return [failed(check, f"{folder} is in use by a running streamad", "stop it first, or use another folder")]
    return _fits_outputs(check, folder, settings, plant.base_dir)


def _is_locked(lock: Path) -> bool:
    if not lock.exists():
        return False
    try:
        descriptor = try_lock(lock)
    except OSError:
        return False  # a file system without locks; streamad run says so
    if descriptor is None:
        return True
    os.close(descriptor)
    return False


def _fits_outputs(check: str, folder: Path, settings: Settings, base_dir: Path) -> list[Finding]:
    newest: dict[str, Any] = {}
    partitions = 0
    for path in sorted(folder.glob("*.json")):
        try:
            commit = msgspec.json.decode(path.read_bytes(), type=dict[str, Any])
            partitions += commit.get("progress") is not None
            newest = max(newest, commit, key=lambda found: int(found.get("number", -1)))
        except (OSError, msgspec.MsgspecError, TypeError, ValueError) as error:
            advice = "move the folder and the outputs away to begin anew"
            return [failed(check, f"{path} cannot be read ({error})", advice)]
    for url in sink_urls(settings).values():
        length, path_out = newest.get("outputs", {}).get(url), _file(url, base_dir)
        if length is None or path_out is None:
            continue
        size = path_out.stat().st_size if path_out.is_file() else 0
        if size < length:
            return [
                failed(
                    check,
                    f"{path_out} has {size} bytes, the checkpoint says {length}: it was cut, moved or deleted",
                    f"put the file back, or delete {folder} as well to begin anew",
                )
            ]
    progress = f"goes on in {partitions} partition{'s' * (partitions != 1)}" if partitions else "nothing read yet"
    return [ok(check, f"{folder} ({progress})")]
