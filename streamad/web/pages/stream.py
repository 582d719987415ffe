"""The page of all streams, and that of one: its scores over time, each channel's mean and spread, its sequences."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from markupsafe import Markup

from streamad.language import asking, catalogued, gettext
from streamad.types import ChannelSpec
from streamad.web.charts.courses import JUDGED_SIGNS, course_of_means, course_of_scores, has_place
from streamad.web.charts.zoom import Span, Zoom, address, time_field, time_text, zoom_of
from streamad.web.pages.events import EventMark, event_marks
from streamad.web.rendering import rendered
from streamad.web.site import Site
from streamad.web.store.view import Moments, Place, SeenSequence

_STREAMS, _PAGE, _LAST = 500, 120, 50
_MOST_DRAWN, _MOST_POINTS = 600, 5_400  # of all pictures of a page
_MOST_USUAL, _FEWEST_USUAL = 400, 20
_DAY_US = 86_400_000_000
_LATELY = {catalogued("last day"): 1, catalogued("last week"): 7, catalogued("last month"): 30}
_MOST_CHANNELS, _MOST_EVENTS, _MOST_READ = 24, 30, 5_000


def streams(site: Site) -> Markup:
    """Return the content of the page of all streams."""
    names = site.view.streams(_STREAMS + 1)
    rows = [
        (name, next(iter(site.view.of_stream(name, 1)), None), site.view.n_alerts(name, _LAST))
        for name in names[:_STREAMS]
    ]
    return rendered("streams.html", rows=rows, are_all=len(names) <= _STREAMS)


def stream(site: Site, name: str, behind: Place | None, span: Span) -> Markup:
    """Return the content: scores over time with each version's threshold, mean and spread, then the sequences.

    They lie ``behind`` a place in the list of the stream's sequences, and ended within ``span``. Of a span more
    sequences are drawn than are listed.
    """
    channels = site.plant.settings.channel_specs
    n_pictures = 1 + min(len(channels), _MOST_CHANNELS)
    most = min(_MOST_DRAWN, max(_PAGE, _MOST_POINTS // n_pictures)) if span.is_part else _PAGE
    since_us, until_us = span.within
    found = site.view.of_stream(name, most + 1, behind=behind, since_us=since_us, until_us=until_us)
    drawn = found[:most]
    rows = drawn[:_PAGE]
    in_order = list(reversed(drawn))
    events = _events_of(site, name, drawn, is_newest=behind is None and span.until_us is None)
    scored = [one for one in in_order if has_place(one)]
    moments = site.view.moments([one.id for one in drawn])
    known = [one for one in in_order if one.id in moments]
    usual = _usual_means(site, name, len(channels))
    return rendered(
        "stream.html",
        name=name,
        rows=rows,
        n_drawn=len(drawn) if len(found) > len(drawn) and span.is_part else None,
        zoom=_zoom(site, name, in_order, span, is_all=behind is None and len(found) <= most),
        scores=course_of_scores(in_order, _limits(site, drawn), events),
        score_times=_times(scored),
        judged_signs=JUDGED_SIGNS,
        n_events=len(events),
        events=list(reversed(events[-_MOST_EVENTS:])),
        means=_courses_of_means(known, moments, channels, usual),
        mean_times=_times(known),
        n_usual=None if usual is None else usual.n,
        n_more=len(channels) - _MOST_CHANNELS,
        kept=address("/stream", {"name": name, **span.given}),
        older=Place.behind(rows[-1]) if len(found) > len(rows) else None,
    )


def _times(rows: Sequence[SeenSequence]) -> str:
    """Return when sequences ended, in seconds since 1970: what a drag over their picture chooses."""
    return ",".join(f"{(one.end_us or 0) / 1e6:.0f}" for one in rows)


def _zoom(site: Site, name: str, in_order: Sequence[SeenSequence], span: Span, *, is_all: bool) -> Zoom | None:
    """Return the ways to other ranges of time; None if nothing was ever judged there."""
    newest = next(iter(site.view.of_stream(name, 1)), None)
    if newest is None:
        return None
    last_us = newest.end_us or 0
    ends = [one.end_us or 0 for one in in_order] or [last_us]
    first = ends[0] if span.since_us is None else span.since_us
    last = ends[-1] if span.until_us is None else span.until_us
    whole = (first if is_all and not span.is_part else 0.0, max(last_us, last))
    zoom = zoom_of("/stream", {"name": name}, (first, last), whole, time_text, is_part=span.is_part)
    lately = {
        gettext(word): address("/stream", {"name": name}, (time_text(last_us - days * _DAY_US), time_text(last_us)))
        for word, days in _LATELY.items()
    }
    zone = asking().zone
    return replace(
        zoom,
        steps={**zoom.steps, **lately},
        fields=(time_field(first), time_field(last)),
        unit="UTC" if zone is None else zone.key,
    )


class Usual(NamedTuple):
    """From where to where the means of each channel lie in ``n`` normal sequences."""

    low: list[float]
    high: list[float]
    n: int


def _usual_means(site: Site, name: str, n_channels: int) -> Usual | None:
    """Return where the middle 90 % of the latest normal sequences' means lie; None of too few."""
    normals = [
        one.id for one in site.view.of_stream(name, _MOST_USUAL) if one.decision == "normal" and not one.is_alert
    ]
    found = [each.means for each in site.view.moments(normals).values() if len(each.means) == n_channels]
    if len(found) < _FEWEST_USUAL:
        return None
    low, high = np.quantile(np.array(found), (0.05, 0.95), axis=0)
    return Usual(low.tolist(), high.tolist(), len(found))


def _limits(site: Site, rows: Sequence[SeenSequence]) -> dict[tuple[str, str], float]:
    """Return the lowest score that alerts, by name and version of the models that judged."""
    limits = {}
    for model, version in {(one.model, one.version) for one in rows}:
        if model and version and (limit := site.cases.limit(model, version, site.rate)) is not None:
            limits[model, version] = limit
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
    rows: Sequence[SeenSequence],
    moments: Mapping[str, Moments],
    channels: Sequence[ChannelSpec],
    usual: Usual | None,
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
        band = None if usual is None else (usual.low[number], usual.high[number])
        drawn.append((channel, course_of_means(channel.name, channel.unit, pairs, band)))
    return drawn
