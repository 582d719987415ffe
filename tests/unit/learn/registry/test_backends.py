"""Which backend serves a version: the fastest that gives the probe's terms; the others are refused in a line each."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from streamad.errors import ArtifactError, DetectorError
from streamad.judge.scoring import ModelInService
from streamad.learn.registry.arrays import read_npz
from streamad.learn.registry.artifact import LoadedModel, refused_backends
from streamad.learn.registry.backends import Order, RefusedBackend, by_speed, tell_backend
from streamad.learn.registry.hot_swap import RegistryVersions
from streamad.learn.registry.registry import Registry
from streamad.learn.training.probe import PROBE_WINDOWS
from streamad.messages import ModelRef
from streamad.ports import TrainingProgress
from streamad.types import FloatArray, IntArray, WindowSet
from tests.support.learning.plant import C, L, MeanDetector, MeanModel, load, settings_of, train

NAMES = ("openvino", "torchscript", "onnxruntime")


class Backed(MeanModel):
    """Exports itself for other backends, too; ``faults`` says how it does so wrongly."""

    faults: dict[str, str]

    def export_for(self, backend: str, folder: Path) -> tuple[str, ...]:
        fault = self.faults.get(backend)
        (folder / f"{backend}.bin").write_bytes(b"part of it")
        if fault == "fails":
            raise DetectorError("the model cannot be exported")
        (folder / f"{backend}.npz").write_bytes((folder / "model.npz").read_bytes())
        if fault == "names the model's own":
            return (f"{backend}.bin", f"{backend}.npz", "model.npz")
        if fault == "names what is not there":
            return (f"{backend}.bin", f"{backend}.npz", f"{backend}.txt")
        return (f"{backend}.bin", f"{backend}.npz")


class Lonely(MeanModel):
    """Scores a window alone otherwise than in company."""

    def score(self, windows: FloatArray, lengths: IntArray) -> FloatArray:
        return super().score(windows, lengths) + np.float32(len(windows) == 1)


class Tied(MeanModel):
    """Scores a third of the windows otherwise, as one that decides their ties by another rounding."""

    share = 1 / 3

    def score(self, windows: FloatArray, lengths: IntArray) -> FloatArray:
        last_digits = np.abs(windows.astype(np.float64)).sum(axis=(1, 2)) * 1e4 % 1
        return super().score(windows, lengths) + np.float32(0.1) * (last_digits < self.share)[:, None]


class OftenTied(Tied):
    """Scores two thirds of the windows otherwise."""

    share = 2 / 3


class WrongInFours(MeanModel):
    """Scores four windows together, as many as a probe has, otherwise than alone or with more."""

    def score(self, windows: FloatArray, lengths: IntArray) -> FloatArray:
        return super().score(windows, lengths) + np.float32(len(windows) == PROBE_WINDOWS)


class BackedDetector(MeanDetector):
    """A detector with three backends; ``faults`` are in what it exports, ``wrong`` ones load as models that differ."""

    backends = NAMES

    def __init__(self, faults: dict[str, str] | None = None, wrong: dict[str, type[MeanModel] | float] | None = None):
        super().__init__()
        self.faults, self.wrong = faults or {}, wrong or {}
        self.loaded: list[str] = []

    def fit(
        self,
        data: WindowSet,
        *,
        seed: int,
        device: str,
        progress: TrainingProgress | None = None,
        resume: Path | None = None,
    ) -> Backed:
        plain = super().fit(data, seed=seed, device=device, progress=progress, resume=resume)
        fitted = Backed(plain.mean, plain.scale, len(data))
        fitted.training, fitted.faults = data, self.faults
        return fitted

    def load(self, folder: Path, *, device: str) -> MeanModel:
        self.loaded.append("torchscript")
        return self._load(folder / "model.npz", "torchscript")

    def load_by(self, backend: str, folder: Path, *, device: str) -> MeanModel:
        self.loaded.append(backend)
        return self._load(folder / f"{backend}.npz", backend)

    def _load(self, path: Path, backend: str) -> MeanModel:
        wrong = self.wrong.get(backend, 0.0)
        with np.load(path, allow_pickle=False) as arrays:
            if isinstance(wrong, type):
                return wrong(arrays["mean"], arrays["scale"], 0)
            return MeanModel(arrays["mean"], arrays["scale"], 0, wrong)


def plant(backend: str = "auto", **model: Any) -> Any:
    return settings_of(model={"detector": "mean", "device": "cpu", "references": [], "backend": backend, **model})


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A registry whose version 0001 was exported for all backends."""
    root = tmp_path_factory.mktemp("registry")
    train(root, detector=BackedDetector(), settings=plant())
    return root


