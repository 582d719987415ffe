"""Faust (faust-streaming): an agent with a table in memory, its changelog topic, and commits as by default.

The samples of an open sequence are one list in the table, so the changelog gets the list anew with each sample.
"""

from __future__ import annotations

import asyncio
import logging
import os
from typing import Any

import faust
from job import PARTITIONS, Job, rows_of


def app_of(job: Job) -> faust.App:
    """Return the application; when all windows were made it flushes, commits and reports, then the process ends."""
    app = faust.App(
        job.group,
        broker=f"kafka://{job.bootstrap}",
        store="memory://",
        topic_partitions=PARTITIONS,
        processing_guarantee="exactly_once" if "exactly-once" in job.modes else "at_least_once",
        web_enabled=False,
    )
    source = app.topic(job.topic, key_type=bytes, value_serializer="json")
    output = app.topic(job.output, key_type=bytes, value_serializer="json")
    table = app.Table("open", partitions=PARTITIONS)
    finished = asyncio.Event()

    @app.agent(source)
    async def gather(stream: faust.Stream[dict[str, Any]]) -> None:
        async for key, message in stream.items():
            rows, sequence = rows_of(message), message["sequence"]
            job.count(len(rows))
            before = table.get(sequence)
            if before is not None:
                rows = before + rows
            if not message.get("end"):
                table[sequence] = rows
                continue
            if before is not None:
                del table[sequence]
            await output.send(key=key, value=job.judged(message["stream"], sequence, rows))
            if job.is_done:
                finished.set()

    @app.task
    async def end() -> None:
        await finished.wait()
        await app.producer.flush()
        await app.consumer.commit()
        job.report()
        os._exit(0)  # the worker would wait for its services first

    return app


if __name__ == "__main__":
    faust.Worker(app_of(Job.of_arguments()), loglevel=logging.ERROR).execute_from_commandline()
