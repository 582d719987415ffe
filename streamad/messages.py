"""JSON Schemas (2020-12) of the messages that leave the house, made from their types."""

from __future__ import annotations

__all__ = [
    "SCHEMA_VERSION",
    "Alert",
    "Attribution",
    "ChannelShare",
    "DeadLetter",
    "Decision",
    "EndReason",
    "Event",
    "Feedback",
    "LateRecord",
    "Message",
    "ModelRef",
    "Origin",
    "OutputRecord",
    "Promotion",
    "Role",
    "Tail",
    "TermShare",
    "Verdict",
    "message_schemas",
    "message_types",
]

import inspect
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, TypeAlias

import msgspec

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


EndReason = Literal["marker", "change", "gap", "length", "max_duration", "max_samples", "memory", "end_of_input"]


Decision = Literal["normal", "anomalous", "unscorable", "learning"]


Tail = Literal["empirical", "extrapolated"]


Role = Literal["alerts", "attributions", "verdicts", "dead_letters", "late", "events", "feedback", "control"]


SCHEMA_VERSION = 1


class ModelRef(msgspec.Struct, frozen=True):
    """Name and version of the model that judged."""

    name: str
    version: str


class Origin(msgspec.Struct, frozen=True):
    """Where a record came from: its partition (topic-partition or file) and offset."""

    partition: str
    offset: int


class Alert(msgspec.Struct, frozen=True, kw_only=True):
    """The message for an anomalous sequence.

    ``alert_id`` is a pure function of stream, sequence and first position, so a repeated message is recognised.
    ``p_value`` is the share of held-out inliers scoring at least as high; ``tail: extrapolated`` says that the
    calibration set is too small for it and a generalised Pareto tail stands in.
    """

    alert_id: str
    stream: str
    sequence: str
    reason: EndReason
    start_time: datetime
    end_time: datetime
    n_samples: int
    score: float
    p_value: float
    false_alarm_rate: float
    tail: Tail
    model: ModelRef
    created_at: datetime
    schema_version: int = SCHEMA_VERSION


class TermShare(msgspec.Struct, frozen=True, kw_only=True):
    """One transformation's term of the score and the share of held-out inliers whose own term lies below it."""

    transformation: int
    term: float
    calibration_quantile: float


class ChannelShare(msgspec.Struct, frozen=True, kw_only=True):
    """How much the score falls when this channel is replaced by a normal one, as a share of all channels' falls."""

    channel: str
    unit: str
    share: float


class Attribution(msgspec.Struct, frozen=True, kw_only=True):
    """Why a sequence was anomalous: the K terms, the dominating transformation, and the channels' shares.

    ``channels`` is ordered by falling share; ``method`` names how the shares were computed.
    """

    alert_id: str
    stream: str
    sequence: str
    score: float
    terms: list[TermShare]
    dominating_transformation: int
    channels: list[ChannelShare]
    method: str
    tail: Tail
    model: ModelRef
    created_at: datetime
    schema_version: int = SCHEMA_VERSION


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """What was decided about one sequence; exactly one per sequence.

    ``detail`` says why it was unscorable, or how far its model's learning is.
    """

    verdict_id: str
    stream: str
    sequence: str
    decision: Decision
    reason: EndReason
    start_time: datetime
    end_time: datetime
    n_samples: int
    score: float | None = None
    p_value: float | None = None
    tail: Tail | None = None
    detail: str | None = None
    model: ModelRef | None = None
    created_at: datetime
    schema_version: int = SCHEMA_VERSION


class DeadLetter(msgspec.Struct, frozen=True, kw_only=True):
    """An unreadable record: its bytes (base64; cut above ``max_dead_letter_bytes``), size, sha256, origin, and why."""

    origin: Origin
    kind: str
    error: str
    value: bytes
    key: bytes | None = None
    truncated: bool = False
    size_bytes: int
    sha256: str
    created_at: datetime
    schema_version: int = SCHEMA_VERSION


class LateRecord(msgspec.Struct, frozen=True, kw_only=True):
    """Samples that came too late: for a closed sequence (``closed``) or beyond ``allowed_lateness`` (``late``)."""

    origin: Origin
    stream: str
    sequence: str | None
    cause: Literal["closed", "late"]
    times: list[datetime]
    values: list[list[float | None]]
    created_at: datetime
    schema_version: int = SCHEMA_VERSION


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """Something an operator should know of that is no verdict: kind (a stable word), what, where, and its figures."""

    kind: str
    message: str
    partition: str | None = None
    stream: str | None = None
    model: ModelRef | None = None
    figures: dict[str, float] = {}
    created_at: datetime
    schema_version: int = SCHEMA_VERSION


class Feedback(msgspec.Struct, frozen=True, kw_only=True):
    """What an operator says of a sequence, by the id of its alert or verdict. The latest word on an id counts.

    ``false_alarm``: it was normal and may train. ``confirmed``: it was an anomaly and never trains, but tests.
    ``veto``: it must neither train nor test nor calibrate. ``model`` is the name in the alert's ``model``; without it
    every model of the plant keeps the word.
    """

    alert_id: str
    judgement: Literal["false_alarm", "confirmed", "veto"]
    note: str = ""
    by: str = ""
    model: str | None = None
    created_at: datetime
    schema_version: int = SCHEMA_VERSION


class Promotion(msgspec.Struct, frozen=True, kw_only=True):
    """Says that ``version`` of ``model`` went into service: running workers look into the registry, which decides."""

    model: str
    version: str
    created_at: datetime
    schema_version: int = SCHEMA_VERSION


Message: TypeAlias = Alert | Attribution | Verdict | DeadLetter | LateRecord | Event | Feedback | Promotion


def message_types() -> dict[str, type[Any]]:
    """Return the outgoing message types by their schema name, as ``streamad schema`` exports them."""
    return {
        "alert": Alert,
        "attribution": Attribution,
        "verdict": Verdict,
        "dead_letter": DeadLetter,
        "late": LateRecord,
        "event": Event,
        "feedback": Feedback,
        "promotion": Promotion,
    }


@dataclass(frozen=True, slots=True)
class OutputRecord:
    """One message on its way to the sink of a role; ``key`` is the stream (the partition for dead letters)."""

    role: Role
    key: str
    message: Message
