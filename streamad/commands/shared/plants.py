"""Loads and checks the plant of a command, and finds the lines of its config that problems are about."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from streamad.errors import ConfigError, Problem, StreamadError, UsageError
from streamad.learn.feedback.place import check_feedback, feedback_url
from streamad.outputs import places
from streamad.outputs.places import misplaced, places_of
from streamad.plant import Plant
from streamad.runtime.wiring import sink_for, source_for, status_sink
from streamad.settings.places import place_key, sink_urls
from streamad.settings.plant_yaml import load_settings
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
    return places.located(problems, _configs_in_use[0] if _configs_in_use else None)


def check_parts(plant: Plant) -> list[Problem]:
    """Return problems beyond the config's keys.

    Problems of decoder, plug-ins and their options, and outputs whose place is also that of another output or an input.
    """
    from streamad.ingest.decode import Decoder  # noqa: PLC0415 - a command that checks no parts needs none of them
    from streamad.learn.parts import check_references, detector_for  # noqa: PLC0415

    settings = plant.settings
    parts: dict[str, Callable[[], Any]] = {
        "decode": lambda: Decoder(settings.decode, settings.channels, settings.route_field),
        "source.url": lambda: source_for(plant),
        "model.detector": lambda: detector_for(plant),
        "model.references": lambda: check_references(settings.model),
    }
    for role, url in sink_urls(settings).items():
        parts[f"sinks.{role}"] = partial(sink_for, plant, role, url)
    parts["sinks.status"] = partial(status_sink, plant)
    if feedback_url(settings) is not None:
        parts[place_key("feedback")] = partial(check_feedback, plant)
    problems: list[Problem] = []
    for where, make in parts.items():
        try:
            make()
        except ConfigError as error:
            problems += error.problems
        except StreamadError as error:
            problems.append(Problem(where, str(error)))
    return problems + misplaced(plant)


def check_out(
    plant: Plant, path: Path, *, is_recording: bool, also_read: str | None = None, option: str = "--out"
) -> None:
    """Raise UsageError if the file ``path`` of ``option`` is the plant's: its config, state, model or message.

    ``is_recording``: it may be one that ``model.recordings`` or the source reads; all else would be read as one.
    ``also_read``: the URL of a further input.
    """
    known = places_of(plant)
    if is_recording:
        known = replace(known, inputs={})
    elif also_read is not None:
        known = replace(known, inputs={**known.inputs, "the input": also_read})
    if (problem := known.problem_of(option, path.absolute())) is not None:
        raise UsageError(f"{option} {problem}")
