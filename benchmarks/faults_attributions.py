"""Attributions under kills: how many were lost, repeated or before their alert, and how many kills met open debts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any


def attribution_figures(
    alerts: Iterable[Mapping[str, Any]],
    attributions: Sequence[Mapping[str, Any]],
    *,
    before_their_alert: int,
    kills_with_debts: int,
) -> dict[str, int]:
    """Return the figures of ``attributions`` for the ``alerts`` of an undisturbed run, by alert_id."""
    wanted = {str(alert["alert_id"]) for alert in alerts}
    found = Counter(str(each["alert_id"]) for each in attributions)
    return {
        "attributions": len(attributions),
        "attributions_lost": len(wanted - found.keys()),
        "attributions_repeated": sum(n - 1 for n in found.values()),
        "attributions_before_their_alert": before_their_alert,
        "attributions_without_reasons": sum(each["method"] == "none" for each in attributions),
        "kills_with_open_debts": kills_with_debts,
    }


def n_early(alerts_s: Mapping[str, float], attributions_s: Iterable[tuple[str, float]]) -> int:
    """Return how many attributions have no alert, or were sent before it; both by alert_id, with their times."""
    return sum(name not in alerts_s or sent_s < alerts_s[name] for name, sent_s in attributions_s)


def n_amid_debts(kills_s: Iterable[float], alerts_s: Mapping[str, float], attributions_s: Mapping[str, float]) -> int:
    """Return during how many ``kills_s`` an alert was there whose attribution came later."""
    spans = [(sent_s, attributions_s.get(name, float("inf"))) for name, sent_s in alerts_s.items()]
    return sum(any(begin_s <= kill_s < end_s for begin_s, end_s in spans) for kill_s in kills_s)
