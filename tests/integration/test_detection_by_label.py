"""Detection by label after ``train --labels``: the figures of ``replay``, and labels of faults that choose nothing."""

from __future__ import annotations

import csv
import json
import random
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from streamad.judge.evaluation import auc
from streamad.learn.registry.manifest import CALIBRATION_FILE
from streamad.learn.registry.registry import Registry
from streamad.learn.training.from_recordings import calibrating_ids
from streamad.settings.plant_yaml import load_settings
from tests.integration.test_several_models import configure, rows_of, write_jsonl
from tests.support.runtime.cli import CliPlant

PLUGINS = Path(__file__).parents[1] / "support" / "plugins"
TIMES = ("created_at", "decided_at", "duration_s")
"""What two trainings of the same model may differ in."""


@pytest.fixture
def plant(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> CliPlant:
    monkeypatch.syspath_prepend(PLUGINS)
    plant = CliPlant(tmp_path, capsys, monkeypatch)
    plant.write_config(model={"detector": "nearest", "options": {}, "references": []})
    return plant


def write_day(plant: CliPlant, n_normal: int, faults: dict[str, int], *, unlabelled: int = 0) -> None:
    """Write normal/day.jsonl with ``n_normal`` sequences of the kinds "good" and "fair", and then ``faults`` by kind.

    ``stuck`` pressures are far off, those of ``drift`` a little, and ``short`` ones have too few samples for a window.
    The last sequences have no label.
    """
    rng, labels, lines = random.Random(3), [], []
    kinds = [("good", "fair")[i % 2] for i in range(n_normal)] + [kind for kind, n in faults.items() for _ in range(n)]
    for i, kind in enumerate([*kinds, *[""] * unlabelled]):
        message = json.loads(CliPlant.message(f"r{1 + i % 2}", f"b-{i}", i * 30.0, rng, odd=kind == "stuck"))
        if kind == "drift":
            message["values"] = [[temp, pressure + 0.01 * j] for j, (temp, pressure) in enumerate(message["values"])]
        if kind == "short":
            message |= {"times": message["times"][:1], "values": message["values"][:1]}
        lines.append(json.dumps(message))
        labels.append((f"b-{i}", kind))
    folder = plant.folder / "normal"
    folder.mkdir(exist_ok=True)
    (folder / "day.jsonl").write_text("".join(f"{line}\n" for line in lines))
    write_labels(plant, [(name, kind) for name, kind in labels if kind])


def write_labels(plant: CliPlant, labels: list[tuple[str, str]]) -> None:
    with (plant.folder / "labels.csv").open("w", newline="") as file:
        csv.writer(file).writerows([("sequence", "label"), *labels])


def read_labels(plant: CliPlant) -> list[tuple[str, str]]:
    with (plant.folder / "labels.csv").open(newline="") as file:
        return [(row["sequence"], row["label"]) for row in csv.DictReader(file)]


def train(plant: CliPlant, *, code: int = 0) -> dict[str, Any]:
    outcome = plant("train normal --labels labels.csv --normal good,fair --json")
    assert outcome.code == code, outcome.err
    found: dict[str, Any] = outcome.last_json
    return found


def published(plant: CliPlant) -> dict[str, Any]:
    """Every file of the registry; of manifests all but times."""

    def timeless(value: Any) -> Any:
        if isinstance(value, dict):
            return {name: timeless(each) for name, each in value.items() if name not in TIMES}
        return value

    files = plant.files().items()
    return {
        name: timeless(json.loads(content)) if name.endswith(".json") else content
        for name, content in files
        if name.startswith("registry/")
    }


@pytest.mark.parametrize(("n_normal", "method"), [(40, "out_of_fold"), (170, "split")])
def test_train_judges_the_anomalous_sequences_as_replay_does(plant: CliPlant, n_normal: int, method: str) -> None:
    write_day(plant, n_normal, {"drift": 8, "stuck": 5, "short": 2})
    trained = train(plant)
    assert trained["metrics"]["method"] == method
    replayed = plant("replay normal --labels labels.csv --normal good,fair --json --out said").last_json
    found = trained["detection"]
    rows = {
        name: [one for one in of["by_label"] if one["is_anomalous"]] for name, of in (("t", found), ("r", replayed))
    }
    assert [one["label"] for one in rows["t"]] == ["drift", "stuck", "short"]
    # The normal sequences of a replay have trained, so the AUC against them is another one.
    without_auc = {name: [{**one, "auc": None} for one in of] for name, of in rows.items()}
    assert without_auc["t"] == without_auc["r"]
    for name in ("n_anomalous", "detection_rate", "detection_interval"):
        assert found[name] == replayed[name]
    assert 0 < rows["t"][0]["n_alerts"] < 8
    assert (rows["t"][1]["n_alerts"], rows["t"][2]["n_unscorable"]) == (5, 2)

    labels = dict(read_labels(plant))
    verdicts = [json.loads(text) for text in (plant.folder / "said" / "verdicts.jsonl").read_text().splitlines()]
    terms = Registry(plant.folder / "registry").calibration_terms("default", trained["version"])
    for row in rows["t"][:2]:
        scores = [one["score"] for one in verdicts if labels[one["sequence"]] == row["label"]]
        both = np.concatenate([scores, terms.sum(axis=1)])
        assert row["auc"] == pytest.approx(auc(both, np.arange(len(both)) < len(scores)), abs=1e-9)


@pytest.mark.parametrize(("n_normal", "method"), [(40, "out_of_fold"), (170, "split")])
def test_its_normal_sequences_are_those_that_calibrated_and_have_no_interval(
    plant: CliPlant, n_normal: int, method: str
) -> None:
    """``mean_square`` learns nothing, so that each calibration score must be that of its own sequence."""
    plant.write_config(model={"detector": "mean_square", "options": {}, "references": []})
    write_day(plant, n_normal, {"stuck": 3})
    trained = train(plant)
    n = trained["metrics"]["n_calibration"]
    assert (trained["metrics"]["method"], n) == (method, n_normal if method == "out_of_fold" else n)
    scores = {
        f"{one['stream']}/{one['sequence']}": one["score"]
        for one in map(json.loads, plant("score normal --json").out.splitlines())
    }
    ids = tuple(f"r{1 + i % 2}/b-{i}" for i in range(n_normal))
    calibrating = calibrating_ids(ids, load_settings(plant.config))
    terms = np.load(plant.folder / "registry" / "default" / "versions" / "0001" / CALIBRATION_FILE)
    assert [scores[each] for each in calibrating] == pytest.approx(terms.sum(axis=1).tolist())

    found, labels = trained["detection"], dict(read_labels(plant))
    assert (found["n_normal"], found["false_alarm_interval"]) == (n, None)
    rows = {one["label"]: one for one in found["by_label"]}
    for kind in ("good", "fair"):
        assert rows[kind]["n_sequences"] == sum(labels[each.split("/")[1]] == kind for each in calibrating)
        assert (rows[kind]["interval"], rows[kind]["auc"]) == (None, None)
    assert found["false_alarm_rate"] == (rows["good"]["n_alerts"] + rows["fair"]["n_alerts"]) / n
    assert found["false_alarm_rate"] <= 0.3  # as configured: a calibration score is among those it is compared with


def test_train_prints_what_replay_prints_and_whose_false_alarms_these_are(plant: CliPlant) -> None:
    write_day(plant, 40, {"drift": 8, "stuck": 5})
    said = plant("train normal --labels labels.csv --normal good,fair").out
    tables = plant("replay normal --labels labels.csv --normal good,fair --quiet").out
    assert "Found by label:" in tables

    def row(text: str, label: str) -> list[str]:
        (found,) = (line.split() for line in text.splitlines() if line.startswith(f"{label} "))
        return found

    for label in ("drift", "stuck"):
        assert row(said, label)[:-1] == row(tables, label)[:-1]  # all but the AUC
    assert "judges 13 sequences whose labels mean anomalous; none trained it:" in said
    assert "False alarms by label:" in said
    words = " ".join(said.split())
    assert "of 40 normal that set the threshold" in words
    assert "are the 40 scored out of fold, by models that did not see them. Their scores set the threshold" in words
    write_day(plant, 170, {"drift": 8})
    words = " ".join(plant("train normal --labels labels.csv --normal good,fair").out.split())
    assert "held out of training. Their scores set the threshold" in words
    assert "Found by label" not in words  # the row "found" says it of the only one


def test_train_tells_of_recorded_faults_before_injected_ones(plant: CliPlant) -> None:
    plant.write_config(model={"detector": "nearest", "options": {}, "references": ["pca"]})
    write_day(plant, 40, {"drift": 8})
    said = plant("train normal --labels labels.csv --normal good,fair").out
    in_order = ("now in service", "whose labels mean", "injected faults are found", "simple kinds")
    places = [said.index(part) for part in in_order]
    assert places == sorted(places)


@pytest.mark.parametrize(
    ("n_normal", "model"),
    [
        (170, {"detector": "nearest", "options": {}, "references": ["pca"]}),
        (40, {"detector": "nearest", "options": {}, "references": ["pca"]}),
        (24, {"references": []}),  # neutral_ad: torch's random numbers, too
    ],
)
def test_anomalous_recordings_and_their_labels_choose_nothing(
    plant: CliPlant, n_normal: int, model: dict[str, Any]
) -> None:
    plant.write_config(model=model)
    models, figures = [], []
    for faults, turned in (({}, 0), ({"drift": 8, "stuck": 5}, 0), ({"drift": 8, "stuck": 5}, 5)):
        for path in sorted(plant.folder.rglob("registry/**/*"), reverse=True):
            path.rmdir() if path.is_dir() else path.unlink()
        write_day(plant, n_normal, faults)
        labels = read_labels(plant)
        kinds = [kind for _, kind in labels[n_normal:]]
        permuted = zip([name for name, _ in labels[n_normal:]], kinds[turned:] + kinds[:turned], strict=True)
        write_labels(plant, [*labels[:n_normal], *permuted])
        figures.append(train(plant)["detection"])
        models.append(published(plant))
    assert {"model.ts", "calibration.npy", "manifest.json", "CURRENT"} <= {Path(name).name for name in models[0]}
    assert models[1] == models[0]
    assert models[2] == models[0]
    assert figures[0] is None
    assert figures[1]["by_label"] != figures[2]["by_label"]
    assert figures[1]["auc"] == figures[2]["auc"]


def test_labels_of_normal_sequences_alone_print_nothing_more(plant: CliPlant) -> None:
    write_day(plant, 24, {})
    with_labels = plant("train normal --labels labels.csv --normal good,fair")
    assert with_labels.code == 0
    without = plant("train normal")
    assert with_labels.err == without.err
    first, rest = with_labels.out.split("\n")[0], with_labels.out.split("\n")[1:]
    assert "now in service" in first
    assert [line for line in without.out.split("\n")[1:] if not line.startswith("replaces")] == rest
    assert train(plant)["detection"] is None
    assert plant("train normal --json").last_json["detection"] is None


def test_sequences_without_a_label_do_not_train_and_are_counted(plant: CliPlant) -> None:
    write_day(plant, 24, {"stuck": 3}, unlabelled=4)
    outcome = plant("train normal --labels labels.csv --normal good,fair --json")
    assert "left out 4 of 28 sequences: without a label\n" in outcome.err
    report = outcome.last_json
    assert (report["metrics"]["n_training"], report["detection"]["n_anomalous"]) == (24, 3)


def test_faults_among_the_recordings_are_named_and_more_recordings_are_no_remedy(plant: CliPlant) -> None:
    write_day(plant, 40, {"stuck": 5})
    plant.write_config(model={"detector": "nearest", "options": {}, "references": ["pca"]})
    clean = plant("train normal --labels labels.csv --normal good,fair")
    assert "score far above the others" not in clean.out
    assert clean.out.splitlines()[-1] == "next: streamad replay RECORDINGS --labels LABELS.csv, or streamad run"
    outcome = plant("train normal")
    (line,) = [line for line in outcome.out.splitlines() if "score far above the others" in line]
    n, named = re.findall(r"^note: (\d+) of 45 calibration sequences score far above the others: (.*);", line)[0]
    assert 5 <= int(n) < 12
    assert set(named.partition(" and ")[0].split(", ")) == {f"r{1 + i % 2}/b-{i}" for i in range(40, 45)}
    assert "if they are faults, leave them out of the recordings and train again" in line
    assert "calibration sequences instead of" not in outcome.out
    assert "finds fewer injected faults than" not in outcome.out


def test_a_version_that_finds_clearly_fewer_faults_than_the_one_it_replaces_says_so(plant: CliPlant) -> None:
    write_day(plant, 60, {})
    for model in ({"detector": "nearest", "options": {}}, {"detector": "pointwise", "options": {"n_places": 2}}):
        plant.write_config(model={**model, "references": ["pca"]})
        outcome = plant("train normal")
    (line,) = [line for line in outcome.out.splitlines() if "finds fewer injected faults than" in line]
    assert line == (
        "note: 0002 finds fewer injected faults than 0001 found, for sure: streamad models rollback undoes it"
    )


def test_a_version_that_is_not_promoted_says_how_it_goes_into_service(plant: CliPlant) -> None:
    write_day(plant, 24, {})
    outcome = plant("train normal --no-promote")
    assert outcome.out.splitlines()[-1] == "next: streamad models promote 0001 puts it into service"


def test_labels_that_leave_most_sequences_out_have_a_remark(plant: CliPlant) -> None:
    write_day(plant, 12, {}, unlabelled=20)
    outcome = plant("train normal --labels labels.csv --normal good,fair")
    assert "left out 20 of 32 sequences: without a label; training uses sequences labelled normal only" in outcome.err


def test_copies_of_a_normal_sequence_count_once(plant: CliPlant) -> None:
    write_day(plant, 24, {"stuck": 3})
    day = plant.folder / "normal" / "day.jsonl"
    first = json.loads(day.read_text().splitlines()[0])
    with day.open("a") as file:
        file.write(json.dumps({**first, "sequence": "copy", "times": [t + 9_000 for t in first["times"]]}) + "\n")
    write_labels(plant, [*read_labels(plant), ("copy", "good")])
    report = train(plant)
    assert (report["metrics"]["n_training"], report["detection"]["n_normal"]) == (24, 24)


def test_a_version_that_cannot_be_loaded_stays_and_the_reason_is_told(
    plant: CliPlant, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A torch that scores otherwise on another number of threads would be such a case; a damaged file stands for it."""
    write_day(plant, 24, {"stuck": 3})
    promote = Registry.promote

    def damaged(self: Registry, name: str, version: str, **options: Any) -> None:
        promote(self, name, version, **options)
        path = self.folder(name, version) / "probe.npz"
        path.chmod(0o644)
        path.write_bytes(path.read_bytes()[:-1])

    monkeypatch.setattr(Registry, "promote", damaged)
    outcome = plant("train normal --labels labels.csv --normal good,fair --json")
    assert outcome.code == 0
    assert outcome.last_json["detection"] is None
    assert "labels: the anomalous sequences were not judged: " in outcome.err
    assert "probe.npz" in outcome.err


def test_each_of_several_models_judges_its_own_anomalous_sequences(plant: CliPlant) -> None:
    configure(plant)
    rng, rows, labels = random.Random(7), [], []
    for i, (recipe, kind) in enumerate(
        [("7", "good"), ("PX-12", "good")] * 12 + [("7", "low"), ("7", "low"), ("PX-12", "high"), ("new", "high")]
    ):
        sequence = list(rows_of(f"B-{i}", recipe, 30.0 * i, rng))
        if kind != "good":
            sequence = [[*row[:3], row[3] + 50, *row[4:]] for row in sequence]
        rows += sequence
        labels.append((f"B-{i}", kind))
    (plant.folder / "normal").mkdir()
    write_jsonl(plant.folder / "normal", rows)
    write_labels(plant, labels)
    outcome = plant("train normal --labels labels.csv --normal good --json")
    assert outcome.code == 0, outcome.err
    assert "1 anomalous sequence without a model: no normal sequence trains one" in outcome.err
    found = {one["model"]: one["detection"]["by_label"] for one in outcome.last_json["models"]}
    counts = {
        name: [(one["label"], one["n_sequences"], one["n_alerts"]) for one in of[:-1]] for name, of in found.items()
    }
    assert counts == {"default.7": [("low", 2, 2)], "default.PX-12": [("high", 1, 1)]}
    assert {of[-1]["label"] for of in found.values()} == {"good"}
    said = " ".join(plant("replay normal --labels labels.csv --normal good --quiet").out.split())
    assert "high 1 of 2" in said
    assert "note: the AUC compares scores of 2 models" in said
