"""What ``fit`` takes, what it leaves out, and what it refuses."""

from __future__ import annotations

import gc
import random
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch

import streamad
from streamad import Model
from streamad.errors import InputError, PluginError, StreamadError, TrainingDataError
from streamad.notebook.fitting import LeftOutWarning
from tests.support.walks import fitted, walks


def test_the_same_data_and_seed_give_the_same_scores(model: Model) -> None:
    again = fitted(walks(60), channels=["temp", "pressure"])
    np.testing.assert_array_equal(again.decision_function(walks(5, 1)), model.decision_function(walks(5, 1)))


def test_copies_and_short_sequences_are_left_out_and_said() -> None:
    X = [*walks(30), walks(1)[0], np.zeros((2, 1))]
    with pytest.warns(LeftOutWarning) as said:
        found = fitted(X)
    assert sorted(str(each.message) for each in said) == [
        "1 of 31 sequences are left out: copies of others",
        "1 of 32 sequences are left out, the first, '31': too few samples: 1, needed are 2 (window.min_samples)",
    ]
    assert found.manifest.metrics.n_training == 30


def test_the_environment_of_a_plant_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STREAMAD_ALERTS__FALSE_ALARM_RATE", "0.5")
    assert fitted(walks(30)).false_alarm_rate == 0.05


def test_longer_sequences_than_the_window_are_squeezed_or_cut() -> None:
    X = walks(30, length=200)
    assert fitted(X).manifest.window.length == 128
    cut = fitted(X, window={"length": 50, "longer": "truncate"})
    np.testing.assert_array_equal(cut.decision_function(X[:3]), cut.decision_function(X[:3, :, :50]))


def test_a_grid_of_time_is_kept_through_a_registry(tmp_path: Any) -> None:
    window = {"length": 30, "resample": {"period": "2s"}}
    made = fitted(walks(30), window=window)
    made.save(tmp_path / "registry")
    X = walks(5, 2)
    for loaded in (
        streamad.load(tmp_path / "registry", false_alarm_rate=0.05),
        _by_config(made, tmp_path),
    ):
        np.testing.assert_array_equal(loaded.decision_function(X), made.decision_function(X))


def _by_config(model: Model, folder: Any) -> Model:
    (folder / "plant.yaml").write_text(model.plant_yaml("recording.csv"))
    return streamad.load(folder / "plant.yaml")


@pytest.mark.parametrize(
    ("more", "error", "says"),
    [
        ({"false_alarm_rate": 2}, InputError, "^false_alarm_rate is 2: give a rate between 0 and 1"),
        ({"detector": "neares"}, PluginError, "nearest"),
        ({"options": {"n": 3}}, InputError, "unknown key"),
        ({"effort": "quick"}, InputError, "^effort: "),
        ({"effort": "fast"}, InputError, "^effort: "),
        ({"backend": "onnx"}, InputError, "^backend: "),
        ({"window": {"lenght": 9}}, InputError, r"window\.lenght: unknown key.*length"),
        ({"channels": ["a"]}, InputError, "channels names 1, and X has 2"),
        ({"channels": ["a", "a"]}, InputError, "channel named twice: a"),
        ({"units": {"pressure": "bar"}}, InputError, "'pressure', which is no channel"),
        ({"units": "K"}, InputError, "^units is 'K': give a list of a unit for each channel"),
        ({"units": 5}, InputError, "^units is 5: give"),
        ({"units": ["K"]}, InputError, "^units has 1 entries for 2 channels"),
        ({"id": "x", "time": "x"}, InputError, "id and time both name the column 'x'"),
        ({"seed": 2**64}, InputError, "^seed is 18446744073709551616: give"),
        ({"channels": ["Temp [°C]", "p"]}, InputError, r"'Temp \[°C\]': name channels with .* units="),
        ({"early": 0}, InputError, "early is 0: give the number of looks"),
        ({"early": 51}, InputError, "early is 51: give the number of looks at running sequences, 1 to 50"),
        ({"early": True}, InputError, "early is True: give the number of looks"),
    ],
    ids=lambda value: next(iter(value), "") if isinstance(value, dict) else "",
)
def test_a_wrong_argument_is_named(more: dict[str, Any], error: type[StreamadError], says: str) -> None:
    with pytest.raises(error, match=says):
        fitted(walks(30), **more)


def test_frames_of_polars_are_fitted_and_scored() -> None:
    X = walks(30, length=12)
    rows = [
        {"batch": str(place), "at": float(point), "a": a, "b": b}
        for place, each in enumerate(X)
        for point, (a, b) in enumerate(each.T.tolist())
    ]
    frame, of_array = pl.DataFrame(rows), fitted(X, channels=["a", "b"])
    model = fitted(frame, id="batch", time="at")
    assert model.channels == ("a", "b")
    np.testing.assert_array_equal(model.decision_function(frame), of_array.decision_function(X))
    assert model.explain(frame.filter(pl.col("batch") == "3")).verdict.sequence == "3"
    with pytest.raises(InputError, match="no column b"):
        model.predict(frame.drop("b"))


@pytest.mark.parametrize(("detector", "options"), [("neutral_ad", {"epochs": 2}), ("nearest", {})])
def test_a_model_leaves_no_threads_files_or_random_state(
    detector: str, options: dict[str, int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def state() -> list[object]:
        threads = sorted(thread.name for thread in threading.enumerate())
        of_numpy = np.random.get_state()
        of_torch = torch.random.get_rng_state().numpy().tobytes()
        return [threads, random.getstate(), str(of_numpy), of_torch, torch.get_num_threads(), Path.cwd()]

    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    before = state()
    model = fitted(walks(30), detector=detector, options=options)
    model.explain(walks(1, 1)).plot()
    assert state() == before
    del model
    gc.collect()
    assert list(tmp_path.glob("streamad*")) == []


def test_too_few_sequences_are_refused() -> None:
    with pytest.raises(TrainingDataError, match=r"^X: 3 training sequences, .* at least 10"):
        fitted(walks(3))
    with pytest.raises(InputError, match="no sequence"):
        fitted(walks(0))
    with pytest.raises(InputError, match="X has no channel"):
        fitted(np.zeros((30, 0, 12)))
    with pytest.warns(LeftOutWarning), pytest.raises(TrainingDataError, match="none of the 4 sequences of X"):
        fitted(np.zeros((4, 2, 1)))


def test_importing_streamad_loads_next_to_nothing_and_none_of_its_names_loads_torch() -> None:
    code = """
import sys
import streamad
names = dir(streamad)
loaded = {*sys.modules}
for name in streamad.__all__:
    getattr(streamad, name)
print(*sorted(loaded & {"numpy", "scipy", "pandas", "pydantic", "torch"}), "|", *sorted({*sys.modules} & {"torch"}))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["|"]
