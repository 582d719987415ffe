"""Writes the measured tables of docs/internals/ from the results in benchmarks/speed/results/.

    python -m benchmarks.speed.tables store NAME FILE    # FILE: what a benchmark printed with --json
    python -m benchmarks.speed.tables                    # write the tables between their marks

A result is stored with the machine and the day: the figures of a page are those of its results, and a test holds that.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parents[2]
RESULTS: Final = Path(__file__).resolve().parent / "results"
PAGES: Final = ROOT / "docs" / "internals"

Result = Mapping[str, Any]


def processor() -> str:
    """Return the name of the processor, as Linux says it."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.machine())


def store(name: str, file: Path) -> None:
    """Keep the JSON object that a benchmark printed last, with the machine and the day."""
    last = next(line for line in reversed(file.read_text(encoding="utf-8").splitlines()) if line.startswith("{"))
    machine = f"{os.cpu_count()} cores of {processor()}, Python {platform.python_version()}"
    kept = {"machine": machine, "measured": datetime.now(UTC).date().isoformat(), "result": json.loads(last)}
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / f"{name}.json").write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")


def read(name: str) -> Result:
    """Return the stored result ``name``."""
    result: Result = json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))["result"]
    return result


def markdown(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return a table."""
    lines = ["| " + " | ".join(map(str, line)) + " |" for line in (head, *rows)]
    return "\n".join([lines[0], "|" + "---|" * len(head), *lines[1:]])


def rounded(value: float) -> str:
    """Return a number of three significant digits."""
    digits = f"{value:.3g}"
    return f"{float(digits):,.0f}" if abs(value) >= 100 else digits


# --- the tables of speed.md ---


def cores() -> str:
    """Return scoring with the default detector on several cores, as many times as with one thread."""
    found, rows = read("scoring_threads")["default"], []
    cases = [
        ("batch 1", found["alone"]["1"]),
        ("batch 64", found["alone"]["64"]),
        ("a worker on Kafka", found["kafka"]),
    ]
    for label, forms in cases:
        times = [forms[form]["times_one"] if form in forms else None for form in ("intra_op", "split", "threads")]
        more = ["-" if each is None else f"{each:.2f}" for each in (*times, forms["processes"]["times_one"])]
        rows.append([label, f"{forms['one']['per_s']:,.0f}", *more])
    return markdown(["what", "one thread, windows/s", "intra_op", "split", "threads", "processes"], rows)


_PIPELINE: Final = "kafka_pipeline_default"
_KINDS: Final = (("chunks of 50", "chunked"), ("single", "single"))


def throughput() -> str:
    """Return samples a second of the bare loop and of a worker with and without its model."""
    rows = []
    for kind, key in _KINDS:
        found = read(_PIPELINE)[key]
        row = [kind, rounded(found["bare"]), rounded(found["streamad"]), f"{found['ratio']:.2f}"]
        rows.append([*row, rounded(found["without_model"]), f"{found['ratio_without_model']:.2f}"])
    head = ["", "bare loop", "a worker", "of the bare loop", "its model costs nothing", "of the bare loop"]
    return markdown(head, rows)


def stages() -> str:
    """Return CPU time a sample of each stage."""
    keys = ("fetch", "intake", "window", "score", "judge", "transactions_and_joining")
    rows = []
    for kind, key in _KINDS:
        found = read(_PIPELINE)[key]["stages_us_per_sample"]
        rows.append([kind, *(rounded(found[each]) for each in keys)])
    named = ["fetch", "decode, assemble", *keys[2:-1], "transactions and the joining of the stages"]
    return markdown(["", *named], rows)


def latency() -> str:
    """Return the latency of an alert at two loads beside the bare transactional loop."""
    rows = []
    for load, what in (("half", "half the full rate"), ("tenth", "a tenth")):
        found = read(_PIPELINE)["latency_ms"]["loads"][load]
        pairs = [" / ".join(f"{found[who][p]:.0f}" for p in ("p50", "p99")) for who in ("streamad", "bare")]
        ratio = " / ".join(f"{found['ratio'][p]:.1f}" for p in ("p50", "p99"))
        rate = found["streamad"]["sequences_per_s"]
        rows.append([f"{what} ({rate:.0f} sequences/s)", *(f"{pair} ms" for pair in pairs), ratio])
    return markdown(["load", "worker, 50 / 99 %", "bare transactional loop", "ratio"], rows)


def restart() -> str:
    """Return the seconds to the first verdict, phase by phase: each the median of its own."""
    said = {
        "start": "a worker starts",
        "stopped": "one of two is stopped: its partitions at the other",
        "killed": "one of two is killed",
        "replaced": "a worker with an instance id is killed and started again",
    }
    rows = [
        [said[key], *(f"{value:.2f}" for value in found.values())]
        for key, found in read("restart")["seconds"].items()
        if key in said
    ]
    phases = ["start or end of the process", "the group is rebalanced", "partitions are taken over", "first verdict"]
    return markdown(["", *phases, "total"], rows)


def training() -> str:
    """Return windows a second of training, beside plain PyTorch."""
    said = {
        "natops": ("NATOPS (30 windows of 24 x 51)", 30),
        "racket_sports": ("RacketSports (38 windows of 6 x 30)", 38),
    }
    rows = []
    for name, found in read("training")["datasets"].items():
        label, n = said[name]
        per_s = {form: f"{n / seconds:.0f}" for form, seconds in found["epoch_s"].items()}
        product = f"{per_s['product']} ({found['product_gain']:.1f} times)"
        rows.append([label, per_s["plain"], product, f"{per_s['ensemble']} ({found['ensemble_gain']:.1f} times)"])
    return markdown(
        ["", "plain PyTorch, one after the other", "`NeutralAD.fit`, one after the other", "six at once"], rows
    )


def lean() -> str:
    """Return start, memory and size of workers with and without torch."""
    found = read("lean_worker")
    said = {"lean": "`deploy/scorer.lock`: onnxruntime, no torch"}
    rows = []
    for name, each in found.items():
        if isinstance(each, dict) and "peak_mb" in each:
            size = found["installed_mb"]["lean" if name == "lean" else "full"]
            rows.append(
                [said.get(name, name), f"{each['first_verdict_s']:.1f} s", f"{each['peak_mb']:.0f} MB", f"{size:,} MB"]
            )
    return markdown(["worker", "start to first verdict", "peak memory", "installed packages"], rows)


# --- the tables of growth.md and peers.md ---


def growth() -> str:
    """Return cost and memory of the smallest and the largest size of each axis; the figure has all sizes."""
    said = {
        "open": "open sequences, one a stream",
        "shared": "open sequences in ten streams",
        "streams": "streams",
        "channels": "channels",
        "window": "samples a window",
        "models": "routed models",
    }
    rows = []
    for axis in read("growth")["axes"]:
        first, last = axis["points"][0], axis["points"][-1]
        cells = (("size", ",", ""), ("us_per_sample", ".1f", " µs"), ("ns_per_value", ",.0f", " ns"))
        shown = [f"{first[key]:{form}}, {last[key]:{form}}{unit}" for key, form, unit in cells]
        rows.append([said[axis["axis"]], *shown, f"{first['memory_mb']:.0f}, {last['memory_mb']:.0f} MB"])
    return markdown(["axis", "sizes", "CPU a sample", "CPU a value", "memory"], rows)


def peers() -> str:
    """Return samples a second of each peer, and how many times as fast streamad is, by the clock and by CPU time."""
    found, rows = read("peers"), []
    for name, chunked in found["chunked"]["peers"].items():
        single = found["single"]["peers"][name]
        if error := chunked.get("error") or single.get("error"):
            rows.append([name, chunked["promises"], error, *[""] * 4])
            continue
        row = [name, chunked["promises"], "yes" if chunked["in_transactions"] else "no"]
        for each in (chunked, single):
            times = (each["streamad_times_as_fast"], each["streamad_times_as_fast_by_cpu"])
            row += [f"{each['samples_per_s']:,.0f}", "; ".join(f"{ratio:.2f}" for ratio in times)]
        rows.append(row)
    head = ["peer", "promises", "in transactions", "chunks: samples/s", "streamad: times as fast; by CPU"]
    return markdown([*head, "single: samples/s", "times as fast; by CPU"], rows)


TABLES: Final[dict[str, dict[str, Callable[[], str]]]] = {
    "speed.md": {
        "cores": cores,
        "throughput": throughput,
        "stages": stages,
        "latency": latency,
        "restart": restart,
        "training": training,
        "lean": lean,
    },
    "growth.md": {"growth": growth},
    "peers.md": {"peers": peers},
}


def updated(page: str, name: str) -> str:
    """Return the text of the page ``name`` with its tables. Raises SystemExit if it lacks a mark."""
    for table, make in TABLES[name].items():
        begin, end = f"<!-- {table}: begin -->", f"<!-- {table}: end -->"
        before, found, rest = page.partition(begin)
        _, found_end, after = rest.partition(end)
        if not found or not found_end:
            raise SystemExit(f"{name} lacks {begin} and {end}")
        page = f"{before}{begin}\n{make()}\n{end}{after}"
    return page


def main() -> None:
    """Store a result, or write the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", metavar="store")
    storing = commands.add_parser("store", help="keep a result")
    storing.add_argument("name")
    storing.add_argument("file", type=Path)
    options = parser.parse_args()
    if options.command == "store":
        store(options.name, options.file)
        return
    for name in TABLES:
        path = PAGES / name
        path.write_text(updated(path.read_text(encoding="utf-8"), name), encoding="utf-8")


if __name__ == "__main__":
    main()
