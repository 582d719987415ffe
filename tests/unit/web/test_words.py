"""Sentences of the page that state rates: how many alerts are false by the rate, and how often people agreed."""

from __future__ import annotations

from collections import Counter

import pytest

from streamad.web.pages.now import budget_text
from streamad.web.pages.trust import precision


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ((0, 0, 0.02, 99), "0 alerts in the last 0 judged sequences."),
        (
            (1, 1, 0.02, None),
            "1 alert in the last 1 judged sequence. "
            "If all were normal, 2 % of them would be false alarms: 0.02 on average.",
        ),
        (
            (40, 11, 0.02, 99),
            "11 alerts in the last 40 judged sequences. "
            "If all were normal, 2 % of them would be false alarms: 0.8 on average, by chance 0 to 3.",
        ),
    ],
)
def test_alerts_stand_beside_the_false_alarms_of_the_rate(given: tuple[int, int, float, int | None], text: str) -> None:
    assert budget_text(*given) == text


@pytest.mark.parametrize(
    ("marks", "text"),
    [
        (
            {"confirmed": 1},
            "Anomalies among the judged alerts: 1 of 1, 100 % (2 % to 100 %). 1 confirmed.",
        ),
        (
            {"confirmed": 3, "false_alarm": 1},
            "Anomalies among the judged alerts: 3 of 4, 75 % (19 % to 99 %). 3 confirmed, 1 false alarm.",
        ),
    ],
)
def test_the_share_of_anomalies_is_that_of_the_judged_alerts(marks: dict[str, int], text: str) -> None:
    assert precision(Counter(marks)).replace("\u00a0", " ") == text
