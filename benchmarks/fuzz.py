"""Fuzz the monitor: messages, files of every kind, configs and command lines that nobody should write.

The law: exit code 0, 1, 2 or 130, one line ``error:`` if it is 1 or 2, never a traceback, no call without an end, and
counts that add up: every record is accepted, a dead letter, ignored or a tombstone. Cases run in cells, each in a
process of its own; finished cells are stored in ``--out``, and the same command continues there. A case that breaks
the law is printed with the command that repeats it, and its plant is kept in a folder beside ``--out``. The exit code
is 1 if there is one.
Run: ``python benchmarks/fuzz.py [--seed 0] [--messages 1000000] [--framed 100000] [--files 10000] [--json]``.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import resource
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "connectors"), str(ROOT / "models")]

from tests.support.fuzz.cells import PER_CASE_OF, Cell, cells, run_case, run_cell  # noqa: E402
from tests.support.fuzz.plant import FuzzPlant, build  # noqa: E402

_MEMORY_BYTES = 12 << 30
_CELL_LIMIT_S = 3600.0


def main() -> None:
    options = _options()
    if options.cell is not None:
        _child(options)
        return
    out = Path(options.out)
    kept = out.with_suffix(".kept")
    with tempfile.TemporaryDirectory(prefix="streamad-fuzz-") as temporary:
        folder = Path(temporary)
        plant = build(folder / "template")
        if options.only is not None:
            sys.exit(_repeat(options, plant, folder))
        kept.mkdir(parents=True, exist_ok=True)
        results = _run(options, out, kept, folder)
    figures = _figures(results, options.seed)
    print(json.dumps(figures) if options.json else _table(figures))
    sys.exit(1 if figures["faults"] else 0)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--messages", type=int, default=100_000)
    parser.add_argument("--framed", type=int, default=100_000, help="messages with registered schemas")
    parser.add_argument("--files", type=int, default=1_000)
    parser.add_argument("--configs", type=int, default=1_000)
    parser.add_argument("--command-lines", type=int, default=500)
    parser.add_argument("--minutes", type=float, help="begin no further cell after this time; continue later")
    parser.add_argument("--out", default="fuzz.jsonl", help="file of the finished cells, continued if it is there")
    parser.add_argument("--only", help="repeat one case, such as files:17, and show its plant's folder")
    parser.add_argument("--json", action="store_true", help="print one JSON object last")
    parser.add_argument("--cell", help=argparse.SUPPRESS)
    parser.add_argument("--folder", help=argparse.SUPPRESS)
    return parser.parse_args()


def _run(options: argparse.Namespace, out: Path, kept: Path, folder: Path) -> list[dict[str, Any]]:
    """Run the cells that ``out`` does not have yet, and return the results of all that it has."""
    families = ("messages", "framed", "files", "configs", "command-lines")
    counts = {name: getattr(options, name.replace("-", "_")) for name in families}
    wanted = cells({family: count for family, count in counts.items() if count})
    lines = out.read_text().splitlines() if out.exists() else []
    done = {row["cell"]: row for row in map(json.loads, lines) if row["seed"] == options.seed}
    began_s = time.monotonic()
    for index, cell in enumerate(wanted):
        if cell.name in done:
            continue
        passed_s = time.monotonic() - began_s
        if options.minutes is not None and passed_s > 60 * options.minutes:
            print(f"stopped after {passed_s / 60:.0f} min: the same command continues", file=sys.stderr)
            break
        print(f"cell {index + 1} of {len(wanted)}: {cell.name}", file=sys.stderr, flush=True)
        row = _in_process(options, cell, folder, kept)
        done[cell.name] = row
        with out.open("a") as file:
            file.write(json.dumps(row) + "\n")
    return [done[cell.name] for cell in wanted if cell.name in done]


def _in_process(options: argparse.Namespace, cell: Cell, folder: Path, kept: Path) -> dict[str, Any]:
    """Run ``cell`` in a process of its own, and again behind a case that has ended it."""
    began_s, faults, first = time.monotonic(), [], cell.first
    while first < cell.after:
        words = [sys.executable, __file__, "--seed", str(options.seed), "--cell", f"{cell.family}:{first}-{cell.after}"]
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(sys.path[:3])}
        done = subprocess.run(
            [*words, "--folder", str(folder), "--out", str(kept)],
            env=environment,
            stdout=subprocess.PIPE,
            timeout=_CELL_LIMIT_S,
            check=False,
        )
        last = done.stdout.decode().splitlines()[-1:]
        if done.returncode == 0 and last:
            faults += json.loads(last[0])["faults"]
            break
        case = (folder / "case").read_text()
        faults.append({"case": case, "words": "", "fault": f"ends the process with {done.returncode}"})
        print(json.dumps(faults[-1]), file=sys.stderr)
        first = int(case.partition(":")[2]) + 1
    for fault in faults:
        print(f"python benchmarks/fuzz.py --seed {options.seed} --only {fault['case']}", file=sys.stderr)
    took_s = round(time.monotonic() - began_s, 1)
    return {
        "seed": options.seed,
        "cell": cell.name,
        "cases": cell.after - cell.first,
        "wall_s": took_s,
        "faults": faults,
    }


def _child(options: argparse.Namespace) -> None:
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY_BYTES, _MEMORY_BYTES))
    family, _, numbers = options.cell.partition(":")
    first, _, after = numbers.partition("-")
    folder = Path(options.folder)
    result = run_cell(
        Cell(family, int(first), int(after)), options.seed, FuzzPlant(folder / "template"), folder, Path(options.out)
    )
    print(json.dumps(result), flush=True)
    os._exit(0)  # a call may have left a thread that waits


def _repeat(options: argparse.Namespace, plant: FuzzPlant, folder: Path) -> int:
    family, _, number = options.only.partition(":")
    faults = list(run_case(family, int(number), options.seed, plant, folder))
    kept = Path(tempfile.mkdtemp(prefix="streamad-fuzz-case-")) / "plant"
    if (folder / "plant").exists():
        (folder / "plant").rename(kept)
        print(f"its plant: {kept}")
    for fault in faults:
        print(f"{fault['words']}: {fault['fault']}")
    return 1 if faults else 0


def _figures(results: list[dict[str, Any]], seed: int) -> dict[str, Any]:
    cases: Counter[str] = Counter()
    wall_s: Counter[str] = Counter()
    for row in results:
        family = row["cell"].partition(":")[0]
        cases[family] += row["cases"] * PER_CASE_OF.get(family, 1)
        wall_s[family] += row["wall_s"]
    faults = [fault for row in results for fault in row["faults"]]
    kinds = Counter(re.sub(r"/\S*?/plant|\d+", "N", fault["fault"]) for fault in faults)
    return {
        "seed": seed,
        "cases": dict(cases),
        "wall_s": {family: round(took_s) for family, took_s in wall_s.items()},
        "faults": len(faults),
        "kinds": dict(kinds.most_common()),
    }


def _table(figures: dict[str, Any]) -> str:
    lines = ["| family | cases | wall time |", "|---|---|---|"]
    lines += [f"| {name} | {n:,} | {figures['wall_s'][name]} s |" for name, n in figures["cases"].items()]
    lines += ["", f"seed {figures['seed']}, {figures['faults']} cases broke the law"]
    return "\n".join([*lines, *(f"{n:>6} {kind}" for kind, n in figures["kinds"].items())])


if __name__ == "__main__":
    main()
