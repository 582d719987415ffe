"""Makes the aiokafka consumers that read input topics, and looks for the topics before."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from aiokafka import AIOKafkaConsumer
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import KafkaConnectionError, KafkaError, NoError, for_code
from aiokafka.protocol.metadata import MetadataRequest

from streamad.errors import SourceError
from streamad_connectors.kafka.client.errors import explain, why_unreachable
from streamad_connectors.kafka.client.options import FETCH_WAIT_MS, Client, KafkaSourceOptions
from streamad_connectors.kafka.client.stopping import connected

_MAX_FETCH_BYTES = 50_000_000


def make_consumer(client: Client, options: KafkaSourceOptions, **membership: Any) -> AIOKafkaConsumer:
    """Return a consumer, not started, that never looks for an offset by itself."""
    return AIOKafkaConsumer(
        **client.consumer_kwargs(),
        fetch_max_wait_ms=FETCH_WAIT_MS,
        max_partition_fetch_bytes=options.fetch_bytes,
        fetch_max_bytes=max(_MAX_FETCH_BYTES, options.fetch_bytes),
        **membership,
    )


async def find_topics(client: Client, doing: str = "read") -> Mapping[str, int]:
    """Return how many partitions each topic of ``client`` has, within one request time-out for each broker it names.

    ``doing``: what it is for, "read" or "write". Raises SourceError where the broker cannot be reached or refuses, or
    a topic does not exist.
    """
    admin = AIOKafkaAdminClient(**client.kwargs())
    topics = list(client.place.topics)
    try:
        async with asyncio.timeout(client.connect_timeout_s):
            await connected(admin.start())
            # describe_topics would make a topic that is missing, where the broker lets clients do so.
            answer = await admin._send_request(MetadataRequest(topics, allow_auto_topic_creation=False))
    except KafkaConnectionError as error:
        raise SourceError(await why_unreachable(client)) from error
    except (KafkaError, OSError) as error:  # TimeoutError among them
        raise SourceError(explain(error, client, f"{doing} topic {', '.join(topics)}")) from error
    finally:
        await admin.close()
    return {found["topic"]: _count(found, client, doing) for found in answer.to_object()["topics"]}


def _count(found: Mapping[str, Any], client: Client, doing: str) -> int:
    topic, kind = found["topic"], for_code(found["error_code"])
    if kind is not NoError:
        raise SourceError(explain(kind(topic), client, f"{doing} topic {topic}"))
    return len(found["partitions"])
