"""Messages beside the results: the status of each worker, and open sequences."""

from __future__ import annotations

from typing import Annotated

import msgspec

from streamad.messages.fields import (
    SCHEMA_VERSION,
    CreatedAt,
    ModelRef,
    Sequence,
    StartTime,
    Stream,
    Time,
    Version,
    doc,
)

_Instance = Annotated[str, doc("Name of the worker: the option instance, else its machine and process.")]
_SoFar = Annotated[int, doc("Number of its samples so far.")]


class Looked(msgspec.Struct, frozen=True, kw_only=True):
    """What the looks at an open sequence have found so far. The largest deviation never falls."""

    model: Annotated[ModelRef, doc("Name and version of the model that looks at it.")]
    age: Annotated[float, doc("Its age now, as a share of the usual length: 1 is the median of the training.")]
    p_value: Annotated[float, doc("p-value of the largest deviation so far, as in a warning.")]
    limit: Annotated[float | None, doc("Least deviation that is warned of; null: none is.")]
    ages: Annotated[list[float], doc("Its age at each look that is known: after a restart, at the last one.")]
    largest: Annotated[list[float], doc("Largest deviation of all looks up to each of these ages.")]
    warning_id: Annotated[str | None, doc("Id of its warning; null: there is none.")] = None


class OpenSequence(msgspec.Struct, frozen=True, kw_only=True):
    """A sequence that has begun and not ended."""

    stream: Stream
    sequence: Sequence
    start_time: StartTime
    n_samples: _SoFar
    looked: Annotated[
        Looked | None, doc("What looks have found; null: nothing, or 20 others of the worker have a lower p-value.")
    ] = None


class WorkerStatus(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="status"):
    """The state of one worker, written anew every ``display.status_interval``; the latest of an instance counts.

    Counters count since the worker started. It is written outside of commits: other messages may be ahead of it.
    """

    instance: _Instance
    started_at: Annotated[Time, doc("When the worker started (RFC 3339, UTC).")]
    interval_s: Annotated[float, doc("Seconds until the next status; a worker silent for three of them is in trouble.")]
    stopped: Annotated[bool, doc("True in the last status, of a worker that ended cleanly.")] = False
    partitions: Annotated[int, doc("Number of partitions (topic-partitions or files) that it reads.")]
    lag: Annotated[int | None, doc("Records that wait in the source; null: unknown.")]
    records: Annotated[int, doc("Records read.")]
    samples: Annotated[int, doc("Samples read.")]
    verdicts: Annotated[dict[str, int], doc("Verdicts committed, by decision.")]
    alerts: Annotated[int, doc("Alerts committed.")]
    dead_letters: Annotated[int, doc("Unreadable records.")]
    waiting_verdicts: Annotated[int, doc("Finished sequences without a committed verdict.")]
    waiting_attributions: Annotated[int, doc("Committed alerts without their attribution.")]
    latency_p50_ms: Annotated[
        float | None,
        doc("Median time from the record that ended a sequence to the commit of its verdict, since the last status."),
    ]
    latency_p99_ms: Annotated[float | None, doc("99 % quantile of the same times.")]
    models: Annotated[list[ModelRef], doc("Name and version of each model in service.")]
    n_open: Annotated[int, doc("Number of open sequences.")]
    open: Annotated[list[OpenSequence], doc("Open sequences, 200 at most, those with the lowest p-values first.")]
    created_at: CreatedAt
    schema_version: Version = SCHEMA_VERSION


class Running(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="running"):
    """The readings so far of an open sequence, for people to look at; nothing is judged yet.

    Written with ``display.open``, one a stream. It counts while its worker's status names the sequence.
    """

    instance: _Instance
    stream: Stream
    sequence: Sequence
    start_time: StartTime
    n_samples: _SoFar
    channels: Annotated[list[str], doc("Names of the channels, in the configured order: one row of values each.")]
    units: Annotated[list[str], doc("Units of the channels, in the same order.")]
    seconds: Annotated[
        list[float], doc("Seconds since the start of each kept sample: 64 at most, evenly thinned, the last one kept.")
    ]
    values: Annotated[
        str,
        doc("Base64 of little-endian float32, one row for each channel of as many values as seconds; NaN is missing."),
    ]
    created_at: CreatedAt
    model: Annotated[
        str | None, doc("Name of the model that will judge it by what came so far; null: not known yet.")
    ] = None
    schema_version: Version = SCHEMA_VERSION