@pytest.fixture
def root(exported: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(exported, tmp_path / "registry"))


def version(root: Path) -> Path:
    return root / "default" / "versions" / "0001"


def served(root: Path, backend: str = "auto", *, detector: MeanDetector | None = None, **model: Any) -> LoadedModel:
    return load(root, settings=plant(backend, **model), detector=detector or BackedDetector())


def test_a_training_exports_for_all_that_are_installed_and_the_manifest_names_the_files(root: Path) -> None:
    manifest = Registry(root).manifest("default", "0001")
    assert manifest.backends == {each: (f"{each}.bin", f"{each}.npz") for each in ("openvino", "onnxruntime")}
    assert {name for names in manifest.backends.values() for name in names} < manifest.files.keys()


@pytest.mark.parametrize("chosen", NAMES)
def test_the_chosen_backend_serves_and_auto_is_the_fastest(root: Path, chosen: str) -> None:
    model = served(root, chosen)
    assert (model.backend, model.refused) == (chosen, ())
    model = served(root)
    assert (model.backend, model.refused) == (NAMES[0], ())


def test_auto_passes_over_what_is_not_installed_and_a_chosen_one_is_tried(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "openvino", None)
    detector = BackedDetector()
    assert served(root, detector=detector).backend == "torchscript"
    assert detector.loaded == ["torchscript"]
    monkeypatch.setitem(sys.modules, "torch", None)
    assert served(root).backend == "onnxruntime"
    detector = BackedDetector()
    served(root, "openvino", detector=detector)
    assert detector.loaded == ["openvino"]


def test_a_training_with_auto_exports_for_no_backend_that_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "openvino", None)
    train(tmp_path, detector=BackedDetector(), settings=plant())
    assert list(Registry(tmp_path).manifest("default", "0001").backends) == ["onnxruntime"]


def flip_a_bit(path: Path) -> str:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    return f"{path.name} is damaged (its sha256 differs"


def cut(path: Path) -> str:
    path.write_bytes(path.read_bytes()[:-1])
    return f"{path.name} is damaged ({path.stat().st_size} bytes"


def remove(path: Path) -> str:
    path.unlink()
    return f"{path.name} is damaged (missing)"


@pytest.mark.parametrize("damage", [flip_a_bit, cut, remove])
@pytest.mark.parametrize("kind", ["bin", "npz"])
def test_a_damaged_export_refuses_its_backend_alone_and_promotions_go_on(
    root: Path, damage: Callable[[Path], str], kind: str
) -> None:
    reason = damage(version(root) / f"openvino.{kind}")
    model = served(root)
    assert model.backend == "torchscript"
    (line,) = model.refused
    assert line.startswith(f"openvino does not serve default 0001: {reason}")
    assert line.endswith("; torchscript serves")
    assert "\n" not in line
    Registry(root).promote("default", "0001", expected="0001")
    (version(root) / "model.npz").write_bytes(b"")
    with pytest.raises(ArtifactError, match=r"model\.npz is damaged"):
        Registry(root).promote("default", "0001", expected="0001")


@pytest.mark.parametrize("wrong", [0.01, float("nan"), Lonely])
def test_one_that_scores_the_probe_otherwise_is_refused_and_the_next_serves(
    root: Path, wrong: float | type[MeanModel]
) -> None:
    model = served(root, "onnxruntime", detector=BackedDetector(wrong={"onnxruntime": wrong}))
    assert model.backend == "openvino"
    assert "onnxruntime does not serve default 0001: scores its probe otherwise" in model.refused[0]
    model = served(root, detector=BackedDetector(wrong={"openvino": wrong, "torchscript": wrong}))
    assert model.backend == "onnxruntime"
    assert [line.split()[0] for line in model.refused] == ["openvino", "torchscript"]


def test_if_none_may_serve_one_line_says_why_of_each(root: Path) -> None:
    wrong: dict[str, type[MeanModel] | float] = dict.fromkeys(NAMES, 1.0)
    with pytest.raises(ArtifactError) as refused:
        served(root, detector=BackedDetector(wrong=wrong))
    text = str(refused.value)
    assert text.startswith("model default 0001: no backend serves: openvino: scores its probe otherwise")
    assert text.count("scores its probe otherwise") == 3
    assert "\n" not in text


