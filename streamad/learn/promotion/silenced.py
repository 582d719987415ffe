"""The alerts of the champion that a challenger would not raise: what a person has to look at before a promotion."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime

import msgspec

from streamad.learn.promotion.operating import OperatingPoint, standing_apart
from streamad.learn.registry.artifact import LoadedModel
from streamad.learn.store.records import Mark, MarkKind, StoredSequence
from streamad.learn.training.selection import to_windows
from streamad.types import from_us


class SilencedAlert(msgspec.Struct, frozen=True, kw_only=True):
    """A stored alert that the champion would raise again and the challenger would not.

    ``judgement`` is the latest mark on it, None without one; ``p_champion`` and ``p_challenger`` are its p-values now.
    """

    alert_id: str
    stream: str
    sequence: str
    ended_at: datetime
    judgement: MarkKind | None
    p_champion: float
    p_challenger: float


class Silenced(msgspec.Struct, frozen=True, kw_only=True):
    """Of ``n_raised`` stored alerts that the champion would raise again, those that the challenger would not.

    The latest come first. Nothing is decided by them.
    """

    n_raised: int
    alerts: tuple[SilencedAlert, ...]

    def count(self, judgement: MarkKind | None) -> int:
        """Return how many of ``alerts`` have the latest mark ``judgement`` (None: no mark)."""
        return sum(each.judgement == judgement for each in self.alerts)

    @property
    def n_without_mark(self) -> int:
        """Return on how many of ``alerts`` nobody has said anything that still holds."""
        return self.count(None) + self.count("withdrawn")


def silenced(
    champion: OperatingPoint, challenger: OperatingPoint, alerts: Sequence[StoredSequence], marks: Mapping[str, Mark]
) -> Silenced:
    """Return which of ``alerts``, stored sequences that alerted when they were judged, ``challenger`` would silence.

    Raises DetectorError for scores that are not finite.
    """
    if not alerts:
        return Silenced(n_raised=0, alerts=())
    windows, rate = to_windows(alerts), champion.rate
    theirs, ours = champion.p_values(windows), challenger.p_values(windows)

    def found() -> Iterator[SilencedAlert]:
        for i, each in enumerate(alerts):
            if theirs[i] <= rate < ours[i]:
                mark = marks.get(each.id)
                yield SilencedAlert(
                    alert_id=each.id,
                    stream=each.stream,
                    sequence=each.sequence,
                    ended_at=from_us(each.time_us),
                    judgement=None if mark is None else mark.judgement,
                    p_champion=float(theirs[i]),
                    p_challenger=float(ours[i]),
                )

    latest_first = sorted(found(), key=lambda each: (each.ended_at, each.alert_id), reverse=True)
    return Silenced(n_raised=int((theirs <= rate).sum()), alerts=tuple(latest_first))


def still_raised(model: LoadedModel, sequences: Sequence[StoredSequence], rate: float) -> tuple[str, ...]:
    """Return the ids of ``sequences`` on which ``model`` alerts, and not by chance (see ``standing_apart``).

    Raises DetectorError for scores that are not finite.
    """
    if not sequences:
        return ()
    is_raised = standing_apart(model, to_windows(sequences), rate)
    return tuple(sorted(each.id for each, is_one in zip(sequences, is_raised, strict=True) if is_one))
