"""The page of one sequence: what was found, the curves over the normal band, why, and what people say of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from streamad.judge.explanations.envelope import Clock
from streamad.messages import Attribution
from streamad.outputs.cases import Case, Normal
from streamad.pictures.content import Panel, Picture
from streamad.pictures.facts import departure, headline, is_explained, score_line, speakers
from streamad.pictures.facts import when as when_text
from streamad.pictures.html import Html, element
from streamad.settings.learning import LearningSettings
from streamad.web import charts
from streamad.web.pages.layout import link_to, rows_table, state_of, stream_link, when
from streamad.web.rendering import JUDGED
from streamad.web.store.view import SeenSequence

_BUTTONS: Final = (
    ("false_alarm", "False alarm", "f", "it was normal"),
    ("confirmed", "Confirmed", "c", "it was an anomaly"),
    ("veto", "Neither", "v", "unknown or something else: keep it out of training"),
    ("withdrawn", "Take back", "w", "as if nothing had been said"),
)

_SAID: Final = {
    "sent": "It is written down, and counts once a running monitor has read it.",
    "stored": "It is written down, and counts now.",
}
_REASONS: Final = (
    "sensor",
    "cleaning or maintenance",
    "new recipe or product",
    "start-up or stop",
    "operator's action",
)
_CLOCKS: Final[dict[Clock, str]] = {"own": "each on its clock", "aligned": "phases aligned"}
_MEANS: Final[dict[Clock, str]] = {
    "own": "The band is that of normal sequences at the same time since their start.",
    "aligned": "Normal sequences are stretched in time: each begins at 0 % and ends at 100 %, as this one does.",
}


def sequence(
    one: SeenSequence,
    case: Case,
    normal: Normal,
    *,
    alike: Sequence[SeenSequence],
    neighbours: tuple[SeenSequence | None, SeenSequence | None],
    why_not_judged: str | None,
    said: str,
    clock: Clock | None,
    learning: LearningSettings | None,
    is_drawn: bool,
) -> list[Html]:
    """Return the content. ``neighbours`` are the alerts before and after this one.

    ``said`` is the code of what became of a mark; any other text is not shown. ``clock`` is that of the normal band;
    None: the one that the sequence is explained with. ``learning``: what marks do. ``is_drawn``: pictures can be made.
    """
    facts, attribution = case.facts, case.attribution
    picture = case.picture(normal, clock)
    if clock is None and picture is not None and picture.clock is not None:
        picture = case.picture(normal, picture.clock)
    parts = [
        element("p", stream_link(one.stream), " / ", one.sequence, class_="path"),
        element("h1", headline(facts, attribution)),
        element("p", score_line(facts)),
        element("p", when_text(facts), class_="soft"),
    ]
    if said in _SAID:
        parts.append(element("p", _SAID[said], class_="said", role="status"))
    query = "" if clock is None else f"?clock={clock}"
    parts.append(_steps(neighbours, query))
    parts.append(_judging(one, why_not_judged, query, learning))
    if facts.detail:
        parts.append(element("p", facts.detail))
    if one.contradiction is not None:
        differs = f"Messages with this id contradict each other ({one.contradiction})."
        text = f"{differs} Shown is what was read first; an alert is never hidden."
        parts.append(element("p", text, class_="missing"))
    if picture is None:
        parts.append(element("p", case.missing or _no_window(one), class_="missing"))
    else:
        parts += _curves(picture, one)
        parts.append(_deviations(picture))
    parts += _scores(case, normal)
    parts += _reasons(one, attribution)
    if alike:
        parts += [element("h2", "Earlier alerts with the same leading channel"), _alike(alike)]
    parts.append(_exports(one, query, has_png=is_drawn and picture is not None))
    return parts


def _no_window(one: SeenSequence) -> str:
    kept = "alerts and a drawn 5 % of the other sequences (display.windows: all keeps every one)"
    why = "The plant has no windows sink, or the message is gone" if one.is_alert else f"Windows are kept for {kept}"
    return (
        f"No curve: the judged window of this sequence was not read. {why}. "
        f"With the recording at hand: streamad explain {one.id[:8]} --recording FILE --plot out.png"
    )


def _steps(neighbours: tuple[SeenSequence | None, SeenSequence | None], query: str) -> Html:
    before, after = neighbours
    links = []
    if before is not None:
        links.append(element("a", "← earlier alert (J)", href=f"/s/{before.id}{query}", rel="prev", data_key="j"))
    if after is not None:
        links.append(element("a", "later alert (K) →", href=f"/s/{after.id}{query}", rel="next", data_key="k"))
    return element("p", *links, class_="steps")


def effect_of(judgement: str | None, learning: LearningSettings) -> str | None:
    """Return in plain words what a mark does from now on; None without one."""
    stay = "The threshold and the model in service stay as they are."
    out = f"{stay} Trainings from now on leave this sequence out; all marks together leave out at most "
    out += f"{learning.feedback_share:.0%} of the sequences."
    decides = (
        "the promotion rule decides whether that version goes into service"
        if learning.feedback_trust == "auto"
        else "it goes into service only if a person puts it there"
    )
    return {
        "false_alarm": f"{stay} The next training may make a second version that learns from this sequence; {decides}.",
        "confirmed": f"{out} The command streamad models compare shows if a new version no longer alerts on it.",
        "veto": out,
        "withdrawn": "The former judgement is taken back: the sequence counts as if nothing had been said about it.",
    }.get(judgement or "")


def _judging(one: SeenSequence, why_not: str | None, query: str, learning: LearningSettings | None) -> Html:
    """Return the form of the marks, or why there is none, and what the mark on the sequence does."""
    is_judged = one.judgement not in (None, "withdrawn")
    said = [state_of(one) if is_judged else element("span", "none yet", class_="state new")]
    if is_judged and one.note:
        said.append(Html(str(element("q", one.note))))
    state = element("p", "Judgement: ", said[0], " ", *said[1:])
    effect = None if learning is None else effect_of(one.judgement, learning)
    parts = [state] if effect is None else [state, element("p", effect, class_="effect")]
    given = {"class_": "judging", "aria_label": "Judgement"} | ({"data_opened": one.id} if one.is_alert else {})
    if why_not is not None:
        return element("section", *parts, element("p", why_not, class_="soft"), **given)
    buttons = [
        element(
            "button", name, " ", element("kbd", key.upper()), name="judgement", value=kind, data_key=key, title=title,
            type="submit",
        )
        for kind, name, key, title in _BUTTONS
        if (kind != "withdrawn" or is_judged) and (kind != "false_alarm" or one.is_alert)
    ]  # fmt: skip
    field = '<input name="{}" id="mark-{}" maxlength="{}" autocomplete="off" placeholder="optional"{}>'
    reason = element("label", "Reason ", Html(field.format("reason", "reason", 120, ' list="reasons"')))
    note = element("label", "Note ", Html(field.format("note", "note", 1_800, "")))
    known = element("datalist", *(element("option", value=each) for each in _REASONS), id="reasons")
    fields = element("div", reason, note, known, class_="fields")
    action = f"/s/{one.id}/mark{query}"
    form = element("form", element("div", *buttons, class_="buttons"), fields, method="post", action=action)
    return element("section", *parts, form, **given)


def _curves(picture: Picture, of: SeenSequence) -> list[Html]:
    parts = [element("h2", "Channels, the largest share first")]
    if picture.clock is not None:
        parts += _clocks(picture.clock, of)
    for one in picture.panels:
        share = "" if one.share is None else f"share {one.share:.0%}"
        said = [f"{departure(each)} from {each.start:.0%} to {each.end:.0%}" for each in one.segments]
        head = element("h3", f"{one.name} ", element("small", ", ".join(filter(None, (one.unit, share)))))
        words = element("p", "; ".join(said), class_="odd") if said else Html("")
        summary = element("summary", "Show as table")
        table = element("details", summary, _values(picture, one), data_fold=f"table {one.name}")
        parts.append(element("figure", head, words, charts.panel(picture, one), table, class_="channel"))
    parts.append(
        element(
            "p",
            "Dark line: this sequence. Band: 5 to 95 % of the normal training sequences around their median; pale: "
            "their extremes. Shaded: the stretches that raise the score most, of at most three channels; ▲ above, "
            "▼ below the band, ◆ unusual in shape, perhaps within it. Other channels and times may be unusual, "
            "too, and the first channel may show a consequence rather than the cause.",
            class_="soft",
        )
    )
    if picture.others:
        parts.append(element("p", picture.others, class_="soft"))
    parts += [element("p", each, class_="missing") for each in picture.notes]
    return parts


def _clocks(shown: Clock, of: SeenSequence) -> list[Html]:
    """Return the links to both clocks, and what the one shown means."""
    links: list[Html] = []
    for clock, name in _CLOCKS.items():
        marked = {"aria_current": "true"} if clock == shown else {}
        links += [element("a", name, href=f"/s/{of.id}?clock={clock}", **marked), Html(" ")]
    return [element("p", *links, class_="choice"), element("p", _MEANS[shown], class_="soft")]


def _values(picture: Picture, one: Panel) -> Html:
    """Return at most 40 points of a channel as a table, for readers who do not see the curve."""
    step = max(1, -(-len(picture.at) // 40))
    rows = []
    for index in range(0, len(picture.at), step):
        normal = one.normal
        band = ""
        if normal is not None and np.isfinite(normal.low[index]):
            band = f"{normal.low[index]:.4g} to {normal.high[index]:.4g}"
        rows.append((f"{picture.at[index]:.4g}", f"{one.course[index]:.4g}", band))
    at = "% of the sequence" if picture.is_aligned else "s since the start" if picture.is_timed else "point"
    return rows_table(f"{one.name} over time", (at, one.unit or "value", "normal band"), rows)


def _deviations(picture: Picture) -> Html:
    rows = []
    scale = picture.extent / (float(picture.at[-1]) or 1.0)  # shares are of the sequence, the window may hold less
    for one in picture.panels:
        if one.normal is None:
            continue
        half = np.maximum((one.normal.high - one.normal.low) / 2, 1e-9 * (1 + np.abs(one.normal.middle)))
        spans = [(min(each.start * scale, 1.0), min(each.end * scale, 1.0)) for each in one.segments]
        rows.append((one.name, (one.course - one.normal.middle) / half, spans))
    if not rows:
        return Html("")
    caption = element(
        "figcaption",
        "Distance from the median in half widths of the band: grey within it, warm above, cold below. Outlined: where "
        "the model's score falls if the stretch is replaced by a normal one.",
    )
    return element("figure", element("h2", "Where and when"), charts.heatmap(picture, rows), caption)


def _scores(case: Case, normal: Normal) -> list[Html]:
    found = case.scores(normal)
    if found is None:
        return []
    words = element("p", f"The score lies {found.words}; {found.limit}.")
    return [element("h2", "Among the calibration scores"), words, charts.scores(found)]


def _reasons(one: SeenSequence, attribution: Attribution | None) -> list[Html]:
    if not one.is_alert:
        return []
    parts = [element("h2", "Why")]
    if attribution is None:
        return [*parts, element("p", "The reasons follow: alerts do not wait for them.", class_="missing")]
    if not is_explained(attribution):
        return [*parts, element("p", f"There are no reasons: {attribution.detail}", class_="missing")]
    rows = [(each.channel, each.unit, f"{each.share:.0%}") for each in attribution.channels[:12]]
    parts.append(rows_table("Shares of the channels", ("channel", "unit", "share"), rows, "narrow"))
    parts.append(element("p", "Largest terms of the score: " + "; ".join(speakers(attribution)) + "."))
    if attribution.nearest:
        near = [f"{each.sequence} (distance {each.distance:.3g})" for each in attribution.nearest]
        parts.append(element("p", "Nearest normal sequences: " + "; ".join(near) + "."))
    terms = [
        (str(each.transformation), each.member or "", f"{each.term:.4g}", f"{each.calibration_quantile:.0%}")
        for each in attribution.terms
    ]
    table = rows_table(
        "Terms of the score", ("term", "member", "value", "above so many of calibration"), terms, "narrow"
    )
    summary = element("summary", f"All {len(terms)} terms of the score")
    parts.append(element("details", summary, table, data_fold="terms"))
    if attribution.detail:
        parts.append(element("p", attribution.detail, class_="soft"))
    return parts


def _alike(alike: Sequence[SeenSequence]) -> Html:
    rows = [
        (when(one.end_us), stream_link(one.stream), link_to(one), one.why or "", JUDGED.get(one.judgement or "", "new"))
        for one in alike
    ]
    heads = ("ended (UTC)", "stream", "sequence", "why", "judged")
    return rows_table("Earlier alerts alike", heads, rows)


def _exports(one: SeenSequence, query: str, *, has_png: bool) -> Html:
    links = [element("a", name, href=f"/s/{one.id}.{suffix}") for name, suffix in (("JSON", "json"), ("CSV", "csv"))]
    if has_png:
        links.append(element("a", "PNG", href=f"/s/{one.id}.png{query}"))
    compare = element("a", "compare with others", href=f"/compare?id={one.id}")
    spaced = [each for link in links for each in (link, " ")]
    return element("p", compare, "; save as: ", *spaced, class_="exports")
