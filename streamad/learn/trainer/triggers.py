"""When a model is trained without a request: at first, on drift, by schedule, after enough new inliers."""

from __future__ import annotations

from cronsim import CronSim

from streamad.learn.store.records import TrainingRequest
from streamad.learn.trainer.results import TrainingFailed, TrainingResult
from streamad.settings.learning import LearningSettings
from streamad.system.tasks import Backoff
from streamad.types import from_us

_SHORTEST_BACKOFF_US = 60_000_000
_LONGEST_BACKOFF_US = 86_400_000_000


def failed_on_request(result: TrainingResult | None) -> bool:
    """Return whether ``result`` is the failure of a training that an operator requested."""
    return isinstance(result, TrainingFailed) and result.request.reason in {"command", "relearn"}


class Triggers:
    """Decides when training is due, from times that are passed in (Unix microseconds).

    Between two trainings that nobody requested lie at least ``min_interval``, after each failure in a row twice as long
    (up to a day).
    A drift, or a time of the schedule, that falls into such a pause is kept until a training was done; so is a time of
    the schedule at which the process was down. One training satisfies any number of them. A drift that waits is lost
    with the process. If the wall clock is set back, nothing is delayed by more than these pauses.
    """

    def __init__(self, settings: LearningSettings, now_us: int, last_training_us: int | None) -> None:
        self._settings = settings
        self._done_us = now_us if last_training_us is None else last_training_us
        self._tried_us = last_training_us
        self._backoff = Backoff(settings.min_interval, _LONGEST_BACKOFF_US, _SHORTEST_BACKOFF_US)
        self._drift: str | None = None
        self._drift_in_training: str | None = None
        self._next_due: tuple[int, int | None] | None = None

    def due(
        self, now_us: int, *, n_accepted_new: int, n_stored: int, has_model: bool, drifted: str | None
    ) -> TrainingRequest | None:
        """Return the request of a training that is due now, once: the next is not before ``min_interval`` is over.

        ``n_accepted_new``: newly accepted since the last training; ``n_stored``: accepted and reserved in all;
        ``drifted``: what has drifted since the last call.
        """
        self._drift = drifted or self._drift
        self._done_us = min(self._done_us, now_us)
        if self._tried_us is not None:
            self._tried_us = min(self._tried_us, now_us)
            if now_us - self._tried_us < self._backoff.pause_us:
                return None
        request = self._request(now_us, n_accepted_new, n_stored, has_model)
        if request is not None:
            self._tried_us = now_us
            self._drift, self._drift_in_training = None, self._drift
        return request

    def ended(self, result: TrainingResult, now_us: int) -> None:
        """Record the end of a training, whatever its reason: after a failure it is due again, later each time.

        A training that an operator requested and that failed delays none.
        """
        if failed_on_request(result):
            return
        self._tried_us = now_us
        if isinstance(result, TrainingFailed) and result.kind in ("failed", "interrupted"):
            self._drift = self._drift or self._drift_in_training
            if result.kind == "failed":
                self._backoff.failed()
        else:
            self._done_us = now_us
            self._backoff.reset()
        self._drift_in_training = None

    def _request(self, now_us: int, n_accepted_new: int, n_stored: int, has_model: bool) -> TrainingRequest | None:
        settings = self._settings
        if not has_model:
            if n_stored < settings.first_training:
                return None
            return TrainingRequest(reason="first", requested_us=now_us, detail=f"{n_stored} sequences collected")
        if self._drift is not None and settings.on_drift:
            return TrainingRequest(reason="drift", requested_us=now_us, detail=self._drift)
        due_us = self._scheduled_us()
        if due_us is not None and due_us <= now_us:
            due = from_us(due_us).isoformat(timespec="minutes")
            return TrainingRequest(reason="schedule", requested_us=now_us, detail=f"due at {due}")
        if settings.after_inliers is not None and n_accepted_new >= settings.after_inliers:
            return TrainingRequest(reason="inliers", requested_us=now_us, detail=f"{n_accepted_new} new inliers")
        return None

    def _scheduled_us(self) -> int | None:
        """Return the first time of the schedule after the last training, None without one."""
        if self._settings.schedule is None:
            return None
        if self._next_due is None or self._next_due[0] != self._done_us:
            times = CronSim(self._settings.schedule, from_us(self._done_us))
            due = next(times, None)
            self._next_due = (self._done_us, None if due is None else round(due.timestamp() * 1e6))
        return self._next_due[1]
