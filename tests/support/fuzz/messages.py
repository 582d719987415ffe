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
from streamad.ingest.decode import Decoder
from streamad.ingest.sequences.relative_times import TOO_LATE
from streamad.messages import DeadLetter, LateRecord, Verdict
from streamad.settings.plant_yaml import Settings
from streamad.testing import ListSource
from streamad.types import Record
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
)


def run_messages(rng: random.Random) -> str | None:
    """Judge PER_CASE messages of one plant; return what does not add up, None if all does."""
    settings = settings_of(**rng.choice(_PLANTS))
    partitions = {f"t/{number}": _records(rng, settings) for number in range(2)}
    return asyncio.run(_judged(partitions, settings))


async def _judged(partitions: dict[str, list[Record]], settings: Settings) -> str | None:
    run = await run_pipeline(ListSource.of(partitions, batch_records=50), settings)
    return imbalance(run, partitions, settings)


def imbalance(run: Run, partitions: dict[str, list[Record]], settings: Settings) -> str | None:
    """Return the first count of ``run`` that does not fit what was read, None if all fit.

    Each record is accepted, a dead letter, ignored or a tombstone; each sample is part of a sequence, merged, late or
    a dead letter, or left out without an id; each sequence has a verdict; each dead letter, late sample and verdict was
    written once.
    """
    counters, read = run.pipeline.counters, _decoded(partitions, settings)
    written = [letter for letter in run.messages("dead_letters") if isinstance(letter, DeadLetter)]
    letters: Counter[str] = Counter(letter.kind for letter in written)
    after = Counter(letter.kind for letter in written if letter.kind in _AFTER_DECODING or letter.error == TOO_LATE)
    refused = after["too_many_streams"] + after["bad_time"]
    unread = dict(counters.dead_letters - after)
    late = sum(len(record.times) for record in run.messages("late") if isinstance(record, LateRecord))
    jumps = counters.dead_letters["time_jump"]
    sequences = sum(counters.sequences.values())
    pairs = {
        "records": (counters.records, sum(map(len, partitions.values()))),
        "unreadable records": (unread, dict(read.unread)),
        "ignored": ((counters.ignored, counters.tombstones), (read.ignored, read.tombstones)),
        "records, each in one way": (
            counters.records,
            read.accepted + sum(unread.values()) + counters.ignored + counters.tombstones,
        ),
        "samples": (
            counters.samples,
            counters.sequence_samples + counters.merged + counters.late_samples + jumps,
        ),
        "samples without an id, left out": (counters.without_id, read.without_id),
        "samples of decoded records": (read.samples >= counters.samples, True),
        "samples without refused streams": (read.samples == counters.samples or refused > 0, True),
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
        self.accepted = self.ignored = self.tombstones = self.samples = self.without_id = 0
        self.unread: Counter[str] = Counter()


def _decoded(partitions: dict[str, list[Record]], settings: Settings) -> _Read:
    read, decoder = _Read(), Decoder(settings.decode, settings.channels, settings.route_field)
    for record in (record for records in partitions.values() for record in records):
        try:
            block = decoder.decode(record, None)
        except DecodeError as error:
            read.unread[error.kind] += 1
            continue
        if block is None:
            read.ignored += bool(record.value)
            read.tombstones += not record.value
        else:
            read.accepted += 1
            if block.sequence is None and settings.sequences.without_id == "skip":
                read.without_id += len(block)
            else:
                read.samples += len(block)
    return read


def _records(rng: random.Random, settings: Settings) -> list[Record]:
    n = PER_CASE // 2
    own = settings.decode.fields is None
    values: Sequence[bytes] = (
        [_own(message, rng) for message in mutated_messages(n, rng.randrange(1 << 60))]
        if own
        else [_foreign(rng) for _ in range(n)]
    )
    has_times, has_keys = rng.random() < 0.5, rng.random() < 0.5
    time_us, records = _START_US, []
    for offset, value in enumerate(values):
        time_us += rng.choice([0, 10_000, 100_000, 1_000_000, -500_000])
        odd = rng.random()
        records.append(
            Record(
                offset,
                b"" if odd < 0.01 else b"\x00" + rng.randbytes(4) + value if odd < 0.02 else value,
                rng.choice([-1, 0, 1 << 62, time_us]) if has_times and odd < 0.03 else time_us if has_times else None,
                damaged_bytes(b"r%d" % rng.randrange(3), rng) if has_keys and rng.random() < 0.2 else b"r1",
                schema="7" if odd > 0.99 else None,
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


def _foreign(rng: random.Random) -> bytes:
    """Return a message with fields of a plant's own, damaged in half of all cases; some have no sequence id."""
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
    content |= {"q": rng.choice([192, 0, "Good", None]), rng.choice(["temp", "flow"]): rng.choice(["Bad", "1,5", 3])}
    return damaged_message(content, rng) if rng.random() < 0.5 else json.dumps(content).encode()
