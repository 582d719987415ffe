"""The sections of ``plant.yaml`` that say how the model follows the plant, and which model judges what."""

from __future__ import annotations

from typing import Literal

from cronsim import CronSim, CronSimError
from pydantic import Field, field_validator

from streamad.settings.fields import ConfigSection, Duration, Name, Url
from streamad.types import from_us

_DAY_US = 86_400_000_000


class DriftSettings(ConfigSection):
    """When a shift of the scores or of a channel is drift."""

    enabled: bool = True
    """Watch the scores and every channel's mean and spread."""
    false_events: float = Field(default=1.0, gt=0, le=1000)
    """Drift events at most expected in 10,000 sequences of a plant that does not change."""
    min_sequences: int = Field(default=100, ge=20)
    """Sequences that a shift is compared with, at least."""
    changed_share: float = Field(default=0.5, gt=0, lt=1)
    """Drift while more than this share of the latest sequences alert means that the plant has changed for good."""
    changed_over: int = Field(default=50, ge=10)
    """So many latest sequences count for changed_share."""


class PromotionSettings(ConfigSection):
    """How much worse than the champion a challenger may look and still take its place."""

    false_alarms: float = Field(default=0.01, ge=0, lt=1)
    """Tolerated on top of the larger of the champion's false-alarm rate and the configured one (comparison half)."""
    detection: float = Field(default=0.05, ge=0, lt=1)
    """Tolerated loss of detection, on injected faults and on confirmed anomalies."""
    min_comparison: int = Field(default=20, ge=5)
    """Fewer sequences in the comparison half decide nothing: the champion stays."""


class LearningSettings(ConfigSection):
    """How the model follows the plant: what is kept, when it retrains, and what a new model must show."""

    store: Url = "inliers"
    """Where sequences are kept: a folder, or an fsspec URL such as s3://bucket/inliers."""
    reserve: float = Field(default=0.2, gt=0, lt=0.9)
    """Share of all sequences, drawn by a hash of the id, that never trains: half calibrates, half compares."""
    accept_above: float = Field(default=0.05, ge=0, lt=1)
    """A normal sequence may train where its p-value is above this."""
    policy: Literal["newest", "reservoir"] = "newest"
    """What stays when a share is full: the newest sequences, or a uniform sample of all within max_age."""
    max_accepted: int = Field(default=2000, ge=20)
    """Sequences kept for training."""
    max_reserve: int = Field(default=800, ge=20)
    """Sequences kept in the reserve."""
    max_aside: int = Field(default=1000, ge=20)
    """Sequences kept of those that were not accepted: for feedback, and for learning anew after a lasting change."""
    max_age: Duration = 90 * _DAY_US
    """Older sequences are dropped (time of the sequence's end)."""
    flush_interval: Duration = 10_000_000
    """Longest time that a sequence waits in memory for its shard."""
    feedback: Url | None = None
    """Topic or file of operators' feedback messages; null: `streamad feedback` writes to the store itself."""
    feedback_share: float = Field(default=0.2, ge=0, le=1)
    """Share of the training set that sequences called false alarms may make up at most."""
    control: Url | None = None
    """Topic that tells running workers of a promotion at once; null: they look into the registry every second."""
    schedule: str | None = "0 3 * * *"
    """Cron expression (UTC) of retraining; null: none."""
    after_inliers: int | None = Field(default=None, ge=10)
    """Retrain after so many newly accepted sequences; null: do not count."""
    on_drift: bool = True
    """Retrain on drift."""
    min_interval: Duration = 3_600_000_000
    """Shortest time between two trainings that nobody asked for."""
    first_training: int = Field(default=200, ge=20)
    """Without a model, so many sequences are collected before the first training."""
    min_training: int = Field(default=60, ge=10)
    """Fewer training sequences than this train nothing."""
    presumed_anomalies: float = Field(default=0.0, ge=0, lt=0.5)
    """Share of anomalies presumed in what no model has judged (the first training, learning anew)."""
    trim: float = Field(default=0.05, ge=0, lt=0.5)
    """Worst-scoring share of the training set that a first fit drops before the final one."""
    relearn: Literal["off", "auto"] = "off"
    """auto: after a lasting change, learn anew from the sequences since, without asking."""
    threads: int = Field(default=1, ge=1)
    """Threads of the training process, which runs at the lowest priority."""
    drift: DriftSettings = DriftSettings()
    """When a shift is drift."""
    promotion: PromotionSettings = PromotionSettings()
    """What a challenger must show."""

    @field_validator("schedule")
    @classmethod
    def _is_cron(cls, expression: str | None) -> str | None:
        try:
            if expression is not None:
                CronSim(expression, from_us(0))
        except CronSimError as error:
            raise ValueError(f"{expression!r} is no cron expression ({error}): write such as '0 3 * * *'") from error
        return expression

    def contradiction(self) -> str | None:
        """Say which limits can never be met together, None where all can."""
        free, kept = self.first_training * (1 - self.reserve), self.max_accepted + self.max_reserve
        comparison = self.promotion.min_comparison
        if self.max_accepted < self.min_training:
            return f"max_accepted ({self.max_accepted}) is below min_training ({self.min_training})"
        if self.first_training > kept:
            return f"first_training ({self.first_training}) is above what the store keeps ({kept}): no model would come"
        if free < self.min_training:
            what = f"of first_training ({self.first_training}) sequences about {free:.0f} are not reserved"
            return f"{what}, and min_training ({self.min_training}) of them are needed"
        if self.max_reserve < 3 * comparison:
            return f"max_reserve ({self.max_reserve}) is below three times promotion.min_comparison ({comparison})"
        return None


class RoutingSettings(ConfigSection):
    """Which model judges a sequence: the one named after the value of a field of its messages."""

    field: str
    """Field of the messages that chooses the model (a dotted path for nested ones), such as recipe."""
    values: tuple[Name, ...] = ()
    """Values known beforehand; each has a model of its own, named after model.name and the value."""
    unknown: Literal["own", "default", "unscorable"] = "own"
    """Any other value: a model of its own (it starts learning), that for all others (model.name), or no verdict."""
    missing: Literal["default", "unscorable"] = "default"
    """Messages without the field: judged by model.name, or not at all."""
    max_models: int = Field(default=20, ge=1)
    """More models than this are not made: further values are unscorable."""
