"""The messages that streamad writes and reads, each with its ``type`` tag, and their JSON Schemas (2020-12)."""

from __future__ import annotations

__all__ = [
    "NO_METHOD",
    "ROLES",
    "SCHEMA_VERSION",
    "SHARES",
    "Alert",
    "Attribution",
    "ChannelSegment",
    "ChannelShare",
    "DeadLetter",
    "Decision",
    "DecisionEntry",
    "Direction",
    "EarlyWarning",
    "EndReason",
    "Event",
    "Feedback",
    "LateRecord",
    "Looked",
    "Message",
    "ModelRef",
    "NearestSequence",
    "OpenSequence",
    "Origin",
    "OutputRecord",
    "Request",
    "Role",
    "Running",
    "Share",
    "Tail",
    "TermShare",
    "Verdict",
    "WarningRef",
    "Window",
    "WorkerStatus",
    "message_schemas",
    "message_type",
    "message_types",
    "packed_values",
    "unpacked_curve",
    "unpacked_values",
]

import binascii
import inspect
from base64 import b64decode, b64encode
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypeAlias, get_args

import msgspec
import numpy as np
import numpy.typing as npt

from streamad.messages.decision import DecisionEntry
from streamad.messages.fields import (
    MODEL,
    ORIGIN,
    P_VALUE,
    SCHEMA_VERSION,
    SCORE,
    TAIL,
    AlertId,
    Batch,
    CreatedAt,
    EndReason,
    EndTime,
    ModelRef,
    NLate,
    NMerged,
    NSamples,
    Origin,
    Reason,
    Sequence,
    StartTime,
    Stream,
    Time,
    Version,
    doc,
)
from streamad.messages.people import Feedback, Request
from streamad.messages.status import Looked, OpenSequence, Running, WorkerStatus
from streamad.messages.warning import EarlyWarning, WarningRef

_VALUE = np.dtype("<f4")
NO_METHOD = "none"
"""Method of an attribution without reasons; its detail says why."""

Decision = Literal["normal", "anomalous", "unscorable", "learning"]
Tail = Literal["empirical", "extrapolated"]
Direction = Literal["above", "below", "shape"]
Share: TypeAlias = Literal["accepted", "reserve", "aside"]
"""accepted: may train. reserve: calibrates and compares, never trains. aside: not accepted; kept for feedback and for
relearning after a lasting change."""
SHARES: tuple[Share, ...] = get_args(Share)
Role = Literal[
    "warnings",
    "alerts",
    "attributions",
    "verdicts",
    "windows",
    "dead_letters",
    "late",
    "events",
    "feedback",
    "status",
    "decisions",
]
ROLES: tuple[Role, ...] = get_args(Role)
"""A message names only messages of roles before its own."""


class Alert(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="alert"):
    """The message for an anomalous sequence."""

    alert_id: AlertId
    stream: Stream
    sequence: Sequence
    reason: Reason
    start_time: StartTime
    end_time: EndTime
    n_samples: NSamples
    score: Annotated[float, SCORE]
    p_value: Annotated[float, P_VALUE]
    false_alarm_rate: Annotated[float, doc("The configured rate: an alert is raised when p_value is at most this.")]
    tail: Annotated[Tail, TAIL]
    model: Annotated[ModelRef, MODEL]
    n_merged: NMerged = 0
    n_late: NLate = 0
    batch: Batch = {}
    created_at: CreatedAt
    schema_version: Version = SCHEMA_VERSION


class TermShare(msgspec.Struct, frozen=True, kw_only=True):
    """One term of the score, compared with the terms of held-out normal sequences."""

    transformation: Annotated[int, doc("Number of the term, from 0; of NeuTraL AD: of the transformation.")]
    term: Annotated[float, doc("Its term of the score, without unit.")]
    calibration_quantile: Annotated[
        float, doc("Share (0 to 1) of held-out normal sequences whose own term lies below it.")
    ]
    member: Annotated[
        str | None, doc("Member of the model that gave the term, and its measure; null if the model has one member.")
    ] = None


class ChannelShare(msgspec.Struct, frozen=True, kw_only=True):
    """How much the score falls if this channel is replaced by a normal one, as a share of all channels' falls."""

    channel: Annotated[str, doc("Name of the channel.")]
    unit: Annotated[str, doc("Its unit, as configured.")]
    share: Annotated[
        float,
        doc(
            "Its share (0 to 1) in how far the score falls when single channels are replaced by normal "
            "ones; the shares add up to 1, or all are 0."
        ),
    ]


