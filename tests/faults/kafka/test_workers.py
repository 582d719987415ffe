"""Workers of a group on a real broker, killed, frozen, stopped and multiplied: every message once, all the same."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import sys
import time
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import pytest

from tests.support.kafka.broker import Broker
from tests.support.kafka.faults import KafkaPlants, finish
from tests.support.kafka.plant import KafkaPlant, traffic
from tests.support.kafka.workers import Worker
from tests.support.waiting import LIMIT_S

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs signals and a fork server")

KILLS = 24
KILLS_AT_START = 8
SETTLED_S = 10.0
SESSION_S = 3.0


async def until_more_commits(worker: Worker, n: int = 3) -> None:
    """Return once ``worker`` has committed ``n`` times more."""
    await worker.until_logged("committed", worker.n_commits + n)
    assert worker.is_running, worker.said()[-3000:]


def lost_s(worker: Worker) -> list[float]:
    """When (Unix seconds) commits of ``worker`` were refused."""
    entries = worker.logged("commit failed, partition restored")
    return [datetime.fromisoformat(entry["timestamp"]).timestamp() for entry in entries]


def all_partitions(plant: KafkaPlant) -> set[str]:
    return {f"{plant.topic}-{number}" for number in range(plant.partitions)}


async def test_killed_at_random_moments_and_started_again_nothing_is_lost_or_repeated(
    kafka: Broker, plants: KafkaPlants
) -> None:
    rng = random.Random(31)
    # Commits follow each other closely, so that many a kill hits one: a transaction lasts a few milliseconds only.
    plant = await plants.make(kafka.bootstrap, run={"commit_interval": "20ms"})
    flow = plant.flow(traffic(31, partitions=4, streams=240, sequences=30), per_s=250)
    lives: list[Worker] = [plant.start()]
    await lives[0].until_logged("committed")
    n_lines_at_start = lives[0].said().partition('"committed"')[0].count("\n")
    plan = ["at work"] * (KILLS - 1) + ["at start"] * KILLS_AT_START
    rng.shuffle(plan)
    for moment in plan:
        lives[-1].kill()
        lives.append(plant.start())
        if moment == "at start":
            n_lines = rng.randrange(n_lines_at_start)
            await lives[-1].until(lambda: lives[-1].said().count("\n") >= n_lines)  # noqa: B023 - awaited at once
        else:
            await lives[-1].until_logged("committed", rng.randrange(1, 10))
            await asyncio.sleep(rng.random() * 0.12)  # anywhere between two commits, or amid one
    lives[-1].kill()
    await flow.cut()
    await finish(plant, plant.start())
    aborted_s = await plant.aborted_s()
    amid = [life for life in lives if any(life.started_s < at_s < life.ended_s for at_s in aborted_s)]
    assert sum(life.n_commits > 0 or life in amid for life in lives) >= KILLS, "kills that hit a life at work"
    assert len(amid) >= 3, "kills that left a transaction open"
    assert sum(life.n_commits == 0 for life in lives) >= 3, "kills before the first commit"


@pytest.mark.parametrize("static", [True, False], ids=["static", "dynamic"])
async def test_partitions_move_among_one_three_and_two_workers_amid_their_sequences(
    kafka: Broker, plants: KafkaPlants, static: bool
) -> None:
    plant = await plants.make(kafka.bootstrap)
    flow = plant.flow(traffic(32, partitions=4, streams=200, sequences=30), per_s=250)
    first = plant.start("w1", static=static)
    await first.until_logged("committed", 5)
    second, third = plant.start("w2", static=static), plant.start("w3", static=static)
    await second.until_logged("committed", 3)
    await third.until_logged("committed", 3)
    third.kill()
    await first.until(lambda: first.owned() | second.owned() == all_partitions(plant))
    again = plant.start("w3", static=static)
    await again.until_logged("committed", 3)
    second.send(signal.SIGTERM)
    assert await second.wait(LIMIT_S) == 0
    await first.until(lambda: first.owned() | again.owned() == all_partitions(plant))
    for worker in (first, again):
        await worker.until_logged("committed", worker.n_commits + 3)
        assert worker.owned()
    await flow.cut()
    await finish(plant, first, again)
    taken = [entry for worker in (second, third, again) for entry in worker.logged("partition assigned")]
    assert any(entry["begin"] < entry["next_offset"] for entry in taken), "no partition moved with a sequence open"


# --- frozen ---


@pytest.mark.parametrize("static", [True, False], ids=["static", "dynamic"])
async def test_a_worker_resumed_after_its_session_expired_repeats_nothing_and_goes_on(
    kafka: Broker, plants: KafkaPlants, static: bool
) -> None:
    rng = random.Random(33)
    plant = await plants.make(kafka.bootstrap)
    flow = plant.flow(traffic(33, partitions=4, streams=200, sequences=30), per_s=250)
    sleeper, other = workers = plant.start("w1", static=static), plant.start("w2", static=static)
    for _ in range(2):
        await asyncio.gather(*(until_more_commits(worker) for worker in workers))
        await asyncio.sleep(rng.random() * 0.2)
        sleeper.send(signal.SIGSTOP)
        await other.until(lambda: other.owned() == all_partitions(plant))
        await until_more_commits(other)
        n_lost = len(lost_s(sleeper))
        woken_s = time.time()
        sleeper.send(signal.SIGCONT)
        await until_more_commits(sleeper)
        assert sleeper.is_running, sleeper.said()[-3000:]
        # Both keep losing to each other for no longer than the group needs to settle.
        await asyncio.gather(*(until_more_commits(worker, 10) for worker in workers))
        assert all(at_s < woken_s + SETTLED_S for worker in workers for at_s in lost_s(worker))
        assert len(lost_s(sleeper)) <= n_lost + plant.partitions
    assert lost_s(sleeper), "what it was about to commit when it was frozen was refused"
    await flow.cut()
    await finish(plant, *workers)


async def test_a_frozen_worker_whose_name_another_has_taken_ends_with_one_line(
    kafka: Broker, plants: KafkaPlants
) -> None:
    plant = await plants.make(kafka.bootstrap)
    flow = plant.flow(traffic(34, partitions=4, streams=200, sequences=30), per_s=250)
    sleeper = plant.start("w1")
    await until_more_commits(sleeper, 5)
    sleeper.send(signal.SIGSTOP)
    successor = plant.start("w1")
    await until_more_commits(successor, 5)
    await asyncio.sleep(SESSION_S)  # it has settled
    sleeper.send(signal.SIGCONT)
    assert await sleeper.wait(SETTLED_S) == 1
    assert sleeper.said().splitlines()[-1].startswith("error: instance id 'w1' is used by another process")
    assert "Traceback" not in sleeper.said()
    assert successor.is_running, "the rightful owner stays"
    await until_more_commits(successor, 5)
    await flow.cut()
    await finish(plant, successor)


# --- stopped ---


async def test_sigterm_under_load_ends_in_bounded_time_with_exit_code_0_and_the_next_run_goes_on(
    kafka: Broker, plants: KafkaPlants
) -> None:
    rng = random.Random(35)
    plant = await plants.make(kafka.bootstrap, model={"options": {"delay_ms": 20}})
    flow = plant.flow(traffic(35, partitions=4, streams=200, sequences=30), per_s=400)
    for _ in range(6):
        worker = plant.start()
        await until_more_commits(worker, rng.randrange(1, 12))
        await asyncio.sleep(rng.random() * 0.1)
        worker.send(signal.SIGTERM)
        assert await worker.wait(LIMIT_S) == 0, worker.said()[-3000:]
        assert "error:" not in worker.said()
    await flow.cut()
    await finish(plant, plant.start())


async def test_sigterm_while_it_starts_or_twice_in_a_row_ends_it_and_the_next_run_goes_on(
    kafka: Broker, plants: KafkaPlants
) -> None:
    rng = random.Random(36)
    plant = await plants.make(kafka.bootstrap, run={"stop_timeout": "30s"})
    flow = plant.flow(traffic(36, partitions=4, streams=200, sequences=30), per_s=250)
    worker = plant.start()
    await until_more_commits(worker)
    start_s = time.time() - worker.started_s
    worker.kill()
    codes = []
    for moment in [*["any"] * 6, *["joining"] * 2, *["restoring"] * 2]:
        worker = plant.start()
        if moment == "any":
            await asyncio.sleep(rng.random() * start_s)
        else:
            await worker.until_logged("run started")
            await asyncio.sleep(rng.random() * start_s / 2 if moment == "restoring" else 0)
        handles = bool(worker.logged("run started"))  # before that there is nothing to stop, and no handler
        worker.send(signal.SIGTERM)
        codes.append(await worker.wait(LIMIT_S))
        assert codes[-1] == 0 or not handles, worker.said()[-3000:]
        assert "error:" not in worker.said()
        assert "Traceback" not in worker.said()
    assert set(codes) <= {0, -signal.SIGTERM}
    assert codes.count(0) >= 4
    for pause_s in (0.0, 0.02, 0.1):
        worker = plant.start()
        await until_more_commits(worker)
        worker.send(signal.SIGTERM)
        await worker.until(lambda: "stopping: " in worker.said())  # noqa: B023 - awaited at once
        await asyncio.sleep(pause_s)
        worker.send(signal.SIGTERM)
        assert await worker.wait(25) in {-signal.SIGTERM, 0}  # before the plant's stop_timeout is over
    await flow.cut()
    await finish(plant, plant.start())


# --- supervised ---


def children_of(pid: int) -> dict[int, str]:
    """Return the ids of the processes that ``pid`` has started, each with when it began."""
    pids = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return {int(child): began for child in pids if (began := _began(int(child))) is not None}


def _began(pid: int) -> str | None:
    """Return when process ``pid`` began (an id may come again), None where there is none or it is dead."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] == "Z" else fields[19]


