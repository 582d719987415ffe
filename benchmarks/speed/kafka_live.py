"""Latency of a live topic: feeder, worker or bare transactional loop, and subscriber; see ``kafka_pipeline.py``.

Latency is the time from the moment at which a sequence's only message is handed to the producer to the moment at which
a read_committed subscriber has its alert; without attributions (explaining an alert of 24 channels takes a quarter of a
second more). Feeder and subscriber share this process, the worker has its own. The bare loop fetches, and writes each
message of an odd sequence to the topic of alerts in one transaction with its offsets: the least that an exactly-once
worker does, without decoding, assembly or model.
"""

from __future__ import annotations

import asyncio
import json
import math
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from kafka_bench_plant import PARTITIONS, STREAMS, Plant, chunk, sequences

from streamad.commands.shared.console import stop_with_parent

_SEQUENCE_S = 0.5
_ODD = b'"odd'
_LONGEST_S = 60.0


async def copy(bootstrap: str, topic: str, group: str) -> dict[str, Any]:
    """Copy messages of odd sequences to ``GROUP.alerts`` in transactions with their offsets, until stdin ends."""
    consumer = AIOKafkaConsumer(
        bootstrap_servers=bootstrap, isolation_level="read_committed", enable_auto_commit=False, group_id=group
    )
    producer = AIOKafkaProducer(bootstrap_servers=bootstrap, transactional_id=f"copy-{group}")
    await consumer.start()
    await producer.start()
    tps = [TopicPartition(topic, number) for number in range(PARTITIONS)]
    consumer.assign(tps)
    await consumer.seek_to_beginning(*tps)
    ended = asyncio.Event()
    stop_with_parent(ended.set)
    n_read = n_transactions = 0
    while not ended.is_set():
        found = await consumer.getmany(timeout_ms=100)
        if not found:
            continue
        async with producer.transaction():
            for records in found.values():
                for record in records:
                    n_read += 1
                    if _ODD in record.value:
                        await producer.send(f"{group}.alerts", record.value, record.key)
            offsets = {tp: records[-1].offset + 1 for tp, records in found.items()}
            await producer.send_offsets_to_transaction(offsets, group)
        n_transactions += 1
        print(json.dumps({"judged": n_read}), flush=True)
    await consumer.stop()
    await producer.stop()
    return {"sequences": n_read, "commits": n_transactions, "late": 0}


