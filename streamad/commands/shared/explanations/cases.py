"""A judged sequence with all that is known of it, and the normal band and scores of the version that judged."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

import numpy as np

from streamad.errors import StreamadError
from streamad.ingest.windowing import shown_share
from streamad.judge.calibration import Calibration
from streamad.judge.explanations.envelope import Clock, Envelope
from streamad.learn.parts import registry_of
from streamad.messages import Attribution, ModelRef, unpacked_values
from streamad.messages import Window as WindowMessage
from streamad.pictures.content import Courses, Picture, Scores, picture_of, scores_of
from streamad.pictures.facts import Facts
from streamad.plant import Plant
from streamad.settings.plant_yaml import Settings
from streamad.types import ChannelSpec, Window


@dataclass(frozen=True, slots=True, eq=False)
class Normal:
    """What a version of a model knows of normal sequences; None if it is gone, and ``missing`` says why.

    ``channels`` are the names of the channels of the envelope.
    """

    envelope: Envelope | None = None
    channels: tuple[str, ...] = ()
    calibration: Calibration | None = None
    missing: str | None = None


class Normals:
    """The normal bands and scores of a plant's versions, each read once, without loading a model."""

    def __init__(self, plant: Plant) -> None:
        self._registry = registry_of(plant)
        self._found: dict[tuple[ModelRef, float | None], Normal] = {}

    def of(self, facts: Facts) -> Normal:
        """Return what the version that judged knows; never raises StreamadError."""
        if facts.model is None:
            return Normal(missing="no model judged it: there is no normal band and no score")
        return self.of_model(facts.model, facts.rate)

    def of_model(self, model: ModelRef, rate: float | None) -> Normal:
        """Return what a version knows; never raises StreamadError."""
        key = model, rate
        if key not in self._found:
            self._found[key] = self._read(*key)
        return self._found[key]

    def _read(self, model: ModelRef, rate: float | None) -> Normal:
        name, version = model.name, model.version
        try:
            channels = self._registry.manifest(name, version).channels
            envelope = self._registry.envelope(name, version)
            calibration = Calibration.from_terms(self._registry.calibration_terms(name, version), rate)
        except StreamadError as error:
            gone = "no normal band and no calibration scores are drawn"
            return Normal(missing=f"model {name} {version} cannot be read any more, so {gone}: {error}")
        return Normal(envelope, tuple(channel.name for channel in channels), calibration)


@dataclass(frozen=True, slots=True, eq=False)
class Case:
    """A judged sequence; ``courses`` are the readings of its window, None if it is gone."""

    facts: Facts
    attribution: Attribution | None
    courses: Courses | None

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
    return Courses(channels, values, message.length, message.step, shown_of(facts, settings))


def courses_of_window(window: Window, facts: Facts, settings: Settings) -> Courses:
    """Return the readings of a judged window, without its padding."""
    values = window.values[:, : window.length]
    return Courses(settings.channel_specs, values, window.length, shown=shown_of(facts, settings))
