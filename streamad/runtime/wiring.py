"""Puts the rooms together as a config says: sources, sinks, the model in service, the committer."""

from __future__ import annotations

__all__ = [
    "check_parts",
    "committer_for",
    "context_for",
    "detector_for",
    "input_urls",
    "model_in_service",
    "registry_of",
    "sink_urls",
    "sinks_for",
    "source_for",
    "store_for",
    "versions_of",
]

from collections.abc import Callable
from functools import partial
from pathlib import Path, PurePath
from typing import Any

from streamad.errors import ConfigError, Problem, StreamadError
from streamad.ingest.decode import Decoder
from streamad.judge.scoring import ModelInService
from streamad.learn.feedback.exchange import check_exchange, exchange_urls
from streamad.learn.registry.hot_swap import RegistryVersions
from streamad.learn.registry.registry import Registry
from streamad.learn.store.inliers import InlierStore
from streamad.plugins import ConnectorContext, connect_sink, connect_source, make_detector, split_url
from streamad.ports import Clock, Committer, Detector, Sink, Source, TransactionalSource
from streamad.runtime.checkpoint import LocalCommitter, UnsavedCommitter
from streamad.settings.places import place_key, place_problems
from streamad.settings.plant_yaml import Settings
from streamad.types import Role


def check_parts(settings: Settings, context: ConnectorContext) -> list[Problem]:
    """Return what is wrong with the config beyond its own keys.

    That is what decoder, plug-ins and their options say of it, and where an output would meet another one or an input.
    """
    parts: dict[str, Callable[[], Any]] = {
        "decode": lambda: Decoder(settings.decode, settings.channels, settings.route_field),
        "source.url": lambda: source_for(settings, context),
        "model.detector": lambda: detector_for(settings),
    }
    for role, url in sink_urls(settings).items():
        parts[f"sinks.{role}"] = partial(_sink, settings, context, role, url)
    if settings.learning is not None:
        parts["learning.store"] = lambda: store_for(settings, context.base_dir, context.clock)
    for role in exchange_urls(settings):
        parts[place_key(role)] = partial(check_exchange, settings, context, role)
    problems: list[Problem] = []
    for where, make in parts.items():
        try:
            make()
        except ConfigError as error:
            problems += error.problems
        except StreamadError as error:
            problems.append(Problem(where, str(error)))
    places = {**sink_urls(settings), **exchange_urls(settings)}
    return problems + place_problems(places, input_urls(settings), context.base_dir)


def source_for(settings: Settings, context: ConnectorContext, url: str | None = None) -> Source:
    """Make the source of the config, or of ``url``: with the config's options where that is of the same kind.

    The same kind is the same scheme, and for files the same ending. Raises PluginError, ConfigError, SourceError.
    """
    if url is None or _kind(url) == _kind(settings.source.url):
        return connect_source(url or settings.source.url, settings.source.options, context)
    return connect_source(url, {}, context, where="source")


def _kind(url: str) -> tuple[str, str]:
    scheme, rest, _ = split_url(url)
    return scheme, PurePath(rest).suffix.lower() if scheme == "file" else ""


def sink_urls(settings: Settings) -> dict[Role, str]:
    """Return the URL of each role that has a sink."""
    urls: dict[Role, str | None] = {
        "alerts": settings.sinks.alerts,
        "attributions": settings.sinks.attributions,
        "verdicts": settings.sinks.verdicts,
        "dead_letters": settings.sinks.dead_letters,
        "late": settings.sinks.late,
        "events": settings.sinks.events,
    }
    return {role: url for role, url in urls.items() if url is not None}


def input_urls(settings: Settings) -> dict[str, str]:
    """Return the URL of each key of the config that names recordings or a source."""
    urls = {"source.url": settings.source.url, "model.recordings": settings.model.recordings}
    return {key: url for key, url in urls.items() if url is not None}


def sinks_for(settings: Settings, context: ConnectorContext) -> dict[Role, Sink]:
    """Make the sinks of the config. Raises PluginError, ConfigError, OutputError."""
    return {role: _sink(settings, context, role, url) for role, url in sink_urls(settings).items()}


def _sink(settings: Settings, context: ConnectorContext, role: Role, url: str) -> Sink:
    return connect_sink(url, settings.sinks.options.get(split_url(url)[0], {}), context, f"sinks.{role}")


def committer_for(settings: Settings, context: ConnectorContext, source: Source) -> Committer:
    """Make the committer of the config: the source's own, one with the local checkpoint, or one without any."""
    sinks = sinks_for(settings, context)
    if isinstance(source, TransactionalSource):
        return source.committer(sinks)
    if settings.run.checkpoint is None:
        return UnsavedCommitter(sinks)
    return LocalCommitter(context.base_dir / settings.run.checkpoint, sinks, sink_urls(settings))


def registry_of(settings: Settings, base_dir: Path) -> Registry:
    """Return the registry of the config."""
    return Registry(base_dir / settings.model.registry)


def detector_for(settings: Settings) -> Detector:
    """Make the detector of the config. Raises PluginError, ConfigError."""
    return make_detector(settings.model.detector, settings.model.options)


def versions_of(settings: Settings, base_dir: Path, name: str | None = None) -> RegistryVersions:
    """Return the versions of a model of the config (None: ``model.name``). Raises PluginError, ConfigError."""
    return RegistryVersions(
        registry_of(settings, base_dir), name or settings.model.name, settings, detector_for(settings)
    )


def store_for(settings: Settings, base_dir: Path, clock: Clock, name: str | None = None) -> InlierStore:
    """Return the inlier store of a model of a config with ``learning`` (None: ``model.name``), not open yet.

    Raises StoreError for a URL that cannot be.
    """
    assert settings.learning is not None
    return InlierStore(
        settings.learning.store,
        name or settings.model.name,
        channels=settings.channel_specs,
        window=settings.window,
        settings=settings.learning,
        clock=clock,
        base_dir=base_dir,
    )


def model_in_service(settings: Settings, base_dir: Path, version: str | None = None) -> ModelInService:
    """Load and verify the model that judges. Raises NoModelError, RegistryError, ArtifactError."""
    return versions_of(settings, base_dir).load(version)


def context_for(settings: Settings, base_dir: Path, clock: Clock) -> ConnectorContext:
    """Return what connectors are told about the plant."""
    return ConnectorContext(
        settings.channel_specs,
        clock,
        base_dir,
        plant=settings.name,
        source_url=settings.source.url,
        source_options=settings.source.options,
        max_duration_us=settings.sequences.max_duration,
    )
