"""What a GPU gains: scoring, training, loading and memory on CUDA beside the CPU of the same machine.

NeuTraL AD (default settings, starting weights) and the default detector (fitted on 1,000 windows); windows of NATOPS
size (24 channels x 51 samples), random walks. Forms of scoring: ``cuda`` is the product on the GPU, ``launched`` the
same with kernels launched one by one also for small batches, ``tf32`` with TF32 allowed, ``convolutions_tf32`` with
TF32 in convolutions alone, PyTorch's default, ``bfloat16`` NeuTraL AD's networks in bfloat16, ``separate`` K networks
of standard layers one after the other (benchmarks/models), ``separate_tf32`` these with TF32, ``cpu_1`` and ``cpu`` the
product on one thread and on all. Each call begins with arrays of numpy and ends with some, copies included. The forms
take turns; medians, wall time. ``fused`` is what TorchScript's own optimiser does, in a process of its own.
Results: docs/internals/gpu.md. Run: ``python -m benchmarks.speed.gpu [--json]``.
"""

from __future__ import annotations

import argparse
import copy
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from torch import Tensor

from benchmarks.models.reference import ReferenceModel
from streamad.ports import TrainingSummary
from streamad.types import FloatArray, WindowSet
from streamad_models import devices, torchscript
from streamad_models.ensemble import Ensemble
from streamad_models.fitted import FittedModule
from streamad_models.neutral_ad import NeutralAD, NeutralADOptions
from streamad_models.neutral_ad.model import NeutralADModel, contrastive_terms
from streamad_models.torchscript import score_in_chunks

CHANNELS, LENGTH = 24, 51
BATCHES = (1, 16, 64, 256, 1024)
NEW_SIZES = (3, 5, 16, 17, 33, 64, 1024)
WARM_UP = (1, 2, 8, 1, 2, 8)  # as a scorer is warmed up
SHAPES = ((24, 51), (24, 1024), (128, 1024))  # for memory
TRAINING_WINDOWS = (30, 1000)
DECIDING = 0.95  # quantile of the CPU's scores above which a window counts as decided anomalous

Score = Callable[[FloatArray], FloatArray]
Forms = dict[str, Score]


def random_walks(n: int, n_channels: int = CHANNELS, length: int = LENGTH, seed: int = 0) -> WindowSet:
    steps = np.random.default_rng(seed).standard_normal((n, n_channels, length), dtype=np.float32)
    values = np.cumsum(steps, axis=2, dtype=np.float32)
    return WindowSet(values, np.full(n, length, np.int64), tuple(map(str, range(n))))


def untrained(n_channels: int = CHANNELS, length: int = LENGTH) -> FittedModule:
    model = NeutralADModel(n_channels, length, NeutralADOptions(), seed=0).eval()
    summary = TrainingSummary(n_sequences=0, n_epochs=0, best_epoch=0, best_loss=0.0, duration_s=0.0, device="cpu")
    return FittedModule(model, summary, random_walks(0, n_channels, length))


def fitted_ensemble(n: int, n_channels: int, length: int) -> FittedModule:
    return Ensemble().fit(random_walks(n, n_channels, length), seed=0, device="cpu")


class Unrecorded:
    """Takes the place of ``GraphedModel``: all kernels are launched one by one."""

    def __init__(self, *_: object, **__: object) -> None:
        self.most = 0


class InBfloat16:
    """NeuTraL AD with transformations and encoder in bfloat16; scaling and terms stay float32."""

    def __init__(self, model: NeutralADModel, device: torch.device) -> None:
        self.model = copy.deepcopy(model).to(device)
        self.transformations = copy.deepcopy(self.model.transformations).to(torch.bfloat16)
        self.encoder = copy.deepcopy(self.model.encoder).to(torch.bfloat16)

    def __call__(self, windows_BCL: Tensor, lengths_B: Tensor) -> Tensor:
        """Return the terms [B, K]."""
        x_LBC = self.model.prepare(windows_BCL, lengths_B).to(torch.bfloat16)
        length, n, channels = x_LBC.shape
        views_LVBC = torch.cat([x_LBC.unsqueeze(0), self.transformations(x_LBC)]).transpose(0, 1)
        z_NZ = self.encoder(views_LVBC.reshape(length, (self.model.n_terms + 1) * n, channels)).float()
        return contrastive_terms(z_NZ.view(self.model.n_terms + 1, n, -1).transpose(0, 1), self.model.temperature)


