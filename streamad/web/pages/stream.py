"""The page of all streams, and that of one: its scores over time, each channel's mean and spread, its sequences."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from markupsafe import Markup

from streamad.messages import ModelRef
from streamad.types import ChannelSpec
from streamad.web.charts.courses import JUDGED_SIGNS, course_of_means, course_of_scores
from streamad.web.pages.events import EventMark, event_marks
from streamad.web.rendering import rendered
from streamad.web.site import Site
from streamad.web.store.view import Moments, Place, SeenSequence

_STREAMS, _PAGE, _LAST = 500, 120, 50
_MOST_CHANNELS, _MOST_EVENTS, _MOST_READ = 24, 30, 5_000


def streams(site: Site) -> Markup:
    """Return the content of the page of all streams."""
    names = site.view.streams(_STREAMS + 1)
    rows = [
        (name, next(iter(site.view.of_stream(name, 1)), None), site.view.n_alerts(name, _LAST))
        for name in names[:_STREAMS]
    ]
    return rendered("streams.html", rows=rows, are_all=len(names) <= _STREAMS)


def stream(site: Site, name: str, behind: Place | None) -> Markup:
    """Return the content: scores over time with each version's threshold, mean and spread, then the sequences.

    They lie ``behind`` a place in the list of the stream's sequences.
    """
    found = site.view.of_stream(name, _PAGE + 1, behind=behind)
    rows = found[:_PAGE]
    in_order = list(reversed(rows))
    events = _events_of(site, name, rows, is_newest=behind is None)
    channels = site.plant.settings.channel_specs
    return rendered(
        "stream.html",
        name=name,
        rows=rows,
        scores=course_of_scores(in_order, _limits(site, rows), events),
        judged_signs=JUDGED_SIGNS,
        n_events=len(events),
        events=list(reversed(events[-_MOST_EVENTS:])),
        means=_courses_of_means(in_order, site.view.moments([one.id for one in rows]), channels),
        n_more=len(channels) - _MOST_CHANNELS,
        older=Place.behind(rows[-1]) if len(found) > _PAGE else None,
    )


def _limits(site: Site, rows: Sequence[SeenSequence]) -> dict[tuple[str, str], float]:
    """Return the lowest score that alerts, by name and version of the models that judged."""
    limits = {}
    for model, version in {(one.model, one.version) for one in rows}:
        if model and version:
            calibration = site.cases.normals.of_model(ModelRef(model, version), site.rate).calibration
            if calibration is not None:
                limits[model, version] = calibration.alert_score(site.rate)
    return limits


def _events_of(site: Site, name: str, rows: Sequence[SeenSequence], *, is_newest: bool) -> list[EventMark]:
    """Return the marks of the time in which ``rows``, the newest first, were judged; of the newest: until now."""
    judged_us = [one.created_us or one.end_us or 0 for one in rows]
    if not judged_us:
        return []
    models = {one.model for one in rows}
    return event_marks(
        one
        for one in site.view.events(_MOST_READ, since_us=min(judged_us))
        if one.stream in (None, name)
        and (one.model is None or one.model in models)
        and (is_newest or one.created_us <= max(judged_us))
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
