"""Each simple kind as a user meets it: trained, shown, and judging with attributions."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.runtime.cli import CliPlant

KINDS = {
    "pointwise": ["channel_0.robust_z", "channel_1.robust_z"],
    "pca": ["pca.residual"],
    "nearest": ["nearest.distance"],
    "minirocket": ["minirocket.distance"],
    "unfolded": ["unfolded.distance"],
    "mpca": ["mpca.t2", "mpca.spe"],
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_simple_kind_trains_judges_and_explains(untrained_plant: CliPlant, kind: str) -> None:
    plant = untrained_plant
    plant.write_config(model={"detector": kind, "options": {}, "references": ["pointwise", "nearest"]})
    outcome = plant("train")
    assert outcome.code == 0, outcome.err
    assert "now in service" in outcome.out
    assert "simple kinds on the same sequences" in outcome.out
    shown = plant("models show")
    assert f"terms       {', '.join(KINDS[kind])}" in shown.out
    assert " injected faults are found at the configured rate of " in shown.out
    table = outcome.out.split(" normal):\n")[1].splitlines()
    assert len(table) >= 3
    assert max(map(len, table)) <= 80
    assert plant("run --quiet").code == 0
    odd = {alert["alert_id"]: alert for alert in plant.lines("alerts") if alert["score"] > 0}
    found = plant.lines("attributions")
    assert {one["alert_id"] for one in found} == set(odd)
    assert len(odd) >= 4
    worst = max(found, key=lambda one: odd[one["alert_id"]]["score"])
    assert [term["member"] for term in worst["terms"]] == KINDS[kind]
    shares = {channel["channel"]: channel["share"] for channel in worst["channels"]}
    assert shares["pressure"] > 0.5  # the odd sequences have a stuck, shifted pressure


LEARNS_NOTHING = {"options": {"n_transformations": 2, "epochs": 1, "learning_rate": 1e-9}}


@pytest.mark.parametrize(("model", "is_low"), [(LEARNS_NOTHING, True), ({"detector": "pca", "options": {}}, False)])
def test_a_kind_that_finds_more_at_the_rate_is_named_in_one_line(
    untrained_plant: CliPlant, model: dict[str, Any], is_low: bool
) -> None:
    """If few faults are found, the line that says so names the kind as well; else a line of its own."""
    plant = untrained_plant
    plant.write_recordings("normal", normal=60, odd=0, seed=5)
    plant.write_config(model=model, alerts={"false_alarm_rate": 0.05})
    outcome = plant("train --json")
    record = outcome.last_json["references"]
    better = [one for one in record["others"] if one["gain_interval"][0] > 0]
    assert better
    best = max(better, key=lambda one: one["gain"])
    text = " ".join(plant("models show").out.split())
    shares = f"({100 * best['found']['share']:.0f} % against {100 * record['found']['share']:.0f} %, difference"
    assert (record["found"]["share"] < 0.5) == is_low
    assert text.count(f"STREAMAD_MODEL__DETECTOR={best['kind']} ") == (not is_low)
    assert text.count(f"try model.detector: {best['kind']}") == is_low
    assert text.count(f"{best['kind']} finds more injected faults than this model {shares}") == (not is_low)
    assert plant("models show --json").last_json["references"] == record


def test_train_check_and_replay_say_what_share_of_faults_is_found(untrained_plant: CliPlant) -> None:
    plant = untrained_plant
    model = {"detector": "nearest", "options": {}, "references": ["pointwise"]}
    plant.write_config(model=model, alerts={"false_alarm_rate": 1e-7})  # extrapolated: few are found
    said = " ".join(plant("train").out.split())
    record = plant("models show --json").last_json["references"]
    share, (low, high) = record["found"]["share"], record["found"]["interval"]
    assert 0 < share < 0.5
    fact = (
        f"{100 * share:.0f} % of {record['n_injected']} injected faults are found at the configured rate of 1e-07 "
        f"(90 % interval {100 * low:.0f} % to {100 * high:.0f} %; AUC {record['auc']:.2f})"
    )
    assert f"note: {fact}" in said
    checks = {one["check"]: one for one in plant("check --json").last_json["checks"]}
    assert checks["faults"]["outcome"] == "warning"
    assert checks["faults"]["message"].replace("\u00a0", " ").startswith(fact)
    assert "raise alerts.false_alarm_rate" in checks["faults"]["advice"]
    assert fact in " ".join(plant("replay --quiet").out.split())
    (in_replay,) = plant("replay --json").last_json["found_faults"].values()
    assert in_replay["fact"].replace("\u00a0", " ").startswith(fact)
    plant.write_config(model=model, alerts={"false_alarm_rate": 0.1})
    text = " ".join(plant("replay --quiet").out.split())
    assert "injected faults are found at 1e-07, the rate of its training, (90 % interval" in text
    assert "0.1 is configured now" in text
    assert plant("train").code == 0
    found = plant("models show --json").last_json["references"]["found"]
    assert found["share"] > 0.5
    assert {one["check"]: one["outcome"] for one in plant("check --json").last_json["checks"]}["faults"] == "ok"
    assert "injected faults" not in plant("replay --quiet").out