@contextmanager
def reduced(products: str) -> Iterator[None]:
    """Allow TF32 in convolutions, and in products if they are ``high``."""
    before = torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32
    torch.set_float32_matmul_precision(products)
    torch.backends.cudnn.allow_tf32 = True
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before[0])
        torch.backends.cudnn.allow_tf32 = before[1]


def with_tf32(make: Callable[[], Score], products: str = "high") -> Score:
    """Return what ``make`` loads, with TF32 while it loads (kernels are recorded then) and scores."""

    @contextmanager
    def patched() -> Iterator[None]:
        with (
            patch.object(torchscript, "full_precision", lambda _: reduced(products)),
            patch.object(devices, "full_precision", lambda _: reduced(products)),
        ):
            yield

    with patched():
        score = make()

    def scored(values: FloatArray) -> FloatArray:
        with patched():
            return score(values)

    return scored


def with_threads(score: Score, n_threads: int) -> Score:
    def scored(values: FloatArray) -> FloatArray:
        torch.set_num_threads(n_threads)
        return score(values)

    return scored


def of_artifact(kind: str, folder: Path, device: str) -> Score:
    """Return the score of the exported model as a plant runs it."""
    scorer = {"neutral_ad": NeutralAD(), "ensemble": Ensemble()}[kind].load(folder, device=device)
    return lambda values: scorer.score(values, np.full(len(values), values.shape[2], np.int64))


def forms_of(kind: str, fitted: FittedModule, folder: Path, device: str) -> Forms:
    def on_gpu() -> Score:
        return of_artifact(kind, folder, device)

    on_cpu = of_artifact(kind, folder, "cpu")
    with patch.object(torchscript, "GraphedModel", Unrecorded):
        launched = on_gpu()
    forms = {"cuda": on_gpu(), "launched": launched, "tf32": with_tf32(on_gpu)}
    if kind == "ensemble":
        forms["convolutions_tf32"] = with_tf32(on_gpu, "highest")
    else:
        target = torch.device(device)
        reference = ReferenceModel(copy.deepcopy(fitted.model).to(target)).eval().to(target)

        def eager(model: Callable[[Tensor, Tensor], Tensor]) -> Score:
            n_terms = fitted.model.n_terms
            return lambda values: score_in_chunks(model, target, n_terms, values, np.full(len(values), LENGTH))

        forms["bfloat16"] = eager(InBfloat16(fitted.model, target))
        forms["separate"] = eager(reference)
        forms["separate_tf32"] = with_tf32(lambda: forms["separate"])
    forms["cpu_1"] = with_threads(on_cpu, 1)
    forms["cpu"] = with_threads(on_cpu, os.cpu_count() or 1)
    return forms


def seconds_of(score: Score, values: FloatArray, at_least_s: float) -> float:
    """Return the mean wall seconds of a call, over as many calls as fill ``at_least_s``."""
    calls, began_s = 0, time.perf_counter()
    while (elapsed_s := time.perf_counter() - began_s) < at_least_s or not calls:
        score(values)
        calls += 1
    return elapsed_s / calls


def rates(forms: Forms, batches: tuple[int, ...], rounds: int, slice_s: float) -> dict[str, dict[str, float]]:
    """Return the windows/s of each form by batch size."""
    found: dict[str, dict[str, float]] = {}
    for size in batches:
        sets = [random_walks(size, seed=seed).values for seed in range(1, rounds + 1)]
        taken: dict[str, list[float]] = {form: [] for form in forms}
        for form, score in forms.items():
            score(sets[0])
            if not form.startswith("cpu"):
                seconds_of(score, sets[0], slice_s)  # kernels are chosen and compiled in the first calls
        for values in sets:
            for form, score in forms.items():
                taken[form].append(seconds_of(score, values, slice_s))
        found[str(size)] = {form: round(size / statistics.median(times), 1) for form, times in taken.items()}
    return found


def deviations(forms: Forms, n: int) -> dict[str, dict[str, float]]:
    """Return how far terms are from the CPU's, at most and in 99 % of ``n`` windows, and how many decisions change."""
    values = random_walks(n, seed=100).values
    expected = forms["cpu_1"](values)
    limit = np.quantile(expected.sum(axis=1), DECIDING)
    found = {}
    for form, score in forms.items():
        terms = score(values)
        changed = (terms.sum(axis=1) > limit) != (expected.sum(axis=1) > limit)
        gaps = np.abs(terms - expected).max(axis=1)
        found[form] = {
            "largest": float(f"{gaps.max():.2g}"),
            "99_percent": float(f"{np.quantile(gaps, 0.99):.2g}"),
            "decisions": int(changed.sum()),
        }
    return found


