"""Messages of any topic through the pipeline: all are accounted for, whatever their bytes."""

from __future__ import annotations

import asyncio
import json
import random
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from streamad.errors import DecodeError
from streamad.ingest.boundaries.reading import n_samples
from streamad.ingest.decode import Decoder
from streamad.ingest.sequences.relative_times import TOO_LATE
from streamad.ingest.table.rows import BatchTable
from streamad.messages import DeadLetter, LateRecord, Verdict
from streamad.settings.plant_yaml import Settings
from streamad.testing import ListSource
from streamad.types import Record
from tests.support.fuzz.forms import FORMS, Form
from tests.support.ingest.mutations import damaged_bytes, damaged_message, mutated_messages, valid_message
from tests.support.runtime.pipeline import Run, run_pipeline, settings_of

PER_CASE = 500
_START_US = 1_772_352_930_000_000
_FOREIGN = {"values": None, "stream": "line", "sequence": "batch_id", "time": "ts", "end": None}
_PLANTS: tuple[dict[str, Any], ...] = (
    {},
    {"sequences": {"end": ["change", "gap"], "gap": "5s", "allowed_lateness": "2s"}},
    {"sequences": {"end": ["length"], "length": 5, "max_streams": 3}, "window": {"resample": {"period": "500ms"}}},
    {"sequences": {"max_buffered_bytes": 2_000, "max_samples": 20}},
    {"sequences": {"max_duration": "30s", "closed_memory": "1s"}, "decode": {"max_message_bytes": 300}},
    {"decode": {"format": "json", "default_stream": "x", "time_unit": "ms"}},
    {"decode": {"format": "msgpack", "time_unit": "ns"}},
    {"decode": {"time": "relative", "default_stream": "x", "max_samples_per_message": 5}},
    {"decode": {"time_format": "%d.%m.%Y %H:%M:%S", "timezone": "Europe/Berlin", "fields": {}}},
    {"decode": {"fields": _FOREIGN, "missing": ["Bad", "x"], "max_clock_skew": "1s", "max_dead_letter_bytes": 10}},
    {"decode": {"fields": {**_FOREIGN, "time": "record", "stream": "key"}, "default_stream": "x"}},
    {"decode": {"fields": {"channel": "sensor", "value": "reading", "values": None, "sequence": None}}},
    {"decode": {"fields": {"values": None}, "quality": {"field": "q", "good": [192, "Good"]}}},
    {"models": {"field": "sequence", "values": ["b1"], "max_models": 2, "missing": "unscorable"}},
    {"sequences": {"without_id": "skip", "end": ["change", "gap"], "gap": "5s"}},
    {"decode": {"fields": {"values": None}}, "sequences": {"without_id": "skip", "end": ["change"]}},
    {
        "decode": {
            "fields": {"values": None, "time": "date", "time_of_day": "clock"},
            "time_format": "%d.%m.%Y %H:%M:%S",
            "timezone": "Europe/Berlin",
        },
        "sequences": {"without_id": "skip"},
    },
    {"decode": {"fields": {**_FOREIGN, "time": "date", "time_of_day": "clock"}, "timezone": "UTC"}},
    {"decode": {"fields": {**_FOREIGN, "time": ["ts", "ms"]}, "decimal": ",", "thousands": "."}},
    {"decode": {"fields": {"values": None, "time": "times"}, "time": "relative"}},
    {"decode": {"fields": {"values": None}, "time": "row", "row_period": "20ms"}},
    {"decode": {"fields": {"each": "list"}, "max_clock_skew": "1s"}, "sequences": {"max_streams": 2}},
    {
        "decode": {"fields": {"each": "body.list", "channel": "sensor", "value": "reading"}, "time": "relative"},
        "sequences": {"without_id": "skip"},
    },
    {"decode": {"fields": {**_FOREIGN, "each": "list"}, "max_samples_per_message": 4, "max_message_bytes": 2_000}},
)


def run_messages(rng: random.Random) -> str | None:
    """Judge PER_CASE messages of one plant; return what does not add up, None if all does."""
    form = rng.choice(FORMS) if rng.random() < 0.5 else None
    settings = settings_of(**rng.choice(_PLANTS) if form is None else form.sections)
    partitions = {f"t/{number}": _records(rng, settings, form) for number in range(2)}
    return asyncio.run(_judged(partitions, settings, None if form is None else form.table(rng)))


