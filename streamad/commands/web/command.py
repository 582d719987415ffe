"""``streamad web``: serves the page of a plant."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer
from pydantic import ValidationError

from streamad.commands.shared.console import ConfigOption, err, note, run_async, stop_on_signals, stop_with_parent
from streamad.commands.shared.groups import group_of
from streamad.commands.shared.plants import load_plant, need_web
from streamad.errors import UsageError
from streamad.plant import Plant

_NICE = 5  # beside a run, which comes first
web = typer.Typer(cls=group_of({"user": "streamad.commands.web.user"}), invoke_without_command=True)


@web.callback()
def serve_page(
    context: typer.Context,
    config: ConfigOption = Path("plant.yaml"),
    host: Annotated[str | None, typer.Option(help="Address to listen at. [default: web.host]")] = None,
    port: Annotated[
        int | None, typer.Option(min=0, max=65_535, help="Port; 0: any free one. [default: web.port]")
    ] = None,
    supervised: Annotated[bool, typer.Option(hidden=True)] = False,
) -> None:
    """Serve the page that shows what the monitor found: alerts with curves and reasons, lines, calibration, models.

    It reads the plant's outputs and never touches a monitor; it may run anywhere that can read them, and be started and
    stopped at any time. Open the printed link: it holds the token that lets you in, unless people log in with a
    password (web.auth.users). Ctrl-C ends it.

    Example: streamad web --port 0
    """
    if (called := context.invoked_subcommand) is not None:
        if config != Path("plant.yaml") or host is not None or port is not None:
            raise UsageError(f"options belong behind the command: streamad web {called} ... --config {config}")
        return
    plant = with_address(load_plant(config), host, port)
    page = page_of(plant)
    say_missing(plant)
    # Unmasked: the token in the link is what lets a person in. Beside a run, standard output is the run's.
    typer.echo(f"open {page.url}", err=supervised)
    if not supervised:
        err.print("Ctrl-C ends")

    async def serve() -> None:
        if supervised:
            os.nice(_NICE)
            stop_with_parent(page.stop)
        with stop_on_signals(page.stop, "" if supervised else "closing the open pages"):
            await page.run()

    run_async(serve())


def with_address(plant: Plant, host: str | None, port: int | None) -> Plant:
    """Return the plant with another address of its page."""
    web = plant.settings.web
    given = {key: value for key, value in (("host", host), ("port", port)) if value is not None}
    if not given:
        return plant
    try:
        changed = type(web).model_validate(web.model_dump(mode="json") | given)  # else durations are read as seconds
    except ValidationError as error:
        raise UsageError(str(error.errors()[0]["msg"]).removeprefix("Value error, ")) from error
    return replace(plant, settings=plant.settings.model_copy(update={"web": changed}))


def page_of(plant: Plant):  # type: ignore[no-untyped-def]
    """Return the page, its port open. Raises PluginError without the extra ``web``, OutputError."""
    need_web()
    from streamad.web.server import Page  # noqa: PLC0415

    return Page(plant)


def say_missing(plant: Plant) -> None:
    """Note which outputs the plant does not keep, and what the page lacks for it."""
    from streamad.outputs.reading import place_of  # noqa: PLC0415

    lacks = {
        "verdicts": "normal sequences",
        "alerts": "alerts",
        "attributions": "reasons",
        "windows": "curves",
        "events": "events",
    }
    missing = [f"{what} (sinks.{role})" for role, what in lacks.items() if place_of(plant, role) is None]  # type: ignore[arg-type]
    if missing:
        err.print(note(f"the page will not show {', '.join(missing)}: they are not written to a file or topic"))
