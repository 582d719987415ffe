"""The config's sections on outputs: where messages go, and what is kept for people to look at."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from streamad.settings.fields import ConfigSection, Duration, Url


class SinkSettings(ConfigSection):
    """Where messages go, one URL per role; a missing role is not written."""

    alerts: Url = "stdout:"
    """Alerts (and, without a verdicts sink, unscorable verdicts)."""
    attributions: Url | None = None
    """The attribution of each alert."""
    verdicts: Url | None = None
    """The verdict of every sequence."""
    windows: Url | None = None
    """Judged windows: with a learner of every scored sequence, else those to look at (`display.windows`)."""
    dead_letters: Url | None = None
    """Unreadable records."""
    late: Url | None = None
    """Late samples."""
    events: Url | None = None
    """Events for the operator."""
    status: Url | None = None
    """The status of each worker; a path is a folder, which has a file for each."""
    options: dict[str, dict[str, Any]] = Field(default={})
    """Options of the connectors by scheme (`kafka: {...}`); the source's own hold for its system."""


class DisplaySettings(ConfigSection):
    """What is kept for people to look at."""

    windows: Literal["alerts", "all"] = "alerts"
    """Judged windows that the windows sink gets: of alerts and a hash-drawn 5 % of the others, or of all sequences."""
    status_interval: Duration = Field(default=10_000_000, ge=1_000_000, le=3_600_000_000)
    """How often a worker writes its status."""
    open: bool = False
    """Whether the readings so far of open sequences are written with the status."""
