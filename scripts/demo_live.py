"""``scripts/demo --web``: simulates and trains, then feeds a running plant to ``streamad run --web`` until Ctrl-C.

It works in the folder where it is started. Each step is a process that ends with this one: Ctrl-C, SIGTERM and SIGHUP
stop the feed, then the process.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import shlex
import signal
import sys
from asyncio.subprocess import Process
from collections.abc import Sequence
from pathlib import Path

import yaml
from pydantic import BaseModel

from streamad.commands.simulate.feed import PlantFeeder
from streamad.ports import FeedRecord
from streamad.simulation.messages import most_batches, plant_messages
from streamad.simulation.recordings import begin_us
from streamad.system.clock import SystemClock

N_TRAIN, N_STREAMS = 200, 2
SPEED = 3_600  # a fermenter ends a batch every 21 hours: both of them one every 10 seconds
FAULT_SHARE = 0.25
LIVE, TRUTH = Path("live", "live.jsonl"), Path("live", "labels.csv")
_CONFIG = Path("plant.yaml")
_END_S = 60.0
_STOPPED = 130


class GrowingFile:
    """A feed that appends each record to a file as a line, as a logger does."""

    options_model = BaseModel

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
        self._path = path

    async def send(self, records: Sequence[FeedRecord]) -> None:
        """Append ``records``."""
        with self._path.open("ab") as file:
            file.write(b"".join(record.value + b"\n" for record in records))

    async def flush(self) -> None:
        """Every line is there once it is sent."""

    async def close(self) -> None:
        """The file is closed after each delivery."""


def follow_live(config: Path) -> None:
    """Let ``config``, as ``streamad simulate`` writes it, follow the live file and take the marks of the page."""
    settings = yaml.safe_load(config.read_text(encoding="utf-8"))
    settings["source"] = {"url": str(LIVE), "options": {"follow": True}}
    settings["learning"] = {"store": "inliers"}
    settings["display"] = {"open": True, "status_interval": "1s"}
    head = "# The plant of scripts/demo --web: streamad simulate wrote it, then three sections were set.\n"
    text = yaml.safe_dump(settings, sort_keys=False, allow_unicode=True, width=120)
    config.write_text(head + text, encoding="utf-8")


async def _start(*arguments: str, **environment: str) -> Process:
    # In a session of its own: the terminal's Ctrl-C reaches this process alone, which then stops it once.
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "streamad", *arguments),
        stdin=asyncio.subprocess.DEVNULL,
        env={**os.environ, **environment},
        start_new_session=True,
    )


async def _ended(process: Process, stopping: asyncio.Event) -> int:
    """Return the exit code of ``process``, which SIGTERM ends after a stop, and SIGKILL if that takes a minute."""
    ending = asyncio.create_task(process.wait())
    stopped = asyncio.create_task(stopping.wait())
    await asyncio.wait({ending, stopped}, return_when=asyncio.FIRST_COMPLETED)
    stopped.cancel()
    if not ending.done():
        process.terminate()
        await asyncio.wait({ending}, timeout=_END_S)
        if not ending.done():
            process.kill()
    return await ending


async def _watch(seed: int, program: str, stopping: asyncio.Event) -> int:
    """Feed the plant and judge it until a stop; return the exit code."""
    clock = SystemClock()
    feed = GrowingFile(LIVE)
    run = await _start("run", "--web")
    # In the plant's own time, which goes on behind the training and ends before the present: no sample is of the future
    start_us = begin_us(N_TRAIN, N_STREAMS)
    messages = plant_messages(
        None,
        seed=seed,
        first_index=N_TRAIN,
        n_batches=most_batches(clock.now_us() - start_us, N_STREAMS),
        n_streams=N_STREAMS,
        fault_share=FAULT_SHARE,
    )
    feeder = PlantFeeder(feed, messages, clock, start_us=start_us, rate=SPEED, labels=TRUTH)
    feeding = asyncio.create_task(feeder.run())
    feeding.add_done_callback(lambda _: stopping.set())  # without batches there is nothing to watch
    code = await _ended(run, stopping)
    feeder.stop()
    fed = await feeding
    print(f"{fed.batches} whole batches were fed, {fed.faulty} of them faulty (the truth: {TRUTH})")
    print(f"to open the page again: cd {shlex.quote(str(Path.cwd()))} && {shlex.quote(program)} web")
    return code


async def demo(seed: int, program: str) -> int:
    """Run the demo in the working directory; return its exit code. ``program``: what people call streamad with."""
    stopping = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        asyncio.get_running_loop().add_signal_handler(number, stopping.set)
    print(f"1/3  simulate: {N_TRAIN} normal batches to learn from", flush=True)
    counts = ("--train", str(N_TRAIN), "--normal", "0", "--faulty", "0")
    code = await _ended(await _start("simulate", "--out", ".", "--seed", str(seed), *counts), stopping)
    if code == 0 and not stopping.is_set():
        print(
            "2/3  train: learn what normal looks like; 99 of the batches are held out to calibrate the alerts",
            flush=True,
        )
        code = await _ended(await _start("train", STREAMAD_MODEL__SEED=str(seed)), stopping)
    if stopping.is_set():
        return _STOPPED
    if code:
        return code
    follow_live(_CONFIG)
    print(
        "3/3  run: an hour of the plant takes a second; about every fourth batch is faulty, most are warned of before\n"
        "     their end, hours before the alert\n"
        "     to open the page: the link below; F, C and V mark an alert; to end all: Ctrl-C",
        flush=True,
    )
    return await _watch(seed, program, stopping)


def main() -> None:
    """Run the demo and exit with its code."""
    parser = argparse.ArgumentParser(description="The part of scripts/demo --web that runs streamad.")
    parser.add_argument("--seed", type=int, default=0, help="seed of simulation and training")
    parser.add_argument("--streamad", default="streamad", help="how the command streamad is called")
    given = parser.parse_args()
    sys.exit(asyncio.run(demo(given.seed, given.streamad)))


if __name__ == "__main__":
    main()
