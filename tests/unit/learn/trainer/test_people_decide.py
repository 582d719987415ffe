"""With ``learning.promote: person`` whatever trains leaves its version to two people, and trains no more for it."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from streamad.learn.registry.approvals import NotApprovedError, digest_of
from streamad.learn.registry.manifest import WAITS, Approval
from streamad.learn.registry.registry import Registry
from streamad.learn.store.records import TrainingReason
from tests.support.learning.life import MODEL, Life
from tests.support.learning.plant import train
from tests.unit.learn.trainer.test_feedback_law import alerts_of
from tests.unit.learn.trainer.test_retrain import BlindDetector
from tests.unit.learn.trainer.test_trainings import Asking


def approve(registry: Registry, version: str, name: str = MODEL) -> None:
    """Let two people put a version into service."""
    beside = registry.current(name)
    digest = digest_of(registry.manifest(name, version))
    for by in ("Anna", "Bernd"):
        at = datetime(2026, 3, 2, tzinfo=UTC)
        registry.approve(name, version, Approval(by=by, why="good", at=at, digest=digest, beside=beside))
    registry.promote(name, version, expected=beside)


def left_to_people(tmp_path: Path, n: int = 300, **learning: Any) -> Life:
    """A plant whose first model was approved, and ``n`` batches judged by it."""
    life = Life(tmp_path, promote="person", **learning)
    life.run(200)
    assert life.retrain("first").waits
    approve(life.registry, "0001")
    life.run(n)
    return life


def test_a_first_model_waits_for_two_people(tmp_path: Path) -> None:
    life = Life(tmp_path, promote="person")
    life.run(200)
    outcome = life.retrain("first")
    assert (outcome.version, outcome.promoted, outcome.waits, life.champion) == ("0001", False, True, None)
    assert outcome.reason.startswith("waits for two people: there is no champion to beat")
    assert "`streamad models approve 0001`" in outcome.reason
    decision = life.decision("0001")
    assert (decision.promoted, decision.waits_for_review) == (False, True)
    approve(life.registry, "0001")
    assert life.champion == "0001"


@pytest.mark.parametrize("reason", ["schedule", "drift", "inliers", "command", "effort", "relearn"])
def test_no_reason_of_a_training_puts_its_version_into_service(tmp_path: Path, reason: TrainingReason) -> None:
    life = left_to_people(tmp_path)
    outcome = life.retrain(reason)
    assert (outcome.promoted, outcome.waits, life.champion) == (False, True, "0001")
    assert life.manifest("0002").waits_beside("0001")
    assert life.manifest("0002").approvals == ()
    again = life.retrain(reason, resumes=True)
    assert (again.version, again.promoted, again.waits, life.champion) == ("0002", False, True, "0001")
    with pytest.raises(NotApprovedError):
        life.registry.promote(MODEL, "0002", expected="0001")


def test_what_the_rule_refuses_does_not_wait(tmp_path: Path) -> None:
    life = left_to_people(tmp_path)
    outcome = life.retrain(detector=BlindDetector())
    assert (outcome.promoted, outcome.waits, life.champion) == (False, False, "0001")


def test_trusted_marks_wait_for_two_people_too_once_for_the_same_marks(tmp_path: Path) -> None:
    life = left_to_people(tmp_path, feedback_trust="auto")
    life.mark(alerts_of(life.run(400))[:8], "false_alarm")
    second = life.retrain().second
    assert second is not None
    assert (second.version, second.promoted, life.champion) == ("0003", False, "0001")
    assert life.retrain().second is None, "the newest that waits is one without marks"
    assert life.registry.decline(MODEL, "0004")
    assert life.retrain().second is None


def test_a_training_by_command_and_one_that_promotes_nothing_by_itself_wait(tmp_path: Path) -> None:
    registry = Registry(tmp_path, needs_approvals=True)
    assert train(registry) == "0001"
    manifest = registry.manifest(MODEL, "0001")
    assert registry.current(MODEL) is None
    assert manifest.decision is not None
    assert (manifest.decision.reason, manifest.waits_beside(None)) == (WAITS, True)
    approve(registry, "0001")
    assert train(registry) == "0002"
    assert (registry.current(MODEL), registry.manifest(MODEL, "0002").waits_beside("0001")) == ("0001", True)


def test_the_first_training_is_not_done_again_while_its_version_waits(tmp_path: Path) -> None:
    with ThreadPoolExecutor(1) as thread:
        asking = Asking(tmp_path, thread, promote="person")
        asking.registry.needs_approvals = True
        assert not asking.trainings.has_first()
        train(asking.registry)
        assert asking.trainings.has_first()
        asking.registry.decline("default", "0001")
        assert not asking.trainings.has_first()
        asking.store.close()
