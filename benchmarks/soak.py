"""A soak: a whole plant on Kafka for hours, with kills every few minutes; what grows that must not?

One run starts a broker, trains, and lets lines send samples in real time. Beside two workers run ``streamad learn``
(which retrains every six minutes), ``streamad web`` (whose pages are asked all the time) and ``streamad notify`` (to a
receiver on loopback). A kill ends a process's memory, and with it what would show a leak: so each of the four is there
twice, once killed (SIGKILL) in random turns and once spared (``soak_plant.py``). Now and then Kafka itself is killed.
All speaks to loopback only, and is ended by its id.

Each sample is a line of ``samples.jsonl`` in the folder: memory, open files and threads of each process
(``soak_sampling.py``), the disk by folder and topic, lags, latencies since the last sample, and counts
(``soak_counts.py``). At the end every sequence that was begun must have one verdict, each anomalous one an alert, an
attribution and, at both receivers, a notice; else the exit code is 1. A run with the folder of an earlier one goes on
where that ended, whatever ended it.

``soak_law.py`` draws the curves, also while it runs, and decides which of them are flat.
Run: ``python benchmarks/soak.py --hours 2 --folder /var/tmp/soak``, then
``python benchmarks/soak_law.py /var/tmp/soak --out benchmarks/results``.
A whole day: ``python benchmarks/soak.py --hours 24 --sample-s 60 --folder /var/tmp/soak``.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import os
import random
import signal
import sys
import time
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.faults_operating import asked as scraped
from benchmarks.faults_operating import notice_figures
from benchmarks.soak_counts import EARLIER_S, CountingHook, Ledger, Pages, flow, lags, observe, verdicts_in
from benchmarks.soak_plant import MODELS, OWN, Part, SoakPlant, parts, stop
from benchmarks.soak_sampling import mb_in, measured, orphans
from tests.support.kafka.broker import Broker, KafkaUnavailableError, fetch_jars
from tests.support.notify.hook import listening

SAMPLES_FILE = "samples.jsonl"
AT_START_SHARE = 0.2
MOST_START_S = 3.0
START_S = 20.0
"""What a start takes at most on a busy machine."""
ORPHAN_S = 120.0
"""A training that outlives its killed learner by so much has not noticed; it has the lowest priority."""
SETTLE_S = 600.0
LAG_LIMIT_S = 10.0


@dataclass(slots=True)
class Soak:
    """One run over a plant; ``samples`` is written to as it goes."""

    options: argparse.Namespace
    folder: Path
    broker: Broker
    plant: SoakPlant
    ledger: Ledger
    hooks: Mapping[str, CountingHook]
    before_h: float
    """Hours of the earlier runs."""
    parts: list[Part] = field(default_factory=parts)
    started_s: float = field(default_factory=time.time)
    killed: list[tuple[float, str]] = field(default_factory=list)
    """When (monotonic seconds) which part was killed."""
    away_s: list[tuple[float, float]] = field(default_factory=list)
    """From when to when (Unix seconds) Kafka was away; the last one may still be."""
    started_without_kafka: int = 0
    died: list[str] = field(default_factory=list)
    orphans: set[int] = field(default_factory=set)
    is_ending: bool = False

    @property
    def hours(self) -> float:
        """The time of all runs so far."""
        return self.before_h + (time.time() - self.started_s) / 3600

    def write(self, kind: str, **content: Any) -> None:
        """Append a line to the samples."""
        with (self.folder / SAMPLES_FILE).open("a") as file:
            file.write(json.dumps({"kind": kind, "hours": round(self.hours, 5), **content}) + "\n")

    async def run(self) -> bool:
        """Run for the hours that were asked for; return whether nothing was wrong at the end."""
        chosen = {key: value for key, value in vars(self.options).items() if key != "folder"}
        self.write("begin", options=chosen, cores=os.cpu_count())
        for part in self.parts:
            part.start(self.plant)
        ending, pages = asyncio.Event(), Pages(self.ledger)
        flowing = asyncio.create_task(flow(self.plant, self.ledger, self.options.lines, self.options.seed, ending))
        others = [
            asyncio.create_task(observe(self.plant, self.ledger)),
            asyncio.create_task(pages.read([part for part in self.parts if part.name.endswith("web")])),
            asyncio.create_task(self._sample(pages)),
        ]
        kills = [asyncio.create_task(self._kill()), asyncio.create_task(self._kill_kafka())]
        try:
            timer = asyncio.create_task(asyncio.sleep(self.options.hours * 3600))
            await asyncio.wait([timer, flowing, *others, *kills], return_when=asyncio.FIRST_COMPLETED)
            for task in (flowing, *others, *kills):
                if task.done():
                    task.result()
            for task in kills:
                task.cancel()
            await asyncio.wait(kills)
            self.broker.recover()
            self._revive()
            ending.set()
            await flowing
            is_whole = await self._settle()
            return await self._finish(is_whole)
        finally:
            for task in (flowing, *others, *kills):
                task.cancel()
            for part in self.parts:
                for life in part.lives:
                    life.end()
            for pid in orphans(life.process.pid for part in self.parts for life in part.lives):
                os.kill(pid, signal.SIGKILL)

    # --- what happens to it ---

    async def _kill(self) -> None:
        """Kill one of the parts that are not spared every few minutes, at times also while it starts."""
        rng = random.Random(f"{self.options.seed} {self.before_h}")
        targets = [part for part in self.parts if not part.is_spared]
        while True:
            await asyncio.sleep(self.options.kill_s * rng.uniform(0.5, 1.5))
            part = rng.choice(targets)
            self._kill_part(part)
            while rng.random() < AT_START_SHARE:
                await asyncio.sleep(rng.uniform(0.0, MOST_START_S))
                self._kill_part(part)

    def _kill_part(self, part: Part) -> None:
        self._revive()
        part.life.kill()
        self.killed.append((time.monotonic(), part.name))
        self.write("kill", part=part.name, age_s=round(part.life.ended_s - part.life.started_s, 1))
        part.start(self.plant)

    async def _kill_kafka(self) -> None:
        while True:
            await asyncio.sleep(self.options.kill_kafka_s)
            began_s = time.time()
            self.away_s.append((began_s, float("inf")))
            self.broker.kill()
            await asyncio.to_thread(self.broker.start)
            self.away_s[-1] = (began_s, time.time())
            self.write("kill", part="kafka", away_s=round(time.time() - began_s, 1))

    def _revive(self) -> None:
        """Start what has ended by itself, as a supervisor does; it is told of at the end.

        A start without Kafka ends with 1, as the docs say. Anything else is wrong.
        """
        for part in self.parts:
            life = part.life
            if life.is_running or self.is_ending:
                continue
            life.end()
            is_start = any(from_s - START_S <= life.started_s <= to_s for from_s, to_s in self.away_s)
            code, said = life.process.poll(), life.said()[-2000:]
            if is_start and code == 1:
                self.started_without_kafka += 1
            else:
                self.died.append(f"{part.name} ended with {code}: {said}")
            self.write("died", part=part.name, code=code, said=said, without_kafka=is_start)
            part.start(self.plant)

    # --- what is measured ---

    async def _sample(self, pages: Pages) -> None:
        while not self.is_ending:
            await asyncio.sleep(self.options.sample_s)
            self._revive()
            before_s = time.time() - ORPHAN_S
            self.orphans |= set(
                orphans(life.process.pid for part in self.parts for life in part.lives if life.ended_s < before_s)
            )
            self.write(
                "sample",
                load=os.getloadavg()[0],
                processes=measured({part.name: part.life.process.pid for part in self.parts}),
                kafka=measured({"kafka": self.broker.pid}) if self.broker.is_running else {},
                age_s={part.name: round(time.time() - part.life.started_s, 1) for part in self.parts},
                disk_mb=self._disk(),
                lag=await self._lags(),
                latency_s=self.ledger.latencies(),
                counts=self.ledger.counts(),
                pages=pages.figures(),
                notices={name: len(hook.taken) for name, hook in self.hooks.items()},
                orphans=len(self.orphans),
            )

    def _disk(self) -> dict[str, float]:
        found = {}
        for name in OWN:
            for file in (name, f"spared-{name}"):
                found[file] = mb_in(self.plant.folder.glob(f"{file}*"))
        found["logs"] = mb_in(self.plant.folder.glob("*.log"))
        named = {*OWN, *(f"spared-{name}" for name in OWN)}
        rest = [path for path in self.plant.folder.iterdir() if not any(path.name.startswith(name) for name in named)]
        found["others"] = mb_in(path for path in rest if path.suffix != ".log")
        topics: dict[str, list[Path]] = {}
        for path in (self.broker.folder / "log").glob("*-[0-9]*"):
            name = path.name.rpartition("-")[0]
            topics.setdefault("kafka's own" if name.startswith("__") else f"topic {name}", []).append(path)
        return found | {name: mb_in(paths) for name, paths in sorted(topics.items())}

    async def _lags(self) -> dict[str, int | None]:
        found: dict[str, int | None] = {}
        for part in self.parts:
            if part.name.endswith("worker"):
                outcome, text = await asyncio.to_thread(scraped, f"http://{part.address}/metrics")
                found[part.name] = _lag_in(text) if outcome == "answered" else None
        windows, alerts = self.plant.output("windows"), self.plant.output("alerts")
        groups = {}
        for spared, name, one in (("spared ", "soak-spared", "spared"), ("", "soak", "killed")):
            groups[f"{spared}learn"] = (f"streamad.{name}.learner", windows)
            groups[f"{spared}notify"] = (f"streamad.{name}.notify.{one}", alerts)
            view = self.plant.folder / f"{spared.replace(' ', '-')}view.sqlite3"
            n = await asyncio.to_thread(verdicts_in, view)
            found[f"{spared}web verdicts"] = n
        try:
            async with asyncio.timeout(LAG_LIMIT_S):
                found |= await lags(self.plant, groups)
        except Exception as error:  # noqa: BLE001 - Kafka is away, which the sample says; aiokafka has many words for it
            print(f"no lags: {error!r}", file=sys.stderr)
        return found

    # --- the end ---

    async def _settle(self) -> bool:
        """Wait until all verdicts, attributions and notices are there; return whether they came."""
        deadline_s = time.monotonic() + SETTLE_S
        while time.monotonic() < deadline_s:
            self._revive()
            alerts = self.ledger.found["alerts"].keys()
            is_judged = not any(
                self.ledger.wrong()[name] for name in ("verdicts_lost", "alerts_lost", "attributions_lost")
            )
            if is_judged and all(alerts <= {name for _, name in hook.taken} for hook in self.hooks.values()):
                return True
            await asyncio.sleep(1)
        return False

    async def _finish(self, is_whole: bool) -> bool:
        """Stop all; write what was found."""
        self.is_ending = True
        codes = await stop(self.parts)
        alerts = set(self.ledger.found["alerts"])
        wrong = self.ledger.wrong()
        notices = {}
        for name, hook in self.hooks.items():
            killed_s = [EARLIER_S, *(at_s for at_s, part in self.killed if part == name)]
            notices[name] = notice_figures(alerts, hook.taken, killed_s)
            for kind in ("alerts_without_notice", "notices_of_no_alert", "notices_repeated_without_a_kill"):
                wrong[f"{name}: {kind}"] = notices[name][kind]
        wrong |= {"processes_that_ended_by_themselves": len(self.died), "stopped_with_an_error": len(codes)}
        wrong |= {"orphans": len(self.orphans)}
        is_right = is_whole and not any(wrong.values())
        kills: dict[str, int] = {}
        for _, name in self.killed:
            kills[name] = kills.get(name, 0) + 1
        self.write(
            "end",
            right=is_right,
            wrong=wrong,
            codes=codes,
            counts=self.ledger.counts(),
            kills=kills,
            notices=notices,
            unscorable=dict(self.ledger.unscorable),
            started_without_kafka=self.started_without_kafka,
        )
        for name, value in wrong.items():
            print(f"{name.replace('_', ' '):<50}{value:>8}")
        print("\n".join(self.died), file=sys.stderr)
        return is_right


def _lag_in(text: str) -> int:
    """Return the records that wait, by a worker's metrics."""
    families = text_string_to_metric_families(text)
    return round(
        sum(one.value for each in families if each.name == "streamad_source_lag_records" for one in each.samples)
    )


