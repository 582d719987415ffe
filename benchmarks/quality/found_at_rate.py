"""How true is what `train` says of injected faults at the configured rate: coverage, claims, and estimates of more.

Normal scores are drawn from four laws, faulty ones from the scores of the first 20 by factors that differ by kind,
strength and sequence; so the share that a threshold finds is known. Per law and number of calibration sequences:

- ``covered``: how often the 90 % interval holds the share that this very threshold finds in further sequences;
  ``drawn``: the same if the calibration is drawn anew as well, and of the mean over trainings (``of mean``);
- ``claims``: how often a detector with the same laws, and scores that are related, is called better;
- ``error``: the mean of estimate less truth with 2 and 4 times as many, in points, and the error of one estimate.

Run: ``python -m benchmarks.quality.found_at_rate [--repeats 200] [--rate 0.02] [--sizes 10 25 50 99 199]``.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from streamad.judge.calibration import Calibration
from streamad.learn.training.found import DRAWS, Judged, exact_count, quantiles, shares_by_draws

Scores = npt.NDArray[np.float64]
Rng = np.random.Generator
LAWS: dict[str, Callable[[Rng, int], Scores]] = {
    "lognormal": lambda rng, n: np.exp(rng.normal(0.0, 0.2, n)),
    "gamma": lambda rng, n: rng.gamma(9.0, 1 / 9, n),
    "heavy tail": lambda rng, n: np.exp(0.15 * rng.standard_t(4, n)),
    "two groups": lambda rng, n: np.exp(rng.normal(0.0, 0.1, n) + 0.4 * (rng.random(n) < 0.08)),
}
GAINS = np.outer(np.linspace(0.0, 0.9, 6), [0.5, 1.0, 2.0]).ravel()
"""Logarithms of the factors: six kinds of faults, each at three strengths."""
N_BASES = 20
N_TRUTH = 300


def faulty(rng: Rng, normal: Scores) -> Scores:
    """Return the scores [N, 18] of normal windows [N] with each fault; how much it shows differs by window."""
    shows = rng.normal(1.0, 0.4, (len(normal), 1)) * (1.0 + 0.3 * rng.normal(size=(len(normal), len(GAINS))))
    scores: Scores = normal[:, None] * np.exp(np.maximum(GAINS * shows, 0.0))
    return scores


def judged(rng: Rng, normal: Scores, rate: float) -> Judged:
    """Return faults in the first 20 windows, judged by all of ``normal`` [n]."""
    n = min(N_BASES, len(normal))
    scores = faulty(rng, normal[:n]).ravel()
    return Judged(scores, np.repeat(np.arange(n), len(GAINS)), normal.astype(np.float32)[:, None], rate)


class Truth:
    """The share that a threshold finds, by 20,000 windows with each fault."""

    def __init__(self, rng: Rng, law: str, rate: float) -> None:
        self.rng, self.draw, self.rate = rng, LAWS[law], rate
        self.scores = np.sort(faulty(rng, self.draw(rng, 20_000)).ravel())

    def beyond(self, threshold: float) -> float:
        """Return the share found by ``threshold``."""
        return 1.0 - float(np.searchsorted(self.scores, threshold, side="left")) / len(self.scores)

    def mean(self, n: int) -> float:
        """Return the mean share over trainings with ``n`` calibration sequences."""
        drawn = (self.draw(self.rng, n).astype(np.float32)[:, None] for _ in range(N_TRUTH))
        found = [self.beyond(Calibration.from_terms(terms, self.rate).alert_score(self.rate)) for terms in drawn]
        return float(np.mean(found))


def measure(law: str, n: int, rate: float, repeats: int) -> str:
    """Return a row of the table."""
    rng = np.random.default_rng(0)
    truth = Truth(rng, law, rate)
    mean = truth.mean(n)
    more = {n_more: truth.mean(n_more) for n_more in dict.fromkeys(exact_count(times * n, rate) for times in (2, 4))}
    covered, claims, errors = np.zeros((2, 2)), 0, []
    for _ in range(repeats):
        normal = truth.draw(rng, n)
        ours = judged(rng, normal, rate)
        here = truth.beyond(ours.calibration.alert_score(rate))
        drawn = shares_by_draws(ours, 0)
        of_both = quantiles(drawn[np.arange(DRAWS) % len(drawn), np.arange(DRAWS)], len(np.unique(ours.bases)))
        for row, (low, high) in zip(covered, (ours.interval(), of_both), strict=True):
            row += [low <= here <= high, low <= mean <= high]
        related = LAWS[law](rng, n)
        claims += ours.gain_of(judged(rng, np.where(rng.random(n) < 0.5, normal, related), rate))[0] > 0
        errors.append([one.share - more[one.n_calibration] for one in ours.with_more()])
    (here_alone, mean_alone), (here_both, mean_both) = 100 * covered / repeats
    wrong = 100 * np.array(errors)
    told = ", ".join(
        f"{n_more}: {error:+.1f} (one {spread:.0f})"
        for n_more, error, spread in zip(more, wrong.mean(axis=0), wrong.std(axis=0), strict=False)
    )
    return (
        f"| {law} | {n} | {100 * mean:.0f} | {here_alone:.0f} | {mean_alone:.0f} | {here_both:.0f} | {mean_both:.0f} "
        f"| {100 * claims / repeats:.1f} | {told or 'none said'} |"
    )


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=200)
    parser.add_argument("--rate", type=float, default=0.02)
    parser.add_argument("--sizes", type=int, nargs="+", default=[10, 25, 50, 99, 199])
    arguments = parser.parse_args()
    print("| law | n | found, % | covered | of mean | drawn | of mean | claims, % | error with more, points |")
    print("|---|---|---|---|---|---|---|---|---|")
    for law in LAWS:
        for n in arguments.sizes:
            print(measure(law, n, arguments.rate, arguments.repeats), flush=True)


if __name__ == "__main__":
    main()
