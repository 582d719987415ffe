"""Running monitors hear of a version that went into service."""

from __future__ import annotations

import asyncio

from rich.markup import escape

from streamad.commands.shared.console import err
from streamad.errors import StreamadError
from streamad.learn.feedback.control import announce
from streamad.messages import ModelRef
from streamad.plant import Plant


def announce_promotion(plant: Plant, model: ModelRef) -> str:
    """Tell running monitors of a promotion where the plant has a place for that; return when they take it."""
    if plant.settings.learning is None:
        return "running monitors take it at their next start (with a section learning: at once)"
    try:
        asyncio.run(announce(plant, model))
    except StreamadError as error:
        err.print(
            f"[yellow]note[/]: running monitors could not be told, they will see it by themselves: {escape(str(error))}"
        )
    return "running monitors take it within 2 s"