def hours_in(samples: Path) -> float:
    """Return the hours of the runs whose lines are in ``samples``; the last line may be cut off."""
    lines = samples.read_text().splitlines() if samples.exists() else []
    for line in reversed(lines):
        try:
            return float(json.loads(line)["hours"])
        except ValueError:
            continue
    return 0.0


def run(options: argparse.Namespace) -> bool:
    """Begin a soak in a folder, or go on with the one there; return whether nothing was wrong."""
    for number in (signal.SIGINT, signal.SIGTERM):  # also where SIGINT was ignored, as behind nohup
        signal.signal(number, signal.default_int_handler)
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)  # it says a hundred times that Kafka is away
    folder: Path = options.folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        broker = Broker(folder / "kafka")
        broker.start()
        stack.callback(broker.kill)
        ledger = Ledger(folder)
        stack.callback(ledger.close)
        hooks = {name: CountingHook(name, ledger, folder) for name in ("spared notify", "notify")}
        for hook in hooks.values():
            stack.enter_context(listening(hook))
        plant = SoakPlant(folder / "plant", broker.bootstrap, hooks, options.detector)
        before_h = hours_in(folder / SAMPLES_FILE)

        async def soak() -> bool:
            if (folder / SAMPLES_FILE).exists():
                plant.write_config()  # with the broker's new port
            else:
                await plant.create()
            return await Soak(options, folder, broker, plant, ledger, hooks, before_h).run()

        return asyncio.run(soak())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hours", type=float, default=2.0, help="how long (default: 2)")
    parser.add_argument("--folder", type=Path, help="where it happens; goes on with what is there")
    parser.add_argument("--sample-s", type=float, default=15.0, help="seconds between samples (default: 15)")
    parser.add_argument("--kill-s", type=float, default=90.0, help="seconds between kills, on average (default: 90)")
    parser.add_argument("--kill-kafka-s", type=float, default=2400.0, help="likewise of Kafka (default: 2400)")
    parser.add_argument("--lines", type=int, default=12, help="lines, of two samples a second (default: 12)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--detector", choices=sorted(MODELS), default="ensemble", help="default: ensemble")
    options = parser.parse_args()
    if options.folder is None:
        parser.error("name a --folder")
    try:
        fetch_jars()
    except KafkaUnavailableError as error:
        sys.exit(f"error: needs a Kafka broker: {error}")
    sys.exit(0 if run(options) else 1)


if __name__ == "__main__":
    main()
