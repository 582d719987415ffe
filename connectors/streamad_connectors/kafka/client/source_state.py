"""What a Kafka source shares with its committer and its topics: where, how, and how far the progress is."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from streamad.ports import Clock
from streamad.types import SourceNotice

if TYPE_CHECKING:
    from streamad_connectors.kafka.client.options import Client, KafkaSourceOptions, Place


@dataclass(slots=True, eq=False)
class SourceState:
    """One per source.

    ``progress_of`` maps a partition's name to (low watermark, ``Progress.low_watermark_us``), as last
    restored or committed: written by the committer, read by the retention guard. ``notices`` are yielded by the source.
    """

    place: Place
    client: Client
    options: KafkaSourceOptions
    group: str
    clock: Clock
    progress_of: dict[str, tuple[int, int | None]] = field(default_factory=dict)
    notices: deque[SourceNotice] = field(default_factory=deque)
