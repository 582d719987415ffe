"""The bridge and a publisher killed again and again: the short form of benchmarks/faults.py --source mqtt."""

from __future__ import annotations

import random
from pathlib import Path

from benchmarks.faults_on_mqtt import MESSAGES_PER_KILL, Plant, measure


def test_kills_of_bridge_and_publisher_and_a_broker_s_restarts_lose_nothing(tmp_path: Path) -> None:
    """It takes 12 s: three lives of the command, each of which imports what it needs."""
    plant = Plant(tmp_path, seed=5, n_messages=2 * MESSAGES_PER_KILL)
    try:
        figures = measure(plant, random.Random(5), n_kills=3)
    finally:
        plant.close()
    assert figures["kills"] == 3
    assert figures["messages"] > 500
    assert figures["verdicts"] > 50
    assert {name: figures[name] for name in ("lost", "repeated", "foreign")} == dict.fromkeys(
        ("lost", "repeated", "foreign"), 0
    )
