"""The pages of streams: all of them, and one with its scores over time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from urllib.parse import quote, urlencode

from streamad.pictures.html import Html, element
from streamad.types import ChannelSpec
from streamad.web.pages.alerts import place_query
from streamad.web.pages.events import EventMark
from streamad.web.pages.layout import decision_of, rows_table, state_of, stream_link, when
from streamad.web.pages.now import decision_row
from streamad.web.pages.stream_charts import JUDGED_SIGNS, course_of_means, course_of_scores
from streamad.web.rendering import JUDGED, count
from streamad.web.store.view import Moments, Place, SeenSequence

_EACH_DOT = (
    "Each dot is a sequence, evenly far apart whatever the pauses; below: when some of them ended (UTC). Dashed: the "
    "score from which its model's version alerts; strips: versions. ▲: an alert. Upright lines: events, before the "
    "first sequence that was judged after them. "
)
_EACH_MEAN = "Dot: mean of the judged window; line: one standard deviation to both sides. ▲: an alert."
_MOST_CHANNELS, _MOST_EVENTS = 24, 30
_JUDGED = "; ".join(f"{sign} {JUDGED[judgement]}" for judgement, sign in JUDGED_SIGNS.items())
_HEADS = ("ended (UTC)", "sequence", "decision", "score", "p", "why", "judged")


def streams(rows: Sequence[tuple[str, SeenSequence | None, int]], *, are_all: bool) -> list[Html]:
    """Return the content: name, last sequence and number of alerts among the last ones of each stream."""
    if not rows:
        return [element("h1", "Streams"), element("p", "No stream yet: nothing has been judged.")]
    cells = [
        (stream_link(name), when(last.end_us) if last else "", decision_of(last) if last else "", str(n_alerts))
        for name, last, n_alerts in rows
    ]
    heads = ("stream", "last ended (UTC)", "last decision", "alerts in the last 50")
    parts = [element("h1", count(len(rows), "stream") if are_all else f"More than {count(len(rows), 'stream')}")]
    if not are_all:
        parts.append(element("p", f"Listed are the {len(rows)} whose sequences ended last.", class_="soft"))
    return [*parts, rows_table("Streams, the newest first", heads, cells)]


def stream(
    name: str,
    rows: Sequence[SeenSequence],
    limits: Mapping[tuple[str, str], float],
    moments: Mapping[str, Moments],
    channels: Sequence[ChannelSpec],
    *,
    events: Sequence[EventMark] = (),
    older: Place | None,
) -> list[Html]:
    """Return the content: scores over time with each version's threshold, mean and spread, then the sequences.

    ``limits``: the lowest score that alerts, by name and version of the model. ``moments``: by id of the sequence.
    ``events``: of the time from the first sequence on. ``older``: behind which place are older ones.
    """
    if not rows:
        return [element("h1", name or "Stream"), element("p", "No sequence of this stream was read.")]
    in_order = list(reversed(rows))
    parts = [element("h1", name), element("h2", "Scores"), course_of_scores(in_order, limits, events)]
    parts.append(element("p", f"{_EACH_DOT}{_JUDGED}.", class_="soft"))
    if events:
        told = [(when(one.at_us), one.word, one.said) for one in reversed(events[-_MOST_EVENTS:])]
        table = rows_table("Events, the newest first", ("made (UTC)", "kind", "what happened"), told)
        summary = element("summary", count(len(events), "event") + " of this time")
        parts.append(element("details", summary, table, data_fold="events"))
    parts += _courses_of_means(in_order, moments, channels)
    listed = [(*decision_row(one), _judged(one)) for one in rows]
    parts += [element("h2", "Sequences"), rows_table("Sequences, the newest first", _HEADS, listed)]
    if older is not None:
        query = urlencode({"name": name, **place_query(older)}, quote_via=quote)
        parts.append(element("p", element("a", "older ones", href=f"/stream?{query}")))
    return parts


def _judged(one: SeenSequence) -> Html:
    """Return what a person has said; of a sequence without an alert only if somebody has."""
    return state_of(one) if one.is_alert or one.judgement in JUDGED_SIGNS else Html("")


def _courses_of_means(
    rows: Sequence[SeenSequence], moments: Mapping[str, Moments], channels: Sequence[ChannelSpec]
) -> list[Html]:
    """Return mean and spread of each channel, sequence by sequence; of windows with other channels nothing."""
    n = len(channels)
    known = [
        (one, found)
        for one in rows
        if (found := moments.get(one.id)) is not None and len(found.means) == len(found.spreads) == n
    ]
    if not known:
        return []
    parts = [element("h2", "Mean and spread")]
    for number, channel in enumerate(channels[:_MOST_CHANNELS]):
        pairs = [(one, found.means[number], found.spreads[number]) for one, found in known]
        head = element("h3", f"{channel.name} ", element("small", channel.unit))
        parts.append(element("figure", head, course_of_means(channel.name, channel.unit, pairs)))
    said = _EACH_MEAN if n <= _MOST_CHANNELS else f"{_EACH_MEAN} {count(n - _MOST_CHANNELS, 'more channel')} not drawn."
    return [*parts, element("p", said, class_="soft")]
