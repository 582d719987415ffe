"""The topics that a plant's source keeps, for the commands that ask about them."""

from __future__ import annotations

__all__ = ["kept_topics"]

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

from streamad.commands._common import Plant
from streamad.ports import Topics, TransactionalSource
from streamad.wiring import sinks_for, source_for


@asynccontextmanager
async def kept_topics(plant: Plant) -> AsyncIterator[Topics | None]:
    """Give the keeper of the plant's topics, None where its source has none; afterwards close all that was made.

    Raises ConfigError, PluginError, OutputError.
    """
    async with AsyncExitStack() as stack:
        source = source_for(plant.settings, plant.context)
        stack.push_async_callback(source.close)
        if not isinstance(source, TransactionalSource):
            yield None
            return
        sinks = sinks_for(plant.settings, plant.context)
        for sink in sinks.values():
            stack.push_async_callback(sink.close)
        keeper = source.topics(sinks)
        stack.push_async_callback(keeper.close)
        yield keeper
