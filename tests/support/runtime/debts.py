"""Alerts, and explainers that a test holds back, for tests of attributions."""

from __future__ import annotations

import threading
from typing import Any

from streamad.judge.scoring import ModelInService
from streamad.messages import Alert, ModelRef
from streamad.types import from_us
from tests.support.runtime.pipeline import START_US, SquareScorer, model_of
from tests.support.waiting import LIMIT_S


def alert_of(number: int, version: str = "0001") -> Alert:
    """An alert of sequence ``number``, 5 s long."""
    return Alert(
        alert_id=f"{number:032x}",
        stream="a",
        sequence=f"{number}",
        reason="marker",
        start_time=from_us(START_US),
        end_time=from_us(START_US + 4_000_000),
        n_samples=5,
        score=300.0,
        p_value=0.005,
        false_alarm_rate=0.02,
        tail="empirical",
        model=ModelRef("test", version),
        created_at=from_us(START_US + number),
    )


class Explaining:
    """A loader whose scorers wait for ``gate`` and fail by ``failure``; ``loads`` are the models loaded."""

    def __init__(self, *, is_open: bool = True) -> None:
        self.gate = threading.Event()
        if is_open:
            self.gate.set()
        self.failure: BaseException | None = None
        self.load_failure: BaseException | None = None
        self.loads: list[ModelRef] = []
        self.n_waiting = 0

    def __call__(self, ref: ModelRef) -> ModelInService:
        self.loads.append(ref)
        if self.load_failure is not None:
            raise self.load_failure
        return model_of(_Held(self))


class _Held(SquareScorer):
    def __init__(self, held: Explaining) -> None:
        super().__init__()
        self._held = held

    def score(self, windows: Any, lengths: Any) -> Any:
        self._held.n_waiting += 1
        assert self._held.gate.wait(LIMIT_S)
        if self._held.failure is not None:
            raise self._held.failure
        return super().score(windows, lengths)
