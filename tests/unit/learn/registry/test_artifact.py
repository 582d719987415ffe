"""Every way an artifact can be unfit for service: one line that says what is wrong and what to do."""

from __future__ import annotations

import json
import os
import random
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import numpy as np
import pytest

from streamad.errors import ArtifactError
from streamad.judge.attribution import printable
from streamad.judge.envelope import Envelope
from streamad.learn.registry.arrays import probe_deviation
from streamad.learn.registry.registry import Registry
from streamad.plugins import make_detector
from streamad.system.files import sha256_of
from streamad.types import WindowSet
from tests.support.learning.plant import C, L, MeanDetector, load, settings_of, train, windows_of

CHANNELS = [{"name": "temp", "unit": "degC"}, {"name": "pressure", "unit": "bar"}, {"name": "flow"}]
FILES = ["model.npz", "calibration.npy", "probe.npz", "reference.npz", "training_ids.npy", "envelope.npz"]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("registry")
    train(root)
    return root


@pytest.fixture
def root(trained: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(trained, tmp_path / "registry"))


def folder_of(root: Path) -> Path:
    return root / "default" / "versions" / "0001"


def refused(root: Path, **options: Any) -> str:
    with pytest.raises(ArtifactError) as caught:
        load(root, **options)
    text = str(caught.value)
    assert "\n" not in text
    assert any(advice in text for advice in ("train", "restore", "move", "upgrade", "set it back")), text
    return text


def edit_manifest(root: Path, change: Callable[[dict[str, Any]], object]) -> None:
    path = folder_of(root) / "manifest.json"
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content))


@pytest.mark.parametrize("kind", ["fifo", "device"])
def test_a_manifest_that_is_no_regular_file_is_refused_at_once(root: Path, kind: str) -> None:
    path = folder_of(root) / "manifest.json"
    path.unlink()
    os.mkfifo(path) if kind == "fifo" else path.symlink_to("/dev/zero")
    assert "cannot be read (not a regular file" in refused(root)


def reseal(root: Path, name: str) -> None:
    """Write the file's true checksum into the manifest, as somebody who builds an artifact by hand would."""
    path = folder_of(root) / name
    record = {"sha256": sha256_of(path), "size_bytes": path.stat().st_size}
    edit_manifest(root, lambda manifest: manifest["files"].update({name: record}))


def flip_a_bit(path: Path) -> str:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    return f"{path.name} is damaged (its sha256 differs"


def cut(path: Path) -> str:
    path.write_bytes(path.read_bytes()[:-1])
    return f"{path.name} is damaged ({path.stat().st_size} bytes, the manifest says"


def remove(path: Path) -> str:
    path.unlink()
    return f"missing {path.name}"


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("damage", [flip_a_bit, cut, remove])
def test_any_damage_to_a_file_is_named(root: Path, name: str, damage: Callable[[Path], str]) -> None:
    assert damage(folder_of(root) / name) in refused(root)


def test_a_folder_in_place_of_a_file_is_damage(root: Path) -> None:
    (folder_of(root) / "model.npz").unlink()
    (folder_of(root) / "model.npz").mkdir()
    assert "model.npz is damaged (not a file)" in refused(root)


def test_an_unexpected_file_is_named_and_a_hidden_one_ignored(root: Path) -> None:
    (folder_of(root) / ".DS_Store").touch()
    load(root)
    (folder_of(root) / "extra.pt").write_bytes(b"x")
    assert "unexpected extra.pt" in refused(root)


DAMAGED = [b"", b"{", b"[]", b"null", b"\xff\xfe", b'{"format": 3}', b"[" * 100_000, b'{"format": "streamad-mo']


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (None, "manifest.json cannot be read (No such file or directory)"),
        (b'{"name": "their-model", "version": 3}', "is not a streamad manifest"),
        *((content, "manifest.json is damaged") for content in DAMAGED),
    ],
)
def test_a_missing_damaged_or_foreign_manifest(root: Path, content: bytes | None, problem: str) -> None:
    path = folder_of(root) / "manifest.json"
    path.unlink() if content is None else path.write_bytes(content)
    assert problem in refused(root)


