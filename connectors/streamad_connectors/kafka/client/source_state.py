"""State that a Kafka source shares with its committer, its retention guard and its topics."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import NamedTuple

from streamad.ports import Clock
from streamad.types import SourceNotice
from streamad_connectors.kafka.client.options import Client, KafkaSourceOptions


class LowWatermark(NamedTuple):
    """A partition's low watermark: its offset, and the time of the record there (``Progress.low_watermark_us``)."""

    offset: int
    time_us: int | None


@dataclass(slots=True, eq=False)
class SourceState:
    """One per source.

    The committer writes ``low_watermarks`` (by partition name, as last restored or committed) and the retention guard
    reads them. The source yields ``notices``.
    """

    client: Client
    options: KafkaSourceOptions
    group: str
    clock: Clock
    low_watermarks: dict[str, LowWatermark] = field(default_factory=dict)
    notices: deque[SourceNotice] = field(default_factory=deque)
