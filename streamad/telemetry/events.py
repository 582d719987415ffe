"""Events for the operator: in the log or on the terminal at once, on the events sink with the next commit."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Mapping
from typing import Literal, Protocol, TypeAlias

from streamad.messages import Event, ModelRef, OutputRecord
from streamad.ports import Clock
from streamad.safe_text import masked
from streamad.telemetry.logs import get_status_logger
from streamad.types import from_us

_MAX_WAITING = 1000
Level: TypeAlias = Literal["info", "warning", "error"]


class Emit(Protocol):
    """Emits an event about a model or a stream: ``EventLog.emit``."""

    def __call__(
        self,
        kind: str,
        message: str,
        *,
        stream: str | None = None,
        model: ModelRef | None = None,
        figures: Mapping[str, float] | None = None,
        level: Level = "warning",
        waits: bool = True,
    ) -> Event:
        """Emit the event."""


class EventLog:
    """Logs events, or calls ``on_event`` for each instead, and keeps them for the next commit.

    At most the latest 1,000 are kept, because a worker without a partition may never commit.
    """

    def __init__(self, plant: str, clock: Clock, on_event: Callable[[Event], None] | None = None) -> None:
        self._clock = clock
        self._on_event = on_event
        self._log = get_status_logger().bind(plant=plant)
        self._waiting: deque[Event] = deque(maxlen=_MAX_WAITING)
        self.counts: Counter[str] = Counter()
        """Events so far, by kind."""

    def __len__(self) -> int:
        return len(self._waiting)

    def emit(
        self,
        kind: str,
        message: str,
        *,
        partition: str | None = None,
        stream: str | None = None,
        model: ModelRef | None = None,
        figures: Mapping[str, float] | None = None,
        level: Level = "warning",
        waits: bool = True,
    ) -> Event:
        """Emit an event of ``kind``, a stable identifier; the log shows it at any verbosity, at ``level``.

        It waits for the next commit, or (``waits`` False) the caller commits it.
        """
        event = Event(
            kind=kind,
            message=masked(message),
            partition=partition,
            stream=stream,
            model=model,
            figures=dict(figures or {}),
            created_at=from_us(self._clock.now_us()),
        )
        self.counts[kind] += 1
        if waits:
            self._waiting.append(event)
        if self._on_event is not None:
            self._on_event(event)
            return event
        version = None if model is None else f"{model.name} {model.version}"
        named = {"partition": partition, "stream": stream, "model": version}
        where = {key: name for key, name in named.items() if name is not None}
        getattr(self._log, level)(kind, message=event.message, **where, **event.figures)
        return event

    def take(self) -> list[Event]:
        """Return the events that wait for a commit, and forget them."""
        taken = list(self._waiting)
        self._waiting.clear()
        return taken

    def give_back(self, events: list[Event]) -> None:
        """Keep ``events`` again, because their commit failed."""
        self._waiting = deque([*events, *self._waiting], maxlen=_MAX_WAITING)

    @staticmethod
    def records(events: list[Event]) -> list[OutputRecord]:
        """Return ``events`` as messages for the events sink."""
        return [OutputRecord("events", event.stream or event.partition or "", event) for event in events]
