"""Checks that sinks, feedback, checkpoint and inlier store can be written, and notices sent; nothing is left behind."""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import Callable, Container
from contextlib import suppress
from functools import partial
from pathlib import Path

from streamad.bridge.inlet import Inlet
from streamad.commands.check.findings import Finding, failed, failure, ok, warning
from streamad.commands.shared.console import count
from streamad.commands.shared.plants import check_bridged, need_mqtt, need_notify
from streamad.errors import CheckpointError, OutputError, StreamadError
from streamad.learn.parts import registry_of
from streamad.messages import Role
from streamad.outputs.marks.place import check_feedback
from streamad.outputs.reading import place_of
from streamad.outputs.sending import sink_at
from streamad.outputs.stored import open_store, stored_models
from streamad.plant import Plant
from streamad.plugins import connect_inlet
from streamad.ports import Owner, Sink, TransactionalSource
from streamad.runtime.checkpoint import check_owner, other_checkpoint
from streamad.runtime.wiring import sink_for, source_for, status_sink
from streamad.safe_text import masked
from streamad.settings.places import (
    LEARNER_EVENTS,
    OTHER_DECISIONS,
    file_of,
    is_stored,
    learner_events_url,
    other_decisions_url,
    place_key,
    sink_urls,
)
from streamad.settings.plant_yaml import load_settings
from streamad.system.locks import try_lock
from streamad.system.opening import is_other_kind
from streamad.system.output_files import end_of_output, foreign_file, gap_from, output_files
from streamad.system.rights import missing_right, reason
from streamad.system.saved_progress import read_checkpoint

_STORE = "learning.store"
_MOST_CONFIGS = 50


def check_sinks(plant: Plant, broken: Container[str] = ()) -> list[Finding]:
    """Check for every role that its sink can be opened and written, and that no other role has its place.

    Roles in ``broken`` get no "ok": ``check_topics`` reports them.
    """
    settings = plant.settings
    findings: list[Finding] = []
    for role, url in sink_urls(settings).items():
        make = partial(sink_for, plant, role, url)
        findings += _place(plant, place_key(role), url, _appended, make, is_reported=role in broken)
    findings += _unusable(plant, OTHER_DECISIONS, other_decisions_url(settings))
    findings += _check_marks(plant, is_reported="feedback" in broken)
    if (status := settings.sinks.status) is not None:
        findings += _place(plant, "sinks.status", status, _folder_of_workers, lambda: status_sink(plant).get("status"))
    return findings + _conflicts(plant, "model.registry") + _conflicts(plant, "model.cache") + _check_stored(plant)


def _check_stored(plant: Plant) -> list[Finding]:
    """Check that a registry in an object store can be read, and takes conditional writes; a worker only reads."""
    check, url = "model.registry", plant.settings.model.registry
    if not is_stored(url):
        return []
    registry = registry_of(plant)
    try:
        registry.names()
        registry.check_writable()
    except OutputError as error:
        return [warning(check, str(error), "workers need no more; train, learn and models promote do")]
    except StreamadError as error:
        return failure(check, error)
    found = _unusable_folder("model.cache", "model.cache", plant.base_dir / plant.settings.model.cache)
    return [found or ok(check, f"{url} (takes conditional writes)")]


def _check_marks(plant: Plant, *, is_reported: bool) -> list[Finding]:
    """Check the place of marks; a run that does not need it works without it."""
    settings, key = plant.settings, place_key("feedback")
    found = _place(plant, key, settings.marks, _followed, partial(check_feedback, plant), is_reported=is_reported)
    found += [
        warning(key, f"{other} keeps its marks in the same place", f"write marks: {settings.name}.marks.jsonl here")
        for other in _others_with_marks(plant)
    ]
    if not settings.needs_marks:
        return [each if each.outcome == "ok" else warning(key, each.message, each.advice) for each in found]
    if settings.learning is not None and settings.learning.feedback is not None:
        advice = f"write marks: {masked(settings.learning.feedback)} at the top level, and leave this key out"
        found.append(warning("learning.feedback", "is called marks now; it is read as before", advice))
    elif settings.learning is not None and "marks" not in settings.model_fields_set:
        former = f"{settings.learning.store}.marks.jsonl"  # their place while there was no key for it
        if (plant.base_dir / former).exists():
            found.append(warning(key, f"{former} holds marks that nothing reads now", f"write marks: {former}"))
    return found


