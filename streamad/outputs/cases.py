"""A judged sequence with all that is known of it, and the normal band and scores of the version that judged."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from functools import lru_cache

import numpy as np

from streamad.errors import StreamadError
from streamad.ingest.windowing import shown_share
from streamad.judge.calibration import Calibration, certifiable_rate
from streamad.judge.envelope import Clock, Envelope
from streamad.learn.parts import registry_of
from streamad.messages import Attribution, ModelRef, unpacked_values
from streamad.messages import Window as WindowMessage
from streamad.pictures.content import Courses, Picture, Scores, picture_of, scores_of
from streamad.pictures.facts import Facts
from streamad.plant import Plant
from streamad.settings.plant_yaml import Settings
from streamad.types import ChannelSpec, FloatArray, Window

_MOST_VERSIONS = 64


@dataclass(frozen=True, slots=True, eq=False)
class Normal:
    """What a version of a model knows of normal sequences; None if it is gone, and ``missing`` says why.

    ``channels`` are the names of the channels of the envelope.
    """

    envelope: Envelope | None = None
    channels: tuple[str, ...] = ()
    calibration: Calibration | None = None
    missing: str | None = None


@dataclass(frozen=True, slots=True, eq=False)
class _Version:
    """What was read of a version; ``calibrations``: by whether the rate is below the one that they certify."""

    envelope: Envelope | None
    channels: tuple[str, ...]
    terms: FloatArray
    calibrations: dict[bool, Calibration]


class Normals:
    """The normal bands and scores of a plant's versions, without loading a model.

    Each version is read once, at most 64 are kept; one that cannot be read is tried again when it is asked for.
    """

    def __init__(self, plant: Plant) -> None:
        self._registry = registry_of(plant)
        self._version = lru_cache(_MOST_VERSIONS)(self._read)

    def of(self, facts: Facts) -> Normal:
        """Return what the version that judged knows; never raises StreamadError."""
        if facts.model is None:
            return Normal(missing="no model judged it: there is no normal band and no score")
        return self.of_model(facts.model, facts.rate)

    def of_model(self, model: ModelRef, rate: float | None) -> Normal:
        """Return what a version knows; never raises StreamadError."""
        try:
            version = self._version(model)
            is_below = rate is not None and rate < certifiable_rate(len(version.terms))
            calibration = version.calibrations.get(is_below)
            if calibration is None:
                calibration = version.calibrations[is_below] = Calibration.from_terms(version.terms, rate)
        except StreamadError as error:
            gone = "no normal band and no calibration scores are drawn"
            return Normal(missing=f"model {model.name} {model.version} cannot be read any more, so {gone}: {error}")
        return Normal(version.envelope, version.channels, calibration)

    def _read(self, model: ModelRef) -> _Version:
        """Read a version. Raises StreamadError."""
        name, number = model.name, model.version
        channels = tuple(channel.name for channel in self._registry.manifest(name, number).channels)
        envelope, terms = self._registry.envelope(name, number), self._registry.calibration_terms(name, number)
        return _Version(envelope, channels, terms, {})


@dataclass(frozen=True, slots=True, eq=False)
class Case:
    """A judged sequence; ``courses`` are the readings of its window, None if it is gone; ``missing`` may say why."""

    facts: Facts
    attribution: Attribution | None
    courses: Courses | None
    missing: str | None = None

    def scores(self, normal: Normal) -> Scores | None:
        """Return where the score lies among those of the calibration."""
        return scores_of(self.facts, normal.calibration)

    def picture(self, normal: Normal, clock: Clock | None = None) -> Picture | None:
        """Return what to draw, the normal band on ``clock`` (``picture_of``); None without a window."""
        if self.courses is None:
            return None
        notes = [] if normal.missing is None else [normal.missing]
        envelope = normal.envelope
        if envelope is not None and normal.channels != tuple(channel.name for channel in self.courses.channels):
            notes.append("the model has other channels than this window, so no normal band is drawn")
            envelope = None
        return picture_of(
            self.facts,
            self.courses,
            attribution=self.attribution,
            envelope=envelope,
            calibration=normal.calibration,
            notes=notes,
            clock=clock,
        )


def shown_of(facts: Facts, settings: Settings) -> float:
    """Return the share of the sequence's time that its window holds."""
    span_us = round((facts.end_time - facts.start_time) / timedelta(microseconds=1))
    return shown_share(settings.window, facts.n_samples, span_us)


def courses_of_message(message: WindowMessage, facts: Facts, settings: Settings) -> Courses:
    """Return the readings that a message of the role ``windows`` holds. Raises ValueError if it is malformed."""
    if len(message.units) != len(message.channels):
        raise ValueError(f"window {message.verdict_id}: {len(message.channels)} channels, {len(message.units)} units")
    channels = tuple(ChannelSpec(name, unit) for name, unit in zip(message.channels, message.units, strict=True))
    values = unpacked_values(message)
    if not channels or not np.isfinite(values).all():
        what = "it has no channels" if not channels else "a value is not finite"
        raise ValueError(f"window {message.verdict_id}: {what}")
    return Courses(channels, values, message.length, shown=shown_of(facts, settings))


def courses_of_window(window: Window, facts: Facts, settings: Settings) -> Courses:
    """Return the readings of a judged window, without its padding."""
    values = window.values[:, : window.length]
    return Courses(settings.channel_specs, values, window.length, shown=shown_of(facts, settings))
