"""Messages of the forms that gateways send and the ways that plants mark batches, with plants that read them."""

from __future__ import annotations

import base64
import gzip
import json
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from streamad.ingest.table.rows import BatchTable, Row
from tests.support.ingest.mutations import START_S, damaged_bytes, damaged_message, valid_message
from tests.support.runtime.pipeline import HOLDING

_FLAT = {"stream": "line", "sequence": "batch_id", "time": "ts", "values": None}
_SINGLE = {"stream": "line", "sequence": "batch_id", "time": "ts", "channel": "sensor", "value": "reading"}
_SERIES = {"stream": "line", "sequence": "batch_id", "start": "t0", "step": "dt", "values": "data"}
_TAGS = {**_SINGLE, "sequence": {"tag": "BatchID"}}
_WORDS = {
    "begin": {"field": "event", "value": "start"},
    "end": {"field": "event", "value": ["stop", "abort", 3]},
}
_RUNS = {"field": "state", "in": ["RUN", 1, True]}
_RUNS_BY_TAG = {"tag": "State", "in": ["RUN", 1]}
_LATE = {"allowed_lateness": "2s"}


class Walk(random.Random):
    """Chance whose messages go on in time; ``share`` of the way is done."""

    share = 0.0


@dataclass(frozen=True, slots=True)
class Form:
    """The config of a plant and what makes one of its messages; ``key`` makes the key or label of a record."""

    sections: dict[str, Any]
    message: Callable[[Walk], bytes]
    key: Callable[[random.Random], bytes] | None = None

    def messages(self, rng: random.Random, n: int) -> Iterator[bytes]:
        """Yield ``n`` messages, most of them in the order of their times."""
        walk = Walk(rng.randrange(1 << 60))
        for at in range(n):
            walk.share = at / n
            yield self.message(walk)

    def table(self, rng: random.Random) -> BatchTable | None:
        """Return a table of batches for this plant, None if it has none."""
        if "table" not in self.sections.get("sequences", {}):
            return None
        rows: list[Row] = []
        for stream in [f"s{number}" for number in range(3)]:
            at_us = START_S * 1_000_000
            for number in range(rng.choice([0, 1, 5, 20])):
                at_us += rng.choice([0, 1, 10_000_000])
                end_us = at_us + rng.choice([1, 1_000, 30_000_000, 600_000_000])
                rows.append(Row(stream, f"b{number}", at_us, end_us, len(rows) + 2, rng.choice(["A", "B", None])))
                at_us = end_us
        return BatchTable("batches.csv", rows, gives_routes=rng.random() < 0.5)


def _sent(content: Any, rng: random.Random) -> bytes:
    return damaged_message(content, rng) if rng.random() < 0.25 else json.dumps(content).encode()


def _time(rng: Walk) -> float:
    if rng.random() < 0.01:
        return START_S + rng.randrange(3_600_000) / 1_000
    return START_S + round(600 * rng.share + rng.choice([0, 0, 0, 0.5, -0.5, -2]), 3)


def _ids(rng: Walk) -> dict[str, Any]:
    key = rng.choice([None, "", " ", 7]) if rng.random() < 0.3 else f"b{rng.randrange(4)}"
    found: dict[str, Any] = {"line": f"s{rng.randrange(4)}", "batch_id": key, "ts": _time(rng)}
    found["recipe"] = rng.choice(["A", "B", 1, None])
    return found


def _state(rng: random.Random) -> Any:
    odd: list[Any] = [None, "", 0, 1.0, True, "1e0", "NaN", float("inf"), 2**63, 1e300, [], {}, ["RUN"], "x" * 300]
    return rng.choice(odd) if rng.random() < 0.1 else rng.choice(["RUN", "run ", "IDLE"])


def _event(rng: random.Random) -> Any:
    odd: list[Any] = [[], {}, ["start"], True, 3, "3.0", "START", " Stop", "abort", "start\x00"]
    return rng.choice(odd) if rng.random() < 0.2 else rng.choice(["start", "stop", None, None, None])


def _reading(rng: random.Random) -> Any:
    return rng.choice([1, 2.5, "3", "Bad", None, True, "NaN", "HEAT", 1e400, rng.gauss(50, 10)])


def _values(rng: random.Random) -> dict[str, Any]:
    return {name: _reading(rng) for name in ("temp", "pressure", "flow") if rng.random() < 0.5}


def _own(rng: Walk) -> bytes:
    content = valid_message(rng)
    n = len(content["times"]) if "times" in content else 1
    start_s = _time(rng)
    content |= {"time": start_s} if "time" in content else {"times": [start_s + at / 10 for at in range(n)]}
    if n > 1:
        content["values"] = [[None if rng.random() < 0.5 else value for value in row] for row in content["values"]]
    states = [_state(rng) for _ in range(n if rng.random() < 0.9 else rng.choice([0, 1, n + 1]))]
    content["state"] = _state(rng) if rng.random() < 0.5 else states
    if rng.random() < 0.4:
        del content["sequence"]
    return _sent(content, rng)


