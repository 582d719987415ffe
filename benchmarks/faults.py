"""Faults on a real broker: SIGKILL hits workers at random moments while records flow; then the outputs are compared.

One run starts a broker, trains the model of a plant of 4 partitions, produces interleaved streams of messy sequences,
and kills one worker after the other: during its start, between two commits, amid a transaction. One in ten stays away
until its partitions have moved. Now and then another fault happens: a worker is stopped by SIGTERM or frozen past its
session time-out, or the broker is frozen for seconds. The output topics, read committed, must then hold the messages of
an undisturbed run: each once, each stream's verdicts in order, no attribution before its alert. If not, the exit code
is 1. ``--source file`` does the same with one worker and a folder of joined files that grows (``faults_on_files.py``),
without a broker; ``--source mqtt`` with the bridge, a publisher and a mosquitto (``faults_on_mqtt.py``); ``--source
mqtt-kafka`` with these, Kafka and workers (``faults_mqtt_to_kafka.py``). With ``--operate`` the workers also serve
metrics, which are scraped, and ``streamad notify`` runs beside and is killed, too (``faults_operating.py``): each alert
must be in a notice, again only after such a kill. With ``--learn`` ``streamad learn`` runs beside and is killed, too
(``faults_learning.py``): its store must hold exactly the committed windows. With ``--hold`` most readings of all
channels but one are left out, and values hold (``channels[].fill``); with ``--each`` messages are lists of samples;
with ``--while`` states cut the sequences, and messages have no ids. These three go together. With ``--early`` running
sequences are looked at: each warning must come once and before its verdict, which names it (``faults_warnings.py``).
Run: ``python benchmarks/faults.py [--source kafka|file|mqtt|mqtt-kafka] [--kills 200] [--operate] [--learn] [--hold]
[--each] [--while] [--early] [--json]``.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks import (
    faults_learning,
    faults_mqtt_to_kafka,
    faults_on_files,
    faults_on_mqtt,
    faults_operating,
    faults_warnings,
)
from benchmarks.faults_attributions import attribution_figures, n_amid_debts, n_early
from benchmarks.faults_learning import Learned
from benchmarks.faults_operating import Operated
from benchmarks.faults_warnings import n_after_their_verdict, named_in, warning_figures
from tests.support.kafka.broker import Broker, KafkaUnavailableError, fetch_jars, new_broker
from tests.support.kafka.plant import LOOKING, Flow, KafkaPlant, traffic
from tests.support.kafka.workers import ForkServer, Worker
from tests.support.runtime.pipeline import HOLDING, IN_LISTS, WHILE

PARTITIONS, STREAMS = 4, 200
MESSAGES_PER_KILL = 200
MESSAGES_PER_SEQUENCE = 4.6
AT_START_SHARE = 0.2
AWAY_SHARE = 0.1
OTHER_SHARE = 0.15
SESSION_S = 3.0
STOP_S = 15.0
WRONG = (
    *("lost", "repeated", "foreign", "disordered"),
    *("attributions_lost", "attributions_repeated", "attributions_before_their_alert"),
)
_ALL_WRONG = (
    *(*WRONG, *faults_warnings.WRONG, *faults_mqtt_to_kafka.WRONG),
    *(*faults_operating.WRONG, *faults_learning.WRONG),
)
NOTICES_S = 1200.0
MODELS: dict[str, dict[str, Any]] = {
    "neutral_ad": {"detector": "neutral_ad", "options": {"epochs": 5}},
    "mean_square": {"detector": "mean_square"},
}


@dataclass(slots=True)
class Kills:
    """Kills workers of a plant and keeps every life that ended so."""

    plant: KafkaPlant
    broker: Broker
    flow: Flow
    rng: random.Random
    deadline_s: float
    operated: Operated | None = None
    killed: list[Worker] = field(default_factory=list)
    stopped: list[Worker] = field(default_factory=list)
    others: Counter[str] = field(default_factory=Counter)
    start_s: float = 1.0

    async def run(self, n: int, n_workers: int) -> list[Worker]:
        """Kill ``n`` times among ``n_workers``; return those that run at the end."""
        workers = {f"w{number}": self._begin(f"w{number}") for number in range(1, n_workers + 1)}
        first = next(iter(workers.values()))
        await first.until_logged("committed", timeout_s=120)
        self.start_s = time.time() - first.started_s
        youngest, took_s = "w1", 1.0
        for done in range(n):
            if time.monotonic() > self.deadline_s:
                raise TimeoutError(f"{done} of {n} kills in the time that there was: see --limit-s")
            if done % 10 == 0:
                print(f"{done} of {n} kills", file=sys.stderr)
            began_s = time.monotonic()
            if self.rng.random() < OTHER_SHARE:
                await self._other_fault(workers)
            is_young = self.rng.random() < AT_START_SHARE
            name = youngest if is_young else self.rng.choice(list(workers))
            await (self._start(workers[name]) if is_young else self._work(workers[name]))
            workers[name].kill()
            self.killed.append(workers[name])
            if len(workers) > 1 and self.rng.random() < AWAY_SHARE:
                others = [worker for other, worker in workers.items() if other != name]
                await others[0].until(lambda: self._is_all_owned(others))  # noqa: B023 - awaited at once
            youngest, workers[name] = name, self._begin(name)
            took_s = 0.8 * took_s + 0.2 * (time.monotonic() - began_s)
            # Slow enough that it hardly runs dry before the last kill.
            self.flow.per_s = max(20.0, 0.7 * self.flow.left / (n - done) / took_s)
        return list(workers.values())

    def _begin(self, name: str) -> Worker:
        """Start the next life of worker ``name``."""
        if self.operated is None:
            return self.plant.start(name)
        return self.plant.start(name, STREAMAD_METRICS__LISTEN=self.operated.listen(name))

    async def _other_fault(self, workers: dict[str, Worker]) -> None:
        """Stop or freeze a worker, or freeze the broker, and end the fault."""
        kind = self.rng.choice(("worker_stops", "worker_freezes", "broker_freezes"))
        self.others[kind] += 1
        name = self.rng.choice(list(workers))
        worker = workers[name]
        if kind == "worker_stops":
            worker.send(signal.SIGTERM)
            code = await worker.wait(STOP_S)
            if code and worker.n_commits:  # one that is just starting cannot stop in good order yet
                raise SystemExit(f"a worker that was stopped ended with {code}: {worker.said()[-3000:]}")
            self.stopped.append(worker)
            workers[name] = self._begin(name)
            return
        freeze, wake, seconds = self.broker.pause, self.broker.resume, self.rng.uniform(0.5, 3.0)
        if kind == "worker_freezes":
            freeze, wake = partial(worker.send, signal.SIGSTOP), partial(worker.send, signal.SIGCONT)
            seconds = SESSION_S + self.rng.uniform(0.2, 2.0)
        freeze()
        await asyncio.sleep(seconds)
        wake()

    async def _start(self, worker: Worker) -> None:
        """Wait for a moment at which ``worker`` is starting."""
        await asyncio.sleep(max(0.0, self.rng.random() * self.start_s - (time.time() - worker.started_s)))

    async def _work(self, worker: Worker) -> None:
        """Wait for a moment between two commits of ``worker``, or amid one."""
        n_wanted = worker.n_commits + self.rng.randrange(1, 8)
        try:
            await worker.until_logged("committed", n_wanted, timeout_s=3 * self.start_s)
        except TimeoutError:
            return  # it holds no partition
        await asyncio.sleep(self.rng.random() * 0.12)

    def _is_all_owned(self, workers: list[Worker]) -> bool:
        return len(set().union(*(worker.owned() for worker in workers))) == PARTITIONS


async def measure(options: argparse.Namespace, broker: Broker, folder: Path) -> dict[str, Any]:
    """Return the figures that ``--json`` prints."""
    started_s = time.monotonic()
    preload = ("torch",) if options.detector == "neutral_ad" or options.early else ()
    with ExitStack() as stack:
        sections: dict[str, Any] = {"model": MODELS[options.detector]}
        operated = None
        if options.operate:
            rng = random.Random(options.seed)
            operated = stack.enter_context(Operated(folder / "plant", ForkServer(*preload), rng))
            sections["notify"] = operated.notify()
        learned = None
        if options.learn:
            rng = random.Random(options.seed + 1)
            learned = stack.enter_context(Learned(folder / "plant", ForkServer(), rng))
            sections["learning"] = learned.section()
        if options.hold:
            sections["channels"] = HOLDING
        if options.each:
            sections["decode"] = IN_LISTS
        if options.states:
            sections["sequences"] = WHILE
        if options.early:
            sections["alerts"] = LOOKING
        plant = KafkaPlant(folder / "plant", broker.bootstrap, partitions=PARTITIONS, preload=preload, **sections)
        figures = await _measure(options, broker, plant, operated, learned)
        return {**figures, "wall_s": round(time.monotonic() - started_s, 1)}


async def _measure(
    options: argparse.Namespace,
    broker: Broker,
    plant: KafkaPlant,
    operated: Operated | None,
    learned: Learned | None,
) -> dict[str, Any]:
    deadline_s = time.monotonic() + options.limit_s
    print(f"training {options.detector}", file=sys.stderr)
    await plant.create()
    n_messages = (options.kills + 10) * MESSAGES_PER_KILL
    sequences = max(2, round(n_messages / STREAMS / MESSAGES_PER_SEQUENCE))
    forms = {"holds": options.hold, "lists": options.each, "states": options.states}
    messages = traffic(options.seed, partitions=PARTITIONS, streams=STREAMS, sequences=sequences, **forms)
    flow = plant.flow(messages, per_s=MESSAGES_PER_KILL)
    kills = Kills(plant, broker, flow, random.Random(options.seed), deadline_s, operated)
    try:
        if operated is not None:
            operated.begin()
        if learned is not None:
            learned.begin()
        running = await kills.run(options.kills, options.workers)
        print("judging the rest", file=sys.stderr)
        flow.per_s = None
        await flow.finish()
        expected = await plant.expected()
        await plant.until_judged(expected, 300)
        difference = await plant.difference(expected, numbers=options.detector == "mean_square")
        aborted_s = await plant.aborted_s()
        found = await plant.outputs()
        alerts_s, attributions_s = await plant.sent_s("alerts"), await plant.sent_s("attributions")
        warnings_s: list[tuple[str, float]] = []
        if options.early:
            warnings_s = await plant.sent_s("warnings", lambda message: message["warning_id"])
            verdicts_s = await plant.sent_s("verdicts", named_in)
        if operated is not None:
            await operated.finish(dict(alerts_s), options.kills, NOTICES_S)
        if learned is not None:
            await learned.finish()
            committed = await plant.committed("windows")
    finally:
        flow.cancel()
        plant.close()
    if not difference.is_none:
        print(f"not as an undisturbed run: {difference}", file=sys.stderr)
    lives = [*kills.killed, *kills.stopped, *running]
    amid = [life for life in kills.killed if any(life.started_s < at_s < life.ended_s for at_s in aborted_s)]
    return {
        "detector": options.detector,
        "workers": options.workers,
        "sequences": len(expected["verdicts"]),
        "messages": sum(len(expected[role]) for role in expected),
        **difference.counts,
        **attribution_figures(
            expected["alerts"],
            found["attributions"],
            before_their_alert=n_early(dict(alerts_s) | dict(warnings_s), attributions_s),
            kills_with_debts=n_amid_debts(
                [life.ended_s for life in kills.killed], dict(alerts_s), dict(attributions_s)
            ),
        ),
        **(
            warning_figures(
                expected["warnings"],
                found,
                after_their_verdict=n_after_their_verdict(warnings_s, dict(verdicts_s)),
                kills_after_a_warning=n_amid_debts(
                    [life.ended_s for life in kills.killed], dict(warnings_s), dict(verdicts_s)
                ),
            )
            if options.early
            else {}
        ),
        "kills": len(kills.killed),
        "kills_before_a_commit": sum(life.n_commits == 0 for life in kills.killed),
        "kills_amid_a_transaction": len(amid),
        "other_faults": dict(kills.others),
        "restarts": len(lives) - options.workers,
        "rebalances": sum(len(life.logged("rebalanced")) for life in lives),
        **({} if operated is None else operated.figures(dict(alerts_s))),
        **({} if learned is None else learned.figures(committed)),
    }


def run(options: argparse.Namespace) -> dict[str, Any]:
    """Measure with a broker and a folder of this run."""
    with new_broker() as broker, tempfile.TemporaryDirectory() as folder:
        return asyncio.run(measure(options, broker, Path(folder)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--source", choices=("kafka", "file", "mqtt", "mqtt-kafka"), default="kafka")
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--workers", type=int, default=3)
    parser.add_argument("--detector", choices=sorted(MODELS), default="neutral_ad")
    parser.add_argument("--operate", action="store_true", help="with metrics and streamad notify, killed as well")
    parser.add_argument("--learn", action="store_true", help="with streamad learn, killed as well")
    parser.add_argument("--hold", action="store_true", help="with channels that are reported by exception")
    parser.add_argument("--each", action="store_true", help="with messages that are lists of samples")
    parser.add_argument("--while", action="store_true", dest="states", help="with states in place of sequence ids")
    parser.add_argument("--early", action="store_true", help="with looks at running sequences")
    parser.add_argument("--kill-broker", action="store_true", help="with mqtt: SIGKILL hits mosquitto instead")
    parser.add_argument("--limit-s", type=float, default=3600.0, help="give up if the kills take longer than this")
    parser.add_argument("--json", action="store_true", help="print one JSON object last")
    options = parser.parse_args()
    if options.source == "file":
        figures = faults_on_files.run(options, MODELS[options.detector])
    elif options.source == "mqtt":
        figures = faults_on_mqtt.run(options)
    else:
        try:
            fetch_jars()
        except KafkaUnavailableError as error:
            sys.exit(f"error: needs a Kafka broker: {error}")
        through_mqtt = options.source == "mqtt-kafka"
        figures = faults_mqtt_to_kafka.run(options, MODELS[options.detector]) if through_mqtt else run(options)
    if options.json:
        print(json.dumps(figures))
    else:
        for name, value in figures.items():
            print(f"{name.replace('_', ' '):<32}{value!s:>12}")
    sys.exit(1 if any(figures.get(name) for name in _ALL_WRONG) else 0)


if __name__ == "__main__":
    main()
