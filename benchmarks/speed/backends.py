"""Scoring speed of one thread by each backend: NeuTraL AD beside K separate eager networks, the default, simple kinds.

NATOPS size (C=24, L=51, K=11, z=64), batches of 1 and 64. All forms of a model are the same function of the same
weights; by how much their terms differ is part of the result. The forms and a float32 matrix product take turns,
medians are compared, ratios are those within a round, and the clock is the CPU time of this process, so that other load
counts little.
``bfloat16`` is OpenVINO with that precision, which streamad does not serve (docs/model/backends.md).
Run: ``python benchmarks/speed/backends.py [--json]``.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks.models.reference import ReferenceModel
from benchmarks.speed.ensemble import random_walks
from benchmarks.speed.scoring import GEMM_SIZE, multiplications, seconds_of
from streamad.learn.registry.arrays import probe_deviation
from streamad.types import FloatArray, WindowSet
from streamad_models import onnx_openvino
from streamad_models.ensemble import Ensemble, EnsembleOptions
from streamad_models.fitted import FittedModule
from streamad_models.neutral_ad import NeutralAD, NeutralADOptions
from streamad_models.simple import PCA, Pointwise, Unfolded

BATCHES = (1, 64)
N_TRAINING = 180
N_FOR_NETWORK = 32
N_COMPARED = 256
TOLERANCE = 1e-4
BACKENDS = ("onnxruntime", "openvino")
SEPARATE, TORCHSCRIPT, BFLOAT16 = "separate", "torchscript", "bfloat16"

Score = Callable[[WindowSet], FloatArray]
Makers = dict[str, tuple[Any, WindowSet]]


def makers() -> Makers:
    """Return the detectors by name, and what each is fitted to."""
    data = random_walks(N_TRAINING)
    with_network = EnsembleOptions(effort="normal", time_limit_s=1e-6)
    return {
        "neutral_ad": (NeutralAD(NeutralADOptions(epochs=1)), data.take(list(range(N_FOR_NETWORK)))),
        "ensemble": (Ensemble(), data),
        "ensemble, normal": (Ensemble(with_network), data),
        **{name: (make(), data) for name, make in (("pointwise", Pointwise), ("pca", PCA), ("unfolded", Unfolded))},
    }


def forms_of(name: str, maker: Any, fitted: FittedModule, folder: Path) -> dict[str, Score]:
    """Return the forms of a fitted model."""
    fitted.export(folder)
    scorers = {TORCHSCRIPT: maker.load(folder, device="cpu")}
    for backend in BACKENDS:
        fitted.export_for(backend, folder)
        scorers[backend] = maker.load_by(backend, folder, device="cpu")
    with patch.dict(onnx_openvino.OPENVINO_SETTINGS, INFERENCE_PRECISION_HINT="bf16"):
        scorers[BFLOAT16] = maker.load_by("openvino", folder, device="cpu")
    forms = {each: _scoring(scorer) for each, scorer in scorers.items()}
    if name == "neutral_ad":
        reference = ReferenceModel(fitted.model.cpu()).eval()

        @torch.inference_mode()
        def separate(data: WindowSet) -> FloatArray:
            terms: FloatArray = reference(torch.from_numpy(data.values), torch.from_numpy(data.lengths)).numpy()
            return terms

        forms = {SEPARATE: separate, **forms}
    return forms


def _scoring(scorer: Any) -> Score:
    return lambda data: scorer.score(data.values, data.lengths)


def agreement(forms: dict[str, Score], first: str) -> dict[str, dict[str, float]]:
    """Return by form the largest deviation from the terms of ``first``, alone and in company, and how many exceed."""
    data = random_walks(N_COMPARED, seed=2)
    expected, found = forms[first](data), {}
    for name, score in forms.items():
        alone = np.concatenate([score(data.take([i])) for i in range(len(data))])
        pairs = zip((*alone, *score(data)), (*expected, *expected), strict=True)
        off = np.array([probe_deviation(*pair) for pair in pairs]).reshape(2, -1).max(axis=0)
        found[name] = {"largest": float(off.max()), "beyond": int((off > TOLERANCE).sum())}
    return found


def measure(rounds: int, slice_s: float) -> dict[str, Any]:
    """Return for each model the milliseconds a window, the ratios and the deviations of its forms."""
    torch.set_num_threads(1)
    square = torch.randn(GEMM_SIZE, GEMM_SIZE)
    result: dict[str, Any] = {"rounds": rounds, "load": os.getloadavg()[0]}
    for name, (maker, data) in makers().items():
        fitted = maker.fit(data, seed=0, device="cpu")
        with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            forms = forms_of(name, maker, fitted, Path(folder))
        first = next(iter(forms))
        row: dict[str, Any] = {"of": first, "deviation": agreement(forms, first)}
        products: list[float] = []
        for batch in BATCHES:
            new = random_walks(batch, seed=1)
            taken: dict[str, list[float]] = {each: [] for each in forms}
            for _ in range(rounds):
                products.append(seconds_of(lambda: square @ square, slice_s))
                for each, score in forms.items():
                    taken[each].append(seconds_of(lambda score=score, new=new: score(new), slice_s) / batch)
            row[str(batch)] = {each: _figures(times, taken[first]) for each, times in taken.items()}
        if name == "neutral_ad":
            gflops = 2e-9 * GEMM_SIZE**3 / statistics.median(products)
            row |= {"gemm_gflops": round(gflops, 1), "mflop": round(2e-6 * multiplications(fitted.model), 1)}
            for batch in BATCHES:
                for figures in row[str(batch)].values():
                    figures["gemm_share"] = round(row["mflop"] / figures["ms"] / gflops, 3)
        result[name] = row
    return result


def _figures(times: list[float], of: list[float]) -> dict[str, float]:
    ratios = [one / other for one, other in zip(of, times, strict=True)]
    return {
        "ms": round(1e3 * statistics.median(times), 3),
        "gain": round(statistics.median(ratios), 2),
        "least_gain": round(min(ratios), 2),
        "most_gain": round(max(ratios), 2),
    }


def report(result: dict[str, Any]) -> None:
    """Print the tables for people."""
    for name, row in result.items():
        if not isinstance(row, dict):
            continue
        print(f"\n{name}: times as fast as {row['of']}, ms a window, terms off by more than {TOLERANCE:g}")
        for form in row["1"]:
            cells = []
            for batch in BATCHES:
                each = row[str(batch)][form]
                share = f", {each['gemm_share']:.0%} of the product rate" if "gemm_share" in each else ""
                between = f"{each['least_gain']:.2f} to {each['most_gain']:.2f}"
                cells.append(f"batch {batch}: {each['gain']:.2f} ({between}), {each['ms']:.2f} ms{share}")
            off = row["deviation"][form]
            cells.append(f"{off['beyond']} of {N_COMPARED} windows, at most {off['largest']:.1g}")
            print(f"  {form:<12} " + "; ".join(cells))


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
