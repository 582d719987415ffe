"""Time of a full-speed replay by stage: 2,000 short sequences (51 samples, 24 channels) from file to file.

Each stage runs alone over the same records, the stages in turn, round after round; then the whole pipeline replays the
file with its checkpoint, and the cursors' part of reading is measured alone. Stages are measured in CPU time of this
process, so other load on the machine does not count; the whole replay in both CPU and wall-clock time.
Run: ``python benchmarks/speed/pipeline.py [--json]``.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import msgspec
import numpy as np
import torch

from streamad.ingest.assembly import Assembler
from streamad.ingest.decode import Decoder
from streamad.ingest.intake import Intake
from streamad.ingest.windowing import to_window
from streamad.judge.calibration import Calibration
from streamad.judge.scoring import MicroBatcher, ModelInService
from streamad.judge.verdicts import make_alert, scored
from streamad.messages import ModelRef, OutputRecord, Role
from streamad.plugins import ConnectorContext, connect_sink, connect_source
from streamad.ports import Scorer
from streamad.runtime.checkpoint import LocalCommitter
from streamad.runtime.pipeline import Pipeline
from streamad.settings.decode import ChannelSettings
from streamad.settings.plant_yaml import RunSettings, SequenceSettings, Settings, SourceSettings, WindowSettings
from streamad.system.clock import SystemClock
from streamad.telemetry.metrics import Counters
from streamad.types import FinishedSequence, PartitionAssigned, Record, RecordBatch, SampleBlock, Window, WindowSet
from streamad_connectors.files.cursors import Watch, with_cursors
from streamad_connectors.files.formats.reading import batched
from streamad_models.neutral_ad import NeutralAD, NeutralADOptions

CHANNELS, LENGTH = 24, 51
BATCH = 64
BATCH_RECORDS = 500
ROLES: tuple[Role, ...] = ("alerts", "verdicts")


def make_recording(path: Path, n_sequences: int) -> None:
    """Write smooth random movements of four streams as chunked messages, one chunk a sequence."""
    rng = np.random.default_rng(0)
    grid = np.linspace(0, 2 * np.pi, LENGTH)
    with path.open("w", encoding="utf-8") as file:
        for index in range(n_sequences):
            phase, pace = rng.uniform(0, 6.28, CHANNELS), rng.uniform(0.5, 1.5, CHANNELS)
            values = np.sin(grid[:, None] * pace + phase) + rng.normal(0, 0.05, (LENGTH, CHANNELS))
            start = 1_760_000_000 + index * 10
            message = {
                "stream": f"athlete-{index % 4}",
                "sequence": f"{index:05d}",
                "times": [start + 0.1 * step for step in range(LENGTH)],
                "values": [[round(value, 4) for value in row] for row in values.tolist()],
                "end": True,
            }
            file.write(json.dumps(message, separators=(",", ":")) + "\n")


def make_model(folder: Path) -> ModelInService:
    """Train one epoch at NATOPS size: speed does not depend on how good the weights are."""
    rng = np.random.default_rng(1)
    values = rng.normal(size=(60, CHANNELS, LENGTH)).astype(np.float32)
    data = WindowSet(values, np.full(60, LENGTH, np.int64), tuple(map(str, range(60))))
    detector = NeutralAD(NeutralADOptions(preset="natops", epochs=1))
    fitted = detector.fit(data, seed=0, device="cpu")
    fitted.export(folder)
    scorer: Scorer = detector.load(folder, device="cpu")
    calibration = Calibration.from_terms(scorer.score(data.values, data.lengths), 0.02)
    return ModelInService(ModelRef("bench", "0001"), scorer, calibration)


def settings_for(recording: Path) -> Settings:
    """Return the config of the replay."""
    return Settings(
        channels=tuple(ChannelSettings(name=f"c{index}") for index in range(CHANNELS)),
        source=SourceSettings(url=str(recording)),
        window=WindowSettings(length=LENGTH),
        sequences=SequenceSettings(),
        run=RunSettings(batch_windows=BATCH),
    )


async def read_records(settings: Settings, context: ConnectorContext) -> list[Record]:
    """Read all records of the source."""
    source = connect_source(settings.source.url, {}, context)
    records: list[Record] = []
    async for event in source.batches():
        if isinstance(event, RecordBatch):
            records += event.records
        elif isinstance(event, PartitionAssigned):
            await source.seek(event.partition, None)
    await source.close()
    return records


class Stages:
    """Each stage as a function over all records, or over the results of the stage before."""

    def __init__(self, settings: Settings, model: ModelInService, context: ConnectorContext, folder: Path) -> None:
        self.settings, self.model, self.context, self.folder = settings, model, context, folder
        self.records: list[Record] = []
        self.blocks: list[SampleBlock] = []
        self.sequences: list[FinishedSequence] = []
        self.windows: list[Window] = []
        self.terms = np.zeros((0, model.scorer.n_terms), np.float32)
        self.outputs: list[OutputRecord] = []

    def read(self) -> None:
        """Read the recording's lines."""
        self.records = asyncio.run(read_records(self.settings, self.context))

    def cursor(self) -> None:
        """Records to the cursors of their batches, a part of reading."""
        path = Path(self.settings.source.url)
        offsets = [(record, record.offset + 1) for record in self.records]
        for _ in with_cursors(batched(iter(offsets), "bench"), Watch(path, path.name, 0)):
            pass

    def decode(self) -> None:
        """Lines to blocks of samples."""
        decoder = Decoder(self.settings.decode, self.settings.channels)
        now_us = SystemClock().now_us()
        self.blocks = [block for record in self.records for block in decoder.decode(record, now_us).blocks]

    def assemble(self) -> None:
        """Blocks to sequences."""
        assembler = Assembler("bench", self.settings.sequences)
        sequences: list[FinishedSequence] = []
        for block in self.blocks:
            for closed in assembler.push(block):
                assembler.committed(closed)
                sequences.append(closed.sequence)
        self.sequences = sequences

    def intake(self) -> None:
        """Records to sequences, in batches, as a worker does it."""
        decoder = Decoder(self.settings.decode, self.settings.channels)
        intake = Intake("bench", self.settings, decoder, Counters())
        now_us, sequences = SystemClock().now_us(), list[FinishedSequence]()
        for start in range(0, len(self.records), BATCH_RECORDS):
            records = tuple(self.records[start : start + BATCH_RECORDS])
            for closed in intake.take(RecordBatch("bench", records, records[-1].offset + 1), now_us):
                intake.committed(closed)
                sequences.append(closed.sequence)
        self.sequences = sequences

    def window(self) -> None:
        """Sequences to windows."""
        windows = [to_window(sequence, self.settings.window) for sequence in self.sequences]
        self.windows = [window for window in windows if isinstance(window, Window)]

    def score(self) -> None:
        """Windows to terms, in batches."""
        parts = []
        for start in range(0, len(self.windows), BATCH):
            batch = self.windows[start : start + BATCH]
            values = np.stack([window.values for window in batch])
            parts.append(self.model.scorer.score(values, np.array([window.length for window in batch])))
        self.terms = np.concatenate(parts)

    def judge(self) -> None:
        """Terms to verdicts and alerts."""
        outputs: list[OutputRecord] = []
        now_us = SystemClock().now_us()
        for sequence, window, terms in zip(self.sequences, self.windows, self.terms, strict=True):
            verdict = scored(
                sequence,
                window,
                terms,
                calibration=self.model.calibration,
                settings=self.settings.alerts,
                model=self.model.ref,
                now_us=now_us,
            )
            outputs.append(OutputRecord("verdicts", verdict.stream, verdict))
            alert = make_alert(verdict, self.settings.alerts)
            if alert is not None:
                outputs.append(OutputRecord("alerts", alert.stream, alert))
        self.outputs = outputs

    def write(self) -> None:
        """Messages to a file, synced."""

        async def work() -> None:
            sink = connect_sink(str(self.folder / "stage.jsonl"), {}, self.context)
            for start in range(0, len(self.outputs), BATCH):
                await sink.write(self.outputs[start : start + BATCH])
            await sink.flush()
            await sink.close()

        asyncio.run(work())