@pytest.mark.parametrize(("schema", "advice"), [(2, "upgrade streamad"), (0, "train anew")])
def test_manifest_of_another_schema(root: Path, schema: int, advice: str) -> None:
    edit_manifest(root, lambda manifest: manifest.update(schema_version=schema))
    text = refused(root)
    assert f"manifest schema {schema}, this streamad reads 1" in text
    assert advice in text


@pytest.mark.parametrize("name", ["../0002/model.npz", "/etc/passwd", "..", "manifest.json", "a/b", ""])
def test_manifest_naming_a_file_elsewhere(root: Path, name: str) -> None:
    edit_manifest(root, lambda manifest: manifest["files"].update({name: {"sha256": "00", "size_bytes": 1}}))
    assert f"names the file {name!r}, which no artifact holds" in refused(root)


def plant_with(*channels: dict[str, str]) -> Any:
    return settings_of(channels=list(channels))


@pytest.mark.parametrize(
    ("plant", "expected"),
    [
        (plant_with(*CHANNELS[:2]), "trained with channel 'flow', which the config lacks"),
        (plant_with(*CHANNELS, {"name": "level"}), "never saw channel 'level'"),
        (
            plant_with(CHANNELS[1], CHANNELS[0], CHANNELS[2]),
            "channel 1 is 'temp' in the model, 'pressure' in the config",
        ),
        (
            plant_with({"name": "temp", "unit": "K"}, *CHANNELS[1:]),
            "channel 'temp' is [degC] in the model, [K] in the config",
        ),
        (
            plant_with(*CHANNELS[:2], {"name": "flow", "unit": "m3/h"}),
            "channel 'flow' is without a unit in the model, [m3/h] in the config",
        ),
        (settings_of(window={"length": 16}), "window.length was 12 in training, is 16 in the config"),
        (settings_of(window={"length": L, "longer": "reject"}), "window.longer was resample in training, is reject"),
        (settings_of(window={"length": L, "max_missing": 0.5}), "window.max_missing was 0.2 in training, is 0.5"),
        (settings_of(window={"length": L, "min_samples": 5}), "window.min_samples was 2 in training, is 5"),
        (
            settings_of(window={"length": L, "resample": {"period": "1s"}}),
            "window.resample.period (µs) was unset in training, is 1000000",
        ),
    ],
)
def test_an_artifact_of_another_plant(root: Path, plant: Any, expected: str) -> None:
    text = refused(root, settings=plant)
    assert expected in text
    assert "streamad train --config FILE (the config of this command)" in text


def test_an_artifact_of_another_detector(root: Path) -> None:
    plant = settings_of(model={"detector": "neutral_ad", "device": "cpu"})
    assert "made by detector 'mean', the config says model.detector: neutral_ad" in refused(root, settings=plant)


def test_without_a_detector_in_the_config_a_version_is_loaded_as_the_kind_that_made_it(tmp_path: Path) -> None:
    options = {"n_transformations": 3, "epochs": 1}
    named = settings_of(model={"detector": "neutral_ad", "options": options, "device": "cpu"})
    train(tmp_path, settings=named, detector=make_detector("neutral_ad", options))
    unnamed = settings_of(model={"device": "cpu"})
    assert unnamed.model.detector != "neutral_ad"
    loaded = Registry(tmp_path).load("default", settings=unnamed, detector=MeanDetector())
    assert loaded.manifest.detector.kind == "neutral_ad"
    assert loaded.scorer.n_terms == 3


def test_a_version_knows_the_sequences_that_made_it(root: Path) -> None:
    known = load(root).training_ids
    assert all(name in known for name in windows_of(30).ids)
    assert "B-0030" not in known


