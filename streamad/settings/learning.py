"""The sections ``model``, ``learning`` and ``models`` of ``plant.yaml``: what judges, and how it may change."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, TypeAlias

from cronsim import CronSim, CronSimError
from pydantic import Field, field_validator, model_validator

from streamad.messages import Share
from streamad.settings.fields import URL_LIKE, ConfigSection, Duration, LocalFolder, Name, RegistryPlace, Url
from streamad.types import from_us

_DAY_US = 86_400_000_000
_TENTHS: Mapping[Share, int] = {"accepted": 10, "reserve": 4, "aside": 5}
"""Sequences that a share keeps, for ten accepted ones."""


Effort: TypeAlias = Literal["quick", "normal", "thorough"]


class ModelSettings(ConfigSection):
    """The detector and where its versions are kept."""

    name: Name = "default"
    """Name in the registry."""
    recordings: Url | None = None
    """What `streamad train` learns from; null: the source."""
    registry: RegistryPlace = "registry"
    """Folder of the model registry, or its URL in an object store: s3://, gs://, az://."""
    cache: LocalFolder = Path("registry-copies")
    """Local folder, for a registry at a URL: copies of versions, state of trainings."""
    detector: str = "ensemble"
    """Kind: ensemble, neutral_ad, a simple one (pointwise, pca, nearest, minirocket, unfolded, mpca), or yours."""
    options: dict[str, Any] = Field(default={})
    """Options of the detector."""
    locked: bool = False
    """Only people change which version judges, two for each; what else would change it is refused at the start."""
    keep: int | None = Field(default=None, ge=1)
    """Versions kept: after a training older ones are removed, never those that may still be needed; null: all."""
    seed: int = Field(default=0, ge=0)
    """Same data and seed, same model."""
    backend: Literal["auto", "torchscript", "onnxruntime", "openvino"] = "torchscript"
    """torchscript; onnxruntime or openvino (no torch); auto: the fastest here."""
    device: str = Field(default="auto", pattern=r"^(auto|cpu|cuda(:\d+)?)$")
    """auto, cpu, cuda or cuda:i."""
    calibration: float = Field(default=0.5, gt=0, lt=1)
    """Share of recordings held out (from 150 sequences on)."""
    folds: int = Field(default=5, ge=2)
    """Folds of the out-of-fold calibration."""
    references: tuple[str, ...] = ("pointwise", "pca", "nearest", "minirocket", "unfolded", "mpca")
    """Kinds to compare a trained model with; `[]`: none, and no faults are injected."""
    effort: Effort | None = None
    """quick (seconds), normal (minutes), thorough; null: the detector's default."""
    time_limit: Duration | None = None
    """Longest time of one fit (of a fold or the final model); null: none."""

    @field_validator("time_limit")
    @classmethod
    def _longer_than_nothing(cls, limit: int | None) -> int | None:
        if limit == 0:
            raise ValueError("must be longer than 0 (null: no limit)")
        return limit

    @model_validator(mode="after")
    def _stays_as_it_is(self) -> ModelSettings:
        given = {"backend": self.backend, "device": self.device}
        if self.locked and (found := [f"{key}: auto" for key, value in given.items() if value == "auto"]):
            raise ValueError(
                f"model.locked: true, and {' and '.join(found)} would change what scores by itself, with the "
                "machine or the packages on it: name one, such as device: cpu"
            )
        return self


class DriftSettings(ConfigSection):
    """When a shift of the scores or of a channel is drift."""

    enabled: bool = True
    """Watch scores and channels."""
    false_events: float = Field(default=1.0, gt=0, le=1000)
    """Most false drift events in 10,000 sequences."""
    min_sequences: int = Field(default=100, ge=20)
    """Fewest sequences to compare with."""
    changed_share: float = Field(default=0.5, gt=0, lt=1)
    """Share of alerts during drift that means a changed plant."""
    changed_over: int = Field(default=50, ge=10)
    """Number of those latest sequences."""


class PromotionSettings(ConfigSection):
    """How much worse than the champion a challenger may be and still be promoted."""

    false_alarms: float = Field(default=0.01, ge=0, lt=1)
    """Tolerated above the larger of the champion's false-alarm rate and the configured one."""
    detection: float = Field(default=0.05, ge=0, lt=1)
    """Tolerated loss of detection of injected faults and confirmed anomalies."""
    min_comparison: int = Field(default=20, ge=5)
    """With fewer sequences to compare, the champion stays."""


