"""The plant, messages and broker of ``kafka_pipeline.py``."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import yaml

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from streamad.plugins import ConnectorContext, connect_feed  # noqa: E402
from streamad.ports import FeedRecord  # noqa: E402
from streamad.system.clock import SystemClock  # noqa: E402

CHANNELS, SAMPLES, LENGTH = 24, 50, 51
PARTITIONS = 4
STREAMS = 64
ODD_EVERY = 20
_SENT_AT_ONCE = 5_000
NAMES = [f"c{index}" for index in range(CHANNELS)]


# --- messages --------------------------------------------------------------------------------------------------------


def sequences(n: int, seed: int = 0, n_streams: int = STREAMS) -> Iterator[tuple[str, str, np.ndarray, bool]]:
    """Yield (stream, sequence id, values [n, C], odd) of smooth random movements, the streams in turn.

    Every 20th is odd: ten times as large.
    """
    rng = np.random.default_rng(seed)
    grid = np.linspace(0, 2 * np.pi, SAMPLES)
    for index in range(n):
        phase, pace = rng.uniform(0, 6.28, CHANNELS), rng.uniform(0.5, 1.5, CHANNELS)
        values = np.sin(grid[:, None] * pace + phase) + rng.normal(0, 0.05, (SAMPLES, CHANNELS))
        odd = index % ODD_EVERY == 0
        yield f"athlete-{index % n_streams}", f"{seed}-{index:06d}", np.round(values * (10 if odd else 1), 4), odd


def chunk(stream: str, sequence: str, values: np.ndarray, start_s: float) -> bytes:
    """Return a whole sequence as one message."""
    times = [round(start_s + 0.01 * step, 3) for step in range(SAMPLES)]
    message = {"stream": stream, "sequence": sequence, "times": times, "values": values.tolist(), "end": True}
    return msgspec.json.encode(message)


def singles(stream: str, sequence: str, values: np.ndarray, start_s: float) -> list[bytes]:
    """Return a sequence as one message per sample."""
    messages = []
    for step, row in enumerate(values.tolist()):
        message: dict[str, Any] = {"stream": stream, "sequence": sequence, "time": round(start_s + 0.01 * step, 3)}
        message["values"] = dict(zip(NAMES, row, strict=True))
        if step == SAMPLES - 1:
            message["end"] = True
        messages.append(msgspec.json.encode(message))
    return messages


async def feed_backlog(context: ConnectorContext, url: str, kind: str, n: int) -> int:
    """Fill a topic with ``n`` sequences, the streams interleaved; return the number of messages."""
    feed = connect_feed(url, {}, context)
    count = 0
    start_s = time.time() - 0.5 * n / STREAMS - 60
    block: list[tuple[str, list[bytes]]] = []
    records: list[FeedRecord] = []
    for index, (stream, sequence, values, _) in enumerate(sequences(n)):
        at_s = start_s + 0.5 * (index // STREAMS)
        messages = (
            [chunk(stream, sequence, values, at_s)] if kind == "chunked" else singles(stream, sequence, values, at_s)
        )
        block.append((stream, messages))
        if len(block) == STREAMS or index == n - 1:
            for turn in range(max(len(messages) for _, messages in block)):
                records += [FeedRecord(m[turn], s.encode()) for s, m in block if turn < len(m)]
            block = []
        if len(records) >= _SENT_AT_ONCE or index == n - 1:
            await feed.send(records)
            count += len(records)
            records = []
    await feed.flush()
    await feed.close()
    return count


# NeuTraL AD gets one epoch: speed does not depend on how good the weights are.
_MODELS: dict[str, dict[str, Any]] = {
    "neutral_ad": {"detector": "neutral_ad", "options": {"preset": "natops", "epochs": 1}, "folds": 2},
    "default": {},
}


# --- the plant -------------------------------------------------------------------------------------------------------


class Plant:
    """A folder with a model at NATOPS size, and a config for each topic."""

    def __init__(self, folder: Path, bootstrap: str, detector: str = "neutral_ad") -> None:
        self.folder, self.bootstrap, self.detector = folder, bootstrap, detector
        self.context = ConnectorContext((), SystemClock(), folder)

    def url(self, kind: str) -> str:
        """Return the input topic of ``kind``."""
        return f"kafka://{self.bootstrap}/samples-{kind}"

    def config(self, kind: str, group: str) -> Path:
        """Write a config that reads ``kind`` in the group ``group``; its topics are made."""
        content = {
            "name": "bench",
            "channels": [{"name": name} for name in NAMES],
            "source": {"url": self.url(kind), "options": {"group": group}},
            "window": {"length": LENGTH, "min_samples": 2},
            "model": {"recordings": "normal", "device": "cpu", **_MODELS[self.detector]},
            "sinks": {"alerts": f"kafka:///{group}.alerts", "verdicts": f"kafka:///{group}.verdicts"},
        }
        path = self.folder / f"{group}.yaml"
        path.write_text(yaml.safe_dump(content))
        self.streamad("topics", "create", "--config", path.name, "--partitions", str(PARTITIONS))
        return path

    def streamad(self, *arguments: str) -> None:
        """Run a command in the plant's folder."""
        done = subprocess.run(
            [sys.executable, "-m", "streamad", *arguments], cwd=self.folder, capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise SystemExit(f"streamad {arguments}: {done.stdout[-2000:]}{done.stderr[-2000:]}")

    def train(self, config: Path) -> None:
        """Train on 200 sequences."""
        (self.folder / "normal").mkdir()
        with (self.folder / "normal" / "all.jsonl").open("wb") as file:
            for index, (_, sequence, values, odd) in enumerate(sequences(200, seed=1)):
                if not odd:
                    file.write(chunk("normal", sequence, values, 1_760_000_000.0 + index) + b"\n")
        self.streamad("train", "--config", config.name)


@contextmanager
def plant_on_a_broker(detector: str = "neutral_ad") -> Iterator[Plant]:
    """Start a broker of our own and end it."""
    from tests.support.kafka.broker import new_broker  # noqa: PLC0415

    with new_broker() as broker:
        yield Plant(broker.folder.parent, broker.bootstrap, detector)