def _others_with_marks(plant: Plant) -> list[str]:
    """Return the configs of other plants in the config's folder whose marks lie where this one's do."""
    if plant.config is None or not plant.settings.needs_marks:
        return []
    own = file_of(plant.settings.marks, plant.base_dir) or plant.settings.marks
    found = []
    for path in sorted(plant.config.parent.glob("*.yaml"))[:_MOST_CONFIGS]:
        with suppress(StreamadError, OSError):  # no config of ours, or a broken one: its own check says so
            other = load_settings(path)
            place = file_of(other.marks, path.parent) or other.marks
            if place == own and other.name != plant.settings.name:
                found.append(path.name)
    return found


def _place(
    plant: Plant,
    check: str,
    url: str,
    look: Callable[[str, Path], Finding],
    make: Callable[[], Sink | None] = lambda: None,
    *,
    is_reported: bool = False,
) -> list[Finding]:
    """Check the place ``url`` of the key ``check``: ``make`` opens its sink, ``look`` finds out whether its file fits.

    ``is_reported``: another check has found that its topic is broken.
    """
    try:
        if (sink := make()) is not None:
            asyncio.run(sink.close())
    except StreamadError as error:
        return failure(check, error)
    if conflicts := _conflicts(plant, check):
        return conflicts
    path = file_of(url, plant.base_dir)
    if path is None:
        return [] if is_reported else [ok(check, url)]
    try:
        return [look(check, path)]
    except OSError as error:  # a name that is too long, a folder without permission
        return [failed(check, f"{path}: {error.strerror or error}", "choose another path")]


def _conflicts(plant: Plant, key: str) -> list[Finding]:
    """Return the finding about the place of ``key`` if it is also another's, an input's or the config's."""
    return [failed(key, problem.message) for problem in plant.places.problems() if problem.path == key]


def _appended(check: str, path: Path) -> Finding:
    """Check a file that messages are appended to."""
    if path.is_dir():
        return failed(check, f"{path} is a folder", "name a file in it")
    if files := output_files(path):
        if not os.access(files[-1].path, os.W_OK):
            return failed(check, f"{files[-1].path} cannot be written", missing_right(files[-1].path, "write"))
        if (problem := foreign_file(files)) is not None:
            return failed(check, *problem.split(": ", 1))
        return ok(check, f"{files[-1].path} (exists, is appended to)")
    return _makeable(check, path) or ok(check, f"{path} (will be made)")


def _followed(check: str, path: Path) -> Finding:
    """Check that a feedback file is a regular one that can be read, and that the position can be stored beside it."""
    if is_other_kind(path):
        return failed(check, f"{path} is not a regular file (a FIFO, socket or device)", "name a regular file")
    if path.is_dir():
        return failed(check, f"{path} is a folder", "name a file in it")
    if path.exists() and not os.access(path, os.R_OK):
        return failed(check, f"{path} cannot be read", "give this user read permission")
    beside = path.parent / "position"
    return _makeable(check, beside) or ok(check, f"{path} ({'is followed' if path.exists() else 'not there yet'})")


def _folder_of_workers(check: str, path: Path) -> Finding:
    """Check the folder of the workers' status."""
    return _unusable_folder(check, check, path) or ok(check, f"{path} (a file for each worker)")


def _unusable_folder(check: str, key: str, folder: Path) -> Finding | None:
    """Return why nothing can be written in the folder that ``key`` names, None if something can."""
    if folder.exists() and not folder.is_dir():
        return failed(check, f"{folder} is a file", f"name a folder: {key}")
    return _makeable(check, folder / "file")


def _makeable(check: str, path: Path) -> Finding | None:
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


def check_checkpoint(plant: Plant) -> list[Finding]:
    """Check that the checkpoint can be used and fits the existing outputs."""
    if found := _conflicts(plant, "run.checkpoint"):
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
    if (problem := _unusable_folder(check, "run.checkpoint", folder)) is not None:
        return [problem]
    if not folder.exists():
        return [ok(check, f"{folder} (will be made; the first run reads from the start)")]
    if _is_locked(folder / "lock"):
        return [failed(check, f"{folder} is in use by a running streamad", "stop it first, or use another folder")]
    return _fits_outputs(folder, plant)


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


