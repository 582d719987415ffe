"""``streamad report``: one page about a span of time."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from streamad.commands.report.gathering import Gathered, gather
from streamad.commands.shared.console import Bar, ConfigOption, JsonOption, count, out, print_json, printed, run_async
from streamad.commands.shared.options import span_now
from streamad.commands.shared.plants import check_out, load_plant
from streamad.errors import UsageError
from streamad.messages import Alert
from streamad.outputs.cases import Case, Normals, courses_of_message
from streamad.pictures.drawing import check_extra, drawn
from streamad.pictures.facts import Facts
from streamad.plant import Plant
from streamad.system.files import write_atomically

MOST_PICTURES = 500
_DPI = 90


def report(
    *,
    config: ConfigOption = Path("plant.yaml"),
    since: Annotated[
        str, typer.Option(metavar="TIME", help="Of all that was judged since: 7d (ago), 2h, a date, or a time.")
    ] = "7d",
    until: Annotated[
        str | None, typer.Option(metavar="TIME", help="Up to this time, written as for --since. [default: now]")
    ] = None,
    write_to: Annotated[Path, typer.Option("--out", metavar="FILE", help="The page, FILE.html.")] = Path("report.html"),
    pictures: Annotated[
        int, typer.Option(min=0, max=MOST_PICTURES, help="Draw so many of the newest alerts; 0 needs no matplotlib.")
    ] = 30,
    as_json: JsonOption = False,
) -> None:
    """Write one HTML page about a span of time: alerts with curves and reasons, warnings, rates, drift, models, marks.

    The page is one file: its pictures are inside, it runs no script and asks for nothing from elsewhere, so it can be
    mailed or archived. Times are those at which streamad judged, so that reports of successive spans miss nothing. The
    outputs are read up to their present end; curves need sinks.windows and the extra plots (matplotlib).

    Example: streamad report --since 7d --out report.html
    """
    if write_to.suffix.lower() not in (".html", ".htm"):
        raise UsageError(f"--out {write_to}: the report is a .html file")
    plant = load_plant(config)
    span = span_now(plant, since, until)
    if (span.since_us or 0) >= plant.clock.now_us():
        raise UsageError(f"--since {since} lies in the future: nothing was judged since")
    check_out(plant, write_to, is_recording=False)
    if pictures:
        check_extra()
    found = run_async(gather(plant, span, pictures))
    from streamad.commands.report.sections import page  # noqa: PLC0415 - jinja2, which the help does not need

    drawing = _Drawing(plant, found, quiet=as_json, most=min(pictures, len(found.alerts)))
    with drawing.bar:
        rate = plant.settings.alerts.false_alarm_rate
        content = page(plant.settings.name, rate, found, drawing.of, pictures)
    write_atomically(write_to, content.encode())
    if as_json:
        figures = {"out": str(write_to), "since": found.since, "until": found.until, "alerts": found.n_alerts}
        figures |= {"warnings": found.n_warnings, "warned": found.warned}
        print_json({**figures, "pictures": drawing.n_drawn, "verdicts": found.decisions, "notes": found.notes})
    else:
        drawn_text = f", {drawing.n_drawn} of them drawn" if found.n_alerts else ""
        warned = f"; {count(found.n_warnings, 'warning')}" if found.n_warnings else ""
        out.print(f"{count(found.n_alerts, 'alert')}{drawn_text}{warned}: {printed(str(write_to))}")


class _Drawing:
    """Draws alerts, with a progress bar; ``n_drawn`` of them have a picture."""

    def __init__(self, plant: Plant, found: Gathered, *, quiet: bool, most: int) -> None:
        self.bar = Bar("drawing", quiet=quiet or not most)
        self.n_drawn = 0
        self._plant = plant
        self._found = found
        self._most = most
        self._normals = Normals(plant)

    def of(self, alert: Alert) -> bytes | str:
        """Return the picture of an alert, or why there is none."""
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
        self.bar.show(f"drawing: picture {self.n_drawn} of {self._most}", self.n_drawn, self._most)
        return drawn(picture, dpi=_DPI, is_titled=False)  # its section has the same words
