"""Loads and checks the plant of a command, finds the lines of its config that problems are about, and its topics."""

from __future__ import annotations

import shlex
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from streamad.errors import ConfigError, PluginError, Problem, StreamadError, UsageError
from streamad.outputs.marks.place import check_feedback, feedback_sink
from streamad.plant import Plant
from streamad.plugins import load, split_url
from streamad.ports import TopicFinding, Topics, TransactionalSource
from streamad.runtime.wiring import sink_for, sinks_for, source_for, status_sink
from streamad.settings.places import file_path, place_key, sink_urls
from streamad.settings.plant_yaml import load_settings, located_problems
from streamad.system.clock import SystemClock

_CONFIG_HINT = "--config FILE"


_configs_in_use: list[Path] = []


def load_plant(config: Path) -> Plant:
    """Load the config; paths in it are relative to its folder. Raises ConfigError."""
    _configs_in_use[:] = [config]
    return Plant(load_settings(config), config.absolute().parent, SystemClock(), config)


def load_whole_plant(config: Path) -> Plant:
    """Load the config and check its decoder, plug-ins and their options. Raises ConfigError with all problems."""
    plant = load_plant(config)
    if problems := check_parts(plant):
        raise ConfigError(located(problems), source=str(config))
    return plant


def name_config(text: str) -> str:
    """Return ``text`` with the config that was loaded last in place of ``--config FILE``."""
    if not _configs_in_use:
        return text
    return text.replace(_CONFIG_HINT, f"--config {shlex.quote(str(_configs_in_use[0]))}")


def located(problems: Sequence[Problem]) -> list[Problem]:
    """Return problems with the lines of their keys in the config that was loaded last."""
    return located_problems(problems, _configs_in_use[0] if _configs_in_use else None)


def check_parts(plant: Plant) -> list[Problem]:
    """Return problems beyond the config's keys.

    Problems of decoder, plug-ins and their options, and outputs whose place is also that of another output or an input.
    """
    from streamad.ingest.decode import Decoder  # noqa: PLC0415 - a command that checks no parts needs none of them
    from streamad.ingest.table.reading import read_table  # noqa: PLC0415
    from streamad.learn.parts import check_references, detector_for  # noqa: PLC0415
    from streamad.schemas.fetching import fetcher_of  # noqa: PLC0415

    settings = plant.settings
    parts: dict[str, Callable[[], Any]] = {
        "decode": lambda: Decoder(settings.decode, settings.channels, settings.route_field, settings.sequences.while_),
        "decode.registry": lambda: fetcher_of(plant),
        "source.url": lambda: source_for(plant),
        "sequences.table": lambda: read_table(settings, plant.base_dir),
        "model.detector": lambda: detector_for(plant),
        "model.references": lambda: check_references(settings.model),
    }
    for role, url in sink_urls(settings).items():
        parts[f"sinks.{role}"] = partial(sink_for, plant, role, url)
    parts["sinks.status"] = partial(status_sink, plant)
    if settings.needs_marks:
        parts[place_key("feedback")] = partial(check_feedback, plant)
    problems: list[Problem] = []
    for where, make in parts.items():
        try:
            make()
        except ConfigError as error:
            problems += error.problems
        except StreamadError as error:
            problems.append(Problem(where, str(error)))
    places = plant.places.problems()
    return problems + [each for each in places if settings.needs_marks or each.path != place_key("feedback")]


def table_is_refused(plant: Plant) -> str | None:
    """Return why ``sequences.table`` cannot cut what ``run`` reads, None if it can: only recordings have an end."""
    settings = plant.settings
    if settings.sequences.table is None:
        return None
    scheme, _, in_url = split_url(settings.source.url)
    kind = load("sources", scheme)
    if isinstance(kind, type) and issubclass(kind, TransactionalSource):
        return (
            f"a table cuts recordings, and {scheme} is live: judge a range of it (streamad replay --since 7d), or "
            "record it (streamad record) and write its folder as source.url; for live batches write sequences.end: "
            "[marker, change]"
        )
    if {**settings.source.options, **in_url}.get("follow") not in (None, False, "false"):
        return (
            "a table cuts recordings, and source.options.follow waits for more: leave follow out, and start streamad "
            "run again after the files and the table have grown"
        )
    return None


def check_out(
    plant: Plant, path: Path, *, is_recording: bool, also_read: str | None = None, option: str = "--out"
) -> None:
    """Raise UsageError if the file ``path`` of ``option`` is the plant's: its config, state, model or message.

    ``is_recording``: it may be one that ``model.recordings`` or the source reads; all else would be read as one.
    ``also_read``: the URL of a further input.
    """
    known = plant.places
    if is_recording:
        known = replace(known, inputs={})
    elif also_read is not None:
        known = replace(known, inputs={**known.inputs, "the input": also_read})
    if (problem := known.problem_of(option, path.absolute())) is not None:
        raise UsageError(f"{option} {problem}")


def check_bridged(plant: Plant, to: str) -> None:
    """Raise UsageError if the URL ``to`` of ``bridge.to`` is a file of the plant other than a recording."""
    if (path := file_path(to)) is not None:
        check_out(plant, plant.base_dir / path, is_recording=True, option="bridge.to")


@asynccontextmanager
async def topics_of(plant: Plant) -> AsyncIterator[Topics | None]:
    """Yield the plant's topics, None if its source has none; then close all connections.

    Raises ConfigError, PluginError, OutputError.
    """
    async with AsyncExitStack() as stack:
        source = source_for(plant)
        stack.push_async_callback(source.close)
        if not isinstance(source, TransactionalSource):
            yield None
            return
        sinks = {**sinks_for(plant), **feedback_sink(plant), **status_sink(plant)}
        for sink in sinks.values():
            stack.push_async_callback(sink.close)
        topics = source.topics(sinks)
        stack.push_async_callback(topics.close)
        yield topics


def merged_errors(findings: Sequence[TopicFinding]) -> list[TopicFinding]:
    """Return ``findings`` with errors of the same text merged into the first of them, which names all topics."""
    merged: dict[str | int, TopicFinding] = {}
    for finding in findings:
        key = finding.text if finding.level == "error" else id(finding)
        first = merged.get(key)
        merged[key] = finding if first is None else first._replace(topic=f"{first.topic}, {finding.topic}")
    return list(merged.values())


def need_web() -> None:
    """Raise PluginError if what the extra ``web`` installs is missing."""
    missing = [name for name in ("starlette", "uvicorn", "argon2") if find_spec(name) is None]
    if missing:
        raise PluginError(f"the page needs {' and '.join(missing)}: pip install 'streamad-monitor[web]'")


def need_notify() -> None:
    """Raise PluginError if what the extra ``notify`` installs for webhooks is missing."""
    missing = [name for name in ("httpx2", "stamina", "standardwebhooks") if find_spec(name) is None]
    if missing:
        raise PluginError(f"notices need {' and '.join(missing)}: pip install 'streamad-monitor[notify]'")


def need_mqtt() -> None:
    """Raise PluginError if what the extra ``mqtt`` installs is missing."""
    if find_spec("paho") is None:
        raise PluginError("the bridge needs paho-mqtt: pip install 'streamad-monitor[mqtt]'")
