"""Makes source, sinks and committer from the config."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import PurePath
from typing import Any

from streamad.errors import ClockError, ConfigError, Problem
from streamad.ingest.record_times import times_for
from streamad.messages import Role
from streamad.plant import Plant
from streamad.plugins import connect_sink, connect_source, gives_files, split_url
from streamad.ports import Committer, ResumableSource, Sink, Source, TransactionalSource
from streamad.runtime.checkpoint import LocalCommitter, UnsavedCommitter
from streamad.settings.numerals import check_decimal
from streamad.settings.places import file_path, sink_urls
from streamad.settings.plant_yaml import Settings, check_source_gives
from streamad.system.saved_progress import newest_commit_us
from streamad.types import from_us

_RELEASED_US = 1_792_800_000_000_000
"""2026-10-24: no machine that runs this release has a clock before it. Raise it with each release."""
_CLOCK_TOLERANCE_US = 3_600_000_000
_WINDOWS_BYTES = 64 << 20
"""Windows in files that a learner reads go to another file after so many bytes."""


def source_for(plant: Plant, url: str | None = None) -> Source:
    """Make the source of the config, or of ``url``: with the config's options if it is of the same kind.

    That is the same scheme, and for files the same suffix. Raises PluginError, ConfigError, SourceError.
    """
    settings = plant.settings
    context = replace(plant.context, times=times_for(settings))
    is_same = url is None or _kind(url) == _kind(settings.source.url)
    options = settings.source.options if is_same else {}
    if url is not None:
        _check_decode(settings, url, options)
    where = "source.options" if is_same else "source"
    return connect_source(url or settings.source.url, options, context, where=where)


def reading_from(plant: Plant, url: str) -> Plant:
    """Return ``plant`` with ``url`` as its source, and the config's options if it is of the same kind.

    Raises ConfigError.
    """
    source = plant.settings.source
    options = source.options if _kind(url) == _kind(source.url) else {}
    _check_decode(plant.settings, url, options)
    source = source.model_copy(update={"url": url, "options": options})
    return replace(plant, settings=plant.settings.model_copy(update={"source": source}))


def _check_decode(settings: Settings, url: str, options: Mapping[str, Any]) -> None:
    try:
        check_source_gives(settings.decode, url)
        check_decimal(settings.decode.decimal, url, options)
    except ValueError as error:
        raise ConfigError([Problem("decode", str(error))]) from None


def _kind(url: str) -> tuple[str, str]:
    scheme, rest, _ = split_url(url)
    return scheme, PurePath(rest).suffix.lower() if gives_files(url) else ""


def sinks_for(plant: Plant) -> dict[Role, Sink]:
    """Make the sinks of the config. Raises PluginError, ConfigError, OutputError."""
    return {role: sink_for(plant, role, url) for role, url in sink_urls(plant.settings).items()}


def status_sink(plant: Plant) -> dict[Role, Sink]:
    """Make the sink of the workers' status, unless it is a folder; raises as ``sinks_for``."""
    url = plant.settings.sinks.status
    if url is None or file_path(url) is not None:
        return {}
    return {"status": sink_for(plant, "status", url)}


def sink_for(plant: Plant, role: Role, url: str) -> Sink:
    """Make the sink of ``role`` at ``url``. Raises PluginError, ConfigError, OutputError."""
    options = plant.settings.sinks.options.get(split_url(url)[0], {})
    if role == "windows" and plant.settings.learning is not None and file_path(url) is not None:
        options = {"rotate": _WINDOWS_BYTES, **options}  # the learner deletes files that it has read
    return connect_sink(url, options, plant.context, f"sinks.{role}")


def check_clock(plant: Plant) -> None:
    """Raise ClockError if the machine's clock shows a time that has passed: before this release or the checkpoint.

    An hour of tolerance is left for clocks that are set back.
    """
    now_us = plant.clock.now_us()
    passed = [("this release of streamad", _RELEASED_US, "")]
    checkpoint = plant.settings.run.checkpoint
    if checkpoint is not None and (written_us := newest_commit_us(plant.base_dir / checkpoint)) is not None:
        passed.append(
            ("the checkpoint", written_us, f"; if it is right now, touch {plant.base_dir / checkpoint}/*.json")
        )
    for name, time_us, remedy in passed:
        if now_us + _CLOCK_TOLERANCE_US < time_us:
            raise ClockError(
                f"the machine's clock shows {from_us(now_us):%Y-%m-%d %H:%M} UTC, but {name} is from "
                f"{from_us(time_us):%Y-%m-%d %H:%M}: set the clock, because alerts and models carry its time{remedy}"
            )


def committer_for(plant: Plant, source: Source) -> Committer:
    """Make the committer of the config: the source's own, one with the local checkpoint, or one without any."""
    settings, sinks = plant.settings, sinks_for(plant)
    if isinstance(source, TransactionalSource):
        return source.committer(sinks)
    if settings.run.checkpoint is None:
        return UnsavedCommitter(sinks)
    check = source.check_cursors if isinstance(source, ResumableSource) else None
    return LocalCommitter(plant.base_dir / settings.run.checkpoint, sinks, sink_urls(settings), check)
