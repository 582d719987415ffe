"""The pages' templates, and how they show a value, a text and a time."""

from __future__ import annotations

import math
from datetime import datetime
from typing import Final

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from streamad.language import (
    NO_BREAK,
    Form,
    Words,
    asking,
    catalogued,
    catalogued_plural,
    gettext,
    moment,
    ngettext,
    numeral,
    percent,
    thousands,
    translated,
    translated_for,
)
from streamad.pictures.facts import elapsed, is_counted
from streamad.safe_text import masked, visible_name
from streamad.types import from_us, to_us

JUDGED: Final = Words(
    {
        "false_alarm": catalogued("false alarm"),
        "confirmed": catalogued("confirmed"),
        "veto": catalogued("neither"),
        "withdrawn": catalogued("taken back"),
    }
)
"""The words for a person's marks of a sequence."""
DECISIONS: Final = Words(
    {
        "anomalous": catalogued("alert"),
        "normal": catalogued("normal"),
        "unscorable": catalogued("not judged"),
        "learning": catalogued("learning"),
    }
)
LEVELS: Final = Words(
    {"viewer": catalogued("viewer"), "operator": catalogued("operator"), "engineer": catalogued("engineer")}
)
_STEPS: Final[tuple[tuple[float, float, str], ...]] = (
    (120, 1, "s"),
    (7_200, 60, "min"),
    (172_800, 3_600, "h"),
    (730 * 86_400, 86_400, catalogued("days")),
)


def shown(value: object) -> object:
    """Return what a page shows of ``value``: controls and changes of direction as escapes, secrets masked, None as "".

    HTML stays as it is.
    """
    if value is None:
        return ""
    if isinstance(value, str) and not hasattr(value, "__html__"):
        return visible_name(masked(value))
    return value


def escaped(text: str) -> Markup:
    """Return ``text`` as a page shows it, as HTML: for pictures, which are no templates."""
    return escape(shown(text))


def rendered(template: str, **given: object) -> Markup:
    """Return a template filled with ``given``: it escapes every value."""
    return Markup(_TEMPLATES.get_template(template).render(given))


_COUNTED: Final = {
    "alert": catalogued_plural("%(num)s alert", "%(num)s alerts"),
    "attribution": catalogued_plural("%(num)s attribution", "%(num)s attributions"),
    "event": catalogued_plural("%(num)s event", "%(num)s events"),
    "false alarm": catalogued_plural("%(num)s false alarm", "%(num)s false alarms"),
    "judged sequence": catalogued_plural("%(num)s judged sequence", "%(num)s judged sequences"),
    "more channel": catalogued_plural("%(num)s more channel", "%(num)s more channels"),
    "more stream": catalogued_plural("%(num)s more stream", "%(num)s more streams"),
    "nearest normal sequence": catalogued_plural("%(num)s nearest normal sequence", "%(num)s nearest normal sequences"),
    "open sequence": catalogued_plural("%(num)s open sequence", "%(num)s open sequences"),
    "record": catalogued_plural("%(num)s record", "%(num)s records"),
    "running sequence": catalogued_plural("%(num)s running sequence", "%(num)s running sequences"),
    "sample": catalogued_plural("%(num)s sample", "%(num)s samples"),
    "score": catalogued_plural("%(num)s score", "%(num)s scores"),
    "sequence": catalogued_plural("%(num)s sequence", "%(num)s sequences"),
    "stream": catalogued_plural("%(num)s stream", "%(num)s streams"),
    "verdict": catalogued_plural("%(num)s verdict", "%(num)s verdicts"),
    "warning": catalogued_plural("%(num)s warning", "%(num)s warnings"),
}
KINDS: Final = Words(
    {
        "broker_back": catalogued("broker back"),
        "broker_silent": catalogued("broker silent"),
        "bad_values": catalogued("unreadable values"),
        "late_samples": catalogued("late samples"),
        "learning_failed": catalogued("learning failed"),
        "looks_ended": catalogued("looks ended"),
        "model_refused": catalogued("model refused"),
        "moved_early": catalogued("moved early"),
        "no_looks": catalogued("no looks"),
        "runs_long": catalogued("runs long"),
        "training_failed": catalogued("training failed"),
        "drift": catalogued("drift"),
        "feedback_unreadable": catalogued("feedback unreadable"),
        "many_alerts": catalogued("far too many alerts"),
        "many_alerts_over": catalogued("far too many alerts: over"),
        "model_promoted": catalogued("new model"),
        "model_swapped": catalogued("model taken up"),
        "plant_changed": catalogued("plant changed"),
        "too_many_streams": catalogued("too many streams"),
    }
)
"""The words for events; other kinds stand as they are named."""


