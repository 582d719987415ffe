"""Each simple kind as a user meets it: trained, shown, and judging with attributions."""

from __future__ import annotations

import pytest

from tests.support.runtime.cli import CliPlant

KINDS = {
    "pointwise": ["channel_0.robust_z", "channel_1.robust_z"],
    "pca": ["pca.residual"],
    "nearest": ["nearest.distance"],
    "minirocket": ["minirocket.distance"],
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_simple_kind_trains_judges_and_explains(untrained_plant: CliPlant, kind: str) -> None:
    plant = untrained_plant
    plant.write_config(model={"detector": kind, "options": {}, "references": ["pointwise", "nearest"]})
    outcome = plant("train")
    assert outcome.code == 0, outcome.err
    assert "now in service" in outcome.out
    assert "held-out normal sequences, beside simple kinds" in outcome.out
    shown = plant("models show")
    assert f"terms       {', '.join(KINDS[kind])}" in shown.out
    assert "AUC of " in shown.out
    assert plant("run --quiet").code == 0
    odd = {alert["alert_id"]: alert for alert in plant.lines("alerts") if alert["score"] > 0}
    found = plant.lines("attributions")
    assert {one["alert_id"] for one in found} == set(odd)
    assert len(odd) >= 4
    worst = max(found, key=lambda one: odd[one["alert_id"]]["score"])
    assert [term["member"] for term in worst["terms"]] == KINDS[kind]
    shares = {channel["channel"]: channel["share"] for channel in worst["channels"]}
    assert shares["pressure"] > 0.5  # the odd sequences have a stuck, shifted pressure


def test_a_better_reference_is_named_in_one_line(untrained_plant: CliPlant) -> None:
    plant = untrained_plant
    plant.write_recordings("normal", normal=60, odd=0, seed=5)
    plant.write_config(model={"options": {"n_transformations": 2, "epochs": 1, "learning_rate": 1e-9}})
    outcome = plant("train --json")
    record = outcome.last_json["references"]
    better = [one for one in record["others"] if one["interval"][0] > 0]
    assert better
    best = max(better, key=lambda one: one["auc"])
    (line,) = plant("models show").out.replace("\n", " ").split("note: ")[1:]
    text = " ".join(line.split())
    assert text.startswith(f"{best['kind']} finds more injected faults than this model (AUC {best['auc']:.2f} against")
    assert f"with model.detector: {best['kind']}" in text
    assert plant("models show --json").last_json["references"] == record