async def _judged(partitions: dict[str, list[Record]], settings: Settings, table: BatchTable | None) -> str | None:
    run = await run_pipeline(ListSource.of(partitions, batch_records=50), settings, table=table)
    return imbalance(run, partitions, settings)


def imbalance(run: Run, partitions: dict[str, list[Record]], settings: Settings) -> str | None:
    """Return the first count of ``run`` that does not fit what was read, None if all fit.

    Each record is accepted, a dead letter, ignored or a tombstone; each sample is part of a sequence, merged, late or
    a dead letter, or left out without an id; each sequence has a verdict; each dead letter, late sample and verdict was
    written once. A word or a tag's reading whose time is too far ahead counts as a sample.
    """
    counters, read = run.pipeline.counters, _decoded(partitions, settings)
    written = [letter for letter in run.messages("dead_letters") if isinstance(letter, DeadLetter)]
    letters: Counter[str] = Counter(letter.kind for letter in written)
    after = Counter(
        letter.kind for letter in written if letter.kind in _AFTER_DECODING or letter.error.endswith(TOO_LATE)
    )
    refused = after["too_many_streams"] + after["bad_time"]
    unread = dict(counters.dead_letters - after)
    elements = sum(read.elements.values())
    late = sum(len(record.times) for record in run.messages("late") if isinstance(record, LateRecord))
    jumps = counters.dead_letters["time_jump"]
    sequences = sum(counters.sequences.values())
    left_out = 0 if settings.boundaries is None else counters.without_id  # only what was said tells which have no id
    pairs = {
        "records": (counters.records, sum(map(len, partitions.values()))),
        "unreadable records and elements": (unread, dict(read.unread + read.elements)),
        "ignored": ((counters.ignored, counters.tombstones), (read.ignored, read.tombstones)),
        "records, each in one way": (
            counters.records,
            read.accepted + sum(unread.values()) - elements + counters.ignored + counters.tombstones,
        ),
        "samples": (
            counters.samples,
            counters.sequence_samples + counters.merged + counters.late_samples + jumps + counters.outside,
        ),
        "samples without an id, left out": (counters.without_id - left_out, read.without_id),
        "samples without an id, kept": (left_out > 0 and settings.sequences.without_id == "keep", False),
        "samples of decoded records": (read.samples + min(jumps, read.bare) >= counters.samples + left_out, True),
        "samples without refused streams": (read.samples <= counters.samples + left_out or refused > 0, True),
        "dead letters": (letters, +counters.dead_letters),
        "late": (late, counters.late_samples),
        "verdicts": (sum(counters.verdicts.values()), len([v for v in run.verdicts if isinstance(v, Verdict)])),
        "sequences": (sum(counters.verdicts.values()), sequences),
        "judged": (len(run.judged), sequences),
        "held": (counters.held, 0),
    }
    wrong = [f"{what}: {found} is not {expected}" for what, (found, expected) in pairs.items() if found != expected]
    return wrong[0] if wrong else None


_AFTER_DECODING = frozenset({"too_many_streams", "time_jump", "bad_value"})


class _Read:
    """Counts of what a decoder beside the pipeline made of the records."""

    def __init__(self) -> None:
        self.accepted = self.ignored = self.tombstones = self.samples = self.bare = self.without_id = 0
        self.unread: Counter[str] = Counter()
        self.elements: Counter[str] = Counter()


def _decoded(partitions: dict[str, list[Record]], settings: Settings) -> _Read:
    read = _Read()
    decoder = Decoder(settings.decode, settings.channels, settings.route_field, settings.sequences.while_)
    for record in (record for records in partitions.values() for record in records):
        try:
            decoded = decoder.decode(record, None)
        except DecodeError as error:
            read.unread[error.kind] += 1
            continue
        blocks = decoded.blocks
        read.elements.update(error.kind for error in decoded.unreadable)
        if blocks or decoded.unreadable:
            read.accepted += 1
        else:
            read.ignored += bool(record.value)
            read.tombstones += not record.value
        for block in blocks:
            if block.sequence is None and settings.sequences.without_id == "skip" and settings.boundaries is None:
                read.without_id += len(block)
            else:
                read.samples += n_samples(block)
                read.bare += len(block) - n_samples(block)
    return read


