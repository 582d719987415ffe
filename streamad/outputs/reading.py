"""What a plant's sinks hold: their committed messages, read once up to the present end."""

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
from streamad.settings.places import sink_urls
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


def subscription_of(plant: Plant, role: Role, wanted: dict[str, Any], *, is_patient: bool = False) -> Subscription:
    """Connect to the sink of ``role`` with those of its options that a subscription has, and the ``wanted`` ones.

    ``is_patient``: a file that is not there yet is waited for without a warning.
    Raises PluginError, ConfigError, SourceError.
    """
    settings = plant.settings
    scheme, rest, in_url = split_url(_urls(plant)[role])
    taken = load("subscriptions", scheme).options_model.model_fields
    of_sink = {**settings.sinks.options.get(scheme, {}), **in_url}
    shared = {name: value for name, value in of_sink.items() if name in taken}
    if is_patient and "warn_missing" in taken:
        shared["warn_missing"] = False
    return connect_subscription(f"{scheme}:{rest}", {**shared, **wanted}, plant.context, f"sinks.{role}")


def place_of(plant: Plant, role: Role) -> str | None:
    """Return where the messages of ``role`` lie, for people; None if nothing can be read: no sink, or a terminal."""
    url = _urls(plant).get(role)
    if url is None or split_url(url)[0] not in available("subscriptions"):
        return None
    return visible(masked(url.partition("?")[0]))


def _urls(plant: Plant) -> dict[Role, str]:
    """Return the URL of each role that has a sink, that of the status among them."""
    status = plant.settings.sinks.status
    return {**sink_urls(plant.settings), **({} if status is None else {"status": status})}


def is_there(plant: Plant, role: Role) -> bool:
    """Return whether the sink of ``role`` can be read and, if it is a file, is there."""
    if place_of(plant, role) is None:
        return False
    scheme, path, _ = split_url(sink_urls(plant.settings)[role])
    return scheme != "file" or os.path.lexists(plant.base_dir / path)


async def stored(
    plant: Plant, role: Role, kinds: tuple[type[M], ...], is_wanted: Callable[[str], bool] = lambda _: True
) -> AsyncIterator[M | Former]:
    """Yield the messages of ``kinds`` that the sink of ``role`` holds now, and those of former releases.

    Only those whose id ``is_wanted``, "" if they have none. Nothing if the sink does not exist or cannot be read; lines
    that are no messages are skipped. Raises SourceError.
    """
    if not is_there(plant, role):
        return
    subscription = subscription_of(plant, role, {"start": "earliest"})
    if not isinstance(subscription, EndingSubscription):
        raise UsageError(f"the messages of {place_of(plant, role)} (sinks.{role}) have no end, so they cannot be read")
    subscription.end_with_present()
    by_name = {name: kind for name, kind in message_types().items() if kind in kinds}
    async with received(subscription) as messages:
        async for message in messages:
            found = None if message.problem is not None else _decoded(message.value, by_name, is_wanted, message.place)
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
