"""The page of one sequence: what was found, the curves over the normal band, why, and what people say of it."""

from __future__ import annotations

import io
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple
from urllib.parse import quote

import numpy as np
from markupsafe import Markup

from streamad.judge.envelope import Clock
from streamad.judge.verdicts import place
from streamad.language import Words, catalogued, gettext, percent
from streamad.pictures.content import Panel, Picture
from streamad.pictures.drawing import drawn, has_plots
from streamad.pictures.facts import MARKS, departure, headline, is_explained, score_line, seen_of, speakers
from streamad.settings.learning import LearningSettings
from streamad.web.access import Level
from streamad.web.charts import curves
from streamad.web.charts.scores import score_strip
from streamad.web.charts.zoom import Ends, Zoom, address, percent_text, zoom_of
from streamad.web.pages.warned import said_of
from streamad.web.rendering import digits, rendered, times_text
from streamad.web.site import Site
from streamad.web.store.view import SeenSequence

_SAID: Final = Words({"sent": catalogued("It is written down.")})
_LEARNED: Final = Words({"sent": catalogued("It is written down, and counts once the learner has read it.")})
_MOST_POINTS, _MOST_PLACES = 40, 5
_NEAR = 0.01  # of the sequence: the ends of a reason lie between points


def sequence(
    site: Site, one: SeenSequence, *, level: Level, said: str, clock: Clock | None, part: Ends | None = None
) -> Markup:
    """Return the content, for a person of ``level``.

    ``said`` is the code of what became of a mark; any other text is not shown. ``clock`` is that of the normal band;
    None: the one that the sequence is explained with. ``part``: from which to which share of the sequence its curves
    are drawn.
    """
    case, normal = site.cases.of(one)
    learning = site.plant.settings.learning
    alike: list[SeenSequence] = []
    if case.attribution is not None and case.attribution.channels:
        alike = site.view.alike(one, case.attribution.channels[0].channel, 8)
    why_not_judged = None
    if level < Level.OPERATOR:
        why_not_judged = gettext("You may look; judging needs the level operator.")
    facts, attribution = case.facts, case.attribution
    picture = case.picture(normal, clock)
    if clock is None and picture is not None and picture.clock is not None:
        picture = case.picture(normal, picture.clock)
    scores = case.scores(normal)
    before, after = site.view.neighbours(one)
    warning = said_of(site, one)
    return rendered(
        "sequence.html",
        one=one,
        clock=clock,
        headline=headline(facts, attribution),
        score_line=score_line(facts),
        times=times_text(site.cases.times(one)),
        facts=facts,
        seen=seen_of(facts),
        said=(_SAID if one.is_taken_up or learning is None else _LEARNED).get(said),
        warning=warning,
        before=before,
        after=after,
        effect=None if one.is_taken_up else effect_of(one.judgement, learning),
        why_not_judged=why_not_judged,
        detail=facts.detail,
        curves=None if picture is None else _curves(picture, f"/s/{quote(one.id)}", clock, part),
        no_curves=case.missing or _no_window(one),
        scores=scores,
        scores_picture=None if scores is None else score_strip(scores),
        attribution=attribution,
        is_explained=attribution is not None and is_explained(attribution),
        speakers=[] if attribution is None else speakers(attribution),
        alike=alike,
        has_png=has_plots() and picture is not None,
    )


def png(site: Site, one: SeenSequence, clock: Clock | None) -> bytes | None:
    """Return the picture of a sequence as PNG; None without a window. Raises PluginError without matplotlib."""
    case, normal = site.cases.of(one)
    picture = case.picture(normal, clock)
    return None if picture is None else drawn(picture)


def csv(site: Site, one: SeenSequence) -> str | None:
    """Return the judged window as CSV, a row for each point; None if it was not kept."""
    case, _ = site.cases.of(one)
    courses = case.courses
    if courses is None:
        return None
    seconds = np.arange(courses.length) * (case.facts.span_s * courses.shown / max(1, courses.length - 1))
    text = io.StringIO()
    names = [f"{channel.name} [{channel.unit}]" if channel.unit else channel.name for channel in courses.channels]
    text.write(",".join(["seconds", *(_cell(name) for name in names)]) + "\r\n")
    for at, row in zip(seconds, courses.values.T, strict=True):
        text.write(",".join([f"{at:.6g}", *(f"{value:.7g}" for value in row)]) + "\r\n")
    return text.getvalue()


def _cell(text: str) -> str:
    """Return a cell of CSV that no spreadsheet takes for a formula."""
    safe = f"'{text}" if text[:1] in "=+-@\t\r" else text
    return '"' + safe.replace('"', '""') + '"' if any(mark in safe for mark in ',"\r\n') else safe


def _no_window(one: SeenSequence) -> str:
    if one.is_alert:
        why = gettext("The plant has no windows sink, or the message is gone.")
    else:
        why = gettext(
            "Windows are kept for alerts and a drawn 5 %% of the other sequences (display.windows: all keeps every "
            "one)."
        )
    command = f"streamad explain {one.id[:8]} --recording FILE --plot out.png"
    return gettext(
        "No curve: the judged window of this sequence was not read. %(why)s With the recording at hand: %(command)s",
        why=why, command=command,
    )  # fmt: skip


