"""A plant: its validated settings, its folder and the clock."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from streamad.plugins import ConnectorContext
from streamad.ports import Clock
from streamad.settings.places import Places
from streamad.settings.plant_yaml import Settings


@dataclass(frozen=True, slots=True)
class Plant:
    """A validated config, the folder that its relative paths mean, the clock, and the config's file if it has one."""

    settings: Settings
    base_dir: Path
    clock: Clock
    config: Path | None = None

    @property
    def places(self) -> Places:
        """All places that the config names."""
        return Places.of(self.settings, self.base_dir, self.config)

    @property
    def context(self) -> ConnectorContext:
        """The context that connectors get."""
        settings = self.settings
        return ConnectorContext(
            settings.channel_specs,
            self.clock,
            self.base_dir,
            plant=settings.name,
            source_url=settings.source.url,
            source_options=settings.source.options,
            max_duration_us=settings.sequences.max_duration,
            sequence_from=settings.decode.sequence_from,
            local_times=settings.decode.timezone is not None,
            decimal=settings.decode.decimal,
            thousands=settings.decode.thousands,
            rows_are_times=settings.decode.time == "row",
            label=settings.decode.label,
        )
