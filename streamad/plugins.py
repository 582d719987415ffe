"""Finds sources, sinks and detectors, ours and third parties', by URL scheme or kind through entry points."""

from __future__ import annotations

__all__ = [
    "ConnectorContext",
    "RecordTimes",
    "available",
    "check_known",
    "connect_feed",
    "connect_sink",
    "connect_source",
    "connect_subscription",
    "load",
    "make_detector",
    "missing_package",
    "option_problems",
    "plugin_failure",
    "secret_in",
    "split_url",
]

import difflib
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from importlib.metadata import EntryPoint, EntryPoints, entry_points
from pathlib import Path
from traceback import walk_tb
from typing import Any, Literal, Protocol, cast
from urllib.parse import parse_qsl

from pydantic import BaseModel, ValidationError

from streamad.errors import ConfigError, PluginError, Problem, StreamadError
from streamad.ports import Clock, Detector, Feed, Sink, Source, Subscription
from streamad.safe_text import is_secret_name, one_line
from streamad.types import ChannelSpec, Record

Group = Literal["sources", "sinks", "detectors", "feeds", "subscriptions"]

# RFC 3986, section 3.1; a single letter is a Windows drive.
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+")
# RFC 8089, section 2: file://localhost/path is a path of this machine. "local" is the name of fsspec.
_LOCAL = ("file", "local")
_THIS_HOST = "//localhost/"
_REASON_CHARACTERS = 300


class RecordTimes(Protocol):
    """Reads the event time of a raw record."""

    @property
    def identity(self) -> str:
        """Text that differs if the same bytes may have other times."""

    def of(self, record: Record) -> int | None:
        """Return the time of the record's first sample in microseconds; None if it is unreadable or has none."""


@dataclass(frozen=True, slots=True)
class ConnectorContext:
    """The plant's data for its connectors.

    Channels, clock, the folder of relative paths, the plant's name, and its source: a sink of the same system may leave
    out what they share (``kafka:///alerts``). ``max_duration_us`` is the longest duration of a sequence, for which its
    records must be kept (None: unknown). ``ids_from_files``: records need the id that their file's name gives.
    ``times``: the event times of raw records; None where they are not in the messages, or not known. ``local_times``:
    timestamps without a zone are local ones (``decode.timezone``), and the decoder reads them; else they are UTC.
    """

    channels: tuple[ChannelSpec, ...]
    clock: Clock
    base_dir: Path = field(default_factory=Path)
    plant: str = "plant"
    source_url: str | None = None
    source_options: Mapping[str, Any] = field(default_factory=dict)
    max_duration_us: int | None = None
    ids_from_files: bool = False
    times: RecordTimes | None = None
    local_times: bool = False

    @property
    def feedback_group(self) -> str:
        """The consumer group that a plant's workers read feedback in; at most 64 characters, as file names allow."""
        return f"streamad.{self.plant[:46]}.feedback"


def split_url(url: str) -> tuple[str, str, dict[str, str]]:
    """Split ``scheme:rest?option=value`` into scheme, rest and options; a bare path has the scheme ``file``.

    ``file:///abs``, ``file://localhost/abs``, ``file:relative`` and ``relative/path.csv`` all work; a one-letter scheme
    is a Windows drive.
    """
    body, _, query = url.partition("?")
    if "=" not in query:  # a pattern such as batch-?.csv
        body, query = url, ""
    options = dict(parse_qsl(query, keep_blank_values=True))
    scheme, colon, rest = body.partition(":")
    if not colon or not _SCHEME.fullmatch(scheme):
        return "file", body, options
    if scheme.lower() in _LOCAL and rest.lower().startswith(_THIS_HOST):
        return scheme.lower(), rest[len(_THIS_HOST) - 1 :], options
    return scheme.lower(), rest.removeprefix("//"), options


SECRETS_GO = "name its variable or file in the options, as in source.options.security.password: {env: NAME}"
"""What to do about a secret in a URL."""


def secret_in(url: str) -> str | None:
    """Return "a password" or "the secret NAME" if ``url`` holds one, None if not; never the secret itself.

    A secret is what stands behind a colon before the last ``@``, and a parameter such as ``password`` or ``token``.
    """
    scheme, rest, options = split_url(url)
    user, at, _ = rest.rpartition("@")
    is_path = scheme == "file" and (url.startswith("file:") or "://" not in url)
    if not is_path and at and ":" in user:
        return "a password"
    return next((f"the secret {name}" for name in options if is_secret_name(name)), None)


def available(group: Group) -> dict[str, EntryPoint]:
    """Return the entry points of ``group`` by name."""
    return {entry.name: entry for entry in _installed(group, tuple(sys.path))}


@lru_cache(maxsize=8)
def _installed(group: Group, path: tuple[str, ...]) -> EntryPoints:
    """Look through all distributions on ``path``, the process's: it takes 10 ms, and a command asks 20 times."""
    del path
    return entry_points(group=f"streamad.{group}")


