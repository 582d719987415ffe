"""Which files of the product a message passes from Kafka to its commit, and an accepted inlier from there to the store.

A worker, then a learner, runs in a process of its own under ``sys.setprofile``, against a broker of this script. Each
handles one sequence before it counts; then the files whose functions run while it waits are noted, and those that run
while it handles one more normal sequence. Those that run while it waits, too, are counted apart: some of them are only
heartbeats and ticks.
Run: ``python benchmarks/files_entered.py [--list] [--json]`` (needs Java 17, about a minute).
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks" / "speed")]

import yaml  # noqa: E402
from kafka_bench_plant import Plant, chunk, plant_on_a_broker, sequences  # noqa: E402

from streamad.plugins import connect_feed  # noqa: E402
from streamad.ports import FeedRecord  # noqa: E402
from tests.support.kafka.broker import read_committed  # noqa: E402

GROUP = "trace"
WAIT_S = 180.0
IDLE_S = 3.0
PARTS = ("streamad/", "connectors/", "models/")
LEARNING = {"process": "elsewhere", "schedule": None, "feedback": f"kafka:///{GROUP}.feedback"}


class Profile:
    """Notes the product's files whose functions are called while it is ``on``, in every thread."""

    def __init__(self) -> None:
        self.is_on = False
        self.files: set[str] = set()
        threading.setprofile(self._called)
        sys.setprofile(self._called)

    def _called(self, frame: FrameType, event: str, _: object) -> None:
        if self.is_on and event == "call":
            self.files.add(frame.f_code.co_filename)

    def during(self, work: Callable[[], object]) -> set[str]:
        """Do ``work`` and return the product's files that ran meanwhile."""
        self.files.clear()
        self.is_on = True
        work()
        self.is_on = False
        found = {os.path.relpath(name, ROOT) for name in self.files if name.startswith(str(ROOT))}
        return {name for name in found if name.startswith(PARTS)}


def feed(plant: Plant, number: int) -> None:
    """Send the sequence ``number``, a normal one."""
    stream, sequence, values, _ = list(sequences(number + 2, n_streams=1))[number + 1]

    async def send() -> None:
        to = connect_feed(plant.url("traced"), {}, plant.context)
        await to.send([FeedRecord(chunk(stream, sequence, values, time.time() - 5), stream.encode())])
        await to.flush()
        await to.close()

    asyncio.run(send())


def until(is_so: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + WAIT_S
    while not is_so():
        if time.monotonic() > deadline_s:
            print(f"nothing has come for {WAIT_S:g} s", file=sys.stderr, flush=True)
            os._exit(1)  # of a thread SystemExit would end the thread alone
        time.sleep(0.05)


def n_committed(plant: Plant, role: str) -> int:
    return len(asyncio.run(read_committed(plant.bootstrap, f"{GROUP}.{role}")))


def child(what: str, plant: Plant, report: Path) -> None:
    """Be the worker or the learner, and write the files that a sequence entered."""
    profile = Profile()
    store = plant.folder / "inliers" / "learner.json"

    def drive() -> None:
        sys.setprofile(None)  # this thread is no part of the product
        if what == "run":
            feed(plant, 0)
            until(lambda: n_committed(plant, "verdicts") == 1)
            idle = profile.during(lambda: time.sleep(IDLE_S))
            busy = profile.during(lambda: (feed(plant, 1), until(lambda: n_committed(plant, "verdicts") == 2)))
        else:
            until(lambda: store.exists() and sum(n_of(store)) == 2)
            idle = profile.during(lambda: time.sleep(IDLE_S))
            worker = subprocess.Popen([sys.executable, "-m", "streamad", *RUN], cwd=plant.folder)
            busy = profile.during(lambda: (feed(plant, 2), until(lambda: sum(n_of(store)) == 3)))
            worker.terminate()
            worker.wait()
        report.write_text(json.dumps([sorted(busy - idle), sorted(busy & idle)]))
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=drive, daemon=True).start()
    from streamad.cli import main as streamad  # noqa: PLC0415 - under the profile

    sys.argv = ["streamad", *(RUN if what == "run" else ["learn", "--config", f"{GROUP}.yaml"])]
    os.chdir(plant.folder)
    streamad()


RUN = ["run", "--quiet", "--config", f"{GROUP}.yaml"]


def n_of(status: Path) -> list[int]:
    """Return how many sequences each share of the learner has."""
    state = next(iter(json.loads(status.read_text())["models"].values()), {})
    return [state.get(share, 0) for share in ("accepted", "reserve", "aside")]


def main() -> None:
    """Trace worker and learner; print how many files each enters, and which."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--list", action="store_true", help="print the files, too")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--child", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        what, folder, bootstrap = options.child
        child(what, Plant(Path(folder), bootstrap, "default"), Path(folder) / f"{what}.json")
        return
    found: dict[str, list[list[str]]] = {}
    with plant_on_a_broker("default") as plant:
        config = plant.config("traced", GROUP)
        content = yaml.safe_load(config.read_text())
        content["model"] |= {"detector": "pointwise", "references": []}
        content["learning"] = LEARNING
        content["sinks"] |= {"windows": f"kafka:///{GROUP}.windows"}
        config.write_text(yaml.safe_dump(content))
        plant.streamad("topics", "create", "--config", config.name, "--partitions", "1")
        plant.train(config)
        for what in ("run", "learn"):
            own = [sys.executable, __file__, "--child", what, str(plant.folder), plant.bootstrap]
            done = subprocess.run(own, check=False)
            if done.returncode:
                raise SystemExit(f"{what} ended with exit code {done.returncode}")
            found[what] = json.loads((plant.folder / f"{what}.json").read_text())
    if options.json:
        print(json.dumps(found))
        return
    names = {"run": "a message, from Kafka to its commit", "learn": "an accepted inlier, from there to the store"}
    for what, (alone, also_idle) in found.items():
        print(f"{names[what]}: {len(alone)} files, and {len(also_idle)} that run while nothing comes, too")
        if options.list:
            print("", *alone, "", *also_idle, sep="\n  ")


if __name__ == "__main__":
    main()
