"""The cost of learning for each judged sequence, without a training: in the worker, and in the learner.

Sequences of 9 x 128 and 24 x 51 (channels x samples) go in turns of 500 as window records through the worker (gate,
encoding) and ``streamad.learn.process`` (decoding, store, drift), into a store on this machine's disk. Times are CPU
time of this process, so that other load does not count; the times of storing are wall-clock times, because they wait
for the disk.

Until commit 941c2ffa each worker learned by itself. There the same sequences of 9 x 128 took a worker 115 µs (gate,
drift, a share of the writing in shards), beside 13 µs in the worker and 197 µs in the learner by this way.
Run: ``python benchmarks/speed/learning.py [--sequences N] [--json]``.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import msgspec
import numpy as np

from streamad.drift.plant_watch import PlantWatch
from streamad.judge.gate import gate, make_window
from streamad.judge.verdicts import alert_id
from streamad.learn.process.service import stored_sequence
from streamad.learn.store.bounds import bounds_of
from streamad.learn.store.inliers import InlierStore
from streamad.messages import ModelRef, Verdict
from streamad.messages import Window as MessageWindow
from streamad.settings.learning import LearningSettings
from streamad.settings.plant_yaml import WindowSettings
from streamad.system.clock import SystemClock
from streamad.system.untrusted_json import decode_json
from streamad.types import ChannelSpec, Position, Window, from_us

SIZES = ((9, 128), (24, 51))
AT_ONCE = 500
START_US = 1_767_225_600_000_000
MODEL = ModelRef("default", "0001")


@dataclass(frozen=True, slots=True)
class Judged:
    """A judged sequence, as a worker has it at the commit."""

    verdict: Verdict
    window: Window


def judged(number: int, channels: int, length: int, rng: np.random.Generator) -> Judged:
    """Return a judged sequence of noise."""
    end_us = START_US + number * 60_000_000
    verdict = Verdict(
        verdict_id=alert_id("s", f"B-{number}", Position(number, 0), 0),
        stream="s",
        sequence=f"B-{number}",
        decision="normal",
        reason="marker",
        start_time=from_us(end_us - length * 1_000_000),
        end_time=from_us(end_us),
        n_samples=length,
        score=1.0,
        p_value=float(rng.uniform(0.001, 1)),
        model=MODEL,
        created_at=from_us(end_us),
    )
    return Judged(verdict, Window(rng.normal(size=(channels, length)).astype(np.float32), length))


def measure(channels: int, length: int, n: int, folder: Path) -> dict[str, float]:
    """Return microseconds for a sequence in the worker and in the learner, and milliseconds for storing 500."""
    settings = LearningSettings()
    specs = tuple(ChannelSpec(f"c{index}") for index in range(channels))
    store = InlierStore(
        folder / "inliers.sqlite3",
        "default",
        channels=specs,
        window=WindowSettings(length=length),
        bounds=bounds_of(settings),
        clock=SystemClock(),
    )
    store.open()
    watch = PlantWatch(specs, settings.drift)
    encoder = msgspec.json.Encoder()
    rng = np.random.default_rng(0)
    taken: dict[str, list[float]] = {
        name: [] for name in ("us_gate", "us_worker", "us_learner", "us_drift", "store_ms")
    }
    for first in range(0, n, AT_ONCE):
        turn = [judged(number, channels, length, rng) for number in range(first, first + AT_ONCE)]
        started = time.process_time()
        shares = [gate(each.verdict, settings=settings, champion=MODEL) for each in turn]
        gated = time.process_time()
        records = [
            encoder.encode(make_window(each.verdict, each.window, specs, share, "default"))
            for each, share in zip(turn, shares, strict=True)
        ]
        written = time.process_time()
        decoded = [decode_json(record, MessageWindow) for record in records]
        for window in decoded:
            one = stored_sequence(window, specs, length, START_US)
            assert not isinstance(one, str)
            assert window.share is not None
            store.offer(one, window.share)
        began_s = time.perf_counter()
        store.flush()
        stored_s, stored = time.perf_counter() - began_s, time.process_time()
        for each in turn:
            watch.add(0, each.window, 0.5, is_alert=False)
        watched = time.process_time()
        for name, seconds in (
            ("us_gate", gated - started),
            ("us_worker", written - started),
            ("us_learner", watched - written),
            ("us_drift", watched - stored),
        ):
            taken[name].append(seconds / AT_ONCE * 1e6)
        taken["store_ms"].append(stored_s * 1e3)
    store.close()
    return {name: round(statistics.median(values[1:]), 1) for name, values in taken.items()}  # the first one imports


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print one JSON object last")
    parser.add_argument("--sequences", type=int, default=10_000, help=f"at least {2 * AT_ONCE}")
    arguments = parser.parse_args()
    figures: dict[str, dict[str, float]] = {}
    for channels, length in SIZES:
        with tempfile.TemporaryDirectory() as folder:
            figures[f"{channels}x{length}"] = measure(channels, length, arguments.sequences, Path(folder))
    for size, row in figures.items():
        print(
            f"{size:>8}: worker {row['us_worker']:.0f} µs of CPU for a sequence (gate {row['us_gate']:.0f}), learner "
            f"{row['us_learner']:.0f} µs (drift {row['us_drift']:.0f}); {row['store_ms']:.0f} ms for storing {AT_ONCE}"
        )
    if arguments.json:
        print(json.dumps(figures))


if __name__ == "__main__":
    main()
