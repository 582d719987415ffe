from __future__ import annotations

import json
import os
import shutil
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import numpy as np
import pytest

from streamad.errors import ArtifactError, OutputError, RegistryError
from streamad.learn.registry.manifest import MANIFEST_FILE, Manifest, PromotionDecision, encode_manifest
from streamad.learn.registry.registry import CurrentError, NoModelError, OvertakenError, Registry
from tests.support.files import file_size_limit, stale_handle
from tests.support.learning.plant import C, L, load, settings_of, train, windows_of

ODD_NAMES = ["", ".", "..", "../other", "a/b", "/etc", ".hidden", "a\n", "a b", "é", "x" * 65, "a\0b"]


def with_challenger(root: Path) -> Registry:
    """A registry with 0001 in service and 0002 not promoted."""
    train(root)
    train(root, data=windows_of(30, seed=1), promote=False)
    return Registry(root)


def test_a_published_version_holds_exactly_the_layout(tmp_path: Path) -> None:
    version = train(tmp_path)
    assert version == "0001"
    folder = tmp_path / "default" / "versions" / "0001"
    files = {
        "model.npz",
        "manifest.json",
        "calibration.npy",
        "probe.npz",
        "reference.npz",
        "training_ids.npy",
        "envelope.npz",
    }
    assert {path.name for path in folder.iterdir()} == files
    assert (tmp_path / "default" / "CURRENT").read_text() == "0001\n"
    assert [path.name for path in (tmp_path / "default" / "versions").iterdir()] == ["0001"]


def test_manifest_records_all_that_was_trained(tmp_path: Path) -> None:
    train(tmp_path)
    train(tmp_path, data=windows_of(30, seed=1))
    manifest = Registry(tmp_path).manifest("default", "0002")
    assert (manifest.name, manifest.version, manifest.parent) == ("default", "0002", "0001")
    assert manifest.channels == settings_of().channel_specs
    assert manifest.window.length == L
    assert manifest.detector.kind == "mean"
    assert manifest.metrics.method == "out_of_fold"
    assert (manifest.metrics.n_training, manifest.metrics.n_calibration) == (30, 30)
    assert len(manifest.metrics.fold_medians) == 5
    assert manifest.created_at == datetime(2026, 3, 1, 8, 15, 30, 250000, tzinfo=UTC)
    assert manifest.packages["numpy"] == np.__version__
    assert manifest.decision is not None
    assert manifest.decision.promoted
    raw = (tmp_path / "default" / "versions" / "0002" / "manifest.json").read_bytes()
    assert msgspec.json.decode(raw, type=Manifest) == manifest
    assert json.loads(raw)["schema_version"] == 1


def test_loaded_model_scores_and_carries_its_calibration(tmp_path: Path) -> None:
    data = windows_of(30)
    train(tmp_path, data=data)
    model = load(tmp_path)
    assert (model.ref.name, model.ref.version) == ("default", "0001")
    assert model.calibration_terms.shape == (30, C)
    assert model.calibration_terms.dtype == np.float32
    assert model.reference.values.shape[1:] == (C, L)
    assert len(model.reference.values) == len(model.reference.lengths) == 24
    known = {window.tobytes() for window in data.values}
    assert all(window.tobytes() in known for window in model.reference.values)
    name_of = {window.tobytes(): name for window, name in zip(data.values, data.ids, strict=True)}
    assert list(model.reference.names) == [name_of[window.tobytes()] for window in model.reference.values]
    assert model.scorer.score(data.values, data.lengths).shape == (30, C)


def test_no_model_is_an_error_with_the_command_that_trains_one(tmp_path: Path) -> None:
    with pytest.raises(NoModelError, match=r"streamad train --config FILE \(the config of this command\)$") as caught:
        load(tmp_path / "nothing-here")
    assert "\n" not in str(caught.value)
    assert Registry(tmp_path).current("default") is None
    assert Registry(tmp_path).versions("default") == ()


def test_unknown_version_lists_those_there_are(tmp_path: Path) -> None:
    train(tmp_path)
    with pytest.raises(RegistryError, match=r"no version 0009 \(there are: 0001\)"):
        load(tmp_path, "0009")


