"""A plant on disk with one file of every kind that streamad reads: made once, copied for each case."""

from __future__ import annotations

import csv
import gzip
import json
import random
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from unittest.mock import patch

import msgspec
import numpy as np
import yaml

from streamad.commands.train import FitsShown
from streamad.learn.registry.registry import Registry
from streamad.learn.store.records import TrainingRequest
from streamad.learn.trainer.results import TrainingFailed
from streamad.learn.trainer.status import TrainingStatus
from tests.support.fuzz.calling import Answer, call

CHANNELS = ("temp", "pressure")
L = 12
START_S = 1_767_225_600
CONFIG: dict[str, Any] = {
    "name": "plant",
    "channels": [{"name": "temp", "unit": "degC"}, {"name": "pressure", "unit": "bar"}],
    "source": {"url": "recordings"},
    "window": {"length": L},
    "model": {"recordings": "normal", "detector": "pca", "references": [], "folds": 2, "device": "cpu"},
    "alerts": {"false_alarm_rate": 0.3},
    "learning": {
        "store": "inliers",
        "feedback": "feedback.jsonl",
        "schedule": None,
        "min_training": 10,
        "first_training": 20,
        "max_training": 150,
    },
    "sinks": {
        role: f"out/{role}.jsonl"
        for role in ("alerts", "attributions", "verdicts", "windows", "dead_letters", "late", "events")
    },
}
DATES: dict[str, Any] = {
    "decode": {
        "fields": {"values": None, "time": "date", "time_of_day": "clock"},
        "time_format": "%d.%m.%Y %H:%M:%S.%f",
        "timezone": "UTC",
    },
    "sequences": {"without_id": "skip", "end": ["change"]},
    "source": {"url": "samples/dates.csv"},
    "model": {**CONFIG["model"], "recordings": "samples/dates.csv"},
}
"""The keys of a config for samples/dates.csv that differ."""
_RESUMED: dict[str, Any] = {
    "model": {
        "recordings": "normal",
        "registry": "resumed",
        "detector": "neutral_ad",
        "options": {"epochs": 3, "n_transformations": 2, "n_blocks": 1, "base_width": 4, "embedding_dim": 4},
        "folds": 2,
        "references": [],
        "device": "cpu",
    }
}


@dataclass(frozen=True, slots=True)
class FuzzPlant:
    """The folder ``template`` with a plant, and what a command line may name of it."""

    template: Path

    def copy(self, folder: Path) -> Path:
        """Copy the plant to ``folder``/plant, in place of what is there, and return that."""
        place = folder / "plant"
        shutil.rmtree(place, ignore_errors=True)
        shutil.copytree(self.template, place)
        return place

    @property
    def alert_ids(self) -> list[str]:
        """The ids of the plant's alerts."""
        lines = (self.template / "out" / "alerts.jsonl").read_text().splitlines()
        return [json.loads(line)["alert_id"] for line in lines]


def build(folder: Path) -> FuzzPlant:
    """Make the plant in ``folder``: recordings, two model versions, store, marks, outputs, an interrupted training."""
    folder.mkdir(parents=True)
    write_config(folder / "plant.yaml", CONFIG)
    write_config(folder / "flat.yaml", {**CONFIG, "decode": {"fields": {"values": None}}, "learning": None})
    write_config(folder / "dates.yaml", {**CONFIG, **DATES, "learning": None})
    _write_recordings(folder)
    _expect(call(["train"], folder), 0)
    _expect(call(["run", "-q"], folder), 0)
    _expect(call(["train"], folder), 0)
    plant = FuzzPlant(folder)
    first, second = plant.alert_ids[:2]
    _expect(call(["feedback", "--alert", first, "--false-alarm", "--note", "filter"], folder), 0)
    _expect(call(["inliers", "veto", second], folder), 0)
    _expect(call(["run", "-q"], folder), 0)
    _write_samples(folder)
    _interrupt_training(folder)
    _write_training_state(folder)
    (folder / "marks.csv").write_text(f"alert_id,judgement,note,time\n{first},confirmed,valve,2026-01-02\n")
    (folder / "password.txt").write_text("secret\n")
    return plant


def write_config(path: Path, content: Any) -> None:
    """Write ``content`` as YAML."""
    path.write_text(yaml.safe_dump(content, sort_keys=False))


def _expect(answer: Answer, code: int) -> None:
    if answer.code != code or answer.raised:
        raise RuntimeError(f"the fuzzer's plant cannot be made: {answer}")


def _batch(rng: random.Random, number: int, *, odd: bool) -> dict[str, Any]:
    n = rng.randrange(9, L + 1)
    rows = [[20 + 4 * i + rng.gauss(0, 0.3), (12 if odd else 3) + rng.gauss(0, 0.05)] for i in range(n)]
    times = [START_S + number * 30.0 + i for i in range(n)]
    return {"stream": f"r{1 + number % 2}", "sequence": f"B-{number}", "times": times, "values": rows, "end": True}


