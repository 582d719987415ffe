"""A model's versions as they go into service: what the registry names, loaded and verified for this plant."""

from __future__ import annotations

__all__ = ["RegistryVersions"]

from dataclasses import dataclass

from streamad.judge.attribution import Reference
from streamad.judge.calibration import Calibration
from streamad.judge.scoring import ModelInService
from streamad.learn.registry import Registry
from streamad.ports import Detector
from streamad.settings import Settings


@dataclass(frozen=True, slots=True)
class RegistryVersions:
    """The versions of the model ``name``, for a plant with these settings."""

    registry: Registry
    name: str
    settings: Settings
    detector: Detector

    def current(self) -> str | None:
        """Return the version in service, None where there is none. Raises RegistryError where CURRENT is damaged."""
        return self.registry.current(self.name)

    def load(self, version: str | None = None) -> ModelInService:
        """Verify and load a version (None: the one in service).

        Raises NoModelError, RegistryError, ArtifactError for what must not go into service.
        """
        settings = self.settings
        loaded = self.registry.load(
            self.name,
            version,
            kind=settings.model.detector,
            detector=self.detector,
            channels=settings.channel_specs,
            window=settings.window,
            device=settings.model.device,
        )
        return ModelInService(
            loaded.ref,
            loaded.scorer,
            Calibration.from_terms(loaded.calibration_terms, settings.alerts.false_alarm_rate),
            Reference(loaded.reference_values, loaded.reference_lengths),
        )