def test_on_another_device_than_the_cpu_torchscript_serves(root: Path) -> None:
    detector = BackedDetector()
    assert served(root, detector=detector, device="cuda").backend == "torchscript"
    assert detector.loaded == ["torchscript"]


def test_a_version_without_the_export_is_served_by_torchscript(tmp_path: Path) -> None:
    train(tmp_path, detector=BackedDetector(), settings=plant("torchscript"))
    assert Registry(tmp_path).manifest("default", "0001").backends == {}
    assert served(tmp_path).refused == ()
    model = served(tmp_path, "openvino")
    assert model.backend == "torchscript"
    assert "was not exported for openvino: train anew with model.backend: openvino" in model.refused[0]


def test_a_kind_without_other_backends_is_served_as_ever(tmp_path: Path) -> None:
    train(tmp_path, settings=plant())
    assert served(tmp_path, detector=MeanDetector()).refused == ()
    model = served(tmp_path, "onnxruntime", detector=MeanDetector())
    assert "detectors of its kind have no other backend" in model.refused[0]


@pytest.mark.parametrize("chosen", ["auto", "onnxruntime"])
def test_an_export_that_fails_leaves_no_file_and_the_others_stay(
    tmp_path: Path, chosen: str, capsys: pytest.CaptureFixture[str]
) -> None:
    train(tmp_path, detector=BackedDetector({"onnxruntime": "fails"}), settings=plant(chosen))
    manifest = Registry(tmp_path).manifest("default", "0001")
    assert set(manifest.backends) == ({"openvino"} if chosen == "auto" else set())
    assert not [name for name in manifest.files if name.startswith("onnxruntime")]
    assert "the model cannot be exported" in capsys.readouterr().err


@pytest.mark.parametrize("fault", ["names the model's own", "names what is not there"])
def test_an_export_may_name_only_what_it_wrote(tmp_path: Path, fault: str, capsys: pytest.CaptureFixture[str]) -> None:
    train(tmp_path, detector=BackedDetector({"openvino": fault}), settings=plant())
    manifest = Registry(tmp_path).manifest("default", "0001")
    assert set(manifest.backends) == {"onnxruntime"}
    assert "model.npz" in manifest.files
    assert "did not write just the files that it names" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["calibration.npy", "probe.npz", "reference.npz", "training_ids.npy", "envelope.npz"])
def test_a_manifest_that_gives_a_file_of_the_version_to_a_backend_does_not_excuse_it(root: Path, name: str) -> None:
    path = version(root) / "manifest.json"
    manifest = json.loads(path.read_text())
    manifest["backends"]["onnxruntime"].append(name)
    path.write_text(json.dumps(manifest))
    flip_a_bit(version(root) / name)
    with pytest.raises(ArtifactError, match=f"{name} is damaged"):
        served(root)