def _values(rng: random.Random, settings: Settings, form: Form | None) -> Sequence[bytes]:
    n, fields = PER_CASE // 2, settings.decode.fields
    if form is not None:
        return list(form.messages(rng, n))
    if fields is None:
        return [_own(message, rng) for message in mutated_messages(n, rng.randrange(1 << 60))]
    return [_foreign(rng) if fields.each is None else _listed(rng) for _ in range(n)]


def _records(rng: random.Random, settings: Settings, form: Form | None) -> list[Record]:
    values = _values(rng, settings, form)
    has_times, has_keys = rng.random() < 0.5, rng.random() < 0.5
    time_us, records = _START_US, []
    for offset, value in enumerate(values):
        time_us += rng.choice([0, 10_000, 100_000, 1_000_000, -500_000])
        odd = rng.random()
        key = damaged_bytes(b"r%d" % rng.randrange(3), rng) if has_keys and rng.random() < 0.2 else b"r1"
        if form is not None and form.key is not None:
            key = form.key(rng)
        records.append(
            Record(
                offset,
                b"" if odd < 0.01 else b"\x00" + rng.randbytes(4) + value if odd < 0.02 else value,
                rng.choice([-1, 0, 1 << 62, time_us]) if has_times and odd < 0.03 else time_us if has_times else None,
                key,
                schema="7" if odd > 0.99 else None,
                label=key.decode(errors="replace") if odd < 0.9 else None,
            )
        )
    return records


def _own(message: bytes, rng: random.Random) -> bytes:
    """Return ``message``, or in one of eight cases a valid one without a sequence id in its place, as in pauses."""
    if rng.random() >= 1 / 8:
        return message
    content = valid_message(rng)
    content["sequence"] = None
    return json.dumps(content).encode()


def _listed(rng: random.Random) -> bytes:
    """Return a message with a list of messages, some of which hold anything else."""
    odd = [None, 7, "x", [], [{}], {}, {"list": []}]
    elements = [rng.choice(odd) if rng.random() < 0.1 else _content(rng) for _ in range(rng.choice([0, 1, 2, 3, 5]))]
    around = rng.choice(
        [{}, {"stream": "r1", "line": "r1"}, {"time": 0, "ts": None}, {"end": True}, {"sequence": "b1"}]
    )
    found = rng.choice([elements, elements, elements, None, {"a": elements}])
    content = {**around, "list": found, "body": rng.choice([{"list": found}, {"list": elements}, None, 3])}
    return damaged_message(content, rng) if rng.random() < 0.2 else json.dumps(content).encode()


def _foreign(rng: random.Random) -> bytes:
    """Return a message with fields of a plant's own, damaged in half of all cases; some have no sequence id."""
    content = _content(rng)
    return damaged_message(content, rng) if rng.random() < 0.5 else json.dumps(content).encode()


def _content(rng: random.Random) -> dict[str, Any]:
    own = valid_message(rng)
    values = own["values"] if isinstance(own["values"], dict) else dict.fromkeys(("temp", "flow"), 1.0)
    time_s = own.get("time") or own["times"][0]
    content: dict[str, Any] = {"line": own["stream"], "batch_id": own["sequence"], "ts": time_s, **values}
    content |= {"time": time_s, "stream": own["stream"], "sequence": own["sequence"], "values": values}
    content |= {"sensor": rng.choice(["temp", "flow", "other"]), "reading": rng.choice([1, 2.5, "3", "Bad", None])}
    moment = datetime.fromtimestamp(time_s, UTC)
    content |= {"date": rng.choice([f"{moment:%d.%m.%Y}", f"{moment:%Y-%m-%d}"]), "clock": f"{moment:%H:%M:%S}"}
    if rng.random() < 0.2:
        content["sequence"] = content["batch_id"] = rng.choice([None, "", " "])
    if rng.random() < 0.1:
        content[rng.choice(["date", "clock"])] = rng.choice(
            [None, "", "24:00:00", "31.02.2026", 0.5, time_s, "29.03.2026"]
        )
    return content | {
        "q": rng.choice([192, 0, "Good", None]),
        rng.choice(["temp", "flow"]): rng.choice(["Bad", "1,5", 3]),
    }
