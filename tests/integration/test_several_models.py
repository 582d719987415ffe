"""Several models from the files to the verdicts: trained, scored and checked, each by the recipe that its rows name."""

from __future__ import annotations

import csv
import json
import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from streamad.learn.registry.registry import Registry
from tests.support.runtime.cli import CliPlant
from tests.support.runtime.pipeline import START_US

PLUGINS = Path(__file__).parents[1] / "support" / "plugins"
LEVELS = {"PX-12": 1.0, "7": 30.0}
FIELDS = {"stream": "line", "sequence": "batch", "time": "ts", "values": None, "ignore_unknown": False}
COLUMNS = ("line", "batch", "ts", "temp", "pressure", "recipe", "end")


@pytest.fixture
def plant(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> CliPlant:
    monkeypatch.syspath_prepend(PLUGINS)
    plant = CliPlant(tmp_path, capsys, monkeypatch)
    configure(plant)
    return plant


def configure(plant: CliPlant, **sections: Any) -> None:
    model = {"recordings": "normal", "detector": "mean_square", "options": {}, "folds": 2, "device": "cpu"}
    plant.write_config(**{"decode": {"fields": FIELDS}, "models": {"field": "recipe"}, "model": model, **sections})


def rows_of(sequence: str, recipe: str | None, start_s: float, rng: random.Random, n: int = 10) -> Iterator[list[Any]]:
    """The rows of one sequence; its recipe stands in the first of them only."""
    level = LEVELS.get(recipe or "", 5.0)
    for i in range(n):
        values = [level + rng.gauss(0, 0.1), level + rng.gauss(0, 0.1)]
        named = recipe if i == 0 else None
        yield ["L1", sequence, START_US / 1e6 + start_s + i, *values, named, "true" if i == n - 1 else "false"]


def recordings(recipes: list[str | None], prefix: str = "B") -> list[list[Any]]:
    rng = random.Random(7)
    return [
        row
        for number, recipe in enumerate(recipes)
        for row in rows_of(f"{prefix}-{number}", recipe, 30.0 * number, rng)
    ]


def write_csv(folder: Path, rows: list[list[Any]], name: str = "day.csv") -> None:
    with (folder / name).open("w", newline="") as file:
        csv.writer(file).writerows([COLUMNS, *rows])


def write_jsonl(folder: Path, rows: list[list[Any]]) -> None:
    lines = [json.dumps(dict(zip(COLUMNS, row, strict=True))) for row in rows]
    (folder / "day.jsonl").write_text("".join(f"{line}\n" for line in lines))


def write_parquet(folder: Path, rows: list[list[Any]]) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    columns = dict(zip(COLUMNS, map(list, zip(*rows, strict=True)), strict=True))
    parquet.write_table(pyarrow.table(columns), folder / "day.parquet")


WRITERS = {"csv": write_csv, "jsonl": write_jsonl, "parquet": write_parquet}


def write(plant: CliPlant, name: str, rows: list[list[Any]], form: str = "jsonl") -> None:
    folder = plant.folder / name
    folder.mkdir(exist_ok=True)
    WRITERS[form](folder, rows)


@pytest.mark.parametrize("form", WRITERS)
def test_each_recipe_is_trained_and_scored_by_a_model_of_its_own(plant: CliPlant, form: str) -> None:
    write(plant, "normal", recordings(["PX-12", "7", None] * 8), form)
    trained = plant("train --json")
    assert trained.code == 0, trained.err
    assert [(m["model"], m["version"], m["promoted"]) for m in trained.last_json["models"]] == [
        ("default", "0001", True),
        ("default.7", "0001", True),
        ("default.PX-12", "0001", True),
    ]
    assert Registry(plant.folder / "registry").names() == ("default", "default.7", "default.PX-12")

    mixed = [row for value in ("PX-12", "7") for row in rows_of("mixed", value, 900.0, random.Random(1), 3)]
    mixed = [
        [*row[:2], START_US / 1e6 + 900 + i, *row[3:6], "true" if i == 5 else "false"] for i, row in enumerate(mixed)
    ]
    write(plant, "recordings", recordings(["7", "PX-12", "new", None, "no/name"]) + mixed, form)
    outcome = plant("score --json")
    verdicts = {verdict["sequence"]: verdict for verdict in map(json.loads, outcome.out.splitlines())}
    assert {name: verdict["model"] and verdict["model"]["name"] for name, verdict in verdicts.items()} == {
        "B-0": "default.7",
        "B-1": "default.PX-12",
        "B-2": None,
        "B-3": "default",
        "B-4": None,
        "mixed": None,
    }
    # Each level is normal for its own recipe only: 30 would be far out for any other.
    assert [verdicts[name]["decision"] for name in ("B-0", "B-1", "B-3")] == ["normal"] * 3
    assert "no model 'default.new'" in verdicts["B-2"]["detail"]
    assert "recipe 'no/name' cannot name a model" in verdicts["B-4"]["detail"]
    assert verdicts["mixed"]["detail"] == "two values of recipe: 'PX-12' and '7'"


def judged_by(verdicts: list[dict[str, Any]]) -> dict[str, tuple[str, str | None]]:
    return {v["sequence"]: (v["decision"], v["model"] and v["model"]["name"]) for v in verdicts}


def test_run_and_replay_judge_each_sequence_by_its_own_model_and_learn_what_has_none(plant: CliPlant) -> None:
    write(plant, "normal", recordings(["PX-12", "7"] * 8))
    trained = plant("train")
    assert trained.code == 0, trained.err
    for name in ("default.7", "default.PX-12"):
        assert f"model {name} 0001: trained on 8 sequences" in trained.out
    write(plant, "recordings", recordings(["7", "PX-12", "new", None, "7"]))
    expected = {
        "B-0": ("normal", "default.7"),
        "B-1": ("normal", "default.PX-12"),
        "B-2": ("unscorable", None),
        "B-3": ("unscorable", None),
        "B-4": ("normal", "default.7"),
    }
    replayed = plant("replay --quiet", "--out", plant.folder / "out" / "replayed")
    assert replayed.code == 0, replayed.err
    assert judged_by(plant.lines("replayed/verdicts")) == expected
    run = plant("run --json --quiet")
    assert run.code == 0, run.err
    assert judged_by(plant.lines("verdicts")) == expected
    assert plant("run --json --quiet").last_json["sequences"] == 0

    learning = {"process": "elsewhere"}
    configure(plant, learning=learning, run={"checkpoint": "another"}, sinks={"verdicts": "out/more.jsonl"})
    assert plant("run --quiet").code == 0
    found = {v["sequence"]: v["decision"] for v in plant.lines("more")}
    assert [found[name] for name in ("B-0", "B-2", "B-3")] == ["normal", "learning", "learning"]
    assert plant("learn --present").code == 0
    (new,) = (each for each in plant("models status --json").last_json["models"] if each["model"] == "default.new")
    assert (new["champion"], new["learning"], sum(new["store"].values())) == (None, "1 of 200", 1)


def test_one_recipe_whose_version_no_monitor_could_use_keeps_no_other_from_its_model(
    plant: CliPlant, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The readings of recipe 7 are 30 times as high, and only such ones are scored otherwise on one thread."""
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    model = {"recordings": "normal", "detector": "uneven", "options": {"above": 100.0}, "folds": 2, "device": "cpu"}
    configure(plant, model=model)
    write(plant, "normal", recordings(["PX-12", "7"] * 8))
    outcome = plant("train")
    assert outcome.code == 1
    assert "model default.7: the new version is not published" in outcome.err
    assert "error: 1 of 2 models have no new version in service: default.7" in outcome.err
    registry = Registry(plant.folder / "registry")
    assert (registry.current("default.7"), registry.versions("default.7")) == (None, ())
    assert registry.current("default.PX-12") == "0001"


def test_one_recipe_that_cannot_be_trained_keeps_no_other_from_its_model(plant: CliPlant) -> None:
    write(plant, "normal", recordings(["PX-12"] * 8 + ["7"] * 2))
    outcome = plant("train --json")
    assert outcome.code == 1
    assert "1 of 2 models have no new version in service: default.7" in outcome.err
    small, whole = outcome.last_json["models"]
    assert small["model"] == "default.7"
    assert "2 training sequences" in small["error"]
    assert (whole["model"], whole["promoted"]) == ("default.PX-12", True)
    assert Registry(plant.folder / "registry").current("default.7") is None


def test_a_field_with_any_number_of_values_makes_no_models(plant: CliPlant) -> None:
    configure(plant, models={"field": "recipe", "max_models": 2})
    write(plant, "normal", recordings(["a", "b", "c"] * 6))
    plant("train").assert_one_line_error("3 values of recipe", "models.max_models is 2")
    assert not (plant.folder / "registry").exists()


def test_score_takes_no_version_where_there_are_several_models(plant: CliPlant) -> None:
    write(plant, "recordings", recordings(["7"]))
    plant("score --version 0001").assert_one_line_error("--version", "several", code=2)


def test_score_without_any_model_names_the_training_command(plant: CliPlant) -> None:
    write(plant, "recordings", recordings(["7", "PX-12"]))
    plant("score").assert_one_line_error("no model 'default.7'", "streamad train --config")
    outcome = plant("score --out out")
    assert outcome.code == 1
    assert "no model 'default.7'" in outcome.err.splitlines()[-1]


def test_a_recipe_whose_model_came_since_is_judged_again_and_the_others_are_kept(plant: CliPlant) -> None:
    """The verdicts in files are those that are printed: also of a recipe without a model."""
    write(plant, "normal", recordings(["PX-12", "7", None] * 8))
    assert plant("train").code == 0
    write(plant, "recordings", recordings(["7", "new", "PX-12", None, "no/name"]))
    write_csv(plant.folder / "recordings", recordings(["7", "PX-12"], "C"), "other.csv")

    def check(*counts: int) -> None:
        said = plant("score --json --out out").last_json
        assert (said["judged"], said["kept"]) == counts
        printed = [json.loads(line) for line in plant("score --json").out.splitlines()]
        rows = pq.read_table(plant.folder / "out" / "verdicts").to_pylist()
        assert {each["verdict_id"]: figures(each) for each in rows} == {
            each["verdict_id"]: figures(each) for each in printed
        }

    def figures(verdict: dict[str, Any]) -> tuple[Any, ...]:
        return tuple(verdict.get(name) for name in ("sequence", "decision", "detail", "score", "p_value", "model"))

    check(2, 0)
    check(0, 2)
    write(plant, "normal", recordings(["new"] * 24))
    assert plant("train").code == 0
    check(1, 1)


def checks(plant: CliPlant) -> list[dict[str, str]]:
    report = plant("check --json").last_json
    return [finding for finding in report["checks"] if finding["check"] in ("models", "model")]


def test_check_names_the_model_of_each_sequence(plant: CliPlant) -> None:
    write(plant, "normal", recordings(["PX-12", None] * 8))
    assert plant("train").code == 0
    write(plant, "recordings", recordings(["PX-12"] * 3 + [None]))
    models, *loaded = checks(plant)
    assert models["outcome"] == "ok"
    assert models["message"] == "recipe in 3 of 4 sequences: default.PX-12 3, default 1"
    assert Counter(finding["message"].split(",")[0] for finding in loaded) == {
        "default 0001": 1,
        "default.PX-12 0001": 1,
    }


@pytest.mark.parametrize(
    ("routing", "recipes", "words"),
    [
        ({}, ["7"], ("no version of default.7 is in service", "streamad train")),
        ({"field": "rezept"}, ["7"], ("no message of the sample has rezept", "check models.field")),
        ({"missing": "unscorable"}, ["7", None], ("1 of 2 sequences", "no recipe in its messages")),
        ({"max_models": 1}, ["a", "b", "c"], ("3 values of recipe", "models.max_models is 1")),
    ],
)
def test_check_warns_of_sequences_that_no_model_would_judge(
    plant: CliPlant, routing: dict[str, Any], recipes: list[str | None], words: tuple[str, ...]
) -> None:
    configure(plant, models={"field": "recipe", **routing}, decode={"fields": {**FIELDS, "ignore_unknown": True}})
    write(plant, "recordings", recordings(recipes))
    found = checks(plant)[0]
    assert (found["check"], found["outcome"]) == ("models", "warning")
    for word in words:
        assert word in f"{found['message']} -> {found['advice']}"


def test_check_reports_the_models_that_are_yet_to_be_learned(plant: CliPlant) -> None:
    configure(plant, models={"field": "recipe", "values": ["7"]}, learning={"first_training": 80})
    write(plant, "recordings", recordings(["7", "8"]))
    found = checks(plant)
    assert {finding["outcome"] for finding in found} == {"ok"}
    assert found[0]["message"] == "recipe in 2 of 2 sequences: default.7 1, default.8 1"
    assert [finding["message"] for finding in found[1:]] == [
        "no version of model 'default.7' yet: it learns from the first 80 sequences"
    ]
