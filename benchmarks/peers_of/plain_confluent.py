"""A plain loop with confluent-kafka: ``consume`` in batches, delivery callbacks, synchronous manual commits."""

from __future__ import annotations

import time

import msgspec
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from job import BATCH, COMMIT_S, Job, OpenSequences


def delivered(error: KafkaError | None, _: Message) -> None:
    """Raise what kept an output from being written."""
    if error is not None:
        raise KafkaException(error)


def work(job: Job) -> None:
    """Read the topic; once a second the outputs are flushed and the offsets of no open sequence committed."""
    consumer = Consumer(
        {
            "bootstrap.servers": job.bootstrap,
            "group.id": job.group,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
        }
    )
    producer = Producer({"bootstrap.servers": job.bootstrap, "enable.idempotence": True})
    consumer.subscribe([job.topic])
    decode, encode = msgspec.json.Decoder().decode, msgspec.json.Encoder().encode
    partitions: dict[int, OpenSequences] = {}
    commit_at_s = time.monotonic() + COMMIT_S
    while not job.is_done:
        for record in consumer.consume(BATCH, timeout=0.2):
            if record.error():
                raise KafkaException(record.error())
            message = decode(record.value())
            job.count(len(message.get("times", "1")))
            opened = partitions.setdefault(record.partition(), OpenSequences())
            finished = opened.push(message, record.offset())
            if finished is not None:
                producer.produce(job.output, encode(job.judged(*finished)), record.key(), on_delivery=delivered)
        producer.poll(0)
        if partitions and (job.is_done or time.monotonic() > commit_at_s):
            producer.flush()
            offsets = [TopicPartition(job.topic, number, each.safe_offset) for number, each in partitions.items()]
            consumer.commit(offsets=offsets, asynchronous=False)
            commit_at_s = time.monotonic() + COMMIT_S
    job.report()
    consumer.close()


if __name__ == "__main__":
    work(Job.of_arguments())
