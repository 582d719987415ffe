"""Patterns of topics: what the broker is asked for, and the stream that decides the key."""

from __future__ import annotations

import pytest

from streamad_connectors.mqtt.topics import TopicPattern, key_of


@pytest.mark.parametrize(
    ("text", "asked", "names"),
    [
        ("plant/{stream}/{channel}", "plant/+/+", ("stream", "channel")),
        ("{sequence}/{stream}/#", "+/+/#", ("sequence", "stream")),
        ("plant/+/samples", "plant/+/samples", ()),
        ("#", "#", ()),
        ("/", "/", ()),
    ],
)
def test_a_name_is_a_wildcard_of_one_level(text: str, asked: str, names: tuple[str, ...]) -> None:
    found = TopicPattern.of(text)
    assert (found.filter, found.names) == (asked, names)


@pytest.mark.parametrize(
    ("patterns", "topic", "key"),
    [
        (["plant/{stream}/{channel}"], "plant/r1/temp", "r1"),
        (["plant/{stream}/#"], "plant/r1/a/b/c", "r1"),
        (["plant/{stream}/#"], "plant/r1", "r1"),
        (["plant/{stream}/{channel}"], "plant/r1/a/b", "plant/r1/a/b"),
        (["plant/+/samples"], "plant/r1/samples", "plant/r1/samples"),
        (["a/{channel}", "{stream}/+"], "a/b", "a"),
        (["a/{stream}", "{stream}/+"], "a/b", "b"),
    ],
)
def test_the_key_is_the_stream_by_the_first_pattern_that_names_one(patterns: list[str], topic: str, key: str) -> None:
    assert key_of(topic, [TopicPattern.of(text) for text in patterns]) == key