def latencies(forms: Forms, calls: int) -> dict[str, dict[str, float]]:
    """Return milliseconds of a single window, 50 and 99 %."""
    found, one = {}, random_walks(calls, seed=7).values
    for form in forms:
        times = []
        for index in range(calls):
            began_s = time.perf_counter()
            forms[form](one[index : index + 1])
            times.append(1e3 * (time.perf_counter() - began_s))
        low, high = np.quantile(times, [0.5, 0.99])
        found[form] = {"p50": round(float(low), 3), "p99": round(float(high), 3)}
    return found


def loading(kind: str, folder: Path, device: str) -> dict[str, Any]:
    """Return the seconds to load, of the first score of one window, and of the first calls at new batch sizes."""
    began_s = time.perf_counter()
    score = of_artifact(kind, folder, device)
    loaded_s = time.perf_counter()
    score(random_walks(1).values)
    found: dict[str, Any] = {
        "load_s": round(loaded_s - began_s, 3),
        "first_score_s": round(time.perf_counter() - loaded_s, 4),
    }
    for size in NEW_SIZES:
        values, times = random_walks(size).values, []
        for _ in range(4):
            began_s = time.perf_counter()
            score(values)
            times.append(round(time.perf_counter() - began_s, 4))
        found[f"calls_of_{size}_s"] = times
    return found


def memory(fitted: dict[str, Callable[[int, int], FittedModule]], device: str) -> dict[str, Any]:
    """Return megabytes that the process takes from the GPU, by shape: for a loaded model, and at most in a call."""
    found: dict[str, Any] = {}
    for kind, make in fitted.items():
        for channels, length in SHAPES:
            with tempfile.TemporaryDirectory() as folder:
                make(channels, length).export(Path(folder))
                before = _reserved_mb()
                score = of_artifact(kind, Path(folder), device)
            row = {"chunk": torchscript.chunk_size(torch.device(device), channels, length)}
            row["loaded"] = round(_reserved_mb() - before)
            for size in (64, 1024):
                values = random_walks(size, channels, length).values
                _reserved_mb()
                torch.cuda.reset_peak_memory_stats()
                score(values)
                row[str(size)] = round(torch.cuda.max_memory_reserved() / 1e6 - before)
            found[f"{kind} {channels}x{length}"] = row
            del score
    return found


def _reserved_mb() -> float:
    torch.cuda.empty_cache()
    return torch.cuda.memory_reserved() / 1e6


def fused(folder: Path, device: str, limit_s: float) -> dict[str, Any]:
    """Return the seconds of each first call as the script's optimiser runs it, and whether all ended in ``limit_s``."""
    program = f"""
import time, numpy as np, torch
with torch.inference_mode():
    model = torch.jit.freeze(torch.jit.load({str(folder / torchscript.FILE_NAME)!r}, map_location={device!r}).eval())
    for n in {WARM_UP}:
        windows, lengths = torch.randn(n, {CHANNELS}, {LENGTH}), torch.full((n,), {LENGTH})
        windows, lengths = windows.to({device!r}), lengths.to({device!r})
        began_s = time.perf_counter()
        model(windows, lengths).cpu()
        print(round(time.perf_counter() - began_s, 2), flush=True)
"""
    try:
        done = subprocess.run(
            [sys.executable, "-W", "ignore", "-c", program], stdout=subprocess.PIPE, timeout=limit_s, check=True
        )
        return {"calls_s": done.stdout.decode().split(), "ended": True}
    except subprocess.TimeoutExpired as error:
        return {"calls_s": (error.stdout or b"").decode().split(), "ended": False}


def launches(forms: Forms) -> dict[str, Any]:
    """Return the kernels of one call on the GPU and their milliseconds there, by batch size."""
    found = {}
    for size in (1, 64, 1024):
        values = random_walks(size).values
        activities = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
        with torch.profiler.profile(activities=activities) as profile:
            forms["cuda"](values)
        kernels = [each for each in profile.events() if each.device_type == torch.autograd.DeviceType.CUDA]
        milliseconds = 1e-3 * sum(each.device_time_total for each in kernels)
        found[str(size)] = {"kernels": len(kernels), "ms": round(milliseconds, 3)}
    return found


