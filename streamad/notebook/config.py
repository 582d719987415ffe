"""The settings of a model that is fitted in Python, or that lies in a registry without a config."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import yaml
from pydantic import ValidationError
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource

from streamad.errors import InputError
from streamad.learn.registry.manifest import Manifest
from streamad.notebook.sequences import FrameColumns
from streamad.plant import Plant
from streamad.plugins import check_known, error_messages
from streamad.safe_text import one_line
from streamad.settings.plant_yaml import SequenceSettings, Settings
from streamad.settings.yaml_file import SCHEMA, SCHEMA_KEY
from streamad.system.clock import SystemClock

_SOURCE: Final = "recordings.csv"  # no source is read; the settings name one
_REGISTRY: Final = "registry"
_ROWS: Final = re.compile(r"\.(csv|tsv|txt|parquet|pq)(\.gz)?$", re.IGNORECASE)
_DAY_US: Final = 86_400_000_000
_LONGER: Final = 4  # times the longest sequence is the limit, as streamad init writes it
_HEAD: Final = """\
# Written by streamad.Model.plant_yaml. How messages are read (decode) and when sequences end (sequences) depends on the
# source: streamad check tries it, `streamad init SAMPLE --out found.yaml` finds it out.
"""


class GivenSettings(Settings):
    """Settings of the arguments alone: the environment, which overrides a config, must not change what a call says."""

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Take the arguments only."""
        return (init_settings,)


def settings_of(
    channels: Sequence[str],
    units: Sequence[str],
    *,
    model: Mapping[str, Any],
    window: Mapping[str, Any],
    alerts: Mapping[str, Any],
    longest_us: int = 0,
) -> Settings:
    """Return the settings of a model of ``channels`` in ``units``; the sections are those of ``plant.yaml``.

    ``longest_us`` is how long the longest sequence took (0: unknown): ``sequences.max_duration`` leaves such ones
    whole. Raises InputError that names each argument that is wrong.
    """
    content: dict[str, Any] = {
        "channels": [{"name": name, "unit": unit} for name, unit in zip(channels, units, strict=True)],
        "source": {"url": _SOURCE},
        "model": dict(model),
        "window": dict(window),
        "alerts": dict(alerts),
    }
    if _LONGER * longest_us > SequenceSettings().max_duration:
        content["sequences"] = {"max_duration": f"{math.ceil(_LONGER * longest_us / _DAY_US)}d"}
    return _checked(content)


def argument_of(loc: Sequence[int | str]) -> str:
    """Return the argument of ``streamad.fit`` that gives the key at ``loc``."""
    if [*loc[:2]] == ["alerts", "early"]:
        return "early"
    if loc[0] in {"model", "alerts"}:
        loc = loc[1:]
    elif loc[0] == "channels" and loc[-1] == "unit":
        loc = ("units", *loc[1:-1])
    return ".".join(map(str, loc))


def settings_of_version(manifest: Manifest, false_alarm_rate: float) -> Settings:
    """Return the settings that a version was trained with, as far as its manifest has them. Raises InputError."""
    form, early = manifest.window, manifest.early
    window: dict[str, Any] = {
        "length": form.length,
        "longer": form.longer,
        "max_missing": form.max_missing,
        "min_samples": form.min_samples,
    }
    if form.resample_period_us is not None:
        window["resample"] = {"period": f"{form.resample_period_us}us"}
    alerts: dict[str, Any] = {"false_alarm_rate": false_alarm_rate}
    if early is not None:
        alerts["early"] = {"false_alarm_rate": false_alarm_rate, "looks": len(early.looks)}
    record = manifest.detector
    model = {"name": manifest.name, "detector": record.kind, "options": record.options, "seed": manifest.seed}
    settings = settings_of(
        [channel.name for channel in manifest.channels],
        [channel.unit for channel in manifest.channels],
        model=model,
        window=window,
        alerts=alerts,
    )
    held = [channel.name for channel in manifest.channels if channel.fill == "hold"]
    if not held:
        return settings
    fills = tuple(each.model_copy(update={"fill": "hold"}) if each.name in held else each for each in settings.channels)
    return settings.model_copy(update={"channels": fills})