@pytest.mark.parametrize("digits", ["9" * 5000, "0" * 5000 + "9"])
def test_a_version_of_more_digits_than_a_number_may_have_is_unknown(tmp_path: Path, digits: str) -> None:
    train(tmp_path)
    assert Registry(tmp_path).named("default", digits) == digits
    assert Registry(tmp_path).named("default", "0" * 5000 + "1") == "0001"


def renamed(root: Path, version: str, to: str) -> None:
    """Make the version one of another number, as if so many had been trained."""
    folder = root / "default/versions" / to
    manifest = Registry(root).manifest("default", version)
    shutil.copytree(root / "default/versions" / version, folder)
    (folder / MANIFEST_FILE).write_bytes(encode_manifest(msgspec.structs.replace(manifest, version=to)))


def test_versions_are_ordered_by_number(tmp_path: Path) -> None:
    train(tmp_path)
    for version in ("10000", "0002", "imported", "9999"):
        renamed(tmp_path, "0001", version)
    assert Registry(tmp_path).versions("default") == ("0001", "0002", "9999", "10000", "imported")
    assert train(tmp_path) == "10001"


def test_copies_links_and_folders_of_others_are_no_versions_and_give_no_number(tmp_path: Path) -> None:
    registry = with_challenger(tmp_path)
    versions = tmp_path / "default/versions"
    shutil.copytree(versions / "0001", versions / "0003")
    (versions / "9000").symlink_to("0002")
    (versions / "9999").mkdir()
    (versions / "9998").mkdir()
    (versions / "9998" / MANIFEST_FILE).write_text('{"name": "chart"}')
    assert registry.versions("default") == ("0001", "0002")
    found = registry.other_folders("default")
    assert list(found) == ["0003", "9000", "9998", "9999"]
    assert "its manifest is that of default 0001, so the folder was copied" in found["0003"]
    assert "its manifest is that of default 0002" in found["9000"]
    assert "is not a streamad manifest: move" in found["9998"]
    assert "the folder has no manifest.json: restore it from a backup, or move" in found["9999"]
    assert train(tmp_path) == "0004"  # 0003 is taken
    for use in (registry.manifest, load_version):
        with pytest.raises(ArtifactError, match="its manifest is that of default 0001"):
            use(*((tmp_path, "0003") if use is load_version else ("default", "0003")))


def load_version(root: Path, version: str) -> object:
    return load(root, version)


def test_a_damaged_version_stays_one(tmp_path: Path) -> None:
    registry = with_challenger(tmp_path)
    (registry.folder("default", "0002") / MANIFEST_FILE).write_bytes(b"damaged")
    assert registry.versions("default") == ("0001", "0002")
    assert registry.other_folders("default") == {}
    assert train(tmp_path, data=windows_of(30, seed=2)) == "0003"


def decided(challenger: str, champion: str | None, number: int = 0) -> PromotionDecision:
    decided_at = datetime(2026, 3, 2, tzinfo=UTC)
    return PromotionDecision(
        promoted=False, reason=f"no {number}", decided_at=decided_at, challenger=challenger, champion=champion
    )


def test_a_champion_keeps_the_latest_50_decisions(tmp_path: Path) -> None:
    registry = with_challenger(tmp_path)
    for number in range(52):
        registry.record_decision("default", "0002", decided("0002", "0001", number))
    challenged = registry.manifest("default", "0001").challenged
    assert [each.reason for each in challenged] == [f"no {number}" for number in range(2, 52)]


@pytest.mark.parametrize("champion", ["damaged", "gone"])
def test_a_champion_that_is_damaged_or_gone_keeps_no_decision_out_of_the_challenger(
    tmp_path: Path, champion: str
) -> None:
    registry = with_challenger(tmp_path)
    if champion == "damaged":
        (tmp_path / "default" / "versions" / "0001" / "manifest.json").write_bytes(b"{")
    named = "0001" if champion == "damaged" else "0000"
    registry.record_decision("default", "0002", decided("0002", named))
    assert registry.manifest("default", "0002").decision == decided("0002", named)


