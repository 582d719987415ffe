"""What messages say of states and tags, read one by one (``ingest/boundaries/reading.py``)."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from streamad.errors import DecodeError
from streamad.ingest.decode import Decoder
from streamad.ingest.intake import Intake
from streamad.partition_progress import Progress, merge
from streamad.settings.boundaries import WhileSettings
from streamad.settings.decode import ChannelSettings, DecodeSettings
from streamad.settings.plant_yaml import Settings
from streamad.telemetry.metrics import Counters
from streamad.types import Boundaries, Boundary, Record, RecordBatch

READINGS: dict[str, Any] = {"stream": "unit", "time": "t", "channel": "tag", "value": "v"}


def said(message: dict[str, Any], state: dict[str, Any], **fields: Any) -> Boundaries | None:
    """Return what a message says with ``sequences.while: state``; None as well if it is ignored."""
    decode = DecodeSettings(fields={**READINGS, **fields} if fields or "tag" in state else None)
    decoder = Decoder(decode, [ChannelSettings(name="temp")], None, WhileSettings(**state))
    found = decoder.decode(Record(0, json.dumps(message).encode()), None).blocks
    return found[0].boundaries if found else None


@pytest.mark.parametrize("name", [7, 7.0, "7"])
def test_a_tag_is_named_as_channels_are(name: object) -> None:
    found = said({"unit": "R1", "t": 1_772_352_000, "tag": name, "v": "RUN"}, {"tag": "7", "in": ["RUN"]})
    assert found == (Boundary(is_bare=True, state=True),)


@pytest.mark.parametrize("value", [None, "", " "])
def test_a_tag_without_a_state_says_nothing(value: object) -> None:
    message = {"unit": "R1", "t": 1_772_352_000, "tag": "State", "v": value}
    assert said(message, {"tag": "State", "in": ["RUN"]}) is None


def test_an_empty_id_says_that_none_holds() -> None:
    message = {"unit": "R1", "t": 1_772_352_000, "tag": "Batch", "v": ""}
    found = said(message, {"tag": "State", "in": ["RUN"]}, sequence={"tag": "Batch"})
    assert found == (Boundary(is_bare=True, names=True),)


@pytest.mark.parametrize("states", [{"code": 1}, ["RUN", {"code": 1}], [["RUN"], "RUN"]])
def test_states_of_a_chunk_are_words(states: object) -> None:
    message = {"stream": "R1", "times": [1, 2], "values": [[1], [2]], "state": states}
    with pytest.raises(DecodeError, match="state: must be one state, or a list of them, got"):
        said(message, {"field": "state", "in": ["RUN"]})


def test_many_states_that_wait_are_small_in_the_progress_and_stand_after_a_restart() -> None:
    settings = Settings(
        source={"url": "x"},
        channels=[{"name": "temp"}],
        decode={"fields": {**READINGS, "sequence": None}},
        sequences={"while": {"tag": "State", "in": ["RUN"]}, "allowed_lateness": "1h"},
    )
    states = [("State", at, "IDLE" if at == 250 else "RUN") for at in range(500)]
    messages = [*states, *(("temp", at, float(at)) for at in range(248, 254))]
    records = [
        Record(offset, json.dumps({"unit": "R1", "t": 1_772_352_000 + at, "tag": tag, "v": value}).encode())
        for offset, (tag, at, value) in enumerate(messages)
    ]
    progress: Progress | None = None
    found = []
    for end in (len(states), len(records)):
        decoder = Decoder(settings.decode, settings.channels, None, settings.sequences.while_)
        intake = Intake("p", settings, decoder, Counters(), progress=progress)
        begin = 0 if progress is None else progress.low_watermark
        assert begin == (0 if progress is None else len(states))
        found += intake.take(RecordBatch("p", tuple(records[begin:end]), end), 0)
        encoded = msgspec.json.encode(merge(progress, intake.progress()))
        assert end > len(states) or len(encoded) < 25 * len(states)
        progress = msgspec.json.decode(encoded, type=Progress)
    found += intake.end_of_input(0)
    assert [closed.sequence.values[:, 0].tolist() for closed in found] == [[248, 249], [251, 252, 253]]
