"""Checks that sinks, feedback, checkpoint and inlier store can be written; nothing is left behind."""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import Container
from contextlib import suppress
from pathlib import Path

from streamad.commands.check.findings import Finding, failed, failure, ok, warning
from streamad.commands.shared.console import count
from streamad.errors import CheckpointError, StreamadError
from streamad.learn.feedback.place import check_feedback, feedback_url
from streamad.messages import Role
from streamad.outputs.places import misplaced
from streamad.outputs.stored import open_store, stored_models
from streamad.plant import Plant
from streamad.plugins import connect_sink, split_url
from streamad.ports import Owner, TransactionalSource
from streamad.runtime.checkpoint import check_owner, other_checkpoint
from streamad.runtime.wiring import sink_for, source_for, status_sink
from streamad.settings.places import LEARNER_EVENTS, file_of, learner_events_url, place_key, sink_urls
from streamad.system.locks import try_lock
from streamad.system.opening import is_other_kind
from streamad.system.rights import missing_right, reason
from streamad.system.saved_progress import read_checkpoint

_STORE = "learning.store"


def check_sinks(plant: Plant, broken: Container[str] = ()) -> list[Finding]:
    """Check for every role that its sink can be opened and written, and that no other role has its place.

    Roles in ``broken`` get no "ok": ``check_topics`` reports them.
    """
    findings: list[Finding] = []
    places = sink_urls(plant.settings)
    if (feedback := feedback_url(plant.settings)) is not None:
        places["feedback"] = feedback
    conflicts = {problem.path: problem for problem in misplaced(plant)}
    for role, url in places.items():
        check = place_key(role)
        try:
            _try(plant, role, url)
        except StreamadError as error:
            findings += failure(check, error)
            continue
        if check in conflicts:
            findings.append(failed(check, conflicts[check].message))
            continue
        path = file_of(url, plant.base_dir)
        if path is not None:
            findings.append(_file(role, path))
        elif role not in broken:
            findings.append(ok(check, url))
    return findings + _status(plant) + misplaced_folder(plant, "model.registry")


def _status(plant: Plant) -> list[Finding]:
    """Check the place of the workers' status: a folder, or a sink."""
    check, url = "sinks.status", plant.settings.sinks.status
    if url is None or (found := misplaced_folder(plant, check)):
        return [] if url is None else found
    path = file_of(url, plant.base_dir)
    try:
        if path is None:
            for sink in status_sink(plant).values():
                asyncio.run(sink.close())
            return [ok(check, url)]
        if path.exists() and not path.is_dir():
            return [failed(check, f"{path} is a file", "name a folder: it gets a file for each worker")]
        return [makeable(check, path / "worker.jsonl") or ok(check, f"{path} (a file for each worker)")]
    except StreamadError as error:
        return failure(check, error)
    except OSError as error:  # a name that is too long
        return [failed(check, f"{path}: {error.strerror or error}", "choose another path")]


def _try(plant: Plant, role: Role, url: str) -> None:
    """Open the sink of ``role`` and close it again. Raises StreamadError."""
    if role == "feedback":
        check_feedback(plant)
        return
    options = plant.settings.sinks.options.get(split_url(url)[0], {})
    sink = connect_sink(url, options, plant.context, place_key(role))
    asyncio.run(sink.close())


def _file(role: Role, path: Path) -> Finding:
    """Check the file of ``role``."""
    check = place_key(role)
    try:
        return (_followed_file if role == "feedback" else _writable_file)(check, path)
    except OSError as error:  # a name that is too long, a folder without permission
        return failed(check, f"{path}: {error.strerror or error}", "choose another path")


def _writable_file(check: str, path: Path) -> Finding:
    if path.is_dir():
        return failed(check, f"{path} is a folder", "name a file in it")
    if path.exists():
        if not os.access(path, os.W_OK):
            return failed(check, f"{path} cannot be written", missing_right(path, "write"))
        return ok(check, f"{path} (exists, is appended to)")
    return makeable(check, path) or ok(check, f"{path} (will be made)")


def _followed_file(check: str, path: Path) -> Finding:
    """Check that a feedback file is a regular one that can be read, and that the position can be stored beside it."""
    if is_other_kind(path):
        return failed(check, f"{path} is not a regular file (a FIFO, socket or device)", "name a regular file")
    if path.is_dir():
        return failed(check, f"{path} is a folder", "name a file in it")
    if path.exists() and not os.access(path, os.R_OK):
        return failed(check, f"{path} cannot be read", "give this user read permission")
    beside = path.parent / "position"
    return makeable(check, beside) or ok(check, f"{path} ({'is followed' if path.exists() else 'not there yet'})")


def makeable(check: str, path: Path) -> Finding | None:
    """Return why ``path`` cannot be created, None if it can."""
    home = next(parent for parent in path.parents if parent.exists())
    if not home.is_dir():
        return failed(check, f"{home} is a file, {path} needs a folder there", "move it or write elsewhere")
    if not os.access(home, os.W_OK | os.X_OK):
        return failed(check, f"{home} cannot be written", f"{missing_right(path, 'write')}; or write elsewhere")
    try:
        Path(tempfile.mkdtemp(prefix=".streamad-check-", dir=home)).rmdir()  # some file systems, as /proc, take none
    except OSError as error:
        return failed(check, f"nothing can be made in {home}: {reason(error, home, 'write')}", "write elsewhere")
    return None


def misplaced_folder(plant: Plant, key: str) -> list[Finding]:
    """Return the finding about the folder of ``key`` if it is also another's place, an input's or the config's."""
    return [failed(key, problem.message) for problem in misplaced(plant) if problem.path == key]


