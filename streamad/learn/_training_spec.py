"""What a worker tells the trainer it starts, as one line of JSON."""

from __future__ import annotations

__all__ = ["LOST_LEASE_CODE", "TrainerSpec", "settings_from_json", "settings_to_json"]

import json

import msgspec
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource

from streamad.errors import ConfigError, Problem
from streamad.learn.lease import LeaseTimes
from streamad.learn.requests import TrainingRequest
from streamad.settings import Settings

LOST_LEASE_CODE = 75
"""Exit code of a trainer that was stopped for so long that another one has its lease (EX_TEMPFAIL of sysexits.h)."""


class TrainerSpec(msgspec.Struct, frozen=True, kw_only=True):
    """One training: for which model of which plant, and why.

    ``posted``: the file of the request, taken on only while it is there. ``resumes``: token of the training that was
    interrupted, taken up only while nobody else has done so.
    """

    settings: str
    base_dir: str
    model: str
    request: TrainingRequest
    posted: str | None = None
    resumes: str | None = None
    times: LeaseTimes = LeaseTimes()


class _Told(Settings):
    """Settings that come from their JSON alone: the environment has had its say when they were first read."""

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Leave the environment out."""
        return (init_settings,)


def settings_to_json(settings: Settings) -> str:
    """Return the settings for another process; secrets are not in them, only their places.

    Raises ConfigError where an option is of a kind that JSON would change, such as a date.
    """
    try:
        text = settings.model_dump_json()
        is_same = settings_from_json(text) == settings
    except ValueError:
        is_same = False
    if not is_same:
        message = "holds values that JSON has no form for (dates, .inf, .nan): put them in quotes"
        raise ConfigError([Problem("options of the source, the sinks or the model", message)])
    return text


def settings_from_json(text: str) -> Settings:
    """Return what ``settings_to_json`` was given, whatever the environment says."""
    told = _Told(**json.loads(text))
    return Settings.model_construct(**{name: getattr(told, name) for name in Settings.model_fields})