class Live:
    """One phase: a topic of its own, a worker (``streamad``) or the bare loop (``bare``), a feeder, a subscriber."""

    _number = 0

    def __init__(self, plant: Plant, form: str) -> None:
        Live._number += 1
        self.plant, self.form = plant, form
        self.kind = f"live-{Live._number}"
        self.group = f"{self.kind}-{form}"
        self.latencies_ms: list[float] = []
        self.memory_mb: list[float] = []
        self.last: dict[str, Any] = {}
        self._handed: dict[str, float] = {}
        self._judged = 0
        self._moved = asyncio.Event()

    async def run(self, rate: float, seconds: float) -> None:
        """Feed ``rate`` sequences a second for ``seconds``, once those sent during the start were judged.

        Raises RuntimeError if samples came late, if sequences were not judged, or if no alert came.
        """
        config = self.plant.config(self.kind, self.group)
        # Each stream has at most one sequence a second, which takes half a second: none overlaps another.
        endless = sequences(1 << 40, time.time_ns() % (1 << 32), max(STREAMS, math.ceil(rate)))
        producer = AIOKafkaProducer(bootstrap_servers=self.plant.bootstrap)
        await producer.start()
        subscriber = asyncio.create_task(self._subscribe())
        n_sent = 0
        try:
            async with self._started(config) as process:
                listener = asyncio.create_task(self._listen(process))
                while not self._judged:
                    await self._send(producer, next(endless), time.time() - _SEQUENCE_S, is_counted=False)
                    n_sent += 1
                    await asyncio.sleep(0.05)
                await self._all_judged(n_sent)
                begun, begun_s, n = time.perf_counter(), time.time(), 0
                # An odd sequence is likely to alert, not certain to: feed on until one has.
                while (passed_s := time.perf_counter() - begun) < seconds or (
                    not self.latencies_ms and passed_s < seconds + _LONGEST_S
                ):
                    await asyncio.sleep(max(0.0, n / rate - passed_s))
                    await self._send(producer, next(endless), begun_s + n / rate - _SEQUENCE_S, is_counted=True)
                    n += 1
                n_sent += n
                await producer.flush()
                await self._all_judged(n_sent)
                await asyncio.sleep(1)  # its last commit
            await listener
        finally:
            await producer.stop()
            subscriber.cancel()
            await asyncio.gather(subscriber, return_exceptions=True)
        if self.last.get("late") or self.last.get("sequences", 0) < n_sent or not self.latencies_ms:
            raise RuntimeError(f"{self.group}: {n_sent} sequences fed, {self.last}, {len(self.latencies_ms)} alerts")

    async def _all_judged(self, n: int) -> None:
        async with asyncio.timeout(_LONGEST_S):
            while self._judged < n:
                self._moved.clear()
                await self._moved.wait()

    @asynccontextmanager
    async def _started(self, config: Path) -> AsyncIterator[asyncio.subprocess.Process]:
        """Start the child, which ends with its standard input."""
        own = ("worker", str(config))
        if self.form == "bare":
            own = ("copy", self.plant.bootstrap, f"samples-{self.kind}", self.group)
        main = Path(__file__).with_name("kafka_pipeline.py")
        process = await asyncio.create_subprocess_exec(
            sys.executable, str(main), "--child", *own, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
        )
        assert process.stdin is not None
        try:
            yield process
        finally:
            process.stdin.close()
            try:
                await asyncio.wait_for(process.wait(), _LONGEST_S)
            except TimeoutError:
                process.kill()
                await process.wait()

    async def _send(
        self, producer: AIOKafkaProducer, made: tuple[str, str, np.ndarray, bool], start_s: float, *, is_counted: bool
    ) -> None:
        stream, sequence, values, odd = made
        sequence = f"odd-{sequence}" if odd else sequence
        now_s = time.time()
        if is_counted:
            self._handed[sequence] = now_s
        value = chunk(stream, sequence, values, start_s)
        await producer.send(f"samples-{self.kind}", value, stream.encode(), timestamp_ms=int(now_s * 1e3))

    async def _subscribe(self) -> None:
        consumer = AIOKafkaConsumer(
            bootstrap_servers=self.plant.bootstrap, isolation_level="read_committed", fetch_max_wait_ms=50
        )
        await consumer.start()
        tps = [TopicPartition(f"{self.group}.alerts", number) for number in range(PARTITIONS)]
        consumer.assign(tps)
        await consumer.seek_to_beginning(*tps)
        try:
            while True:
                for records in (await consumer.getmany(timeout_ms=50)).values():
                    now_s = time.time()
                    for record in records:
                        begun_s = self._handed.get(msgspec.json.decode(record.value)["sequence"])
                        if begun_s is not None:
                            self.latencies_ms.append(1e3 * (now_s - begun_s))
                            self._moved.set()
        finally:
            await consumer.stop()

    async def _listen(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdout is not None
        async for text in process.stdout:
            said = json.loads(text)
            if "rss_mb" in said:
                self.memory_mb.append(said["rss_mb"])
            self._judged = max(self._judged, said.get("judged", 0))
            self._moved.set()
            self.last = said


def latency(plant: Plant, form: str, rate: float, seconds: float) -> dict[str, Any]:
    """Measure alert latencies of ``form`` at ``rate`` sequences a second, in milliseconds."""
    live = Live(plant, form)
    asyncio.run(live.run(rate, seconds))
    p50, p99 = np.quantile(live.latencies_ms, (0.5, 0.99)).tolist()
    return {"p50": p50, "p99": p99, "alerts": len(live.latencies_ms), "sequences_per_s": rate, **live.last}
