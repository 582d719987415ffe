"""Sentences of the page that state rates: how many alerts are false by the rate, and how often people agreed."""

from __future__ import annotations

from collections import Counter

import pytest

from streamad.web.pages.now import Budget, budget_of
from streamad.web.pages.trust import precision


@pytest.mark.parametrize(
    ("given", "is_more", "text"),
    [
        ((0, 0, 0.02, 99), False, "0 alerts in the last 0 judged sequences."),
        (
            (1, 1, 0.02, None), False,
            "1 alert in the last 1 judged sequence; if all were normal, a rate of 2\u00a0% gives 0.02 on average.",
        ),
        (
            (40, 4, 0.02, 99), True,
            "4 alerts in the last 40 judged sequences, where chance gives 0.8 (0 to 3) at a rate of 2\u00a0% "
            "if all are normal",
        ),
        (
            (40, 3, 0.02, 99), False,
            "3 alerts in the last 40 judged sequences: as many as chance gives if all are normal "
            "(0 to 3, 0.8 on average at a rate of 2\u00a0%).",
        ),
        (
            (1000, 1, 0.02, 999), False,
            "1 alert in the last 1000 judged sequences: fewer than chance gives if all are normal "
            "(9 to 34, 20 on average at a rate of 2\u00a0%).",
        ),
    ],
)  # fmt: skip
def test_alerts_stand_beside_those_of_chance_and_more_are_said_to_be_more(
    given: tuple[int, int, float, int | None], is_more: bool, text: str
) -> None:
    assert budget_of(*given) == Budget(is_more, text)


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
