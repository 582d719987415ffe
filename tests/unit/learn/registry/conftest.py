"""The registry in each of the places where versions lie."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from streamad.learn.registry.manifest import MANIFEST_FILE, Manifest
from streamad.learn.registry.registry import Registry
from tests.support.learning.places import NAME, Held, HeldInFolder, HeldInStore
from tests.support.learning.plant import train
from tests.support.objects import Bucket


@pytest.fixture
def stored(bucket: Bucket, tmp_path: Path) -> HeldInStore:
    return HeldInStore(f"{bucket.url}/plant/models", tmp_path / "machines")


@pytest.fixture(params=["folder", "s3"])
def held(request: pytest.FixtureRequest, tmp_path: Path) -> Held:
    """A registry without versions: its laws are the same wherever it lies."""
    return HeldInFolder(tmp_path / "registry") if request.param == "folder" else request.getfixturevalue("stored")


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a version, for many publications."""
    root = tmp_path_factory.mktemp("trained")
    train(root)
    return Registry(root).folder(NAME, "0001")


@pytest.fixture
def published(trained: Path) -> Callable[..., str]:
    """What publishes the version once more, as the next one."""
    draft = msgspec.json.decode((trained / MANIFEST_FILE).read_bytes(), type=Manifest)

    def publish(registry: Registry, parent: str | None = None) -> str:
        with registry.new_version(NAME) as staged:
            for path in trained.iterdir():
                if path.name != MANIFEST_FILE:
                    shutil.copy(path, staged.folder)
            return staged.publish(msgspec.structs.replace(draft, parent=parent, decision=None))

    return publish
