"""The parts of the page of one plant: what requests and pages need."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from zoneinfo import ZoneInfo

from streamad.errors import StreamadError
from streamad.learn.parts import registry_of
from streamad.plant import Plant
from streamad.web.access import Access
from streamad.web.cases import Cases
from streamad.web.charts.thumbnails import Thumbnails
from streamad.web.http.changes import Changes
from streamad.web.store.view import View
from streamad.web.workers import Workers


class Site:
    """Holds the parts. ``troubles`` returns why roles are not read, by role."""

    def __init__(
        self,
        plant: Plant,
        view: View,
        workers: Workers,
        *,
        troubles: Callable[[], Mapping[str, str]],
        access: Access,
        changes: Changes,
    ) -> None:
        self.plant, self.view, self.workers, self.troubles = plant, view, workers, troubles
        self.access, self.changes = access, changes
        self.registry = registry_of(plant)
        self.cases = Cases(plant, view)
        self.thumbnails = Thumbnails(self.cases, plant.clock)

    @property
    def rate(self) -> float:
        """Return the configured false-alarm rate."""
        return self.plant.settings.alerts.false_alarm_rate

    @property
    def zone(self) -> ZoneInfo | None:
        """Return the time zone of the plant, in which people write dates; None: they write them in the browser's."""
        name = self.plant.settings.decode.timezone
        return None if name is None else ZoneInfo(name)

    @property
    def learns(self) -> bool:
        """Return whether the plant learns."""
        return self.plant.settings.learning is not None

    def n_calibration(self, model: str | None, version: str | None) -> int | None:
        """Return how many sequences calibrated a version, None if it is gone or none judged."""
        if not model or not version:
            return None
        with suppress(StreamadError):
            return self.registry.manifest(model, version).metrics.n_calibration
        return None
