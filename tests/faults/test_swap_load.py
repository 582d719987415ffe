"""Fifty swaps under load: every sequence has one verdict, of one version, which was in service at that time."""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from streamad.judge.calibration import score_of
from streamad.testing import ListSource
from streamad.types import PartitionAssigned, PartitionEnded
from tests.support.learning.store import NAME, LearningPlant, LearningRun, batch, learning_run
from tests.support.runtime.pipeline import until

SEQUENCES, SWAPS = 10_000, 50
AT_ONCE = 40


class Timeline:
    """Which version was in service from when on."""

    def __init__(self, version: str) -> None:
        self._entries = [(0.0, version)]

    def note(self, run: LearningRun) -> None:
        version = run.counters[NAME].version
        assert version is not None
        if self._entries[-1][1] != version:
            self._entries.append((time.perf_counter(), version))

    def between(self, first: float, last: float) -> set[str]:
        ends = [begun for begun, _ in self._entries[1:]] + [float("inf")]
        return {
            version
            for (begun, version), ended in zip(self._entries, ends, strict=True)
            if begun <= last and ended >= first
        }


async def test_ten_thousand_sequences_and_fifty_swaps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streamad.learn.registry.hot_swap._POLL_S", 0.01)  # else it lasts a second for each swap
    plant = LearningPlant(tmp_path, run={"batch_windows": 16, "commit_interval": "1ms", "batch_wait": "1ms"})
    plant.train(0)
    challengers = [plant.train(seed, promote=False) for seed in range(1, SWAPS + 1)]
    assert len(set(challengers)) == SWAPS
    timeline = Timeline("0001")
    fed_s: list[float] = []
    judged_s: dict[str, float] = {}
    source = ListSource([PartitionAssigned("p")], endless=True)
    async with learning_run(plant, source) as run:

        def look() -> None:
            timeline.note(run)
            for one in run.judged[len(judged_s) :]:
                judged_s[one.verdict.sequence] = time.perf_counter()

        for number in range(0, SEQUENCES, AT_ONCE):
            source.feed(batch("p", plant.records(range(number, number + AT_ONCE))))
            fed_s += [time.perf_counter()] * AT_ONCE
            if number % (SEQUENCES // SWAPS) == 0:

                def has_swapped(swaps: int = number * SWAPS // SEQUENCES) -> bool:
                    look()
                    return run.counters[NAME].swaps == swaps

                await until(has_swapped)  # one that the next promotion overtakes would never be in service
                plant.promote(challengers[number * SWAPS // SEQUENCES])

            def has_room(fed: int = number + AT_ONCE) -> bool:
                look()
                return len(run.judged) > fed - 4 * AT_ONCE  # there is always more to do than is done

            await until(has_room)
        source.feed(PartitionEnded("p"))

        def is_through() -> bool:
            look()
            return len(run.judged) == SEQUENCES and run.counters[NAME].swaps == SWAPS

        await until(is_through)
        await source.close()
        await run.end()

    verdicts = run.verdicts
    assert Counter(verdict.sequence for verdict in verdicts) == {f"B-{n}": 1 for n in range(SEQUENCES)}
    versions = {version: plant.versions.load(version) for version in ["0001", *challengers]}
    used: Counter[str] = Counter()
    for one in run.judged:
        verdict, window = one.verdict, one.window
        assert window is not None
        assert verdict.model is not None
        version, number = verdict.model.version, int(verdict.sequence[2:])
        used[version] += 1
        assert version in timeline.between(fed_s[number], judged_s[verdict.sequence])
        model = versions[version]
        terms = model.scorer.score(window.values[None], np.array([window.length]))[0]
        assert verdict.score == score_of(terms)
        assert (verdict.p_value, verdict.tail) == model.calibration.p_value(score_of(terms))
    assert len(used) >= SWAPS - 5, "the swaps came while there was something to score"
    assert [event.model.version for event in run.of_kind("model_swapped") if event.model] == challengers
    assert run.of_kind("model_refused") == run.of_kind("learning_failed") == []
