"""A plain loop with aiokafka: the consumer's ``getmany`` and manual commits, or its transactional example."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgspec
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from job import BATCH, COMMIT_S, Job, OpenSequences


async def work(job: Job) -> None:
    """Read the topic; once a second the outputs are awaited and the offsets of no open sequence committed."""
    is_transactional = "transactions" in job.modes
    consumer = AIOKafkaConsumer(
        job.topic,
        bootstrap_servers=job.bootstrap,
        group_id=job.group,
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        isolation_level="read_committed",
    )
    producer = AIOKafkaProducer(
        bootstrap_servers=job.bootstrap,
        enable_idempotence=True,
        transactional_id=job.group if is_transactional else None,
    )
    decode, encode = msgspec.json.Decoder().decode, msgspec.json.Encoder().encode
    partitions: dict[TopicPartition, OpenSequences] = {}

    @asynccontextmanager
    async def commit_at_the_end() -> AsyncIterator[list[asyncio.Future[object]]]:
        sent: list[asyncio.Future[object]] = []
        if not is_transactional:
            yield sent
            await asyncio.gather(*sent)
            await consumer.commit({tp: each.safe_offset for tp, each in partitions.items()})
            return
        async with producer.transaction():
            yield sent
            await asyncio.gather(*sent)
            offsets = {tp: each.safe_offset for tp, each in partitions.items()}
            await producer.send_offsets_to_transaction(offsets, job.group)

    async with consumer, producer:
        while not job.is_done:
            async with commit_at_the_end() as sent:
                until_s = time.monotonic() + COMMIT_S
                while not job.is_done and time.monotonic() < until_s:
                    for tp, records in (await consumer.getmany(timeout_ms=200, max_records=BATCH)).items():
                        opened = partitions.setdefault(tp, OpenSequences())
                        for record in records:
                            message = decode(record.value)
                            job.count(len(message.get("times", "1")))
                            finished = opened.push(message, record.offset)
                            if finished is not None:
                                value = encode(job.judged(*finished))
                                sent.append(await producer.send(job.output, value, record.key))
        job.report()


if __name__ == "__main__":
    asyncio.run(work(Job.of_arguments()))
