"""Which channel, and when: attributions of faults whose channel and place are known, by the default detector.

``injected``: stuck, bias, drift, spike and noise in one random channel of held-out normal recordings, at a random place
of a tenth to a quarter of the sequence. *Detected*: an alert with the fault, none without it. Of these cases the share
in which the known channel has the largest share, and in which the first segment is of that channel and overlaps the
known place. Chance: 1 / C, and the share of places in the known channel where a segment so long overlaps.
``loops``: faults of the simulated fermenter, most of them in a control loop: the channel that shows the fault first.
``tennessee``: windows after the onset of published faults of the Tennessee Eastman process: the channels at the cause.
These two have no aim. Windows scored and CPU time of an attribution are of this machine and one thread.
Data: NAME.npz in the folder that STREAMAD_DATA names, else in ``../shared/data`` beside the checkout.
Run: ``python -m benchmarks.quality.attribution [injected loops tennessee] [--sets natops ...] [--size 4] [--cases 40]
[--json]``.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import torch

from benchmarks.detector.faults import windows_of
from benchmarks.quality.quality import DATA, read
from streamad.judge.attribution import Explanation, Reference, explain, reference_windows
from streamad.judge.calibration import Calibration, certifiable_rate
from streamad.judge.envelope import Envelope
from streamad.plugins import make_detector
from streamad.ports import Scorer
from streamad.simulation.faults import CHANNEL_NAMES
from streamad.simulation.recordings import simulate
from streamad.types import FloatArray, IntArray, Window, WindowSet

SIMULATED: Final = "simulated"
CHOOSING: Final = (SIMULATED, "natops", "racket_sports", "epilepsy", "basic_motions")
"""The sets on which parts, replacements and their numbers were chosen; the others report them."""
OTHERS: Final = ("character_trajectories", "spoken_arabic_digits")
KINDS: Final = ("stuck", "bias", "drift", "spike", "noise")
_RATE: Final = 0.02
_MOST_TRAINING: Final = 200
_MOST_TRIED: Final = 1500
_SHARES: Final = (0.1, 0.25)  # of the sequence that a fault fills
_N_CLASSES: Final = 2
# Channels at the cause of process disturbances (Downs and Vogel 1993). Numbers of the data set's variables, from 0: 41
# measured ones, then 11 valves.
_CAUSES: Final = {
    1: ("A/C feed ratio, stream 4", (3, 44, 0, 43)),
    4: ("reactor cooling water inlet temperature", (50, 8, 20)),
    5: ("condenser cooling water inlet temperature", (51, 21, 10)),
    6: ("A feed loss, stream 1", (0, 43)),
    7: ("C header pressure loss, stream 4", (3, 44)),
    11: ("reactor cooling water inlet temperature, random", (50, 8, 20)),
    12: ("condenser cooling water inlet temperature, random", (51, 21, 10)),
    14: ("reactor cooling water valve, sticking", (50, 8, 20)),
}
_SPLITS: Final = ("train", "test")
_ONSET, _SPAN, _STRIDE = 160, 40, 10  # samples of the Tennessee Eastman test runs; windows of two hours


class Counted:
    """A scorer that counts the windows it scores."""

    def __init__(self, scorer: Scorer) -> None:
        self._scorer = scorer
        self.window_shape, self.n_terms = scorer.window_shape, scorer.n_terms
        self.n = 0

    def score(self, windows: FloatArray, lengths: IntArray) -> FloatArray:
        """Return the terms of the scorer."""
        self.n += len(windows)
        return self._scorer.score(windows, lengths)


@dataclass(frozen=True, slots=True, eq=False)
class Monitor:
    """A fitted default detector with its calibration, reference windows and envelope."""

    scorer: Counted
    calibration: Calibration
    rate: float
    reference: Reference
    envelope: Envelope

    @classmethod
    def of(cls, training: WindowSet, held_out: WindowSet) -> Monitor:
        """Fit on ``training`` and calibrate by ``held_out``, at 2 % or the lowest rate that these certify."""
        detector = make_detector("ensemble", {})
        fitted = detector.fit(training, seed=0, device="cpu")
        with tempfile.TemporaryDirectory() as folder:
            fitted.export(Path(folder))
            scorer = Counted(detector.load(Path(folder), device="cpu"))
        scores = fitted.training_scores().sum(axis=1)
        return cls(
            scorer,
            Calibration.from_terms(scorer.score(held_out.values, held_out.lengths)),
            max(_RATE, certifiable_rate(len(held_out))),
            reference_windows(training.values, training.lengths, scores),
            Envelope.of(training.values, training.lengths),
        )

    def alerts(self, values: FloatArray, length: int) -> bool:
        """Return whether a window [C, L] would be an alert."""
        terms = self.scorer.score(values[None], np.array([length]))
        return self.calibration.p_value(float(terms.sum(dtype=np.float64)))[0] <= self.rate

    def explain(self, values: FloatArray, length: int) -> tuple[Explanation, int, float]:
        """Return the explanation of a window, the windows scored for it, and milliseconds of CPU time."""
        before, began_s = self.scorer.n, time.process_time()
        found = explain(self.scorer, Window(values, length), self.reference, self.envelope)
        return found, self.scorer.n - before, 1000 * (time.process_time() - began_s)


def injected(
    course: npt.NDArray[np.float32], kind: str, size: float, rng: np.random.Generator
) -> tuple[npt.NDArray[np.float32], tuple[int, int]]:
    """Return the course [n] with a fault, and its first sample and last + 1."""
    n = len(course)
    width = max(1, int(n * rng.uniform(*_SHARES)))
    first = int(rng.integers(0, n - width + 1))
    place, broken = slice(first, first + width), course.astype(np.float64)
    signed = size if rng.random() < 0.5 else -size
    if kind == "stuck":
        broken[place] = course[max(0, first - 1)]
    elif kind == "bias":
        broken[place] += signed
    elif kind == "drift":
        broken[place] += signed * np.linspace(1 / width, 1, width)
    elif kind == "noise":
        broken[place] += size * rng.standard_normal(width)
    else:
        hit = rng.random(width) < 0.3
        hit[int(rng.integers(width))] = True
        broken[place] += np.where(hit, size * rng.choice((-1.0, 1.0), width), 0.0)
    return broken.astype(np.float32), (first, first + width)


def parts_of(name: str, label: int) -> tuple[WindowSet, WindowSet, WindowSet]:
    """Return training, calibration and fault-free windows of a class, or of the simulated plant with seed ``label``."""
    if name == SIMULATED:
        every = windows_of(simulate(240, 0, seed=label))
        training, held_out, sound = (every.take(np.arange(*part)) for part in ((0, 100), (100, 200), (200, 240)))
        return training, held_out, sound
    splits = read(DATA / f"{name}.npz").values()
    longest = max(windows.values.shape[2] for windows, _ in splits)
    normal = [_padded(windows.take(np.flatnonzero(classes == label)), longest) for windows, classes in splits]
    training = normal[0].take(np.arange(min(len(normal[0]), _MOST_TRAINING)))
    held_out, sound = (normal[1].take(np.arange(start, len(normal[1]), 2)[:60]) for start in (0, 1))
    return training, held_out, sound


def _padded(windows: WindowSet, length: int) -> WindowSet:
    """Return the windows with ``length`` places: the splits of a set have those of their own longest sequence."""
    wider = ((0, 0), (0, 0), (0, length - windows.values.shape[2]))
    return WindowSet(np.pad(windows.values, wider), windows.lengths, windows.ids)


def faulty(
    monitor: Monitor, training: WindowSet, sound: WindowSet, size: float, most: int
) -> Iterator[tuple[bool, int, tuple[int, int], FloatArray, int]]:
    """Yield whether a fault is detected, its channel and place, the window and its length, until ``most`` are."""
    samples = [values[:, :n] for values, n in zip(training.values, training.lengths, strict=True)]
    sigma = np.concatenate(samples, axis=1).std(axis=1)
    rng = np.random.default_rng(0)
    quiet = [
        i
        for i, (values, n) in enumerate(zip(sound.values, sound.lengths.tolist(), strict=True))
        if not monitor.alerts(values, n)
    ]
    cases = [(i, channel, kind) for i in quiet for channel in np.flatnonzero(sigma > 0).tolist() for kind in KINDS]
    n_detected = 0
    for i, channel, kind in [cases[k] for k in rng.permutation(len(cases))[:_MOST_TRIED]]:
        values, length = sound.values[i].copy(), int(sound.lengths[i])
        values[channel, :length], place = injected(values[channel, :length], kind, size * sigma[channel], rng)
        if np.array_equal(values, sound.values[i]):
            continue
        is_detected = monitor.alerts(values, length)
        yield is_detected, channel, place, values, length
        n_detected += is_detected
        if n_detected == most:
            return


def overlap(found: Explanation, channel: int, place: tuple[int, int], length: int) -> tuple[bool, float, float]:
    """Return whether the first segment is of the channel and overlaps the place, by which share, and chance.

    The share is that of their union.
    """
    if not found.segments:
        return False, 0.0, 0.0
    first = found.segments[0]
    begin, end = (round(share * (length - 1)) for share in (first.start, first.end))
    width, (known, known_end) = end - begin + 1, place
    starts = np.arange(length - width + 1)
    chance = float(np.mean((starts < known_end) & (starts + width > known)))
    common = min(end + 1, known_end) - max(begin, known)
    if first.channel != channel or common <= 0:
        return False, 0.0, chance
    return True, common / (max(end + 1, known_end) - min(begin, known)), chance


def measure_injected(name: str, label: int, *, size: float, most: int) -> dict[str, Any]:
    """Return the figures of one class of a set."""
    training, held_out, sound = parts_of(name, label)
    monitor = Monitor.of(training, held_out)
    n_injected, rows = 0, []
    for is_detected, channel, place, values, length in faulty(monitor, training, sound, size, most):
        n_injected += 1
        if is_detected:
            found, n_scored, cpu_ms = monitor.explain(values, length)
            is_first = bool(found.shares.any()) and int(np.argmax(found.shares)) == channel
            rows.append((is_first, *overlap(found, channel, place, length), n_scored, cpu_ms))
    columns = list(zip(*rows, strict=True)) or [[]] * 6
    return {
        "set": name,
        "class": label,
        "n_channels": len(training.values[0]),
        "n_injected": n_injected,
        "n_detected": len(rows),
        **{key: _mean(columns[i]) for i, key in enumerate(("first", "overlaps", "common", "overlap_by_chance"))},
        "most_scored": max(columns[4], default=0),
        "cpu_ms": round(statistics.median(columns[5]), 1) if rows else None,
    }


def pooled(rows: Sequence[Mapping[str, Any]]) -> dict[str, float | int | None]:
    """Return the detected cases of all rows, and the shares of them with the channel first and an overlap."""
    n = sum(row["n_detected"] for row in rows)
    means = {
        key: round(sum(row[key] * row["n_detected"] for row in rows if row["n_detected"]) / n, 3) if n else None
        for key in ("first", "overlaps")
    }
    return {"n_detected": n, **means}


def _mean(values: Any) -> float | None:
    return round(float(np.mean(values)), 3) if len(values) else None


def measure_loops(most: int) -> Iterator[dict[str, Any]]:
    """Yield for each fault of the simulated fermenter how its channel comes out."""
    training, held_out, _ = parts_of(SIMULATED, 0)
    monitor = Monitor.of(training, held_out)
    recordings = [each for each in simulate(0, 16 * most, seed=0, first_index=1000) if each.fault]
    for fault in sorted({each.fault for each in recordings}):
        of_fault = [each for each in recordings if each.fault == fault]
        channel = of_fault[0].fault_channel
        windows = windows_of(of_fault)
        known = (CHANNEL_NAMES.index(channel),) if channel is not None else ()
        yield {"fault": fault, "channel": channel, **_ranked(monitor, windows, known)}


def _ranked(monitor: Monitor, windows: WindowSet, known: tuple[int, ...]) -> dict[str, Any]:
    """Return how often one of the ``known`` channels comes first, or among the first three, of the detected windows."""
    first, among = [], []
    for values, length in zip(windows.values, windows.lengths.tolist(), strict=True):
        if monitor.alerts(values, length):
            shares = monitor.explain(values, length)[0].shares
            order = np.argsort(-shares, kind="stable")[:3].tolist()
            first.append(order[0] in known)
            among.append(any(each in known for each in order))
    return {"n": len(windows), "n_detected": len(first), "first": _mean(first), "among_three": _mean(among)}


def measure_tennessee() -> Iterator[dict[str, Any]]:
    """Yield for each published fault how the channels at its cause come out, in windows after its onset."""
    with np.load(DATA / "tennessee_eastman.npz", allow_pickle=False) as archive:
        runs = {split: dict(_runs(*(archive[f"{split}_{of}"] for of in ("x", "y", "len")))) for split in _SPLITS}
    normal = _cut(runs["train"][0], 0, None)
    held_out = _cut(runs["test"][0], 0, None)
    monitor = Monitor.of(normal, held_out)
    for number, (cause, known) in _CAUSES.items():
        windows = _cut(runs["test"][number], _ONSET, _ONSET + 10 * _SPAN)
        yield {"fault": number, "cause": cause, "chance": len(known) / 52, **_ranked(monitor, windows, known)}


def _runs(x: FloatArray, y: IntArray, lengths: IntArray) -> Iterator[tuple[int, FloatArray]]:
    """Yield the number of each run's fault (0: normal) and its samples [C, n]."""
    for run, fault, length in zip(x, y.tolist(), lengths.tolist(), strict=True):
        yield fault, run[:, :length]


