"""Speed and size of the default detector beside NeuTraL AD's; results: docs/internals/speed.md.

``scoring``: CPU time of one thread for windows of NATOPS size (24 x 51); the artifacts and their members take turns.
``size``: the file, and the time to load it. ``many``: fit of 100,000 windows of 3 x 50 in a process of its own, for its
peak memory. ``reduced``: AUC on spoken_arabic_digits, all digits but one normal, by the number of reference windows.
``dimensions``: AUC with the 512 kept directions of each space and with all, on two sets with more windows. ``effort``:
fit of 200 windows of 10 x 208 with effort quick and normal. ``threads``: a fit with its network on one thread and on
two, beside two busy processes.
Run: ``python benchmarks/speed/ensemble.py {scoring,size,many,reduced,dimensions,effort,threads}``.
"""

from __future__ import annotations

import argparse
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from unittest.mock import patch

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).resolve().parent))
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from scoring import seconds_of

from benchmarks.detector.sets import Row, cases
from benchmarks.paper.data.datasets import Task, class_task, read_sequences
from streamad.judge.evaluation import auc
from streamad.types import WindowSet
from streamad_models import fitted as models
from streamad_models.ensemble import Ensemble, EnsembleOptions, fitting, learned
from streamad_models.ensemble.neighbours import MAX_DIMENSIONS, MEASURES, fit_reference
from streamad_models.ensemble.options import SPACES
from streamad_models.fitted import FittedModule
from streamad_models.neutral_ad import NeutralAD, NeutralADOptions
from streamad_models.torchscript import deprecation_silenced, score_in_chunks

CHANNELS, LENGTH = 24, 51
TRAINING = (180, 1_000)
BATCHES = (1, 64)
MANY, PART = 100_000, 10_000
REFERENCES = (500, 1_000, 2_000, 4_000, 10_000)  # the last: all
DIGITS = (0, 3, 6, 9)
DIMENSIONS = (MAX_DIMENSIONS, 10_000)
LARGE_ROWS = (Row("character_trajectories", "n_vs_rest"), Row("spoken_arabic_digits", "one_vs_rest"))

Score = Callable[[WindowSet], object]


def random_walks(n: int, n_channels: int = CHANNELS, length: int = LENGTH, seed: int = 0) -> WindowSet:
    """Return ``n`` windows [C, L], made in parts."""
    rng, values = np.random.default_rng(seed), np.empty((n, n_channels, length), np.float32)
    for start in range(0, n, PART):
        part = values[start : start + PART]
        np.cumsum(rng.standard_normal(part.shape, dtype=np.float32), axis=2, out=part)
    return WindowSet(values, np.full(n, length, np.int64), tuple(map(str, range(n))))


def artifact(maker: Ensemble | NeutralAD, fitted: FittedModule, folder: Path) -> Score:
    """Return the score of the exported model as a plant runs it."""
    folder.mkdir()
    fitted.export(folder)
    scorer = maker.load(folder, device="cpu")
    return lambda windows: scorer.score(windows.values, windows.lengths)


def members(fitted: FittedModule) -> Iterator[tuple[str, Score]]:
    """Yield each feature space with its distances as a script of its own; windows are taken as scaled."""
    for name, space in zip(SPACES, fitted.model.spaces, strict=True):
        with deprecation_silenced():
            script = torch.jit.freeze(torch.jit.script(space.eval()))

        def score(windows: WindowSet, script: torch.jit.ScriptModule = script) -> object:
            return score_in_chunks(script, torch.device("cpu"), len(MEASURES), windows.values, windows.lengths)

        yield name, score


def scoring(rounds: int, beside: Path | None) -> None:
    """Print CPU milliseconds a window, and the ratio to NeuTraL AD's in the same turns.

    ``beside`` is a model.ts that another release exported for 180 windows of ``random_walks``.
    """
    small, brief = NeutralAD(NeutralADOptions(epochs=1)), Ensemble(EnsembleOptions(effort="normal", time_limit_s=1e-6))
    for n in TRAINING:
        data = random_walks(n)
        with tempfile.TemporaryDirectory() as folder:
            fitted = Ensemble().fit(data, seed=0, device="cpu")
            with_network = brief.fit(data, seed=0, device="cpu")
            network = small.fit(data.take(list(range(32))), seed=0, device="cpu")
            forms = {
                "NeuTraL AD": artifact(small, network, Path(folder, "neutral_ad")),
                "ensemble": artifact(Ensemble(), fitted, Path(folder, "ensemble")),
                "normal": artifact(Ensemble(), with_network, Path(folder, "normal")),
                "ensemble, no network": artifact(Ensemble(), without_network(data), Path(folder, "alone")),
                **dict(members(fitted)),
            }
            if beside is not None:
                other = Ensemble().load(beside.parent, device="cpu")
                forms["beside"] = lambda windows, other=other: other.score(windows.values, windows.lengths)
        for batch in BATCHES:
            new = random_walks(batch, seed=1)
            taken: dict[str, list[float]] = {name: [] for name in forms}
            for _ in range(rounds):
                for name, score in forms.items():
                    taken[name].append(seconds_of(lambda score=score, new=new: score(new), 0.1) / batch * 1e3)
            for name, times in taken.items():
                ratios = [one / other for one, other in zip(times, taken["NeuTraL AD"], strict=True)]
                print(
                    f"{n:>5} training windows, batch {batch:>2}, {name:<12} {statistics.median(times):.2f} ms each, "
                    f"{statistics.median(ratios):.2f} times NeuTraL AD ({min(ratios):.2f} to {max(ratios):.2f})"
                )


