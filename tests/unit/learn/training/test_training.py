from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from streamad.errors import RegistryError, TrainingDataError
from streamad.learn.registry.registry import Registry
from streamad.learn.training.fits import FitStep, joined
from streamad.types import FloatArray, IntArray, WindowSet
from tests.support.learning.plant import N_EPOCHS, L, MeanDetector, MeanModel, load, settings_of, train, windows_of


def shuffled(data: WindowSet, seed: int = 3) -> WindowSet:
    return data.take(np.random.default_rng(seed).permutation(len(data)))


def test_held_out_sequences_calibrate_and_never_train(tmp_path: Path) -> None:
    data, detector = windows_of(200), MeanDetector()
    train(tmp_path, data=data, detector=detector)
    model = load(tmp_path)
    (trained,) = detector.fits
    held_out = [i for i, name in enumerate(data.ids) if name not in set(trained)]
    assert (len(trained), len(held_out)) == (101, 99)
    assert model.manifest.metrics.method == "split"
    expected = model.scorer.score(data.values[held_out], data.lengths[held_out])
    assert sorted(map(tuple, model.calibration_terms.tolist())) == sorted(map(tuple, expected.tolist()))


@pytest.mark.parametrize(("n", "method"), [(30, "out_of_fold"), (149, "out_of_fold"), (150, "split"), (200, "split")])
def test_the_version_does_not_depend_on_the_order_of_the_data(tmp_path: Path, n: int, method: str) -> None:
    data = windows_of(n)
    train(tmp_path / "a", data=data)
    train(tmp_path / "b", data=shuffled(data))
    manifests = [Registry(tmp_path / root).manifest("default", "0001") for root in "ab"]
    assert manifests[0] == manifests[1]  # with the checksums of all files
    assert manifests[0].metrics.method == method


def test_out_of_fold_scores_come_from_models_that_did_not_see_them(tmp_path: Path) -> None:
    data, detector = windows_of(30), MeanDetector()
    train(tmp_path, data=data, detector=detector)
    *folds, final = detector.fits
    assert sorted(final) == sorted(data.ids)
    held_out = [set(data.ids) - set(fold) for fold in folds]
    assert len(folds) == 5
    assert sorted(name for part in held_out for name in part) == sorted(data.ids)
    keep = [i for i, name in enumerate(data.ids) if name in set(folds[0])]
    test = [i for i, name in enumerate(data.ids) if name in held_out[0]]
    fold_model = MeanDetector().fit(data.take(keep), seed=0, device="cpu")
    expected = fold_model.score(data.values[test], data.lengths[test])
    found = load(tmp_path).calibration_terms[:6]
    np.testing.assert_allclose(np.sort(found, axis=0), np.sort(expected, axis=0), rtol=1e-4)


@pytest.mark.parametrize(("n", "n_fits"), [(30, 6), (200, 1)])
def test_every_fit_knows_the_units_of_the_channels(tmp_path: Path, n: int, n_fits: int) -> None:
    detector = MeanDetector()
    train(tmp_path / "a", n, detector=detector)
    assert detector.units == [("degC", "bar", "")] * n_fits
    without = MeanDetector()
    train(tmp_path / "b", n, detector=without, settings=settings_of(channels=[{"name": name} for name in "abc"]))
    assert without.units == [()] * n_fits


def test_windows_keep_their_units_when_taken_and_joined() -> None:
    data = replace(windows_of(4), units=("degC", "bar", ""))
    assert data.take([2, 0]).units == data.distinct().units == data.units
    assert joined(data, windows_of(2)).units == data.units


def test_progress_covers_every_epoch_of_every_fit(tmp_path: Path) -> None:
    steps: list[FitStep] = []
    train(tmp_path, 30, progress=steps.append)
    assert [(step.fit, step.step.epoch) for step in steps] == [
        *((fit, epoch) for fit in range(1, 7) for epoch in range(1, N_EPOCHS + 1)),
        (6, 0),
    ]
    assert [step.phase for step in steps] == ["calibration"] * 5 * N_EPOCHS + ["final"] * N_EPOCHS + ["proof"]
    assert {step.n_fits for step in steps} == {6}


