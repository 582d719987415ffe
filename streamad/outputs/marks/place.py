"""The place of marks and requests, the topic or file that ``marks`` names: writing and subscribing."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace

from streamad.decisions.chain import Decided
from streamad.decisions.recording import Actor, DecisionLog, of_command
from streamad.errors import StreamadError
from streamad.messages import Feedback, OutputRecord, Request, Role
from streamad.outputs.sending import send, sink_at
from streamad.plant import Plant
from streamad.plugins import connect_subscription, load, split_url
from streamad.ports import Sink, Subscription
from streamad.settings.places import place_key

MAX_MESSAGE_BYTES = 1 << 20
"""Feedback messages are small, and others write them: more is not decoded."""


def feedback_sink(plant: Plant) -> dict[Role, Sink]:
    """Make the sink to the place if it is no file. Raises PluginError, ConfigError, OutputError."""
    url = plant.settings.marks
    if split_url(url)[0] == "file":
        return {}
    return {"feedback": sink_at(plant, url, place_key("feedback"))}


def check_feedback(plant: Plant) -> None:
    """Raise PluginError, ConfigError, SourceError or OutputError if the place cannot be used."""
    feedback_subscription(plant)
    feedback_sink(plant)


def feedback_subscription(plant: Plant, **wanted: str) -> Subscription:
    """Return a subscription to the place with the options ``wanted``; its URL's take precedence.

    It also gets those of ``sinks.options`` that a subscription knows. A missing file is no error: there are no messages
    yet. Raises PluginError, ConfigError, SourceError.
    """
    url = plant.settings.marks
    scheme = split_url(url)[0]
    known = load("subscriptions", scheme).options_model.model_fields
    of_sinks = plant.settings.sinks.options.get(scheme, {})
    options = {name: value for name, value in of_sinks.items() if name in known} | wanted
    if scheme == "file":
        options |= {"warn_missing": False, "max_record_bytes": MAX_MESSAGE_BYTES}
    return connect_subscription(url, options, plant.context, place_key("feedback"))


async def send_feedback(plant: Plant, feedback: Sequence[Feedback | Request], by: Actor | None = None) -> None:
    """Write ``feedback``, keyed by the alert's or request's id, to the place: ``send``; before that, to the log.

    ``by`` says how the names in it are known; by default as a command knows them.
    """
    if not feedback:
        return
    records = [OutputRecord("feedback", _id_of(each), each) for each in feedback]
    by, log = by or of_command(), DecisionLog(plant)
    entries = await asyncio.to_thread(log.record, by, *(_decided(each, by) for each in feedback))
    try:
        await send(plant, plant.settings.marks, records, place_key("feedback"))
    except StreamadError as error:
        await asyncio.to_thread(log.undo, by, entries, error)
        raise


def _decided(message: Feedback | Request, by: Actor) -> Decided:
    who = replace(by, who=message.by or by.who)
    if isinstance(message, Feedback):
        further = {"assignee": message.assignee, "comment": message.comment, "model": message.model}
        return who.decides("mark", message.alert_id, message.note, judgement=message.judgement, **further)
    given = {name: getattr(message, name) for name in ("since", "before", "share")}
    given |= {"ids": " ".join(message.ids or ()), "everything": "yes" if message.everything else ""}
    subject = message.model or "every model"
    return who.decides(message.action, subject, message.note, request_id=message.request_id, **given)


def _id_of(message: Feedback | Request) -> str:
    return message.alert_id if isinstance(message, Feedback) else message.request_id
