"""Writes stored sequences as recordings that train, score and replay read into the same windows.

Shapes: N sequences, C channels, L window length, n points of a sequence (n <= L).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from io import BytesIO
from typing import Any, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from streamad.learn.store.records import Mark
from streamad.outputs.stored import StoreView
from streamad.types import ChannelSpec, from_us

_PERIOD_US = 1_000
_CLASSES = ("normal", "anomalous", "learning", "unscorable", "false_alarm", "confirmed", "veto")


class Route(NamedTuple):
    """The field of a message that chooses its model (a dotted path), and its value."""

    field: str
    value: str


def npz_bytes(stored: Sequence[StoreView], channels: Sequence[ChannelSpec], marks: Mapping[str, Mark]) -> bytes:
    """Return an archive (docs/guide/files.md): x [N, C, L], len, batch_id, channels; y and classes: mark or decision.

    Further arrays, which streamad does not read: stream, sequence, id, share, model, model_version, time (RFC 3339, its
    end), score and p_value (NaN if it has none).
    """
    sequences = [each.sequence for each in stored]
    said = {id_: mark.judgement for id_, mark in marks.items() if mark.judgement != "withdrawn"}
    labels = [said.get(one.id, one.decision) for one in sequences]
    archive: dict[str, npt.NDArray[Any]] = {
        "x": np.stack([one.window.values for one in sequences]),
        "len": np.array([one.window.length for one in sequences], dtype=np.int64),
        "batch_id": _text(_names(stored)),
        "channels": _text([channel.name for channel in channels]),
        "y": np.array([_CLASSES.index(label) for label in labels], dtype=np.int64),
        "classes": _text(_CLASSES),
        "stream": _text([one.stream for one in sequences]),
        "sequence": _text([one.sequence for one in sequences]),
        "id": _text([one.id for one in sequences]),
        "share": _text([each.share for each in stored]),
        "model": _text([each.model for each in stored]),
        "model_version": _text([one.model_version or "" for one in sequences]),
        "time": _text([from_us(one.time_us).isoformat() for one in sequences]),
        "score": _numbers([one.score for one in sequences]),
        "p_value": _numbers([one.p_value for one in sequences]),
    }
    file = BytesIO()
    np.savez_compressed(file, allow_pickle=False, **archive)
    return file.getvalue()


def _names(stored: Sequence[StoreView]) -> list[str]:
    """Return the shortest kind of name that is unique: sequence, stream and sequence, or id."""
    kinds = (
        [each.sequence.sequence for each in stored],
        [each.sequence.name for each in stored],
        [each.sequence.id for each in stored],
    )
    return next(kind for kind in kinds if len(set(kind)) == len(kind) or kind is kinds[-1])


def _text(values: Sequence[str]) -> npt.NDArray[np.str_]:
    return np.array(list(values), dtype=np.str_)


def _numbers(values: Sequence[float | None]) -> npt.NDArray[np.float64]:
    return np.array([np.nan if value is None else value for value in values], dtype=np.float64)


def jsonl_bytes(
    stored: Sequence[StoreView],
    channels: Sequence[ChannelSpec],
    *,
    period_us: int | None = None,
    routes: Mapping[str, Route] | None = None,
) -> bytes:
    """Return lines of streamad's own format, one for each sequence, sorted by time.

    Windows hold no times of samples: they are ``period_us`` apart (default 1 ms), the last at the sequence's end, or
    later if the stream's previous sequence would overlap. ``routes``: the route of each model that has one.
    """
    period_us = period_us or _PERIOD_US
    free_us: dict[str, int] = {}
    lines = []
    for each in sorted(stored, key=lambda one: (one.sequence.time_us, one.sequence.id)):
        one, n = each.sequence, each.sequence.window.length
        span_us = (n - 1) * period_us
        start_us = max(one.time_us - span_us, free_us.get(one.stream, 0))
        free_us[one.stream] = start_us + span_us + period_us
        rows = one.window.values[:, :n].T
        times = [from_us(start_us + i * period_us).isoformat() for i in range(n)]
        message: dict[str, Any] = {"stream": one.stream, "sequence": one.sequence, "times": times}
        message["values"] = [[float(value) for value in row] for row in rows]
        message["end"] = True
        route = (routes or {}).get(each.model)
        if route is not None and route.field not in message:  # the field may be the stream
            _set(message, route)
        lines.append(msgspec.json.encode(message) + b"\n")
    return b"".join(lines)


def _set(message: dict[str, Any], route: Route) -> None:
    *parents, last = route.field.split(".")
    for parent in parents:
        message = message.setdefault(parent, {})
    message[last] = route.value
