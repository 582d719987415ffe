"""The default detector against its own bound, by member: what the backends take, and what the core must at least.

24 channels x 51 samples, fitted to 180 windows. A member's least time is that of its multiply-adds, comparisons and
other operations on single values at the rate of the multiply-adds of a float32 matrix product (the same units compute
them), or of reading its weights once a call (in batches of 64: once in 16 windows) if that takes longer.
The whole takes turns with its members and with ``--beside``, a folder with the model.ts that another release exported
for the same windows. The clock is the CPU time of this process; of the turns the shortest counts for a rate and a
member, and ratios are medians of those within a turn.
Run: ``python benchmarks/speed/members.py [--beside FOLDER] [--rounds 15] [--json]``; exports take two minutes.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks.speed.ensemble import CHANNELS, LENGTH, random_walks
from benchmarks.speed.scoring import GEMM_SIZE, seconds_of
from streamad.types import WindowSet
from streamad_models.ensemble import Ensemble
from streamad_models.ensemble.intervals import GRID
from streamad_models.ensemble.minirocket import N_KERNELS, N_TAPS, MiniRocket
from streamad_models.ensemble.options import SPACES
from streamad_models.fitted import FittedModule

N_TRAINING = 180
BATCHES, CHUNK = (1, 64), 16
BACKENDS = ("torchscript", "onnxruntime", "openvino")
OF_MEMBERS = ("torchscript", "openvino")

Score = Callable[[WindowSet], object]


class Member(nn.Module):
    """A feature space with its distances as a model of its own; windows are taken as scaled."""

    def __init__(self, space: nn.Module) -> None:
        super().__init__()
        self.n_channels, self.window_length, self.n_terms, self.streamad_format = CHANNELS, LENGTH, 3, 1
        self.space = space
        self.register_buffer("mean_C", torch.zeros(CHANNELS))

    def forward(self, windows_BCL: Tensor, lengths_B: Tensor) -> Tensor:
        """Return the logarithms [B, 3]."""
        logs_B3: Tensor = self.space(windows_BCL, lengths_B)
        return logs_B3


def scorers_of(fitted: FittedModule, folder: Path, backends: Sequence[str]) -> dict[str, Any]:
    """Return the model as each backend serves it."""
    folder.mkdir()
    fitted.export(folder)
    found: dict[str, Any] = {"torchscript": Ensemble().load(folder, device="cpu")}
    for backend in backends:
        if backend != "torchscript":
            fitted.export_for(backend, folder)
            found[backend] = Ensemble().load_by(backend, folder, device="cpu")
    return found


def work_of(space: Any) -> dict[str, float]:
    """Return the least multiply-adds, operations on single values and bytes of weights of a window, by the known forms.

    A window's own features count with what each needs: MiniRocket's kernels on the sums of their channels, four
    operations for each comparison with a bias; Hydra's about twelve for each value of a kernel; two for each exchange
    of a sort of 64 (672) or 32 (240). Distances: two products with the basis, one with the points.
    """
    n_features, n_directions = space.neighbours.basis_DM.shape
    n_points = len(space.neighbours.points_NM)
    products, single = 2.0 * n_features * n_directions + n_points * n_directions, 6.0 * n_features
    features = space.features
    if isinstance(features, MiniRocket):
        products += len(features.dilations) * N_KERNELS * (CHANNELS + N_TAPS) * LENGTH
        single += 4.0 * features.n_features * LENGTH
    elif hasattr(features, "competitions"):
        for each in features.competitions:
            n_kernels = each.weight_W1T.shape[0]
            products += (each.n_groups * CHANNELS + n_kernels * N_TAPS) * each.length
            single += 12.0 * n_kernels * each.length
    elif hasattr(features, "waves_GR"):
        products += CHANNELS * GRID * GRID
        single += 2.0 * CHANNELS * (2 * 672 + 240)
    bytes_read = 4.0 * (2 * n_features * n_directions + n_points * n_directions)
    return {"products": products, "single": single, "bytes": bytes_read}


def rates() -> dict[str, Callable[[], float]]:
    """Return what measures the core's rates a second: multiply-adds, bytes read."""
    square, many = torch.randn(GEMM_SIZE, GEMM_SIZE), torch.randn(1 << 24)
    return {
        "products": lambda: GEMM_SIZE**3 / seconds_of(lambda: square @ square, 0.05),
        "bytes": lambda: 4.0 * many.numel() / seconds_of(many.sum, 0.05),
    }


