"""What a plant's sinks hold: where the messages of a role lie, subscriptions to them, and what they hold now."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any, TypeVar

import msgspec

from streamad.errors import UsageError
from streamad.messages import Feedback, Message, Request, Role
from streamad.messages.accepting import accepted
from streamad.outputs.marks.place import feedback_subscription
from streamad.outputs.marks.rules import feedback_problem
from streamad.outputs.reader import Decoder, Reader, Unreadable
from streamad.plant import Plant
from streamad.plugins import available, connect_subscription, load, split_url
from streamad.ports import EndingSubscription, Subscription
from streamad.safe_text import masked, visible
from streamad.settings.places import file_path, place_key, urls_of
from streamad.system.output_files import output_files

M = TypeVar("M", bound=Message)


def readable_urls(plant: Plant, role: Role) -> tuple[str, ...]:
    """Return the places with the messages of ``role`` that can be read, the workers' first.

    There is none without a sink or with a terminal as sink; events have two if a learner writes its own to a file.
    """
    urls = (plant.settings.marks,) if role == "feedback" else urls_of(plant.settings, role)
    return tuple(url for url in urls if split_url(url)[0] in available("subscriptions"))


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
    if role == "feedback":
        return feedback_subscription(plant, **wanted)
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
    return path is None or bool(output_files(plant.base_dir / path))


def accepted_by(plant: Plant) -> Callable[[M], M]:
    """Return the check of what a reader of ``plant`` takes: of marks and requests the learner's own.

    It raises msgspec.ValidationError.
    """

    def check(message: M) -> M:
        if not isinstance(message, Feedback | Request):
            return accepted(message)
        latest_us = plant.clock.now_us() + plant.settings.decode.max_clock_skew
        if (problem := feedback_problem(message, latest_us)) is not None:
            raise msgspec.ValidationError(problem)
        return message

    return check


async def present(
    plant: Plant,
    role: Role,
    kinds: tuple[type[M], ...],
    *,
    is_wanted: Callable[[str], bool] | None = None,
    on_unreadable: Callable[[Unreadable], None] = lambda _: None,
) -> AsyncIterator[M]:
    """Yield the messages of ``kinds`` that the places of ``role`` hold now, one place after the other.

    ``is_wanted``, ``on_unreadable``: as ``Decoder`` and ``Reader`` have them. Nothing comes from a place that does not
    exist. Raises SourceError, and UsageError for a place whose messages have no end.
    """
    decoder = Decoder(kinds, accept=accepted_by(plant), is_wanted=is_wanted)
    for url in readable_urls(plant, role):
        if not _is_there(plant, url):
            continue
        subscription = subscription_of(plant, role, {"start": "earliest"}, url=url)
        if not isinstance(subscription, EndingSubscription):
            place = visible(masked(url.partition("?")[0]))
            raise UsageError(f"the messages of {place} ({place_key(role)}) have no end, so they cannot be read")
        subscription.end_with_present()
        async with Reader(subscription, decoder, on_unreadable=on_unreadable) as messages:
            async for one in messages:
                yield one.message
