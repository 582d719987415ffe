"""A plant that runs and learns: batches judged by the champion, kept by the gate's rules, a retraining when asked."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from streamad.judge.calibration import Calibration
from streamad.judge.early.course import Course
from streamad.judge.early.packing import packed
from streamad.judge.gate import is_reserved
from streamad.learn.parts import store_for
from streamad.learn.registry.manifest import LearningRecord, Manifest, PromotionDecision
from streamad.learn.registry.registry import Registry
from streamad.learn.store.inliers import InlierStore
from streamad.learn.store.records import Mark, MarkKind, StoredSequence, TrainingReason, TrainingRequest
from streamad.learn.trainer.challenge import Workshop
from streamad.learn.trainer.results import TrainingOutcome
from streamad.learn.trainer.retrain import Retraining
from streamad.learn.training.fits import FitProgress
from streamad.messages import Decision, Share
from streamad.plant import Plant
from streamad.settings.plant_yaml import Settings
from streamad.types import Window
from tests.support.learning.plant import NOW_US, C, FixedClock, L, MeanDetector, load, settings_of, taken_as_proved

MODEL = "default"
RATE = 0.1
"""Configured false-alarm rate: 9 calibration sequences certify it."""
NEED = {"reserve": 0.4, "min_training": 20, "first_training": 40, "trim": 0.0}


class Life:
    """One plant in ``root``; its i-th batch ends in second i, and all of them ended before ``NOW_US``.

    With ``early`` (of ``alerts``) what looks have seen of a batch is kept, as long as ``keeps_courses``.
    """

    def __init__(
        self, root: Path, *, rate: float = RATE, seed: int = 0, early: dict[str, Any] | None = None, **learning: Any
    ) -> None:
        self.root = root
        self.rng = np.random.default_rng(seed)
        self.settings: Settings = settings_of(
            alerts={"false_alarm_rate": rate, "early": early}, learning={"store": "inliers", **NEED, **learning}
        )
        self.keeps_courses = early is not None
        assert self.settings.learning is not None
        self.learning = self.settings.learning
        self.registry = Registry(root / "registry", needs_approvals=self.settings.needs_approvals)
        self.detector = MeanDetector()
        self.course = np.sin(np.linspace(0, 3, L)) * np.array([[1.0], [5.0], [20.0]])
        self.n = 0
        self.store = self.open_store()

    def open_store(self) -> InlierStore:
        """The store as another process would open it."""
        store = store_for(Plant(self.settings, self.root, FixedClock()), MODEL)
        store.open()
        return store

    def windows(self, n: int, shift: float = 0.0, shifted_share: float = 1.0) -> list[Window]:
        """``n`` batches around a common course; in a share of them one channel reads off by ``shift``."""
        values = self.course + self.rng.normal(0, 0.3, (n, C, L))
        values[self.rng.random(n) < shifted_share, 0] += shift
        return [Window(each.astype(np.float32), L) for each in values]

    def make(self, n: int, shift: float = 0.0, shifted_share: float = 1.0) -> list[tuple[StoredSequence, Share]]:
        """``n`` batches, each judged by the champion, if there is one, and where it belongs."""
        judge = self.judge()
        made = [self._sequence(window, judge) for window in self.windows(n, shift, shifted_share)]
        return [(sequence, self._share(sequence)) for sequence in made]

    def run(self, n: int, shift: float = 0.0, shifted_share: float = 1.0) -> list[tuple[StoredSequence, Share]]:
        """Let ``n`` batches flow by and keep them."""
        made = self.make(n, shift, shifted_share)
        for sequence, share in made:
            assert self.store.offer(sequence, share)
        self.store.flush()
        return made

    def judge(self) -> Callable[[Window], tuple[Decision, float | None, str | None]]:
        version = self.registry.current(MODEL)
        if version is None:
            return lambda _: ("learning", None, None)
        champion = load(self.registry, version, settings=self.settings)
        rate = self.settings.alerts.false_alarm_rate
        calibration = Calibration.from_terms(champion.calibration_terms, rate)

        def judged(window: Window) -> tuple[Decision, float | None, str | None]:
            terms = champion.scorer.score(window.values[None], np.array([window.length]))
            p, _ = calibration.p_value(float(terms.sum(dtype=np.float64)))
            return ("anomalous" if p <= rate else "normal"), p, version

        return judged

    def _sequence(self, window: Window, judge: Any) -> StoredSequence:
        decision, p_value, version = judge(window)
        time_us = NOW_US - (100_000 - self.n) * 1_000_000
        self.n += 1
        name, judged = f"B-{self.n}", {"p_value": p_value, "model_version": version}
        course = Course(window.values[:, : L - 1], np.ones((C, L - 1), np.bool_))
        seen = packed(course, window.values) if self.keeps_courses else None
        return StoredSequence(name, "r1", name, time_us, time_us, window, decision, course=seen, **judged)

    def _share(self, sequence: StoredSequence) -> Share:
        if is_reserved(sequence.stream, sequence.sequence, self.learning.reserve):
            return "reserve"
        p = sequence.p_value
        return "accepted" if p is None or p > max(self.learning.accept_above, RATE) else "aside"

    def mark(self, sequences: list[StoredSequence], word: MarkKind) -> None:
        for number, each in enumerate(sequences):
            self.store.mark(Mark(id=each.id, judgement=word, at_us=NOW_US + number))

    def retrain(
        self,
        reason: TrainingReason = "command",
        *,
        since_us: int | None = None,
        detector: MeanDetector | None = None,
        progress: FitProgress | None = None,
        **more: Any,
    ) -> TrainingOutcome:
        workshop = Workshop(
            detector=detector or self.detector,
            settings=more.pop("settings", self.settings),
            model=MODEL,
            registry=self.registry,
            clock=FixedClock(),
            prove=more.pop("prove", taken_as_proved),
            progress=progress,
        )
        request = TrainingRequest(reason=reason, requested_us=NOW_US, since_us=since_us)
        return Retraining(store=self.open_store(), workshop=workshop, request=request, **more).run()

    def manifest(self, version: str) -> Manifest:
        return self.registry.manifest(MODEL, version)

    def decision(self, version: str) -> PromotionDecision:
        decision = self.manifest(version).decision
        assert decision is not None
        return decision

    def record(self, version: str) -> LearningRecord:
        record = self.manifest(version).learning
        assert record is not None
        return record

    @property
    def champion(self) -> str | None:
        return self.registry.current(MODEL)
