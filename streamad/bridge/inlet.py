"""The port of what a bridge reads: a broker that keeps each message until it is told that the message is safe."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from pydantic import BaseModel

from streamad.types import FeedRecord


@dataclass(slots=True)
class InletCounts:
    """What an inlet has seen; ``broker_dropped``: what the broker says it dropped, of all its clients (None: nothing).

    ``again``: messages that came again and were in flight still.
    """

    received: int = 0
    again: int = 0
    in_flight: int = 0
    connections: int = 0
    sessions_lost: int = 0
    broker_dropped: int | None = None


@runtime_checkable
class Inlet(Protocol):
    """Reads messages of a broker, from all clients that publish.

    Law: the broker keeps a message until ``release``, also while nobody reads, and gives it again after that.
    """

    options_model: type[BaseModel]
    counts: InletCounts

    @property
    def names_parts(self) -> bool:
        """Return whether the topics name stream, channel or sequence, so that a record is nothing without its topic."""

    @property
    def place(self) -> str:
        """Return the broker and its topics, for people."""

    @property
    def is_connected(self) -> bool:
        """Return whether messages can come now."""

    def messages(self) -> AsyncIterator[FeedRecord]:
        """Yield messages until ``stop``: the topic as label, the stream as key, the time of receipt.

        A broker that goes away is waited for. Raises SourceError if there is none at the beginning, or if waiting
        cannot help.
        """

    def release(self, n: int) -> None:
        """Tell the broker that the ``n`` oldest messages not released are safe."""

    def stop(self) -> None:
        """Let ``messages`` end after what has come already."""

    async def close(self) -> None:
        """Disconnect; the broker keeps the rest. Safe to call twice."""
