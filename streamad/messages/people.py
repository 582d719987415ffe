"""What people write: marks on sequences, and requests to the learner."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from streamad.messages.fields import SCHEMA_VERSION, AlertId, CreatedAt, Time, Version, doc


class Feedback(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="feedback"):
    """An operator's mark on a sequence, by the id of its alert or verdict. The latest mark on an id counts.

    ``false_alarm``: a version that waits for a person trains on it. ``confirmed``, ``veto``: it does not train. A mark
    changes neither calibration nor comparison. ``withdrawn``: as if nothing had been said about it. Without ``model``
    every model of the plant keeps the mark. ``type`` may be left out.
    """

    alert_id: AlertId
    judgement: Annotated[
        Literal["false_alarm", "confirmed", "veto", "withdrawn"],
        doc(
            "false_alarm: it was normal. confirmed: it was an anomaly. veto: neither, or unknown; out of training. "
            "withdrawn: take the former judgement back."
        ),
    ]
    note: Annotated[str, doc("Why, in a few words.")] = ""
    by: Annotated[str, doc("Who gives the feedback.")] = ""
    assignee: Annotated[str, doc("Who looks after the sequence; with withdrawn nobody has judged it yet.")] = ""
    comment: Annotated[str, doc("What others should know of it.")] = ""
    model: Annotated[str | None, doc("Name of the model that judged, as in the alert; null: found by the id.")] = None
    created_at: CreatedAt
    schema_version: Version = SCHEMA_VERSION


class Request(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="type", tag="request"):
    """A request to the learner. The same ``request_id`` twice is one request.

    ``retrain``: train on what is stored. ``relearn``: train on what ended since ``since``, whatever the decision was.
    ``purge``: delete the stored sequences that meet every given condition of ``before``, ``share`` and ``ids``, or
    ``everything``. Without ``model`` a purge is for every model of the plant, and a training for its own. A request
    with a field that the learner does not know is refused: half of a purge would delete what nobody named.
    """

    request_id: Annotated[str, doc("Letters, digits, _ and -, 64 at most; made anew for each request.")]
    action: Annotated[Literal["retrain", "relearn", "purge"], doc("What to do.")]
    model: Annotated[str | None, doc("Name of a model of the plant.")] = None
    since: Annotated[Time | None, doc("relearn: when the plant changed (RFC 3339).")] = None
    before: Annotated[Time | None, doc("purge: sequences that ended before this time (RFC 3339).")] = None
    share: Annotated[Literal["accepted", "reserve", "aside"] | None, doc("purge: this share alone.")] = None
    ids: Annotated[list[str] | None, doc("purge: the verdicts' ids of the sequences.")] = None
    everything: Annotated[bool, doc("purge: all stored sequences; goes with no condition.")] = False
    note: Annotated[str, doc("A remark.")] = ""
    by: Annotated[str, doc("Who asks.")] = ""
    created_at: CreatedAt
    schema_version: Version = SCHEMA_VERSION
