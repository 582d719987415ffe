"""Finds sources, sinks and detectors, ours and third parties', by URL scheme or kind through entry points."""

from __future__ import annotations

__all__ = [
    "ConnectorContext",
    "ContainedError",
    "RecordTimes",
    "available",
    "check_known",
    "connect_feed",
    "connect_inlet",
    "connect_sink",
    "connect_source",
    "connect_subscription",
    "contained",
    "failure_of",
    "gives_files",
    "load",
    "make_detector",
    "missing_package",
    "option_problems",
    "plugin_failure",
    "secret_advice",
    "secret_in",
    "split_url",
]

import concurrent.futures
import difflib
import re
import sys
import typing
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from importlib.metadata import EntryPoint, EntryPoints, entry_points
from pathlib import Path
from traceback import walk_tb
from typing import Any, Final, Literal, ParamSpec, Protocol, TypeAlias, TypeVar, cast
from urllib.parse import parse_qsl

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo

from streamad.errors import ConfigError, PluginError, Problem, StreamadError
from streamad.ports import Clock, Detector, Feed, Sink, Source, Subscription
from streamad.safe_text import described, is_secret_name, one_line, text_of
from streamad.types import ChannelSpec, Record, SequenceFrom

P = ParamSpec("P")
T = TypeVar("T")

Loc: TypeAlias = tuple[int | str, ...]
"""The path of a key: keys, and indexes of lists."""

Group = Literal["sources", "sinks", "detectors", "feeds", "subscriptions", "inlets"]

# RFC 3986, section 3.1; a single letter is a Windows drive.
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+")
# RFC 8089, section 2: file://localhost/path is a path of this machine.
_LOCAL = ("file", "local")
_OF_FILES = ("file", "s3", "gs", "az", "abfs", "https", "http", "delta", "iceberg")
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
    records must be kept (None: unknown). ``sequence_from``: what gives the records' ids, if not the messages.
    ``times``: the event times of raw records; None where they are not in the messages, or not known. ``local_times``:
    timestamps without a zone are local ones (``decode.timezone``), and the decoder reads them; else they are UTC.
    ``as_written``: the cells of tables stay texts, whatever they hold.
    ``decimal`` and ``thousands``: how numbers in text are written, if the source's own options do not say it.
    ``label``: what records have as theirs, for ``decode.fields.pattern``: ``topic``, or ``header:`` and its name.
    ``rows_are_times``: the number of its row stands for a record's time (``decode.time: row``).
    """

    channels: tuple[ChannelSpec, ...]
    clock: Clock
    base_dir: Path = field(default_factory=Path)
    plant: str = "plant"
    source_url: str | None = None
    source_options: Mapping[str, Any] = field(default_factory=dict)
    max_duration_us: int | None = None
    sequence_from: SequenceFrom = "message"
    times: RecordTimes | None = None
    local_times: bool = False
    as_written: bool = False
    decimal: Literal[".", ","] = "."
    thousands: Literal[",", ".", "'", " "] | None = None
    rows_are_times: bool = False
    label: str | None = None

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


def without_options(url: str, names: Collection[str]) -> str:
    """Return ``url`` without the options ``names``; the rest stays as it is written."""
    body, _, query = url.partition("?")
    if "=" not in query:
        return url
    pairs = query.split("&")
    kept = [pair for pair in pairs if pair.partition("=")[0] not in names]
    return url if len(kept) == len(pairs) else "?".join(filter(None, [body, "&".join(kept)]))


def gives_files(url: str) -> bool:
    """Return whether the source ``url`` reads recordings in files, here or in an object store."""
    return split_url(url)[0] in _OF_FILES


def secret_advice(url: str, where: str) -> str:
    """Return what to do about a secret in ``url``, the value of the config's key ``where``, or of another place."""
    key, scheme = "security.password", split_url(url)[0]
    if where.partition(".")[0] in ("source", "model"):
        if scheme in ("http", "https"):
            return "name its variable or file in source.options.query, or .authorization: {env: NAME}"
        if gives_files(url):
            return "leave it out: credentials come from the environment's variables (docs/guide/files.md)"
        key = f"source.options.{key}"
    elif where.partition(".")[0] in ("sinks", "learning", "notify"):
        key = f"sinks.options.{scheme}.{key}"
    return f"name its variable or file in the options, as in {key}: {{env: NAME}}"


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
    for inner, modules in _innermost(error):
        if who := _owner_of(modules):
            remedy = missing_package(inner)
            why = one_line(text_of(inner))[:_REASON_CHARACTERS] or "no reason given"
            return f"{who} failed: {_kind(inner)}: {why}" + (f": {remedy}" if remedy else "")
    return None