def rewrite_envelope(root: Path, **changes: Any) -> None:
    """Write envelope.npz anew with ``changes``."""
    path = folder_of(root) / "envelope.npz"
    with np.load(path, allow_pickle=False) as archive:
        arrays = {**dict(archive), **changes}
    np.savez(path, allow_pickle=False, **arrays)
    reseal(root, "envelope.npz")


def test_the_envelope_is_that_of_the_training_windows(root: Path) -> None:
    envelope, data = load(root).envelope, windows_of(30)
    expected = Envelope.of(data.values, data.lengths)
    for name in ("clock", "clock_n", "phase", "phase_n"):
        assert np.array_equal(getattr(envelope, name), getattr(expected, name)), name


LEVELS_OF_ONE = np.zeros((7, C, L), np.float32)


@pytest.mark.parametrize(
    "changes",
    [
        {"clock": LEVELS_OF_ONE.astype(np.float64)},
        {"clock": LEVELS_OF_ONE[:, :, 1:]},
        {"clock": LEVELS_OF_ONE[:6]},
        {"phase": LEVELS_OF_ONE[0]},
        {"phase": np.full_like(LEVELS_OF_ONE, np.nan)},
        {"phase": LEVELS_OF_ONE - np.arange(7, dtype=np.float32)[:, None, None]},
        {"phase_n": np.zeros(L, np.int64)},
        {"clock_n": np.zeros(L, np.float32)},
        {"clock_n": np.zeros(L + 1, np.int64)},
        {"more": np.zeros(100_000)},
    ],
    ids=["double", "short", "levels", "flat", "nan", "descending", "none", "counts", "long", "large"],
)
def test_an_envelope_that_does_not_fit(root: Path, changes: dict[str, Any]) -> None:
    rewrite_envelope(root, **changes)
    assert "envelope" in refused(root)


def test_an_envelope_packed_small_takes_no_memory(root: Path) -> None:
    path = folder_of(root) / "envelope.npz"
    large = np.zeros((7, C, 10_000_000), np.int8)
    np.savez_compressed(path, clock=large, clock_n=np.zeros(L, np.int64), phase=large, phase_n=np.zeros(L, np.int64))
    reseal(root, "envelope.npz")
    assert "bytes, at most" in refused(root)


def rewrite_reference(root: Path, **changes: Any) -> None:
    """Write reference.npz anew with ``changes``; None leaves an array out."""
    path = folder_of(root) / "reference.npz"
    with np.load(path, allow_pickle=False) as archive:
        arrays = {**dict(archive), **changes}
    np.savez(path, allow_pickle=False, **{name: array for name, array in arrays.items() if array is not None})
    reseal(root, "reference.npz")


@pytest.mark.parametrize("name", ["reference.npz", "probe.npz"])
@pytest.mark.parametrize("way", ["compressed", "declared"])
def test_arrays_packed_small_are_not_read(root: Path, name: str, way: str) -> None:
    path = folder_of(root) / name
    with np.load(path, allow_pickle=False) as archive:
        arrays = dict(archive)
    if way == "compressed":
        np.savez_compressed(path, **arrays | {"windows": np.zeros((20_000, C, L), np.float32)})
    else:
        with ZipFile(path, "w") as archive:
            for each in arrays:
                head = {"descr": "<f4", "fortran_order": False, "shape": (2_000_000, C, L)}
                with archive.open(f"{each}.npy", "w") as file:
                    np.lib.format.write_array_header_1_0(file, head)
    reseal(root, name)
    why = "windows.npy is compressed" if way == "compressed" else "an array of shape (2000000, "
    assert f"{name} cannot be read as arrays ({why}" in refused(root)