def _write_recordings(folder: Path) -> None:
    rng = random.Random(1)
    for name, count in (("normal", 24), ("recordings", 16)):
        (folder / name).mkdir()
        batches = [_batch(rng, number, odd=name != "normal" and number % 3 == 0) for number in range(count)]
        (folder / name / "day.jsonl").write_text("".join(json.dumps(batch) + "\n" for batch in batches))
    labels = "".join(f"B-{number},{int(number % 3 == 0)}\n" for number in range(16))
    (folder / "labels.csv").write_text("sequence,label\n" + labels)


def _write_samples(folder: Path) -> None:
    """Write samples/: the plant's recordings in every other format."""
    samples = folder / "samples"
    samples.mkdir()
    content = (folder / "recordings" / "day.jsonl").read_bytes()
    batches = [json.loads(line) for line in content.splitlines()]
    (samples / "b.jsonl").write_bytes(content)
    (samples / "b.jsonl.gz").write_bytes(gzip.compress(content, mtime=0))
    first = {"format": "streamad records", "version": 1, "partition": "t/0", "from_start": True, "streamad": "0.1.0"}
    lines = [first, *({"offset": offset, "value": batch} for offset, batch in enumerate(batches))]
    (samples / "b.records.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    rows = [
        (batch["stream"], batch["sequence"], time_s, *values)
        for batch in batches
        for time_s, values in zip(batch["times"], batch["values"], strict=True)
    ]
    with (samples / "b.csv").open("w", newline="") as file:
        csv.writer(file).writerows([("stream", "sequence", "time", *CHANNELS), *rows])
    with (samples / "dates.csv").open("w", newline="") as file:
        csv.writer(file).writerows([("stream", "sequence", "date", "clock", *CHANNELS), *_dated(rows)])
    (samples / "b.csv.gz").write_bytes(gzip.compress((samples / "b.csv").read_bytes(), mtime=0))
    _write_arrays(samples, batches)
    _write_parquet(samples / "b.parquet", rows)


def _dated(rows: Sequence[Sequence[Any]]) -> Iterator[Sequence[Any]]:
    """Yield ``rows`` with date and time of day in two fields, and one without a sequence id behind each sequence."""
    for row, following in zip(rows, [*rows[1:], None], strict=True):
        stream, sequence, time_s, *values = row
        moment = datetime.fromtimestamp(time_s, UTC)
        dated = (f"{moment:%d.%m.%Y}", f"{moment:%H:%M:%S.%f}", *values)
        yield (stream, sequence, *dated)
        if following is None or following[1] != sequence:
            yield (stream, "", *dated)


def _write_arrays(samples: Path, batches: list[dict[str, Any]]) -> None:
    x = np.zeros((len(batches), len(CHANNELS), L), dtype=np.float32)
    for index, batch in enumerate(batches):
        x[index, :, : len(batch["values"])] = np.array(batch["values"]).T
    lengths = np.array([len(batch["values"]) for batch in batches])
    y, names = np.arange(len(batches)) % 2, np.array(CHANNELS)
    np.savez_compressed(samples / "b.npz", x=x, len=lengths, y=y, classes=np.array(["0", "1"]), channels=names)


def _write_parquet(path: Path, rows: Sequence[Sequence[Any]]) -> None:
    import pyarrow as pa  # noqa: PLC0415 - an extra
    import pyarrow.parquet as pq  # noqa: PLC0415

    names = ("stream", "sequence", "time", *CHANNELS)
    pq.write_table(pa.table(dict(zip(names, map(list, zip(*rows, strict=True)), strict=True))), path)


def _write_training_state(folder: Path) -> None:
    registry = Registry(folder / "registry")
    request = TrainingRequest(reason="command", requested_us=START_S * 1_000_000, detail="by hand")
    failed = TrainingFailed(model="default", error="not enough sequences", request=request)
    status = TrainingStatus(request=request, last=failed, last_ended_us=2)
    training = registry.training_folder("default")
    training.mkdir(parents=True, exist_ok=True)
    (training / "status.json").write_bytes(msgspec.json.encode(status))


def _interrupt_training(folder: Path) -> None:
    """Leave a training of resumed.yaml that a Ctrl-C interrupted after its first epochs."""
    write_config(folder / "resumed.yaml", {**CONFIG, **_RESUMED, "learning": None})
    steps: list[object] = []

    def add(_: FitsShown, step: object) -> None:
        steps.append(step)
        if len(steps) == 5:
            raise KeyboardInterrupt

    with patch.object(FitsShown, "add", add):
        call(["train", "--config", "resumed.yaml"], folder)
    if not list(folder.glob("resumed/**/*.resume")):
        raise RuntimeError("the fuzzer's plant cannot be made: no interrupted training")
