"""Why a model finds a sequence odd, or not: what ``Model.explain`` returns.

Shapes: C channels, T points.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import Literal

from streamad.errors import DetectorError
from streamad.ingest.windowing import shown_share
from streamad.judge.calibration import Calibration
from streamad.judge.envelope import Envelope
from streamad.judge.explainer import attribution_by
from streamad.judge.scoring import ModelInService
from streamad.judge.verdicts import alert_of, p_text
from streamad.language import percent
from streamad.messages import Attribution, ChannelSegment, ChannelShare, NearestSequence, Verdict
from streamad.notebook.arguments import path as a_path
from streamad.pictures.content import Courses, picture_of
from streamad.pictures.drawing import check_extra, drawn
from streamad.pictures.facts import Facts, headline
from streamad.settings.plant_yaml import Settings
from streamad.types import FloatArray, Window

_LEAST_SHARE = 0.01


@dataclass(frozen=True, slots=True)
class Plot:
    """A picture that a notebook shows by itself; ``save`` writes it."""

    png: bytes = field(repr=False)
    svg: bytes = field(repr=False)

    def _repr_png_(self) -> bytes:
        return self.png

    def save(self, path: str | Path) -> Path:
        """Write the picture as PNG, or as SVG if ``path`` ends so, and return its path. Raises OSError."""
        into = a_path("path", path, "the path of a file, such as 'why.png'")
        into.write_bytes(self.svg if into.suffix.lower() == ".svg" else self.png)
        return into


@dataclass(frozen=True, slots=True, eq=False)
class Reasons:
    """Why one sequence has its score. ``repr`` says it in words; ``plot`` draws it.

    ``verdict`` and ``attribution`` are the messages that ``streamad run`` writes for it.
    """

    verdict: Verdict
    attribution: Attribution
    _courses: Courses
    _rate: float
    _envelope: Envelope | None
    _calibration: Calibration

    @property
    def channels(self) -> dict[str, float]:
        """Each channel's share of the score (they sum to 1, or are all 0), the largest first."""
        return {each.channel: each.share for each in self.attribution.channels}

    @property
    def shares(self) -> list[ChannelShare]:
        """The same with units."""
        return self.attribution.channels

    @property
    def segments(self) -> list[ChannelSegment]:
        """When the channels with the largest shares depart from normal, in words: ``segment.text``."""
        return self.attribution.segments

    @property
    def nearest(self) -> list[NearestSequence]:
        """The nearest normal training sequences: at most three, the nearest first."""
        return self.attribution.nearest

    def plot(self) -> Plot:
        """Draw the leading channels over the normal band, and where the score lies.

        Needs matplotlib (``pip install 'streamad-monitor[plots]'``). Raises UsageError without it.
        """
        check_extra()
        picture = picture_of(
            self._facts,
            self._courses,
            attribution=self.attribution,
            envelope=self._envelope,
            calibration=self._calibration,
        )
        kinds: tuple[Literal["png"], Literal["svg"]] = ("png", "svg")
        return Plot(*(drawn(picture, kind) for kind in kinds))

    @property
    def _facts(self) -> Facts:
        return Facts.of(self.verdict, self._rate)

    def __repr__(self) -> str:
        verdict = self.verdict
        lines = [headline(self._facts, self.attribution)]
        if verdict.score is not None and verdict.p_value is not None:
            lines.append(f"score {verdict.score:.4g}, p {p_text(verdict.p_value)}, alert at {self._rate:g} or less")
        for each in self.shares:
            if each.share >= _LEAST_SHARE:
                words = "; ".join(one.text for one in self.segments if one.channel == each.channel)
                lines.append(f"{percent(each.share):>5}  {words or each.channel}")
        lines += [f"near   {each.sequence} (normal, distance {each.distance:.2g})" for each in self.nearest]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        return f"<pre>{escape(repr(self))}</pre>"


def reasons_of(
    model: ModelInService, verdict: Verdict, terms: FloatArray, window: Window, settings: Settings
) -> Reasons:
    """Return why ``model`` gave these terms [K] to ``window``. Raises DetectorError for a sequence without a score."""
    if verdict.score is None:
        raise DetectorError(f"sequence {verdict.sequence!r} has no score: {verdict.detail}")
    rate = settings.alerts.false_alarm_rate
    span_us = round((verdict.end_time - verdict.start_time).total_seconds() * 1e6)
    shown = shown_share(settings.window, verdict.n_samples, span_us)
    courses = Courses(settings.channel_specs, window.values[:, : window.length], window.length, shown)
    attribution = attribution_by(model, alert_of(verdict, settings.alerts), terms, window, settings)
    return Reasons(verdict, attribution, courses, rate, model.envelope, model.calibration)