def kind_of(kind: str) -> str:
    """Return what kind of event it is."""
    return KINDS.get(kind) or kind.replace("_", " ")


def meanings() -> dict[str, str]:
    """Return what the words of the page mean."""
    return {
        gettext("p-value"): gettext(
            "the share of held-out normal sequences that score at least as high; small is unusual"
        ),
        gettext("band"): gettext(
            "where the middle 90 %% of the normal training sequences lie at each point of time: from their 5 %% to "
            "their 95 %% quantile (the envelope)"
        ),
        gettext("quantile"): gettext(
            "a value with a given share of all values below it: 5 %% of them lie below the 5 %% quantile"
        ),
        gettext("calibration"): gettext("the scores of held-out normal sequences; they turn a score into a p-value"),
        gettext("share"): gettext(
            "how far the score falls if this channel is replaced by a normal one, in parts of all channels' falls"
        ),
        gettext("term"): gettext("one of the parts whose sum is the score"),
        gettext("seen"): gettext("opened in this browser, and not judged"),
    }


def meaning_of(head: str) -> str | None:
    """Return what the head of a table's column means, None if it says so itself."""
    words = {
        gettext("p"): gettext("p-value"),
        gettext("normal band"): gettext("band"),
        gettext("above so many of calibration"): gettext("quantile"),
    }
    return meanings().get(words.get(head, head))


def count(n: int, name: str) -> str:
    """Return ``n`` with its noun: 1 alert, 2 alerts."""
    return ngettext(*_COUNTED[name], n)


def digits(value: float | None, n: int) -> str:
    """Return a number with ``n`` digits; "" if there is none."""
    return "" if value is None or not math.isfinite(value) else numeral(f"{value:.{n}g}")


def times_text(times: float | None) -> str:
    """Return how many times its threshold a score is; "" if that is not known."""
    if times is None:
        return ""
    return numeral(f"{times:.2f}" if times < 2 else f"{times:.1f}" if times < 10 else f"{times:.0f}")


def duration(seconds: float) -> str:
    """Return a time for people: 40 s, 12 min, 3 h, 2 days, 73 years."""
    size, unit = next(
        ((size, unit) for limit, size, unit in _STEPS if seconds < limit), (365.25 * 86_400, catalogued("years"))
    )
    return f"{seconds / size:.0f}{NO_BREAK}{gettext(unit)}"


def when(at: datetime | None, form: Form = "second") -> Markup:
    """Return a time in the plant's zone or the browser's (static/times.js), with the zone's name.

    One that counts from a start stays so.
    """
    if at is None:
        return escape(gettext("unknown"))
    if is_counted(at):
        return Markup('{} <span class="soft">{}</span>').format(elapsed(at), gettext("elapsed"))
    return Markup('<time datetime="{}" data-form="{}">{}</time>').format(at.isoformat(), form, moment(at, form))


def _text(text: str, /, **values: object) -> Markup:
    """Return a template's own text in the reader's language: HTML, in which ``values`` are shown and escaped."""
    return Markup(translated(text)) % {name: shown(value) for name, value in values.items()}


def _texts(one: str, many: str, n: int, /, **values: object) -> Markup:
    return Markup(translated_for(one, many, n)) % {name: shown(value) for name, value in {"num": n, **values}.items()}


_TEMPLATES: Final = Environment(
    loader=PackageLoader("streamad.web"),
    extensions=["jinja2.ext.i18n"],
    autoescape=True,
    undefined=StrictUndefined,
    finalize=shown,
    trim_blocks=True,
    lstrip_blocks=True,
    auto_reload=False,
)
_TEMPLATES.newstyle_gettext = True  # type: ignore[attr-defined]  # values are given to ``_text``
_TEMPLATES.policies["ext.i18n.trimmed"] = True
_TEMPLATES.filters |= {
    "counted": count,
    "digits": digits,
    "kind": kind_of,
    "duration": duration,
    "percent": percent,
    "thousands": thousands,
    "us": to_us,
    "utc": from_us,
    "when": when,
}
_TEMPLATES.globals |= {
    "DECISIONS": DECISIONS,
    "JUDGED": JUDGED,
    "LEVELS": LEVELS,
    "gettext": _text,
    "language": lambda: asking().language,
    "meaning_of": meaning_of,
    "meanings": meanings,
    "ngettext": _texts,
    "zone": lambda: asking().zone,
}