def replay(settings: Settings, model: ModelInService, context: ConnectorContext, folder: Path) -> dict[str, float]:
    """Replay the whole file through the pipeline with checkpoint and sinks."""

    async def work() -> dict[str, float]:
        sinks = {role: connect_sink(str(folder / f"{role}.jsonl"), {}, context) for role in ROLES}
        committer = LocalCommitter(folder / "checkpoint", sinks, {role: role for role in ROLES})
        batcher = MicroBatcher(model, context.clock, settings.run)
        source = connect_source(settings.source.url, {}, context)
        pipeline = Pipeline(settings, source, committer, batcher, context.clock, explainer=None, with_verdicts=True)
        wall, cpu = time.perf_counter(), time.process_time()
        await pipeline.run()
        figures = {"wall_s": time.perf_counter() - wall, "cpu_s": time.process_time() - cpu}
        await batcher.close()
        await source.close()
        await committer.close()
        return {**figures, "samples": pipeline.counters.samples, "sequences": sum(pipeline.counters.verdicts.values())}

    return asyncio.run(work())


def measure(n_sequences: int, rounds: int) -> dict[str, object]:
    """Return the figures that ``--json`` prints."""
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        make_recording(folder / "recording.jsonl", n_sequences)
        settings = settings_for(folder / "recording.jsonl")
        context = ConnectorContext(settings.channel_specs, SystemClock(), folder)
        (folder / "model").mkdir()
        model = make_model(folder / "model")
        stages = Stages(settings, model, context, folder)
        work: dict[str, Callable[[], None]] = {
            stage: getattr(stages, stage)
            for stage in ("read", "decode", "assemble", "window", "score", "judge", "write")
        }
        times: dict[str, list[float]] = {stage: [] for stage in work}
        for _ in range(rounds):
            for stage, run in work.items():
                times[stage].append(_cpu_s(run))
        seconds = {stage: statistics.median(values) for stage, values in times.items()}
        cursor_s = statistics.median([_cpu_s(stages.cursor) for _ in range(rounds)])
        (folder / "whole").mkdir()
        whole = replay(settings, model, context, folder / "whole")
    samples = n_sequences * LENGTH
    total = sum(seconds.values())
    return {
        "sequences": n_sequences,
        "samples": samples,
        "samples_per_s": whole["samples"] / whole["wall_s"],
        "sequences_per_s": whole["sequences"] / whole["wall_s"],
        "whole_wall_s": whole["wall_s"],
        "whole_cpu_s": whole["cpu_s"],
        "us_per_sample_decode_assemble": (seconds["decode"] + seconds["assemble"]) / samples * 1e6,
        "stages": {
            stage: {"us_per_sample": value / samples * 1e6, "share": value / total} for stage, value in seconds.items()
        },
        "cursor_share_of_whole": cursor_s / whole["cpu_s"],
        "joining_share_of_whole": max(0.0, 1 - total / whole["cpu_s"]),
        "cores": os.cpu_count(),
    }


