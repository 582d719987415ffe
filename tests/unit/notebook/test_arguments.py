"""A value of a wrong kind is one error of streamad's that names the argument, wherever it is given."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest

import streamad
from streamad import Model
from streamad.errors import StreamadError
from tests.support.walks import walks

X = walks(30, length=12)
LABELS = [0] * 25 + [1] * 5
WRONG: dict[str, Any] = {
    "a number": 5.5,
    "nan": float("nan"),
    "a negative": -1,
    "an empty text": "",
    "bytes": b"x",
    "numbers": [1, 2],
    "nothing twice": [None, None],
    "numbers by number": {1: 2},
    "a set": {"x"},
    "an object": object(),
    "an array": np.zeros((1, 2, 2, 2)),
    "an array without an axis": np.array(3),
    "a column": pd.Series([1.0, 2.0]),
    "a column of polars": pl.Series([1.0, 2.0]),
    "a huge number": 10**400,
    "a function": len,
}


@pytest.fixture(scope="module")
def places(model: Model, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Callable[[Any], object]]:
    """A call for each argument of each function."""
    folder = tmp_path_factory.mktemp("arguments")
    model.save(folder / "registry")
    config = folder / "plant.yaml"
    config.write_text(model.plant_yaml("recording.csv"))
    rate = {"false_alarm_rate": 0.05}
    of_fit = "false_alarm_rate channels units ids id time options effort window early seed device backend verbose"
    why = model.explain(X[0]).plot()
    return {
        **{f"{name} of fit": lambda value, name=name: streamad.fit(X, **{name: value}) for name in of_fit.split()},
        "X of fit": streamad.fit,
        "source of load": streamad.load,
        "model of load": lambda value: streamad.load(config, model=value),
        "version of load": lambda value: streamad.load(folder / "registry", version=value, **rate),
        "false_alarm_rate of load": lambda value: streamad.load(config, false_alarm_rate=value),
        "id of load": lambda value: streamad.load(config, id=value),
        "time of load": lambda value: streamad.load(config, time=value),
        "registry of save": model.save,
        "name of save": lambda value: model.save(folder / "registry", name=value),
        "promote of save": lambda value: model.save(folder / "registry", promote=value),
        "source of plant_yaml": model.plant_yaml,
        "registry of plant_yaml": lambda value: model.plant_yaml("recording.csv", registry=value),
        "model of evaluate": lambda value: streamad.evaluate(value, X, LABELS),
        "X of evaluate": lambda value: streamad.evaluate(model, value, LABELS),
        "labels of evaluate": lambda value: streamad.evaluate(model, X, value),
        "training of evaluate": lambda value: streamad.evaluate(model, X, LABELS, training=value),
        "verbose of evaluate": lambda value: streamad.evaluate(model, X, LABELS, training=X, verbose=value),
        "models of compare": lambda value: streamad.compare(value, X, LABELS),
        "X of predict": model.predict,
        "X of explain": model.explain,
        "path of plot": why.save,
    }


@pytest.mark.parametrize("wrong", WRONG)
def test_a_value_of_a_wrong_kind_is_an_error_that_names_the_argument(
    wrong: str, places: dict[str, Callable[[Any], object]]
) -> None:
    for place, call in places.items():
        with pytest.raises(StreamadError) as error:
            call(WRONG[wrong])
        said = str(error.value)
        assert place.split()[0] in said, f"{place}: {said}"
        assert "\n" not in said


def test_numbers_and_lists_of_every_library_are_taken() -> None:
    made = streamad.fit(
        X,
        false_alarm_rate=np.float32(0.25),
        channels=pd.Index(["a", "b"]),
        units=pl.Series(["K", "bar"]),
        ids=np.arange(30),
        seed=np.int64(3),
        early=np.int32(2),
        detector="pca",
        options={"explained": np.float32(0.5)},
        window={"length": np.int64(12)},
        verbose=np.bool_(False),
    )
    assert (made.channels, made.units) == (("a", "b"), ("K", "bar"))
    assert (made.false_alarm_rate, made.settings.model.seed) == (0.25, 3)