def test_manifests_from_before_retraining_are_read_and_load(tmp_path: Path) -> None:
    train(tmp_path)
    path = tmp_path / "default" / "versions" / "0001" / "manifest.json"
    content = json.loads(path.read_bytes())
    for name in ("learning", "challenged"):
        del content[name]
    for name in ("challenger", "champion"):
        del content["decision"][name]
    del content["metrics"]["n_presumed"]
    path.write_text(json.dumps(content))
    manifest = load(tmp_path).manifest
    assert (manifest.learning, manifest.challenged, manifest.metrics.n_presumed) == (None, (), 0)


def test_unpublished_staging_leaves_nothing(tmp_path: Path) -> None:
    with Registry(tmp_path).new_version("default") as staged:
        (staged.folder / "model.npz").write_bytes(b"half")
    assert list((tmp_path / "default" / "versions").iterdir()) == []
    with pytest.raises(KeyboardInterrupt), Registry(tmp_path).new_version("default") as staged:
        raise KeyboardInterrupt
    assert list((tmp_path / "default" / "versions").iterdir()) == []


def test_leftover_staging_is_ignored_and_cleared_by_the_next_writer(tmp_path: Path) -> None:
    train(tmp_path)
    versions = tmp_path / "default" / "versions"
    (versions / ".staging-dead").mkdir()
    (versions / ".staging-dead" / "model.npz").write_bytes(b"half")
    (versions / ".staging-dead.lock").touch()
    (versions / ".staging-older").mkdir()
    assert Registry(tmp_path).versions("default") == ("0001",)
    with Registry(tmp_path).new_version("default") as living:
        assert not (versions / ".staging-dead").exists()
        assert not (versions / ".staging-older").exists()
        with Registry(tmp_path).new_version("default"):
            assert living.folder.is_dir()
    assert sorted(path.name for path in versions.iterdir()) == ["0001"]


def test_export_with_a_folder_or_odd_name_is_refused(tmp_path: Path) -> None:
    train(tmp_path)
    manifest = Registry(tmp_path).manifest("default", "0001")
    for name in ("sub", "odd name"):
        with Registry(tmp_path).new_version("default") as staged:
            (staged.folder / name).mkdir()
            with pytest.raises(ArtifactError, match="plain files with plain names only"):
                staged.publish(manifest)
    assert Registry(tmp_path).versions("default") == ("0001",)


def test_a_file_where_the_registry_should_be_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "registry").write_text("not a folder")
    with pytest.raises(OutputError, match="a file is in the way where a folder is needed"):
        Registry(tmp_path / "registry").new_version("default")
    with pytest.raises(RegistryError, match="Not a directory"):
        train(tmp_path / "registry")
    assert (tmp_path / "registry").read_text() == "not a folder"


def test_a_promotion_that_cannot_be_written_keeps_the_champion(tmp_path: Path) -> None:
    registry = with_challenger(tmp_path)
    with (
        file_size_limit(2),
        pytest.raises(OutputError, match="File too large; raise the file size limit") as caught,
    ):
        registry.promote("default", "0002", expected="0001")
    assert "\n" not in str(caught.value)
    assert registry.current("default") == "0001"
    registry.promote("default", "0002", expected="0001")
    assert registry.current("default") == "0002"


def test_a_stale_handle_of_a_version_is_a_registry_that_cannot_be_read(tmp_path: Path) -> None:
    version = train(tmp_path)
    registry = Registry(tmp_path)
    stale = registry.folder("default", version)
    with stale_handle(stale):
        with pytest.raises(RegistryError, match="Stale file handle"):
            registry.current("default")
        with pytest.raises(RegistryError, match="Stale file handle"):
            registry.manifest("default", version)
    assert registry.current("default") == version


