"""How long each command takes to start: CPU and wall seconds, and the packages whose import takes most of it.

Every round runs ``python -c pass`` and each command once, in processes of their own; the figures are medians over the
rounds, ``ratio`` that of CPU seconds to those of ``python -c pass`` in the same round. The plant is simulated and has
two versions of a model, trained by this checkout before anything is measured; the checkouts are compiled before, as an
installation is. Imports are measured once more, each command under ``python -X importtime``, and summed by package,
without what a package imports in turn.
Run: ``python benchmarks/start.py [--rounds 5] [--only run] [--other CHECKOUT] [--json]``. With ``--other`` each round
runs both checkouts one after the other.
"""

from __future__ import annotations

import argparse
import compileall
import json
import os
import shlex
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[1]
PASS = (sys.executable, "-c", "pass")
HEAVIEST = 4

COMMANDS = """
--version
--help
run --help
train --help
simulate --help
init --help
models --help
inliers --help
schema
simulate --out {new} --train 20 --normal 5 --faulty 2
init ../recording.csv --out {new}.yaml
check --fast
check --config untrained.yaml
models list
models show
models status
models promote 0001
models rollback
models decline 0002
models prune
inliers list
inliers export --out {new}.npz
feedback --alert 5f0c2a --false-alarm
alerts tail --url replayed/alerts.jsonl --from-start --limit 1
record --out {new}
topics check
run --config wrong.yaml
run --config wrong_option.yaml
train --config wrong_option.yaml
replay --config wrong_option.yaml
score --no-such-option
check
"""
"""The command lines; {new} is a path that does not exist. Those that fail print one line of error."""


class Cost(NamedTuple):
    """CPU and wall seconds of one process."""

    cpu_s: float
    wall_s: float


def environment(checkout: Path) -> dict[str, str]:
    """Return the environment in which ``python -m streamad`` is that of ``checkout``, with one thread."""
    path = os.pathsep.join(str(checkout / part) for part in ("", "connectors", "models"))
    return {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"}


def compile_packages(checkout: Path) -> None:
    """Write the byte code of the packages of ``checkout``: else a start may compile them."""
    for package in ("streamad", "connectors/streamad_connectors", "models/streamad_models"):
        compileall.compile_dir(checkout / package, quiet=1)


def cost_of(command: tuple[str, ...], checkout: Path, folder: Path) -> Cost:
    """Run ``command`` in ``folder`` to its end; its output is dropped."""
    began_s = time.perf_counter()
    quiet = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    process = subprocess.Popen(command, cwd=folder, env=environment(checkout), **quiet)  # type: ignore[call-overload]
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    return Cost(used.ru_utime + used.ru_stime, time.perf_counter() - began_s)


def packages_of(command: tuple[str, ...], checkout: Path, folder: Path) -> Counter[str]:
    """Return the microseconds that ``command`` takes to import each package, without those of what it imports."""
    timed = (command[0], "-X", "importtime", *command[1:])
    done = subprocess.run(timed, cwd=folder, env=environment(checkout), capture_output=True, text=True, check=False)
    found: Counter[str] = Counter()
    for line in done.stderr.splitlines():
        own, _, rest = line.removeprefix("import time:").partition("|")
        if own.strip().isdigit():
            found[rest.partition("|")[2].strip().partition(".")[0]] += int(own)
    return found


def prepared(folder: Path) -> Path:
    """Write a simulated plant with two versions of a model and an alert into ``folder``; return its folder."""
    plant = folder / "plant"
    _streamad(folder, f"simulate --out {plant} --train 60 --normal 10 --faulty 10")
    config = plant / "plant.yaml"
    content = config.read_text().replace("# learning:", "learning:").replace("#   store:", "  store:")
    config.write_text(content)
    for line in ("train", "train", "replay --out replayed"):
        _streamad(plant, line)
    (plant / "untrained.yaml").write_text(content.replace("registry: registry", "registry: none"))
    (plant / "wrong.yaml").write_text("chanels: []\n")
    (plant / "wrong_option.yaml").write_text(content.replace("model:\n", "model:\n  options: {no_such: 1}\n", 1))
    rows = "".join(f"B-{n // 50},{1_760_000_000 + 60 * n},{n % 50},{n % 7}\n" for n in range(500))
    (folder / "recording.csv").write_text(f"batch,time,temp,ph\n{rows}")
    return plant


def _streamad(folder: Path, line: str) -> None:
    command = (sys.executable, "-m", "streamad", *shlex.split(line))
    subprocess.run(command, cwd=folder, env=environment(ROOT), check=True, capture_output=True)


def measured(lines: list[str], checkouts: list[Path], plant: Path, rounds: int) -> list[dict[str, Any]]:
    """Return the figures of each command line in each checkout."""
    costs: dict[tuple[str, Path], list[tuple[Cost, float]]] = {}
    for turn in range(rounds):
        for number, line in enumerate(lines):
            empty = cost_of(PASS, ROOT, plant)
            for checkout in checkouts:
                new = plant / f"new-{turn}-{number}-{checkouts.index(checkout)}"
                cost = cost_of(_command(line, new), checkout, plant)
                costs.setdefault((line, checkout), []).append((cost, cost.cpu_s / empty.cpu_s))
    return [_figures(line, checkout, found, plant) for (line, checkout), found in costs.items()]


def _command(line: str, new: Path) -> tuple[str, ...]:
    return (sys.executable, "-m", "streamad", *shlex.split(line.format(new=new)))


def _figures(line: str, checkout: Path, found: list[tuple[Cost, float]], plant: Path) -> dict[str, Any]:
    packages = packages_of(_command(line, plant / "imports" / str(len(line))), checkout, plant)
    return {
        "command": line,
        "checkout": str(checkout),
        "cpu_s": round(median(cost.cpu_s for cost, _ in found), 3),
        "cpu_s_range": [round(limit(cost.cpu_s for cost, _ in found), 3) for limit in (min, max)],
        "wall_s": round(median(cost.wall_s for cost, _ in found), 3),
        "ratio": round(median(ratio for _, ratio in found), 1),
        "heaviest_ms": {name: round(taken / 1_000) for name, taken in packages.most_common(HEAVIEST)},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", default="", help="only command lines that contain this text")
    parser.add_argument("--other", type=Path, help="another checkout, measured beside this one")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args()
    lines = [line for line in COMMANDS.strip().splitlines() if options.only in line]
    checkouts = [ROOT] if options.other is None else [options.other.resolve(), ROOT]
    for checkout in checkouts:
        compile_packages(checkout)
    with tempfile.TemporaryDirectory() as name:
        found = measured(lines, checkouts, prepared(Path(name)), options.rounds)
    if options.json:
        print(json.dumps({"rounds": options.rounds, "commands": found}))
        return
    for each in found:
        mark = "other " if options.other is not None and each["checkout"] != str(ROOT) else ""
        heaviest = ", ".join(f"{package} {taken}" for package, taken in each["heaviest_ms"].items())
        times = f"{each['cpu_s']:6.2f} s CPU {each['wall_s']:6.2f} s {each['ratio']:6.1f} x"
        print(f"{times}  {mark}{each['command']}  (ms: {heaviest})")


if __name__ == "__main__":
    main()
