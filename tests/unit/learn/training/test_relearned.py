"""After a plant has changed for good, nothing that is trained later takes up what was before, whoever trains it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from streamad.learn.training.from_recordings import train_model
from streamad.types import Window, WindowSet
from tests.support.learning.life import MODEL, Life
from tests.support.learning.plant import NOW_US, FixedClock, taken_as_proved

SHIFT = 5.0


def from_recordings(life: Life, windows: list[Window]) -> str:
    data = WindowSet(
        np.stack([each.values for each in windows]),
        np.array([each.length for each in windows], dtype=np.int64),
        tuple(f"T-{i}" for i in range(len(windows))),
    )
    return train_model(
        data,
        life.detector,
        settings=life.settings,
        registry=life.registry,
        clock=FixedClock(),
        prove=taken_as_proved,
    )


def learned_anew(root: Path) -> tuple[Life, int]:
    """A plant that changed at the second time that is returned, and whose model was learned anew since."""
    life = Life(root)
    life.run(150)
    assert life.retrain("first").promoted
    since_us = NOW_US - (100_000 - life.n) * 1_000_000
    life.run(150, shift=SHIFT)
    assert life.retrain("relearn", since_us=since_us).promoted
    return life, since_us


def alerts(life: Life, shift: float) -> int:
    judge = life.judge()
    return sum(judge(window)[0] == "anomalous" for window in life.windows(100, shift=shift))


def test_what_was_normal_before_the_change_stays_an_anomaly_after_streamad_train(tmp_path: Path) -> None:
    life, since_us = learned_anew(tmp_path)
    version = from_recordings(life, life.windows(80, shift=SHIFT))
    assert life.champion == version
    assert (life.record(version).reason, life.record(version).since_us) == ("recordings", since_us)
    life.run(230, shift=SHIFT)
    outcome = life.retrain()
    assert outcome.version is not None
    assert life.record(outcome.version).since_us == since_us
    if not outcome.promoted:
        life.registry.promote(MODEL, outcome.version, expected=life.champion)
    assert alerts(life, shift=0.0) == 100
    assert alerts(life, shift=SHIFT) < 30


@pytest.mark.parametrize("has_parent", [False, True])
def test_without_a_change_a_version_from_recordings_knows_of_none(tmp_path: Path, has_parent: bool) -> None:
    life = Life(tmp_path)
    life.run(150)
    if has_parent:
        assert life.retrain("first").promoted
    assert life.manifest(from_recordings(life, life.windows(80))).learning is None