def least_ms(work: dict[str, float], rate: dict[str, float], batch: int) -> float:
    """Return the least milliseconds a window: computing or reading, whichever takes longer."""
    computing = (work["products"] + work["single"]) / rate["products"]
    return 1e3 * max(computing, work["bytes"] / rate["bytes"] / min(batch, CHUNK))


def measure(rounds: int, beside: Path | None) -> dict[str, Any]:
    """Return the milliseconds of the whole and of its members, their least, and the ratios."""
    torch.set_num_threads(1)
    fitted = Ensemble().fit(random_walks(N_TRAINING), seed=0, device="cpu")
    nothing = WindowSet(np.empty((0, CHANNELS, LENGTH), np.float32), np.empty(0, np.int64), ())
    forms: dict[str, Score] = {}
    with tempfile.TemporaryDirectory() as name, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if beside is not None:
            forms["before"] = scoring(Ensemble().load(beside, device="cpu"))
        forms |= {each: scoring(one) for each, one in scorers_of(fitted, Path(name, "all"), BACKENDS).items()}
        for space, module in zip(SPACES, fitted.model.spaces, strict=True):
            member = FittedModule(Member(module).eval(), fitted.summary, nothing)
            for backend, one in scorers_of(member, Path(name, space), OF_MEMBERS).items():
                forms[f"{space}, {backend}"] = scoring(one)
    measured = {name: [one() for _ in range(5)] for name, one in rates().items()}
    rate = {name: max(each) for name, each in measured.items()}
    works = {space: work_of(module) for space, module in zip(SPACES, fitted.model.spaces, strict=True)}
    works["all"] = {key: sum(each[key] for each in works.values()) for key in works[SPACES[0]]}
    result: dict[str, Any] = {"rounds": rounds, "rates": rate, "work": works}
    first = next(iter(forms))
    for batch in BATCHES:
        new, taken = random_walks(batch, seed=1), {name: [] for name in forms}
        for _ in range(rounds):
            for name, score in forms.items():
                taken[name].append(seconds_of(lambda score=score, new=new: score(new), 0.05) / batch)
        result[str(batch)] = {
            "least_ms": {name: round(least_ms(work, rate, batch), 3) for name, work in works.items()},
            "ms": {name: round(1e3 * min(each), 3) for name, each in taken.items()},
            "times_as_fast": {
                name: ratios(taken[first], taken[name]) for name in ("before", *BACKENDS) if name in taken
            },
        }
    return result


def scoring(scorer: Any) -> Score:
    return lambda data: scorer.score(data.values, data.lengths)


def ratios(of: Sequence[float], times: Sequence[float]) -> dict[str, float]:
    found = [one / other for one, other in zip(of, times, strict=True)]
    return {"median": round(statistics.median(found), 2), "least": round(min(found), 2), "most": round(max(found), 2)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--beside", type=Path, help="folder with a model.ts of another release")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--json", action="store_true", help="print one JSON object last")
    options = parser.parse_args()
    result = measure(options.rounds, options.beside)
    for batch in map(str, BATCHES):
        print(f"batch {batch}: ms a window {result[batch]['ms']}")
        print(f"  least {result[batch]['least_ms']}; times as fast {result[batch]['times_as_fast']}")
    if options.json:
        print(json.dumps(result))


if __name__ == "__main__":
    main()
