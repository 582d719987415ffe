"""Writes every key of ``plant.yaml`` into docs/guide/config.md, from the settings and their docstrings.

``python scripts/config_reference.py`` fills what stands between ``<!-- keys: SECTION -->`` and ``<!-- end -->``; the
rest of the page is written by hand.
"""

from __future__ import annotations

import re
import sys
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from streamad.plugins import keys_of
from streamad.settings.fields import parse_duration_us, parse_size_bytes
from streamad.settings.plant_yaml import Settings
from streamad.settings.template import scalar

PAGE = Path(__file__).resolve().parent.parent / "docs" / "guide" / "config.md"
LINKS = {
    "channels.values": "messages.md#bad-values",
    "channels.fill": "messages.md#report-by-exception",
    "source.url": "files.md#object-stores-and-tables",
    "decode.registry": "messages.md#schemas-in-a-registry",
    "decode.fields.sequence": "sequences.md#tags",
    "decode.fields.time": "messages.md#dates-in-other-formats",
    "decode.fields.step": "messages.md#your-format",
    "decode.fields.end": "sequences.md#words",
    "decode.fields.begin": "sequences.md#words",
    "decode.fields.nested": "messages.md#your-format",
    "decode.fields.each": "messages.md#lists-of-readings",
    "decode.fields.pattern": "messages.md#your-format",
    "decode.thousands": "messages.md#your-format",
    "decode.time": "messages.md#relative-times",
    "decode.time_format": "messages.md#dates-in-other-formats",
    "decode.missing": "messages.md#bad-values",
    "sequences.while": "sequences.md#states",
    "sequences.table": "sequences.md#a-table-of-batches",
    "sequences.without_id": "sequences.md#samples-without-an-id",
    "model.registry": "../learning/registry.md#in-an-object-store",
    "model.detector": "../model/detector.md#simple-kinds",
    "model.keep": "../learning/registry.md",
    "model.device": "../internals/gpu.md",
    "model.references": "../model/detector.md#references-beside-a-trained-model",
    "alerts.early": "judging.md#warnings-while-a-sequence-runs",
    "learning.process": "../learning/learning.md#who-does-what",
    "learning.feedback_principal": "kafka.md#subscriptions",
    "marks": "../learning/feedback.md",
    "sinks.decisions": "audit.md",
    "web.auth.users": "web.md#who-may-open-it",
    "bridge.options": "mqtt.md#options",
    "run.report_interval": "kafka.md#the-status-line",
}
"""The place that says more of a key."""

_BLOCK = re.compile(r"(<!-- keys: ([a-z ]+) -->\n).*?(<!-- end -->)", re.DOTALL)
_MARKED = re.compile(r"`[^`]*`|\{[^{}]*\}|\[[^\[\]]*\](?!\()")
_DURATIONS = {"d": 86_400_000_000, "h": 3_600_000_000, "m": 60_000_000, "s": 1_000_000, "ms": 1_000}
_SIZES = {"GB": 10**9, "MB": 10**6, "KiB": 2**10}


def keys(model: type[BaseModel] = Settings, prefix: str = "") -> Iterator[tuple[str, FieldInfo]]:
    """Yield every key with its dotted path; a section itself only where it may be left out (null)."""
    for name, field in keys_of(model).items():
        parts = [field.annotation, *typing.get_args(field.annotation)]
        section = next((part for part in parts if isinstance(part, type) and issubclass(part, BaseModel)), None)
        if section is None or field.default is None:
            yield f"{prefix}{name}", field
        if section is not None:
            yield from keys(section, f"{prefix}{name}.")


def page(text: str) -> str:
    """Return the page with its blocks of keys written anew."""
    return _BLOCK.sub(lambda block: f"{block[1]}\n{_lines(block[2].split())}\n{block[3]}", text)


def _lines(sections: list[str]) -> str:
    found = [line(key, field) for key, field in keys() if key.partition(".")[0] in sections]
    return "".join(f"{each}\n" for each in found)


def line(key: str, field: FieldInfo) -> str:
    """Return what the page says of a key."""
    name = f"[`{key}`]({LINKS[key]})" if key in LINKS else f"`{key}`"
    default = "required" if field.is_required() else f"`{_default(field)}`"
    about = " ".join((field.description or "").split())
    about = _MARKED.sub(lambda found: found[0] if found[0][0] == "`" else f"`{found[0]}`", about)
    words = {word for word in _choices(field.annotation) if word != field.default}
    if any(not re.search(rf"(?<![\w-]){re.escape(word)}(?![\w-])", about, re.IGNORECASE) for word in words):
        about = f"{about.removesuffix('.')} ({', '.join(f'`{word}`' for word in _choices(field.annotation))})."
    return f"- {name} ({default}): {about}"


def _choices(annotation: Any) -> list[str]:
    """Return the words that a key may have, if it may have no others."""
    if typing.get_origin(annotation) is Literal:
        return [word for word in typing.get_args(annotation) if isinstance(word, str) and word.strip()]
    return [word for part in typing.get_args(annotation) for word in _choices(part)]


def _default(field: FieldInfo) -> str:
    validators = {getattr(each, "func", None) for each in (*field.metadata, *_inner(field.annotation))}
    if isinstance(field.default, int) and parse_duration_us in validators:
        return _in_units(field.default, _DURATIONS)
    if isinstance(field.default, int) and parse_size_bytes in validators:
        return _in_units(field.default, _SIZES)
    default = field.default
    return scalar(str(default) if isinstance(default, Path) else default)


def _inner(annotation: Any) -> list[Any]:
    return [each for part in typing.get_args(annotation) for each in getattr(part, "__metadata__", ())]


def _in_units(number: int, units: dict[str, int]) -> str:
    """Return a quantity in the largest unit that divides it; a day is 24h."""
    fits = (f"{number // factor}{unit}" for unit, factor in units.items() if number and number % factor == 0)
    return next((text for text in fits if text != "1d"), str(number))


if __name__ == "__main__":
    written = page(PAGE.read_text("utf-8"))
    PAGE.write_text(written, encoding="utf-8")
    sys.stdout.write(f"{PAGE.name}: {written.count('- ')} lines\n")
