"""The learner decides as it did: version by version, sequence by sequence, in a committed scenario.

The decisions in ``tests/support/learning/decisions.json`` were recorded with the bounds of the shares as three keys, by
the learner that had reproduced those of workers that learned by themselves.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tests.support.learning import scenario
from tests.support.learning.scenario import Scenario

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs a fork server")


def test_the_learner_decides_as_it_did(tmp_path: Path) -> None:
    recorded = json.loads(Path(scenario.__file__).with_name("decisions.json").read_text())
    assert len({version["reason"] for version in recorded[-1]["versions"]}) == 4, "first, inliers, drift, relearn"
    found = Scenario(tmp_path / "plant", "elsewhere").decisions()
    for number, (expected, now) in enumerate(zip(recorded, found, strict=True)):
        assert now == expected, f"after life {number}"