class NearestSequence(msgspec.Struct, frozen=True, kw_only=True):
    """A normal sequence that the anomalous one was compared with."""

    sequence: Annotated[str, doc("Its stream and sequence id, joined by /; at most 513 printable characters.")]
    distance: Annotated[
        float,
        doc("Root mean square difference over time in units of the channel's spread; the median over the channels."),
    ]


class ChannelSegment(msgspec.Struct, frozen=True, kw_only=True):
    """A stretch of time in which a channel departs from normal, compared with the band of normal sequences.

    The band holds 90 % of the normal training sequences at each point: from their 5 % to their 95 % quantile.
    """

    channel: Annotated[str, doc("Name of the channel.")]
    unit: Annotated[str, doc("Its unit, as configured.")]
    start: Annotated[float, doc("Its first sample, as a share (0 to 1) of the sequence, or of what a look saw.")]
    end: Annotated[float, doc("Its last sample, as the same share; equal to start for one sample.")]
    start_time: Annotated[Time, doc("Event time of its first sample (RFC 3339, UTC), for evenly spaced samples.")]
    end_time: Annotated[Time, doc("Event time of its last sample (RFC 3339, UTC), for evenly spaced samples.")]
    direction: Annotated[
        Direction,
        doc("above, below: the readings lie on this side of the band. shape: inside of it, or on both sides."),
    ]
    size: Annotated[
        float | None,
        doc("Median distance of its readings outside the band from its edge, in the channel's unit; null for shape."),
    ] = None
    text: Annotated[str, doc("The segment in words.")]


class Attribution(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="attribution"):
    """Why a sequence was anomalous: the K terms, the dominating one, the channels' shares, and normal sequences.

    Exactly one for each alert, after it: alerts do not wait for their attributions.
    """

    alert_id: AlertId
    stream: Stream
    sequence: Sequence
    score: Annotated[float, SCORE]
    terms: Annotated[list[TermShare], doc("The model's K terms, in its order; empty if method is none.")]
    dominating_transformation: Annotated[int, doc("Number of the largest term; 0 if method is none.")]
    channels: Annotated[list[ChannelShare], doc("Every channel's share, the largest first; empty if method is none.")]
    method: Annotated[
        str, doc("How the channel shares were computed; none: the alert could not be explained, detail says why.")
    ]
    tail: Annotated[Tail, TAIL]
    model: Annotated[ModelRef, MODEL]
    created_at: CreatedAt
    dominating_member: Annotated[
        str | None, doc("Member of the model with the largest term; null if the model has one member.")
    ] = None
    nearest: Annotated[
        list[NearestSequence],
        doc(
            "Normal training sequences that the channels were replaced from: at most three, the nearest first. Empty "
            "if the model's version was made by a release that stored no names."
        ),
    ] = []
    leading_terms: Annotated[
        list[int],
        doc(
            "Numbers of the terms that lie furthest above their median over held-out normal sequences: at most three, "
            "the furthest first, each with at least a tenth of what all terms lie above theirs."
        ),
    ] = []
    segments: Annotated[
        list[ChannelSegment],
        doc(
            "When the channels with the largest shares depart from normal: at most three channels, the largest share "
            "first, at most two segments each."
        ),
    ] = []
    detail: Annotated[str | None, doc("What the attribution leaves out, and why, as text; null if nothing.")] = None
    schema_version: Version = SCHEMA_VERSION


class Verdict(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="verdict"):
    """The decision about one sequence; exactly one verdict per sequence."""

    verdict_id: Annotated[
        str,
        doc("32 hex digits: a pure function of stream, sequence, first position and start; equal to the alert_id."),
    ]
    stream: Stream
    sequence: Sequence
    decision: Annotated[
        Decision,
        doc("normal; anomalous (an alert was raised); unscorable (detail says why); learning (no model yet)."),
    ]
    reason: Reason
    start_time: StartTime
    end_time: EndTime
    n_samples: NSamples
    score: Annotated[float | None, SCORE] = None
    p_value: Annotated[float | None, P_VALUE] = None
    tail: Annotated[Tail | None, TAIL] = None
    detail: Annotated[str | None, doc("Why the sequence was unscorable, or how far the learning is.")] = None
    model: Annotated[ModelRef | None, MODEL] = None
    means: Annotated[
        list[float],
        doc(
            "Mean of each channel in the judged window, in the configured order and unit, rounded to 6 significant "
            "digits; empty if there is no window."
        ),
    ] = []
    spreads: Annotated[
        list[float],
        doc(
            "Standard deviation of each channel in the judged window (divisor n), in the same order and rounded alike; "
            "empty if there is no window."
        ),
    ] = []
    n_merged: NMerged = 0
    n_late: NLate = 0
    batch: Batch = {}
    warning: Annotated[
        WarningRef | None, doc("The warning that was raised while the sequence ran; null if there was none.")
    ] = None
    created_at: CreatedAt
    schema_version: Version = SCHEMA_VERSION


