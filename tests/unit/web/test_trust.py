"""The page Calibration: whether the rate is kept, in words."""

from __future__ import annotations

import pytest

from streamad.web.pages.trust import rate_kept


@pytest.mark.parametrize(
    ("n_judged", "n_alerts", "n_confirmed", "n_calibration", "said"),
    [
        (200, 54, 0, 99, "▲ no: chance gives at most 13"),
        (200, 54, 50, 99, "● too few to say: chance gives 0 to 10"),
        (1_000, 20, 0, 1_000, "● yes"),
        (1_000, 0, 0, 1_000, "● yes"),
        (20, 1, 0, 99, "● too few to say: chance gives 0 to 2"),
        (200, 4, 0, 10, "too few in the calibration to say"),
        (200, 4, 0, None, "too few in the calibration to say"),
    ],
)
def test_the_rate_is_kept_or_not_or_too_few_tell(
    n_judged: int, n_alerts: int, n_confirmed: int, n_calibration: int | None, said: str
) -> None:
    assert rate_kept(n_judged, n_alerts, n_confirmed, 0.02, n_calibration) == said