def test_an_export_that_scores_otherwise_is_not_published(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    train(tmp_path, detector=BackedDetector(wrong={"openvino": Lonely}), settings=plant())
    assert list(Registry(tmp_path).manifest("default", "0001").backends) == ["onnxruntime"]
    assert "it scores otherwise than the model" in capsys.readouterr().err


def test_the_probe_leaves_out_windows_that_a_backend_decides_otherwise(tmp_path: Path) -> None:
    detector = BackedDetector(wrong={"openvino": Tied})
    train(tmp_path, detector=detector, settings=plant())
    assert set(Registry(tmp_path).manifest("default", "0001").backends) == {"openvino", "onnxruntime"}
    model = served(tmp_path, "openvino", detector=detector)
    assert (model.backend, model.refused) == ("openvino", ())
    another = served(tmp_path, "openvino", detector=BackedDetector(wrong={"openvino": 0.1}))
    assert "scores its probe otherwise" in another.refused[0]


def test_a_backend_that_fails_the_probe_itself_is_left_out_with_its_files(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    train(tmp_path, detector=BackedDetector(wrong={"openvino": WrongInFours}), settings=plant())
    manifest = Registry(tmp_path).manifest("default", "0001")
    assert set(manifest.backends) == {"onnxruntime"}
    assert not [name for name in manifest.files if name.startswith("openvino")]
    assert "it scores otherwise than the model (deviation" in capsys.readouterr().err


def test_a_backend_that_decides_most_windows_otherwise_is_not_exported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    train(tmp_path, detector=BackedDetector(wrong={"openvino": OftenTied}), settings=plant())
    assert set(Registry(tmp_path).manifest("default", "0001").backends) == {"onnxruntime"}
    assert "it scores otherwise than the model (" in capsys.readouterr().err


def test_a_backend_that_a_new_process_refuses_is_left_out_with_its_files(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    refused = RefusedBackend("openvino", "cannot be loaded")
    train(tmp_path, detector=BackedDetector(), settings=plant(), prove=lambda *_: (refused,))
    manifest = Registry(tmp_path).manifest("default", "0001")
    assert set(manifest.backends) == {"onnxruntime"}
    assert not [name for name in manifest.files if name.startswith("openvino")]
    assert "cannot be loaded" in capsys.readouterr().err
    assert Registry(tmp_path).current("default") == "0001"
    assert served(tmp_path).backend == "torchscript"


def test_every_backend_of_a_version_is_tried_and_those_that_must_not_serve_are_named(root: Path) -> None:
    def tried(**wrong: float) -> dict[str, str]:
        detector = BackedDetector(wrong=wrong)
        found = refused_backends(version(root), ModelRef("default", "0001"), plant(), detector)
        assert set(detector.loaded) == set(NAMES)
        return {each.backend: each.reason for each in found}

    assert tried() == {}
    (reason,) = tried(onnxruntime=0.1).values()
    assert reason.startswith("scores its probe otherwise than when it was trained (deviation ")
    assert set(tried(torchscript=0.1, openvino=0.1)) == {"torchscript", "openvino"}


class Timed(MeanModel):
    """Takes ``cost_s`` of its clock for a turn."""

    def __init__(self, clock: list[float], cost_s: float) -> None:
        super().__init__(np.zeros((C, L), np.float32), np.ones((C, 1), np.float32), 0)
        self._clock, self.cost_s, self.n_turns = clock, cost_s, 0

    def score(self, windows: FloatArray, lengths: IntArray) -> FloatArray:
        self._clock[0] += self.cost_s
        self.n_turns += 1
        return super().score(windows, lengths)


def ordered(*names: str, **costs_s: float) -> tuple[Order, dict[str, Timed]]:
    """The order of ``names`` by trials of these costs; a name without one may not serve."""
    now = [0.0]
    scorers = {name: Timed(now, cost_s) for name, cost_s in costs_s.items()}

    def load(name: str) -> Timed:
        if name not in scorers:
            raise ArtifactError(f"model default 0001: {name} differs")
        return scorers[name]

    windows, lengths = np.zeros((8, C, L), np.float32), np.full(8, L)
    return by_speed(names, load, windows, lengths, "model default 0001", clock=lambda: now[0]), scorers


def test_the_fastest_of_the_trial_is_first_and_the_line_says_each_one_s_time() -> None:
    order, _ = ordered("openvino", "onnxruntime", "torchscript", openvino=0.008, onnxruntime=0.004)
    assert order == Order(
        ("onnxruntime", "openvino", "torchscript"), (), "a window takes onnxruntime 0.5 ms, openvino 1 ms"
    )


def test_of_two_that_are_nearly_as_fast_the_preferred_one_is_first_so_a_restart_chooses_alike() -> None:
    for onnxruntime in (0.0092, 0.0100, 0.0108):
        order, _ = ordered("openvino", "onnxruntime", "torchscript", openvino=0.0100, onnxruntime=onnxruntime)
        assert order.backends == ("openvino", "onnxruntime", "torchscript")
    order, _ = ordered("openvino", "onnxruntime", "torchscript", openvino=0.0100, onnxruntime=0.0090)
    assert order.backends[0] == "onnxruntime"


def test_a_trial_takes_a_fifth_of_a_second_in_all_or_two_turns_of_each() -> None:
    _, scorers = ordered("openvino", "onnxruntime", "torchscript", openvino=0.004, onnxruntime=0.006)
    assert sum(each.n_turns * each.cost_s for each in scorers.values()) == pytest.approx(0.2, abs=0.01)
    _, scorers = ordered("openvino", "onnxruntime", "torchscript", openvino=3.0, onnxruntime=4.0)
    assert [each.n_turns for each in scorers.values()] == [2, 2]


def test_one_that_may_not_serve_is_named_and_never_first_however_few_are_left() -> None:
    order, scorers = ordered("openvino", "torchscript", "onnxruntime", torchscript=0.004, onnxruntime=0.001)
    assert order.backends == ("onnxruntime", "torchscript")
    assert order.refused == (RefusedBackend("openvino", "openvino differs"),)
    order, scorers = ordered("openvino", "onnxruntime", "torchscript", onnxruntime=0.001)
    assert (order.backends, order.choice) == (("onnxruntime", "torchscript"), "")
    assert scorers["onnxruntime"].n_turns == 0
    order, _ = ordered("openvino", "onnxruntime", "torchscript")
    assert order.backends == ("torchscript",)
    assert len(order.refused) == 2


def test_torchscript_is_not_loaded_for_a_trial_where_it_is_the_last() -> None:
    order, scorers = ordered("openvino", "torchscript", openvino=1.0, torchscript=0.001)
    assert order == Order(("openvino", "torchscript"))
    assert [each.n_turns for each in scorers.values()] == [0, 0]


class AloneOnly(MeanModel):
    """Fails for more windows than a probe has."""

    def score(self, windows: FloatArray, lengths: IntArray) -> FloatArray:
        if len(windows) > PROBE_WINDOWS:
            raise RuntimeError("no memory for so many")
        return super().score(windows, lengths)


@pytest.mark.parametrize("failing", [NAMES[:1], NAMES[:2], NAMES])
def test_one_that_fails_in_its_trial_is_refused_and_the_others_serve(root: Path, failing: tuple[str, ...]) -> None:
    detector = BackedDetector(wrong=dict.fromkeys(failing, AloneOnly))
    if failing == NAMES:
        with pytest.raises(ArtifactError, match="no backend serves: openvino: cannot score 16 windows"):
            in_service(root, detector)
        return
    model = in_service(root, detector)
    assert model.backend in set(NAMES) - set(failing)
    assert [line.split(" does not serve")[0] for line in model.refused] == [*failing]
    assert "cannot score 16 windows (RuntimeError('no memory for so many'))" in model.refused[0]


def test_a_probe_without_windows_refuses_the_version(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def empty(path: Path, names: tuple[str, ...]) -> list[Any]:
        return [each[:0] for each in read_npz(path, names)]

    monkeypatch.setattr("streamad.learn.registry.artifact.read_npz", empty)
    with pytest.raises(ArtifactError, match="no backend serves: openvino: scores its probe otherwise"):
        in_service(root, BackedDetector())


class Slow(MeanModel):
    """Computes every window a hundred times."""

    def score(self, windows: FloatArray, lengths: IntArray) -> FloatArray:
        for _ in range(100):
            terms = super().score(windows, lengths)
        return terms


def in_service(root: Path, detector: BackedDetector, backend: str = "auto") -> ModelInService:
    return RegistryVersions(Registry(root), "default", plant(backend), detector, measured=True).load()


@pytest.mark.parametrize("fastest", NAMES)
def test_auto_takes_the_fastest_and_gives_the_terms_of_that_backend_by_name(root: Path, fastest: str) -> None:
    detector = BackedDetector(wrong={name: Slow for name in NAMES if name != fastest} | {fastest: 1e-6})
    model = in_service(root, detector)
    assert (model.backend, model.refused) == (fastest, ())
    assert model.choice.startswith(f"a window takes {fastest} ")
    named = in_service(root, detector, fastest)
    assert (named.backend, named.choice) == (fastest, "")
    values, lengths = np.random.default_rng(0).normal(size=(9, C, L)).astype(np.float32), np.full(9, L)
    assert np.array_equal(model.scorer.score(values, lengths), named.scorer.score(values, lengths))


@pytest.mark.parametrize("wrong", [0.01, float("nan"), Lonely])
def test_auto_never_takes_one_that_scores_otherwise_however_fast(root: Path, wrong: float | type[MeanModel]) -> None:
    detector = BackedDetector(wrong={"openvino": Slow, "torchscript": Slow, "onnxruntime": wrong})
    model = in_service(root, detector)
    assert model.backend in ("openvino", "torchscript")
    (line,) = model.refused
    assert line.startswith("onnxruntime does not serve default 0001: scores its probe otherwise")


def test_what_is_not_to_be_measured_takes_the_order_of_the_kind(root: Path) -> None:
    """Recordings that are judged in parts must not depend on where, or when, a part is judged."""
    model = served(root, detector=BackedDetector(wrong={"openvino": Slow}))
    assert (model.backend, model.choice) == ("openvino", "")


def test_what_goes_into_service_emits_an_event_for_each_refused_backend(root: Path) -> None:
    flip_a_bit(version(root) / "openvino.npz")
    versions = RegistryVersions(Registry(root), "default", plant("openvino"), BackedDetector())
    model: ModelInService = versions.load()
    told: list[tuple[str, str, Any]] = []
    tell_backend(model, lambda kind, message, **more: told.append((kind, message, more["model"])))
    assert told == [("backend_refused", model.refused[0], model.ref)]
    assert model.backend == "torchscript"
