"""Topics with patterns: MQTT's wildcards, and names of parts that stand for a wildcard."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

_NAMED = re.compile(r"\{([a-z]*)\}")
_NAMES = ("stream", "channel", "sequence")
_MOST_BYTES = 65_535  # MQTT 5, section 1.5.4


@dataclass(frozen=True, slots=True)
class TopicPattern:
    """A topic such as ``plant/{stream}/+/#``: ``filter`` is what the broker is asked for."""

    text: str
    filter: str
    names: tuple[str, ...]
    stream_level: int | None

    @classmethod
    def of(cls, text: str) -> TopicPattern:
        """Read ``text``. Raises ValueError that says what is wrong with it (MQTT 5, section 4.7)."""
        levels = text.split("/")
        names = [match[1] if (match := _NAMED.fullmatch(level)) else "" for level in levels]
        for number, (level, name) in enumerate(zip(levels, names, strict=True), 1):
            if name and name not in _NAMES:
                raise ValueError(
                    f"topic {text!r}: {{{name}}} is no part: known are {{stream}}, {{channel}}, {{sequence}}"
                )
            if name and names.count(name) > 1:
                raise ValueError(f"topic {text!r}: names {{{name}}} twice")
            if not name and {"{", "}"} & {*level}:
                raise ValueError(f"topic {text!r}: a part in braces is a whole level, as in plant/{{stream}}/samples")
            if level != "+" and "+" in level:
                raise ValueError(f"topic {text!r}: + stands for a whole level, as in plant/+/samples")
            if "#" in level and (level != "#" or number < len(levels)):
                raise ValueError(f"topic {text!r}: # stands for all levels behind it, so it is the last one, alone")
        if not text or "\0" in text or len(text.encode()) > _MOST_BYTES:
            raise ValueError("a topic is missing, as in mqtts://HOST/plant/+/samples" if not text else "is no topic")
        if text.startswith("$share/"):
            raise ValueError(f"topic {text!r}: a shared subscription has no order: give each bridge its own topics")
        asked = "/".join("+" if name else level for level, name in zip(levels, names, strict=True))
        return cls(text, asked, tuple(filter(None, names)), names.index("stream") if "stream" in names else None)

    def matches(self, levels: Sequence[str]) -> bool:
        """Return whether the levels of a topic are of this pattern."""
        asked = self.filter.split("/")
        if asked[-1] == "#":
            asked = asked[:-1]
            levels = levels[: len(asked)]
        return len(asked) == len(levels) and all(one in ("+", level) for one, level in zip(asked, levels, strict=True))


def key_of(topic: str, patterns: Sequence[TopicPattern]) -> str:
    """Return the key of a topic's messages: its stream by the first pattern that it is of, else the topic."""
    levels = topic.split("/")
    for pattern in patterns:
        if pattern.stream_level is not None and pattern.matches(levels):
            return levels[pattern.stream_level]
    return topic
