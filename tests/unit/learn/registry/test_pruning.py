"""Old versions are removed, and never one that may still be needed."""

from __future__ import annotations

import shutil
from pathlib import Path

import msgspec
import pytest

from streamad.errors import RegistryError
from streamad.learn.registry.manifest import MANIFEST_FILE, LearningRecord, PromotionDecision, encode_manifest
from streamad.learn.registry.pruning import prune
from streamad.learn.registry.registry import Registry
from streamad.types import from_us
from tests.support.learning.plant import NOW_US, train, windows_of

NAME = "default"


def versions_in(root: Path, n: int) -> Registry:
    """A registry of ``n`` versions, the last one in service."""
    for seed in range(n):
        train(root, data=windows_of(30, seed=seed))
    return Registry(root)


def changed(registry: Registry, version: str, **fields: object) -> None:
    manifest = msgspec.structs.replace(registry.manifest(NAME, version), **fields)  # type: ignore[arg-type]
    (registry.folder(NAME, version) / MANIFEST_FILE).write_bytes(encode_manifest(manifest))


def test_the_newest_stay_with_the_one_in_service_and_its_parent(tmp_path: Path) -> None:
    registry = versions_in(tmp_path, 7)
    registry.promote(NAME, "0003", expected="0007")
    assert registry.manifest(NAME, "0003").parent == "0002"
    assert prune(registry, NAME, keep=2, owed=(), dry_run=True) == ("0001", "0004", "0005")
    assert len(registry.versions(NAME)) == 7
    assert prune(registry, NAME, keep=2, owed=()) == ("0001", "0004", "0005")
    assert registry.versions(NAME) == ("0002", "0003", "0006", "0007")
    assert prune(registry, NAME, keep=2, owed=()) == ()
    assert train(tmp_path) == "0008"
    assert not list((tmp_path / NAME / "versions").glob(".staging*"))


def test_a_version_that_waits_for_review_or_belongs_to_an_open_training_stays(tmp_path: Path) -> None:
    registry = versions_in(tmp_path, 8)
    waits = PromotionDecision(
        promoted=False, reason="waits", decided_at=from_us(NOW_US), champion="0008", waits_for_review=True
    )
    changed(registry, "0002", decision=waits)
    changed(registry, "0003", decision=msgspec.structs.replace(waits, champion="0001"))
    changed(registry, "0005", learning=LearningRecord(reason="command", requested_us=7), parent="0004")
    assert prune(registry, NAME, keep=1, owed=(), open_requests={7}) == ("0001", "0003", "0006")
    assert registry.versions(NAME) == ("0002", "0004", "0005", "0007", "0008")  # 0007 is the parent of 0008


def test_a_version_that_cannot_be_read_is_left_for_a_person(tmp_path: Path) -> None:
    registry = versions_in(tmp_path, 4)
    (registry.folder(NAME, "0001") / MANIFEST_FILE).write_bytes(b"damaged")
    assert prune(registry, NAME, keep=1, owed=()) == ("0002",)
    assert registry.versions(NAME) == ("0001", "0003", "0004")


def test_what_is_no_version_or_damaged_counts_for_none_and_stays(tmp_path: Path) -> None:
    registry = versions_in(tmp_path, 4)
    versions = tmp_path / NAME / "versions"
    for copy in ("0005", "0006", "copy-of-0004"):
        shutil.copytree(versions / "0001", versions / copy)
    (versions / "9000").symlink_to("0001")
    (versions / "0003").rename(tmp_path / "0003")
    (versions / "0003").symlink_to(tmp_path / "0003")  # moved to another disk
    train(tmp_path, data=windows_of(30, seed=9))
    (registry.folder(NAME, "0007") / MANIFEST_FILE).write_bytes(b"damaged")
    registry.promote(NAME, "0004", expected="0007")
    before = sorted(entry.name for entry in versions.iterdir())
    assert prune(registry, NAME, keep=2, owed=()) == ("0001",)  # 0002 and 0004 are the newest two that count
    assert sorted(entry.name for entry in versions.iterdir()) == before[1:]
    assert (tmp_path / "0003" / MANIFEST_FILE).exists()


def test_a_process_killed_while_it_removes_leaves_no_half_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    registry = versions_in(tmp_path, 4)

    def killed(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("shutil.rmtree", killed)
        with pytest.raises(KeyboardInterrupt):
            prune(registry, NAME, keep=1, owed=())
    assert registry.versions(NAME) == ("0002", "0003", "0004")
    assert len(list((tmp_path / NAME / "versions").glob(".staging-*"))) == 1
    train(tmp_path)  # the next writer removes what is left
    assert not list((tmp_path / NAME / "versions").glob(".staging*"))


@pytest.mark.parametrize("keep", [0, -1])
def test_at_least_one_version_is_kept(tmp_path: Path, keep: int) -> None:
    with pytest.raises(RegistryError, match="keep 1 at least"):
        prune(Registry(tmp_path), NAME, keep=keep, owed=())
    assert prune(Registry(tmp_path), NAME, keep=1, owed=()) == ()