def check_known(group: Group, name: str) -> None:
    """Raise PluginError with the known names and the nearest one unless the plug-in ``name`` is installed."""
    known = available(group)
    if name not in known:
        near = difflib.get_close_matches(name, known, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise PluginError(f"no {group[:-1]} {name!r}{hint} (installed: {', '.join(sorted(known)) or 'none'})")


def load(group: Group, name: str) -> Any:
    """Load the plug-in ``name``. Raises PluginError with the known names and the nearest one."""
    check_known(group, name)
    known = available(group)
    where = f"{group[:-1]} {name!r} ({known[name].value})"
    with _third_party(f"{where} cannot be loaded"):
        plugin = known[name].load()
    if not hasattr(plugin, "options_model"):
        raise PluginError(f"{where} is no plug-in: it has no options_model")
    _loaded[where] = str(getattr(plugin, "__module__", ""))
    return plugin


_loaded: dict[str, str] = {}
"""The module of each plug-in that was loaded."""


def plugin_failure(error: BaseException) -> str | None:
    """Return which plug-in's code raised ``error`` and why, on one line; None if none did.

    It is the plug-in in whose package the innermost frame lies that is not of a library; in streamad's own it is none.
    """
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    modules = [str(frame.f_globals.get("__name__", "")) for frame, _ in walk_tb(error.__traceback__)]
    for module in reversed(modules):
        if who := _owners(module.split(".")):
            remedy = missing_package(error)
            why = one_line(str(error))[:_REASON_CHARACTERS] or "no reason given"
            return f"{who} failed: {type(error).__name__}: {why}" + (f": {remedy}" if remedy else "")
        if module.partition(".")[0] == "streamad":
            return None
    return None


def _owners(module: list[str]) -> str:
    """Return the loaded plug-ins whose modules share most of the path of ``module``, its first part at least."""
    shared = {where: _n_shared(module, own.split(".")) for where, own in _loaded.items()}
    most = max(shared.values(), default=0)
    return " or ".join(where for where, n in shared.items() if most and n == most)


def _n_shared(one: list[str], other: list[str]) -> int:
    return next((n for n, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))


def missing_package(error: BaseException | None) -> str | None:
    """Return what to install if ``error`` or one of its causes is a module that is not there; None if none is."""
    while error is not None and not isinstance(error, ModuleNotFoundError):
        error = error.__cause__
    return None if error is None else f"install the package that has the module {error.name!r}"


@contextmanager
def _third_party(what: str) -> Iterator[None]:
    """Turn everything that a third party's code raises into a PluginError of one line that begins with ``what``."""
    try:
        yield
    except StreamadError:
        raise
    except (Exception, SystemExit) as error:
        why = one_line(str(error)) or "no reason given"
        remedy = missing_package(error)
        way = f": {remedy}" if remedy else ""
        raise PluginError(f"{what}: {type(error).__name__}: {why[:_REASON_CHARACTERS]}{way}") from error


def _options(plugin: Any, given: Mapping[str, Any], where: str) -> BaseModel:
    model = cast("type[BaseModel]", plugin.options_model)
    try:
        return model.model_validate(dict(given))
    except ValidationError as error:
        raise ConfigError(option_problems(error, model, where)) from error


def option_problems(error: ValidationError, model: type[BaseModel], where: str) -> list[Problem]:
    """Turn pydantic's errors into problems with their paths; an unknown key comes with the nearest known one."""
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


def _connect(group: Group, url: str, options: Mapping[str, Any], context: ConnectorContext, where: str) -> Any:
    if (what := secret_in(url)) is not None:
        raise ConfigError([Problem(where, f"the URL holds {what}: {SECRETS_GO}")])
    scheme, rest, in_url = split_url(url)
    plugin = load(group, scheme)
    checked = _options(plugin, {**options, **in_url}, where)
    with _third_party(f"{group[:-1]} {scheme!r} cannot be made"):
        return plugin(rest, checked, context)


def connect_source(
    url: str, options: Mapping[str, Any], context: ConnectorContext, where: str = "source.options"
) -> Source:
    """Make the source of ``url``; options in the URL's query win over ``options``.

    Raises PluginError for an unknown scheme, ConfigError for wrong options.
    """
    return cast("Source", _connect("sources", url, options, context, where))


def connect_sink(url: str, options: Mapping[str, Any], context: ConnectorContext, where: str = "sinks") -> Sink:
    """Make the sink of ``url``; raises as ``connect_source``."""
    return cast("Sink", _connect("sinks", url, options, context, where))


def connect_feed(url: str, options: Mapping[str, Any], context: ConnectorContext, where: str = "feed") -> Feed:
    """Make the feed of ``url``; raises as ``connect_source``."""
    return cast("Feed", _connect("feeds", url, options, context, where))


def connect_subscription(
    url: str, options: Mapping[str, Any], context: ConnectorContext, where: str = "subscription"
) -> Subscription:
    """Make the subscription to the sink of ``url``; raises as ``connect_source``."""
    return cast("Subscription", _connect("subscriptions", url, options, context, where))


def make_detector(kind: str, options: Mapping[str, Any], where: str = "model.options") -> Detector:
    """Make the detector of ``kind`` with its options; raises PluginError or ConfigError."""
    plugin = load("detectors", kind)
    checked = _options(plugin, options, where)
    with _third_party(f"detector {kind!r} cannot be made"):
        return cast("Detector", plugin(checked))
