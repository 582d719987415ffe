"""The topics that a plant's source keeps, for the commands that ask about them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager

from streamad.learn.feedback.exchange import exchange_sinks
from streamad.plant import Plant
from streamad.ports import TopicFinding, Topics, TransactionalSource
from streamad.runtime.wiring import sinks_for, source_for


@asynccontextmanager
async def kept_topics(plant: Plant) -> AsyncIterator[Topics | None]:
    """Give the keeper of the plant's topics, None where its source has none; afterwards close all that was made.

    Raises ConfigError, PluginError, OutputError.
    """
    async with AsyncExitStack() as stack:
        source = source_for(plant)
        stack.push_async_callback(source.close)
        if not isinstance(source, TransactionalSource):
            yield None
            return
        sinks = {**sinks_for(plant), **exchange_sinks(plant)}
        for sink in sinks.values():
            stack.push_async_callback(sink.close)
        keeper = source.topics(sinks)
        stack.push_async_callback(keeper.close)
        yield keeper


def folded(findings: Sequence[TopicFinding]) -> list[TopicFinding]:
    """Return errors of one and the same text as one, with all their topics, where the first of them was."""
    lines: list[TopicFinding] = []
    for finding in findings:
        told = [(line.level, line.text) for line in lines]
        if finding.level == "error" and ("error", finding.text) in told:
            place = told.index(("error", finding.text))
            lines[place] = finding._replace(topic=f"{lines[place].topic}, {finding.topic}")
        else:
            lines.append(finding)
    return lines
