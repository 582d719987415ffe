"""The places of a plant's outputs: none may be another's, an input's or the config's."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from streamad.errors import ConfigError, Problem
from streamad.learn.feedback.place import feedback_url
from streamad.plant import Plant
from streamad.settings.places import (
    LEARNER_EVENTS,
    Places,
    file_path,
    folders_of,
    held_files,
    input_urls,
    learner_events_url,
    place_key,
    sink_urls,
)
from streamad.settings.plant_yaml import located_problems


def misplaced(plant: Plant) -> list[Problem]:
    """Return the outputs, feedback and folders whose place is also another's, an input's or the config's."""
    return places_of(plant).problems()


def places_of(plant: Plant) -> Places:
    """Return all places that the config names."""
    settings = plant.settings
    by_key = {place_key(role): url for role, url in sink_urls(settings).items()}
    if (feedback := feedback_url(settings)) is not None:
        by_key[place_key("feedback")] = feedback
    if (events := learner_events_url(settings)) is not None and file_path(events) is not None:
        by_key[LEARNER_EVENTS] = events
    if settings.notify.undelivered is not None:
        by_key["notify.undelivered"] = settings.notify.undelivered
    return Places(
        by_key,
        input_urls(settings),
        plant.base_dir,
        plant.config,
        folders_of(settings, plant.base_dir),
        held_files(settings, plant.base_dir),
    )


def check_feedback_place(plant: Plant) -> None:
    """Raise ConfigError if the place of feedback is one that ``streamad run`` refuses: nothing may be written there."""
    if problems := [problem for problem in misplaced(plant) if problem.path == place_key("feedback")]:
        raise ConfigError(located(problems, plant.config), source=str(plant.config))


def located(problems: Sequence[Problem], config: Path | None) -> list[Problem]:
    """Return ``problems`` with the lines of their keys in the file ``config``, as they are without one."""
    try:
        return list(problems) if config is None else list(located_problems(problems, config))
    except ConfigError:  # the file has changed since
        return list(problems)
