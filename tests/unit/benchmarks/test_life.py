"""The life of a plant in short: the whole script with tiny sizes, and the modules that the long one relies on."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "examples"))

from life.figures import PhaseFigures, Rates, best_detection, by_phase
from life.plant import Batch, Phase, simulated, thirds
from life.report import table
from life.watching import Course
from life_of_a_plant import CONFIG, PHASES

from streamad.ingest.decode import Decoder
from streamad.messages import Decision
from streamad.settings.plant_yaml import load_settings
from streamad.simulation.batch import Recipe
from streamad.simulation.faults import FAULTS
from streamad.types import Record
from tests.support.ingest.decoded import block_in

SCRIPT = CONFIG.parents[1] / "life_of_a_plant.py"
MONITORS = ("streamad", "frozen", "naive")


# --- the script ------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def lived(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], Path, str]:
    """The last line of a short life, the plot, and what was printed."""
    plot = tmp_path_factory.mktemp("life") / "life.png"
    done = subprocess.run(
        [sys.executable, str(SCRIPT), "--quick", "--json", "--plot", str(plot)],
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1]), plot, done.stdout + done.stderr


def test_a_short_life_ends_with_the_figures_of_each_phase_and_monitor(
    lived: tuple[dict[str, Any], Path, str],
) -> None:
    figures, plot, _ = lived
    assert figures["false_alarm_rate"] == load_settings(CONFIG).alerts.false_alarm_rate
    assert [phase["name"] for phase in figures["phases"]] == [phase.name for phase in PHASES]
    for phase in figures["phases"]:
        for monitor in MONITORS:
            rates = phase[monitor]
            assert rates["detection_rate"] == rates["detected"] / rates["faulty"]
            assert rates["false_alarm_rate"] == rates["false_alarms"] / rates["normal"]
            low, high = rates["false_alarm_interval"]
            assert low <= rates["false_alarm_rate"] <= high
            assert rates["normal"] <= phase["whole"][monitor]["normal"]
    assert plot.read_bytes().startswith(b"\x89PNG")


def test_only_the_frozen_monitor_keeps_its_first_model(lived: tuple[dict[str, Any], Path, str]) -> None:
    figures, _, printed = lived
    assert figures["models"]["frozen"] == 1
    assert min(figures["models"]["streamad"], figures["models"]["naive"]) > 1
    assert "failed" not in printed


# --- the plant -------------------------------------------------------------------------------------------------------

SHORT = (
    Phase("first", 30, faults=0.1, test_faults=0.3),
    Phase("second", 12, faults=0.0, test_faults=0.25, recipe=Recipe(feed_start_l_h=1.5), co2_offset=(0.0, 1.2)),
)


@pytest.fixture(scope="module")
def batches() -> list[Batch]:
    return simulated(SHORT, 3, lambda done, total: None)


def test_each_phase_has_the_faults_it_should_have_in_turn_and_where_they_should_be(batches: list[Batch]) -> None:
    first, second = ([batch for batch in batches if batch.phase == phase] for phase in (0, 1))
    assert [batch.number for batch in batches] == list(range(42))
    assert [sum(bool(first[i].fault) for i in third) for third in thirds(30)][2] == 3
    assert sum(bool(batch.fault) for batch in first) == 5
    assert [sum(bool(second[i].fault) for i in third) for third in thirds(12)] == [0, 0, 1]
    assert [batch.fault for batch in batches if batch.fault] == [fault.name for fault in FAULTS[:6]]


def test_the_plant_lives_the_same_life_again(batches: list[Batch]) -> None:
    assert simulated(SHORT, 3, lambda done, total: None) == batches
    assert simulated(SHORT, 4, lambda done, total: None) != batches


def test_messages_are_whole_batches_of_the_config_s_channels(batches: list[Batch]) -> None:
    settings = load_settings(CONFIG)
    decoder = Decoder(settings.decode, settings.channels)
    for batch in batches:
        block = block_in(decoder, Record(batch.number, batch.message), batch.end_us)
        assert block is not None
        assert block.end
        assert block.values.shape[1] == len(settings.channels)
        assert int(block.times_us[-1]) == batch.end_us
        if not batch.fault:
            assert len(block) >= settings.window.length  # the window is full: its length tells nothing


def test_a_phase_drifts_from_its_first_batch_to_its_last() -> None:
    def lowest_co2(co2_offset: tuple[float, float]) -> list[float]:
        phase = Phase("drift", 6, faults=0.0, test_faults=0.0, co2_offset=co2_offset)
        values = [json.loads(batch.message)["values"] for batch in simulated((phase,), 0, lambda done, total: None)]
        return [min(row[7] for row in batch if row[7] is not None) for batch in values]

    steady, drifting = lowest_co2((0.0, 0.0)), lowest_co2((0.0, 1.2))
    moved = [b - a for a, b in zip(steady, drifting, strict=True)]
    assert moved == pytest.approx([0.2, 0.4, 0.6, 0.8, 1.0, 1.2], abs=0.1)


# --- the figures -----------------------------------------------------------------------------------------------------


def batch(number: int, fault: str = "", phase: int = 0) -> Batch:
    return Batch(number, phase, fault, end_us=number, message=b"")


def test_rates_count_what_a_model_judged() -> None:
    own = [batch(0), batch(1, "a"), batch(2), batch(3, "a"), batch(4), batch(5)]
    decisions: list[Decision] = ["learning", "anomalous", "normal", "normal", "anomalous", "normal"]
    assert Rates.of(own, decisions) == Rates(detected=1, faulty=2, false_alarms=1, normal=3)
    none = Rates.of(own[:1], decisions)
    assert (none.detection_rate, none.false_alarm_rate, none.interval) == (None, None, None)


def test_a_phase_s_figures_are_those_of_its_last_third() -> None:
    phases = (Phase("a", 3), Phase("b", 6))
    own = [batch(i, phase=int(i > 2)) for i in range(9)]
    alerting = [i in (2, 5, 8) for i in range(9)]
    course = Course(decisions=["anomalous" if alerts else "normal" for alerts in alerting])
    figures = by_phase(phases, own, dict.fromkeys(MONITORS, course))
    assert [(each.last_third["naive"].false_alarms, each.last_third["naive"].normal) for each in figures] == [
        (1, 1),
        (1, 2),
    ]
    assert [each.whole["naive"].false_alarms for each in figures] == [1, 2]


@pytest.mark.parametrize(
    ("ours", "holds"),
    [
        (Rates(57, 60, 15, 300), True),
        (Rates(56, 60, 15, 300), False),  # more than 5 points below the frozen monitor's best
        (Rates(60, 60, 41, 300), True),
        (Rates(60, 60, 42, 300), False),  # the lower bound is above twice 0.05
        (Rates(0, 0, 0, 0), False),
    ],
)
def test_the_promise_is_kept_if_both_bounds_hold(ours: Rates, holds: bool) -> None:
    frozen = [Rates(40, 60, 0, 300), Rates(60, 60, 300, 300)]
    figures = [
        PhaseFigures("phase", {"streamad": ours, "frozen": each, "naive": each}, {"streamad": ours}) for each in frozen
    ]
    assert best_detection(figures) == 1.0
    assert [each.holds(0.05, best_detection(figures)) for each in figures] == [holds, holds]
    assert ("MISSED" in table(figures, 0.05)) is not holds
