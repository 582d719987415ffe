"""What lies in the decision log of a plant, or in files of one, byte for byte."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

from streamad.errors import SourceError, UsageError
from streamad.outputs.reading import readable_urls, subscription_of
from streamad.plant import Plant
from streamad.plugins import ConnectorContext, connect_subscription
from streamad.ports import EndingSubscription, StoredMessage, Subscription
from streamad.safe_text import masked, visible
from streamad.settings.places import file_path, place_key
from streamad.system.clock import SystemClock
from streamad.system.opening import open_regular
from streamad.system.output_files import output_files

_LOG = place_key("decisions")


async def log_of(plant: Plant) -> AsyncIterator[StoredMessage]:
    """Yield what the places of the plant's log hold now, one place after the other.

    Raises UsageError without a place that can be read, SourceError.
    """
    urls = readable_urls(plant, "decisions")
    if not urls:
        raise UsageError(f"{_LOG} names no place that can be read, so there is no decision log: name a file or a topic")
    for url in urls:
        path = file_path(url)
        if path is not None and not output_files(plant.base_dir / path):
            continue
        subscription = subscription_of(plant, "decisions", {"start": "earliest"}, url=url)
        async for stored in _present(subscription, visible(masked(url))):
            yield stored
        if path is not None and (torn := _torn(plant.base_dir / path)) is not None:
            yield torn


async def log_in(files: Sequence[Path]) -> AsyncIterator[StoredMessage]:
    """Yield what ``files`` hold, such as copies of a log. Raises SourceError."""
    context = ConnectorContext((), SystemClock(), Path.cwd())
    for path in files:
        if not path.is_file():
            raise SourceError(f"{path}: there is no such file")
        subscription = connect_subscription(f"file:{path}", {"start": "earliest"}, context)
        async for stored in _present(subscription, str(path)):
            yield stored
        if (torn := _torn(path)) is not None:
            yield torn


async def _present(subscription: Subscription, place: str) -> AsyncIterator[StoredMessage]:
    try:
        if not isinstance(subscription, EndingSubscription):
            raise UsageError(f"the messages of {place} ({_LOG}) have no end, so they cannot be read")
        subscription.end_with_present()
        async for stored in subscription.messages():
            yield stored._replace(value=stored.value.removesuffix(b"\n"))
    finally:
        await subscription.close()


def _torn(path: Path) -> StoredMessage | None:
    """Return what says that the last line of an output has no end, None if it has."""
    for _, file in output_files(path)[-1:]:
        descriptor = open_regular(file)
        try:
            size = os.fstat(descriptor).st_size
            if size and os.pread(descriptor, 1, size - 1) != b"\n":
                problem = "the last line has no end: it was changed, or a writer was killed or is at work"
                return StoredMessage(b"", f"{file}, before byte {size}", problem=problem)
        finally:
            os.close(descriptor)
    return None
