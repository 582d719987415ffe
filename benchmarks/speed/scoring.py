"""Scoring speed of one thread: K separate eager networks, the grouped eager form, and the TorchScript artifact.

All three are the same function of the same weights at NATOPS size (C=24, L=51, K=11, z=64), checked before anything is
timed. The forms and a float32 matrix product take turns, medians are compared, and the clock is this process's CPU
time, so that other load on the machine does not count. Run: ``python benchmarks/speed/scoring.py [--json]``.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks.models.reference import ReferenceModel, mask_weights
from streamad.ports import TrainingSummary
from streamad.types import FloatArray, WindowSet
from streamad_models.fitted import FittedModule
from streamad_models.neutral_ad import NeutralAD, NeutralADOptions
from streamad_models.neutral_ad.model import NeutralADModel
from streamad_models.neutral_ad.networks import EncoderBlock

CHANNELS, LENGTH = 24, 51
BATCHES = (1, 8, 64, 256)
FORMS = ("separate", "grouped", "torchscript")
GEMM_SIZE = 1024
TOLERANCE = 1e-5


def multiplications(model: NeutralADModel) -> int:
    """Return the multiply-adds of all convolutions for one window; norms, activations and the loss are left out."""
    length = model.window_length
    masks = sum(weight.numel() for weight in mask_weights(model.transformations)) * length
    encoder = 0
    for block in model.encoder.blocks:
        assert isinstance(block, EncoderBlock)
        encoder += block.inwards.numel() * length
        length = -(-length // block.stride)
        encoder += (block.middle.numel() + block.outwards.numel() + block.shortcut.numel()) * length
    return masks + (encoder + model.encoder.head.numel()) * (model.n_terms + 1)


def build_forms(model: NeutralADModel, folder: Path) -> dict[str, Callable[[FloatArray], FloatArray]]:
    """Return the three forms as functions of windows [B, C, L]."""
    reference = ReferenceModel(model).eval()
    summary = TrainingSummary(n_sequences=0, n_epochs=0, best_epoch=0, best_loss=0.0, duration_s=0.0, device="cpu")
    nothing = WindowSet(np.empty((0, CHANNELS, LENGTH), np.float32), np.empty(0, np.int64), ())
    FittedModule(model, summary, nothing).export(folder)
    scorer = NeutralAD().load(folder, device="cpu")

    @torch.inference_mode()
    def eager(form: torch.nn.Module, windows: FloatArray) -> FloatArray:
        lengths = torch.full((len(windows),), LENGTH)
        terms: FloatArray = form(torch.from_numpy(windows), lengths).numpy()
        return terms

    return {
        "separate": lambda windows: eager(reference, windows),
        "grouped": lambda windows: eager(model, windows),
        "torchscript": lambda windows: scorer.score(windows, np.full(len(windows), LENGTH, np.int64)),
    }


def seconds_of(work: Callable[[], object], at_least_s: float) -> float:
    """Return the mean CPU seconds of a call, over as many calls as fill ``at_least_s``."""
    calls = 0
    started = time.process_time()
    while (elapsed := time.process_time() - started) < at_least_s or not calls:
        work()
        calls += 1
    return elapsed / calls


def measure(rounds: int, slice_s: float) -> dict[str, object]:
    """Return the windows/s of each form and batch size, the matrix product rate, and the shares of it reached."""
    torch.set_num_threads(1)
    rng = np.random.default_rng(0)
    model = NeutralADModel(CHANNELS, LENGTH, NeutralADOptions(), seed=0).eval()
    windows = {size: rng.standard_normal((size, CHANNELS, LENGTH)).astype(np.float32) for size in BATCHES}
    square = torch.randn(GEMM_SIZE, GEMM_SIZE)
    with tempfile.TemporaryDirectory() as folder:
        forms = build_forms(model, Path(folder))
    for size in BATCHES:
        expected = forms["separate"](windows[size])
        for form in FORMS:
            np.testing.assert_allclose(forms[form](windows[size]), expected, atol=TOLERANCE, rtol=0)
    times: dict[tuple[str, int], list[float]] = {(form, size): [] for form in FORMS for size in BATCHES}
    products: list[float] = []
    for _ in range(rounds):
        products.append(seconds_of(lambda: square @ square, slice_s))
        for (form, size), taken in times.items():
            taken.append(seconds_of(lambda form=form, size=size: forms[form](windows[size]), slice_s))  # type: ignore[misc]
    rates = {key: key[1] / statistics.median(taken) for key, taken in times.items()}
    gemm_gflops = 2e-9 * GEMM_SIZE**3 / statistics.median(products)
    share_of = 2e-9 * multiplications(model) / gemm_gflops
    result: dict[str, object] = {
        str(size): {form: round(rates[form, size], 1) for form in FORMS}
        | {"gemm_share": round(rates["torchscript", size] * share_of, 3)}
        for size in BATCHES
    }
    best = max(rates["torchscript", size] for size in BATCHES)
    mflop = round(2e-6 * multiplications(model), 1)
    return result | {"gemm_gflops": round(gemm_gflops, 1), "gemm_share": round(best * share_of, 3), "mflop": mflop}


def report(result: dict[str, object]) -> None:
    """Print the table for people."""
    print(f"windows/s on one thread at C={CHANNELS} L={LENGTH} K=11 z=64 ({result['mflop']} MFLOP per window)")
    print(f"float32 matrix product {GEMM_SIZE}: {result['gemm_gflops']} GFLOP/s\n")
    print(f"{'batch':>5} {'separate':>10} {'grouped':>10} {'torchscript':>12} {'gain':>6} {'gemm share':>11}")
    for size in BATCHES:
        row = result[str(size)]
        assert isinstance(row, dict)
        gain = row["torchscript"] / row["separate"]
        rates = f"{row['separate']:>10.0f} {row['grouped']:>10.0f} {row['torchscript']:>12.0f}"
        print(f"{size:>5} {rates} {gain:>5.2f}x {row['gemm_share']:>11.0%}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print one JSON object last")
    parser.add_argument("--rounds", type=int, default=9, help="turns that every form takes (default: 9)")
    parser.add_argument("--slice-s", type=float, default=0.15, help="CPU seconds per turn at least (default: 0.15)")
    arguments = parser.parse_args()
    result = measure(arguments.rounds, arguments.slice_s)
    report(result)
    if arguments.json:
        print(json.dumps(result))


if __name__ == "__main__":
    main()
