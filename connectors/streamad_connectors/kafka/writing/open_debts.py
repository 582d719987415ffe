"""The open debts of all partitions, read beside the workers: nothing is fenced, written or joined."""

from __future__ import annotations

import asyncio

from aiokafka import errors

from streamad.errors import SourceError
from streamad.messages import ModelRef
from streamad_connectors.kafka.client.admin import Admin, TopicState
from streamad_connectors.kafka.client.errors import explain, why_failed
from streamad_connectors.kafka.client.options import progress_topic_of
from streamad_connectors.kafka.client.source_state import SourceState
from streamad_connectors.kafka.writing.progress_topic import debts_in, read_items

_AT_ONCE = 8


async def owed_models(state: SourceState) -> set[ModelRef]:
    """Return the versions of models that debts in the progress topics name. A topic that is not there owes nothing.

    Raises SourceError, CheckpointError.
    """
    client = state.client
    topics = [progress_topic_of(state.group, topic) for topic in client.place.topics]
    doing = f"read topic {', '.join(topics)}"
    try:
        async with Admin(client) as admin:
            states = await admin.describe(topics)
        places = []
        for topic, topic_state in states.items():
            if isinstance(topic_state, TopicState):
                places += [(topic, number) for number in range(topic_state.partitions)]
            elif topic_state != errors.UnknownTopicOrPartitionError.errno:
                raise SourceError(explain(errors.for_code(topic_state)(topic), client, f"read topic {topic}"))
        turns = asyncio.Semaphore(_AT_ONCE)

        async def owed(topic: str, partition: int) -> set[ModelRef]:
            async with turns:
                items = await read_items(client.consumer_kwargs(), topic, partition, client.request_timeout_s)
            return {debt.alert.model for debt in debts_in(items)}

        found = await asyncio.gather(*(owed(*place) for place in places), return_exceptions=True)
        for each in found:
            if isinstance(each, BaseException):
                raise each
    except (errors.KafkaError, OSError) as error:  # TimeoutError is an OSError
        raise SourceError(await why_failed(error, client, doing)) from error
    return {model for each in found if isinstance(each, set) for model in each}
