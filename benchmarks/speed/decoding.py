"""CPU time of decoding and of intake: JSON and CSV as plants write them, CSV with bad cells, lists of readings below a
header (``each``) beside one message for each, line protocol, and channels that hold beside the same ones that do not.

Times are per record; those of lists per reading and per kB, those of lines per line. The cases take turns, and each has
its least time. ``--other FOLDER`` measures another checkout in turn with this one, and prints the ratios.
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
from typing import Any, NamedTuple

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
CHANNELS, RECORDS, ROUNDS, TURNS = 12, 5_000, 9, 5
NAMES = [f"c{index:02d}" for index in range(CHANNELS)]
MANY = [f"c{index:02d}" for index in range(50)]
START_S = 1_760_000_000
FLAT = FieldSettings(stream="unit", sequence="batch", time="ts", values=None)
LONG = FieldSettings(stream="unit", sequence="batch", time="ts", channel="tag", value="v")
EACH = FieldSettings(stream="unit", sequence="batch", time="ts", channel="tag", value="v", each="readings")
LINES = FieldSettings(stream="unit", sequence="batch", values=None)


class Case(NamedTuple):
    """Records, and how they are read; ``n`` readings or lines, of which the times are told."""

    decode: DecodeSettings
    records: list[Record]
    n: int
    names: list[str] = NAMES
    holds: bool = False
    allowed_lateness: str = "0s"

    @property
    def channels(self) -> tuple[ChannelSettings, ...]:
        """Return the channels, which all hold or all do not."""
        return tuple(ChannelSettings(name=name, fill="hold" if self.holds else "linear") for name in self.names)

    @property
    def kilobytes(self) -> float:
        """Return the size of all records."""
        return sum(len(record.value) for record in self.records) / 1_000


def _value(record: int, channel: int) -> float:
    return round(50 + 0.01 * ((record * 7919 + channel * 104_729) % 1_000), 2)


def _json(form: str, names: list[str] = NAMES) -> list[Record]:
    found = []
    for i in range(RECORDS):
        head = {"unit": "r1", "stream": "r1", "batch": "b", "sequence": "b", "ts": START_S + i, "time": START_S + i}
        values = {name: _value(i, channel) for channel, name in enumerate(names)}
        message = {
            "own": {**head, "values": values},
            "chunk": {**head, "times": [START_S + i + j / 51 for j in range(51)], "values": [[*values.values()]] * 51},
            "flat": {**head, **values},
            "long": {**head, "tag": NAMES[i % CHANNELS], "v": _value(i, 0)},
        }[form]
        found.append(Record(i, json.dumps(message).encode()))
    return found


def _lists(n: int) -> list[Record]:
    """Return the readings of the form "long" as lists of ``n``, with the fields of the message around each list."""
    found = []
    for i in range(0, RECORDS, n):
        readings = [
            {"ts": START_S + j, "tag": NAMES[j % CHANNELS], "v": _value(j, 0)} for j in range(i, min(i + n, RECORDS))
        ]
        message = {"unit": "r1", "stream": "r1", "batch": "b", "sequence": "b", "readings": readings}
        found.append(Record(len(found), json.dumps(message).encode()))
    return found


def _lines(n: int) -> list[Record]:
    """Return records of ``n`` lines of line protocol each."""
    lines = []
    for i in range(RECORDS):
        values = ",".join(f"{name}={_value(i, channel)}" for channel, name in enumerate(NAMES))
        lines.append(f"machine,unit=r1,batch=b {values} {(START_S + i) * 1_000_000_000}")
    return [Record(i // n, "\n".join(lines[i : i + n]).encode()) for i in range(0, RECORDS, n)]


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


def _decoding_s(case: Case) -> float:
    decoder = Decoder(case.decode, case.channels)
    begin = time.process_time()
    for record in case.records:
        try:
            decoder.decode(record, None)
        except DecodeError:
            continue
    return time.process_time() - begin


def _intake_s(case: Case) -> float:
    sequences: dict[str, Any] = {"allowed_lateness": case.allowed_lateness}
    settings = Settings(
        channels=case.channels, source={"url": "x"}, decode=case.decode, sequences=SequenceSettings(**sequences)
    )
    intake = Intake("p", settings, Decoder(case.decode, settings.channels), Counters())
    begin = time.process_time()
    intake.take(RecordBatch("p", tuple(case.records), len(case.records)), 0)
    return time.process_time() - begin


def _cases(folder: Path) -> tuple[dict[str, Case], dict[str, Case]]:
    """Return the cases of decoding and intake, and those of intake alone."""
    own, flat = DecodeSettings(), DecodeSettings(fields=FLAT)
    long, each = DecodeSettings(fields=LONG), DecodeSettings(fields=EACH)
    lines = DecodeSettings(format="influx", time_unit="ns", fields=LINES)
    of_own, of_many = _json("own"), _json("own", MANY)
    both = {
        "own JSON": Case(own, of_own, RECORDS),
        "chunks of 51": Case(own, _json("chunk")[:500], 500),
        "flat JSON": Case(flat, _json("flat"), RECORDS),
        "one reading": Case(long, _json("long"), RECORDS),
        "lists of 4": Case(each, _lists(4), RECORDS),
        "lists of 64": Case(each, _lists(64), RECORDS),
        "one line": Case(lines, _lines(1), RECORDS),
        "64 lines": Case(lines, _lines(64), RECORDS),
        "CSV": Case(flat, _csv(folder, 0), RECORDS),
        "CSV, 1.2 % bad": Case(flat, _csv(folder, 83), RECORDS),
    }
    held = {
        "12 hold": Case(own, of_own, RECORDS, holds=True),
        "12, lateness": Case(own, of_own, RECORDS, allowed_lateness="10s"),
        "12 hold, lateness": Case(own, of_own, RECORDS, holds=True, allowed_lateness="10s"),
        "50": Case(own, of_many, RECORDS, MANY),
        "50 hold": Case(own, of_many, RECORDS, MANY, holds=True),
        "50, lateness": Case(own, of_many, RECORDS, MANY, allowed_lateness="10s"),
        "50 hold, lateness": Case(own, of_many, RECORDS, MANY, holds=True, allowed_lateness="10s"),
    }
    return both, held


def measure() -> dict[str, float]:
    """Return the least microseconds of each case."""
    with tempfile.TemporaryDirectory() as folder:
        both, held = _cases(Path(folder))
        begin = time.process_time()
        _csv(Path(folder), 0)
        found = {"CSV, written and read": (time.process_time() - begin) / RECORDS * 1e6}
    for _ in range(TURNS):
        for name, case in (both | held).items():
            stages = {"decode": _decoding_s, "intake": _intake_s} if name in both else {"intake": _intake_s}
            for stage, seconds_of in stages.items():
                one_us = seconds_of(case) * 1e6
                shares = {"": case.n}
                if case.decode.fields in (LONG, EACH):
                    shares[" of a kB"] = case.kilobytes
                for what, n in shares.items():
                    key = f"{name}: {stage}{what}"
                    found[key] = min(found.get(key, float("inf")), one_us / n)
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
