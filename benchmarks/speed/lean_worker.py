"""A worker without torch beside one with it: start to first verdict, memory, and the size of what is installed.

A plant is simulated and trained by this checkout (default detector, exported for all backends). The lean environment is
installed from ``deploy/scorer.lock`` as the image target ``scorer`` does it: pip fetches it once, or ``--lean FOLDER``
names one that is there. In each round every form runs ``streamad run`` over the same recordings once: the time is that
from the start of the process to the first verdict in its file, memory is the peak of the process. Figures are medians.
Run on a quiet machine: ``python benchmarks/speed/lean_worker.py [--rounds 5] [--lean FOLDER] [--json]``.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import venv
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[2]
N_SEQUENCES = 200
POLL_S = 0.002
LIMIT_S = 120.0


class Form(NamedTuple):
    """An environment and the backend that serves in it."""

    python: Path
    backend: str


def environment(**more: str) -> dict[str, str]:
    """Return this process's environment, without a path to a checkout, on one thread."""
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return {**kept, "OMP_NUM_THREADS": "1", **more}


def make_lean(folder: Path) -> Path:
    """Install the lock and this checkout into ``folder``; return its Python."""
    venv.create(folder, with_pip=True)
    python, source = folder / "bin" / "python", folder / "source"
    install = (python, "-m", "pip", "install", "--quiet")
    lock = ROOT / "deploy" / "scorer.lock"
    subprocess.run((*install, "--require-hashes", "--only-binary", ":all:", "-r", lock), check=True)
    ignored = shutil.ignore_patterns(".git", ".venv", "build", "*.egg-info", "tests", "docs", "__pycache__")
    shutil.copytree(ROOT, source, ignore=ignored)  # a build leaves files in the folder it builds
    subprocess.run((*install, "--no-deps", source), check=True)
    shutil.rmtree(source)
    return python


def prepare(folder: Path) -> None:
    """Simulate a plant in ``folder`` and train its model, exported for all backends."""
    path = os.pathsep.join(str(ROOT / part) for part in ("", "connectors", "models"))
    sizes = ["--train", "60", "--normal", str(N_SEQUENCES), "--faulty", "0"]
    settings = {"STREAMAD_MODEL__BACKEND": "auto", "STREAMAD_MODEL__REFERENCES": "[]", "PYTHONPATH": path}
    for command in (["simulate", "--out", ".", *sizes], ["train"]):
        line = [sys.executable, "-m", "streamad", *command]
        subprocess.run(line, cwd=folder, env=environment(**settings), check=True, capture_output=True)


def run(form: Form, plant: Path, work: Path) -> dict[str, float]:
    """Run the worker over the plant's recordings; return seconds to the first verdict and peak memory in MB."""
    shutil.rmtree(work, ignore_errors=True)
    shutil.copytree(plant, work)
    path = os.pathsep.join(str(ROOT / part) for part in ("", "connectors", "models"))
    more = {"PYTHONPATH": path} if form.python == Path(sys.executable) else {}
    settings = environment(
        STREAMAD_MODEL__BACKEND=form.backend, STREAMAD_SINKS='{"verdicts": "out/verdicts.jsonl"}', **more
    )
    verdicts = work / "out" / "verdicts.jsonl"
    quiet = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE}
    began_s = time.perf_counter()
    process = subprocess.Popen((form.python, "-m", "streamad", "run", "--quiet"), cwd=work, env=settings, **quiet)  # type: ignore[call-overload]
    while not (verdicts.exists() and verdicts.stat().st_size):
        if process.poll() is not None or time.perf_counter() - began_s > LIMIT_S:
            raise SystemExit(f"{form.backend}: no verdict: {process.stderr.read().decode()[-400:]}")
        time.sleep(POLL_S)
    first_s = time.perf_counter() - began_s
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    n = len(verdicts.read_text().splitlines())
    if "does not serve" in (said := process.stderr.read().decode()):
        raise SystemExit(f"{form.backend} was refused: {said[-400:]}")
    if process.returncode or n != N_SEQUENCES:
        raise SystemExit(f"{form.backend}: exit {process.returncode}, {n} verdicts of {N_SEQUENCES}")
    kilobytes = used.ru_maxrss / (1024 if sys.platform == "darwin" else 1)
    return {"first_verdict_s": first_s, "peak_mb": kilobytes / 1e3, "cpu_s": used.ru_utime + used.ru_stime}


def size_mb(python: Path) -> float:
    """Return the size of the environment's packages."""
    code = "import sysconfig; print(sysconfig.get_path('purelib'))"
    folder = subprocess.run((python, "-c", code), capture_output=True, text=True, check=True).stdout.strip()
    return sum(path.lstat().st_size for path in Path(folder).rglob("*") if path.is_file()) / 1e6


def measure(rounds: int, lean: Path) -> dict[str, Any]:
    """Return the figures of each form, and their ratios to the worker with TorchScript."""
    full = Path(sys.executable)
    forms = {
        "torchscript": Form(full, "torchscript"),
        "onnxruntime, torch installed": Form(full, "onnxruntime"),
        "openvino, torch installed": Form(full, "openvino"),
        "lean": Form(lean, "onnxruntime"),
    }
    with tempfile.TemporaryDirectory() as name:
        plant = Path(name, "plant")
        plant.mkdir()
        prepare(plant)
        for form in forms.values():
            run(form, plant, Path(name, "work"))  # the packages are compiled and in the page cache then
        found = [{each: run(form, plant, Path(name, "work")) for each, form in forms.items()} for _ in range(rounds)]
    result: dict[str, Any] = {}
    for each in forms:
        figures = {key: round(median(turn[each][key] for turn in found), 3) for key in found[0][each]}
        key = "first_verdict_s"
        ratios = [turn["torchscript"][key] / turn[each][key] for turn in found]
        result[each] = {**figures, "times_as_fast_to_first_verdict": round(median(ratios), 2)}
    sizes = {"full": round(size_mb(full)), "lean": round(size_mb(lean))}
    return {"rounds": rounds, "sequences": N_SEQUENCES, "load": os.getloadavg()[0], "installed_mb": sizes, **result}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--lean", type=Path, help="an environment made of deploy/scorer.lock (default: a new one)")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        lean = make_lean(Path(name, "lean")) if options.lean is None else options.lean / "bin" / "python"
        result = measure(options.rounds, lean)
    if options.json:
        print(json.dumps(result))
        return
    print(f"installed packages: {result['installed_mb']} MB; load {result['load']:.1f}")
    for name, row in result.items():
        if isinstance(row, dict) and "peak_mb" in row:
            print(f"{name:<30} first verdict {row['first_verdict_s']:5.2f} s, peak {row['peak_mb']:4.0f} MB")


if __name__ == "__main__":
    main()