def _flat(rng: Walk) -> bytes:
    content = {**_ids(rng), **_values(rng), "state": _state(rng), "event": _event(rng)}
    if rng.random() < 0.2:
        n = rng.choice([0, 1, 3, 3])
        content |= {name: [_reading(rng) for _ in range(n)] for name in ("temp", "flow")}
        content |= {"ts": [content["ts"] + at / 10 for at in range(n)], "state": [_state(rng) for _ in range(n)]}
    return _sent([content] * rng.choice([0, 1, 2]) if rng.random() < 0.05 else content, rng)


def _listed(rng: Walk) -> bytes:
    """Return a list of readings or samples below a header."""
    elements = [
        rng.choice([None, 7, [], [[]], {}])
        if rng.random() < 0.05
        else {**_tag(rng), **_values(rng), "ts": _time(rng), "state": _state(rng), "event": _event(rng)}
        for _ in range(rng.choice([0, 1, 2, 5]))
    ]
    found = rng.choice([None, {}, "x", [elements]]) if rng.random() < 0.05 else elements
    return _sent({**_ids(rng), "list": found, "event": _event(rng), "t0": _time(rng), "dt": _step(rng)}, rng)


def _tag(rng: random.Random) -> dict[str, Any]:
    name = rng.choice(["temp", "temp", "pressure", "flow", "flow", "BatchID", "State", "other"])
    found = {"BatchID": rng.choice(["b1", "b2", 7, "", None, [], "x" * 300]), "State": _state(rng)}
    return {"sensor": name, "reading": found.get(name, _reading(rng)), "id": _name(rng)}


def _single(rng: Walk) -> bytes:
    return _sent({**_ids(rng), **_tag(rng), "event": _event(rng)}, rng)


def _name(rng: random.Random) -> str:
    tag = rng.choice(["temp", "temp", "pressure", "flow", "flow", "BatchID", "State", "other"])
    whole = f"Plant.s{rng.randrange(3)}.{tag}"
    odd = ["Plant.s1", "", "Plant..", "\x00", whole[6:], f"{whole}.b", f"Plant.{'s' * 300}.temp"]
    return rng.choice(odd) if rng.random() < 0.1 else whole


def _step(rng: random.Random) -> Any:
    return rng.choice([0, -1, None, "x", 1e-320, 1e308, [], True]) if rng.random() < 0.1 else rng.choice([0.1, 1, "5"])


def _series(rng: Walk) -> bytes:
    n = rng.choice([0, 1, 4, 4, 4])
    data: Any = {name: [_reading(rng) for _ in range(n)] for name in ("temp", "pressure", "flow")}
    if rng.random() < 0.1:
        data["temp"] = rng.choice([None, 3, [], [1.0] * (n + 1), [[1.0]], "x"])
    start = rng.choice([None, "2026-03-01T08:15:30Z", 1e300, -1, [1]]) if rng.random() < 0.1 else _time(rng)
    ids = {**_ids(rng), "event": _event(rng)}
    return _sent({**ids, "t0": start, "dt": _step(rng), "data": data, "state": [_state(rng) for _ in range(n)]}, rng)


def _nested(rng: Walk) -> bytes:
    inner = _flat(rng)
    packed = rng.choice([inner, inner, base64.b64encode(inner), base64.b64encode(gzip.compress(inner))])
    if rng.random() < 0.1:
        packed = damaged_bytes(packed, rng)
    text = rng.choice([None, 3, [[]], {}]) if rng.random() < 0.1 else packed.decode("latin-1")
    return _sent({**_ids(rng), "data": text, "more": rng.choice([text, None, {"temp": 1}]), "event": _event(rng)}, rng)


def _influx(rng: Walk) -> bytes:
    lines = [_influx_line(rng) for _ in range(rng.choice([1, 1, 1, 2, 5]))]
    text = rng.choice(["\n", "\n", "\r\n", "\n\n#x\n"]).join(lines).encode()
    return damaged_bytes(text, rng) if rng.random() < 0.3 else text


def _influx_line(rng: Walk) -> str:
    time_ns = str(round(_time(rng) * 1e9)) if rng.random() < 0.95 else rng.choice(["", "x", "9" * 400, "-1", "1.5"])
    values = [f"{name}={value}" for name in ("temp", "flow") for value in [_influx_value(rng)] if rng.random() < 0.9]
    values += [f"reading={_influx_value(rng)}"] * (rng.random() < 0.7)
    tags = [f"line=s{rng.randrange(3)}", f"sensor={rng.choice(['temp', 'flow', 'x'])}"]
    tags += [f"batch_id=b{rng.randrange(3)}"] * (rng.random() < 0.7) + ["state=RUN"] * (rng.random() < 0.7)
    tags += [rng.choice(["line=s9", "a\\ b=c\\,", "=", "x="])] * (rng.random() < 0.05)
    return f"m,{','.join(tags)} {','.join(values)} {time_ns}"


def _influx_value(rng: random.Random) -> str:
    odd = ['"x"', '"a\\"b"', "t", "false", "", "1e999", "9" * 400, "9" * 5_000 + "i"]
    return rng.choice(odd) if rng.random() < 0.15 else rng.choice(["1", "2.5", "3i", "4u"])


