"""The place of marks and requests, the topic or file that ``learning.feedback`` names: writing and subscribing."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import msgspec

from streamad.messages import Feedback, OutputRecord, Request, Role
from streamad.plant import Plant
from streamad.plugins import connect_sink, connect_subscription, load, split_url
from streamad.ports import Sink, Subscription
from streamad.settings.places import place_key
from streamad.settings.plant_yaml import Settings
from streamad.system.files import append_lines

MAX_MESSAGE_BYTES = 1 << 20
"""Feedback messages are small, and others write them: more is not decoded."""
_BUSY = "end that one, or give feedback a file that no sink writes to"


def feedback_url(settings: Settings) -> str | None:
    """Return the URL of the place, by default a file beside the learner's store; None if the plant does not learn."""
    learning = settings.learning
    return None if learning is None else learning.feedback or f"{learning.store}.marks.jsonl"


def feedback_sink(plant: Plant) -> dict[Role, Sink]:
    """Make the sink to the place, if there is one and it is no file. Raises PluginError, ConfigError, OutputError."""
    url = feedback_url(plant.settings)
    if url is None or split_url(url)[0] == "file":
        return {}
    return {"feedback": _sink(plant, url)}


def _sink(plant: Plant, url: str) -> Sink:
    options = plant.settings.sinks.options.get(split_url(url)[0], {})
    return connect_sink(url, options, plant.context, place_key("feedback"))


def check_feedback(plant: Plant) -> None:
    """Raise PluginError, ConfigError, SourceError or OutputError if the place, which there must be, cannot be used."""
    feedback_subscription(plant)
    feedback_sink(plant)


def feedback_subscription(plant: Plant, **wanted: str) -> Subscription:
    """Return a subscription to the place, which there must be, with the options ``wanted``; its URL's take precedence.

    It also gets those of ``sinks.options`` that a subscription knows. A missing file is no error: there are no messages
    yet. Raises PluginError, ConfigError, SourceError.
    """
    url = _known_url(plant)
    scheme = split_url(url)[0]
    known = load("subscriptions", scheme).options_model.model_fields
    of_sinks = plant.settings.sinks.options.get(scheme, {})
    options = {name: value for name, value in of_sinks.items() if name in known} | wanted
    if scheme == "file":
        options |= {"warn_missing": False, "max_record_bytes": MAX_MESSAGE_BYTES}
    return connect_subscription(url, options, plant.context, place_key("feedback"))


async def send_feedback(plant: Plant, feedback: Sequence[Feedback | Request]) -> None:
    """Write ``feedback``, keyed by the alert's or request's id, to the place, which there must be; durable on return.

    Lines are appended to a file one by one and whole, so other programs may append to it too. Raises OutputError,
    PluginError, ConfigError.
    """
    if not feedback:
        return
    url = _known_url(plant)
    scheme, rest, _ = split_url(url)
    if scheme == "file":
        lines = b"".join(msgspec.json.encode(each) + b"\n" for each in feedback)
        await asyncio.to_thread(append_lines, plant.base_dir / rest, lines, busy=_BUSY)
        return
    sink = _sink(plant, url)
    try:
        await sink.write([OutputRecord("feedback", _id_of(each), each) for each in feedback])
        await sink.flush()
    finally:
        await sink.close()


def _id_of(message: Feedback | Request) -> str:
    return message.alert_id if isinstance(message, Feedback) else message.request_id


def _known_url(plant: Plant) -> str:
    url = feedback_url(plant.settings)
    assert url is not None
    return url
