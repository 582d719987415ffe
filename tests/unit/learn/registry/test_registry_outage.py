"""A registry on a network share that is stale for a moment: an error that callers know, and nothing is lost."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from streamad.errors import RegistryError
from tests.support.learning.store import NAME, LearningPlant


def test_a_stale_handle_of_a_version_is_a_registry_that_cannot_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant = LearningPlant(tmp_path)
    version = plant.train()
    stale = plant.registry.folder(NAME, version)
    stat = Path.stat

    def failing(path: Path, **more: bool) -> os.stat_result:
        if path == stale:
            raise OSError(errno.ESTALE, "Stale file handle", str(path))
        return stat(path, **more)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "stat", failing)
        with pytest.raises(RegistryError, match="Stale file handle"):
            plant.versions.current()
        with pytest.raises(RegistryError, match="Stale file handle"):
            plant.registry.manifest(NAME, version)
    assert plant.versions.current() == version