def user_cache() -> Path:
    """Return the folder for copies of versions from object stores: in the user's cache, for there is no config."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "streamad"


def plant_of(settings: Settings, folder: Path) -> Plant:
    """Return the plant of ``settings`` whose relative paths mean ``folder``. Raises PluginError, ConfigError."""
    check_known("detectors", settings.model.detector)
    return Plant(settings, folder, SystemClock())


def plant_yaml(
    settings: Settings, source: str, registry: str, columns: FrameColumns, sections: Mapping[str, Any]
) -> str:
    """Return a config of ``settings`` that reads ``source`` and serves from ``registry``. Raises InputError.

    Rows of a file are read by ``columns``; ``sections`` go over what it has.
    """
    content = _content(settings, source, registry)
    if _ROWS.search(source.partition("?")[0]):
        fields = {"sequence": columns.id, "time": columns.time, "end": None, "values": None}
        content["decode"] = {"fields": fields, "default_stream": settings.name}
    for name, given in sections.items():
        there = content.get(name)
        content[name] = {**there, **given} if isinstance(there, dict) and isinstance(given, Mapping) else given
    _checked(content)
    return f"{_HEAD}{SCHEMA_KEY}: {SCHEMA}\n{_dumped(content)}"


def columns_of(settings: Settings) -> FrameColumns:
    """Return the columns of id and time by which ``settings`` read a file of rows; else those of any frame."""
    fields, usual = settings.decode.fields, FrameColumns()
    if fields is None or not _ROWS.search(settings.source.url.partition("?")[0]):
        return usual
    named = (fields.sequence, fields.time)
    id, time = (each if isinstance(each, str) else None for each in named)
    return FrameColumns(id or usual.id, time or usual.time)


def settings_text(settings: Settings) -> str:
    """Return the settings that a model's verdicts depend on, for ``settings_from``: nothing of its source."""
    return _dumped(_content(settings, _SOURCE, _REGISTRY))


def settings_from(text: str) -> Settings:
    """Return the settings in what ``settings_text`` gave. Raises InputError."""
    try:
        content = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise InputError(f"the settings are no YAML: {one_line(str(error))}") from error
    if not isinstance(content, dict):
        raise InputError("the settings are no mapping of sections")
    return _checked(content)


def _checked(content: dict[str, Any]) -> Settings:
    try:
        return GivenSettings(**content)
    except ValidationError as error:
        said = (f"{argument_of(loc)}: {message}" for loc, _, message in error_messages(error, GivenSettings))
        raise InputError("; ".join(said)) from error


def _dumped(content: dict[str, Any]) -> str:
    try:
        return yaml.safe_dump(content, sort_keys=False, allow_unicode=True)
    except yaml.YAMLError as error:
        raise InputError(f"the sections hold what YAML cannot: {one_line(str(error))}") from error


def _content(settings: Settings, source: str, registry: str) -> dict[str, Any]:
    form, model = settings.window, settings.model
    window: dict[str, Any] = {"length": form.length, "longer": form.longer}
    if form.resample is not None:
        window["resample"] = {"period": f"{form.resample.period}us"}
    window |= {"max_missing": form.max_missing, "min_samples": form.min_samples}
    alerts: dict[str, Any] = {"false_alarm_rate": settings.alerts.false_alarm_rate}
    if (early := settings.alerts.early) is not None:
        looks = early.looks if isinstance(early.looks, int) else [f"{each}us" for each in early.looks]
        alerts["early"] = {"false_alarm_rate": early.false_alarm_rate, "looks": looks}
    limit_us = settings.sequences.max_duration
    return {
        "name": settings.name,
        "source": {"url": source},
        "channels": [
            {
                "name": each.name,
                **({"unit": each.unit} if each.unit else {}),
                **({"fill": "hold"} if each.fill == "hold" else {}),
            }
            for each in settings.channels
        ],
        **({"sequences": {"max_duration": _duration(limit_us)}} if limit_us > SequenceSettings().max_duration else {}),
        "window": window,
        "model": {
            "name": model.name,
            "registry": registry,
            "detector": model.detector,
            "options": dict(model.options),
            "seed": model.seed,
            "backend": model.backend,
        },
        "alerts": alerts,
    }


def _duration(duration_us: int) -> str:
    return f"{duration_us // _DAY_US}d" if duration_us % _DAY_US == 0 else f"{duration_us}us"
