"""A folder of many small files: how long it takes to list them, to read them joined, and how much memory that needs.

The files are JSON lines, one record each, in a temporary folder. Each figure is of a process of its own: memory is the
peak above that of the imports.
Run: ``python benchmarks/speed/many_files.py [--files 100000] [--json]``.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, cast

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from streamad.plugins import ConnectorContext
from streamad.system.clock import SystemClock
from streamad.types import PartitionAssigned, RecordBatch
from streamad_connectors.files.formats.options import FileOptions
from streamad_connectors.files.source import FileSource

STEPS = ("listed", "begun", "read", "resumed")


def write_files(folder: Path, n: int) -> None:
    """Write ``n`` files of one record."""
    for number in range(n):
        message = {"stream": "s", "sequence": f"B-{number}", "times": [number, number + 1], "values": [[1.0], [2.0]]}
        (folder / f"B-{number}.jsonl").write_text(json.dumps(message) + "\n")


def memory_mb() -> float:
    """Return the highest memory of this process so far, in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def step(folder: Path, kind: str, name: str) -> dict[str, Any]:
    """List the files, go as far as the first record, read all, or resume at the end; return seconds and memory."""
    context = ConnectorContext((), SystemClock(), folder)
    source = FileSource("in/*.jsonl", FileOptions.model_validate({"files": kind}), context)
    place = folder / f"cursor-{kind}.json"
    known = json.loads(place.read_text()) if name == "resumed" else None
    before_mb, began_s, began_cpu_s = memory_mb(), time.perf_counter(), time.process_time()
    if name == "listed":
        count = len(source.files())
    else:
        count, last = asyncio.run(read(source, known, until_first=name == "begun"))
        place.write_text(json.dumps(last))
    return {
        "step": name,
        "files": kind,
        "count": count,
        "seconds": time.perf_counter() - began_s,
        "cpu_seconds": time.process_time() - began_cpu_s,
        "memory_mb": memory_mb() - before_mb,
    }


async def read(
    source: FileSource, known: tuple[int, str] | None, *, until_first: bool
) -> tuple[int, tuple[int, str | None]]:
    """Read from ``known`` on, an offset and a cursor; return the number of records and where reading stands."""
    count, reached = 0, (0, None)
    async for event in source.batches():
        if isinstance(event, PartitionAssigned) and known is not None:
            source.check_cursors({event.partition: known[1]})
            await source.resume(event.partition, *known)
        elif isinstance(event, PartitionAssigned):
            await source.seek(event.partition, None)
        elif isinstance(event, RecordBatch):
            count, reached = count + len(event.records), (event.next_offset, event.cursor)
            if until_first and count:
                break
    await source.close()
    return count, reached


def measured(folder: Path, kind: str, name: str) -> dict[str, Any]:
    """Return the figures of one step, in a process of its own."""
    command = [sys.executable, __file__, "--step", name, "--kind", kind, "--folder", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return cast("dict[str, Any]", json.loads(done.stdout))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--files", type=int, default=100_000)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--step", choices=STEPS, help=argparse.SUPPRESS)
    parser.add_argument("--kind", choices=("joined", "separate"), help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.step:
        print(json.dumps(step(options.folder, options.kind, options.step)))
        return
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "in").mkdir()
        write_files(folder / "in", options.files)
        steps = [("joined", each) for each in STEPS] + [("separate", "listed"), ("separate", "begun")]
        found = [measured(folder, kind, each) for kind, each in steps]
    if options.json:
        print(json.dumps({"files": options.files, "steps": found}))
        return
    for each in found:
        times = f"{each['seconds']:8.2f} s {each['cpu_seconds']:8.2f} s CPU"
        print(f"{each['files']:<9} {each['step']:<8} {times} {each['memory_mb']:8.1f} MB")


if __name__ == "__main__":
    main()
