"""The page of one stream: its scores over time, each channel's mean and spread, and its sequences."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from markupsafe import Markup

from streamad.types import ChannelSpec
from streamad.web.charts.courses import JUDGED_SIGNS, course_of_means, course_of_scores
from streamad.web.pages.events import EventMark
from streamad.web.rendering import rendered
from streamad.web.store.view import Moments, Place, SeenSequence

_MOST_CHANNELS, _MOST_EVENTS = 24, 30


def stream(
    name: str,
    rows: Sequence[SeenSequence],
    limits: Mapping[tuple[str, str], float],
    moments: Mapping[str, Moments],
    channels: Sequence[ChannelSpec],
    *,
    events: Sequence[EventMark] = (),
    older: Place | None,
) -> Markup:
    """Return the content: scores over time with each version's threshold, mean and spread, then the sequences.

    ``limits``: the lowest score that alerts, by name and version of the model. ``moments``: by id of the sequence.
    ``events``: of the time from the first sequence on. ``older``: behind which place are older ones.
    """
    in_order = list(reversed(rows))
    return rendered(
        "stream.html",
        name=name,
        rows=rows,
        scores=course_of_scores(in_order, limits, events),
        judged_signs=JUDGED_SIGNS,
        n_events=len(events),
        events=list(reversed(events[-_MOST_EVENTS:])),
        means=_courses_of_means(in_order, moments, channels),
        n_more=len(channels) - _MOST_CHANNELS,
        older=older,
    )


def _courses_of_means(
    rows: Sequence[SeenSequence], moments: Mapping[str, Moments], channels: Sequence[ChannelSpec]
) -> list[tuple[ChannelSpec, Markup]]:
    """Return mean and spread of each channel, sequence by sequence; of windows with other channels nothing."""
    n = len(channels)
    known = [
        (one, found)
        for one in rows
        if (found := moments.get(one.id)) is not None and len(found.means) == len(found.spreads) == n
    ]
    drawn = []
    for number, channel in enumerate(channels[:_MOST_CHANNELS] if known else ()):
        pairs = [(one, found.means[number], found.spreads[number]) for one, found in known]
        drawn.append((channel, course_of_means(channel.name, channel.unit, pairs)))
    return drawn
