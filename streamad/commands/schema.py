"""``streamad schema``: prints the JSON Schemas of the messages, of notices and of the config."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from streamad.messages import message_schemas
from streamad.notify.bodies import notice_schema
from streamad.settings.plant_yaml import Settings


def schema(
    name: Annotated[
        str | None,
        typer.Argument(
            help=(
                "alert, attribution, verdict, window, dead_letter, late, event, feedback, request, notice, config; "
                "default: all."
            )
        ),
    ] = None,
) -> None:
    """Print the JSON Schemas (2020-12) of the messages that streamad writes and reads, of webhooks, and of plant.yaml.

    Example: streamad schema alert
    """
    schemas = {**message_schemas(), "notice": notice_schema(), "config": Settings.model_json_schema()}
    if name is not None and name not in schemas:
        raise typer.BadParameter(f"{name!r} is not one of {', '.join(schemas)}", param_hint="NAME")
    typer.echo(json.dumps(schemas if name is None else schemas[name], indent=2, ensure_ascii=False))
