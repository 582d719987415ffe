"""What a model in Python says, that it says the same as the command line, and that it keeps nothing back on its way."""

from __future__ import annotations

import pickle
import re
import warnings
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import pandas as pd
import pytest
import yaml
from typer.testing import CliRunner

import streamad
from streamad import Model
from streamad.cli import app
from streamad.errors import ArtifactError, InputError, OutputError, RegistryError
from streamad.messages import ModelRef
from streamad.notebook.model import UnscorableWarning
from tests.support.files import file_size_limit
from tests.support.objects import Bucket
from tests.support.walks import fitted, walks, with_faults


def test_scores_are_high_for_anomalies_and_decisions_follow_the_p_values(model: Model) -> None:
    normal, faulty = walks(40, 1), with_faults(walks(10, 2))
    assert model.decision_function(faulty).min() > model.threshold > np.median(model.decision_function(normal))
    np.testing.assert_array_equal(model.predict(faulty), np.ones(10))
    for X in (normal, faulty):
        np.testing.assert_array_equal(model.predict(X), model.p_values(X) <= model.false_alarm_rate)
        np.testing.assert_array_equal(model.predict(X), model.decision_function(X) >= model.threshold)


@pytest.mark.parametrize("odd", [np.zeros((2, 1)), np.full((2, 40), np.nan)], ids=["short", "without a value"])
def test_a_sequence_without_enough_values_has_no_score_and_predict_refuses_it(
    model: Model, odd: npt.NDArray[np.float64]
) -> None:
    X = [walks(1, 1)[0], odd]
    with pytest.warns(UnscorableWarning, match="1 of 2 sequences have no score, the first, '1': too few samples"):
        scores = model.decision_function(X)
    assert np.isnan(scores).tolist() == [False, True]
    with pytest.raises(InputError, match="'1': too few samples"):
        model.predict(X)
    with pytest.raises(InputError, match="no score"):
        model.explain(X[1])


def test_other_channels_are_refused(model: Model) -> None:
    with pytest.raises(InputError, match="X has 3 channels, the model 2: temp, pressure"):
        model.predict(np.zeros((1, 3, 9)))


def test_reasons_name_the_faulty_channel_in_its_unit_and_draw_it(model: Model, tmp_path: Path) -> None:
    why = model.explain(with_faults(walks(1, 3))[0])
    assert next(iter(why.channels)) == "pressure"
    assert sum(why.channels.values()) == pytest.approx(1.0, abs=1e-3)
    assert "pressure" in repr(why)
    assert "bar above the band" in repr(why)
    assert len(why.nearest) == 3
    assert why.plot().save(tmp_path / "why.png").read_bytes().startswith(b"\x89PNG")
    assert b"<svg" in why.plot().save(tmp_path / "why.svg").read_bytes()


def test_a_normal_sequence_is_explained_too_and_several_are_refused(model: Model) -> None:
    assert "normal" in repr(model.explain(walks(1, 4)))
    with pytest.raises(InputError, match="one sequence, not 2"):
        model.explain(walks(2, 4))


def test_pickle_keeps_the_whole_model(model: Model) -> None:
    X = walks(5, 5)
    copy = pickle.loads(pickle.dumps(model))  # noqa: S301 - made here
    np.testing.assert_array_equal(copy.decision_function(X), model.decision_function(X))
    assert repr(copy) == repr(model)


def test_a_pickle_of_other_bytes_is_refused(model: Model) -> None:
    content = pickle.dumps(model)
    kept = model.manifest.files["calibration.npy"].size_bytes
    place = content.index(b"\x93NUMPY") + kept - 1
    damaged = content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :]
    copy = pickle.loads(damaged)  # noqa: S301 - made here
    with pytest.raises(ArtifactError, match=r"calibration\.npy is damaged"):
        copy.threshold  # noqa: B018


@pytest.mark.parametrize(
    ("files", "says"),
    [
        ({"manifest.json": b"{"}, "manifest.json is damaged"),
        ({"manifest.json": None}, "manifest.json is damaged or missing"),
        ({"manifest.json": b"[]"}, "manifest.json is damaged"),
        ({"../../../../elsewhere": b"x"}, "leads elsewhere"),
        ({"/elsewhere": b"x"}, "leads elsewhere"),
        ({"model.ts": None}, r"missing model\.ts"),
        ({"more.txt": b""}, r"unexpected more\.txt"),
    ],
)
def test_a_pickle_of_other_files_is_refused(model: Model, files: dict[str, bytes | None], says: str) -> None:
    state = model.__getstate__()
    kept = {name: content for name, content in {**state["_files"], **files}.items() if content is not None}
    copy = pickle.loads(pickle.dumps(Model(model.settings, kept)))  # noqa: S301 - made here
    with pytest.raises(ArtifactError, match=says):
        copy.threshold  # noqa: B018