def _cpu_s(work: Callable[[], None]) -> float:
    """Return the CPU time of ``work``."""
    started = time.process_time()
    work()
    return time.process_time() - started


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sequences", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", action="store_true", help="print one JSON object last")
    options = parser.parse_args()
    figures = measure(options.sequences, options.rounds)
    if options.json:
        print(msgspec.json.encode(figures).decode())
        return
    print(f"{figures['sequences']} sequences, {figures['samples']} samples, one scoring thread")
    print(
        f"whole replay      {figures['samples_per_s']:>12,.0f} samples/s  {figures['sequences_per_s']:,.0f} sequences/s"
    )
    print(f"decode + assemble {figures['us_per_sample_decode_assemble']:>12.2f} µs per sample")
    print(f"\n{'stage':<10}{'µs/sample':>12}{'share':>9}")
    stages = figures["stages"]
    assert isinstance(stages, dict)
    for stage, value in stages.items():
        print(f"{stage:<10}{value['us_per_sample']:>12.2f}{value['share']:>9.1%}")
    print(f"\ncursors (in read): {figures['cursor_share_of_whole']:.2%} of the whole")
    print(f"joining the stages (event loop, tasks, checkpoint) {figures['joining_share_of_whole']:.1%} of the whole")


if __name__ == "__main__":
    main()
