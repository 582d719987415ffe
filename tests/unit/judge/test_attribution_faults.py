"""A fault injected into one known channel: that channel must come first in at least 80 % of the detected cases.

Detected: the faulty sequence is an alert, and the same sequence without the fault is none, so the fault raised it.
Prints one line of figures per data set (pytest -s).
"""

from dataclasses import dataclass

import numpy as np

from streamad.ingest.windowing import to_window
from streamad.judge.attribution import explain, reference_windows
from streamad.judge.calibration import Calibration
from streamad.plugins import make_detector
from streamad.settings.plant_yaml import WindowSettings
from streamad.simulation.recordings import simulate_batch
from streamad.types import FinishedSequence, Position, Window, WindowSet
from tests.support.data import data_file
from tests.support.sensor_faults import inject_sensor_fault

KINDS = ("stuck", "bias", "drift", "spike", "noise")
MOST_CASES = 40


@dataclass
class Monitor:
    scorer: object
    calibration: Calibration
    reference: object
    rate: float

    def alerts(self, window):
        terms = self.scorer.score(window.values[None], np.array([window.length]))
        return self.calibration.p_value(float(terms.sum(dtype=np.float64)))[0] <= self.rate


def monitor(folder, training, held_out, options, rate):
    detector = make_detector("neutral_ad", options)
    detector.fit(training, seed=0, device="cpu").export(folder)
    scorer = detector.load(folder, device="cpu")
    scores = scorer.score(training.values, training.lengths).sum(axis=1)
    return Monitor(
        scorer,
        Calibration.from_terms(scorer.score(held_out.values, held_out.lengths)),
        reference_windows(training.values, training.lengths, scores),
        rate,
    )


def faulty_windows(sequences, severity, sigma, rng):
    """Yield (sequence number, channel, window) of every kind of fault in every channel, in random order."""
    cases = [(i, c, kind) for i in range(len(sequences)) for c in range(len(sigma)) for kind in KINDS]
    for i, channel, kind in [cases[k] for k in rng.permutation(len(cases))]:
        length = int(sequences.lengths[i])
        sound = sequences.values[i, :, :length].T
        values = np.zeros_like(sequences.values[i])
        values[:, :length] = inject_sensor_fault(sound, channel, kind, rng, severity, sigma[channel]).T
        yield i, channel, Window(values, length)


def first_rate(under_test, sequences, severity, sigma, name):
    rng = np.random.default_rng(0)
    sound = [not under_test.alerts(Window(v, int(n))) for v, n in zip(sequences.values, sequences.lengths, strict=True)]
    injected, first = 0, []
    for i, channel, window in faulty_windows(sequences, severity, sigma, rng):
        if not sound[i]:
            continue
        injected += 1
        if under_test.alerts(window):
            first.append(int(np.argmax(explain(under_test.scorer, window, under_test.reference).shares)) == channel)
        if len(first) == MOST_CASES:
            break
    print(f"\n{name}: {len(first)} of {injected} faults detected, in {np.mean(first):.0%} their channel comes first")
    assert len(first) == MOST_CASES
    return np.mean(first)


def window_set(values, lengths):
    return WindowSet(values.astype(np.float32), lengths.astype(np.int64), tuple(map(str, range(len(values)))))


def spread(windows):
    """Return the standard deviation of each channel over the windows' own lengths."""
    samples = [values[:, :n] for values, n in zip(windows.values, windows.lengths, strict=True)]
    return np.concatenate(samples, axis=1).std(axis=1)


def test_natops(tmp_path):
    with np.load(data_file("natops.npz"), allow_pickle=False) as data:
        of_class = {split: data[f"{split}_x"][data[f"{split}_y"] == 0] for split in ("train", "test")}
    full = np.full(30, 51)
    training, rest = window_set(of_class["train"], full), window_set(of_class["test"], full)
    held_out, sequences = rest.take(list(range(0, 30, 2))), rest.take(list(range(1, 30, 2)))
    under_test = monitor(tmp_path, training, held_out, {"preset": "natops", "epochs": 20}, rate=1 / 16)
    assert first_rate(under_test, sequences, 3.0, spread(training), "NATOPS, 3 standard deviations") >= 0.8


def test_simulated_batches(tmp_path):
    windows = []
    for index in range(110):
        values = simulate_batch(5, index)[0]
        times = np.arange(len(values), dtype=np.int64) * 1_000_000
        sequence = FinishedSequence("fermenter", str(index), "marker", times, values, Position(index, 0))
        windows.append(to_window(sequence, WindowSettings(length=64)))
    every = window_set(np.stack([w.values for w in windows]), np.array([w.length for w in windows]))
    training, held_out, sequences = (every.take(list(range(*part))) for part in ((0, 60), (60, 99), (99, 110)))
    under_test = monitor(tmp_path, training, held_out, {"epochs": 15}, rate=1 / 40)
    assert first_rate(under_test, sequences, 4.0, spread(training), "simulated, 4 standard deviations") >= 0.8
