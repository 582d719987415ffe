"""What a plant's sinks hold: where the messages of a role lie, subscriptions to them, and what they hold now."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, NamedTuple, TypeVar

import msgspec

from streamad.errors import UsageError
from streamad.messages import Message, Role, message_types
from streamad.plant import Plant
from streamad.plugins import available, connect_subscription, load, split_url
from streamad.ports import EndingSubscription, StoredMessage, Subscription
from streamad.safe_text import masked, visible
from streamad.settings.places import file_path, urls_of
from streamad.system.untrusted_json import decode_json

M = TypeVar("M", bound=Message)


class Former(NamedTuple):
    """A message of a former release, which has no type: its id, its schema and its place."""

    id: str
    schema_version: int
    place: str


class _Head(msgspec.Struct):
    type: str | None = None
    schema_version: int = 0
    alert_id: str | None = None
    verdict_id: str | None = None


def readable_urls(plant: Plant, role: Role) -> tuple[str, ...]:
    """Return the places with the messages of ``role`` that can be read, the workers' first.

    There is none without a sink or with a terminal as sink; events have two if a learner writes its own to a file.
    """
    return tuple(url for url in urls_of(plant.settings, role) if split_url(url)[0] in available("subscriptions"))


def subscription_of(
    plant: Plant,
    role: Role,
    wanted: dict[str, Any],
    *,
    url: str | None = None,
    is_patient: bool = False,
    is_exclusive: bool = False,
) -> Subscription:
    """Connect to the place ``url`` of ``role`` with the ``wanted`` options and those of its sink that it has, too.

    ``url``: one of ``readable_urls``, by default the workers'. ``is_patient``: a file that is not there yet is waited
    for without a warning. ``is_exclusive``: for one reader of the group at a time, if the place lets several read.
    Raises PluginError, ConfigError, SourceError.
    """
    settings = plant.settings
    scheme, rest, in_url = split_url(urls_of(settings, role)[0] if url is None else url)
    taken = load("subscriptions", scheme).options_model.model_fields
    of_sink = {**settings.sinks.options.get(scheme, {}), **in_url}
    shared = {name: value for name, value in of_sink.items() if name in taken}
    if is_patient and "warn_missing" in taken:
        shared["warn_missing"] = False
    if is_exclusive and "exclusive" in taken:
        shared["exclusive"] = True
    return connect_subscription(f"{scheme}:{rest}", {**shared, **wanted}, plant.context, f"sinks.{role}")


def place_of(plant: Plant, role: Role) -> str | None:
    """Return where the messages of ``role`` lie, for people; None if nothing can be read: no sink, or a terminal."""
    urls = readable_urls(plant, role)
    return visible(masked(urls[0].partition("?")[0])) if urls else None


def is_there(plant: Plant, role: Role) -> bool:
    """Return whether a place of ``role`` can be read and, if it is a file, is there."""
    return any(_is_there(plant, url) for url in readable_urls(plant, role))


def _is_there(plant: Plant, url: str) -> bool:
    path = file_path(url)
    return path is None or os.path.lexists(plant.base_dir / path)


async def stored(
    plant: Plant, role: Role, kinds: tuple[type[M], ...], is_wanted: Callable[[str], bool] = lambda _: True
) -> AsyncIterator[M | Former]:
    """Yield the messages of ``kinds`` that the places of ``role`` hold now, and those of former releases.

    One place after the other: ``readable_urls``. Only those whose id ``is_wanted``, "" if they have none. Nothing from
    a place that does not exist or cannot be read; lines that are no messages are skipped. Raises SourceError.
    """
    by_name = {name: kind for name, kind in message_types().items() if kind in kinds}
    for url in readable_urls(plant, role):
        if not _is_there(plant, url):
            continue
        subscription = subscription_of(plant, role, {"start": "earliest"}, url=url)
        if not isinstance(subscription, EndingSubscription):
            place = visible(masked(url.partition("?")[0]))
            raise UsageError(f"the messages of {place} (sinks.{role}) have no end, so they cannot be read")
        subscription.end_with_present()
        async with received(subscription) as messages:
            async for message in messages:
                if message.problem is not None:
                    continue
                found = _decoded(message.value, by_name, is_wanted, message.place)
                if found is not None:
                    yield found


@asynccontextmanager
async def received(subscription: Subscription) -> AsyncIterator[AsyncIterator[StoredMessage]]:
    """Yield the messages of ``subscription``, which is closed in the end."""
    messages = subscription.messages()
    try:
        yield messages
    finally:
        if isinstance(messages, AsyncGenerator):
            await messages.aclose()
        await subscription.close()


def _decoded(
    value: bytes, by_name: dict[str, type[M]], is_wanted: Callable[[str], bool], place: str
) -> M | Former | None:
    try:
        head = decode_json(value, _Head)
        name = head.alert_id or head.verdict_id or ""
        if not is_wanted(name):
            return None
        if head.type is None:
            return Former(name, head.schema_version, place) if name else None
        kind = by_name.get(head.type)
        return None if kind is None else decode_json(value, kind)
    except msgspec.DecodeError:
        return None