def without_network(data: WindowSet) -> FittedModule:
    """Return the default fitted as if its network took too long."""
    with patch.object(learned, "MOST_SECONDS", 0.0):
        return Ensemble().fit(data, seed=0, device="cpu")


def size() -> None:
    """Print the artifact's size and the wall time to load it, warm-up included; the last without a network."""
    for n, fit in [
        *((n, lambda data: Ensemble().fit(data, seed=0, device="cpu")) for n in TRAINING),
        (180, without_network),
    ]:
        with tempfile.TemporaryDirectory() as folder:
            began_s = time.process_time()
            fitted = fit(random_walks(n))
            print(f"fit of {n} windows: {time.process_time() - began_s:.1f} CPU s")
            fitted.export(Path(folder))
            n_bytes = sum(file.stat().st_size for file in Path(folder).iterdir())
            began_s = time.perf_counter()
            Ensemble().load(Path(folder), device="cpu")
            print(f"{n:>5} training windows: {n_bytes / 1e6:.1f} MB, loaded in {time.perf_counter() - began_s:.2f} s")


def many() -> None:
    """Print CPU time and memory of a fit of many windows; the peak is that of this process."""
    data = random_walks(MANY, 3, 50)
    before, began_s = _peak_mb(), time.process_time()
    fitted = Ensemble().fit(data, seed=0, device="cpu")
    fitted_s = time.process_time() - began_s
    print(f"{MANY} of 3 x 50: fit {fitted_s:.1f} CPU s, peak {_peak_mb():.0f} MB, before {before:.0f} MB", flush=True)
    scores = fitted.training_scores()
    print(
        f"their scores {scores.shape}: {time.process_time() - began_s - fitted_s:.1f} CPU s, peak {_peak_mb():.0f} MB"
    )


def _peak_mb() -> float:
    kilobytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return kilobytes / (1e6 if sys.platform == "darwin" else 1e3)


def reduced(references: Sequence[int] = REFERENCES) -> None:
    """Print the AUC by the number of reference windows."""
    recordings = read_sequences("spoken_arabic_digits")
    for digit in DIGITS:
        task = class_task(recordings, tuple(c for c in range(10) if c != digit))
        for n in references:
            with patch.object(models, "MAX_REFERENCES", n):
                found, fit_s = _judged(task)
            print(
                f"without {digit}: {min(n, len(task.train)):>5} of {len(task.train)} windows, AUC {found:.2f}, "
                f"fit {fit_s:.1f} CPU s",
                flush=True,
            )


def dimensions() -> None:
    """Print the AUC with the kept directions of each space and with all of them."""
    for row in LARGE_ROWS:
        for case in cases(row.dataset):
            for most in DIMENSIONS if case.row == row else ():
                with patch.object(fitting, "fit_reference", partial(fit_reference, max_dimensions=most)):
                    found, fit_s = _judged(case.task)
                print(
                    f"{row.dataset} {row.protocol} {case.label}: {len(case.task.train)} windows, at most {most} "
                    f"directions, AUC {found:.2f}, fit {fit_s:.1f} CPU s",
                    flush=True,
                )


def _judged(task: Task) -> tuple[float, float]:
    """Return the AUC x 100 of the default on ``task`` and the CPU seconds of its fit."""
    began_s = time.process_time()
    fitted = Ensemble().fit(task.train, seed=0, device="cpu")
    fit_s = time.process_time() - began_s
    scores = fitted.score(task.test.values, task.test.lengths).sum(axis=1, dtype=np.float64)
    return 100 * auc(scores, task.is_anomaly), fit_s


def effort() -> None:
    """Print the CPU seconds of a fit with each of two efforts."""
    data = random_walks(200, 10, 208)
    for name in ("quick", "normal"):
        began_s = time.process_time()
        fitted = Ensemble(EnsembleOptions(effort=name)).fit(data, seed=0, device="cpu")
        print(
            f"200 of 10 x 208, {name}: {time.process_time() - began_s:.0f} CPU s, {fitted.summary.n_epochs} epochs",
            flush=True,
        )


def threads() -> None:
    """Print the seconds of a quick fit with its network on one thread and on two, beside two busy processes."""
    data = random_walks(80, 9, 12)
    torch.set_num_threads(2)
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(2)]
    try:
        for name, context in (("one thread", learned.one_thread), ("two threads", nullcontext)):
            with patch.object(learned, "one_thread", context):
                began_s, cpu_s = time.perf_counter(), time.process_time()
                Ensemble().fit(data, seed=0, device="cpu")
                took_s = time.perf_counter() - began_s
                print(f"80 of 9 x 12, {name}: {took_s:.0f} s, {time.process_time() - cpu_s:.0f} CPU s", flush=True)
    finally:
        for process in busy:
            process.kill()
            process.wait()


OTHERS = {"size": size, "many": many, "dimensions": dimensions, "effort": effort, "threads": threads}

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("scoring", "reduced", *OTHERS))
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument(
        "--beside", type=Path, help="for scoring: a model.ts of another release, 180 windows of 24 x 51"
    )
    parser.add_argument("--references", type=int, nargs="+", default=REFERENCES, help="for reduced; more than all: all")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    if arguments.what == "scoring":
        scoring(arguments.rounds, arguments.beside)
    elif arguments.what == "reduced":
        reduced(arguments.references)
    else:
        OTHERS[arguments.what]()
