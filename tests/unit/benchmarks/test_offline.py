"""The benchmark of ``score --out``: its recordings fit its config, and its plan is the sum that it says."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.offline import Lot, Measured, planned, write_config, write_lot
from streamad.commands.shared.options import open_input
from streamad.commands.shared.plants import load_whole_plant
from streamad.runtime.recordings import read_sequences
from streamad.telemetry.metrics import Counters

LOT = Lot(files=2, sequences=3, samples=20, channels=2)


async def test_the_recordings_hold_the_sequences_that_the_config_cuts(tmp_path: Path) -> None:
    write_config(tmp_path, LOT, "nearest")
    assert write_lot(tmp_path / "recordings", LOT, seed=1) > 0
    plant = load_whole_plant(tmp_path / "plant.yaml")
    counters = Counters()
    found = [each async for each in read_sequences(plant.settings, open_input(plant, None), plant.clock, counters)]
    assert [(each.sequence, each.n_samples) for each in found] == [
        (f"B-{i}-{j}", 20) for i in (0, 1) for j in (0, 1, 2)
    ]
    assert (counters.samples, counters.dead_letters, LOT.rows) == (120, {}, 120)


def test_a_plan_multiplies_what_one_process_took_beyond_its_start() -> None:
    one = Measured("1 process", wall_s=30.0, cpu_s=20.0, out_bytes=600)
    plan = planned(LOT, 1_000, one, 5.0, plan_bytes=1_000_000, cores=10)
    assert (plan.rows, plan.sequences, plan.out_bytes) == (120_000, 6_000, 600_000)
    assert plan.core_hours == pytest.approx((15.0 * 1_000 + 10 * 5.0) / 3600)
    assert plan.hours == pytest.approx(plan.core_hours / 10)
