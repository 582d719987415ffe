"""Pictures of alerts for mails and chats, drawn in a thread of its own."""

from __future__ import annotations

from importlib.util import find_spec

from streamad.messages import Alert, Attribution, Window
from streamad.notify.companions import Companions
from streamad.notify.notices import Item
from streamad.outputs.cases import Case, Normals, courses_of_message
from streamad.pictures.drawing import drawn
from streamad.pictures.facts import Facts
from streamad.plant import Plant
from streamad.safe_text import described
from streamad.system.threads import LoneThread, in_thread
from streamad.telemetry.logs import get_logger


class Picturing:
    """Draws an alert over the normal band if its window is kept and matplotlib is installed."""

    def __init__(self, plant: Plant, windows: Companions) -> None:
        self._plant, self._windows = plant, windows
        self._normals = Normals(plant)
        self._thread = LoneThread("notify-pictures")
        self._is_reported = False
        self.is_possible = windows.is_kept and find_spec("matplotlib") is not None
        """Whether there are windows and matplotlib."""

    async def of(self, item: Item, until_s: float) -> bytes | None:
        """Return a PNG of an alert, whose window is waited for until ``until_s``; None if it cannot be drawn.

        A running sequence has no window.
        """
        alert = item.message
        if not self.is_possible or not isinstance(alert, Alert):
            return None
        window = await self._windows.of(alert.alert_id, Window, until_s)
        if window is None:
            return None
        try:
            return await in_thread(self._thread, self._drawn, Facts.of(alert), item.attribution, window)
        except Exception as error:  # noqa: BLE001 - whoever can write a window can write anything into it
            if not self._is_reported:
                get_logger().warning("a picture could not be drawn", alert=alert.alert_id, why=described(error))
            self._is_reported = True
            return None

    def close(self) -> None:
        """End the thread; safe to call twice."""
        self._thread.shutdown(cancel_futures=True)

    def _drawn(self, facts: Facts, attribution: Attribution | None, window: Window) -> bytes | None:
        case = Case(facts, attribution, courses_of_message(window, facts, self._plant.settings))
        picture = case.picture(self._normals.of(facts))
        return None if picture is None else drawn(picture)
