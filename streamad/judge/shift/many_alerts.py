"""The message that far too many sequences alert: how many, which channels moved, and what to do."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import PurePath
from typing import Any

from streamad.judge.shift.alert_rate import AllowedRate
from streamad.judge.shift.training_levels import MovedChannel
from streamad.messages import ModelRef
from streamad.settings.places import file_path
from streamad.settings.plant_yaml import Settings

_NAMED = 5
_MODELS_SHOWN = 5


@dataclass(frozen=True, slots=True)
class ManyAlerts:
    """Of the latest ``n_judged`` sequences of ``model`` ``n_alerts`` alert, far more than ``allowed``.

    ``since``: the start of the first of them. ``moved``: the channels whose level or spread differs from training, the
    furthest first; None if the version keeps no training windows. ``of_normal``: only sequences labelled normal count.
    ``is_over``: fewer alert by now.
    """

    model: ModelRef
    allowed: AllowedRate
    n_alerts: int
    n_judged: int
    since: datetime
    moved: tuple[MovedChannel, ...] | None
    of_normal: bool = False
    is_over: bool = False

    @property
    def fact(self) -> str:
        """Return how many sequences alert and how many may, and what that can mean."""
        judged = f"{self.n_judged} {'sequences labelled normal' if self.of_normal else 'judged sequences'}"
        many = f"{self.n_alerts} of the latest {judged} alert, since {self.since_text}"
        if self.is_over:
            many = f"{self.n_alerts} of {judged} in a row alerted from {self.since_text} on"
        n, highest = self.allowed.calibration.n, self.allowed.highest
        allowed = f"the configured rate is {self.allowed.configured:g}, and {n} calibration scores allow {highest:.2g}"
        if self.of_normal:
            means = "the plant differs from its training, or the labels are wrong"
        else:
            means = "either many sequences are really anomalous, or the plant differs from its training"
        over = "; fewer alert by now" if self.is_over else ""
        return f"{many}, far too many: {allowed} at most; {means}{over}"

    @property
    def since_text(self) -> str:
        """Return ``since`` as options take it."""
        return self.since.isoformat(timespec="seconds").replace("+00:00", "Z")

    @property
    def channel_lines(self) -> Iterator[str]:
        """Yield a line for each channel that moved, five at most; or one that says that there is none."""
        if self.moved is None:
            return
        yield from (one.line for one in self.moved[:_NAMED])
        if len(self.moved) > _NAMED:
            yield f"further channels that differ from training in level or spread: {len(self.moved) - _NAMED}"
        if not self.moved:
            yield "no channel differs from training in level or spread: its shape or order may, see streamad explain"

    def remedy(self, settings: Settings, *, learns: bool) -> str:
        """Return what to do; ``learns``: the sequences were stored by a monitor with ``learning``."""
        if (path := file_path(settings.source.url)) is not None:
            train = f"streamad train 'FOLDER/*{PurePath(path).suffix}'"
        else:
            train = f"streamad record --since {self.since_text} --out FOLDER, then streamad train FOLDER"
        these = "the normal ones of these" if self.of_normal else "these"
        normal = f"check units and scaling, or train with FOLDER holding {these} and the former recordings: {train}"
        if learns:
            model = "" if self.model.name == settings.model.name else f" --model {self.model.name}"
            normal += f"; or streamad models relearn --since {self.since_text}{model}"
        return f"if these sequences are normal, {normal}; if they are faults, keep the model"

    def lines(self, settings: Settings, *, learns: bool) -> Iterator[str]:
        """Yield all that is to say, in lines."""
        named = f"{self.model.name}: " if settings.models is not None else ""
        yield f"{named}{self.fact}"
        yield from (f"{named}{line}" for line in self.channel_lines)
        if not self.is_over:
            yield f"{named}{self.remedy(settings, learns=learns)}"

    @property
    def figures(self) -> dict[str, float]:
        """Return the numbers of its event."""
        return {
            "n_alerts": self.n_alerts,
            "n_judged": self.n_judged,
            "configured_rate": self.allowed.configured,
            "highest_rate": self.allowed.highest,
            "n_calibration": self.allowed.calibration.n,
            "since_unix_s": self.since.timestamp(),
        }

    def as_dict(self) -> dict[str, Any]:
        """Return the figures for machines."""
        channels = None if self.moved is None else [asdict(one) for one in self.moved]
        return {"version": self.model.version, **self.figures, "channels": channels, "is_over": self.is_over}


def lines_of(found: Mapping[str, ManyAlerts], settings: Settings, *, learns: bool) -> Iterator[str]:
    """Yield for people all that is to say of the models of a run, in lines; of five models at most."""
    for one in list(found.values())[:_MODELS_SHOWN]:
        yield from one.lines(settings, learns=learns)
    if len(found) > _MODELS_SHOWN:
        yield f"far too many sequences of {len(found) - _MODELS_SHOWN} more models alert: see the events many_alerts"