@pytest.mark.parametrize("renamed", ["version", "model"])
def test_a_copied_or_renamed_folder_is_not_promoted(tmp_path: Path, renamed: str) -> None:
    """A copy of an old version under a new number would serve under a false name."""
    registry = with_challenger(tmp_path)
    if renamed == "version":
        shutil.copytree(tmp_path / "default/versions/0001", tmp_path / "default/versions/0003")
        name, version = "default", "0003"
    else:
        shutil.copytree(tmp_path / "default/versions", tmp_path / "other/versions")
        name, version = "other", "0001"
    with pytest.raises(ArtifactError, match="its manifest is that of default 0001, so the folder was copied") as caught:
        registry.promote(name, version, expected=registry.current(name))
    assert f"move {tmp_path / name}/versions/{version} out of the registry" in str(caught.value)
    assert registry.current("default") == "0001"


def test_a_link_at_current_shows_nothing_of_its_target(tmp_path: Path) -> None:
    registry = with_challenger(tmp_path)
    (tmp_path / "secret").write_text("hunter22")
    (tmp_path / "default/CURRENT").unlink()
    (tmp_path / "default/CURRENT").symlink_to(tmp_path / "secret")
    with pytest.raises(
        RegistryError, match="CURRENT: a link is in its place: put a version into service with"
    ) as caught:
        registry.current("default")
    assert "hunter22" not in str(caught.value)


@pytest.mark.parametrize(
    ("said", "meant"),
    [("2", "0002"), ("0002", "0002"), ("00002", "0002"), ("9", "9"), ("x", "x"), ("\xb2", "\xb2")],
)
def test_a_number_without_its_zeros_is_the_version(tmp_path: Path, said: str, meant: str) -> None:
    assert with_challenger(tmp_path).named("default", said) == meant


@pytest.mark.parametrize("damage", ["link", "fifo"])
def test_a_damaged_current_names_the_command_that_writes_it_anew(tmp_path: Path, damage: str) -> None:
    registry = with_challenger(tmp_path)
    current, target = tmp_path / "default/CURRENT", tmp_path / "target"
    current.unlink()
    target.write_text("kept")
    if damage == "link":
        current.symlink_to(target)
    else:
        os.mkfifo(current)
    command = r"streamad models promote VERSION --model default --config FILE \(there are: 0001, 0002\)$"
    with pytest.raises(CurrentError, match=command):
        registry.current("default")
    assert registry.current_or_none("default") is None
    with pytest.raises(CurrentError):  # a training does not repair what it did not expect
        registry.promote("default", "0001", expected=None)
    registry.promote("default", "0001", expected=None, repairs=True)
    assert (registry.current("default"), target.read_text()) == ("0001", "kept")
    with pytest.raises(OvertakenError):  # nothing is damaged any more
        registry.promote("default", "0002", expected=None, repairs=True)


def test_a_folder_at_current_is_moved_away_first(tmp_path: Path) -> None:
    """No rename replaces it, and a person may have put something into it."""
    registry = with_challenger(tmp_path)
    current = tmp_path / "default/CURRENT"
    current.unlink()
    current.mkdir()
    way = (
        "CURRENT: a folder is in its place: move it away, then put a version into service with: streamad models promote"
    )
    for use in (
        lambda: registry.current("default"),
        lambda: registry.promote("default", "0001", expected=None),
        lambda: registry.promote("default", "0001", expected=None, repairs=True),
    ):
        with pytest.raises(CurrentError, match=way):
            use()
    current.rmdir()
    registry.promote("default", "0001", expected=None, repairs=True)
    assert registry.current("default") == "0001"


def test_a_link_to_a_folder_at_current_is_replaced(tmp_path: Path) -> None:
    registry = with_challenger(tmp_path)
    current = tmp_path / "default/CURRENT"
    current.unlink()
    current.symlink_to(tmp_path)
    with pytest.raises(CurrentError, match="a link is in its place: put a version into service"):
        registry.current("default")
    registry.promote("default", "0001", expected=None, repairs=True)
    assert registry.current("default") == "0001"


def test_a_damaged_current_without_a_version_is_removed(tmp_path: Path) -> None:
    (tmp_path / "default").mkdir()
    (tmp_path / "default/CURRENT").write_bytes(b"")
    with pytest.raises(CurrentError, match="there is no version, so remove it, then train one with"):
        Registry(tmp_path).current("default")