class LearningSettings(ConfigSection):
    """How the model follows the plant: the store, retraining, and the promotion rule."""

    process: Literal["here", "elsewhere"] = "here"
    """Who starts `streamad learn`: `streamad run` (here), or others, such as on a machine with a GPU (elsewhere)."""
    store: Path = Path("inliers")
    """Folder of the inlier store, on the learner's machine."""
    reserve: float = Field(default=0.2, gt=0, lt=0.9)
    """Share that never trains: calibrates and compares."""
    accept_above: float = Field(default=0.05, ge=0, lt=1)
    """Normal sequences with a larger p-value may train."""
    max_training: int = Field(default=2000, ge=50)
    """Sequences kept for training; 0.4 times as many are kept in the reserve, 0.5 times as many that were set aside."""
    max_age: Duration = 90 * _DAY_US
    """Sequences that ended earlier are dropped."""
    keep_windows: Duration = 30 * _DAY_US
    """Files of windows are deleted so long after the learner has read them."""
    feedback: Url | None = None
    """The former name of the key `marks`; null: `marks` says it."""
    feedback_principal: str | None = Field(default=None, min_length=1)
    """Kafka header of the sender, set by broker or proxy, never by the sender; null: none."""
    feedback_share: float = Field(default=0.2, ge=0, le=1)
    """Bound on what marks keep out, and on false alarms that train."""
    promote: Literal["auto", "person"] = "auto"
    """Who puts a version into service that passed the promotion rule: the learner (auto), or two people (person)."""
    feedback_trust: Literal["person", "auto"] = "person"
    """Versions changed by false alarms wait for a person, or not (auto)."""
    schedule: str | None = "0 3 * * *"
    """Cron expression (UTC) of retraining; null: none."""
    after_inliers: int | None = Field(default=None, ge=10)
    """Retrain after so many newly accepted sequences; null: no count."""
    on_drift: bool = True
    """Retrain on drift."""
    min_interval: Duration = 3_600_000_000
    """Shortest time between automatic trainings."""
    first_training: int = Field(default=200, ge=20)
    """Sequences collected before the first training."""
    min_training: int = Field(default=60, ge=10)
    """Fewest sequences to train on."""
    presumed_anomalies: float = Field(default=0.0, ge=0, lt=0.5)
    """Share of anomalies presumed in unjudged sequences."""
    trim: float = Field(default=0.05, ge=0, lt=0.5)
    """Worst-scoring share of the training set, dropped."""
    relearn: Literal["off", "auto"] = "off"
    """auto: learn anew after a lasting change."""
    threads: int = Field(default=1, ge=1)
    """Threads of the training process."""
    drift: DriftSettings = DriftSettings()
    """When a shift is drift."""
    promotion: PromotionSettings = PromotionSettings()
    """The promotion rule."""

    @model_validator(mode="before")
    @classmethod
    def _check_replaced_keys(cls, values: object) -> object:
        """Refuse the three keys that ``max_training`` replaces, and say which value keeps as many of each share."""
        given = {f"max_{share}": tenths for share, tenths in _TENTHS.items()}
        found = [key for key in given if isinstance(values, dict) and key in values]
        if not found:
            return values
        assert isinstance(values, dict)
        wanted = [math.ceil(values[key] * 10 / given[key]) for key in found if isinstance(values[key], int)]
        n = max(wanted, default=cls.model_fields["max_training"].default)
        raise ValueError(f"{', '.join(found)}: one key bounds all three shares now: write max_training: {n}")

    @field_validator("store")
    @classmethod
    def _is_a_folder(cls, folder: Path) -> Path:
        if URL_LIKE.match(str(folder)):  # Path has made one slash of two
            raise ValueError("is a URL, and the store is a file of the learner's machine: name a folder there")
        return folder

    @field_validator("schedule")
    @classmethod
    def _is_cron(cls, expression: str | None) -> str | None:
        try:
            if expression is not None:
                CronSim(expression, from_us(0))
        except CronSimError as error:
            raise ValueError(f"{expression!r} is no cron expression ({error}): write such as '0 3 * * *'") from error
        return expression

    def limit(self, share: Share) -> int:
        """Return how many sequences of ``share`` the store keeps."""
        return self.max_training * _TENTHS[share] // 10

    def contradiction(self) -> str | None:
        """Return which settings can never be met together, None if all can."""
        free, kept = self.first_training * (1 - self.reserve), self.limit("accepted") + self.limit("reserve")
        comparison = self.promotion.min_comparison
        if self.max_training < self.min_training:
            return f"max_training ({self.max_training}) is below min_training ({self.min_training})"
        if self.first_training > kept:
            return f"first_training ({self.first_training}) is above what the store keeps ({kept}): no model would come"
        if free < self.min_training:
            what = f"of first_training ({self.first_training}) sequences about {free:.0f} are not reserved"
            enough = math.ceil(self.min_training / (1 - self.reserve))
            way = f"raise first_training to {enough} or " if enough <= kept else ""
            need = f"min_training ({self.min_training}) of them are needed"
            return f"{what}, and {need}: {way}lower min_training or reserve"
        if (reserve := self.limit("reserve")) < 3 * comparison:
            return (
                f"max_training ({self.max_training}) keeps {reserve} sequences in the reserve, less than three times "
                f"promotion.min_comparison ({comparison})"
            )
        return None


def unlocked(learning: LearningSettings) -> str:
    """Return which options of the section would change a model by themselves: ``model.locked`` allows none."""
    drift = learning.drift.enabled and learning.on_drift
    found = {
        f"first_training: {learning.first_training}": True,
        f"schedule: {learning.schedule!r}": learning.schedule is not None,
        f"after_inliers: {learning.after_inliers}": learning.after_inliers is not None,
        "on_drift: true": drift,
        "relearn: auto": learning.relearn == "auto",
        "promote: auto": learning.promote == "auto",
        "feedback_trust: auto": learning.feedback_trust == "auto",
    }
    names = ", ".join(name for name, acts in found.items() if acts)
    return (
        f"model.locked: true, and this section would train, calibrate and change models by itself ({names}): remove "
        "the section learning (people train with streamad train), or write model.locked: false"
    )


class RoutingSettings(ConfigSection):
    """Which model judges a sequence: the one named after the value of a field of its messages."""

    field: str
    """Field that chooses the model."""
    values: tuple[Name, ...] = ()
    """Known values; each has its own model, model.name.VALUE."""
    unknown: Literal["own", "default", "unscorable"] = "own"
    """Other values: their own model, the default one, or no verdict (`unscorable`)."""
    missing: Literal["default", "unscorable"] = "default"
    """Messages without the field: model.name, or no verdict."""
    max_models: int = Field(default=20, ge=1)
    """Sequences of further values are unscorable."""