class Window(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="window"):
    """The judged window of a sequence: the values that the model saw, for learning and for people to look at.

    At most one for each verdict, in the same commit: with a learner (``learning.process``) for every scored sequence,
    and for every one before the first model; otherwise ``display.windows`` says for which.
    """

    verdict_id: Annotated[str, doc("Id of the verdict on the sequence; equal to the alert_id of its alert.")]
    stream: Stream
    sequence: Sequence
    start_time: StartTime
    end_time: EndTime
    n_samples: NSamples
    model: Annotated[ModelRef | None, doc("Name and version of the model that judged; null if there was none yet.")]
    channels: Annotated[list[str], doc("Names of the channels, in the configured order: one row of values each.")]
    units: Annotated[list[str], doc("Units of the channels, in the same order.")]
    length: Annotated[int, doc("Points of the window that hold the sequence, without the padding.")]
    values: Annotated[
        str,
        doc(
            "Base64 of little-endian float32, one row for each channel of length values in its unit. All are finite: "
            "missing samples are filled in."
        ),
    ]
    part: Annotated[
        int, doc("Number of this part, from 1. A window that is too large for one message of a topic has several.")
    ] = 1
    parts: Annotated[
        int, doc("How many parts there are: their values, joined as text in order, are those of the window.")
    ] = 1
    alerted: Annotated[bool, doc("Whether an alert was raised on the sequence.")]
    share: Annotated[
        Share | None,
        doc(
            "Share of the sequences kept for learning that this one belongs to, by the model in service at the commit: "
            "accepted (may train), reserve (calibrates and compares), aside; null if nothing learns."
        ),
    ] = None
    model_name: Annotated[
        str | None, doc("Name of the model that the sequence belongs to, also before its first version.")
    ] = None
    decision: Annotated[Decision | None, doc("Decision of the verdict; null in messages of former releases.")] = None
    score: Annotated[float | None, SCORE] = None
    p_value: Annotated[float | None, P_VALUE] = None
    created_at: CreatedAt
    schema_version: Version = SCHEMA_VERSION
    course: Annotated[
        str | msgspec.UnsetType,
        doc(
            "Base64 of what looks at the running sequence have seen, for the learner alone; only with alerts.early and "
            "learning. Of a window in parts it follows the values: each part holds a piece of one, or of both."
        ),
    ] = msgspec.UNSET


def packed_values(values: npt.NDArray[np.float32]) -> str:
    """Return ``values`` [C, points] as a window message holds them."""
    return b64encode(np.ascontiguousarray(values, dtype=_VALUE).tobytes()).decode("ascii")


def unpacked_curve(running: Running) -> npt.NDArray[np.float32]:
    """Return the values [C, points] of ``running``, NaN where none came. Raises ValueError if they do not fit."""
    try:
        content = b64decode(running.values, validate=True)
    except (binascii.Error, ValueError) as error:
        raise ValueError(f"running {running.stream}: its values are no base64 ({error})") from None
    n_channels, n_points = len(running.channels), len(running.seconds)
    if len(content) != n_channels * n_points * _VALUE.itemsize:
        raise ValueError(f"running {running.stream}: {len(content)} bytes are not {n_channels} x {n_points} values")
    return np.frombuffer(content, dtype=_VALUE).astype(np.float32).reshape(n_channels, n_points)


def unpacked_values(window: Window) -> npt.NDArray[np.float32]:
    """Return the values [C, length] of ``window``. Raises ValueError if they do not fit the rest of it."""
    try:
        content = b64decode(window.values, validate=True)
    except (binascii.Error, ValueError) as error:
        raise ValueError(f"window {window.verdict_id}: its values are no base64 ({error})") from None
    if window.length < 1:
        raise ValueError(f"window {window.verdict_id}: length {window.length} must be at least 1")
    n_wanted = len(window.channels) * window.length * _VALUE.itemsize
    if len(content) != n_wanted:
        raise ValueError(
            f"window {window.verdict_id}: its values are {len(content)} bytes, but {len(window.channels)} channels of "
            f"{window.length} points take {n_wanted}"
        )
    return np.frombuffer(content, dtype=_VALUE).astype(np.float32).reshape(len(window.channels), window.length)


