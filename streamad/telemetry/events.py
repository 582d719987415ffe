"""What an operator is told: on the terminal or in the log at once, on the events sink with the next commit."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from typing import Literal, Protocol, TypeAlias

from streamad.messages import Event, ModelRef, OutputRecord
from streamad.ports import Clock
from streamad.telemetry.logs import get_status_logger
from streamad.types import from_us

_MAX_WAITING = 1000
Level: TypeAlias = Literal["info", "warning", "error"]


class Emit(Protocol):
    """Says something about a model to the operator: ``Telling.tell``."""

    def __call__(
        self,
        kind: str,
        message: str,
        *,
        model: ModelRef | None = None,
        figures: Mapping[str, float] | None = None,
        level: Level = "warning",
    ) -> None:
        """Tell it."""
        ...


class EventLog:
    """Keeps events for the next commit; ``on_event`` is called for each instead of a line in the log of ``plant``.

    At most the latest 1,000 wait: a worker without a partition commits nothing, perhaps for ever.
    """

    def __init__(self, plant: str, clock: Clock, on_event: Callable[[Event], None] | None = None) -> None:
        self._clock = clock
        self._on_event = on_event
        self._log = get_status_logger().bind(plant=plant)
        self._waiting: deque[Event] = deque(maxlen=_MAX_WAITING)

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
    ) -> None:
        """Say something to the operator; ``kind`` is a stable word, ``level`` that of the log, which always shows it.

        What is told after the pipeline's ``run`` has ended goes out with its ``commit_told``.
        """
        event = Event(
            kind=kind,
            message=message,
            partition=partition,
            stream=stream,
            model=model,
            figures=dict(figures or {}),
            created_at=from_us(self._clock.now_us()),
        )
        self._waiting.append(event)
        if self._on_event is not None:
            self._on_event(event)
            return
        version = None if model is None else f"{model.name} {model.version}"
        named = {"partition": partition, "stream": stream, "model": version}
        where = {key: name for key, name in named.items() if name is not None}
        getattr(self._log, level)(kind, message=message, **where, **event.figures)

    def take(self) -> list[Event]:
        """Take what waits for a commit."""
        taken = list(self._waiting)
        self._waiting.clear()
        return taken

    def give_back(self, events: list[Event]) -> None:
        """Let ``events`` wait again: their commit failed."""
        self._waiting = deque([*events, *self._waiting], maxlen=_MAX_WAITING)

    @staticmethod
    def records(events: list[Event]) -> list[OutputRecord]:
        """Return ``events`` as messages for the events sink."""
        return [OutputRecord("events", event.stream or event.partition or "", event) for event in events]
