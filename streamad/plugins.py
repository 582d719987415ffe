"""Finds sources, sinks and detectors by URL scheme or kind through entry points, ours and third parties' alike."""

from __future__ import annotations

__all__ = [
    "ConnectorContext",
    "available",
    "connect_feed",
    "connect_sink",
    "connect_source",
    "connect_subscription",
    "load",
    "make_detector",
    "option_problems",
    "split_url",
]

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any, Literal, cast
from urllib.parse import parse_qsl

from pydantic import BaseModel, ValidationError

from streamad.errors import ConfigError, PluginError, Problem
from streamad.ports import Clock, Detector, Feed, Sink, Source, Subscription
from streamad.types import ChannelSpec

Group = Literal["sources", "sinks", "detectors", "feeds", "subscriptions"]

# RFC 3986, section 3.1; a single letter is a Windows drive.
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+")


@dataclass(frozen=True, slots=True)
class ConnectorContext:
    """What every connector is told of the plant.

    Its channels, the clock, the folder that relative paths mean, its name, and where its source is: a sink of the same
    system may leave out what they share (``kafka:///alerts``). ``max_duration_us`` is how long a sequence may last, and
    so how long its records must be kept (None: not known).
    """

    channels: tuple[ChannelSpec, ...]
    clock: Clock
    base_dir: Path = field(default_factory=Path)
    plant: str = "plant"
    source_url: str | None = None
    source_options: Mapping[str, Any] = field(default_factory=dict)
    max_duration_us: int | None = None

    @property
    def feedback_group(self) -> str:
        """The consumer group that a plant's workers read feedback in; at most 64 characters, as file names allow."""
        return f"streamad.{self.plant[:46]}.feedback"


def split_url(url: str) -> tuple[str, str, dict[str, str]]:
    """Split ``scheme:rest?option=value`` into scheme, rest and options; a bare path has the scheme ``file``.

    ``file:///abs``, ``file:relative`` and ``relative/path.csv`` all work; a one-letter scheme is a Windows drive.
    """
    body, _, query = url.partition("?")
    if "=" not in query:  # a pattern such as batch-?.csv
        body, query = url, ""
    options = dict(parse_qsl(query, keep_blank_values=True))
    scheme, colon, rest = body.partition(":")
    if not colon or not _SCHEME.fullmatch(scheme):
        return "file", body, options
    return scheme.lower(), rest.removeprefix("//"), options


def available(group: Group) -> dict[str, EntryPoint]:
    """Return the entry points of ``group`` by name."""
    return {entry.name: entry for entry in entry_points(group=f"streamad.{group}")}


def load(group: Group, name: str) -> Any:
    """Load the plug-in ``name``; raises PluginError naming the known ones and the nearest."""
    known = available(group)
    if name not in known:
        near = difflib.get_close_matches(name, known, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise PluginError(f"no {group[:-1]} {name!r}{hint} (installed: {', '.join(sorted(known)) or 'none'})")
    try:
        return known[name].load()
    except Exception as error:
        # A third party's module may fail in any way while it is imported.
        raise PluginError(f"{group[:-1]} {name!r} ({known[name].value}) cannot be loaded: {error}") from error


def _options(plugin: Any, given: Mapping[str, Any], where: str) -> BaseModel:
    model = cast("type[BaseModel]", plugin.options_model)
    try:
        return model.model_validate(dict(given))
    except ValidationError as error:
        raise ConfigError(option_problems(error, model, where)) from error


def option_problems(error: ValidationError, model: type[BaseModel], where: str) -> list[Problem]:
    """Turn pydantic's errors into problems with their path, naming the nearest known key for an unknown one."""
    problems = []
    for item in error.errors():
        path = ".".join([where, *(str(part) for part in item["loc"])]).strip(".")
        message = item["msg"].removeprefix("Value error, ")
        if item["type"] == "extra_forbidden":
            key = str(item["loc"][-1])
            near = difflib.get_close_matches(key, model.model_fields, n=1)
            message = f"unknown key {key!r}" + (f"; did you mean {near[0]!r}?" if near else "")
        problems.append(Problem(path, message))
    return problems


def connect_source(
    url: str, options: Mapping[str, Any], context: ConnectorContext, where: str = "source.options"
) -> Source:
    """Make the source that ``url`` names; options in the URL's query win over ``options``.

    Raises PluginError for an unknown scheme, ConfigError for wrong options.
    """
    scheme, rest, in_url = split_url(url)
    plugin = load("sources", scheme)
    return cast("Source", plugin(rest, _options(plugin, {**options, **in_url}, where), context))


def connect_sink(url: str, options: Mapping[str, Any], context: ConnectorContext, where: str = "sinks") -> Sink:
    """Make the sink that ``url`` names; raises as ``connect_source``."""
    scheme, rest, in_url = split_url(url)
    plugin = load("sinks", scheme)
    return cast("Sink", plugin(rest, _options(plugin, {**options, **in_url}, where), context))


def connect_feed(url: str, options: Mapping[str, Any], context: ConnectorContext, where: str = "feed") -> Feed:
    """Make the feed that ``url`` names; raises as ``connect_source``."""
    scheme, rest, in_url = split_url(url)
    plugin = load("feeds", scheme)
    return cast("Feed", plugin(rest, _options(plugin, {**options, **in_url}, where), context))


def connect_subscription(
    url: str, options: Mapping[str, Any], context: ConnectorContext, where: str = "subscription"
) -> Subscription:
    """Make the subscription to what ``url`` names; raises as ``connect_source``."""
    scheme, rest, in_url = split_url(url)
    plugin = load("subscriptions", scheme)
    return cast("Subscription", plugin(rest, _options(plugin, {**options, **in_url}, where), context))


def make_detector(kind: str, options: Mapping[str, Any], where: str = "model.options") -> Detector:
    """Make the detector of ``kind`` with its options; raises PluginError or ConfigError."""
    plugin = load("detectors", kind)
    return cast("Detector", plugin(_options(plugin, options, where)))
