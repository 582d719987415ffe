"""States, words and tags in the config: what they match, and what does not go together."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from streamad.settings.boundaries import WordSet
from streamad.settings.plant_yaml import Settings


def settings(decode: dict[str, Any], sequences: dict[str, Any]) -> Settings:
    return Settings(channels=[{"name": "x"}], source={"url": "a.jsonl"}, decode=decode, sequences=sequences)


@pytest.mark.parametrize(
    ("words", "value", "is_in"),
    [
        (["RUN"], " run ", True),
        (["RUN"], "RUNNING", False),
        ([1], "1.0", True),
        ([1], True, True),
        ([True], "ON", True),  # as YAML reads [ON]
        ([False], "no", True),
        ([2.5], "2.5", True),
        (["1"], 1, True),
        ([0], None, False),
        (["RUN"], "", False),
    ],
)
def test_words_are_compared_as_people_write_them(words: list[Any], value: object, is_in: bool) -> None:
    assert (value in WordSet(words)) == is_in


WHILE = {"while": {"field": "state", "in": ["RUN"]}}
BEGIN = {"begin": {"field": "event", "value": "START"}}


def test_while_adds_itself_to_end() -> None:
    assert settings({}, WHILE).sequences.end == ("marker", "change", "while")
    assert settings({}, {**WHILE, "end": ["while"]}).sequences.end == ("while",)


@pytest.mark.parametrize(
    ("decode", "sequences", "text"),
    [
        ({}, {"end": ["while"]}, "end mode while needs the key while"),
        ({}, {"while": {"in": ["RUN"]}}, "name either the field or the tag of the state"),
        ({}, {"while": {"field": "state", "in": []}}, "write one or more texts or numbers"),
        ({"time": "relative"}, WHILE, "need absolute times"),
        ({}, {"while": {"tag": "state", "in": ["RUN"]}}, "write field, not tag"),
        ({"fields": BEGIN}, WHILE, "both say where a sequence begins"),
        ({"fields": BEGIN}, {"without_id": "skip"}, "leave without_id: skip"),
        ({"fields": {"end": BEGIN["begin"]}}, {"end": ["change"]}, "end does not name marker: add it"),
        ({"fields": {"begin": "event"}}, {}, "event"),
        ({"fields": {"begin": {"field": "event"}}}, {}, "write the name of a field, or for example"),
        ({"fields": {"sequence": {"tag": "ID"}}}, {}, "is for messages of one reading each"),
        ({"fields": {"channel": "c", "value": "v", "sequence": {"tag": "x"}}}, {}, "leave it out of channels"),
    ],
)
def test_what_does_not_go_together_is_refused(decode: dict[str, Any], sequences: dict[str, Any], text: str) -> None:
    with pytest.raises(ValidationError, match=text):
        settings(decode, sequences)
