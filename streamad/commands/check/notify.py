"""Checks the section notify: secrets and addresses can be read; nothing is sent."""

from __future__ import annotations

import asyncio
from pathlib import Path

from streamad.commands.check.findings import Finding, failed, failure, ok, warning
from streamad.commands.check.places import makeable
from streamad.commands.shared.extras import need_notify
from streamad.errors import StreamadError
from streamad.outputs.places import misplaced
from streamad.outputs.reading import place_of
from streamad.plant import Plant
from streamad.plugins import split_url
from streamad.settings.places import file_of


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
    if place_of(plant, "alerts") is None:
        advice = "set sinks.alerts to a file or topic, such as out/alerts.jsonl"
        findings.append(failed("notify", "notices need alerts that can be read", advice))
    if place_of(plant, "attributions") is None:
        findings.append(warning("notify", "notices have no reasons", "write sinks.attributions to a file or topic"))
    if settings.link is None:
        findings.append(warning("notify.link", "notices have no link", "name the address of the page (streamad web)"))
    return findings + [found for number in range(len(settings.receivers)) for found in _receiver(plant, number)]


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
    check, url = "notify.undelivered", plant.settings.notify.undelivered
    if url is None:
        return []
    if problems := [problem for problem in misplaced(plant) if problem.path == check]:
        return [failed(check, problem.message) for problem in problems]
    path = file_of(url, plant.base_dir)
    try:
        return [_topic(plant, check, url) if path is None else _file(check, path)]
    except StreamadError as error:
        return failure(check, error)
    except OSError as error:  # a name that is too long
        return [failed(check, f"{split_url(url)[1]}: {error.strerror or error}", "choose another path")]


def _topic(plant: Plant, check: str, url: str) -> Finding:
    from streamad.notify.undelivered import undelivered_sink  # noqa: PLC0415 - it is rarely needed

    asyncio.run(undelivered_sink(plant, url).close())
    return ok(check, url)


def _file(check: str, path: Path) -> Finding:
    if path.is_dir():
        return failed(check, f"{path} is a folder", "name a file in it")
    return makeable(check, path) or ok(check, f"{path} (is appended to)")
