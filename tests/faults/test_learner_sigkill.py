"""Worker and learner killed while they commit, store, train and promote, time after time.

Afterwards every sequence has its verdict once, and the learner's store holds exactly the committed windows, each in the
share of its record.
"""

from __future__ import annotations

import json
import random
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from streamad.learn.trainer.status import read_status
from streamad.messages import SHARES
from tests.support.kafka.workers import Worker
from tests.support.learning.scenario import Scenario
from tests.support.learning.store import NAME
from tests.support.waiting import LIMIT_S

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs SIGKILL")

AT_ONCE = 30
LEARNING: dict[str, Any] = {
    "first_training": 60,
    "min_training": 20,
    "reserve": 0.4,
    "schedule": None,
    "min_interval": 0,
    "promotion": {"min_comparison": 5},
    "drift": {"enabled": False},
}


class Lives(Scenario):
    """A plant whose workers and learners die as they are told; each life of a worker finds ``AT_ONCE`` more."""

    def __init__(self, folder: Path) -> None:
        many = {"after_inliers": 20, "max_training": 5_000}
        super().__init__(folder, "elsewhere", learning={**LEARNING, **many})
        self.deaths: list[str] = []
        self.n_given_up = 0
        self.workers: list[Worker] = []

    def start(self, *arguments: str, **kill: str) -> Worker:
        log = self.folder / f"{arguments[0]}-{len(self.workers)}.log"
        self.workers.append(self.forks.start(arguments[0], arguments, self.folder, log, **kill))
        return self.workers[-1]

    def ended(self, worker: Worker) -> None:
        code = worker.process.wait(LIMIT_S)
        assert code in (0, -signal.SIGKILL), worker.said()[-3000:]
        if code:
            self.deaths.append(worker.name)

    def learn_with_deaths(self, told: str) -> None:
        """Let each try of a training die as ``told``, until the learner gives it up.

        The learner dies with it: alone it would wait 10, 20 and 40 s before it tries again; one that starts does not.
        """
        while not self._has_ended(self.start("learn", "--present", KILL_TRAINER=told)):
            pass
        self.n_given_up += "the training process died 3 times" in self.workers[-1].said()

    def _has_ended(self, learner: Worker) -> bool:
        until(lambda: not learner.is_running or "training_interrupted" in learner.said())
        if not learner.is_running:
            self.ended(learner)
            return True
        learner.kill()
        self.deaths.append(learner.name)
        return False

    def record_more(self) -> None:
        self.record(AT_ONCE, {9: 10.0})

    def committed(self) -> dict[str, tuple[str, str]]:
        """The windows that workers have committed: sequence and share by id; each must be there once."""
        windows = self.said("windows")
        assert Counter(each["verdict_id"] for each in windows).most_common(1)[0][1] == 1
        return {each["verdict_id"]: (each["sequence"], each["share"]) for each in windows}

    def stored(self) -> dict[str, tuple[str, str]]:
        store = self.plant.store()
        assert store.problems == []
        return {one.id: (one.sequence, share) for share in SHARES for one in store.read(share)}

    def assert_clean(self) -> None:
        """Live once more without dying, then look at everything that is on the disk."""
        self.record_more()
        self.streamad("run", "--quiet")
        self.streamad("learn", "--present")
        verdicts = self.said("verdicts")
        assert Counter(each["sequence"] for each in verdicts) == {f"B-{number}": 1 for number in range(self.n)}
        windows = self.committed()
        assert windows.keys() == {each["verdict_id"] for each in verdicts}
        assert self.stored() == windows
        registry, versions = self.plant.registry, self.plant.versions
        assert registry.current(NAME) is not None
        for version in registry.versions(NAME):
            assert versions.load(version).ref.version == version
        assert read_status(registry, NAME).state == "idle"


@pytest.fixture
def lives(tmp_path: Path) -> Iterator[Lives]:
    lives = Lives(tmp_path / "plant")
    yield lives
    for worker in lives.workers:  # what a failing test leaves behind, each by its id
        worker.end()


@pytest.mark.parametrize(
    ("path", "counts"),
    [
        ("inliers.sqlite3", [1, 2]),  # before and after it looks at the store
        ("learner.position", [1, 3, 6]),  # how far it has read
        ("learner.json", [1, 2, 4]),  # after a slice is stored, before it is released
    ],
)
def test_the_learner_killed_while_it_stores(path: str, counts: list[int], lives: Lives) -> None:
    for count in counts:
        lives.record_more()
        lives.streamad("run", "--quiet")
        lives.ended(lives.start("learn", "--present", KILL_WORKER=f"{path}:{count}"))
    assert len(lives.deaths) >= len(counts) - 1
    lives.record(120, {})
    lives.assert_clean()


def test_the_learner_killed_while_it_trains_or_promotes(lives: Lives) -> None:
    lives.record(120, {})
    for told in ("versions/.:1", "versions/.:6", ".CURRENT.:1", ".CURRENT.:2"):
        lives.record_more()
        lives.streamad("run", "--quiet")
        lives.learn_with_deaths(told)
    lives.record_more()
    lives.streamad("run", "--quiet")
    lives.ended(lives.start("learn", "--present", KILL_TRAINER="training/:25"))  # which tries again by itself
    assert lives.deaths == ["learn"] * 12
    assert lives.n_given_up == 4
    lives.assert_clean()


def test_worker_and_learner_killed_beside_each_other(lives: Lives) -> None:
    """The learner follows while workers commit and die between sync and rename; neither waits for the other."""
    rng = random.Random(7)
    lives.record(90, {})
    following = lives.start("learn")
    for count in (2, 3, 5, 8, 11, 15):
        lives.record_more()
        lives.ended(lives.start("run", "--quiet", KILL_WORKER=f"checkpoint/:{count}"))
        time.sleep(rng.random() * 0.2)  # whatever it is at then
        if count % 2:
            following.kill()
            lives.deaths.append("learn")
            following = lives.start("learn")
    following.kill()
    assert len(lives.deaths) >= 6
    lives.assert_clean()


def test_a_second_learner_waits_for_the_first(lives: Lives) -> None:
    lives.record_more()
    first = lives.start("learn")
    until(lambda: (lives.folder / "inliers" / "learner.lock").exists() and "learner.position" in listing(lives.folder))
    second = lives.start("learn", "--present")
    until(lambda: "another learner works on this store: waiting" in second.said())
    lives.streamad("run", "--quiet")
    first.send(signal.SIGTERM)
    lives.ended(first)
    lives.ended(second)
    assert second.said().count("another learner") == 1
    assert lives.stored() == lives.committed()


def until(is_so: Any) -> None:
    deadline_s = time.monotonic() + LIMIT_S
    while not is_so():
        assert time.monotonic() < deadline_s
        time.sleep(0.01)


def listing(folder: Path) -> str:
    return json.dumps([str(path) for path in folder.rglob("*")])