def _fits_outputs(folder: Path, plant: Plant) -> list[Finding]:
    try:
        saved = read_checkpoint(folder)
    except CheckpointError as error:
        return failure("checkpoint", error)
    for url in sink_urls(plant.settings).values():
        length, path = saved.outputs.get(url), file_of(url, plant.base_dir)
        if length is None or path is None:
            continue
        files = output_files(path)
        if foreign_file(files) is not None:
            continue  # ``check_sinks`` reports it
        size = end_of_output(path)
        if size < length:
            message = f"{path} has {size} bytes, the checkpoint says {length}: it was cut, moved or deleted"
            return [failed("checkpoint", message, f"put the file back, or delete {folder} as well to begin anew")]
        if (problem := gap_from(files, length)) is not None:
            return [failed("checkpoint", *problem.split(": ", 1))]
    n = len(saved.progress)
    progress = f"resumes in {count(n, 'partition')}" if n else "nothing read yet"
    return [ok("checkpoint", f"{folder} ({progress})")]


def check_store(plant: Plant) -> list[Finding]:
    """Return the counts of the inlier store, or why it cannot be used; no finding without learning."""
    if plant.settings.learning is None:
        return []
    if found := _conflicts(plant, _STORE) + _unusable_learner_events(plant):
        return found
    folder = plant.settings.learning.store
    if (problem := _unusable_folder(_STORE, _STORE, plant.base_dir / folder)) is not None:
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


def _unusable_learner_events(plant: Plant) -> list[Finding]:
    """Return why the learner cannot write its file of events, if it has one."""
    return _unusable(plant, LEARNER_EVENTS, learner_events_url(plant.settings))


def _unusable(plant: Plant, key: str, url: str | None) -> list[Finding]:
    """Return why nothing can be appended to a place that the config does not name itself."""
    return [] if url is None else [found for found in _place(plant, key, url, _appended) if found.outcome != "ok"]


def check_notify(plant: Plant) -> list[Finding]:
    """Check every receiver; no finding if there is none."""
    settings = plant.settings.notify
    findings = _undelivered(plant)
    if not settings.receivers:
        return findings
    try:
        need_notify()
    except StreamadError as error:
        return [*findings, *failure("notify", error)]
    from streamad.notify.service import unread  # noqa: PLC0415 - an extra

    if (problem := unread(plant)) is not None:
        what, _, advice = problem.partition(": ")
        findings.append(failed("notify", what, advice))
    if plant.settings.alerts.early is None and any("warnings" in each.on for each in settings.receivers):
        findings.append(warning("notify.receivers", "there are no warnings to tell of", "add alerts.early: {}"))
    if place_of(plant, "attributions") is None:
        findings.append(warning("notify", "notices have no reasons", "write sinks.attributions to a file or topic"))
    if settings.link is None:
        findings.append(warning("notify.link", "notices have no link", "name the address of the page (streamad web)"))
    return findings + [found for number in range(len(settings.receivers)) for found in _receiver(plant, number)]


def check_bridge(plant: Plant) -> list[Finding]:
    """Check what the bridge reads, without asking the broker; no finding if there is no bridge."""
    given = plant.settings.bridge
    if given is None:
        return []
    try:
        need_mqtt()
        inlet: Inlet = connect_inlet(given.url, given.options, plant.context, "bridge.options")
        check_bridged(plant, given.to or "")
    except StreamadError as error:
        return failure("bridge", error)
    return [ok("bridge", f"{inlet.place} (streamad bridge asks it)")]


def _receiver(plant: Plant, number: int) -> list[Finding]:
    from streamad.notify.service import sender_of  # noqa: PLC0415 - an extra

    check, name = f"notify.receivers.{number}", plant.settings.notify.receivers[number].name
    try:
        sender = sender_of(plant, number)
        asyncio.run(sender.close())
    except StreamadError as error:
        return failure(check, error)
    return [ok(check, f"{name}: {sender.place} (streamad notify --test asks it)")]


def _undelivered(plant: Plant) -> list[Finding]:
    if (url := plant.settings.notify.undelivered) is None:
        return []
    return _place(plant, "notify.undelivered", url, _appended, partial(sink_at, plant, url, "notify.undelivered"))
