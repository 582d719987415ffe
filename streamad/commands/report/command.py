"""``streamad report``: one page about a span of time."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from streamad.commands.report.gathering import gather
from streamad.commands.shared.console import ConfigOption, JsonOption, count, out, print_json, printed, run_async
from streamad.commands.shared.options import local_path, span_now
from streamad.commands.shared.plants import check_out, load_plant
from streamad.errors import UsageError
from streamad.outputs.cases import Normals
from streamad.system.files import write_atomically

MOST_PICTURES = 500


def report(
    *,
    config: ConfigOption = Path("plant.yaml"),
    since: Annotated[
        str, typer.Option(metavar="TIME", help="Of all that was judged since: 7d (ago), 2h, a date, or a time.")
    ] = "7d",
    until: Annotated[
        str | None, typer.Option(metavar="TIME", help="Up to this time, written as for --since. [default: now]")
    ] = None,
    write_to: Annotated[
        Path, typer.Option("--out", callback=local_path, metavar="FILE", help="The page, FILE.html.")
    ] = Path("report.html"),
    pictures: Annotated[
        int,
        typer.Option(min=0, max=MOST_PICTURES, help="Draw so many alerts, those farthest above their threshold."),
    ] = 30,
    as_json: JsonOption = False,
) -> None:
    """Write one HTML page about a span of time: alerts with curves and reasons, warnings, rates, drift, models, marks.

    The page is one file of at most about 2 MB: its pictures are inside, it runs no script and asks for nothing from
    elsewhere, so it can be mailed or archived. Times are those at which streamad judged, so that reports of successive
    spans miss nothing. The outputs are read up to their present end; curves need sinks.windows.

    Example: streamad report --since 7d --out report.html
    """
    if write_to.suffix.lower() not in (".html", ".htm"):
        raise UsageError(f"--out {write_to}: the report is a .html file")
    plant = load_plant(config)
    span = span_now(plant, since, until)
    if (span.since_us or 0) >= plant.clock.now_us():
        raise UsageError(f"--since {since} lies in the future: nothing was judged since")
    check_out(plant, write_to, is_recording=False)
    normals = Normals(plant)
    found = run_async(gather(plant, normals, span, pictures))
    from streamad.commands.report.curves import Drawing  # noqa: PLC0415 - jinja2, which the help does not need
    from streamad.commands.report.sections import page  # noqa: PLC0415

    drawing = Drawing(plant, normals, found)
    content = page(plant.settings.name, plant.settings.alerts.false_alarm_rate, found, drawing)
    write_atomically(write_to, content.encode())
    if as_json:
        figures = {"out": str(write_to), "since": found.since, "until": found.until, "alerts": found.n_alerts}
        figures |= {"warnings": found.n_warnings, "warned": found.warned}
        print_json({**figures, "pictures": drawing.n_drawn, "verdicts": found.decisions, "notes": found.notes})
    else:
        drawn_text = f", {drawing.n_drawn} of them drawn" if found.n_alerts else ""
        warned = f"; {count(found.n_warnings, 'warning')}" if found.n_warnings else ""
        out.print(f"{count(found.n_alerts, 'alert')}{drawn_text}{warned}: {printed(str(write_to))}")