def effect_of(judgement: str | None, learning: LearningSettings | None) -> str | None:
    """Return in plain words what a mark does from now on; None without one."""
    if learning is None and judgement not in {None, "withdrawn"}:
        return gettext("Reports show it. This plant does not learn: without a section learning no training reads it.")
    if learning is None:
        return None
    stay = gettext("The threshold and the model in service stay as they are.")
    out = gettext(
        "Trainings from now on leave this sequence out; all marks together leave out at most %(share)s of the "
        "sequences.",
        share=percent(learning.feedback_share),
    )
    second = gettext(
        "The next training may make a second version that learns from this sequence; the promotion rule decides "
        "whether that version goes into service."
    )
    if learning.feedback_trust != "auto":
        second = gettext(
            "The next training may make a second version that learns from this sequence; it goes into service only if "
            "a person puts it there."
        )
    compare = gettext("The command streamad models compare shows if a new version no longer alerts on it.")
    return {
        "false_alarm": f"{stay} {second}",
        "confirmed": f"{stay} {out} {compare}",
        "veto": f"{stay} {out}",
        "withdrawn": gettext(
            "The former judgement is taken back: the sequence counts as if nothing had been said about it."
        ),
    }.get(judgement or "")


class _Place(NamedTuple):
    """Where a channel departs, in words, and the address that shows it closely. ``is_reason``: it raises the score."""

    said: str
    href: str
    is_reason: bool


@dataclass(frozen=True, slots=True)
class _Channel:
    """What the page shows of a channel: where it departs, its curve, and some of its points as rows of a table."""

    name: str
    unit: str
    note: str
    departures: list[_Place]
    n_more: int
    picture: Markup
    readings: list[tuple[str, str, str]]


@dataclass(frozen=True, slots=True)
class _Curves:
    """What the page shows of all channels; ``time_head``: what the times of the tables are."""

    clock: Clock | None
    zoom: Zoom
    clocks: list[tuple[str, str, bool]]
    channels: list[_Channel]
    time_head: str
    others: str
    notes: tuple[str, ...]
    heatmap: Markup | None


def _curves(whole: Picture, path: str, clock: Clock | None, part: Ends | None) -> _Curves:
    picture = whole if part is None else whole.between(*part)
    kept = {} if clock is None else {"clock": str(clock)}
    extent = picture.extent or 1.0
    shown = picture.first / extent, picture.last / extent
    is_part = picture is not whole
    zoom = zoom_of(path, kept, shown, (0.0, 1.0), percent_text, is_part=is_part)
    ends = (zoom.first, zoom.last) if is_part else None
    clocks = [
        (name, address(path, {"clock": value}, ends), whole.clock == value)
        for name, value in ((gettext("each on its clock"), "own"), (gettext("phases aligned"), "aligned"))
    ]
    time_head = gettext("s since the start") if picture.is_timed else gettext("point")
    if picture.is_aligned:
        time_head = gettext("%% of the sequence")
    channels = [_channel(picture, one, path, kept) for one in picture.panels]
    heatmap = _deviations(picture)
    return _Curves(picture.clock, zoom, clocks, channels, time_head, picture.others, picture.notes, heatmap)


def _channel(picture: Picture, one: Panel, path: str, kept: Mapping[str, str]) -> _Channel:
    share = "" if one.share is None else gettext("share %(share)s", share=percent(one.share))
    note = ", ".join(filter(None, (one.unit, share)))
    found = [_place(departure(each), each.start, each.end, path, kept, is_reason=True) for each in one.segments]
    for each in one.outside:
        if not any(reason.start - _NEAR <= each.start and each.end <= reason.end + _NEAR for reason in one.segments):
            found.append(_place(MARKS[each.direction], each.start, each.end, path, kept, is_reason=False))
    shown = found[:_MOST_PLACES]
    n_more = len(found) - len(shown)
    return _Channel(one.name, one.unit, note, shown, n_more, curves.panel(picture, one), _readings(picture, one))


def _place(said: str, start: float, end: float, path: str, kept: Mapping[str, str], *, is_reason: bool) -> _Place:
    """Return a departure with a link to its time, and a little before and after it."""
    beside = max(0.02, (end - start) / 2)
    ends = max(0.0, start - beside), min(1.0, end + beside)
    href = address(path, kept, (percent_text(ends[0]), percent_text(ends[1])))
    return _Place(f"{said} {place(start, end)}", href, is_reason)


def _readings(picture: Picture, one: Panel) -> list[tuple[str, str, str]]:
    """Return some points of a channel, for readers who do not see the curve."""
    step = max(1, -(-len(picture.at) // _MOST_POINTS))
    rows = []
    for index in range(0, len(picture.at), step):
        normal = one.normal
        band = ""
        if normal is not None and np.isfinite(normal.low[index]):
            band = gettext("%(low)s to %(high)s", low=digits(normal.low[index], 4), high=digits(normal.high[index], 4))
        rows.append((digits(picture.at[index], 4), digits(one.course[index], 4), band))
    return rows


def _deviations(picture: Picture) -> Markup | None:
    """Return how far each channel lies from its band over time; None without a band."""
    rows = []
    for one in picture.panels:
        if one.normal is None:
            continue
        half = np.maximum((one.normal.high - one.normal.low) / 2, 1e-9 * (1 + np.abs(one.normal.middle)))
        spans = [(each.start, each.end) for each in one.segments]
        rows.append((one.name, (one.course - one.normal.middle) / half, spans))
    return curves.heatmap(picture, rows) if rows else None