def training(device: str, epochs: int) -> dict[str, dict[str, float]]:
    """Return the windows/s of NeuTraL AD's training, default settings, by the number of training windows."""
    places = {"cuda": (device, os.cpu_count() or 1), "cpu_1": ("cpu", 1), "cpu": ("cpu", os.cpu_count() or 1)}
    found: dict[str, dict[str, float]] = {}
    for n in TRAINING_WINDOWS:
        data, found[str(n)] = random_walks(n), {}
        for place, (target, n_threads) in places.items():
            torch.set_num_threads(n_threads)
            some = epochs if place == "cuda" or n < 100 else 1
            if place == "cuda":
                NeutralAD(NeutralADOptions(epochs=1)).fit(data, seed=0, device=target)
            done = NeutralAD(NeutralADOptions(epochs=some)).fit(data, seed=0, device=target).summary
            found[str(n)][place] = round(done.n_sequences * done.n_epochs / done.duration_s, 1)
    return found


def table(result: dict[str, Any]) -> Iterator[str]:
    """Yield the rows of windows/s of the product, and how many times those of other forms they are."""
    for kind, by_batch in result["windows_per_s"].items():
        for size, row in by_batch.items():
            others = ("launched", "separate", "cpu_1", "cpu")
            times = [f"{row['cuda'] / row[form]:.1f}" if form in row else "-" for form in others]
            yield f"| `{kind}` | {int(size):,} | {row['cuda']:,.0f} | {' | '.join(times)} |"


def machine(device: str) -> dict[str, Any]:
    name = torch.cuda.get_device_name(device) if device != "cpu" else "none"
    return {"gpu": name, "cores": os.cpu_count(), "torch": torch.__version__}


def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return all figures; each section is printed when it is ready."""
    device, n = arguments.device, arguments.references
    result: dict[str, Any] = {"machine": machine(device)}
    is_gpu = device != "cpu"
    makers = {
        "neutral_ad": untrained,
        "ensemble": lambda channels, length: fitted_ensemble(n, channels, length),
    }
    if is_gpu:
        began_s = time.perf_counter()
        torch.zeros(1, device=device).cpu()
        result["context_s"] = round(time.perf_counter() - began_s, 2)

    def note(section: str, kind: str, found: Any) -> None:
        result.setdefault(section, {})[kind] = found
        print(f"{section} {kind}: {json.dumps(found)}", flush=True)

    for kind, make in makers.items():
        with tempfile.TemporaryDirectory() as name:
            fitted, folder = make(CHANNELS, LENGTH), Path(name)
            fitted.export(folder)
            for place in dict.fromkeys((device, "cpu")):
                note("loading", f"{kind} {place}", loading(kind, folder, place))
            if is_gpu and arguments.fused_limit_s:
                note("fused", kind, fused(folder, device, arguments.fused_limit_s))
            forms = forms_of(kind, fitted, folder, device)
        note("deviations", kind, deviations(forms, arguments.decisions))
        note("latency_ms", kind, latencies(forms, arguments.calls))
        note("windows_per_s", kind, rates(forms, tuple(arguments.batches), arguments.rounds, arguments.slice_s))
        if is_gpu:
            note("launches", kind, launches(forms))
        del forms
    if arguments.epochs:
        note("training_windows_per_s", "neutral_ad", training(device, arguments.epochs))
    if is_gpu:
        few = {"neutral_ad": untrained, "ensemble": lambda *shape: fitted_ensemble(64, *shape)}
        note("peak_mb", "all", memory(few, device))
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda", help="cuda, cuda:0, or cpu to try the program (default: cuda)")
    parser.add_argument("--batches", type=int, nargs="+", default=BATCHES)
    parser.add_argument("--rounds", type=int, default=3, help="turns that every form takes (default: 3)")
    parser.add_argument("--slice-s", type=float, default=0.1, help="seconds per turn at least (default: 0.1)")
    parser.add_argument("--references", type=int, default=1000, help="windows that the default detector is fitted on")
    parser.add_argument("--decisions", type=int, default=1000, help="windows whose terms are compared")
    parser.add_argument("--calls", type=int, default=200, help="single windows whose latency is taken")
    parser.add_argument("--epochs", type=int, default=20, help="of the trainings on the GPU; 0: none")
    parser.add_argument("--fused-limit-s", type=float, default=60, help="for TorchScript's optimiser; 0: not tried")
    parser.add_argument("--json", action="store_true", help="print one JSON object last")
    arguments = parser.parse_args()
    result = measure(arguments)
    print("| kind | batch | windows/s on the GPU | times launched | times separate | times one core | times all |")
    print(*table(result), sep="\n")
    if arguments.json:
        print(json.dumps(result))


if __name__ == "__main__":
    main()