def failure_of(error: BaseException) -> str:
    """Return ``plugin_failure(error)``, or the innermost error on one line if no plug-in raised it."""
    return plugin_failure(error) or described(next(_innermost(error))[0])


def _innermost(error: BaseException) -> Iterator[tuple[BaseException, list[str]]]:
    """Yield each error that ``error`` is or wraps, with the modules of the frames that it passed, the outermost first.

    An error in a group may have been caught and never raised, or never raised at all: the group's frames are then its.
    """
    left = [(error, _modules_of(error))]
    while left:
        outer, modules = left.pop()
        wrapped: Sequence[BaseException] = ()
        if isinstance(outer, BaseExceptionGroup):
            wrapped = outer.exceptions
        elif outer.__cause__ is not None and _is_wrapper(outer):
            wrapped = (outer.__cause__,)
        left += [(inner, modules + _modules_of(inner)) for inner in reversed(wrapped)]
        if not wrapped:
            yield outer, modules


def _is_wrapper(error: BaseException) -> bool:
    """Return whether ``error`` only stands for its cause; a StopIteration leaves a coroutine so (PEP 479)."""
    stop = isinstance(error, RuntimeError) and isinstance(error.__cause__, StopIteration | StopAsyncIteration)
    return stop or isinstance(error, ContainedError)


def _modules_of(error: BaseException) -> list[str]:
    return [str(frame.f_globals.get("__name__", "")) for frame, _ in walk_tb(error.__traceback__)]


def _owner_of(modules: list[str]) -> str:
    for module in reversed(modules):
        if who := _owners(module.split(".")):
            return who
        if module.partition(".")[0] == "streamad":
            return ""
    return ""


def _kind(error: BaseException) -> str:
    return one_line(type(error).__name__)


class ContainedError(Exception):
    """Raised by ``contained`` in place of its cause, an error that asyncio or a future would take for its own."""


