"""Writes single messages to a place that is not a run's: marks and requests, and events about notices."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import msgspec

from streamad.errors import DoubtfulError, OutputError
from streamad.messages import OutputRecord
from streamad.plant import Plant
from streamad.plugins import connect_sink, split_url
from streamad.ports import Sink
from streamad.system.files import append_lines


async def send(plant: Plant, url: str, records: Sequence[OutputRecord], key: str) -> None:
    """Write ``records`` to ``url``, which ``key`` of the config names; durable on return.

    Lines are appended to a file one by one and whole, so other programs may append to it too. Raises OutputError
    (DoubtfulError if ``url`` is no file), PluginError, ConfigError.
    """
    scheme, rest, _ = split_url(url)
    if scheme == "file":
        lines = b"".join(msgspec.json.encode(each.message) + b"\n" for each in records)
        busy = f"end that one, or name a file of its own ({key})"
        await asyncio.to_thread(append_lines, plant.base_dir / rest, lines, busy=busy)
        return
    sink = sink_at(plant, url, key)
    try:
        await sink.write(records)
        await sink.flush()
    except OutputError as error:
        raise DoubtfulError(str(error)) from error
    finally:
        await sink.close()


def sink_at(plant: Plant, url: str, key: str) -> Sink:
    """Return the sink of ``url`` with the plant's options. Raises PluginError, ConfigError, OutputError."""
    return connect_sink(url, plant.settings.sinks.options.get(split_url(url)[0], {}), plant.context, key)