def _cut(run: npt.NDArray[np.float32], begin: int, end: int | None) -> WindowSet:
    """Return windows [N, C, 40] of a run [C, n]: every 10 samples in normal runs, every 40 after an onset."""
    stride = _STRIDE if begin == 0 else _SPAN
    last = run.shape[1] if end is None else min(end, run.shape[1])
    starts = range(begin, last - _SPAN + 1, stride)
    values = np.stack([run[:, start : start + _SPAN] for start in starts]).astype(np.float32)
    return WindowSet(values, np.full(len(values), _SPAN), tuple(f"{start}" for start in starts))


def _printed(rows: Iterator[dict[str, Any]], name: str, show: Callable[[dict[str, Any]], str]) -> list[dict[str, Any]]:
    kept = []
    for row in rows:
        print(f"{name}: {show(row)}", flush=True)
        kept.append(row)
    return kept


def _share(value: float | None) -> str:
    return "-" if value is None else f"{value:.0%}"


def _shown_injected(row: dict[str, Any]) -> str:
    return (
        f"{row['set']} {row['class']} ({row['n_channels']} channels): "
        f"{row['n_detected']} of {row['n_injected']} detected, "
        f"channel first {_share(row['first'])} (chance {1 / row['n_channels']:.0%}), "
        f"segment overlaps {_share(row['overlaps'])} (chance {_share(row['overlap_by_chance'])}), "
        f"common {_share(row['common'])}, {row['most_scored']} windows, {row['cpu_ms']} ms"
    )


