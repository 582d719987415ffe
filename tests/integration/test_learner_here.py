"""``streamad run`` with a learner beside it: started and ended by the run, waited for at the end of a finite input."""

from __future__ import annotations

import signal
import sys
import time
from pathlib import Path

import pytest

from streamad.system.saved_progress import read_checkpoint
from tests.faults.test_learner_sigkill import until
from tests.support.kafka.workers import Worker
from tests.support.learning.scenario import LIMIT_S, Scenario
from tests.support.learning.store import NAME

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs a fork server and /proc")


@pytest.fixture
def plant(tmp_path: Path) -> Scenario:
    plant = Scenario(tmp_path / "plant", "here")
    plant.record(90, {40: 10.0})
    return plant


def run_of(plant: Scenario) -> Worker:
    return plant.forks.start("run", ["run", "--quiet"], plant.folder, plant.folder / "run.log")


def has_ended(plant: Scenario) -> bool:
    """Whether the end of the input is committed: then the run waits for its learner."""
    progress = read_checkpoint(plant.folder / "checkpoint").progress.values()
    return bool(progress) and all(each.ended for each in progress)


def learners_of(folder: Path) -> list[int]:
    """The learners that work in ``folder``, by their ids."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            is_one = b"learn\0--config" in (path / "cmdline").read_bytes() and (path / "cwd").readlink() == folder
        except OSError:  # it has ended
            continue
        if is_one:
            found.append(int(path.name))
    return found


def test_a_finite_run_ends_when_all_is_learned(plant: Scenario) -> None:
    plant.streamad("run", "--quiet")
    windows = {each["verdict_id"] for each in plant.said("windows")}
    store = plant.plant.store()
    assert {one.id for share in ("accepted", "reserve", "aside") for one in store.read(share)} <= windows  # type: ignore[arg-type]
    assert sum(store.counts().values()) > 80
    assert plant.plant.registry.current(NAME) == "0001"
    plant.record(40, {})
    plant.streamad("run", "--quiet")
    assert {(each["model"] or {}).get("version") for each in plant.said("verdicts")[90:]} == {"0001"}
    assert learners_of(plant.folder) == []


def test_a_learner_that_fails_costs_no_verdict_and_the_run_says_so(plant: Scenario) -> None:
    (plant.folder / "inliers").mkdir()
    (plant.folder / "inliers" / "inliers.sqlite3").write_bytes(b"of another program " * 100)
    run = run_of(plant)
    assert run.process.wait(LIMIT_S) == 1
    assert len(plant.said("verdicts")) == 90
    assert "the learner has ended (exit code 1) before it had learned all of this run" in " ".join(run.said().split())
    assert "inliers.sqlite3 cannot be used: file is not a database" in " ".join(run.said().split())


def test_a_stop_ends_the_wait_for_a_learner_that_waits_for_another(plant: Scenario) -> None:
    """Somebody has started ``streamad learn`` on the same store: the run says that it waits, and Ctrl-C ends that."""
    other = plant.forks.start("learn", ["learn"], plant.folder, plant.folder / "other.log")
    try:
        until((plant.folder / "inliers" / "learner.json").exists)
        run = run_of(plant)
        until(lambda: "another learner works on this store" in run.said() and has_ended(plant))
        run.send(signal.SIGINT)
        assert run.process.wait(LIMIT_S) == 0, run.said()[-2000:]
        assert learners_of(plant.folder) == []
    finally:
        other.end()


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_the_learner_ends_with_its_run(plant: Scenario, how: signal.Signals) -> None:
    (plant.folder / "recordings" / "later.jsonl").touch()
    config = (plant.folder / "plant.yaml").read_text()
    followed = config.replace("source:\n", "source:\n  options:\n    follow: true\n")
    (plant.folder / "plant.yaml").write_text(followed)
    run = run_of(plant)
    until(lambda: len(learners_of(plant.folder)) == 1 and (plant.folder / "inliers" / "learner.json").exists())
    until((plant.folder / "out" / "verdicts.jsonl").exists)  # before, the run itself may still be starting
    run.send(how)
    assert run.process.wait(LIMIT_S) == (0 if how is signal.SIGTERM else -signal.SIGKILL), run.said()[-2000:]
    deadline_s = time.monotonic() + LIMIT_S
    while learners_of(plant.folder):
        assert time.monotonic() < deadline_s
        time.sleep(0.01)
