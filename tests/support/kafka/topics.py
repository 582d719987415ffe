"""A plant on a broker, as ``streamad topics`` sees it: a source, sinks, and names that no other test has."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from streamad.messages import Role
from streamad.plugins import ConnectorContext
from streamad.ports import TopicFinding, Topics
from streamad.system.clock import SystemClock
from streamad_connectors.kafka.client.options import Client, KafkaSinkOptions, KafkaSourceOptions, transactional_id_of
from streamad_connectors.kafka.topics.topics import KafkaTopics
from streamad_connectors.kafka.writing.sink import KafkaSink
from tests.support.kafka.broker import unique_name

DAY_US = 86_400_000_000


class TopicsPlant:
    """A source of some topics with sinks, all names unique; its topics are asked for as ``streamad topics`` does."""

    def __init__(self, bootstrap: str, *, n_inputs: int = 1, max_duration_us: int | None = DAY_US, **options: Any):
        self.bootstrap = bootstrap
        self.name = unique_name("plant")
        self.inputs = [f"{self.name}.in{i}" for i in range(n_inputs)]
        self.group = f"streamad.{self.name}"
        self.progress = [f"{self.group}.{topic}.progress" for topic in self.inputs]
        self.claims = f"{self.group}.claims"
        self.rest = f"{bootstrap}/{','.join(self.inputs)}"
        self.options = KafkaSourceOptions.model_validate({"request_timeout": "5s", **options})
        self.context = ConnectorContext(
            (),
            SystemClock(),
            plant=self.name,
            source_url=f"kafka://{self.rest}",
            source_options=options,
            max_duration_us=max_duration_us,
        )
        self.sink_topics: dict[Role, str] = {"alerts": f"{self.name}.alerts", "dead_letters": f"{self.name}.dead"}
        self.sink_options = KafkaSinkOptions()

    @property
    def transactional_id(self) -> str:
        return transactional_id_of(self.inputs[0], 0, self.group)

    @asynccontextmanager
    async def topics(self) -> AsyncIterator[Topics]:
        client = Client.of(self.rest, self.options, self.context, "source.url")
        sinks = {
            role: KafkaSink(topic if "/" in topic else f"/{topic}", self.sink_options, self.context)
            for role, topic in self.sink_topics.items()
        }
        keeper = KafkaTopics(client, self.options, self.group, sinks, self.context)
        try:
            yield keeper
        finally:
            await keeper.close()
            await keeper.close()
            for sink in sinks.values():
                await sink.close()

    async def create(
        self, partitions: int = 3, replicas: int = 1, *, history_ms: int = 0, dry_run: bool = False
    ) -> list[TopicFinding]:
        async with self.topics() as topics:
            return list(
                await topics.create(partitions=partitions, replicas=replicas, history_ms=history_ms, dry_run=dry_run)
            )

    async def check(self) -> list[TopicFinding]:
        async with self.topics() as topics:
            return list(await topics.check())


def texts(findings: Sequence[TopicFinding], topic: str, level: str = "error") -> list[str]:
    return [finding.text for finding in findings if (finding.level, finding.topic) == (level, topic)]


def errors_of(findings: Sequence[TopicFinding]) -> list[tuple[str, str]]:
    return [(finding.topic, finding.text) for finding in findings if finding.level == "error"]