def _shown_ranked(row: dict[str, Any]) -> str:
    what = row["channel"] if "channel" in row else row["cause"]
    return (
        f"{row['fault']} ({what}): {row['n_detected']} of {row['n']} detected, first {_share(row['first'])}, "
        f"among three {_share(row['among_three'])}"
    )


def _classes(name: str) -> list[int]:
    if name == SIMULATED:
        return list(range(_N_CLASSES))
    classes = np.unique(read(DATA / f"{name}.npz")["train"][1])
    return classes[np.linspace(0, len(classes) - 1, _N_CLASSES).round().astype(int)].tolist()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parts = ("injected", "loops", "tennessee")
    parser.add_argument("parts", nargs="*", default=list(parts), help=f"of {', '.join(parts)} (default: all)")
    parser.add_argument("--sets", nargs="+", choices=(*CHOOSING, *OTHERS), default=[*CHOOSING, *OTHERS])
    parser.add_argument("--size", type=float, default=4.0, help="of a fault, in standard deviations of its channel (4)")
    parser.add_argument(
        "--cases", type=int, default=40, help="detected cases of a class; faulty batches of a kind (40)"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object last")
    arguments = parser.parse_args()
    if odd := [part for part in arguments.parts if part not in parts]:
        parser.error(f"{odd[0]!r} is none of {', '.join(parts)}")
    torch.set_num_threads(1)
    found: dict[str, Any] = {"size": arguments.size}
    if "injected" in arguments.parts:
        rows = (
            measure_injected(name, label, size=arguments.size, most=arguments.cases)
            for name in arguments.sets
            for label in _classes(name)
        )
        found["injected"] = _printed(rows, "injected", _shown_injected)
        found["pooled"] = pooled(found["injected"])
        print(f"pooled: {json.dumps(found['pooled'])}")
    if "loops" in arguments.parts:
        found["loops"] = _printed(measure_loops(max(1, arguments.cases // 4)), "loops", _shown_ranked)
    if "tennessee" in arguments.parts:
        found["tennessee"] = _printed(measure_tennessee(), "tennessee", _shown_ranked)
    if arguments.json:
        print(json.dumps(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