@pytest.mark.parametrize("name", ["calibration.npy", "training_ids.npy"])
def test_an_array_that_says_it_is_larger_than_its_file(root: Path, name: str) -> None:
    with (folder_of(root) / name).open("wb") as file:
        np.lib.format.write_array_header_1_0(file, {"descr": "<f4", "fortran_order": False, "shape": (1 << 60, 3)})
        file.write(b"\0" * 12)
    reseal(root, name)
    assert "is not in" in refused(root)


HOSTILE = ["[bold red]x[/] [/nope]", "a\x1b]0;title\x07\n\r\u202e", "x" * 65_536, "\ud800", ""]


def test_hostile_names_survive_training_as_text_that_can_be_printed(tmp_path: Path) -> None:
    data, hostile = windows_of(20), [name for name in HOSTILE if name != "\ud800"]  # which no reader lets through
    ids = (*hostile, *data.ids[len(hostile) :])
    train(tmp_path, data=WindowSet(data.values, data.lengths, ids))
    assert sorted(load(tmp_path).reference.names) == sorted(map(printable, ids))


def test_hostile_names_in_an_artifact_are_cut_when_it_is_loaded(root: Path) -> None:
    n = len(load(root).reference.lengths)
    rewrite_reference(root, names=np.array((HOSTILE * n)[:n]))
    names = load(root).reference.names
    assert names[0] == HOSTILE[0]
    assert all(name.isprintable() and len(name) <= 513 for name in names)


@pytest.mark.parametrize("names", [np.arange(24), np.array(["a"]), np.array("a"), np.array([b"a"] * 24)])
def test_names_that_do_not_fit_the_reference_windows(root: Path, names: Any) -> None:
    rewrite_reference(root, names=names)
    assert "reference.npz does not hold a name for each window" in refused(root)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_reference_windows_that_are_not_finite(root: Path, value: float) -> None:
    windows = load(root).reference.values.copy()
    windows[0, 0, 0] = value
    rewrite_reference(root, windows=windows)
    assert "reference.npz holds windows with NaN or infinity" in refused(root)


@pytest.mark.parametrize("offset", [0.01, -0.01, float("nan"), float("inf")])
def test_a_model_that_scores_otherwise_than_when_trained(root: Path, offset: float) -> None:
    assert "scores its probe otherwise" in refused(root, detector=MeanDetector(offset))


def test_a_model_that_scores_otherwise_is_trained_anew_and_other_packages_are_named(root: Path) -> None:
    detector = MeanDetector(0.01)
    assert refused(root, detector=detector).endswith(
        "allowed 0.0001): train anew on this machine: training publishes only a version that a new process here can use"
    )
    edit_manifest(root, lambda manifest: manifest["packages"].update(numpy="1.0.0", openvino_that_is_not_here="1"))
    assert f"allowed 0.0001; numpy 1.0.0 then, {np.__version__} now): train anew" in refused(root, detector=detector)


def test_rounding_of_another_machine_is_no_deviation(root: Path) -> None:
    load(root, detector=MeanDetector(5e-6))


@pytest.mark.parametrize(
    ("found", "stored", "expected"),
    [
        ([[1.0]], [[1.0]], 0.0),
        ([[0.0]], [[0.4]], 0.8),
        ([[101.9]], [[99.9]], 0.02),
        ([[1.0, 2.0]], [[1.0]], np.inf),
        ([[np.nan]], [[np.nan]], np.inf),
    ],
)
def test_probe_deviation(found: list[list[float]], stored: list[list[float]], expected: float) -> None:
    arrays = np.array(found, dtype=np.float32), np.array(stored, dtype=np.float32)
    assert probe_deviation(*arrays) == pytest.approx(expected)


class Breaking(MeanDetector):
    def load(self, folder: Path, *, device: str) -> Any:
        raise RuntimeError("PytorchStreamReader failed\nfinding central directory")


class BreakingScorer(MeanDetector):
    def load(self, folder: Path, *, device: str) -> Any:
        model = super().load(folder, device=device)
        model.scale = np.ones((7, 1), dtype=np.float32)
        return model


