"""Finds fields that the config names and no message of the sample has, though one is spelled nearly so."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from typing import Any

from pydantic import BaseModel

from streamad.commands.check.findings import Finding, warning
from streamad.plant import Plant
from streamad.settings.decode import FieldSettings

_OTHER_KEYS = frozenset({"ignore_unknown", "pattern", "unit", "in"})
_OF_RECORD = frozenset({"record", "key"})
_MOST_NAMES = 2_000
_DEPTH = 6
_NEAR = 0.75


def add_fields(known: dict[str, None], message: Any) -> None:
    """Add the dotted paths of a message's fields, objects and those in lists of objects included."""
    for path in _paths(message, "", 0):
        if len(known) < _MOST_NAMES:
            known[path] = None


def _paths(value: Any, prefix: str, depth: int) -> Iterator[str]:
    if isinstance(value, list):
        for each in value[:_DEPTH]:
            yield from _paths(each, "", depth)  # fields of an element are named without their list
    elif isinstance(value, dict) and depth < _DEPTH:
        for key, inner in value.items():
            yield f"{prefix}{key}"
            yield from _paths(inner, f"{prefix}{key}.", depth + 1)


def misspelled(plant: Plant, known: Mapping[str, None]) -> list[Finding]:
    """Return a finding for each field that no message of the sample has, if a field without a use has nearly its name.

    Channels in one object may be dotted below it, so a path is looked for as a whole.
    """
    settings = plant.settings
    if not known or settings.decode.fields is None:
        return []
    inside = settings.decode.fields.values
    named = [(f"decode.fields.{key}", name) for key, name in _named(settings.decode.fields)]
    if settings.decode.fields.channel is None:
        prefix = "" if inside is None else f"{inside}."
        named += [
            (f"channels[{number}].{'field' if channel.field else 'name'}", prefix + (channel.field or channel.name))
            for number, channel in enumerate(settings.channels)
        ]
    free = [name for name in known if name not in {name for _, name in named}]
    found = []
    for key, name in named:
        if name not in known and (near := get_close_matches(name, free, n=1, cutoff=_NEAR)):
            message = f"no message of the sample has the field {name}, but one is spelled nearly so"
            found.append(warning(key, message, f"if it is meant, write {near[0]}"))
    return found


def _named(fields: FieldSettings) -> Iterator[tuple[str, str]]:
    """Yield the keys that the config gives, and the fields that they name."""
    for key in fields.model_fields_set - _OTHER_KEYS:
        yield from ((key, name) for name in _texts(getattr(fields, key)) if name not in _OF_RECORD)


def _texts(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, (list, tuple)):
        for each in value:
            yield from _texts(each)
    elif isinstance(value, BaseModel) and isinstance(field := getattr(value, "field", None), str):
        yield field
