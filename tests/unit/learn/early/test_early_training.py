"""Looks are fitted beside the model, published with it, and score as they did in training when they are loaded."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from streamad.errors import ArtifactError, TrainingDataError
from streamad.judge.early.course import Course
from streamad.judge.early.model import NO_LOOK, Look, form_of
from streamad.learn.early.fitting import LookFitting, ages_of
from streamad.learn.early.training import EarlyTraining, TrainedEarly
from streamad.learn.registry.registry import Registry
from streamad.learn.training.calibrating import folds_of, hash_order
from streamad.learn.training.from_recordings import train_model
from streamad.settings.plant_yaml import Settings, WindowSettings
from streamad.types import WindowSet
from tests.support.learning.plant import FixedClock, L, MeanDetector, load, settings_of, taken_as_proved, windows_of

EARLY = {"early": {"false_alarm_rate": 0.1, "looks": 4}}


def plant(**changes: Any) -> Settings:
    return settings_of(**{"alerts": EARLY, **changes})


def courses_of(data: WindowSet) -> dict[str, Course]:
    return {
        name: Course(values[:, : n - 1], np.ones((len(values), n - 1), np.bool_))
        for name, values, n in zip(data.ids, data.values, data.lengths.tolist(), strict=True)
    }


def train(root: Path, data: WindowSet, settings: Settings) -> str:
    return train_model(
        data,
        MeanDetector(),
        settings=settings,
        registry=Registry(root),
        clock=FixedClock(),
        prove=taken_as_proved,
        early=EarlyTraining(courses_of(data), settings),
    )


@pytest.fixture(scope="module")
def trained_once(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A registry with a version that has looks, and the version."""
    root = tmp_path_factory.mktemp("trained") / "registry"
    return root, train(root, windows_of(40), plant())


@pytest.fixture
def version(trained_once: tuple[Path, str], tmp_path: Path) -> str:
    """The version, in a copy of the registry at ``tmp_path``."""
    shutil.copytree(trained_once[0], tmp_path, dirs_exist_ok=True)
    return trained_once[1]


def test_ages_are_spread_up_to_the_usual_length_within_the_window() -> None:
    assert ages_of(40, 4, WindowSettings(length=64)) == (10, 20, 30, 40)
    assert ages_of(40, 4, WindowSettings(length=20)) == (10, 20)
    assert ages_of(3, 10, WindowSettings(length=64)) == (2, 3), "a single point is no course"
    grid = WindowSettings.model_validate({"length": 64, "resample": {"period": "1m"}})
    assert ages_of(40, (600_000_000, 1_800_000_000), grid) == (11, 31)


@pytest.mark.usefixtures("version")
def test_a_version_has_its_looks_and_they_score_as_in_training(tmp_path: Path) -> None:
    data, settings = windows_of(40), plant()
    early = load(tmp_path, settings=settings).early
    assert early is not None
    courses = courses_of(data)
    names = [data.ids[place] for place in hash_order(data.ids, settings.model.seed)]
    folds = [[names[place] for place in fold] for fold in folds_of(40, 5)]
    trained = EarlyTraining(courses, settings).train(names, names, folds)
    assert [look.form for look in early.looks] == [look.form for look in trained.looks]
    fitting = LookFitting(settings.window, settings.channel_specs, seed=0)
    ours, theirs = (fitting.z(looks, list(courses.values())) for looks in (early.looks, trained.looks))
    np.testing.assert_allclose(ours, theirs, atol=1e-4)
    assert early.calibration.n == 40
    shortest = min(len(course) for course in courses.values())
    assert (ours[:, [look.form.n_points <= shortest for look in early.looks]] > NO_LOOK).all()


@pytest.mark.usefixtures("version")
def test_without_the_section_a_version_is_loaded_without_its_looks(tmp_path: Path) -> None:
    assert load(tmp_path, settings=settings_of()).early is None


def test_a_version_without_looks_serves_as_before(tmp_path: Path) -> None:
    train_model(
        windows_of(40), MeanDetector(), settings=settings_of(), registry=Registry(tmp_path), clock=FixedClock(),
        prove=taken_as_proved,
    )  # fmt: skip
    assert load(tmp_path, settings=plant()).early is None


@pytest.mark.parametrize("name", ["0/model.ts", "0/probe.npz", "maxima.npy"])
def test_a_damaged_or_missing_file_of_a_look_refuses_the_version(tmp_path: Path, version: str, name: str) -> None:
    file = Registry(tmp_path).folder("default", version) / "early" / name
    content = file.read_bytes()
    file.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    with pytest.raises(ArtifactError, match=f"early/{name} is damaged"):
        load(tmp_path, settings=plant())
    file.unlink()
    with pytest.raises(ArtifactError, match=f"missing early/{name}"):
        load(tmp_path, settings=plant())
    file.write_bytes(content)
    assert load(tmp_path, settings=plant()).early is not None


def test_what_does_not_belong_to_the_looks_refuses_the_version(tmp_path: Path, version: str) -> None:
    (Registry(tmp_path).folder("default", version) / "early" / "0" / "odd.bin").write_bytes(b"")
    with pytest.raises(ArtifactError, match=r"unexpected early/0/odd\.bin"):
        load(tmp_path, settings=plant())


def test_sequences_that_are_too_short_for_all_looks_are_refused_in_training(tmp_path: Path) -> None:
    data = windows_of(40)
    short = {name: course.up_to(1) for name, course in courses_of(data).items()}
    with pytest.raises(TrainingDataError, match=r"alerts\.early"):
        EarlyTraining(short, plant()).train(data.ids[10:], data.ids[:10])


def test_a_channel_that_stood_still_up_to_a_look_is_left_out_of_it() -> None:
    rng = np.random.default_rng(0)
    values = rng.normal(0, 1, (20, 3, 12)).astype(np.float32)
    values[:, 1, :6] = 4.0
    of = [Course(each, np.ones(each.shape, np.bool_)) for each in values]
    fitting = LookFitting(WindowSettings(length=16), settings_of().channel_specs, seed=0)
    early, late = fitting.fit(of, (6, 12))
    assert (early.form.still, late.form.still) == ({1: 4.0}, {})
    assert early.form.weight < late.form.weight == 0.0


def test_a_backend_that_cannot_have_the_looks_is_left_out(tmp_path: Path) -> None:
    data = windows_of(20)
    whole = replace(data, lengths=np.full(20, L, np.int64))
    fitted = MeanDetector().fit(whole, seed=0, device="cpu")
    look = Look(form_of(L, {}, fitted.training_scores()), fitted)
    courses = tuple(Course(values, np.ones(values.shape, np.bool_)) for values in data.values)
    trained = TrainedEarly((look,), np.linspace(0, 1, 20), courses, longest=L)
    assert trained.write(tmp_path, plant(), ("onnxruntime",)).backends == {}
    assert sorted(path.name for path in (tmp_path / "early" / "0").iterdir()) == ["model.npz", "probe.npz"]
