"""The curves of a report: the channels of an alert that depart, drawn as the page draws them."""

from __future__ import annotations

from typing import NamedTuple

from markupsafe import Markup

from streamad.commands.report.gathering import Gathered
from streamad.messages import Alert
from streamad.outputs.cases import Case, Normals, courses_of_message
from streamad.pictures.content import Picture
from streamad.pictures.facts import Facts
from streamad.plant import Plant
from streamad.web.charts.curves import panel

_MOST_CURVES = 3
_MOST_BYTES = 1_600_000
"""Of all curves: a report of 500 alerts stays below 2 MB, which mails take."""


class Curve(NamedTuple):
    """One channel of an alert: its name, its unit and share, and its picture."""

    name: str
    unit: str
    share: float | None
    picture: Markup


class Drawing:
    """Draws alerts, ``n_drawn`` so far, while the report has room for more; ``is_full`` says when it has none."""

    def __init__(self, plant: Plant, normals: Normals, found: Gathered) -> None:
        self.n_drawn = 0
        self._plant, self._normals, self._found = plant, normals, found
        self._n_bytes = 0

    @property
    def is_full(self) -> bool:
        """Return whether there is no room for another alert."""
        return self._n_bytes >= _MOST_BYTES

    def of(self, alert: Alert) -> list[Curve] | str:
        """Return the curves of an alert, or why there are none."""
        facts, window = Facts.of(alert), self._found.windows.get(alert.alert_id)
        if window is None:
            return "No curve: its readings were not kept. streamad explain ID --recording FILE draws it."
        try:
            courses = courses_of_message(window, facts, self._plant.settings)
        except ValueError as error:
            return f"No curve: the window cannot be read: {error}"
        picture = Case(facts, self._found.attributions.get(alert.alert_id), courses).picture(self._normals.of(facts))
        assert picture is not None
        self.n_drawn += 1
        curves = _curves(picture)
        self._n_bytes += sum(len(each.picture.encode()) for each in curves)
        return curves


def _curves(picture: Picture) -> list[Curve]:
    """Return the channels that the reasons name, else those that lie outside their band, else the first one."""
    named = [one for one in picture.panels if one.segments] or [one for one in picture.panels if one.outside]
    drawn = (named or list(picture.panels))[: _MOST_CURVES if named else 1]
    return [Curve(one.name, one.unit, one.share, panel(picture, one)) for one in drawn]
