"""What messages say of states and tags, read one by one (``ingest/boundaries/reading.py``)."""

from __future__ import annotations

import json
from typing import Any

import pytest

from streamad.errors import DecodeError
from streamad.ingest.decode import Decoder
from streamad.settings.boundaries import WhileSettings
from streamad.settings.decode import ChannelSettings, DecodeSettings
from streamad.types import Boundaries, Boundary, Record

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
