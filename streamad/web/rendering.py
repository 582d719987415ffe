"""The pages' templates, and how they show a value."""

from __future__ import annotations

import math
from typing import Final

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from streamad.pictures.facts import elapsed, is_counted
from streamad.safe_text import masked, visible_name
from streamad.types import from_us, to_us

JUDGED: Final = {"false_alarm": "false alarm", "confirmed": "confirmed", "veto": "neither", "withdrawn": "taken back"}
"""The words for a person's marks of a sequence."""
_STEPS = ((120, 1, "s"), (7_200, 60, "min"), (172_800, 3_600, "h"), (730 * 86_400, 86_400, "days"))


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


def count(n: int, name: str) -> str:
    """Return ``n`` with its noun: 1 alert, 2 alerts."""
    return f"{n} {name}" if n == 1 else f"{n} {name}s"


def digits(value: float | None, n: int) -> str:
    """Return a number with ``n`` digits; "" if there is none."""
    return "" if value is None or not math.isfinite(value) else f"{value:.{n}g}"


def percent(share: float) -> str:
    """Return a share in per cent."""
    return f"{share:.0%}"


def duration(seconds: float) -> str:
    """Return a time for people: 40 s, 12 min, 3 h, 2 days, 73 years."""
    for limit, size, unit in _STEPS:
        if seconds < limit:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds / (365.25 * 86_400):.0f} years"


_TEMPLATES: Final = Environment(
    loader=PackageLoader("streamad.web"),
    autoescape=True,
    undefined=StrictUndefined,
    finalize=shown,
    trim_blocks=True,
    lstrip_blocks=True,
    auto_reload=False,
)
_TEMPLATES.filters |= {
    "counted": count,
    "digits": digits,
    "duration": duration,
    "elapsed": elapsed,
    "percent": percent,
    "us": to_us,
    "utc": from_us,
}
_TEMPLATES.tests["counted_time"] = is_counted
_TEMPLATES.globals["JUDGED"] = JUDGED