def test_a_damaged_version_is_refused(model: Model, tmp_path: Path) -> None:
    model.save(tmp_path / "registry")
    (path,) = (tmp_path / "registry").rglob("calibration.npy")
    path.write_bytes(path.read_bytes()[:-1] + b"x")
    with pytest.raises(ArtifactError, match=re.escape(str(path.parent))):  # not a copy, which is gone then
        streamad.load(tmp_path / "registry", false_alarm_rate=0.05)


def test_a_full_disk_is_one_error_for_a_model_that_comes_from_elsewhere(model: Model) -> None:
    copy = pickle.loads(pickle.dumps(model))  # noqa: S301 - made here
    with file_size_limit(100), pytest.raises(OutputError, match="cannot write"):
        copy.threshold  # noqa: B018
    assert copy.threshold == model.threshold


def test_the_saved_version_is_served_and_judges_bit_for_bit_as_the_command_line(
    model: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Law: what ``streamad score`` prints of a recording is what the model in Python says of its rows."""
    monkeypatch.chdir(tmp_path)
    X = np.concatenate([walks(7, 6), with_faults(walks(3, 7))]).astype(np.float32)
    rows = [
        {"stream": "array", "sequence": str(place), "time": 1.7e9 + 1000 * place + point, "temp": a, "pressure": b}
        for place, each in enumerate(X)
        for point, (a, b) in enumerate(each.T.tolist())
    ]
    pd.DataFrame(rows).to_csv("recording.csv", index=False)
    assert model.save("registry") == "0001"
    fields = {"stream": "stream", "sequence": "sequence", "time": "time", "values": None}
    Path("plant.yaml").write_text(model.plant_yaml("recording.csv", decode={"fields": fields}))

    printed = CliRunner().invoke(app, ["score", "--json"])

    assert printed.exit_code == 0, printed.output
    verdicts = [msgspec.json.decode(line) for line in printed.output.splitlines() if line.startswith("{")]
    assert [each["sequence"] for each in verdicts] == [str(place) for place in range(10)]
    frame = pd.DataFrame(rows)[["sequence", "time", "temp", "pressure"]]
    again = streamad.load("plant.yaml", id="sequence")
    for judged in (model.verdicts(X), again.verdicts(frame)):
        for mine, theirs in zip(judged, verdicts, strict=True):
            assert (mine.score, mine.p_value, mine.decision) == (theirs["score"], theirs["p_value"], theirs["decision"])


@pytest.mark.parametrize("source", ["recording.csv", "recording.parquet"])
def test_a_file_of_the_frames_columns_is_judged_without_another_key(
    source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    rows = [
        {"batch": f"b{place}", "ts": pd.Timestamp(3600 * place + point, unit="s", tz="UTC"), "a": a, "b": b}
        for place, each in enumerate(walks(30))
        for point, (a, b) in enumerate(each.T.tolist())
    ]
    frame = pd.DataFrame(rows)
    model = fitted(frame, id="batch", time="ts")
    frame.to_csv("recording.csv", index=False)
    frame.to_parquet("recording.parquet", index=False)
    model.save("registry")
    Path("plant.yaml").write_text(model.plant_yaml(source))
    printed = CliRunner().invoke(app, ["score", "--json"])
    assert printed.exit_code == 0, printed.output
    found = [msgspec.json.decode(line) for line in printed.output.splitlines() if line.startswith("{")]
    assert [(each["sequence"], each["p_value"]) for each in found] == [
        (each.sequence, each.p_value) for each in model.verdicts(frame)
    ]
    again = streamad.load("plant.yaml")
    assert (again.columns.id, again.columns.time) == ("batch", "ts")
    assert (again.p_values(frame) == model.p_values(frame)).all()
    renamed = frame.rename(columns={"ts": "at"})
    assert (streamad.load("plant.yaml", time="at").p_values(renamed) == model.p_values(frame)).all()


@pytest.mark.parametrize(("step", "limit"), [("1min", "24h"), ("15min", "2d"), ("1h", "7d")])
def test_the_config_leaves_sequences_whole_that_last_as_long_as_those_of_the_training(step: str, limit: str) -> None:
    times = pd.Timestamp("2026-01-05", tz="UTC") + np.arange(40) * pd.Timedelta(step)
    rows = [pd.DataFrame({"id": str(n), "time": times, "a": a, "b": b}) for n, (a, b) in enumerate(walks(30))]
    model = fitted(pd.concat(rows))
    config = yaml.safe_load(model.plant_yaml("today.csv", sequences={"end": ["gap"], "gap": "1h"}))
    assert {"max_duration": "24h", **config["sequences"]} == {"end": ["gap"], "gap": "1h", "max_duration": limit}
    assert pickle.loads(pickle.dumps(model)).settings.sequences == model.settings.sequences  # noqa: S301 - made here


def test_sections_go_over_the_config_and_are_checked(model: Model) -> None:
    said = model.plant_yaml("today.csv", name="mixer", decode={"time": "relative"}, window={"max_missing": 0.1})
    config = yaml.safe_load(said)
    assert config["schema"] == 1
    assert config["decode"] == {
        "fields": {"sequence": "id", "time": "time", "end": None, "values": None},
        "default_stream": "plant",
        "time": "relative",
    }
    assert (config["name"], config["window"]["length"], config["window"]["max_missing"]) == ("mixer", 40, 0.1)
    assert "decode" not in yaml.safe_load(model.plant_yaml("kafka://broker/samples"))
    for sections, says in (
        ({"decod": {}}, "decod: unknown key.*decode"),
        ({"sequences": {"end": ["gap"]}}, "sequences: .*gap"),
        ({"model": {"options": {"a": np.zeros(2)}}}, "sections hold what YAML cannot"),
        ({"sinks": 5}, "sinks"),
    ):
        with pytest.raises(InputError, match=says):
            model.plant_yaml("today.csv", **sections)


def test_a_second_save_is_the_next_version_and_a_rate_goes_with_a_registry(model: Model, tmp_path: Path) -> None:
    registry = tmp_path / "registry"
    assert [model.save(registry, name="line-2"), model.save(registry, name="line-2", promote=False)] == ["0001", "0002"]
    with pytest.raises(InputError, match=r"false_alarm_rate=0\.02"):
        streamad.load(registry)
    loaded = streamad.load(registry, false_alarm_rate=0.1, version="2")
    assert (loaded.channels, loaded.units) == (model.channels, model.units)
    assert loaded.verdicts(walks(1))[0].model == ModelRef("line-2", "0002")
    model.save(registry, name="line-3")
    with pytest.raises(InputError, match=r"2 models.*line-2, line-3"):
        streamad.load(registry, false_alarm_rate=0.1)
    with pytest.raises(InputError, match=r"registri is not there: give the path of a plant\.yaml, or"):
        streamad.load(tmp_path / "registri", false_alarm_rate=0.1)
    with pytest.raises(RegistryError, match="no version 9"):
        streamad.load(registry, model="line-2", version="9", false_alarm_rate=0.1)


def test_a_model_is_saved_in_an_object_store_and_loaded_from_there(
    model: Model, bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    registry = f"{bucket.url}/models"
    assert [model.save(registry, name="line-2"), model.save(registry, name="line-2")] == ["0001", "0002"]
    loaded = streamad.load(registry, false_alarm_rate=model.false_alarm_rate)
    X = walks(5, 1)
    np.testing.assert_array_equal(loaded.decision_function(X), model.decision_function(X))
    assert [path.name for path in tmp_path.iterdir()] == ["cache"]
    config = yaml.safe_load(loaded.plant_yaml("in.jsonl", registry=registry))
    assert config["model"]["registry"] == registry
    assert streamad.load(registry, version="1", false_alarm_rate=0.1).save(tmp_path / "folder") == "0001"
    for given in ("s3://key:hunter22@bucket/models", "ftp://host/models", "s3://bucket/models?token=hunter22"):
        with pytest.raises(InputError, match="or a URL such as s3://bucket/prefix") as caught:
            model.save(given)
        assert "hunter22" not in str(caught.value)


def test_looks_warn_before_the_end_and_their_p_values_never_rise() -> None:
    X = with_faults(walks(6, 8))
    model = fitted(walks(60), early=4)
    found = model.early([*X, X[0][:, :12]])
    assert found.ages == (10, 20, 29, 39)  # the last point of a running sequence may still change
    assert np.isnan(found.p_values[6]).tolist() == [False, True, True, True]
    assert (np.diff(found.p_values[:6], axis=1) <= 0).all()
    assert found.warned_at[:6].tolist() == [29] * 6
    said = "4 looks at 10, 20, 29, 39 points; 6 of 7 sequences are warned of: 0 at 29, 1 at 29, "
    assert repr(found).startswith(said)
    assert repr(model.early([])) == "4 looks at 10, 20, 29, 39 points; 0 of 0 sequences are warned of"
    assert model.early([]).p_values.shape == (0, 4)
    with pytest.raises(InputError, match="early=10"):
        fitted(walks(40)).early(X)


def test_a_model_says_what_it_is_where_people_look(model: Model) -> None:
    assert repr(model).startswith("<streamad.Model nearest: 2 channels, trained on 60 sequences, 60 out of fold set")
    names = {"fit", "load", "evaluate", "compare", "Model", "subscribe"}
    assert names <= set(dir(streamad))
    assert not {"Any", "TYPE_CHECKING", "import_module"} & set(dir(streamad))
    public: list[Any] = [
        *(getattr(streamad, name) for name in names),
        *(getattr(Model, name) for name in dir(Model) if name[0] != "_"),
    ]
    assert all(each.__doc__ for each in public)
    called = [each for each in public if callable(each) and each is not Model]
    assert [each.__name__ for each in called if "Raises " not in (each.__doc__ or "")] == []
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert model.manifest.metrics.n_calibration == 60