class DeadLetter(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="dead_letter"):
    """An unreadable record: its bytes, size, sha256 and origin, and why it could not be read."""

    origin: Annotated[Origin, ORIGIN]
    kind: Annotated[str, doc("A stable identifier to count and filter by.")]
    error: Annotated[str, doc("What was wrong, as text.")]
    value: Annotated[
        bytes,
        doc(
            "The record's original bytes, base64; of an element of a list its message with it alone. Cut if truncated."
        ),
    ]
    key: Annotated[bytes | None, doc("The record's key, base64.")] = None
    truncated: Annotated[bool, doc("True if value holds only the beginning.")] = False
    size_bytes: Annotated[int, doc("Size of the original record in bytes.")]
    sha256: Annotated[str, doc("SHA-256 of the original record, hex.")]
    created_at: CreatedAt
    schema_version: Version = SCHEMA_VERSION


class LateRecord(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="late"):
    """Samples that came too late to be judged."""

    origin: Annotated[Origin, ORIGIN]
    stream: Stream
    sequence: Annotated[str | None, doc("Id of the batch or movement.")]
    cause: Annotated[
        Literal["closed", "late"],
        doc("closed: its sequence has its verdict already. late: later than allowed_lateness."),
    ]
    times: Annotated[list[Time], doc("Event times of the samples (RFC 3339, UTC).")]
    values: Annotated[
        list[list[float | None]],
        doc("One row per time, one value per channel in the configured order and unit; null is missing."),
    ]
    created_at: CreatedAt
    schema_version: Version = SCHEMA_VERSION


class Event(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="event"):
    """A notice to the operator, apart from the verdicts."""

    kind: Annotated[str, doc("A stable identifier to count and filter by.")]
    message: Annotated[str, doc("What happened, as text.")]
    partition: Annotated[str | None, doc("Partition or file it concerns.")] = None
    stream: Annotated[str | None, doc("Stream it concerns.")] = None
    model: Annotated[ModelRef | None, doc("Name and version of the model it concerns.")] = None
    figures: Annotated[dict[str, float], doc("Its numbers by name, such as how far a channel has moved.")] = {}
    created_at: CreatedAt
    schema_version: Version = SCHEMA_VERSION


Message: TypeAlias = (
    Alert
    | Attribution
    | Verdict
    | Window
    | DeadLetter
    | LateRecord
    | Event
    | Feedback
    | Request
    | WorkerStatus
    | Running
    | EarlyWarning
    | DecisionEntry
)


@dataclass(frozen=True, slots=True)
class OutputRecord:
    """One message for the sink of a role; ``key`` is the stream (the partition for dead letters)."""

    role: Role
    key: str
    message: Message


def message_type(kind: type[msgspec.Struct]) -> str:
    """Return the value of ``type`` in messages of ``kind``."""
    return str(kind.__struct_config__.tag)


def message_types() -> dict[str, type[Any]]:
    """Return the message types by their ``type`` tag, as ``streamad schema`` exports them."""
    return {message_type(kind): kind for kind in get_args(Message)}


def message_schemas() -> dict[str, dict[str, Any]]:
    """Return JSON Schema by ``type`` tag, as ``streamad schema`` prints them.

    Readers must ignore properties they do not know: later versions may add some.
    """
    return {name: _schema(name, kind) for name, kind in message_types().items()}


def _schema(name: str, kind: type[Any]) -> dict[str, Any]:
    (_,), definitions = msgspec.json.schema_components([kind], ref_template="#/$defs/{name}")
    for definition in definitions.values():
        definition["description"] = inspect.cleandoc(definition["description"]).replace("``", "")
    body = definitions.pop(kind.__name__)
    body["properties"]["type"] = {"const": name, "description": "Type of the message."}
    body["properties"]["schema_version"]["const"] = SCHEMA_VERSION
    if kind is Feedback:  # people and foreign programs write it, too
        body["required"].remove("type")
    head = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": f"urn:streamad:message:{name}:{SCHEMA_VERSION}",
    }
    return {**head, **body, **({"$defs": definitions} if definitions else {})}
