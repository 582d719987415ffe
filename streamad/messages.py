"""JSON Schemas (2020-12) of the messages that leave the house, made from their types."""

from __future__ import annotations

__all__ = ["message_schemas"]

import inspect
from typing import Any

import msgspec

from streamad.types import SCHEMA_VERSION, message_types

_DIALECT = "https://json-schema.org/draft/2020-12/schema"

_TIMES = frozenset({"start_time", "end_time", "created_at", "times"})
_COMMON = {
    "alert_id": "32 hex digits: a pure function of stream, sequence and first position. The same sequence always gets "
    "the same id, so a repeated message is recognised; the verdict's verdict_id is equal to it.",
    "verdict_id": "32 hex digits: a pure function of stream, sequence and first position; equal to the alert_id.",
    "stream": "What emitted the sequence: a reactor, a line, an athlete. Also the message key.",
    "sequence": "Id of the batch or movement.",
    "reason": "Why the sequence ended.",
    "start_time": "Event time of its first sample (RFC 3339, UTC).",
    "end_time": "Event time of its last sample (RFC 3339, UTC).",
    "n_samples": "Number of samples (distinct times).",
    "score": "Sum of the model's K terms, without unit; higher is more anomalous. Comparable only within one model.",
    "p_value": "Conformal p-value: (1 + number of held-out normal sequences scoring at least as high) / (n + 1).",
    "false_alarm_rate": "The configured rate: an alert is raised when p_value is at most this.",
    "tail": "empirical: p_value is a rank among the held-out normal sequences. extrapolated: they are too few for the "
    "configured false-alarm rate, and a generalised Pareto tail was fitted to them.",
    "model": "Name and version of the model that judged.",
    "created_at": "When this message was made (RFC 3339, UTC).",
    "schema_version": "Version of this schema.",
    "decision": "normal; anomalous (an alert was raised); unscorable (detail says why); learning (no model yet).",
    "detail": "Why the sequence was unscorable, or how far the learning is.",
    "terms": "The model's K terms, in the order of its transformations.",
    "dominating_transformation": "Number of the transformation with the largest term.",
    "channels": "Every channel's share, the largest first.",
    "method": "How the channel shares were computed.",
    "origin": "Where the record came from.",
    "kind": "A short stable word to count and filter by.",
    "error": "What was wrong, in words.",
    "value": "The record's original bytes, base64; cut where truncated is true.",
    "key": "The record's key, base64.",
    "truncated": "True where value holds only the beginning.",
    "size_bytes": "Size of the original record in bytes.",
    "sha256": "SHA-256 of the original record, hex.",
    "cause": "closed: its sequence has its verdict already. late: later than allowed_lateness.",
    "times": "Event times of the samples (RFC 3339, UTC).",
    "values": "One row per time, one value per channel in the configured order and unit; null is missing.",
    "message": "What happened, in words.",
    "figures": "Its numbers by name, such as how far a channel has moved.",
    "judgement": "false_alarm: it was normal. confirmed: it was an anomaly. veto: leave it out of all learning.",
    "note": "The operator's words.",
    "by": "Who says so.",
    "partition": "Partition or file it concerns.",
}
_OWN = {
    "feedback": {"model": "Name of the model that judged, as the alert says it; null: looked up by the id."},
    "promotion": {"model": "Name of the model.", "version": "The version that went into service."},
}
_NESTED = {
    "ModelRef": {"name": "Name in the registry.", "version": "Version in the registry."},
    "Origin": {"partition": "Topic and partition, or file.", "offset": "Offset in the partition, or line of the file."},
    "TermShare": {
        "transformation": "Number of the transformation, from 0.",
        "term": "Its term of the score, without unit.",
        "calibration_quantile": "Share (0 to 1) of held-out normal sequences whose own term lies below it.",
    },
    "ChannelShare": {
        "channel": "Name of the channel.",
        "unit": "Its unit, as configured.",
        "share": "Its share (0 to 1) in how far the score falls when single channels are replaced by normal ones; the "
        "shares add up to 1, or all are 0.",
    },
}


def message_schemas() -> dict[str, dict[str, Any]]:
    """Return JSON Schema by message name, as ``streamad schema`` prints them.

    Readers must ignore properties they do not know: later versions may add some.
    """
    return {name: _schema(name, kind) for name, kind in message_types().items()}


def _schema(name: str, kind: type[Any]) -> dict[str, Any]:
    (_,), definitions = msgspec.json.schema_components([kind], ref_template="#/$defs/{name}")
    body = definitions.pop(kind.__name__)
    _describe(body, _COMMON | _OWN.get(name, {}))
    for nested, definition in definitions.items():
        _describe(definition, _NESTED[nested])
    body["properties"]["schema_version"]["const"] = SCHEMA_VERSION
    head = {"$schema": _DIALECT, "$id": f"urn:streamad:message:{name}:{SCHEMA_VERSION}"}
    return {**head, **body, **({"$defs": definitions} if definitions else {})}


def _describe(definition: dict[str, Any], texts: dict[str, str]) -> None:
    definition["description"] = inspect.cleandoc(definition["description"]).replace("``", "")
    for field, schema in definition["properties"].items():
        schema["description"] = texts[field]
        if field in _TIMES:
            schema.get("items", schema)["format"] = "date-time"
