"""Keys that say where a batch begins and ends: the state of a field or tag, words of begin and end, tags with ids."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Annotated, Any, NamedTuple, TypeAlias

from pydantic import BeforeValidator, Field, model_validator

from streamad.settings.fields import ConfigSection

Word: TypeAlias = bool | int | float | str
_TRUE, _FALSE = frozenset({"true", "1", "yes", "on"}), frozenset({"false", "0", "no", "off"})


def plain(value: object) -> str | None:
    """Return a word for comparison: RUN and " run" are the same, 1, 1.0 and "1" too; None for null, "" and others."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        text = value.strip().lower()
        try:
            number = float(text)
        except ValueError:
            return text or None
        if "_" in text or not math.isfinite(number):
            return text
        return plain(number)
    if isinstance(value, float):
        return str(int(value)) if value.is_integer() else repr(value)
    return str(value) if isinstance(value, int) and abs(value) < 10**40 else None


class WordSet:
    """Words that a field may hold; YAML's ``on`` and ``yes`` are true, and true is also 1."""

    def __init__(self, words: Iterable[Word]) -> None:
        found: set[str | None] = set()
        for word in words:
            form = plain(word)
            if isinstance(word, bool):
                found |= _TRUE if word else _FALSE
            found |= {form} | ({"true"} if form == "1" else {"false"} if form == "0" else set())
        self._plain = frozenset(found - {None})

    def __contains__(self, value: object) -> bool:
        return plain(value) in self._plain


def _is_word(value: object) -> bool:
    return isinstance(value, str | bool | int | float) and plain(value) is not None


def _words(value: Any) -> Any:
    words = value if isinstance(value, list | tuple) else [value]
    if not words or not all(_is_word(word) for word in words):
        raise ValueError(f"{value!r}: write one or more texts or numbers, such as RUN or [RUN, 1]")
    return tuple(words)


Words: TypeAlias = Annotated[tuple[Word, ...], BeforeValidator(_words)]


class WhileSettings(ConfigSection):
    """The states in which a stream's samples belong to a sequence."""

    field: str | None = None
    """Field that holds the state of each sample (dotted path for nested ones)."""
    tag: str | None = None
    """One channel per message: the tag whose readings are the state; a reading holds until the next one."""
    in_: Words = Field(alias="in")
    """States of a running sequence: texts in any case, numbers, true or false."""

    @model_validator(mode="after")
    def _one_place(self) -> WhileSettings:
        if (self.field is None) == (self.tag is None):
            raise ValueError("name either the field or the tag of the state, as in {field: state, in: [RUN]}")
        return self


class WordSettings(ConfigSection):
    """A field that holds a certain word, or one of several."""

    field: str
    """Field of the word (dotted path for nested ones)."""
    value: Words
    """Text in any case, number, true or false; or a list of them."""


class TagSettings(ConfigSection):
    """A tag whose reading holds until its next one."""

    tag: str
    """Its name in the field of channels."""


def _needs(example: str) -> BeforeValidator:
    """Refuse a value that is neither a name nor has the keys of ``example``, with one text for all kinds."""
    keys = {part.partition(":")[0].strip() for part in example.strip("{}").split(",")}

    def check(value: Any) -> Any:
        if value is None or isinstance(value, str | list | tuple | ConfigSection):
            return value
        if not isinstance(value, dict) or {*value} != keys or not all(isinstance(item, str) for item in value.values()):
            is_word = isinstance(value, dict) and {*value} == keys == {"field", "value"}
            if not (is_word and isinstance(value["field"], str)):
                raise ValueError(f"{value!r}: write the name of a field, or for example {example}")
        return value

    return BeforeValidator(check)


# Annotated, so that the reference of the config has one row for each.
EndWord: TypeAlias = Annotated[str | Annotated[WordSettings, "a word"] | None, _needs("{field: event, value: END}")]
BeginWord: TypeAlias = Annotated[Annotated[WordSettings, "a word"] | None, _needs("{field: event, value: START}")]
SequenceField: TypeAlias = Annotated[
    str | Annotated[tuple[str, ...], Field(min_length=1)] | Annotated[TagSettings, "a tag"] | None,
    _needs("{tag: BatchID}"),
]
While: TypeAlias = Annotated[WhileSettings, "a state"] | None


class BoundaryRules(NamedTuple):
    """How samples find their sequence where neither an id nor an end mark alone says it.

    ``by_tag``: a tag holds the state; ``by_begin``: begin words open sequences for samples without an id;
    ``by_id_tag``: a tag holds the id. All are False if only a field holds the state of each sample.
    """

    by_tag: bool = False
    by_begin: bool = False
    by_id_tag: bool = False

    @property
    def stand(self) -> bool:
        """Return whether what one message says holds for later ones."""
        return any(self)