def test_an_interrupted_training_goes_on_where_it_was(tmp_path: Path) -> None:
    data = windows_of(30)

    def interrupt(step: FitStep) -> None:
        if (step.fit, step.step.epoch) == (3, 2):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(tmp_path / "a", data=data, progress=interrupt)
    assert Registry(tmp_path / "a").versions("default") == ()
    training = tmp_path / "a" / "default" / "training"
    folders = [training, *(each for each in training.iterdir() if each.is_dir())]
    assert [oct(each.stat().st_mode & 0o777) for each in folders] == ["0o700", "0o700"]
    detector = MeanDetector()
    train(tmp_path / "a", data=shuffled(data), detector=detector)
    assert len(detector.fits) == 4  # folds 3 to 5 and the final model
    assert detector.epochs == [3, *3 * [1, 2, 3]]
    train(tmp_path / "b", data=data)
    manifests = [Registry(tmp_path / root).manifest("default", "0001") for root in "ab"]
    assert manifests[0] == manifests[1]
    assert list((tmp_path / "a" / "default" / "training").iterdir()) == []


@pytest.mark.parametrize("damage", ["bit", "cut", "other", "link"])
def test_stored_terms_that_were_changed_are_computed_anew(tmp_path: Path, damage: str) -> None:
    data = windows_of(30)

    def interrupt(step: FitStep) -> None:
        if step.fit == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(tmp_path / "a", data=data, progress=interrupt)
    (stored,) = (tmp_path / "a").glob("**/fold-1.terms")
    content = stored.read_bytes()
    if damage == "link":
        stored.unlink()
        stored.symlink_to("/dev/zero")
    else:
        stored.write_bytes({"bit": content[:-1] + b"\x01", "cut": content[:20], "other": b"x" * 100}[damage])
    detector = MeanDetector()
    train(tmp_path / "a", data=data, detector=detector)
    assert len(detector.fits) == 5  # folds 1 and 3 to 5, and the final model
    train(tmp_path / "b", data=data)
    manifests = [Registry(tmp_path / root).manifest("default", "0001") for root in "ab"]
    assert manifests[0] == manifests[1]


@pytest.mark.parametrize("change", ["data", "seed", "folds"])
def test_other_data_or_settings_start_over_and_success_clears_what_was_left(tmp_path: Path, change: str) -> None:
    def interrupt(step: FitStep) -> None:
        if step.fit == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(tmp_path, data=windows_of(30), progress=interrupt)
    model = {"detector": "mean", "device": "cpu", "seed": 1 if change == "seed" else 0}
    settings = settings_of(model={**model, "folds": 6 if change == "folds" else 5})
    detector = MeanDetector()
    train(tmp_path, data=windows_of(30, seed=change == "data"), settings=settings, detector=detector)
    assert len(detector.fits) == (7 if change == "folds" else 6)
    assert list((tmp_path / "default" / "training").iterdir()) == []


def test_the_same_training_twice_at_once_is_refused(tmp_path: Path) -> None:
    def again(step: FitStep) -> None:
        train(tmp_path, 30)

    with pytest.raises(RegistryError, match="the same training already runs in another process"):
        train(tmp_path, 30, progress=again)


def test_a_version_overtaken_while_it_trained_stays_out_of_service(tmp_path: Path) -> None:
    train(tmp_path, 30)

    def overtake(step: FitStep) -> None:
        if (step.phase, step.step.epoch) == ("final", 1):
            train(tmp_path, data=windows_of(30, seed=5))

    with pytest.raises(RegistryError, match="0003 not promoted, 0002 is in service where 0001 was expected"):
        train(tmp_path, data=windows_of(30, seed=6), progress=overtake)
    registry = Registry(tmp_path)
    assert registry.current("default") == "0002"
    assert registry.versions("default") == ("0001", "0002", "0003")
    assert registry.manifest("default", "0003").decision is None


def broken(**changes: object) -> WindowSet:
    data = windows_of(30)
    parts = {"values": data.values.copy(), "lengths": data.lengths.copy(), "ids": data.ids, **changes}
    return WindowSet(**parts)  # type: ignore[arg-type]


def constant(*channels: int) -> WindowSet:
    data = broken()
    for window, length in zip(data.values, data.lengths, strict=True):
        window[list(channels), :length] = 4.25
    return data