def test_an_exception_of_a_detector_becomes_one_line(root: Path) -> None:
    assert "cannot be loaded (RuntimeError: PytorchStreamReader failed)" in refused(root, detector=Breaking())
    assert "cannot score its probe (ValueError" in refused(root, detector=BreakingScorer())


@pytest.mark.parametrize(
    "terms",
    [
        np.zeros((30, C + 1), np.float32),
        np.zeros((0, C), np.float32),
        np.zeros(30, np.float32),
        np.zeros((30, C), np.float64),
        np.full((30, C), np.nan, np.float32),
    ],
)
def test_calibration_that_does_not_fit_the_model(root: Path, terms: Any) -> None:
    np.save(folder_of(root) / "calibration.npy", terms)
    reseal(root, "calibration.npy")
    assert "calibration.npy does not hold 3 finite terms per sequence" in refused(root)


@pytest.mark.parametrize("shape", [(2, C + 1, L), (2, C, L - 1), (2, C)])
@pytest.mark.parametrize("name", ["reference.npz", "probe.npz"])
def test_windows_that_do_not_fit_the_model(root: Path, name: str, shape: tuple[int, ...]) -> None:
    windows, lengths, terms = np.zeros(shape, np.float32), np.full(2, 3), np.zeros((2, C), np.float32)
    names = np.array(["a", "b"])
    np.savez(folder_of(root) / name, windows=windows, lengths=lengths, terms=terms, names=names)
    reseal(root, name)
    assert f"{name} does not hold windows of 3 channels x 12 samples" in refused(root)


def test_an_empty_probe_proves_nothing(root: Path) -> None:
    windows, lengths = np.zeros((0, C, L), np.float32), np.zeros(0, np.int64)
    np.savez(folder_of(root) / "probe.npz", windows=windows, lengths=lengths, terms=np.zeros((0, C), np.float32))
    reseal(root, "probe.npz")
    assert "scores its probe otherwise" in refused(root)


@pytest.mark.parametrize("name", ["calibration.npy", "probe.npz", "reference.npz", "training_ids.npy", "envelope.npz"])
def test_pickles_are_never_read(root: Path, name: str) -> None:
    np.save(folder_of(root) / "x.npy", np.array([{"a": 1}], dtype=object), allow_pickle=True)
    (folder_of(root) / "x.npy").replace(folder_of(root) / name)
    reseal(root, name)
    assert "cannot be read as arrays" in refused(root)


@pytest.mark.parametrize("name", ["calibration.npy", "probe.npz", "reference.npz", "training_ids.npy", "envelope.npz"])
def test_mutated_array_files_load_or_are_refused(root: Path, name: str) -> None:
    """Behind a matching checksum (a hand-made artifact) whatever bytes there are give an answer or an ArtifactError."""
    path = folder_of(root) / name
    original, rng = path.read_bytes(), random.Random(name)
    for _ in range(150):
        content = bytearray(original)
        for _ in range(rng.randint(1, 8)):
            content[rng.randrange(len(content))] = rng.randrange(256)
        path.write_bytes(content[: rng.choice([len(content), rng.randrange(len(content))])])
        reseal(root, name)
        with suppress(ArtifactError):
            load(root)


def test_the_envelope_is_read_alone_and_is_that_of_the_loaded_model(root: Path) -> None:
    found, loaded = Registry(root).envelope("default", "0001"), load(root).envelope
    assert loaded is not None
    assert np.array_equal(found.clock, loaded.clock)
    assert np.array_equal(found.phase, loaded.phase)
    (folder_of(root) / "model.npz").unlink()  # no model is loaded
    assert Registry(root).envelope("default", "0001").shape == (C, L)


def test_a_changed_envelope_is_refused(root: Path) -> None:
    (folder_of(root) / "envelope.npz").write_bytes(b"")
    with pytest.raises(ArtifactError, match=r"envelope\.npz"):
        Registry(root).envelope("default", "0001")
