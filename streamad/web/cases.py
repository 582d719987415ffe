"""What is known of a judged sequence: from the view, and of the model that judged it."""

from __future__ import annotations

import json
import math
from datetime import timedelta
from typing import cast

from streamad.messages import Attribution, Decision, EndReason, ModelRef, Tail
from streamad.outputs.cases import Case, Normal, Normals, courses_of_message
from streamad.pictures.content import times_of
from streamad.pictures.facts import Facts
from streamad.plant import Plant
from streamad.types import from_us
from streamad.web.store.alerts import Limit
from streamad.web.store.questions import ContentError
from streamad.web.store.view import SeenSequence, View

_MOST_LIMITS = 1_000


class Cases:
    """Joins what a page shows of a sequence. ``normals``: what models know of normal sequences."""

    def __init__(self, plant: Plant, view: View) -> None:
        self._plant, self._view = plant, view
        self.normals = Normals(plant)
        self._limits: dict[tuple[str, str, float], float] = {}

    def of(self, one: SeenSequence) -> tuple[Case, Normal]:
        """Return what is known of a sequence, and what its model knows of normal ones."""
        facts = facts_of(one, self._plant.settings.alerts.false_alarm_rate)
        courses = missing = None
        try:
            message = self._view.window(one.id)
            courses = None if message is None else courses_of_message(message, facts, self._plant.settings)
        except (ContentError, ValueError) as error:
            missing = f"No curve: {error}."
        return Case(facts, self._attribution(one, facts), courses, missing), self.normals.of(facts)

    def limits(self) -> list[Limit]:
        """Return from which score on each version of the alerts raised them, where that is known and above 0."""
        needed = self._view.limits_needed()
        found = ((each, self.limit(*each)) for each in needed)
        return [Limit(*each, score) for each, score in found if score is not None]

    def times(self, one: SeenSequence) -> float | None:
        """Return how many times its threshold a score is; None if that is not known, or no measure of height."""
        rate = self._plant.settings.alerts.false_alarm_rate if one.rate is None else one.rate
        if one.model is None or one.version is None or one.score is None:
            return None
        limit = self.limit(one.model, one.version, rate)
        return None if limit is None else times_of(one.score, limit)

    def limit(self, model: str, version: str, rate: float) -> float | None:
        """Return the lowest score that alerts, kept once known; None if it is unknown, or not above 0."""
        key = model, version, rate
        if key not in self._limits:
            calibration = self.normals.of_model(ModelRef(model, version), rate).calibration
            if calibration is None:
                return None
            if len(self._limits) > _MOST_LIMITS:
                self._limits.clear()
            self._limits[key] = calibration.alert_score(rate)
        limit = self._limits.get(key, math.inf)
        return limit if 0 < limit < math.inf else None

    def _attribution(self, one: SeenSequence, facts: Facts) -> Attribution | None:
        """Return the attribution of an alert, None if none was read; a damaged one gives no reasons and says so."""
        try:
            return self._view.attribution(one.id)
        except ContentError as error:
            return Attribution(
                alert_id=one.id, stream=one.stream, sequence=one.sequence, score=facts.score or 0.0, terms=[],
                channels=[], dominating_transformation=0, method="none", tail=facts.tail or "empirical",
                model=facts.model or ModelRef("unknown", ""), detail=str(error), created_at=facts.created_at,
            )  # fmt: skip


def facts_of(one: SeenSequence, rate: float) -> Facts:
    """Return the facts of a sequence as its messages said them."""
    end = from_us(one.end_us or 0)
    start = from_us(one.start_us) if one.start_us is not None else end - timedelta(0)
    model = ModelRef(one.model, one.version) if one.model is not None and one.version is not None else None
    decision = "anomalous" if one.is_alert else one.decision
    score = one.score if one.score is not None and math.isfinite(one.score) else None
    return Facts(
        id=one.id,
        stream=one.stream,
        sequence=one.sequence,
        decision=cast("Decision", decision or "normal"),
        reason=cast("EndReason", one.reason or "marker"),
        start_time=start,
        end_time=end,
        n_samples=one.n_samples or 0,
        created_at=from_us(one.created_us or one.end_us or 0),
        score=score,
        p_value=one.p_value,
        tail=cast("Tail | None", one.tail),
        rate=one.rate if one.rate is not None else rate,
        model=model,
        detail=one.detail,
        n_merged=one.n_merged or 0,
        n_late=one.n_late or 0,
        batch={} if one.batch is None else json.loads(one.batch),
    )
