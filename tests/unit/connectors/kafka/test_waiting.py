"""What a source that waits tells the operator: of a silent broker once, and once that it is back."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from aiokafka import TopicPartition

from streamad.errors import SourceError
from streamad_connectors.kafka.reading import waiting as _waiting
from streamad_connectors.kafka.reading.reader import Reading
from streamad_connectors.kafka.reading.waiting import Waiting


def test_an_outage_is_reported_once_and_its_end_once(monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = 0.0
    monkeypatch.setattr(_waiting, "time", SimpleNamespace(monotonic=lambda: now_s))
    reading = Reading(TopicPartition("press", 0))
    is_away = True

    def wait(seconds: float) -> None:
        reading.silent_s = reading.silent_s + seconds if is_away else 0.0

    reader = SimpleNamespace(readings=[reading], wait=wait, failure=lambda: None)
    client = SimpleNamespace(place=SimpleNamespace(brokers=("broker:9092",)))
    waiting = Waiting(reader, client, 60.0)  # type: ignore[arg-type]

    def kinds_after(seconds: float) -> list[str]:
        nonlocal now_s
        told = []
        for _ in range(round(seconds / 0.25)):
            now_s += 0.25
            told += [notice.kind for notice in waiting.check()]
        return told

    assert kinds_after(4.0) == []
    assert kinds_after(30.0) == ["broker_silent"]
    is_away = False
    assert kinds_after(5.0) == ["broker_back"]
    is_away = True
    assert kinds_after(10.0) == ["broker_silent"], "the next outage is told again"
    with pytest.raises(SourceError, match="has not answered for 60 s"):
        kinds_after(60.0)
