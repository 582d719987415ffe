"""CPU time of decoding, per record: JSON numbers and CSV numbers as plants write them, and CSV with bad cells.

``--other FOLDER`` measures another checkout in turn with this one, round after round, and prints the ratios.
Run: ``python benchmarks/speed/decoding.py [--other FOLDER]``.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from streamad.errors import DecodeError
from streamad.ingest.decode import Decoder
from streamad.ingest.intake import Intake
from streamad.plugins import ConnectorContext, connect_source
from streamad.settings.decode import ChannelSettings, DecodeSettings, FieldSettings
from streamad.settings.plant_yaml import SequenceSettings, Settings
from streamad.system.clock import SystemClock
from streamad.telemetry.metrics import Counters
from streamad.types import PartitionAssigned, Record, RecordBatch

ROOT = Path(__file__).resolve().parents[2]
CHANNELS, RECORDS, ROUNDS = 12, 5_000, 9
NAMES = [f"c{index:02d}" for index in range(CHANNELS)]
START_S = 1_760_000_000
FLAT = FieldSettings(stream="unit", sequence="batch", time="ts", values=None)
LONG = FieldSettings(stream="unit", sequence="batch", time="ts", channel="tag", value="v")


def _value(record: int, channel: int) -> float:
    return round(50 + 0.01 * ((record * 7919 + channel * 104_729) % 1_000), 2)


def _json(form: str) -> list[Record]:
    found = []
    for i in range(RECORDS):
        head = {"unit": "r1", "stream": "r1", "batch": "b", "sequence": "b", "ts": START_S + i, "time": START_S + i}
        values = {name: _value(i, channel) for channel, name in enumerate(NAMES)}
        message = {
            "own": {**head, "values": values},
            "chunk": {**head, "times": [START_S + i + j / 51 for j in range(51)], "values": [[*values.values()]] * 51},
            "flat": {**head, **values},
            "long": {**head, "tag": NAMES[i % CHANNELS], "v": _value(i, 0)},
        }[form]
        found.append(Record(i, json.dumps(message).encode()))
    return found


def _csv(folder: Path, every: int) -> list[Record]:
    """Return the records of a CSV file; each ``every``-th cell is bad (0: none)."""
    cell = 0
    with (folder / f"{every}.csv").open("w", encoding="utf-8") as file:
        file.write(",".join(["unit", "batch", "ts", *NAMES]) + "\n")
        for i in range(RECORDS):
            row = []
            for channel in range(CHANNELS):
                cell += 1
                row.append("Bad" if every and cell % every == 0 else str(_value(i, channel)))
            file.write(f"r1,b,{START_S + i},{','.join(row)}\n")
    return asyncio.run(_read(str(folder / f"{every}.csv"), folder))


async def _read(url: str, folder: Path) -> list[Record]:
    source = connect_source(url, {}, ConnectorContext((), SystemClock(), folder))
    records: list[Record] = []
    async for event in source.batches():
        if isinstance(event, PartitionAssigned):
            await source.seek(event.partition, None)
        elif isinstance(event, RecordBatch):
            records += event.records
    return records


def _decoding_us(decode: DecodeSettings, records: list[Record]) -> float:
    decoder = Decoder(decode, [ChannelSettings(name=name) for name in NAMES])
    begin = time.process_time()
    for record in records:
        try:
            decoder.decode(record, None)
        except DecodeError:
            continue
    return (time.process_time() - begin) / len(records) * 1e6


def _intake_us(decode: DecodeSettings, records: list[Record]) -> float:
    settings = Settings(
        channels=tuple(ChannelSettings(name=name) for name in NAMES),
        source={"url": "x"},
        decode=decode,
        sequences=SequenceSettings(),
    )
    intake = Intake("p", settings, Decoder(decode, settings.channels), Counters())
    begin = time.process_time()
    intake.take(RecordBatch("p", tuple(records), len(records)), 0)
    return (time.process_time() - begin) / len(records) * 1e6


def measure() -> dict[str, float]:
    """Return microseconds per record of each case, the least of three."""
    own, flat = DecodeSettings(), DecodeSettings(fields=FLAT)
    with tempfile.TemporaryDirectory() as folder:
        csv, bad = _csv(Path(folder), 0), _csv(Path(folder), 83)
        begin = time.process_time()
        _csv(Path(folder), 0)
        cases = {
            "own JSON": (own, _json("own")),
            "chunks of 51": (own, _json("chunk")[:500]),
            "flat JSON": (flat, _json("flat")),
            "one channel": (DecodeSettings(fields=LONG), _json("long")),
            "CSV": (flat, csv),
            "CSV, 1.2 % bad": (flat, bad),
        }
    found = {"CSV, written and read": (time.process_time() - begin) / RECORDS * 1e6}
    for name, case in cases.items():
        found[f"{name}: decode"] = min(_decoding_us(*case) for _ in range(3))
        found[f"{name}: intake"] = min(_intake_us(*case) for _ in range(3))
    return found


def _measured(folder: Path) -> dict[str, float]:
    places = os.pathsep.join(str(folder / name) for name in ("", "connectors", "models"))
    command = [sys.executable, str(Path(__file__).resolve()), "--json"]
    output = subprocess.run(command, env={**os.environ, "PYTHONPATH": places}, capture_output=True, check=True).stdout
    found: dict[str, float] = json.loads(output)
    return found


def main() -> None:
    """Print the times, or their ratios to those of another checkout."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--other", type=Path, help="folder of another checkout")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    arguments = parser.parse_args()
    if arguments.other is None:
        found = measure()
        lines = [json.dumps(found)] if arguments.json else [f"{name:28} {us:8.2f} us" for name, us in found.items()]
        print("\n".join(lines))
        return
    rounds = [(_measured(arguments.other.resolve()), _measured(ROOT)) for _ in range(ROUNDS)]
    for name in rounds[0][0]:
        ratios = [ours[name] / theirs[name] for theirs, ours in rounds]
        theirs, ours = (statistics.median(side[name] for side in sides) for sides in zip(*rounds, strict=True))
        low, high = min(ratios), max(ratios)
        print(
            f"{name:28} {theirs:8.2f} -> {ours:8.2f} us, ratio {statistics.median(ratios):.3f} ({low:.2f}-{high:.2f})"
        )


if __name__ == "__main__":
    main()
