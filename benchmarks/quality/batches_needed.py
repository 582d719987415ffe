"""How many normal batches a false-alarm rate needs: the tables of docs/guide/batches.md.

From the rule of calibration alone (streamad/judge/calibration.py): with n calibration sequences "alert if p <= r"
alerts on floor(r (n + 1)) of n + 1 ranks, so the rate of one calibration set has a Beta distribution (Vovk 2012,
Conditional validity of inductive conformal predictors, proposition 2a).
Run: ``python -m benchmarks.quality.batches_needed``.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator

from scipy.stats import beta

from streamad.judge.calibration import OUT_OF_FOLD_BELOW, calibration_count, certifiable_rate

RATES = (0.1, 0.05, 0.02, 0.01, 0.005, 0.001)
RECORDINGS = (30, 60, 100, 149, 150, 200, 300, 400, 1000, 2000)
SHARE = 0.5
"""The default of ``model.calibration``."""
_MOST = 100_000
_ROUNDING = 1e-9


def calibration_needed(rate: float) -> int:
    """Return the fewest calibration sequences that certify ``rate``."""
    return next(n for n in range(1, _MOST) if certifiable_rate(n) <= rate + _ROUNDING)


def recordings_needed(n_calibration: int, rate: float) -> int:
    """Return the fewest recordings of which ``streamad train`` holds out ``n_calibration``, at the default share."""
    counts = range(OUT_OF_FOLD_BELOW, _MOST)
    return next(n for n in counts if calibration_count(n, SHARE, rate) >= n_calibration)


def achieved(n_calibration: int, rate: float) -> tuple[float, float, float]:
    """Return the mean false-alarm rate over calibration sets, and its 95 % range; the rate must be certified."""
    ranks = math.floor(rate * (n_calibration + 1) + _ROUNDING)
    law = beta(ranks, n_calibration + 1 - ranks)
    return ranks / (n_calibration + 1), float(law.ppf(0.025)), float(law.ppf(0.975))


def within_twice(rate: float) -> int:
    """Return the fewest calibration sequences, of those that give the rate exactly, with P(rate <= 2 rate) >= 0.95."""
    ranks = next(k for k in range(1, _MOST) if beta(k, round(k / rate) - k).cdf(2 * rate) >= 0.95)
    return round(ranks / rate) - 1


def _percent(share: float) -> str:
    return f"{100 * share:.2g} %"


def by_rate() -> Iterator[str]:
    """Yield the rows: what each rate needs."""
    for rate in RATES:
        least = calibration_needed(rate)
        _, low, high = achieved(least, rate)
        precise = within_twice(rate)
        yield (
            f"| {_percent(rate)} | {least} | {recordings_needed(least, rate)} | {_percent(low)} to {_percent(high)} "
            f"| {precise} | {recordings_needed(precise, rate)} |"
        )


def by_recordings(rates: Iterable[float] = (0.05, 0.02, 0.01)) -> Iterator[str]:
    """Yield the rows: what so many recordings give at each rate."""
    for n in RECORDINGS:
        if n < OUT_OF_FOLD_BELOW:
            cells = ["not certified" if _is_certified(n, rate) else "extrapolated" for rate in rates]
            yield f"| {n} | out of fold | {n} | {' | '.join(cells)} |"
            continue
        counts = [calibration_count(n, SHARE, rate) for rate in rates]
        cells = [_held_out(count, rate) for count, rate in zip(counts, rates, strict=True)]
        spread = f"{min(counts)} to {max(counts)}" if len(set(counts)) > 1 else f"{counts[0]}"
        yield f"| {n} | held out | {spread} | {' | '.join(cells)} |"


def _is_certified(n: int, rate: float) -> bool:
    return certifiable_rate(n) <= rate + _ROUNDING


def _held_out(n: int, rate: float) -> str:
    if not _is_certified(n, rate):
        return "extrapolated"
    _, low, high = achieved(n, rate)
    return f"{_percent(low)} to {_percent(high)}"


if __name__ == "__main__":
    print("By rate:", *by_rate(), "By recordings:", *by_recordings(), sep="\n")