def not_finite() -> WindowSet:
    data = broken()
    data.values[4, 1, 3] = np.nan
    return data


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (windows_of(0), "no sequences to train on"),
        (windows_of(9), "9 training sequences, but 5 folds need at least 10"),
        (constant(1), "channel 'pressure' never changes in 30 training sequences"),
        (constant(0, 2), "channels 'temp', 'flow' never change in"),
        (not_finite(), "sequence 'B-0004' holds values that are not finite in channel 'pressure'"),
        (broken(ids=("B-0001", "B-0001", *windows_of(30).ids[2:])), "such as 'B-0001'"),
        (broken(values=np.zeros((30, 2, L), np.float32)), r"the config says \(30, 3, 12\)"),
        (broken(lengths=np.zeros(30, np.int64)), "lengths of training windows must lie within 1..12"),
    ],
)
def test_data_that_cannot_give_a_model(tmp_path: Path, data: WindowSet, expected: str) -> None:
    with pytest.raises(TrainingDataError, match=expected) as caught:
        train(tmp_path, data=data)
    assert "\n" not in str(caught.value)
    assert Registry(tmp_path).versions("default") == ()


def alike(n: int) -> WindowSet:
    data = windows_of(n)
    return WindowSet(np.repeat(data.values[:1], n, axis=0), np.repeat(data.lengths[:1], n), data.ids)


def test_a_model_that_could_never_alert_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TrainingDataError, match=r"the 30 calibration scores do not differ.*rate of 0.02.*to 0.032"):
        train(tmp_path / "a", data=alike(30))
    assert Registry(tmp_path / "a").versions("default") == ()
    settings = settings_of(alerts={"false_alarm_rate": 0.04})  # 1 of 31: any higher score alerts
    assert train(tmp_path / "b", data=alike(30), settings=settings) == "0001"
    assert train(tmp_path / "c", data=alike(200)) == "0001"  # 99 scores certify the rate


def test_a_channel_constant_only_in_the_training_part_is_named(tmp_path: Path) -> None:
    data, detector = windows_of(200), MeanDetector()
    train(tmp_path / "a", data=data, detector=detector)
    trained = [i for i, name in enumerate(data.ids) if name in set(detector.fits[0])]
    for i in trained:
        data.values[i, 2, : data.lengths[i]] = 1.0
    with pytest.raises(TrainingDataError, match="channel 'flow' never changes in 101 training sequences"):
        train(tmp_path / "b", data=data)


def test_a_model_whose_own_training_sequences_would_alert_stays_out_of_service(tmp_path: Path) -> None:
    class ShiftedFinal(MeanDetector):
        """Its last fit, the model itself, scores on another scale than the folds did."""

        def fit(self, data: WindowSet, **how: Any) -> Any:
            fitted = super().fit(data, **how)
            fitted.offset = self.offset if len(data) == 30 else 0.0
            return fitted

    train(tmp_path)
    version = train(tmp_path, data=windows_of(30, seed=1), detector=ShiftedFinal(offset=50.0))
    registry = Registry(tmp_path)
    assert (version, registry.current("default")) == ("0002", "0001")
    decision = registry.manifest("default", version).decision
    assert decision is not None
    assert not decision.promoted
    assert "most normal sequences would alert" in decision.reason


def test_the_probe_is_of_windows_that_rounding_does_not_move(tmp_path: Path) -> None:
    class SteppedModel(MeanModel):
        def score(self, windows: FloatArray, lengths: IntArray) -> FloatArray:
            return super().score(windows, lengths) + (windows[:, :1, 0] > 1.0)

    class Stepped(MeanDetector):
        """Decides by a comparison, as features of a kernel do."""

        def fit(self, data: WindowSet, **how: Any) -> MeanModel:
            fitted = super().fit(data, **how)
            fitted.__class__ = SteppedModel
            return fitted

        def load(self, folder: Path, *, device: str) -> MeanModel:
            loaded = super().load(folder, device=device)
            loaded.__class__ = SteppedModel
            return loaded

    data = windows_of(30)
    data.values[::2, 0, 0] = 1.0  # a tie in every second window
    data.values[1::2, 0, 0] = 1.5
    version = train(tmp_path, data=data, detector=Stepped())
    with np.load(Registry(tmp_path).folder("default", version) / "probe.npz") as probe:
        assert (probe["windows"][:, 0, 0] == 1.5).all()
        assert len(probe["windows"]) == 4