def alive(children: dict[int, str]) -> list[int]:
    return [pid for pid, began in children.items() if _began(pid) == began]


@pytest.fixture
def to_end() -> Iterator[dict[int, str]]:
    """Processes that a failing test would leave behind."""
    children: dict[int, str] = {}
    yield children
    for pid in alive(children):
        os.kill(pid, signal.SIGKILL)


async def test_a_supervisor_restarts_dead_workers_and_none_outlives_it(
    kafka: Broker, plants: KafkaPlants, to_end: dict[int, str]
) -> None:
    plant = await plants.make(kafka.bootstrap)
    flow = plant.flow(traffic(37, partitions=4, streams=200, sequences=50), per_s=200)

    async def supervisor() -> Worker:
        worker = plant.start("supervisor", "--workers", "3", static=False, fork=False)
        await worker.until_logged("run started", 3)
        to_end.update(children_of(worker.process.pid))
        assert len(children_of(worker.process.pid)) == 3, worker.said()[-3000:]
        await until_more_commits(worker, 5)
        return worker

    first = await supervisor()
    victim = next(iter(children_of(first.process.pid)))
    os.kill(victim, signal.SIGKILL)
    await first.until_logged("run started", 4)
    assert f"(pid {victim}) was killed by signal 9: started again" in first.said()
    to_end.update(children := children_of(first.process.pid))
    assert len(children) == 3
    assert victim not in children
    await until_more_commits(first, 5)
    first.send(signal.SIGTERM)
    assert await first.wait(LIMIT_S) == 0, first.said()[-3000:]
    assert not alive(children)

    second = await supervisor()
    children = children_of(second.process.pid)
    second.kill()
    await second.until(lambda: not alive(children))
    assert second.said().count('"run ended"') == 3, "each was stopped in good order"
    await flow.cut()
    await finish(plant, plant.start())
