"""The JSON of notices for programs, and its schema (2020-12), as ``streamad schema notice`` prints it."""

from __future__ import annotations

import inspect
from typing import Annotated, Any, TypeAlias

import msgspec

from streamad.messages import SCHEMA_VERSION, Alert, Attribution, EarlyWarning
from streamad.messages.fields import Time, doc

_AT = doc("When the notice was made, RFC 3339 in UTC.")
_DATA = doc("What the notice is about.")
_PLANT = doc("Name of the plant.")
_RECEIVER = doc("Name of the receiver, as in notify.receivers.")
_HEADLINE = doc("What happened, on one line.")
_LINK = doc("Address of the page of the sequence; null: notify.link is not set.")
_PAGE = doc("Address of the page; null: notify.link is not set.")
_ATTRIBUTION = doc("Its attribution; null: it was not there in time, or the notice would be too long.")


class AlertData(msgspec.Struct, frozen=True, kw_only=True):
    """One alert with its reasons."""

    plant: Annotated[str, _PLANT]
    receiver: Annotated[str, _RECEIVER]
    headline: Annotated[str, _HEADLINE]
    alert: Annotated[Alert, doc("The alert; its alert_id is the notice's webhook-id.")]
    attribution: Annotated[Attribution | None, _ATTRIBUTION]
    link: Annotated[str | None, _LINK]


class WarningData(msgspec.Struct, frozen=True, kw_only=True):
    """One warning of a sequence that still runs, with its reasons."""

    plant: Annotated[str, _PLANT]
    receiver: Annotated[str, _RECEIVER]
    headline: Annotated[str, _HEADLINE]
    warning: Annotated[EarlyWarning, doc("The warning; its warning_id is the notice's webhook-id.")]
    attribution: Annotated[Attribution | None, _ATTRIBUTION]
    link: Annotated[str | None, _LINK]


class DigestItem(msgspec.Struct, frozen=True, kw_only=True):
    """An alert of a digest with its reasons."""

    alert: Annotated[Alert, doc("The alert.")]
    attribution: Annotated[Attribution | None, _ATTRIBUTION]
    link: Annotated[str | None, _LINK]


class DigestWarning(msgspec.Struct, frozen=True, kw_only=True):
    """A warning of a digest with its reasons."""

    warning: Annotated[EarlyWarning, doc("The warning.")]
    attribution: Annotated[Attribution | None, _ATTRIBUTION]
    link: Annotated[str | None, _LINK]


class DigestData(msgspec.Struct, frozen=True, kw_only=True):
    """Several alerts and warnings, the first 5 of them with their reasons."""

    plant: Annotated[str, _PLANT]
    receiver: Annotated[str, _RECEIVER]
    headline: Annotated[str, _HEADLINE]
    count: Annotated[int, msgspec.Meta(ge=2, description="Number of alerts and warnings.")]
    n_warnings: Annotated[int, msgspec.Meta(ge=0, description="How many of them are warnings.")]
    streams: Annotated[int, msgspec.Meta(ge=1, le=100, description="Number of their streams; 100: or more.")]
    link: Annotated[str | None, _PAGE]
    alerts: Annotated[list[DigestItem], msgspec.Meta(max_length=5, description="The alerts among the first 5.")]
    warnings: Annotated[list[DigestWarning], msgspec.Meta(max_length=5, description="The warnings among the first 5.")]


class TestData(msgspec.Struct, frozen=True, kw_only=True):
    """A test, no alert."""

    plant: Annotated[str, _PLANT]
    receiver: Annotated[str, _RECEIVER]
    headline: Annotated[str, _HEADLINE]
    link: Annotated[str | None, _PAGE]


class AlertBody(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="streamad.alert"):
    """The notice of one alert."""

    timestamp: Annotated[Time, _AT]
    data: Annotated[AlertData, _DATA]


class WarningBody(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="streamad.warning"):
    """The notice of one warning."""

    timestamp: Annotated[Time, _AT]
    data: Annotated[WarningData, _DATA]


class DigestBody(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="streamad.digest"):
    """The notice of several alerts and warnings."""

    timestamp: Annotated[Time, _AT]
    data: Annotated[DigestData, _DATA]


class TestBody(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="streamad.test"):
    """A notice that only says that notices arrive."""

    timestamp: Annotated[Time, _AT]
    data: Annotated[TestData, _DATA]


Body: TypeAlias = AlertBody | WarningBody | DigestBody | TestBody


def notice_schema() -> dict[str, Any]:
    """Return the JSON Schema of the body of every webhook. Readers must ignore properties they do not know."""
    (body,), definitions = msgspec.json.schema_components([Body], ref_template="#/$defs/{name}")
    for definition in definitions.values():
        definition["description"] = inspect.cleandoc(definition["description"]).replace("``", "")
        properties = definition["properties"]
        if "type" in properties:
            (tag,) = properties["type"]["enum"]
            properties["type"] = {"const": tag, "description": "Type of the notice or the message."}
        if "schema_version" in properties:
            properties["schema_version"]["const"] = SCHEMA_VERSION
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": f"urn:streamad:notice:{SCHEMA_VERSION}",
        "title": "Notice",
        "description": "The body of a webhook of streamad notify.",
        **body,
        "$defs": definitions,
    }
