"""A source that waits for the learner: when ``settle`` returns, all that was judged so far has had its effect."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.support.kafka.child import PLUGINS
from tests.support.learning.store import NAME
from tests.unit.learn.live.test_learner import SMALL, followed


@pytest.fixture(autouse=True)
def _detector_in_trainers(monkeypatch: pytest.MonkeyPatch) -> None:
    """The training processes find the detector, too."""
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(PLUGINS), os.environ.get("PYTHONPATH", "")]))


async def test_settle_keeps_what_was_judged_and_trains_nothing_before_its_time(tmp_path: Path) -> None:
    """At once and in storage, on a clock that stands still: neither the next turn nor flush_interval is waited for."""
    async with followed(tmp_path, cold=True, **SMALL) as at:
        at.judge(30, decision="learning")
        await at.learner.settle()
        counters = at.counters[NAME]
        assert counters.accepted + counters.reserved == 30
        assert len(at.plant.stored("accepted") | at.plant.stored("reserve")) == 30
        assert (at.batcher.model, at.told) == (None, [])


async def test_settle_waits_for_the_training_that_is_due_and_for_its_model(tmp_path: Path) -> None:
    async with followed(tmp_path, cold=True, **SMALL) as at:
        at.judge(50, decision="learning")
        await at.learner.settle()
        assert at.batcher.model is not None
        assert at.batcher.model.ref.version == at.counters[NAME].version == "0001"
        assert at.kinds() == ["model_promoted", "model_swapped"]
