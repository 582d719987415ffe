"""How long the restore of a worker's partitions takes, with and without ending what a former transaction left open.

One broker; an input topic and three output topics of ``--partitions`` partitions each. A restore of a partition asks
how the last transaction ended, fences, ends an empty transaction over its progress and all output partitions, and reads
its progress; "without" leaves question and empty transaction out. A worker restores all of its partitions at once. In
every round both ways run one after the other in the same order of partitions.
Run on a quiet machine: ``python benchmarks/speed/restore.py [--partitions 64] [--rounds 5] [--json]``.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from unittest.mock import patch

sys.path.insert(0, str(Path(__file__).resolve().parent))

import yaml
from aiokafka import TopicPartition
from aiokafka.client import AIOKafkaClient
from kafka_bench_plant import NAMES, Plant, plant_on_a_broker

from streamad import plant as plants
from streamad.runtime.wiring import committer_for, source_for
from streamad.settings.plant_yaml import load_settings
from streamad.system.clock import SystemClock
from streamad_connectors.kafka.writing.last_transaction import Ending
from streamad_connectors.kafka.writing.producer import PartitionProducer

_INPUT = "samples"


def config_of(plant: Plant, n_partitions: int) -> Path:
    """Write a config of an input and three outputs of ``n_partitions`` partitions each; make its topics."""
    roles = ("alerts", "attributions", "verdicts")
    content = {
        "name": "bench",
        "channels": [{"name": name} for name in NAMES],
        "source": {"url": f"kafka://{plant.bootstrap}/{_INPUT}", "options": {"group": "restore"}},
        "window": {"length": 51, "min_samples": 2},
        "model": {"detector": "neutral_ad"},
        "sinks": {role: f"kafka:///restore.{role}" for role in roles},
    }
    path = plant.folder / "restore.yaml"
    path.write_text(yaml.safe_dump(content))
    plant.streamad("topics", "create", "--config", path.name, "--partitions", str(n_partitions))
    return path


async def _nothing(self: PartitionProducer, partitions: Iterable[TopicPartition], *, commit: bool) -> None:
    """Leave the empty transaction out."""


async def _not_asked(client: AIOKafkaClient, transactional_id: str) -> Ending:
    """Leave the question out."""
    return Ending.UNKNOWN


async def restore(config: Path, n_partitions: int) -> float:
    """Restore all partitions at once, in a new worker; return the seconds it took."""
    plant = plants.Plant(load_settings(config), config.parent, SystemClock())
    source = source_for(plant)
    committer = committer_for(plant, source)
    try:
        began_s = time.perf_counter()
        await asyncio.gather(*(committer.restore(f"{_INPUT}-{number}") for number in range(n_partitions)))
        return time.perf_counter() - began_s
    finally:
        await source.close()
        await committer.close()


def main() -> None:
    """Measure and print the medians."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--partitions", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args()
    found: dict[str, list[float]] = {"with": [], "without": []}
    with plant_on_a_broker() as plant:
        config = config_of(plant, options.partitions)
        for _ in range(options.rounds):
            found["with"].append(asyncio.run(restore(config, options.partitions)))
            with (
                patch.object(PartitionProducer, "end_left_open", _nothing),
                patch("streamad_connectors.kafka.writing.producer.last_ending", _not_asked),
            ):
                found["without"].append(asyncio.run(restore(config, options.partitions)))
    medians = {way: statistics.median(seconds) for way, seconds in found.items()}
    ratios = [a / b for a, b in zip(found["with"], found["without"], strict=True)]
    result = {"partitions": options.partitions, "rounds": options.rounds, "seconds": medians}
    result["ratio"] = statistics.median(ratios)
    if options.json:
        print(json.dumps(result | {"all": found}))
        return
    print(f"{options.partitions} partitions, {options.rounds} rounds, medians: with")
    print(f"{medians['with']:.2f} s, without {medians['without']:.2f} s, ratio {result['ratio']:.2f}")


if __name__ == "__main__":
    main()
