"""The topics of a plant whose source is a broker."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager

from streamad.learn.feedback.place import feedback_sink
from streamad.plant import Plant
from streamad.ports import TopicFinding, Topics, TransactionalSource
from streamad.runtime.wiring import sinks_for, source_for, status_sink


@asynccontextmanager
async def topics_of(plant: Plant) -> AsyncIterator[Topics | None]:
    """Yield the plant's topics, None if its source has none; then close all connections.

    Raises ConfigError, PluginError, OutputError.
    """
    async with AsyncExitStack() as stack:
        source = source_for(plant)
        stack.push_async_callback(source.close)
        if not isinstance(source, TransactionalSource):
            yield None
            return
        sinks = {**sinks_for(plant), **feedback_sink(plant), **status_sink(plant)}
        for sink in sinks.values():
            stack.push_async_callback(sink.close)
        topics = source.topics(sinks)
        stack.push_async_callback(topics.close)
        yield topics


def merged_errors(findings: Sequence[TopicFinding]) -> list[TopicFinding]:
    """Return ``findings`` with errors of the same text merged into the first of them, which names all topics."""
    merged: dict[str | int, TopicFinding] = {}
    for finding in findings:
        key = finding.text if finding.level == "error" else id(finding)
        first = merged.get(key)
        merged[key] = finding if first is None else first._replace(topic=f"{first.topic}, {finding.topic}")
    return list(merged.values())