def contained(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Return ``function(...)``, which is foreign code in a thread; whatever it raises reaches the one who waits for it.

    A future takes no StopIteration; a CancelledError would cancel, and any other BaseException end, the task that waits
    for it. They become a ContainedError with the error as its cause. KeyboardInterrupt stays.
    """
    try:
        return function(*args, **kwargs)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        if isinstance(error, Exception) and not isinstance(error, StopIteration | concurrent.futures.CancelledError):
            raise
        raise ContainedError(type(error).__name__) from error


def _owners(module: list[str]) -> str:
    """Return the loaded plug-ins whose modules share most of the path of ``module``, its first part at least."""
    shared = {where: _n_shared(module, own.split(".")) for where, own in _loaded.items()}
    most = max(shared.values(), default=0)
    return " or ".join(where for where, n in shared.items() if most and n == most)


def _n_shared(one: list[str], other: list[str]) -> int:
    return next((n for n, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))


NO_TORCH: Final = (
    "training and TorchScript need torch, which is not installed here: train where it is, with model.backend: auto and "
    "the extra of the backend that is here (docs/model/backends.md)"
)


def missing_package(error: BaseException | None) -> str | None:
    """Return what to install if ``error`` or one of its causes is a module that is not there; None if none is."""
    while error is not None and not isinstance(error, ModuleNotFoundError):
        error = error.__cause__
    if error is None:
        return None
    return NO_TORCH if error.name == "torch" else f"install the package that has the module {error.name!r}"


@contextmanager
def _third_party(what: str) -> Iterator[None]:
    """Turn everything that a third party's code raises into a PluginError of one line that begins with ``what``."""
    try:
        yield
    except (StreamadError, KeyboardInterrupt):
        raise
    except BaseException as error:
        why = one_line(text_of(error)) or "no reason given"
        remedy = missing_package(error)
        way = f": {remedy}" if remedy else ""
        raise PluginError(f"{what}: {_kind(error)}: {why[:_REASON_CHARACTERS]}{way}") from error


def _options(plugin: Any, given: Mapping[str, Any], where: str) -> BaseModel:
    model = cast("type[BaseModel]", plugin.options_model)
    try:
        return model.model_validate(dict(given))
    except ValidationError as error:
        raise ConfigError(option_problems(error, model, where)) from error


def option_problems(error: ValidationError, model: type[BaseModel], where: str) -> list[Problem]:
    """Turn pydantic's errors into problems with their paths below the key ``where``."""
    found = error_messages(error, model)
    return [Problem(".".join([where, *map(str, loc)]).strip("."), message) for loc, _, message in found]


def error_messages(error: ValidationError, model: type[BaseModel]) -> Iterator[tuple[Loc, str, str]]:
    """Yield the path, pydantic's kind and a message of each of its errors about ``model``, for people."""
    for item in error.errors():
        loc, kind = item["loc"], item["type"]
        message = item["msg"].removeprefix("Value error, ")
        if kind == "extra_forbidden":
            message = nearest_key(model, loc)
        elif kind == "missing":
            message = "is required"
        elif kind == "literal_error":
            known = re.findall("'([^']*)'", message)
            near = difflib.get_close_matches(str(item["input"]).lower(), known, n=1, cutoff=0.5)
            message += f"; did you mean {near[0]!r}?" if near else ""
        elif kind == "model_type":
            message = f"holds keys, not a value: {', '.join(keys_of(_model_at(model, loc)))}"
        elif kind == "path_type":
            message = "must be the path of a file or folder, as text"
        elif kind == "tuple_type":
            message = "must be a list (in an environment variable: as JSON)"
        elif kind == "invalid_key":
            message = "holds a key that is not text (YAML reads on, off, yes, no and numbers so: put it in quotes)"
            loc = loc[:-1]
        yield loc, kind, message


def keys_of(model: type[BaseModel]) -> dict[str, FieldInfo]:
    """Return the fields of ``model`` by their keys, which may be words of Python (``while``)."""
    return {field.alias or name: field for name, field in model.model_fields.items()}


def model_in(annotation: Any) -> type[BaseModel] | None:
    """Return the model that ``annotation`` is or holds, the first of several; None if there is none."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    for part in typing.get_args(annotation):
        found = model_in(part)
        if found is not None:
            return found
    return None


def _model_at(model: type[BaseModel], loc: Loc) -> type[BaseModel]:
    for part in loc:
        field = keys_of(model).get(str(part))
        inner = model_in(field.annotation) if field is not None else None
        model = inner or model
    return model


def nearest_key(model: type[BaseModel], loc: Loc) -> str:
    """Return the message that the key at ``loc`` is unknown, with the nearest known key."""
    known = keys_of(_model_at(model, loc[:-1]))
    near = difflib.get_close_matches(str(loc[-1]), known, n=1)
    hint = f"did you mean {near[0]!r}?" if near else f"known here: {', '.join(known) or 'none'}"
    return f"unknown key {str(loc[-1])!r}; {hint}"


def _connect(group: Group, url: str, options: Mapping[str, Any], context: ConnectorContext, where: str) -> Any:
    if (what := secret_in(url)) is not None:
        raise ConfigError([Problem(where, f"the URL holds {what}: {secret_advice(url, where)}")])
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


def connect_inlet(url: str, options: Mapping[str, Any], context: ConnectorContext, where: str = "inlet") -> Any:
    """Make the inlet (``streamad.bridge.inlet``) of ``url``; raises as ``connect_source``."""
    return _connect("inlets", url, options, context, where)


def make_detector(kind: str, options: Mapping[str, Any], where: str = "model.options") -> Detector:
    """Make the detector of ``kind`` with its options; raises PluginError or ConfigError."""
    plugin = load("detectors", kind)
    checked = _options(plugin, options, where)
    with _third_party(f"detector {kind!r} cannot be made"):
        return cast("Detector", plugin(checked))
