"""Announces a promotion to running monitors."""

from __future__ import annotations

import asyncio

from streamad.commands.shared.console import err, note
from streamad.commands.shared.plants import check_place
from streamad.errors import StreamadError
from streamad.learn.feedback.control import announce
from streamad.messages import ModelRef
from streamad.plant import Plant


def announce_promotion(plant: Plant, model: ModelRef) -> str:
    """Announce ``model`` if the plant learns; return how soon running monitors load it, for people."""
    if plant.settings.learning is None:
        return "running monitors load it at their next start (with a section learning: at once)"
    try:
        check_place(plant, "control")
        asyncio.run(announce(plant, model))
    except StreamadError as error:
        err.print(note(f"no announcement, running monitors find the version by themselves: {error}"))
    return "running monitors load it within 2 s"
