"""Where an acceptance comes from: config, models and software, each with its digest or version."""

from __future__ import annotations

import platform
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from streamad.commands.validate.data import file_digest
from streamad.decisions.in_service import settings_digest
from streamad.learn.parts import registry_of
from streamad.learn.registry.approvals import digest_of
from streamad.learn.registry.manifest import package_versions
from streamad.messages import ModelRef
from streamad.plant import Plant
from streamad.safe_text import masked
from streamad.settings.plant_yaml import ENV_PREFIX
from streamad.settings.yaml_file import environment_of
from streamad.validation.protocol import FileDigest, ModelFacts, Origin


def origin_of(plant: Plant, expectations: Path) -> Origin:
    """Return config, expectations and versions. Raises SourceError."""
    settings = plant.settings
    assert plant.config is not None
    table = settings.sequences.table
    further = () if table is None else (file_digest(plant.base_dir / table.file, str(table.file)),)
    return Origin(
        config=file_digest(plant.config, plant.config.name),
        settings_sha256=settings_digest(plant),
        overrides=tuple(sorted(_overrides(plant))),
        expectations=file_digest(expectations, expectations.name),
        further=further,
        seed=settings.model.seed,
        versions=package_versions(),
        system=platform.platform(),
    )


def _overrides(plant: Plant) -> Iterable[str]:
    """Return the environment variables that name a key of the config."""
    keys = {name.upper() for name in type(plant.settings).model_fields}
    return (name for name in environment_of(ENV_PREFIX) if name.removeprefix(ENV_PREFIX).split("__")[0] in keys)


def models_of(plant: Plant, refs: Sequence[ModelRef]) -> tuple[ModelFacts, ...]:
    """Return the versions that judged. Raises RegistryError, ArtifactError."""
    return tuple(_model(plant, ref) for ref in sorted(refs, key=lambda each: (each.name, each.version)))


def _model(plant: Plant, ref: ModelRef) -> ModelFacts:
    manifest = registry_of(plant).manifest(ref.name, ref.version)
    files: Mapping[str, FileDigest] = {
        name: FileDigest(name, one.size_bytes, one.sha256) for name, one in sorted(manifest.files.items())
    }
    return ModelFacts(
        name=ref.name,
        version=ref.version,
        sha256=digest_of(manifest),
        detector=manifest.detector.kind,
        seed=manifest.seed,
        n_training=manifest.metrics.n_training,
        n_calibration=manifest.metrics.n_calibration,
        calibration=manifest.metrics.method,
        trained_at=manifest.created_at,
        trained_with={name: masked(version) for name, version in sorted(manifest.packages.items())},
        files=tuple(files.values()),
    )