def _key(rng: random.Random) -> bytes:
    name = _name(rng).encode()
    return damaged_bytes(name, rng) if rng.random() < 0.1 else name


def _decode(fields: dict[str, Any], **others: Any) -> dict[str, Any]:
    return {"decode": {"fields": fields, **others}}


def _pattern(field: str, **others: Any) -> dict[str, Any]:
    pattern = {"field": field, "parts": "Plant.{stream}.{channel}"}
    return _decode({"sequence": "batch_id", "time": "ts", "value": "reading", "pattern": pattern, **others})


_PACKED = [{"name": name, "field": f"data.{name}"} for name in ("temp", "pressure", "flow")]
_TABLE = {"end": ["table"], "table": "batches.csv"}
FORMS: tuple[Form, ...] = (
    Form({"channels": HOLDING}, _own),
    Form({"channels": HOLDING, "sequences": {**_LATE, "max_streams": 2, "closed_memory": "1s"}}, _own),
    Form({"channels": HOLDING, "sequences": {"while": _RUNS, **_LATE}}, _own),
    Form({"channels": HOLDING, **_decode(_FLAT), "sequences": {"without_id": "skip", "end": ["change"]}}, _flat),
    Form({"channels": HOLDING, **_decode(_SINGLE), "window": {"resample": {"period": "5s"}}}, _single),
    Form(_pattern("id"), _single),
    Form({**_pattern("id", sequence={"tag": "BatchID"}), "sequences": _LATE, "channels": HOLDING}, _single),
    Form(_pattern("key"), _single, _key),
    Form({**_pattern("topic"), "sequences": {"while": _RUNS_BY_TAG}}, _single, _key),
    Form(_pattern("header:x", each="list"), _listed, _key),
    Form({**_decode({**_FLAT, "nested": "data"}), "channels": _PACKED}, _nested),
    Form({**_decode({**_FLAT, "nested": ["data", "more"], **_WORDS}), "channels": _PACKED}, _nested),
    Form(
        {**_decode({**_FLAT, "time": "data.ts", "nested": "data"}, max_message_bytes=400), "channels": _PACKED}, _nested
    ),
    Form(_decode({**_FLAT, "time": "time"}, format="influx", time_unit="ns"), _influx),
    Form({**_decode({**_SINGLE, "time": "time"}, format="influx", time_unit="ns"), "channels": HOLDING}, _influx),
    Form(
        {
            **_decode({**_FLAT, "time": "time"}, format="influx", time_unit="ns", default_stream="x"),
            "sequences": {"while": {"field": "state", "in": ["RUN"]}, "without_id": "skip"},
        },
        _influx,
    ),
    Form(_decode(_SERIES), _series),
    Form({**_decode({**_SERIES, "step": "10ms"}), "sequences": {"while": _RUNS}}, _series),
    Form({**_decode({**_SERIES, "step": {"field": "dt", "unit": "hz"}, **_WORDS}), "channels": HOLDING}, _series),
    Form(_decode({**_SERIES, "start": "record"}, time_unit="ms"), _series),
    Form(_decode({**_FLAT, "each": "list"}), _listed),
    Form(_decode({**_SERIES, "values": None, "each": "list"}), _listed),
    Form({"sequences": {"while": _RUNS, "end": ["while", "gap"], "gap": "5s"}}, _own),
    Form({**_decode(_FLAT), "sequences": {"while": _RUNS, "without_id": "skip", **_LATE}}, _flat),
    Form({**_decode({**_FLAT, "each": "list"}), "sequences": {"while": _RUNS}, "channels": HOLDING}, _listed),
    Form({**_decode(_TAGS), "sequences": {"while": _RUNS_BY_TAG, **_LATE}, "channels": HOLDING}, _single),
    Form({**_decode(_TAGS), "sequences": {"without_id": "skip", "max_streams": 2}}, _single),
    Form({**_decode({**_TAGS, "each": "list"}), "sequences": {"while": _RUNS_BY_TAG, **_LATE}}, _listed),
    Form({**_decode(_SINGLE), "sequences": {"while": _RUNS_BY_TAG, "end": ["while", "change"]}}, _single),
    Form({**_decode({**_FLAT, **_WORDS}), "models": {"field": "recipe"}}, _flat),
    Form({**_decode({**_SINGLE, **_WORDS}), "sequences": _LATE, "channels": HOLDING}, _single),
    Form({**_decode({**_FLAT, **_WORDS, "each": "list"}), "sequences": {"max_duration": "60s"}}, _listed),
    Form({"sequences": _TABLE}, _own),
    Form({**_decode({**_FLAT, "sequence": None}), "sequences": {**_TABLE, **_LATE}, "channels": HOLDING}, _flat),
    Form({**_decode({**_SINGLE, "sequence": None}), "sequences": _TABLE, "models": {"field": "recipe"}}, _single),
    Form({**_decode({**_FLAT, "sequence": None, "each": "list"}), "sequences": {**_TABLE, "max_samples": 5}}, _listed),
)  # fmt: skip
