"""The acceptance gate, and the window records that carry its decision to the readers of the outputs.

The gate is pure: docs/learning/inliers.md has its rules; tests/unit/judge/test_gate.py has a test for each.
"""

from __future__ import annotations

import hashlib
from base64 import b64encode
from hashlib import blake2b
from typing import Literal

import msgspec

from streamad.judge.bank import Batchers
from streamad.judge.early.course import Course, whole_course
from streamad.judge.early.packing import packed
from streamad.judge.judging import JudgedSequence
from streamad.messages import ModelRef, Share, Verdict, packed_values
from streamad.messages import Window as WindowMessage
from streamad.settings.learning import LearningSettings
from streamad.settings.outputs import DisplaySettings
from streamad.settings.plant_yaml import Settings
from streamad.types import ChannelSpec, FinishedSequence, Window

_SHOWN_SHARE = 0.05


def gate(verdict: Verdict, *, settings: LearningSettings, champion: ModelRef | None) -> Share | None:
    """Return the share of the sequence of ``verdict``, None if it is not kept.

    ``champion`` is the model in service, or None. A verdict of another version is never accepted, nor a ``learning``
    verdict once a model serves. No word of an operator moves a sequence.
    """
    if verdict.decision == "unscorable":
        return None
    if is_reserved(verdict.stream, verdict.sequence, settings.reserve):
        return "reserve"
    return "accepted" if _is_accepted(verdict, settings.accept_above, champion) else "aside"


def _is_accepted(verdict: Verdict, accept_above: float, champion: ModelRef | None) -> bool:
    if verdict.model != champion:
        return False
    if verdict.decision == "learning":
        return True
    is_judged = verdict.decision == "normal" and champion is not None
    return is_judged and verdict.p_value is not None and verdict.p_value > accept_above


def is_reserved(stream: str, sequence: str, share: float) -> bool:
    """Return whether the sequence belongs to the reserve, by a hash of its name alone, so before it is scored.

    True for ``share`` of all names in the long run, whatever their pattern; the same in every process and release.
    """
    return _draw("reserve", stream, sequence) < share


def reserve_half(stream: str, sequence: str) -> Literal["calibration", "comparison"]:
    """Return the half of the reserve that a sequence belongs to, by a second, independent hash."""
    return "calibration" if _draw("half", stream, sequence) < 0.5 else "comparison"


def _draw(purpose: str, stream: str, sequence: str) -> float:
    """Return a number in [0, 1) that depends on its arguments alone, uniform over names."""
    name = msgspec.json.encode([stream, sequence])  # unlike joined text, an array cannot mean two names
    digest = blake2b(name, digest_size=8, person=purpose.encode()).digest()
    return (int.from_bytes(digest, "big") >> 11) / 2**53


class WindowRecords:
    """Makes at most one record for each judged sequence, for the commit that holds its verdict.

    If the plant learns, every sequence that the gate gives a share has one: the share is decided here, by the model in
    service now, and never again. Otherwise ``display.windows`` decides.
    """

    def __init__(self, settings: Settings, batchers: Batchers) -> None:
        self._settings = settings
        self._channels = settings.channel_specs
        self._batchers = batchers

    def of(self, judged: JudgedSequence, sequence: FinishedSequence) -> WindowMessage | None:
        """Return the record of ``judged``, None if its window is wanted by nobody. An unscorable one has no window.

        If looks are wanted, it has the course of ``sequence`` for the learner, who fits them.
        """
        verdict, window = judged.verdict, judged.window
        if window is None:
            return None
        share = self._share_of(judged)
        if share is None and not is_shown(
            verdict.verdict_id, alerted=verdict.decision == "anomalous", display=self._settings.display
        ):
            return None
        wants_looks = share is not None and self._settings.alerts.early is not None
        course = whole_course(sequence, self._settings.window) if wants_looks else None
        return make_window(verdict, window, self._channels, share, judged.model_name or None, course=course)

    def _share_of(self, judged: JudgedSequence) -> Share | None:
        learning = self._settings.learning
        if learning is None:  # nobody would read it
            return None
        return gate(judged.verdict, settings=learning, champion=self._champion(judged.model_name))

    def _champion(self, name: str) -> ModelRef | None:
        return next((model.ref for model in self._batchers.models if model.ref.name == name), None)


def make_window(
    verdict: Verdict,
    window: Window,
    channels: tuple[ChannelSpec, ...],
    share: Share | None = None,
    model_name: str | None = None,
    *,
    course: Course | None = None,
) -> WindowMessage:
    """Return the record of the judged ``window`` of ``verdict``, without its padding."""
    values = window.values[:, : window.length]
    return WindowMessage(
        verdict_id=verdict.verdict_id,
        stream=verdict.stream,
        sequence=verdict.sequence,
        start_time=verdict.start_time,
        end_time=verdict.end_time,
        n_samples=verdict.n_samples,
        model=verdict.model,
        channels=[channel.name for channel in channels],
        units=[channel.unit for channel in channels],
        length=window.length,
        values=packed_values(values),
        alerted=verdict.decision == "anomalous",
        share=share,
        model_name=model_name,
        decision=verdict.decision,
        score=verdict.score,
        p_value=verdict.p_value,
        created_at=verdict.created_at,
        course=msgspec.UNSET if course is None else b64encode(packed(course, values)).decode("ascii"),
    )


def is_shown(verdict_id: str, *, alerted: bool, display: DisplaySettings) -> bool:
    """Return whether the window of a verdict is kept for people: of an alert, of a drawn 5 %, or of all.

    Of a hash of ``verdict_id`` the first 32 bits decide: so the draw is independent of any other that uses its digits.
    """
    if alerted or display.windows == "all":
        return True
    digest = hashlib.sha256(f"window {verdict_id}".encode()).digest()
    return int.from_bytes(digest[:4], "big") < _SHOWN_SHARE * 2**32