def check_checkpoint(plant: Plant) -> list[Finding]:
    """Check that the checkpoint can be used and fits the existing outputs."""
    if found := misplaced_folder(plant, "run.checkpoint"):
        return found
    try:
        source = source_for(plant)
    except StreamadError:
        return []  # check_source reports it; without a source it is unknown whether a checkpoint is needed
    if isinstance(source, TransactionalSource):
        return [ok("checkpoint", "none needed: progress and outputs are one transaction of the source")]
    try:
        return _local_checkpoint(plant) + _other_owners(plant)
    except OSError as error:  # a name that is too long, a folder without permission
        why = error.strerror or error
        return [failed("checkpoint", f"{plant.settings.run.checkpoint}: {why}", "choose another folder")]


def _local_checkpoint(plant: Plant) -> list[Finding]:
    check, settings = "checkpoint", plant.settings
    if settings.run.checkpoint is None:
        return [warning(check, "none: every run begins anew and repeats its outputs", "name a folder: run.checkpoint")]
    folder = plant.base_dir / settings.run.checkpoint
    if folder.exists() and not folder.is_dir():
        return [failed(check, f"{folder} is a file", "name a folder: run.checkpoint")]
    if not folder.exists():
        return [makeable(check, folder) or ok(check, f"{folder} (will be made; the first run reads from the start)")]
    if not os.access(folder, os.W_OK | os.X_OK):
        return [failed(check, f"{folder} cannot be written", missing_right(folder, "write"))]
    if _is_locked(folder / "lock"):
        return [failed(check, f"{folder} is in use by a running streamad", "stop it first, or use another folder")]
    return _fits_outputs(check, folder, plant)


def _other_owners(plant: Plant) -> list[Finding]:
    """Return a finding for each sink that another checkpoint writes to."""
    name, owner, lengths = plant.settings.run.checkpoint, Owner("", ""), {}
    if name is not None:
        folder = plant.base_dir / name
        with suppress(CheckpointError):  # ``_fits_outputs`` reports it
            saved = read_checkpoint(folder)
            owner, lengths = Owner(saved.id, str(folder.absolute())), saved.outputs
    findings = []
    for role, url in sink_urls(plant.settings).items():
        place = place_key(role)
        try:
            other = asyncio.run(_check_owner(plant, role, url, owner, lengths.get(url)))
        except CheckpointError as error:
            findings.append(failed(place, str(error).removeprefix(f"{place}: ")))
        except StreamadError:
            continue  # ``check_sinks`` reports it
        else:
            if other is not None:
                text = f"the checkpoint {other} writes there, too: its next start will be refused"
                findings.append(warning(place, text, "give each plant, and each run.checkpoint, files of its own"))
    return findings


async def _check_owner(plant: Plant, role: Role, url: str, owner: Owner, length: int | None) -> str | None:
    sink = sink_for(plant, role, url)
    try:
        await check_owner(sink, owner, length, place_key(role))
        return await other_checkpoint(sink, owner)
    finally:
        await sink.close()


def _is_locked(lock: Path) -> bool:
    if not lock.exists():
        return False
    try:
        descriptor = try_lock(lock)
    except OSError:
        return False  # a file system without locks; streamad run reports it
    if descriptor is None:
        return True
    os.close(descriptor)
    return False


def _fits_outputs(check: str, folder: Path, plant: Plant) -> list[Finding]:
    try:
        saved = read_checkpoint(folder)
    except CheckpointError as error:
        return failure(check, error)
    for url in sink_urls(plant.settings).values():
        length, path = saved.outputs.get(url), file_of(url, plant.base_dir)
        if length is None or path is None:
            continue
        size = path.stat().st_size if path.is_file() else 0
        if size < length:
            message = f"{path} has {size} bytes, the checkpoint says {length}: it was cut, moved or deleted"
            return [failed(check, message, f"put the file back, or delete {folder} as well to begin anew")]
    n = len(saved.progress)
    progress = f"resumes in {count(n, 'partition')}" if n else "nothing read yet"
    return [ok(check, f"{folder} ({progress})")]


def check_store(plant: Plant) -> list[Finding]:
    """Return the counts of the inlier store, or why it cannot be used; no finding without learning."""
    if plant.settings.learning is None:
        return []
    if found := misplaced_folder(plant, _STORE) + _learner_events(plant):
        return found
    folder = plant.settings.learning.store
    if (problem := _unusable_folder(plant.base_dir / folder)) is not None:
        return [problem]
    try:
        stores = {name: open_store(plant, name) for name in stored_models(plant)}
    except StreamadError as error:
        return failure(_STORE, error)
    damaged = [problem for store in stores.values() for problem in store.problems]
    if damaged:
        advice = "they are left as they are and not used: see docs/learning/inliers.md"
        return [warning(_STORE, damaged[0], advice)]
    counts = ", ".join(f"{name} {sum(store.counts().values())}" for name, store in stores.items())
    return [ok(_STORE, f"{folder} ({f'sequences: {counts}' if counts else 'nothing stored yet'})")]


def _learner_events(plant: Plant) -> list[Finding]:
    """Return why the learner cannot write its file of events, if it has one."""
    url = learner_events_url(plant.settings)
    path = None if url is None else file_of(url, plant.base_dir)
    if path is None or (found := misplaced_folder(plant, LEARNER_EVENTS)):
        return [] if path is None else found
    finding = _writable_file(LEARNER_EVENTS, path)
    return [] if finding.outcome == "ok" else [finding]


def _unusable_folder(folder: Path) -> Finding | None:
    if not folder.exists():
        return makeable(_STORE, folder)
    if not folder.is_dir():
        return failed(_STORE, f"{folder} is a file", "name a folder: learning.store")
    if not os.access(folder, os.W_OK | os.X_OK):
        return failed(_STORE, f"{folder} cannot be written", missing_right(folder, "write"))
    return None
